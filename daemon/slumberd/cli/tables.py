"""Lay out columns: the one place that decides how wide they are. An id is never broken.

A table that is too wide for its terminal gives way in this order: its texts are wrapped; columns
that say nothing are left out; what every row says is said once above the table, of as few columns
as will do; at last each row becomes a block of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

Rows = Sequence[Sequence[str]]

GAP = "  "
EMPTY = ("", "-")
"""Cells that say nothing."""

WHOLE = frozenset({
    "agent", "channel", "episode", "fact", "file", "firing", "held", "id", "replaces", "row",
    "rule", "rule hash", "run", "seq", "session", "store", "user",
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
    table = [_Column(name, [row[n] for row in rows]) for n, name in enumerate(columns)]
    natural = [one.natural for one in table]
    if width is None or _total(natural) <= width:
        yield from _table(table, natural)
        return
    for kept, shared in _ever_fewer(table, len(rows)):
        widths = _narrowed(kept, width)
        if widths is not None:
            yield from _shared(shared)
            yield from _table(kept, _snug(kept, widths, width))
            return
    yield from _blocks(table, width)


@dataclass(frozen=True)
class _Column:
    """A column: its name, and its cells."""

    name: str
    cells: Sequence[str]

    @cached_property
    def natural(self) -> int:
        """How wide it is without wrapping."""
        return max(map(_width, (self.name, *self.cells)))

    @cached_property
    def least(self) -> int:
        """How narrow it may be made."""
        return max(_least(self.name, cell) for cell in (self.name, *self.cells))


def _least(name: str, cell: str) -> int:
    """Return how narrow a cell may be made."""
    longest = max(map(_width, cell.split()), default=0)
    if name in WHOLE:
        return longest
    return max(min(longest, LONGEST_WORD), LEGIBLE if _width(cell) > LEGIBLE else 0)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _ever_fewer(
    table: Sequence[_Column], rows: int
) -> Iterator[tuple[Sequence[_Column], dict[str, str]]]:
    """Yield the table, then without the columns that say nothing, then with ever fewer columns.

    Of several rows, a column that says the same in each can be left out: the last ones first, and
    never the first one.

    Yields:
        The columns that are left, and what every row says in those left out.
    """
    yield table, {}
    first, *others = table
    kept = [first, *(one for one in others if any(cell not in EMPTY for cell in one.cells))]
    shared: dict[str, str] = {}
    yield kept, shared
    for alike in [one for one in kept[:0:-1] if rows > 1 and len({*one.cells}) == 1]:
        kept = [one for one in kept if one is not alike]
        shared = {alike.name: alike.cells[0], **shared}
        yield kept, shared


def _narrowed(table: Sequence[_Column], width: int) -> list[int] | None:
    """Return widths that fit, the widest columns narrowed first; None when there are none."""
    widths = [one.natural for one in table]
    while (excess := _total(widths) - width) > 0:
        loose = [n for n, one in enumerate(table) if widths[n] > one.least]
        if not loose:
            return None
        widest = max(loose, key=lambda n: widths[n])
        others = [widths[n] for n in loose if widths[n] < widths[widest]]
        floor = max([table[widest].least, *others])
        widths[widest] -= min(excess, max(1, widths[widest] - floor))
    return widths


def _snug(table: Sequence[_Column], widths: Sequence[int], width: int) -> list[int]:
    """Return widths without the room that wrapping leaves empty; one column gets it."""
    used = [_used(one, given) for one, given in zip(table, widths, strict=True)]
    longest = max(range(len(used)), key=lambda n: table[n].natural - used[n])
    used[longest] = min(table[longest].natural, used[longest] + width - _total(used))
    return used


def _used(column: _Column, width: int) -> int:
    """Return how much of a width the lines of a column take."""
    if column.natural <= width:
        return column.natural
    cells = (column.name, *column.cells)
    return max(_width(line) for cell in cells for line in _wrapped(cell, width, column.name))


def _shared(shared: Mapping[str, str]) -> Iterator[Line]:
    """Yield what every row says, before the table."""
    if shared:
        yield Line("in every row:")
        yield from (Line(f"  {name}: {cell}") for name, cell in shared.items())


def _table(table: Sequence[_Column], widths: Sequence[int]) -> Iterator[Line]:
    names = [one.name for one in table]
    yield from (Line(one, heading=True) for one in _lines(names, names, widths))
    if all(one.natural <= width for one, width in zip(table, widths, strict=True)):
        for row in zip(*(one.cells for one in table), strict=True):
            yield Line(GAP.join(map(_padded, row, widths)).rstrip())
        return
    for row in zip(*(one.cells for one in table), strict=True):
        yield from (Line(one) for one in _lines(names, row, widths))


def _lines(names: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row."""
    wrapped = [
        list(_wrapped(cell, width, name))
        for name, cell, width in zip(names, cells, widths, strict=True)
    ]
    for number in range(max(map(len, wrapped))):
        parts = [one[number] if number < len(one) else "" for one in wrapped]
        yield GAP.join(map(_padded, parts, widths)).rstrip()


def _padded(text: str, width: int) -> str:
    return text.ljust(width) if text.isascii() else text + " " * (width - cell_len(text))


def _wrapped(text: str, width: int, name: str) -> Iterator[str]:
    """Yield a cell of a named column in lines, broken between words, or where it must be."""
    if _width(text) <= width:
        yield text
        return
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if _width(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        *full, line = [word] if name in WHOLE else _chopped(word, width)
        yield from full
    yield line


def _chopped(word: str, width: int) -> list[str]:
    """Return a word in pieces that are at most so wide; at least one."""
    pieces, taken = [""], 0
    for character in word:
        wide = _width(character)
        if taken + wide > width and pieces[-1]:
            pieces.append("")
            taken = 0
        pieces[-1] += character
        taken += wide
    return pieces


def _blocks(table: Sequence[_Column], width: int) -> Iterator[Line]:
    """Yield each row as lines of a name and a cell, with an empty line between two rows."""
    names = [one.name for one in table]
    indent = max(map(_width, names)) + len(GAP)
    for number, row in enumerate(zip(*(one.cells for one in table), strict=True)):
        if number:
            yield Line("")
        for name, cell in zip(names, row, strict=True):
            if cell not in EMPTY:
                yield from _named(name, cell, indent, width)


def _named(name: str, cell: str, indent: int, width: int) -> Iterator[Line]:
    room = max(width - indent, LONGEST_WORD)
    label = _padded(name, indent)
    for line in _wrapped(cell, room, name):
        yield Line(f"{label}{line}".rstrip())
        label = " " * indent
