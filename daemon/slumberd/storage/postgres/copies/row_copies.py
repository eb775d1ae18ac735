"""Copy all rows between a pair of SQLite files and a shard, and compare them.

Rows keep their numbers, salts, commitments and chain hashes: the copy has the ledger of its source,
and proofs about one are proofs about the other. Rows are read and written in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    ours: Rows, theirs: Rows, on_progress: OnProgress, *, names: tuple[str, str]
) -> list[Difference]:
    """Compare all rows of stores with those of their copy; return the tables that differ.

    Args:
        ours: The stores.
        theirs: The copy.
        on_progress: Called after each page.
        names: What to call the stores, and the copy.
    """
    total = sum(map(ours.count, ours.tables))
    done = 0
    found = []
    for table in ours.tables:
        comparison = _Comparison(table, theirs.read(table), names)
        for page in _pages(ours.read(table)):
            comparison.compare(page)
            done += len(page)
            on_progress(table.name, done, total)
        comparison.finish()
        if comparison.rows:
            found.append(Difference(table.name, comparison.rows, comparison.first))
    found += _differing_ends(ours.log_end(), theirs.log_end(), names)
    if ours.erasures() != theirs.erasures():
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
        theirs: The rows of the copy.
        names: What to call the stores, and the copy.

    Attributes:
        rows: How many rows differ.
        first: The key of the first such row, and what is different.
    """

    def __init__(self, table: Table, theirs: Iterator[Row], names: tuple[str, str]) -> None:
        self.rows = 0
        self.first = ""
        self._keys = table.keys
        self._names = names
        self._theirs = theirs
        self._next = next(theirs, None)

    def compare(self, rows: Sequence[Row]) -> None:
        """Compare rows with the next ones of the copy."""
        for row in rows:
            key = row[: self._keys]
            while (their := self._next) is not None and their[: self._keys] < key:
                self._take_surplus(their)
            if their is None or their[: self._keys] != key:
                self._note(row, f"is only in {self._names[0]}")
                continue
            if their != row:
                self._note(row, "is different")
            self._next = next(self._theirs, None)

    def finish(self) -> None:
        """Compare with nothing what is left of the copy."""
        while (their := self._next) is not None:
            self._take_surplus(their)

    def _take_surplus(self, row: Row) -> None:
        self._note(row, f"is only in {self._names[1]}")
        self._next = next(self._theirs, None)

    def _note(self, row: Row, problem: str) -> None:
        self.rows += 1
        self.first = self.first or f"row {_words(row, self._keys)} {problem}"


def _words(row: Row, keys: int) -> str:
    return ", ".join(map(repr, row[:keys]))


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := [*islice(rows, _PAGE_ROWS)]:
        yield page
