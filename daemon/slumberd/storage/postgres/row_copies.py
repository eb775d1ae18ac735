"""Copy all rows between a shard and a pair of SQLite files, and compare them.

Rows keep their numbers, salts, commitments and chain hashes. So a copy has the ledger of its
source, and proofs about one are proofs about the other. Rows are read and written in pages: the
memory that a copy takes does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
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

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows into an empty table."""
        ...

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log."""
        ...

    def write_log_end(self, end: LogEnd) -> None:
        """Let the log continue with the numbers after these; its episodes are written."""
        ...

    def erasures(self) -> Erasures:
        """Return the erased scopes."""
        ...

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes into a store that has none."""
        ...


def copy_rows(source: Rows, target: Rows, on_progress: OnProgress) -> dict[str, int]:
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
    one: Rows, other: Rows, on_progress: OnProgress, *, names: tuple[str, str]
) -> list[Difference]:
    """Compare all rows of two pairs of stores; return the tables that differ.

    Args:
        one: One pair.
        other: The other pair.
        on_progress: Called after each page.
        names: What to call each of them.
    """
    total = sum(map(one.count, one.tables))
    done = 0
    found = []
    for table in one.tables:
        rows, first = 0, ""
        for key, problem in _differing_rows(table, one.read(table), other.read(table), names):
            done += 1
            if problem:
                rows += 1
                first = first or f"row {key} {problem}"
            if done % _PAGE_ROWS == 0:
                on_progress(table.name, done, total)
        if rows:
            found.append(Difference(table.name, rows, first))
    found += _differing_ends(one.log_end(), other.log_end(), names)
    if one.erasures() != other.erasures():
        found.append(Difference("erased_scopes", 1, "the erased scopes differ"))
    return found


def _differing_ends(ours: LogEnd, theirs: LogEnd, names: tuple[str, str]) -> Iterator[Difference]:
    tables = ("episode_log", "episode_deletions")
    for name, our, their in zip(tables, ours, theirs, strict=True):
        if our != their:
            ends = f"the last number is {our} in {names[0]}, {their} in {names[1]}"
            yield Difference(name, 1, ends)


def _differing_rows(
    table: Table, ours: Iterator[Row], theirs: Iterator[Row], names: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the key of each row, and what is different; both sides are in the order of keys."""
    keys = table.keys
    our, their = next(ours, None), next(theirs, None)
    while our is not None and their is not None:
        if our[:keys] < their[:keys]:
            yield _words(our, keys), f"is only in {names[0]}"
            our = next(ours, None)
        elif their[:keys] < our[:keys]:
            yield _words(their, keys), f"is only in {names[1]}"
            their = next(theirs, None)
        else:
            yield _words(our, keys), "" if our == their else "is different"
            our, their = next(ours, None), next(theirs, None)
    for first, rest, name in ((our, ours, names[0]), (their, theirs, names[1])):
        if first is not None:
            for row in chain([first], rest):
                yield _words(row, keys), f"is only in {name}"


def _words(row: Row, keys: int) -> str:
    return ", ".join(map(repr, row[:keys]))


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := [*islice(rows, _PAGE_ROWS)]:
        yield page
