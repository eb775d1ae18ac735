"""Divide a ledger into parts that replay can resolve independently.

The outcome of a row depends on the rows of its key and of its fact id. Where a claim names ids, it
also depends on the rows of these ids. Keys that share a fact id, or of which one names a fact of
the other, belong to one part. Parts bound the memory that replay needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

import orjson

from slumberd.model.episode import is_part_of
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.rows import LedgerRow, rows_from

T = TypeVar("T")


ROWS = 200
"""Ledger rows in one part; more only where rows depend on one another."""


class DependentPartsError(Exception):
    """Two parts depend on each other; replay catches this error and resolves the ledger whole."""


Part = list[LedgerRow[str]]
"""Rows that replay can resolve without any others, oldest first; none is erased."""


class Partition:
    """The parts of a ledger.

    Each row is in exactly one part, except rows of firings and erased rows, which are in none.
    This holds only if each key has one number.
    """

    def __init__(self, session: Session, rows: int = ROWS) -> None:
        """Divide a ledger into parts of about so many rows."""
        self._session = session
        self._rows = rows
        self._keys_of_shared: dict[str, set[int]] = {}
        """Fact ids whose rows have several keys, or partly none; and these keys."""
        self._connected = _DisjointSets()
        for fact_id, key_id in session.stream("partition.keys_of_shared"):
            keys = self._keys_of_shared.setdefault(fact_id, set())
            if key_id is not None:
                keys.add(key_id)
        for keys in self._keys_of_shared.values():
            self._connected.join(keys)
        self._connect_named()

    def __iter__(self) -> Iterator[Part]:
        """Yield each part once."""
        return chain(
            self._read_single_keys(), self._read_connected_keys(), self._read_without_key()
        )

    def _connect_named(self) -> None:
        """Connect the key of each claim to the keys of the ids that the claim names."""
        names = (
            (key_id, orjson.loads(payload).get("names", ()))
            for key_id, payload in self._session.stream("partition.claims_with_references")
        )
        for chunk in _chunks(names, self._rows):
            wanted = {name for _, named in chunk for name in named}
            keys: dict[str, set[int]] = {}
            for fact_id, key_id in self._select("keys_of_facts", wanted):
                keys.setdefault(fact_id, set()).add(key_id)
            for whole, fact_id, key_id in self._select("keys_of_parts", wanted):
                if is_part_of(fact_id, whole):
                    keys.setdefault(whole, set()).add(key_id)
            for key_id, named in chunk:
                self._connected.join({key_id}.union(*(keys.get(name, ()) for name in named)))

    def _read_single_keys(self) -> Iterator[Part]:
        """Yield parts of the keys that are connected to no other key."""
        connected = self._connected.members
        rows = rows_from(self._session.stream("partition.rows_by_key"))
        yield from map(
            self._complete,
            _pages((row for row in rows if row.key_id not in connected), self._rows),
        )

    def _read_connected_keys(self) -> Iterator[Part]:
        """Yield parts of the keys that are connected to other keys."""
        keys: list[int] = []
        for members in self._connected:
            keys += members
            if len(keys) >= self._rows:
                yield self._complete(self._read_rows("rows_of_keys", keys))
                keys = []
        if keys:
            yield self._complete(self._read_rows("rows_of_keys", keys))

    def _read_without_key(self) -> Iterator[Part]:
        """Yield parts of rows without a key, of fact ids that have no row with a key."""
        found = self._session.stream("partition.facts_without_key")
        once = (fact_id for (fact_id,) in found if fact_id not in self._keys_of_shared)
        often = (fact_id for fact_id, keys in self._keys_of_shared.items() if not keys)
        for fact_ids in _chunks(chain(once, often), self._rows):
            yield self._read_rows("rows_of_facts", fact_ids)
        rows = rows_from(self._session.stream("partition.rows_without_fact"))
        yield from _chunks(rows, self._rows)

    def _complete(self, rows: Part) -> Part:
        """Add the rows of the same fact ids that have no key or another key; sort all."""
        shared = {row.fact_id for row in rows if row.fact_id in self._keys_of_shared}
        if shared:
            found = {row.seq: row for row in (*rows, *self._read_rows("rows_of_facts", shared))}
            rows = [*found.values()]
        rows.sort()
        return rows

    def _read_rows(self, query: str, values: Collection[Any]) -> Part:
        return sorted(rows_from(self._select(query, values)))

    def _select(self, query: str, values: Collection[Any]) -> Iterator[Row]:
        return self._session.stream(f"partition.{query}", {"values": [*values]})


def read_as_one_part(session: Session) -> list[Part]:
    """Return the whole ledger as one part, for a ledger in which a key has several numbers."""
    return [[*rows_from(session.stream("partition.all_rows"))]]


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(values)
    while chunk := [*islice(remaining, size)]:
        yield chunk


def _pages(rows: Iterable[LedgerRow[str]], size: int) -> Iterator[Part]:
    """Yield pages of about so many rows; all rows of a key are on one page."""
    page: Part = []
    for row in rows:
        if len(page) >= size and row.key_id != page[-1].key_id:
            yield page
            page = []
        page.append(row)
    if page:
        yield page


class _DisjointSets:
    """Sets of numbers; two sets with a common number become one set."""

    def __init__(self) -> None:
        self.members: dict[int, list[int]] = {}

    def join(self, numbers: Collection[int]) -> None:
        """Put numbers into one set; a single number changes nothing."""
        if len(numbers) < 2:
            return
        found = {id(group): group for n in numbers if (group := self.members.get(n)) is not None}
        joined, *others = sorted(found.values(), key=len, reverse=True) or [[]]
        for other in (*others, [n for n in numbers if n not in self.members]):
            joined += other
            for number in other:
                self.members[number] = joined

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each set once."""
        return iter({id(group): group for group in self.members.values()}.values())
