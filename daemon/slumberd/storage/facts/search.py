"""Search for facts by a pattern, a page at a time.

An index finds candidates by one slot of the pattern, and `model.fact.matcher` decides. In the order
of ids, a search of one user's facts, or of all facts, starts at the end of the page before: it
reads the facts that it returns and those between them. Any other search reads all candidates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge, nlargest, nsmallest
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slumberd.garbage_collection import collection_paused
from slumberd.model.episode import microseconds
from slumberd.model.fact import (
    SLOTS,
    Fact,
    FactPattern,
    Position,
    hides_marks,
    matcher,
    place_after,
    position,
)
from slumberd.model.pattern import Equals, Glob, InvalidGlobError, Matches, OneOf, Prefix
from slumberd.model.pattern import literal_prefix as start_of_glob
from slumberd.model.scope import FACTS, canonical
from slumberd.model.stages import MARK_IDS
from slumberd.search.expressions import compile_expression
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.fact_rows import fact_of, readable_facts
from slumberd.storage.ledger.history import facts_at

_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}]*")


def whole_text_check(slot: str, expression: str) -> Callable[[str], bool]:
    """Return a function that returns whether an expression matches a whole text.

    Args:
        slot: The slot of the expression, for errors.
        expression: In RE2's syntax.

    Raises:
        PatternError: The expression is invalid.
        ExtraMissingError: The extra ``regex`` is not installed.
    """
    fullmatch = compile_expression(slot, expression).fullmatch
    return lambda text: fullmatch(text) is not None


def literal_prefix(expression: str) -> str:
    """Return a prefix, which may be empty, of every text that an expression matches whole."""
    if "|" in expression:
        return ""
    expression = expression.removeprefix("^")
    found = _PLAIN.match(expression)
    start = found[0] if found else ""
    # A quantifier applies to the character before it.
    return start[:-1] if expression[len(start) : len(start) + 1] in tuple("?*+{") else start


FIRST, BEYOND = "", b""
"""A value below every text, and one above: SQLite sorts every blob after every text."""

_MAX_EXACT_INTEGER = 2**53
"""Up to this integer every reader of JSON reads the same number."""
_READING_ERROR = 1e-14
"""The most by which two readings of one number differ, relative to its size."""
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)


class Text(NamedTuple):
    """Exactly one text."""

    text: str


class Span(NamedTuple):
    """All values from `low` to below `high`."""

    low: Any
    high: Any


class Among(NamedTuple):
    """Any of some values; they are a JSON array."""

    values: str


class Missing(NamedTuple):
    """No value, or null."""


IndexRange = Text | Span | Among | Missing | None
"""The values to look up in an index; None when no index helps."""


def index_range(form: object) -> IndexRange:
    """Return the index range of a slot's form.

    Raises:
        UnicodeEncodeError: A text of the form is invalid Unicode.
    """
    match form:
        case str():
            return _range_of_text(form)
        case Prefix(prefix=start):
            return _range_of_prefix(start)
        case Glob(glob=glob):
            return _range_of_glob(glob)
        case Matches(matches=expression):
            return _range_of_prefix(literal_prefix(expression))
        case OneOf(one_of=values):
            return _range_of_values(values)
        case Equals(equals=value):
            return _range_of_value(value)
        case _:
            return None


def _range_of_text(text: str) -> IndexRange:
    text.encode()
    # Some versions of SQLite end a text of JSON at NUL.
    return _range_of_prefix(text) if "\0" in text else Text(text)


def _range_of_glob(glob: str) -> IndexRange:
    try:
        start, whole = start_of_glob(glob)
    except InvalidGlobError:
        return None  # the matcher raises the error
    return _range_of_text(start) if whole else _range_of_prefix(start)


def _range_of_prefix(start: str) -> IndexRange:
    start.encode()
    start = start.partition("\0")[0]
    return Span(start, upper_bound(start)) if start else None


def upper_bound(start: str) -> Any:  # noqa: ANN401 # a text, or `BEYOND`
    """Return the least value above every text with this prefix.

    UTF-8 sorts as code points do. So the last character is replaced by the next character;
    surrogates are no characters, and the last code point has no next one.
    """
    shortened = start.rstrip(_LAST)
    if not shortened:
        return BEYOND
    following = ord(shortened[-1]) + 1
    return shortened[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _range_of_values(values: Sequence[Any]) -> IndexRange:
    for value in values:
        if isinstance(value, str):
            value.encode()
    return Among(orjson.dumps(list(values)).decode()) if all(map(_is_simple, values)) else None


def _is_simple(value: object) -> bool:
    """Return whether every version of SQLite reads a value from JSON unchanged."""
    match value:
        case str():
            return "\0" not in value
        case int():  # a bool, too
            return -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER
        case _:
            return False


def _range_of_value(value: object) -> IndexRange:
    match value:
        case None:
            return Missing()
        case str():
            return _range_of_text(value)
        case int() | float():
            # Readers may read different numbers from the same digits.
            error = abs(float(value)) * _READING_ERROR + 1e-300
            return Span(float(value) - error, float(value) + error)
        case _:
            start = canonical(value)[0]  # "{" or "[": the keys of an object may have any order
            return Span(start, upper_bound(start))


_ID = attrgetter("id")
_PREFERENCES = (
    ("id", Text), ("id", Among), ("user", Text), ("subject", Text), ("object", Text),
    ("object", Span), ("subject", Among), ("object", Among), ("user", Among), ("id", Span),
    ("subject", Span), ("user", Span), ("object", Missing),
)  # fmt: skip
"""The slots to search by, and the kinds of index range, best first. A user comes before slots whose
values users share; spans, which may be wide, come after exact values."""

_AROUND_MARKS: list[tuple[str, Any]] = list(
    zip((FIRST, *map(upper_bound, MARK_IDS)), (*MARK_IDS, BEYOND), strict=True)
)
"""The spans of ids below, between and above those of marks and of weights."""

_MAX_AGENTS = 100
"""The most agents of one user whose facts are merged; each agent takes a cursor."""

Values = dict[str, Any]


def search(session: Session, pattern: FactPattern) -> list[Fact]:
    """Return a page of the facts that match a pattern, in its order.

    Raises:
        PatternError: Its cursor, a glob or a regular expression is invalid.
        ExtraMissingError: It has a regular expression, and the extra ``regex`` is missing.
        UnicodeEncodeError: A text of it is invalid Unicode.
    """
    ranges = {slot: index_range(getattr(pattern, slot)) for slot in SLOTS}
    if ranges["id"] is None and pattern.channel not in (None, FACTS):
        ranges["id"] = index_range(Prefix(f"@{pattern.channel}/"))
    page = Page(pattern)
    streams = _open_streams(session, pattern, ranges) if pattern.order == "id" else None
    if streams is not None:
        merged = merge(*map(readable_facts, streams), key=_ID, reverse=pattern.descending)
        return list(islice(page.matching(merged), pattern.limit))
    statement, values = _choose_query(ranges)
    return page.of(readable_facts(session.stream(f"facts.{statement}", values)))


def search_as_of(
    session: Session,
    pattern: FactPattern,
    depth: int,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    """Return a page, as `search` does, of the facts at an instant of either clock or of both."""
    for slot in SLOTS:
        index_range(getattr(pattern, slot))  # raises for invalid Unicode, as in `search`
    page = Page(pattern)
    with collection_paused():  # the claims of a user are many objects, and make no cycles
        as_of = facts_at(
            session,
            user=pattern.user if isinstance(pattern.user, str) else None,
            depth=depth,
            valid_at=None if valid_at is None else microseconds(valid_at),
            believed_at=None if believed_at is None else microseconds(believed_at),
        )
        return page.of(map(fact_of, as_of))


class Page:
    """The page of facts that a pattern asks for.

    Raises:
        PatternError: Its cursor, a glob or a regular expression is invalid.
        ExtraMissingError: It has a regular expression, and the extra ``regex`` is missing.
    """

    def __init__(self, pattern: FactPattern) -> None:
        self._pattern = pattern
        self._matches = matcher(pattern, whole_text_check)
        self._after = place_after(pattern)

    def matching(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield the facts that match and follow the page before; their order stays."""
        return (fact for fact in facts if self._is_later(fact) and self._matches(fact))

    def of(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return the page; the facts may come in any order."""
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


def _choose_query(ranges: dict[str, IndexRange]) -> tuple[str, Values]:
    """Return the query that finds the candidates, and its values."""
    for slot, kind in _PREFERENCES:
        chosen = ranges[slot]
        if isinstance(chosen, kind):
            return _query_by(slot, chosen, ranges)
    return "all_facts", {}


def _query_by(slot: str, chosen: IndexRange, ranges: dict[str, IndexRange]) -> tuple[str, Values]:
    match chosen:
        case Text(text=text) if slot == "id":
            return "facts_from_id", {"low": text, "high": f"{text}\0"}
        case Text(text=text):
            return _query_by_text(slot, text, ranges)
        case Among(values=values):
            return f"find_facts_of_{slot}s", {"values": values}
        case Span(low=low, high=high) if slot == "id":
            return "facts_from_id", {"low": low, "high": high}
        case Span(low=low, high=high):
            return f"find_facts_of_{slot}s_between", {"low": low, "high": high}
        case _:
            return "find_facts_without_object", {}


def _query_by_text(slot: str, text: str, ranges: dict[str, IndexRange]) -> tuple[str, Values]:
    values = {slot: text}
    if slot == "user" and isinstance(agent := ranges["agent"], Text):
        return "find_facts_of_user_and_agent", values | {"agent": agent.text}
    if slot != "subject":
        return f"find_facts_of_{slot}", values
    match ranges["predicate"]:
        case Text(text=predicate):
            return "find_facts_of_subject_and_predicate", values | {"predicate": predicate}
        case Among(values=predicates):
            return "find_facts_of_subject_and_predicates", values | {"values": predicates}
        case Span(low=low, high=high):
            name = "find_facts_of_subject_and_predicates_between"
            return name, values | {"low": low, "high": high}
        case _:
            return "find_facts_of_subject", values


def _open_streams(
    session: Session, pattern: FactPattern, ranges: dict[str, IndexRange]
) -> list[Iterator[Row]] | None:
    """Return streams that read all candidates by id; None where another query is faster."""
    backwards = "_backwards" if pattern.descending else ""
    owners: list[Values] = [{}]
    statement = "facts_from_id"
    if isinstance(user := ranges["user"], Text) and pattern.limit is not None:
        agents = _agents(session, user.text, ranges["agent"])
        if len(agents) > _MAX_AGENTS:
            return None
        statement = "facts_of_owner_from_id"
        owners = [{"user": user.text, "agent": agent} for agent in agents]
    elif _choose_query(ranges)[0] not in ("all_facts", "facts_from_id"):
        return None
    sql = f"facts.{statement}{backwards}"
    spans = _id_spans(pattern, ranges["id"])
    return [session.stream(sql, owner | span) for owner in owners for span in spans]


def _id_spans(pattern: FactPattern, id: IndexRange) -> list[Values]:
    """Return the spans in which the ids of a page lie; they leave out hidden marks and weights."""
    spans = _AROUND_MARKS if hides_marks(pattern) else [_span(id)]
    after = place_after(pattern)
    if after is None:
        bounded = spans
    elif pattern.descending:
        bounded = [
            (low, after[1] if high == BEYOND else min(high, after[1])) for low, high in spans
        ]
    else:
        bounded = [(max(low, _next(after[1])), high) for low, high in spans]
    return [{"low": low, "high": high} for low, high in bounded]


def _span(id: IndexRange) -> tuple[str, Any]:
    match id:
        case Text(text=text):
            return text, _next(text)
        case Span(low=low, high=high):
            return low, high
        case _:
            return FIRST, BEYOND


def _next(text: str) -> str:
    # NUL is the first character: no text lies between a text and that text with NUL appended.
    return f"{text}\0"


def _agents(session: Session, user: str, agent_range: IndexRange) -> list[str]:
    """Return the agents of a user; the index finds each one, however many facts it has."""
    if isinstance(agent_range, Text):
        return [agent_range.text]
    values = {"user": user, "limit": _MAX_AGENTS + 1}
    # A fact whose agent is no text is unreadable.
    return [
        agent
        for (agent,) in session.stream("facts.agents_of_user", values)
        if isinstance(agent, str)
    ]
