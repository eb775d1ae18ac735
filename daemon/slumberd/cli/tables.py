"""Lay out tables, fitted to the width of a terminal, without breaking an id.

A table that is too wide shrinks in this order: its texts are wrapped; empty columns are left out;
columns with the same cell in every row are named once above the table, as few as necessary; at
last each row becomes a block of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

Rows = Sequence[Sequence[str]]

GAP = "  "
EMPTY = ("", "-")
"""The cells that count as empty."""

WHOLE = frozenset({
    "agent", "channel", "episode", "fact", "file", "firing", "held", "id", "replaces", "row",
    "rule", "rule hash", "run", "seq", "session", "store", "user",
})  # fmt: skip
"""Names of columns that hold ids, paths, or lists of them: no id and no path is ever broken."""

LONGEST_WORD = 20
"""In a column without ids, a longer word may be broken when the table does not fit otherwise."""

LEGIBLE = 24
"""The least width of a column with longer texts: a narrower one is hard to read."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table.

    Attributes:
        text: The text of the line.
        heading: Whether it holds the names of the columns.
    """

    text: str
    heading: bool = False


def lay_out(columns: Sequence[str], rows: Rows, width: int | None) -> Iterator[Line]:
    """Yield the lines of a table.

    Args:
        columns: The names of the columns; the first identifies a row.
        rows: The cells of each row, without line breaks.
        width: The width of the terminal in characters; None for no limit.
    """
    table = [_Column(name, [row[n] for row in rows]) for n, name in enumerate(columns)]
    natural = [column.natural for column in table]
    if width is None or _total(natural) <= width:
        yield from _table(table, natural)
        return
    for columns_left, shared in _with_fewer_columns(table, len(rows)):
        widths = _narrow_widths(columns_left, width)
        if widths is not None:
            yield from _shared_lines(shared)
            yield from _table(columns_left, _trim_widths(columns_left, widths, width))
            return
    yield from _blocks(table, width)


@dataclass(frozen=True)
class _Column:
    """A column: its name, and its cells."""

    name: str
    cells: Sequence[str]

    @cached_property
    def natural(self) -> int:
        """The width without wrapping."""
        return max(map(_width, (self.name, *self.cells)))

    @cached_property
    def least(self) -> int:
        """The least width."""
        return max(_least(self.name, cell) for cell in (self.name, *self.cells))


def _least(name: str, cell: str) -> int:
    """Return the least width of a cell."""
    longest = max(map(_width, cell.split()), default=0)
    if name in WHOLE:
        return longest
    return max(min(longest, LONGEST_WORD), LEGIBLE if _width(cell) > LEGIBLE else 0)


def _width(text: str) -> int:
    """Return the width of a text on a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _with_fewer_columns(
    table: Sequence[_Column], rows: int
) -> Iterator[tuple[Sequence[_Column], dict[str, str]]]:
    """Yield the columns of a table, then without the empty ones, then fewer at each step.

    When a table has several rows, a column with the same cell in each can be left out: the last
    columns first, and never the first one.

    Yields:
        The columns that are left, and the shared cell of each column that is left out.
    """
    yield table, {}
    first, *others = table
    columns_left = [first, *(column for column in others if any(map(_has_content, column.cells)))]
    shared: dict[str, str] = {}
    yield columns_left, shared
    uniform = [column for column in columns_left[:0:-1] if rows > 1 and len({*column.cells}) == 1]
    for left_out in uniform:
        columns_left = [column for column in columns_left if column is not left_out]
        shared = {left_out.name: left_out.cells[0], **shared}
        yield columns_left, shared


def _has_content(cell: str) -> bool:
    return cell not in EMPTY


def _narrow_widths(table: Sequence[_Column], width: int) -> list[int] | None:
    """Return widths that fit, the widest columns narrowed first; None when no widths fit."""
    widths = [column.natural for column in table]
    while (excess := _total(widths) - width) > 0:
        loose = [n for n, column in enumerate(table) if widths[n] > column.least]
        if not loose:
            return None
        widest = max(loose, key=lambda n: widths[n])
        others = [widths[n] for n in loose if widths[n] < widths[widest]]
        floor = max([table[widest].least, *others])
        widths[widest] -= min(excess, max(1, widths[widest] - floor))
    return widths


def _trim_widths(table: Sequence[_Column], widths: Sequence[int], width: int) -> list[int]:
    """Return widths without the space that wrapping leaves empty; one column gets that space."""
    needed = [_needed_width(column, given) for column, given in zip(table, widths, strict=True)]
    longest = max(range(len(needed)), key=lambda n: table[n].natural - needed[n])
    needed[longest] = min(table[longest].natural, needed[longest] + width - _total(needed))
    return needed


def _needed_width(column: _Column, width: int) -> int:
    """Return the width that the wrapped lines of a column need."""
    if column.natural <= width:
        return column.natural
    cells = (column.name, *column.cells)
    return max(_width(line) for cell in cells for line in _wrap(cell, width, column.name))


def _shared_lines(shared: Mapping[str, str]) -> Iterator[Line]:
    """Yield the cells that are the same in every row, before the table."""
    if shared:
        yield Line("in every row:")
        yield from (Line(f"  {name}: {cell}") for name, cell in shared.items())


def _table(table: Sequence[_Column], widths: Sequence[int]) -> Iterator[Line]:
    names = [column.name for column in table]
    yield from (Line(text, heading=True) for text in _lines(names, names, widths))
    if all(column.natural <= width for column, width in zip(table, widths, strict=True)):
        for row in zip(*(column.cells for column in table), strict=True):
            yield Line(GAP.join(map(_pad, row, widths)).rstrip())
        return
    for row in zip(*(column.cells for column in table), strict=True):
        yield from (Line(text) for text in _lines(names, row, widths))


def _lines(names: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row."""
    wrapped = [
        list(_wrap(cell, width, name))
        for name, cell, width in zip(names, cells, widths, strict=True)
    ]
    for number in range(max(map(len, wrapped))):
        parts = [lines[number] if number < len(lines) else "" for lines in wrapped]
        yield GAP.join(map(_pad, parts, widths)).rstrip()


def _pad(text: str, width: int) -> str:
    return text.ljust(width) if text.isascii() else text + " " * (width - cell_len(text))


def _wrap(text: str, width: int, name: str) -> Iterator[str]:
    """Yield the lines of a cell, broken between words, or within a word that is too long.

    Args:
        text: The cell.
        width: The width of its column.
        name: The name of its column; the words of an id's column are never broken.
    """
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
        *full, line = [word] if name in WHOLE else _chop(word, width)
        yield from full
    yield line


def _chop(word: str, width: int) -> list[str]:
    """Return a word in pieces of at most a width; at least one piece."""
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
    names = [column.name for column in table]
    indent = max(map(_width, names)) + len(GAP)
    for number, row in enumerate(zip(*(column.cells for column in table), strict=True)):
        if number:
            yield Line("")
        for name, cell in zip(names, row, strict=True):
            if _has_content(cell):
                yield from _block_lines(name, cell, indent, width)


def _block_lines(name: str, cell: str, indent: int, width: int) -> Iterator[Line]:
    room = max(width - indent, LONGEST_WORD)
    label = _pad(name, indent)
    for line in _wrap(cell, room, name):
        yield Line(f"{label}{line}".rstrip())
        label = " " * indent
