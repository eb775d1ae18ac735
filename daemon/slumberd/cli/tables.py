"""Lay out columns: the one place that decides how wide they are. An id is never broken.

A table that is too wide for its terminal gives way in this order: its texts are wrapped; columns
that say nothing are left out; what every row says is said once above the table, of as few columns
as will do; at last each row becomes a block of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

Rows = Sequence[Sequence[str]]

GAP = "  "
EMPTY = ("", "-")
"""Cells that say nothing."""

WHOLE = frozenset({
    "agent", "channel", "episode", "fact", "file", "firing", "held", "id", "replaces", "row",
    "rule", "run", "seq", "session", "store", "user",
})  # fmt: skip
"""Names of columns that hold ids, paths, or lists of them: these are never broken inside of one."""

LONGEST_WORD = 20
"""A longer word of a column without ids may be broken, when the table does not fit otherwise."""

LEGIBLE = 24
"""A column with longer texts is at least so wide: a narrower one is a tower of words."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table.

    Attributes:
        text: What it says.
        heading: Whether it names the columns.
    """

    text: str
    heading: bool = False


def laid_out(columns: Sequence[str], rows: Rows, width: int | None) -> Iterator[Line]:
    """Yield the lines of a table.

    Args:
        columns: Their names; the first says which row it is.
        rows: Their cells, none of which holds a line break.
        width: Of the terminal, in characters; None where the table may be as wide as it is.
    """
    if width is None or _total(_natural(columns, rows)) <= width:
        yield from _table(columns, rows, _natural(columns, rows))
        return
    for names, cells, shared in _ever_fewer(columns, rows):
        widths = _narrowed(names, cells, width)
        if widths is not None:
            yield from _shared(shared)
            yield from _table(names, cells, widths)
            return
    yield from _blocks(columns, rows, width)


def _table(columns: Sequence[str], rows: Rows, widths: Sequence[int]) -> Iterator[Line]:
    yield from (Line(one, heading=True) for one in _lines(columns, columns, widths))
    for row in rows:
        yield from (Line(one) for one in _lines(columns, row, widths))


def _shared(shared: Mapping[str, str]) -> Iterator[Line]:
    """Yield what every row says, before the table."""
    if shared:
        yield Line("in every row:")
        yield from (Line(f"  {name}: {cell}") for name, cell in shared.items())


def _natural(columns: Sequence[str], rows: Rows) -> list[int]:
    return [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(columns: Sequence[str], rows: Rows, width: int) -> list[int] | None:
    """Return widths that fit, the widest columns narrowed first; None when there are none."""
    widths = _natural(columns, rows)
    least = [
        max(_least(name, cell) for cell in (name, *cells))
        for name, cells in zip(columns, _transposed(columns, rows), strict=True)
    ]
    while (excess := _total(widths) - width) > 0:
        loose = [n for n, one in enumerate(widths) if one > least[n]]
        if not loose:
            return None
        widest = max(loose, key=lambda n: widths[n])
        others = [widths[n] for n in loose if n != widest]
        floor = max([least[widest], *(one for one in others if one < widths[widest])])
        widths[widest] -= min(excess, max(1, widths[widest] - floor))
    return widths


def _transposed(columns: Sequence[str], rows: Rows) -> list[tuple[str, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * len(columns)


def _least(name: str, cell: str) -> int:
    """Return how narrow a cell may be made."""
    longest = max(map(cell_len, cell.split()), default=0)
    if name in WHOLE:
        return longest
    return max(min(longest, LONGEST_WORD), LEGIBLE if cell_len(cell) > LEGIBLE else 0)


def _ever_fewer(
    columns: Sequence[str], rows: Rows
) -> Iterator[tuple[list[str], Rows, dict[str, str]]]:
    """Yield the table, then without the columns that say nothing, then with ever fewer columns.

    Of several rows, a column that says the same in each can be left out; never the first one.

    Yields:
        The columns that are left, their rows, and what every row says in those left out.
    """
    cells = dict(zip(columns, _transposed(columns, rows), strict=True))
    yield list(columns), rows, {}
    first, *others = columns
    kept = [first, *(name for name in others if any(cell not in EMPTY for cell in cells[name]))]
    shared: dict[str, str] = {}
    yield kept, _of(kept, cells), shared
    for name in [one for one in kept[1:] if len(rows) > 1 and len({*cells[one]}) == 1]:
        kept = [one for one in kept if one != name]
        shared = {**shared, name: cells[name][0]}
        yield kept, _of(kept, cells), shared


def _of(names: Sequence[str], cells: Mapping[str, Sequence[str]]) -> Rows:
    return list(zip(*(cells[name] for name in names), strict=True))


def _lines(columns: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row."""
    wrapped = [
        [cell] if cell_len(cell) <= width else list(_wrapped(cell, width, name in WHOLE))
        for name, cell, width in zip(columns, cells, widths, strict=True)
    ]
    for number in range(max(map(len, wrapped))):
        parts = [one[number] if number < len(one) else "" for one in wrapped]
        yield GAP.join(map(_padded, parts, widths)).rstrip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _wrapped(text: str, width: int, whole: bool) -> Iterator[str]:  # of a column
    """Yield a text in lines, broken between words; inside of a word only where it must be."""
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        *full, line = [word] if whole else _chopped(word, width)
        yield from full
    yield line


def _chopped(word: str, width: int) -> list[str]:
    """Return a word in pieces that are at most so wide; at least one."""
    pieces, taken = [""], 0
    for character in word:
        wide = cell_len(character)
        if taken + wide > width and pieces[-1]:
            pieces.append("")
            taken = 0
        pieces[-1] += character
        taken += wide
    return pieces


def _blocks(columns: Sequence[str], rows: Rows, width: int) -> Iterator[Line]:
    """Yield each row as lines of a name and a cell, with an empty line between two rows."""
    indent = max(map(cell_len, columns)) + len(GAP)
    for number, row in enumerate(rows):
        if number:
            yield Line("")
        for name, cell in zip(columns, row, strict=True):
            if cell not in EMPTY:
                yield from _named(name, cell, indent, width)


def _named(name: str, cell: str, indent: int, width: int) -> Iterator[Line]:
    room = max(width - indent, LONGEST_WORD)
    label = _padded(name, indent)
    for line in _wrapped(cell, room, name in WHOLE):
        yield Line(f"{label}{line}".rstrip())
        label = " " * indent
