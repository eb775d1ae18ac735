"""Copy all rows between a pair of SQLite files and one shard or several, and compare them.

Rows keep their numbers, salts and commitments. A copy into one shard keeps the chain hashes, too:
it has the ledger of its source, and proofs about one are proofs about the other. Rows are read and
written in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from slumberd.storage.engine import Row
from slumberd.storage.sqlite.file_rows import Erasures, LogEnd, Table

OnProgress = Callable[[str, int, int], object]
"""Called with the name of a table, and how many rows of all tables are done, and exist."""

_PAGE_ROWS = 2_000


class Rows(Protocol):
    """All rows of stores, in one transaction."""

    @property
    def tables(self) -> Sequence[Table]:
        """The tables of the stores, in the order in which they are copied."""
        ...

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        ...

    def read(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table, in the order of its key."""
        ...

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log."""
        ...

    def erasures(self) -> Erasures:
        """Return the erased scopes."""
        ...


class Target(Protocol):
    """Empty stores, in one transaction."""

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows into an empty table."""
        ...

    def write_log_end(self, end: LogEnd) -> None:
        """Let the log continue with the numbers after these; its episodes are written."""
        ...

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes into a store that has none."""
        ...


class Division(Protocol):
    """Says which rows of a source belong to which part of a target."""

    def divide(self, table: Table, rows: Sequence[Row]) -> Mapping[int, Sequence[Row]]:
        """Return the rows of each part, in their order.

        Args:
            table: The table.
            rows: Some of its rows, after those of the call before.
        """
        ...


class Whole:
    """The division into one part, which has every row."""

    def divide(self, _: Table, rows: Sequence[Row]) -> Mapping[int, Sequence[Row]]:
        """Return the rows of the only part."""
        return {0: rows}


def copy_rows(source: Rows, target: Target, on_progress: OnProgress) -> dict[str, int]:
    """Copy all rows into empty stores; return how many, by table."""
    total = sum(map(source.count, source.tables))
    done = 0
    copied: dict[str, int] = {}
    for table in source.tables:
        copied[table.name] = 0
        for page in _pages(source.read(table)):
            target.write(table, page)
            copied[table.name] += len(page)
            done += len(page)
            on_progress(table.name, done, total)
    if "episodes" in copied:
        target.write_log_end(source.log_end())
    target.write_erasures(source.erasures())
    return copied


class Difference(NamedTuple):
    """How a table differs between two stores.

    Attributes:
        table: Its name.
        rows: How many rows differ, or are in one of them only.
        first: The key of the first such row, and what is different.
    """

    table: str
    rows: int
    first: str


def find_differences(
    ours: Rows,
    theirs: Sequence[Rows],
    on_progress: OnProgress,
    *,
    names: tuple[str, str],
    division: Division,
) -> list[Difference]:
    """Compare all rows of stores with those of their copy; return the tables that differ.

    Args:
        ours: The stores.
        theirs: The parts of the copy.
        on_progress: Called after each page.
        names: What to call the stores, and the copy.
        division: Says which rows each part of the copy has.
    """
    total = sum(map(ours.count, ours.tables))
    done = 0
    found = []
    for table in ours.tables:
        comparison = _Comparison(table, [part.read(table) for part in theirs], names)
        for page in _pages(ours.read(table)):
            for place, rows in division.divide(table, page).items():
                comparison.compare(place, rows)
            done += len(page)
            on_progress(table.name, done, total)
        comparison.finish()
        if comparison.rows:
            found.append(Difference(table.name, comparison.rows, comparison.first))
    for part in theirs:
        found += _differing_ends(ours.log_end(), part.log_end(), names)
    if ours.erasures() != theirs[0].erasures():
        found.append(Difference("erased_scopes", 1, "the erased scopes differ"))
    return found


def _differing_ends(ours: LogEnd, theirs: LogEnd, names: tuple[str, str]) -> Iterator[Difference]:
    tables = ("episode_log", "episode_deletions")
    for name, our, their in zip(tables, ours, theirs, strict=True):
        if our != their:
            ends = f"the last number is {our} in {names[0]}, {their} in {names[1]}"
            yield Difference(name, 1, ends)


class _Comparison:
    """Compares a table with its copy; all rows come in the order of their keys.

    Args:
        table: The table.
        parts: The rows of each part of the copy.
        names: What to call the stores, and the copy.

    Attributes:
        rows: How many rows differ.
        first: The key of the first such row, and what is different.
    """

    def __init__(self, table: Table, parts: list[Iterator[Row]], names: tuple[str, str]) -> None:
        self.rows = 0
        self.first = ""
        self._keys = table.keys
        self._names = names
        self._parts = parts
        self._next = [next(part, None) for part in parts]

    def compare(self, part: int, rows: Sequence[Row]) -> None:
        """Compare rows with the next ones of a part."""
        for row in rows:
            key = row[: self._keys]
            while (their := self._next[part]) is not None and their[: self._keys] < key:
                self._take_surplus(part, their)
            if their is None or their[: self._keys] != key:
                self._note(part, row, f"is only in {self._names[0]}")
                continue
            if their != row:
                self._note(part, row, "is different")
            self._next[part] = next(self._parts[part], None)

    def finish(self) -> None:
        """Compare with nothing what is left of the copy."""
        for part in range(len(self._parts)):
            while (their := self._next[part]) is not None:
                self._take_surplus(part, their)

    def _take_surplus(self, part: int, row: Row) -> None:
        self._note(part, row, f"is only in {self._names[1]}")
        self._next[part] = next(self._parts[part], None)

    def _note(self, part: int, row: Row, problem: str) -> None:
        self.rows += 1
        place = f" of shard {part}" if len(self._parts) > 1 else ""
        self.first = self.first or f"row {_words(row, self._keys)}{place} {problem}"


def _words(row: Row, keys: int) -> str:
    return ", ".join(map(repr, row[:keys]))


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := [*islice(rows, _PAGE_ROWS)]:
        yield page
