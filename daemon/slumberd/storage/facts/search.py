"""Search for facts by forms, bounds and orders, a page at a time.

An index finds what it can of the pattern's slots, and `core.matching` decides. In the order of ids
the facts of a user, and all facts, are read from where the page before ended: a page costs what it
returns, and what it passes over on the way. In any other order, and where other slots lead, all
that the slots find is looked at.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge, nlargest, nsmallest
from itertools import islice
from operator import attrgetter
from typing import Any

from slumberd.model.episode import microseconds
from slumberd.model.fact import SLOTS, Fact, FactPattern, Position, matcher, place_after, position
from slumberd.model.pattern import Prefix
from slumberd.model.rule import FACTS
from slumberd.sql_statements import statements
from slumberd.storage.facts.index_ranges import (
    BEYOND,
    FIRST,
    Among,
    Missing,
    Narrow,
    Span,
    Text,
    compiled,
    narrowed,
)
from slumberd.storage.ledger.fact_rows import fact_of, readable_facts, unicode_or_none
from slumberd.storage.ledger.history import facts_at
from slumberd.storage.sqlite.connection import decode_texts_with, snapshot

_FACTS = statements("facts")
_ID = attrgetter("id")
_PREFERENCES = (
    ("id", Text), ("id", Among), ("user", Text), ("subject", Text), ("object", Text),
    ("object", Span), ("subject", Among), ("object", Among), ("user", Among), ("id", Span),
    ("subject", Span), ("user", Span), ("object", Missing),
)  # fmt: skip
"""Which slot, found how, is gone by; the first that there is. A user comes before all that others
have, too, and a span, which may be wide, after what is exact."""

_MOST_AGENTS = 100
"""Of one user, whose facts are read side by side; each takes a cursor."""

Values = dict[str, Any]


def search(connection: sqlite3.Connection, pattern: FactPattern) -> list[Fact]:
    """Return a page of the facts that are what a pattern asks for, in its order.

    Raises:
        PatternError: Its cursor, a glob or a regular expression cannot be read.
        ExtraMissingError: There is a regular expression, and no engine for it.
        UnicodeEncodeError: A text of it is no valid Unicode.
    """
    ways = {slot: narrowed(getattr(pattern, slot)) for slot in SLOTS}
    if ways["id"] is None and pattern.channel not in (None, FACTS):
        ways["id"] = narrowed(Prefix(f"@{pattern.channel}/"))
    page = Page(pattern)
    with snapshot(connection), decode_texts_with(connection, unicode_or_none):
        walks = _walks(connection, pattern, ways) if pattern.order == "id" else None
        if walks is not None:
            return _merge_walks(walks, page, pattern)
        statement, values = _choose_query(ways)
        return page.of(readable_facts(connection.execute(_FACTS[statement], values)))


def _merge_walks(walks: Sequence[sqlite3.Cursor], page: Page, pattern: FactPattern) -> list[Fact]:
    try:
        merged = merge(*map(readable_facts, walks), key=_ID, reverse=pattern.descending)
        return list(islice(page.matching(merged), pattern.limit))
    finally:
        for walk in walks:  # most of them are not at their end, and hold the snapshot
            walk.close()


def search_as_of(
    connection: sqlite3.Connection,
    pattern: FactPattern,
    depth: int,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    """Return a page of the facts that stood, on either clock or on both, as `search` does."""
    for slot in SLOTS:
        narrowed(getattr(pattern, slot))  # a text that is no Unicode is refused here, too
    page = Page(pattern)
    with snapshot(connection):
        standing = facts_at(
            connection,
            user=pattern.user if isinstance(pattern.user, str) else None,
            depth=depth,
            valid_at=None if valid_at is None else microseconds(valid_at),
            believed_at=None if believed_at is None else microseconds(believed_at),
        )
    return page.of(map(fact_of, standing))


class Page:
    """The page of facts that a pattern asks for.

    Raises:
        PatternError: Its cursor, a glob or a regular expression cannot be read.
        ExtraMissingError: There is a regular expression, and no engine for it.
    """

    def __init__(self, pattern: FactPattern) -> None:
        self._pattern = pattern
        self._matches = matcher(pattern, compiled)
        self._after = place_after(pattern)

    def matching(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield those that match and come after the page before, in the order that they are in."""
        return (fact for fact in facts if self._is_later(fact) and self._matches(fact))

    def of(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return the page of facts that are in any order."""
        found, limit = self.matching(facts), self._pattern.limit
        if limit is None:
            return sorted(found, key=self._place, reverse=self._pattern.descending)
        first = nlargest if self._pattern.descending else nsmallest
        return first(limit, found, key=self._place)

    def _place(self, fact: Fact) -> Position:
        return position(self._pattern.order, fact)

    def _is_later(self, fact: Fact) -> bool:
        if self._after is None:
            return True
        place = self._place(fact)
        return place < self._after if self._pattern.descending else place > self._after


def _choose_query(ways: dict[str, Narrow]) -> tuple[str, Values]:
    """Return the query that finds the candidates, and its values."""
    for slot, kind in _PREFERENCES:
        way = ways[slot]
        if isinstance(way, kind):
            return _query_by(slot, way, ways)
    return "all_facts", {}


def _query_by(slot: str, way: Narrow, ways: dict[str, Narrow]) -> tuple[str, Values]:
    match way:
        case Text(text=text) if slot == "id":
            return "facts_from_id", {"low": text, "high": f"{text}\0"}
        case Text(text=text):
            return _query_by_text(slot, text, ways)
        case Among(values=values):
            return f"find_facts_of_{slot}s", {"values": values}
        case Span(low=low, high=high) if slot == "id":
            return "facts_from_id", {"low": low, "high": high}
        case Span(low=low, high=high):
            return f"find_facts_of_{slot}s_between", {"low": low, "high": high}
        case _:
            return "find_facts_without_object", {}


def _query_by_text(slot: str, text: str, ways: dict[str, Narrow]) -> tuple[str, Values]:
    values = {slot: text}
    if slot == "user" and isinstance(agent := ways["agent"], Text):
        return "find_facts_of_user_and_agent", values | {"agent": agent.text}
    if slot != "subject":
        return f"find_facts_of_{slot}", values
    match ways["predicate"]:
        case Text(text=predicate):
            return "find_facts_of_subject_and_predicate", values | {"predicate": predicate}
        case Among(values=among):
            return "find_facts_of_subject_and_predicates", values | {"values": among}
        case Span(low=low, high=high):
            name = "find_facts_of_subject_and_predicates_between"
            return name, values | {"low": low, "high": high}
        case _:
            return "find_facts_of_subject", values


def _walks(
    connection: sqlite3.Connection, pattern: FactPattern, ways: dict[str, Narrow]
) -> list[sqlite3.Cursor] | None:
    """Return what gives the facts by id, together; None where another way is quicker."""
    between = _id_bounds(pattern, ways["id"])
    backwards = "_backwards" if pattern.descending else ""
    owners: list[Values] = [{}]
    statement = "facts_from_id"
    if isinstance(user := ways["user"], Text) and pattern.limit is not None:
        agents = _agents(connection, user.text, ways["agent"])
        if len(agents) > _MOST_AGENTS:
            return None
        statement = "facts_of_owner_from_id"
        owners = [{"user": user.text, "agent": agent} for agent in agents]
    elif _choose_query(ways)[0] not in ("all_facts", "facts_from_id"):
        return None
    sql = _FACTS[f"{statement}{backwards}"]
    return [connection.execute(sql, owner | between) for owner in owners]


def _id_bounds(pattern: FactPattern, id: Narrow) -> Values:
    """Return the least id that a page may have, and what is above all of them."""
    low, high = _span(id)
    after = place_after(pattern)
    if after is None:
        return {"low": low, "high": high}
    if pattern.descending:
        return {"low": low, "high": after[1] if high == BEYOND else min(high, after[1])}
    return {"low": max(low, _next(after[1])), "high": high}


def _span(id: Narrow) -> tuple[str, Any]:
    match id:
        case Text(text=text):
            return text, _next(text)
        case Span(low=low, high=high):
            return low, high
        case _:
            return FIRST, BEYOND


def _next(text: str) -> str:
    # NUL is the first character: nothing lies between a text and the same with NUL behind it.
    return f"{text}\0"


def _agents(connection: sqlite3.Connection, user: str, way: Narrow) -> list[str]:
    """Return the agents of a user; each is found by the index, however many facts it has."""
    if isinstance(way, Text):
        return [way.text]
    asked = {"user": user, "limit": _MOST_AGENTS + 1}
    # What is no text is nobody's fact that could be read.
    return [
        agent
        for (agent,) in connection.execute(_FACTS["agents_of_user"], asked)
        if isinstance(agent, str)
    ]
