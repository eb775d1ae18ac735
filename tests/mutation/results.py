"""The file of results: one line of JSON for each fault, and for each judgement of one."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any


class OtherSourceError(Exception):
    """The file of results belongs to another package, seed or choice of files."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is of another source, seed or choice of files; name another file")


class Results:
    """What was found so far; later lines about a fault win."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._faults: dict[str, dict[str, Any]] = {}
        self._about: dict[str, Any] | None = None
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(json.loads(line))

    def _read(self, line: dict[str, Any]) -> None:
        if "id" in line:
            self._faults[line["id"]] = {**self._faults.get(line["id"], {}), **line}
        else:
            self._about = line

    def begin(self, about: dict[str, Any]) -> None:
        """Start the file, or check that it belongs to the same faults.

        Raises:
            OtherSourceError: It does not.
        """
        if self._about is None:
            self.add(about)
        elif self._about != about:
            raise OtherSourceError(self._path)

    def add(self, line: dict[str, Any]) -> None:
        """Append a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")
        self._read(line)

    def judge(self, id: str, reason: str) -> None:
        """Say why a fault changes no behaviour."""
        if id not in self._faults:
            raise KeyError(id)
        self.add({"id": id, "equivalent": reason})

    def tried(self) -> set[str]:
        """Return the faults with a result."""
        return set(self._faults)

    def survivors(self, tier: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the faults that no test caught and that are not judged.

        Args:
            tier: Only those that were last tried with the tests of this tier.
        """
        return {
            id: fault
            for id, fault in self._faults.items()
            if fault["outcome"] == "survived" and not fault.get("equivalent")
            if tier is None or fault.get("tier", "default") == tier
        }

    def report(self) -> str:
        """Return the survivors and the shares of caught faults, with their intervals."""
        survivors = self.survivors()
        caught = [fault for fault in self._faults.values() if fault["outcome"] == "caught"]
        default = sum(fault.get("tier", "default") == "default" for fault in caught)
        gone = [fault for fault in self._faults.values() if fault["outcome"] == "gone"]
        judged = len(self._faults) - len(caught) - len(survivors) - len(gone)
        counted = len(caught) + len(survivors)
        lines = [_shown(self._faults[id]) for id in sorted(survivors)]
        lines += [f"gone {fault['id']} {fault['path']}:{fault['line']}" for fault in gone]
        lines += [f"default tests catch {_share(default, counted)}"]
        if waiting := len(self.survivors("default")):
            lines += [f"not tried with the tests that --all adds: {_counted(waiting, 'survivor')}"]
        lines += [f"all tests catch {_share(len(caught), counted)}"]
        lines += [f"of those, default tests catch {_share(default, len(caught))}"]
        lines += [
            f"not counted: {judged} without effect on behaviour, {len(gone)} with no place left"
        ]
        return "\n".join(lines)


def interval(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, as Wilson defines it.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927), pages 209 to 212.
    """
    share, z = hits / count, NormalDist().inv_cdf(0.975)
    middle = share + z * z / (2 * count)
    margin = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - margin) / (1 + z * z / count), (middle + margin) / (1 + z * z / count)


def _share(hits: int, count: int) -> str:
    if not count:
        return "0 of 0 faults"
    low, high = interval(hits, count)
    figures = f"{hits / count:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    return f"{hits} of {_counted(count, 'fault')}, {figures}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _shown(fault: dict[str, Any]) -> str:
    tests = fault["tests"]
    reached = f"{fault['ran']} of {_counted(tests, 'test')}" if tests else "no test runs it"
    heading = f"survived {fault['id']} {fault['path']}:{fault['line']} ({fault['kind']}, {reached})"
    return f"{heading}\n{fault['diff']}\n"
