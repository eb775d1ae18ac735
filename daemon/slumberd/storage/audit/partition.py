"""Part a ledger into what can be settled apart, from the ledger's rows alone.

What comes of a row follows from the rows of its key and of its fact id, and, where ids are named,
from those of the ids that it names or that name it. Keys that share a fact id, or of which one
names a fact of the other, are settled together; all others have nothing to do with each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import orjson

from slumberd.sql_statements import statements

T = TypeVar("T")

_SQL = statements("parting")

ROWS = 200
"""Of the ledger that are held at a time, or all that must be settled together."""


EVERY_KEY = (-(2**63), 2**63 - 1)


class NotApartError(Exception):
    """The rows of one key have several numbers of it; a control flow of the stores."""


class Told(NamedTuple):
    """One row of the ledger that was not erased, with the rule and the instant of its firing."""

    seq: int
    first: int
    firing: int
    what: int
    kind: int
    reason: str
    version: int
    key_id: int | None
    at: int | None
    fact_id: str | None
    replaces: str | None
    payload: bytes | None
    rule: str
    fired_at: int


Part = list[Told]
"""Rows that can be settled without any others, oldest first."""


class Parts:
    """The parts of a ledger; all that is not a firing's own row, and was not erased, is in one.

    That holds where a key has one number, or rows of one key would be in two parts.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._scattered: dict[str, set[int]] = {}
        """Fact ids with rows of several keys, or of none; and those keys."""
        self._together = _Sets()
        for fact_id, key_id in connection.execute(_SQL["keys_of_scattered"]):
            keys = self._scattered.setdefault(fact_id, set())
            if key_id is not None:
                keys.add(key_id)
        for keys in self._scattered.values():
            self._together.join(keys)
        self._join_named()

    def _join_named(self) -> None:
        names = (
            (key_id, orjson.loads(payload).get("names", ()))
            for key_id, payload in self._connection.execute(_SQL["acts_with_names"])
        )
        for some in _chunks(names):
            asked = {name for _, named in some for name in named}
            keys: dict[str, set[int]] = {}
            for fact_id, key_id in self._ask("keys_of_facts", asked):
                keys.setdefault(fact_id, set()).add(key_id)
            for key_id, named in some:
                self._together.join({key_id}.union(*(keys.get(name, ()) for name in named)))

    def of_keys(self, above: int, upto: int) -> Iterator[Part]:
        """Yield what keys with numbers above one, up to another, are settled on, if alone."""
        among = self._together.members
        rows = self._rows("rows_by_key", (above, upto))
        yield from map(self._whole, _pages(row for row in rows if row.key_id not in among))

    def of_several_keys(self) -> Iterator[Part]:
        """Yield what keys are settled on that must be settled together."""
        keys: list[int] = []
        for some in self._together:
            keys += some
            if len(keys) >= ROWS:
                yield self._whole(self._asked("rows_of_keys", keys))
                keys = []
        if keys:
            yield self._whole(self._asked("rows_of_keys", keys))

    def of_no_key(self) -> Iterator[Part]:
        """Yield rows that speak of no key, of which no other row of their fact id does either."""
        found = self._connection.execute(_SQL["facts_without_key"])
        once = (fact_id for (fact_id,) in found if fact_id not in self._scattered)
        often = (fact_id for fact_id, keys in self._scattered.items() if not keys)
        for some in _chunks(chain(once, often)):
            yield self._asked("rows_of_facts", some)
        yield from _chunks(self._rows("rows_of_nothing", ()))

    def _whole(self, rows: Part) -> Part:
        """Return the rows of some keys with those of their fact ids that name none of these."""
        scattered = {row.fact_id for row in rows if row.fact_id in self._scattered}
        if scattered:
            rows = [
                *{
                    row.seq: row for row in (*rows, *self._asked("rows_of_facts", scattered))
                }.values()
            ]
        rows.sort()
        return rows

    def _asked(self, query: str, values: Collection[Any]) -> Part:
        return sorted(map(Told._make, self._ask(query, values)))

    def _ask(self, query: str, values: Collection[Any]) -> sqlite3.Cursor:
        return self._connection.execute(_SQL[query], (orjson.dumps([*values]).decode(),))

    def _rows(self, query: str, asked: tuple[int, ...]) -> Iterator[Told]:
        return map(Told._make, self._connection.execute(_SQL[query], asked))


def in_one(connection: sqlite3.Connection) -> Part:
    """Return a whole ledger as one part, whatever numbers its keys have."""
    return [*map(Told._make, connection.execute(_SQL["all_rows"]))]


def _chunks(some: Iterable[T]) -> Iterator[list[T]]:
    left = iter(some)
    while chunk := [*islice(left, ROWS)]:
        yield chunk


def _pages(rows: Iterable[Told]) -> Iterator[Part]:
    """Yield rows, some at a time; those of one key are never parted."""
    page: Part = []
    for row in rows:
        if len(page) >= ROWS and row.key_id != page[-1].key_id:
            yield page
            page = []
        page.append(row)
    if page:
        yield page


class _Sets:
    """Numbers in sets; sets that have one in common are one set."""

    def __init__(self) -> None:
        self.members: dict[int, list[int]] = {}

    def join(self, numbers: Collection[int]) -> None:
        """Let some numbers be in one set; one alone changes nothing."""
        if len(numbers) < 2:
            return
        found = {id(one): one for n in numbers if (one := self.members.get(n)) is not None}
        joined, *others = sorted(found.values(), key=len, reverse=True) or [[]]
        for other in (*others, [n for n in numbers if n not in self.members]):
            joined += other
            for number in other:
                self.members[number] = joined

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each set once."""
        return iter({id(one): one for one in self.members.values()}.values())
