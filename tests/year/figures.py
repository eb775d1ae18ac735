"""The figures of a simulated year: the laws that they must keep, their file, and their picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import orjson

from tests.support.repository import ROOT
from tests.year.run import MEMORY, Growth, Month, Pairs
from tests.year.stream import Size

FIGURES = ROOT / "tests" / "year" / "figures.json"
PAGE = ROOT / "docs" / "project" / "benchmarks.md"
PICTURE = ROOT / "docs" / "project" / "year.svg"

MEBIBYTE = 2**20

MOST_RATIO = 1.3
"""Of the last month to the first one."""

ROWS_OF_DATA = {
    "episodes", "slumberd_episode_log", "slumberd_erased_scopes", "facts", "slumberd_keys",
    "slumberd_firings", "slumberd_ledger", "slumberd_references",
}  # fmt: skip
"""The tables that hold a row for something that was put, said or done."""

BOUNDED_ROWS = {"slumberd_episode_deletions": 10_000}
"""The tables that keep the last rows only, and how many."""

FIXED_FILES = ("control.sock", "slumberd.pid", "memory.db-shm", "facts.db-shm")

INDEXES = "search"
"""The directory of the saved indexes, which come with the first scope that is large enough."""

_MOST_INDEXES = 256
"""The default of `search.max_index_bytes`, in MiB."""

_POOLED_THREADS = 6
"""The threads that asyncio starts on two processors, each when the others are busy."""


@dataclass(frozen=True)
class Figures:
    """What was measured in a year.

    Attributes:
        size: How large the year was.
        months: One for each month, in order.
        grown: What the daemon had more after further equal requests.
        compared: What a daemon needs above the data of the first month and of the last one.
        commit: The commit that was measured.
    """

    size: Size
    months: Sequence[Month]
    grown: Growth
    compared: Pairs
    commit: str

    def write(self, path: Path) -> None:
        """Write the figures as JSON."""
        document = {
            "commit": self.commit, "size": asdict(self.size), "grown": self.grown._asdict(),
            "compared": self.compared, "months": [asdict(month) for month in self.months],
        }  # fmt: skip
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def read_figures(path: Path = FIGURES) -> Figures:
    """Return the figures of a file."""
    document: dict[str, Any] = orjson.loads(path.read_bytes())
    months = [Month(**month) for month in document["months"]]
    size, grown = Size(**document["size"]), Growth(**document["grown"])
    compared = {name: (first, last) for name, (first, last) in document["compared"].items()}
    return Figures(size, months, grown, compared, document["commit"])


class Law(NamedTuple):
    """A figure, and the most that it may be.

    Attributes:
        name: What the figure is.
        unit: Its unit.
        is_time: Whether it compares processor times, which other programs disturb.
    """

    name: str
    value: float
    unit: str
    most: float
    is_time: bool = False


def laws(figures: Figures) -> list[Law]:
    """Return what a year must keep: nothing grows but what the data of users make grow."""
    first, last, grown = figures.months[0], figures.months[-1], figures.grown
    files = [month.open_files for month in figures.months]
    threads = [month.threads for month in figures.months]
    return [
        *_ratios(figures.compared),
        Law("memory after more equal requests", grown.mebibytes, "MiB", 2.0),
        Law("open files, most to fewest of a month", max(files) - min(files), "", 2),
        Law("open files after more equal requests", grown.open_files, "", 2),
        Law("threads, most to fewest of a month", max(threads) - min(threads), "", _POOLED_THREADS),
        Law("threads after more equal requests", grown.threads, "", 2),
        *_file_laws(figures),
        *_row_laws(first, last),
    ]


def _ratios(compared: Pairs) -> list[Law]:
    return [
        Law(f"{name}, last month to first", last / first, "x", MOST_RATIO, is_time=name != MEMORY)
        for name, (first, last) in compared.items()
    ]


def _file_laws(figures: Figures) -> list[Law]:
    """Compare the bytes of files with what they hold, and the others with none."""
    middle, last = figures.months[len(figures.months) // 2 - 1], figures.months[-1]
    first = figures.months[0]
    log = max(month.files["largest write-ahead log"] for month in figures.months)
    others = sorted(set(last.files) - set(first.files) - {INDEXES})
    indexes = max(month.files.get(INDEXES, 0) for month in figures.months)
    fixed = max((last.files[name] - first.files.get(name, 0)) for name in FIXED_FILES)
    return [
        Law("largest write-ahead log", log / MEBIBYTE, "MiB", 64),
        Law(
            "bytes of a line of the log, last month to first", _line(last) / _line(first), "x", 1.1
        ),
        Law(
            "bytes of `facts.db` for a row of the ledger, last month to middle",
            _row(last) / _row(middle),
            "x",
            1.1,
        ),
        Law(
            "bytes of `memory.db` for a version that was put, last month to middle",
            _episode(last) / _episode(middle),
            "x",
            1.1,
        ),
        Law(
            "bytes of `stages.db` for a stored episode, last month to middle",
            _note(last) / _note(middle),
            "x",
            MOST_RATIO,
        ),
        Law("saved indexes of search", indexes / MEBIBYTE, "MiB", _MOST_INDEXES),
        Law(f"files that were not there before {others or ''}".rstrip(), len(others), "", 0),
        Law("other files", fixed / MEBIBYTE, "MiB", 4),
    ]


def _line(month: Month) -> float:
    return month.log_bytes / month.log_lines


def _row(month: Month) -> float:
    return month.files["facts.db"] / month.rows["facts.db: slumberd_ledger"]


def _episode(month: Month) -> float:
    return month.files["memory.db"] / month.put


def _note(month: Month) -> float:
    return month.files["stages.db"] / month.rows["memory.db: episodes"]


def _row_laws(first: Month, last: Month) -> list[Law]:
    found = []
    for name, rows in last.rows.items():
        table = name.partition(": ")[2]
        if table in BOUNDED_ROWS:
            found.append(Law(f"rows of `{name}`", rows, "", BOUNDED_ROWS[table]))
        elif table not in ROWS_OF_DATA:
            found.append(Law(f"new rows of `{name}`", rows - first.rows.get(name, 0), "", 1))
    return found


def table(figures: Figures) -> str:
    """Return the comparison of the first and the last month, and each broken law, in Markdown."""
    rows = ["| what | first month | last month | ratio | aim | |", "|---|---|---|---|---|---|"]
    for name, (first, last) in figures.compared.items():
        unit, ratio = "MiB" if name == MEMORY else "ms", last / first
        missed = "missed" if ratio > MOST_RATIO else ""
        rows.append(
            f"| {name} | {_number(first)} {unit} | {_number(last)} {unit} | {ratio:.2f} x"
            f" | at most {MOST_RATIO} x | {missed} |"
        )
    others = [law for law in laws(figures) if not law.name.startswith(tuple(figures.compared))]
    broken = [law for law in others if law.value > law.most]
    said = f"{len(others) - len(broken)} of {len(others)} other laws are kept."
    for law in broken:
        said += f" Missed: {law.name}, {law.value:.3g} {law.unit} of {law.most:g}.".replace(
            " .", "."
        )
    head = f"{_size_in_words(figures.size)} Commit `{figures.commit}`."
    return "\n".join([head, "", *rows, "", said])


# the picture


class Panel(NamedTuple):
    """A part of the picture.

    Attributes:
        title: What it shows, with the unit.
        lines: Each line's name, with its number for each month.
    """

    title: str
    lines: Mapping[str, Sequence[float]]


_WIDTH, _HEIGHT, _COLUMNS = 400, 170, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 86, 34, 28
_TEXT, _GRID = "#222222", "#d0d0d0"
_LINES = ('stroke="#1f5fa8"', 'stroke="#b3541e" stroke-dasharray="6 3"')
"""A line can be told from the other one without its colour."""


def panels(figures: Figures) -> list[Panel]:
    """Return the parts of the picture."""

    def line(of: Callable[[Month], float]) -> list[float]:
        return [of(month) for month in figures.months]

    def file(name: str) -> list[float]:
        return line(lambda month: month.files[name] / MEBIBYTE)

    new = figures.size.new
    return [
        Panel(f"Firing with {new} new claims, ms", {"firing": line(lambda one: one.firing)}),
        Panel(
            "Nightly rule, ms",
            {
                f"{new} claims": line(lambda one: one.nightly),
                "a night": line(lambda one: one.nights),
            },
        ),
        Panel("Search, ms", {"search": line(lambda one: one.search)}),
        Panel(
            "Start of the daemon; status, ms",
            {"start": line(lambda one: one.start), "status": line(lambda one: one.status)},
        ),
        Panel(
            "Memory of the daemon, MiB",
            {
                "all": line(lambda one: one.resident),
                "without files": line(lambda one: one.anonymous),
            },
        ),
        Panel(
            "Open files and threads",
            {"files": line(lambda one: one.open_files), "threads": line(lambda one: one.threads)},
        ),
        Panel("Databases, MiB", {"facts.db": file("facts.db"), "memory.db": file("memory.db")}),
        Panel(
            "Log of the month; largest -wal, MiB",
            {
                "log": line(lambda one: one.log_bytes / MEBIBYTE),
                "-wal": file("largest write-ahead log"),
            },
        ),
    ]


def draw(figures: Figures) -> str:
    """Return the picture as SVG: its text is text, and its own background suits dark pages."""
    parts = panels(figures)
    rows = -(-len(parts) // _COLUMNS)
    width, height = _WIDTH * _COLUMNS, _HEIGHT * rows + 24
    drawn = [
        _panel(part, number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT)
        for number, part in enumerate(parts)
    ]
    foot = f"Month of the simulated year. {_size_in_words(figures.size)}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' aria-labelledby="title description" font-family="sans-serif" font-size="12"'
        f' fill="{_TEXT}">',
        '<title id="title">A simulated year of slumberd, month by month</title>',
        f'<desc id="description">{escape(describe(figures))}</desc>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *drawn,
        f'<text x="{width / 2:g}" y="{height - 8}" text-anchor="middle">{escape(foot)}</text>',
        "</svg>\n",
    ])  # fmt: skip


def describe(figures: Figures) -> str:
    """Return the picture in words: each line with its first, middle and last number."""
    places = sorted({0, len(figures.months) // 2 - 1, len(figures.months) - 1})
    months = ", ".join(str(figures.months[place].month) for place in places)
    said = [
        f"{part.title}, {name}: {', '.join(_number(values[place]) for place in places)}"
        for part in panels(figures)
        for name, values in part.lines.items()
    ]
    return f"Months {months}. {'; '.join(said)}."


def _size_in_words(size: Size) -> str:
    return f"{size.users:,} users, {size.episodes:,} episodes in {size.days} days."


def _panel(panel: Panel, x: int, y: int) -> str:
    top = _nice(max(max(values) for values in panel.lines.values()))
    months = len(next(iter(panel.lines.values())))
    inner, depth = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(place: int) -> float:
        return _LEFT + inner * place / max(1, months - 1)

    def down(value: float) -> float:
        return _TOP + depth * (1 - value / top)

    drawn = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>']
    drawn += [
        f'<path stroke="{_GRID}" d="M{_LEFT},{down(value):.1f}h{inner}"/>'
        f'<text x="{_LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        for value in (0, top / 2, top)
    ]
    drawn += [
        f'<text x="{across(n):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{n + 1}</text>'
        for n in range(months)
    ]
    ends = _spread([down(values[-1]) for values in panel.lines.values()])
    for look, end, (name, values) in zip(_LINES, ends, panel.lines.items(), strict=False):
        points = " ".join(f"{across(n):.1f},{down(value):.1f}" for n, value in enumerate(values))
        drawn.append(
            f'<polyline {look} stroke-width="2" fill="none" points="{points}"/>'
            f'<text x="{_LEFT + inner + 6}" y="{end + 4:.1f}">{escape(name)}</text>'
        )
    return f'<g transform="translate({x},{y})">\n' + "\n".join(drawn) + "\n</g>"


def _spread(ends: Sequence[float]) -> list[float]:
    """Return the heights of two names, at least a line of text apart."""
    if len(ends) == 1 or abs(ends[0] - ends[1]) >= 14:  # of a line of 12
        return list(ends)
    middle = sum(ends) / 2
    return [middle - 7, middle + 7] if ends[0] <= ends[1] else [middle + 7, middle - 7]


def _nice(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20 ... that is at least a value."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"  # digits
