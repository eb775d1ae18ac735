"""Find the latest episodes of a scope, by instant, however their timestamps are written.

Among timestamps as we write them (UTC, ``isoformat``) text order is instant order, so an index
gives the newest first. Other programs' rows may have any offset. Their text lies within a day of
their instant in UTC, so their search begins a little below the oldest result. A separate index
shows whether a user has such rows.

The indexes know whole scopes, and users with one agent. All agents of a user, and of a session,
are read side by side from their newest on. This takes longer with each agent, and not with the
number of their episodes.

Two more indexes hold the rows whose scope key does not name their owner: Stargraph's placeholder,
and keys with a slash in a part. They go by the user and the session that the content names, in the
spelling of Stargraph and slumberd. A row of another spelling has an empty value there; every
such read also reads these rows.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import orjson

from slumberd.model.episode import Episode, EpisodeVersion, NaiveTimestamps, instant
from slumberd.model.scope import PLACEHOLDER_KEY, Scope, ScopeFilter, ScopeMismatch, escape
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import decode, episode_of

# A day for the offset, and one for a blank in place of the T, which sorts before it.
_SLACK = timedelta(days=2)
_TIMESTAMP = itemgetter(3)

_LAST_YEAR = 9999
_LAST = "~"
"""Sorts after every timestamp."""

Row = tuple[Any, ...]
Axis = Literal["key", "agent", "user", "session"]
Form = Literal["utc", "other"]


class _Range(NamedTuple):
    """A range of an index.

    Attributes:
        axis: What the index knows: a whole key, or a user with an agent; or, by the content,
            a user, or a user with a session.
        values: The parameters.
    """

    axis: Axis
    values: dict[str, str | bytes]

    @property
    def is_by_content(self) -> bool:
        """Whether its index goes by the content."""
        return self.axis in ("user", "session")

    @property
    def has_single_value(self) -> bool:
        """Whether the range has one value of the axis; else it has all of a user or session."""
        return self.axis in self.values

    def at(self, value: bytes) -> _Range:
        """Return the part that has one value of the axis."""
        return _Range(self.axis, {**self.values, self.axis: value})

    def statement(self, form: Form) -> str:
        """Return the name of the statement that reads its rows of one form."""
        name = f"owned_{self.axis}" if self.is_by_content else f"{self.axis}_{form}"
        return f"recent.{name}"


def _ranges(session: Session, scope: ScopeFilter) -> list[_Range]:
    """Return the ranges to read: by scope key, and by content where only that names the owner."""
    user = f',"user":{_quoted(scope.user)}'
    owners = [owner for owner in (user, "") if _has_owned_rows(session, owner)]
    return [*_ranges_of_key(scope), *(_by_content(scope, owner) for owner in owners)]


def _has_owned_rows(session: Session, user: str) -> bool:
    return bool(session.value("recent.any_owned", {"user": user}))


def _by_content(scope: ScopeFilter, user: str) -> _Range:
    agent = f',"agent":{_quoted(scope.agent)},' if user and scope.agent is not None else ""
    if scope.session is None:
        return _Range("user", {"user": user, "agent": agent})
    session = f'{user},"session":{_quoted(scope.session)}}}' if user else ""
    return _Range("session", {"session": session, "agent": agent})


def _quoted(part: str) -> str:
    return orjson.dumps(part).decode()


def _ranges_of_key(scope: ScopeFilter) -> list[_Range]:
    """Return one range for each spelling of the scope, but none for the placeholder."""
    raw = Scope(scope.user, scope.session or "", scope.agent or "")
    escaped = Scope(*(escape(part) for part in raw))
    # Stargraph does not escape: its keys may contain a plain %.
    spellings = [escaped, raw] if raw != escaped and "/" not in "".join(raw) else [escaped]
    ranges = [_range(scope, *spelling) for spelling in spellings]
    return [span for span in ranges if span.values.get("key") != PLACEHOLDER_KEY]


def _range(scope: ScopeFilter, user: str, session: str, agent: str) -> _Range:
    within = f"/user/{user}/"
    if scope.session is None:
        bound = {"last": ""} if scope.agent is None else {"agent": f"{agent}/"}
        return _Range("agent", {"user": within, **bound})
    start = f"{within}session/{session}/agent/"
    if scope.agent is None:
        return _Range("key", {"user": within, "last": start, "end": f"{start[:-1]}0"})
    return _Range("key", {"user": within, "key": f"{start}{agent}/"})


class _Rows:
    """Reads the rows of ranges whose timestamps are of one form, in falling order of their text."""

    def __init__(self, session: Session, form: Form) -> None:
        self._session = session
        self._form = form

    def of(self, wanted: _Range, floor: str, upto: str = _LAST) -> Iterable[Row]:
        """Return the rows of a range, none of another form with a text below `floor`.

        Of a range by content, no row with a text above `upto` is returned.
        """
        if self._form == "other" and not wanted.is_by_content and not self._any(wanted):
            return ()
        if wanted.has_single_value:
            return self._read_value(wanted, floor, upto)
        return heapq.merge(*self._read_each_value(wanted, floor), key=_TIMESTAMP, reverse=True)

    def _any(self, wanted: _Range) -> bool:
        return bool(self._session.value("recent.any_other", wanted.values))

    def _read_value(self, wanted: _Range, floor: str, upto: str = _LAST) -> Iterator[Row]:
        values = {**wanted.values, "floor": floor, "upto": upto, "utc": self._form == "utc"}
        return self._session.stream(wanted.statement(self._form), values)

    def _read_each_value(self, wanted: _Range, floor: str) -> Iterator[Iterator[Row]]:
        statement, last = f"recent.next_{wanted.axis}_{self._form}", wanted.values["last"]
        while found := self._session.one(statement, {**wanted.values, "last": last}):
            # As bytes: text that is not UTF-8 is decoded to other text, and would be found again.
            *newest, last = found
            yield self._read_from(tuple(newest), wanted.at(last), floor)

    def _read_from(self, newest: Row, wanted: _Range, floor: str) -> Iterator[Row]:
        yield newest
        rows = self._read_value(wanted, floor)
        next(rows, None)  # the newest again
        yield from rows


class RowsBefore:
    """The last rows of a whole scope up to several instants, read together.

    Args:
        session: Of the episodes, in one snapshot.
        scope: With its session and agent.
        last: The last of the instants, in UTC.
        count: How many instants there are.
    """

    def __init__(self, session: Session, scope: ScopeFilter, last: datetime, count: int) -> None:
        self._last = last
        self._session = session
        self._scope = scope
        self._count = count
        self._limit = 0
        self._most = 0
        """So many rows of each range were read, if it has as many."""
        self._rows: list[list[Row]] = []
        self._others: dict[tuple[str, str], list[list[Row]]] = {}

    @cached_property
    def _ranges(self) -> list[_Range]:
        return _ranges(self._session, self._scope)

    def upto(self, at: datetime, *, limit: int) -> list[list[Row]]:
        """Return the last rows up to an instant, in a list for each spelling of the scope.

        Also the rows whose content alone names the scope, in lists of their own.

        The rows whose timestamp is not in UTC are in lists of their own: all that lie within two
        days of the instant.

        Args:
            at: The instant, in UTC; not after the last one.
            limit: At most this many rows of each spelling.
        """
        if limit > self._limit:
            self._limit, self._most = limit, limit + 2 * self._count
            self._rows = [
                self._read(each, self._last.isoformat(), self._most) for each in self._ranges
            ]
        upto = at.isoformat()
        found = [
            self._rows_upto(wanted, rows, upto, limit)
            for wanted, rows in zip(self._ranges, self._rows, strict=True)
        ]
        return found + self._others_near(at)

    def _rows_upto(self, wanted: _Range, rows: list[Row], upto: str, limit: int) -> list[Row]:
        first = bisect_left(rows, True, key=lambda row: row[3] <= upto)
        if len(rows) < self._most or first + limit <= len(rows):
            return rows[first : first + limit]
        # Too many rows lie between this instant and the last one.
        return self._read(wanted, upto, limit)

    def _read(self, wanted: _Range, upto: str, limit: int) -> list[Row]:
        if wanted.is_by_content:
            return [*islice(_Rows(self._session, "utc").of(wanted, "", upto), limit)]
        values = {**wanted.values, "upto": upto, "limit": limit}
        return self._session.rows("recent.key_upto", values)

    def _others_near(self, at: datetime) -> list[list[Row]]:
        floor = (at - _SLACK).date().isoformat() if at.year > 1 else ""
        ceiling = (at + _SLACK).date().isoformat() if at.year < _LAST_YEAR else _LAST
        found = self._others.get((floor, ceiling))
        if found is None:
            others = _Rows(self._session, "other")
            found = self._others[floor, ceiling] = [
                [row for row in others.of(wanted, floor) if row[3] < ceiling]
                for wanted in self._ranges
            ]
        return found


def versions_in(
    session: Session, scope: ScopeFilter, *, mismatch: ScopeMismatch, naive: NaiveTimestamps
) -> Iterator[EpisodeVersion]:
    """Yield all readable episodes of a scope, in no order; an episode may come twice."""
    forms: tuple[Form, ...] = ("utc", "other")
    for form, wanted in itertools.product(forms, _ranges(session, scope)):
        for row in _Rows(session, form).of(wanted, ""):
            version = decode(0, row, mismatch=mismatch, naive=naive)
            if not version.fault and scope.holds(version):
                yield version


class _Newest:
    """A heap of the newest versions so far, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, str, EpisodeVersion, str]] = []

    def add(self, version: EpisodeVersion, timestamp: str) -> None:
        """Keep a version and its stored timestamp if it is among the newest."""
        entry = (version.at, version.id, version, timestamp)
        if len(self._heap) == self._most:
            heapq.heappushpop(self._heap, entry)
            return
        self._heap.append(entry)
        if len(self._heap) == self._most:  # not before: pushing in falling order is slow
            heapq.heapify(self._heap)

    def floor(self, slack: timedelta) -> str:
        """Return the text below which no timestamp can be among the newest."""
        if len(self._heap) < self._most:
            return ""
        at = instant(self._heap[0][0])
        if not slack:
            return at.isoformat()
        return (at - slack).date().isoformat() if at.year > 1 else ""

    def ordered(self) -> list[Episode]:
        """Return the episodes, newest first."""
        best = sorted(self._heap, reverse=True)
        return [episode_of(version, timestamp) for _, _, version, timestamp in best]


def recall(
    session: Session,
    scope: ScopeFilter,
    limit: int,
    *,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps,
) -> list[Episode]:
    """Return the latest readable episodes of a scope, newest first, then by id from the last."""
    read = partial(decode, 0, mismatch=mismatch, naive=naive)
    newest, ranges = _Newest(limit), _ranges(session, scope)
    rows = _Rows(session, "utc")
    for wanted in ranges:
        _take(rows.of(wanted, ""), newest, timedelta(0), scope, read)
    rows = _Rows(session, "other")
    for wanted in ranges:
        _take(rows.of(wanted, newest.floor(_SLACK)), newest, _SLACK, scope, read)
    return newest.ordered()


def _take(
    rows: Iterable[Row],
    newest: _Newest,
    slack: timedelta,
    scope: ScopeFilter,
    read: Callable[[Row], EpisodeVersion],
) -> None:
    """Add rows, in descending text order, until no later row can be among the newest."""
    for row in rows:
        if row[3] < newest.floor(slack):
            break
        version = read(row)
        if not version.fault and scope.holds(version):
            newest.add(version, row[3])
