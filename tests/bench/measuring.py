"""The measurements of a bench: costs, the lines of its table, and their bounds."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, TypeVar

from tests.support.repository import ROOT

T = TypeVar("T")


class Cost(NamedTuple):
    """The cost of some work.

    Attributes:
        wall: Seconds of wall time.
        processor: Seconds of processor time, of all threads.
        resident: Peak memory in MiB; 0 when it was not measured.
    """

    wall: float
    processor: float
    resident: float = 0.0


class Bound(NamedTuple):
    """The limit of a figure, as the targets of the project give it."""

    side: Literal["at most", "at least"]
    number: float

    def keeps(self, value: float) -> bool:
        return value <= self.number if self.side == "at most" else value >= self.number


def at_most(number: float) -> Bound:
    return Bound("at most", number)


def at_least(number: float) -> Bound:
    return Bound("at least", number)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Attributes:
        section: The part of the bench.
        name: What was measured.
        unit: The unit of the values.
        values: One for each time that it was measured.
        processor: Seconds of processor time, beside values that are wall time.
        bound: The limit of the median; None when the project promises nothing.
    """

    section: str
    name: str
    unit: str
    values: Sequence[float]
    processor: Sequence[float] = ()
    bound: Bound | None = None

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def kept(self) -> bool:
        return self.bound is None or self.bound.keeps(self.value)

    def document(self) -> dict[str, Any]:
        """Return the line as JSON, with every value."""
        return {
            "section": self.section,
            "name": self.name,
            "unit": self.unit,
            "median": self.value,
            "values": list(self.values),
            "processor_seconds": list(self.processor),
            "bound": self.bound and f"{self.bound.side} {shown(self.bound.number)}",
            "kept": self.kept,
        }


@dataclass(slots=True)
class Table:
    """The lines of one run, printed as they come."""

    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        if not self.lines:
            print(f"{'':58} {'median':>12} {'lowest..highest':>22} {'CPU':>8}  target")
        self.lines.append(line)
        print(_row(line), flush=True)

    def leave_out(self, section: str, name: str, aim: str) -> None:
        """Print a row of what this run does not measure, so that nobody takes it for kept."""
        print(
            f"{f'{section}: {name}':58} {'not measured':>12} {'':>31}  {aim}".rstrip(), flush=True
        )

    def seconds(
        self, section: str, name: str, costs: Sequence[Cost], bound: Bound | None = None
    ) -> None:
        """Add the wall time of some work, with its processor time beside it."""
        walls, processors = [cost.wall for cost in costs], [cost.processor for cost in costs]
        self.add(Line(section, name, "s", walls, processors, bound))

    def rate(self, section: str, name: str, count: int, costs: Sequence[Cost]) -> None:
        """Add the rate of some work, with its processor time."""
        processors = [cost.processor for cost in costs]
        self.add(Line(section, name, "/s", rates(count, costs), processors))

    def ratio(
        self,
        section: str,
        name: str,
        pairs: tuple[Sequence[float], Sequence[float]],
        bound: Bound | None = None,
    ) -> None:
        """Add the ratio of the first to the second, for each pair."""
        ratios = [first / second for first, second in zip(*pairs, strict=True)]
        self.add(Line(section, name, "x", ratios, bound=bound))


def _row(line: Line) -> str:
    spread = f"{shown(min(line.values))}..{shown(max(line.values))}"
    processor = f"{median(line.processor):.2f} s" if line.processor else ""
    target = ""
    if line.bound is not None:
        result = "kept" if line.kept else "MISSED"
        target = f"{line.bound.side} {shown(line.bound.number)}: {result}"
    name = f"{line.section}: {line.name}"
    value = f"{shown(line.value)} {line.unit}"
    return f"{name:58} {value:>12} {spread:>22} {processor:>8}  {target}".rstrip()


def shown(value: float) -> str:
    """Return a figure with the digits that mean something."""
    if value >= 1_000:  # more digits mean nothing
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rates(count: int, costs: Sequence[Cost]) -> list[float]:
    """Return the rate of each measurement, for a number of items."""
    return [count / cost.wall for cost in costs]


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs, with the highest memory."""
    walls, processors, residents = zip(*costs, strict=True)
    return Cost(sum(walls), sum(processors), max(residents))


def timed(work: Callable[[], T]) -> tuple[T, Cost]:
    """Do something in this process; return what it returns, and what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, Cost(time.perf_counter() - wall, time.process_time() - processor)


async def timed_async(work: Awaitable[object]) -> Cost:
    """Await something in this process; return what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    await work
    return Cost(time.perf_counter() - wall, time.process_time() - processor)


def run(words: Sequence[str | Path], *, to: Path = Path(os.devnull)) -> Cost:
    """Run a command to its end, its output in a file, and return what it took."""
    began = time.monotonic()
    with to.open("wb") as out:
        pid = os.posix_spawn(
            words[0],
            list(map(str, words)),
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)],
        )
    _, status, used = os.wait4(pid, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"{' '.join(map(str, words))} ended with {code}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` when files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share, 0 to 1, of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
