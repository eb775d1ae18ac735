"""The file of results: one line of JSON for each fault, and for each judgement of one."""

from __future__ import annotations

import json
from pathlib import Path
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

    def survivors(self) -> dict[str, str]:
        """Return the files of the faults that no test caught and that are not judged."""
        return {
            id: fault["path"]
            for id, fault in self._faults.items()
            if fault["outcome"] == "survived" and not fault.get("equivalent")
        }

    def report(self) -> str:
        """Return the survivors and the share of caught faults."""
        survivors = self.survivors()
        caught = sum(fault["outcome"] == "caught" for fault in self._faults.values())
        counted = caught + len(survivors)
        share = f", {caught / counted:.1%}" if counted else ""
        shown = [_shown(self._faults[id]) for id in sorted(survivors)]
        unchanged = len(self._faults) - counted
        figure = f"{caught} of {counted} faults caught{share}; {unchanged} more change no behaviour"
        return "\n".join([*shown, figure])


def _shown(fault: dict[str, Any]) -> str:
    reached = f"{fault['ran']} of {fault['tests']} tests" if fault["tests"] else "no test runs it"
    heading = f"survived {fault['id']} {fault['path']}:{fault['line']} ({fault['kind']}, {reached})"
    return f"{heading}\n{fault['diff']}\n"
