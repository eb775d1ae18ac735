"""Run a rule's ``when_filter`` so that it reads the documented columns and nothing else.

Three independent walls protect the database. `checks` accepts one expression of known words. An
authorizer allows the columns of one temporary view and functions that cannot run long. Limits on
values, patterns and time restrict everything else. Filters run on the connection, and in the
snapshot, in which the rows are read.

The date functions read no clock, so their results depend on their arguments only. SQLite's own
would read the time for a row with the text ``now`` in place of a date.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event
from typing import Any

import orjson

from slumberd.model.episode import PERSON, NaiveTimestamps, speaker_of, with_offset
from slumberd.model.errors import FilterError, StoppedError
from slumberd.model.scope import ScopeMismatch
from slumberd.rules.filters.checks import (
    COLUMNS,
    DATES,
    FUNCTIONS,
    LONGEST_PATTERN,
    columns_in,
    tokens_of,
)
from slumberd.rules.filters.tokenizer import FilterToken
from slumberd.sql_statements import statements

_Value = str | bytes | int | float | None

# A date, a time of day and a day number all begin with a digit; words do not.
_BEGINS_AS_TIME = re.compile(r"\s*[-+.]*\d")
_ZONES = frozenset({"localtime", "utc"})


@contextmanager
def clockless(connection: sqlite3.Connection) -> Iterator[None]:
    """Make the date functions of a connection return NULL where they would read clock or zone.

    Afterwards the connection has no date functions: SQLite cannot restore the built-in ones.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as calendar:
        for name in DATES:
            connection.create_function(name, -1, partial(_call, calendar, name), deterministic=True)
        yield


def _call(calendar: sqlite3.Connection, name: str, *given: _Value) -> _Value:
    if not _is_without_clock(given[1:] if name == "strftime" else given) or _is_too_long(given[0]):
        return None
    placeholders = ", ".join("?" * len(given))
    answer: _Value = calendar.execute(f"SELECT {name}({placeholders})", given).fetchone()[0]
    return answer


def _is_without_clock(given: tuple[_Value, ...]) -> bool:
    if not given or not all(isinstance(value, str | int | float) for value in given):
        return False
    time, *modifiers = given
    return _BEGINS_AS_TIME.match(str(time)) is not None and _ZONES.isdisjoint(
        str(modifier).strip().lower() for modifier in modifiers
    )


def _is_too_long(text: _Value) -> bool:
    # No date is that long, and a long format takes long.
    return isinstance(text, str) and len(text) > LONGEST_PATTERN


SECONDS = 5.0
"""How long a filter may take for one batch."""

LARGEST = 1024 * 1024
"""The most bytes of an episode's content, or metadata, that a filter can read."""

_SQL = statements("filters")
_EPISODES = statements("episodes")

_VIEWS = ("slumberd_filter_by_scope", "slumberd_filter_by_content")
_VIEW_FUNCTIONS = frozenset(
    {
        "substr",
        "instr",
        "replace",
        "length",
        "json_valid",
        "json_extract",
        "json_type",
        "slumberd_with_offset",
        "slumberd_speaker",
        "slumberd_is_person",
    }
)
_CALLABLE = FUNCTIONS | {"->", "->>"}
_READABLE = frozenset({"rid", *COLUMNS})

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: LONGEST_PATTERN,
    # For any value, also one of an episode: SQLite may copy the value for each mention.
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 16,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 1,
}
_LONGEST_VALUE = 65_536
"""The most characters of a column, as in the view."""

STEPS = 10
"""Steps of SQLite between two checks of the deadline, unless the caller passes another number.

SQLite checks at jumps only, so each column of the view has one."""

_NEAR = re.compile(r'near "(.*?)"|no such (?:column|function): (\S+)|function (\w+)\(\)')
_REASONS = {
    "string or blob too big": f"reads or makes a text of more than {LARGEST} bytes",
    "parser stack overflow": "its parentheses and operators are nested too deep",
    "JSON path error": "{}; a path begins with '$.', as in '$.topic'",
    "user-defined function raised exception": "a date function got a text that is not UTF-8",
    "bad JSON path": "{}; a path begins with '$.', as in '$.topic'",
}
_SYNTAX_ERROR = re.compile(r'near "(.*)": syntax error')
_MOST_TRIALS = 20
_NO_ROWS = {"first": 1, "last": 0}
_PLAIN = '{"content":"a text","source_node":"","agent":"a","user":"u","session":"s"}'
_SCOPE = "/user/u/session/s/agent/a/"
_NO_METADATA: Sequence[Mapping[str, object]] = ({},)


@dataclass(slots=True)
class FilterResult:
    """The result of a filter on a batch.

    Attributes:
        matched: The rowids that the filter selects.
        failed: Why the filter fails on other rows, by rowid.
    """

    matched: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)


class Filter:
    """One rule's filter, checked and ready to run.

    Args:
        rule_id: The rule, for errors.
        fragment: The ``when_filter``; not empty.
        mismatch: Under ``trust_episode`` the columns user, session and agent are the content's.
        stop: When set, a run ends with `StoppedError`.
        seconds: How long one run may take.
        steps: Steps of SQLite between two checks of the deadline.

    Attributes:
        reads: The columns that it names.

    Raises:
        FilterError: The fragment is not allowed.
    """

    def __init__(
        self,
        rule_id: str,
        fragment: str,
        *,
        mismatch: ScopeMismatch = "quarantine",
        stop: Event | None = None,
        seconds: float = SECONDS,
        steps: int = STEPS,
    ) -> None:
        self._rule_id = rule_id
        self._fragment = fragment
        self._tokens = tokens_of(rule_id, fragment)
        self.reads = columns_in(self._tokens)
        self._stop = stop or Event()
        self._seconds = seconds
        self._steps = steps
        source = "content" if mismatch == "trust_episode" else "scope"
        # The only SQL that is composed: the fragment is on lines of its own, inside parentheses.
        self._start = _SQL[f"select_by_{source}"]
        self._sql = f"{self._start}\n{fragment}\n)"

    def select(self, connection: sqlite3.Connection, rids: Sequence[int]) -> FilterResult:
        """Return which rows the filter selects; the connection must have gone through `prepare`.

        Raises:
            FilterError: The filter does not compile, or runs over its time limit.
            StoppedError: `stop` was set.
        """
        deadline = time.monotonic() + self._seconds

        def cancelled() -> bool:
            """Return whether to abort the query."""
            return self._stop.is_set() or time.monotonic() > deadline

        with _restrict(connection, rids, cancelled, self._steps):
            return self.select_restricted(connection, rids)

    def select_restricted(
        self, connection: sqlite3.Connection, rids: Sequence[int]
    ) -> FilterResult:
        """Do the same as `select`, on a connection that already is restricted and has the rows."""
        result = FilterResult()
        self._compile(connection)
        self._select_by_bisection(connection, sorted(rids), result)
        return result

    def _compile(self, connection: sqlite3.Connection) -> None:
        try:
            self._run(connection, 1, 0)
        except sqlite3.Error as error:
            raise self._compile_error(connection, error) from error

    def _select_by_bisection(
        self, connection: sqlite3.Connection, rids: Sequence[int], result: FilterResult
    ) -> None:
        # A row on which the filter fails must not affect other rows: bisect to find it.
        ranges = [rids] if rids else []
        while ranges:
            some = ranges.pop()
            try:
                result.matched.update(self._run(connection, some[0], some[-1]))
            except sqlite3.Error as error:
                if len(some) > 1:
                    middle = len(some) // 2
                    ranges += [some[:middle], some[middle:]]
                else:
                    result.failed[some[0]] = _reason(error)

    def _run(self, connection: sqlite3.Connection, first: int, last: int) -> list[int]:
        try:
            found = connection.execute(self._sql, {"first": first, "last": last}).fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise self._interrupt_error() from error
        except UnicodeDecodeError as error:
            # SQLite quotes the row in its message, and the driver cannot read it.
            raise sqlite3.DataError("fails on a text that is not UTF-8") from error
        return [rid for (rid,) in found]

    def _interrupt_error(self) -> FilterError | StoppedError:
        if self._stop.is_set():
            return StoppedError(f"the filter of rule {self._rule_id!r} was stopped")
        return FilterError(self._rule_id, f"ran over its budget of {self._seconds:g} s")

    def _compile_error(self, connection: sqlite3.Connection, error: sqlite3.Error) -> FilterError:
        problem = _reason(error)
        position = self._position(connection, problem)
        if _code(error) == sqlite3.SQLITE_AUTH:
            problem = f"reads or calls what a filter may not: {problem}"
        elif position is None and problem.startswith('near ")"'):
            problem, position = "something is missing at its end", len(self._fragment)
        elif match := _SYNTAX_ERROR.fullmatch(problem):
            problem = f"{match[1]!r} does not fit here"
        return FilterError(self._rule_id, problem, position=position)

    def _position(self, connection: sqlite3.Connection, problem: str) -> int | None:
        """Return the position of the token that SQLite names; None when several may be meant."""
        match = _NEAR.search(problem)
        named = next(filter(None, match.groups()), None) if match else None
        found = [token for token in self._tokens if token.text == named]
        if len(found) > 1 and match and match[1]:
            failing = (token for token in found[:_MOST_TRIALS] if self._fails_at(connection, token))
            found = list(islice(failing, 1))
        return found[0].position if len(found) == 1 else None

    def _fails_at(self, connection: sqlite3.Connection, token: FilterToken) -> bool:
        # SQLite stops at the first token that does not fit, so the text after it does not matter.
        try:
            connection.execute(f"{self._start}\n{self._fragment[: token.end]}\n)", _NO_ROWS)
        except sqlite3.Error as error:
            return str(error).startswith(f'near "{token.text}"')
        return False


def _reason(error: sqlite3.Error) -> str:
    problem = str(error)
    for begin, reason in _REASONS.items():
        if problem.startswith(begin):
            return reason.format(problem)
    return problem


def _code(error: sqlite3.Error) -> int | None:
    # Errors of the driver itself have no code.
    return getattr(error, "sqlite_errorcode", None)


def prepare(
    connection: sqlite3.Connection,
    naive: NaiveTimestamps = "local",
    person: Collection[str] = PERSON,
) -> None:
    """Create the views and functions of filters on a connection, outside of any transaction.

    Args:
        naive: How a timestamp without an offset is read.
        person: The speakers whose words are those of the user.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    with_an_offset = partial(with_offset, naive=naive)
    connection.create_function("slumberd_with_offset", 1, with_an_offset, deterministic=True)
    is_person = partial(_is_person, frozenset(person))
    connection.create_function("slumberd_speaker", 2, _speaker, deterministic=True)
    connection.create_function("slumberd_is_person", 2, is_person, deterministic=True)
    with _writable(connection):
        for name in ("create_batch", "create_view_by_scope", "create_view_by_content"):
            connection.execute(_SQL[name])


def _speaker(document: str | None, metadata: str | None) -> str | None:
    """Return the column ``speaker``: of the same documents that a firing reads."""
    speaker = _speaker_in(document, metadata)
    return None if speaker is None else speaker[:_LONGEST_VALUE]


def _is_person(person: frozenset[str], document: str | None, metadata: str | None) -> bool:
    return _speaker_in(document, metadata) in person


def _speaker_in(document: str | None, metadata: str | None) -> str | None:
    return speaker_of(_object_of(document).get("source_node"), _object_of(metadata))


def _object_of(encoded: str | None) -> dict[str, Any]:
    """Return a JSON object; an empty one where a firing cannot read it, either."""
    try:
        found = orjson.loads(encoded or "")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _writable(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the connection write to its temporary tables; its files are opened read-only."""
    connection.execute("PRAGMA query_only = OFF")
    try:
        yield
    finally:
        connection.execute("PRAGMA query_only = ON")


def _fill(connection: sqlite3.Connection, rids: Iterable[int]) -> None:
    with _writable(connection):
        connection.execute(_SQL["clear_batch"])
        connection.execute(_SQL["fill_batch"], (orjson.dumps([*rids]).decode(),))


@contextmanager
def _restrict(
    connection: sqlite3.Connection,
    rids: Iterable[int],
    cancelled: Callable[[], bool],
    steps: int = STEPS,
) -> Iterator[None]:
    """Allow only filters on a connection, over these rows, and interrupt them once `cancelled`."""
    _fill(connection, rids)
    with clockless(connection), _confine(connection, cancelled, steps):
        yield


@contextmanager
def _confine(
    connection: sqlite3.Connection, cancelled: Callable[[], bool], steps: int
) -> Iterator[None]:
    limits = {limit: connection.setlimit(limit, most) for limit, most in _LIMITS.items()}
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(cancelled, steps)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        for limit, most in limits.items():
            connection.setlimit(limit, most)


def _authorize(
    action: int, first: str | None, second: str | None, _: str | None, within: str | None
) -> int:
    match action:
        case sqlite3.SQLITE_SELECT:
            allowed = True
        # SQLite gives no column for the tables of a view when no column is read.
        case sqlite3.SQLITE_READ if within in _VIEWS or not second:
            allowed = first in ("episodes", "slumberd_batch", *_VIEWS)
        case sqlite3.SQLITE_READ:
            allowed = first in _VIEWS and second in _READABLE
        case sqlite3.SQLITE_FUNCTION if within in _VIEWS:
            allowed = second in _VIEW_FUNCTIONS
        case sqlite3.SQLITE_FUNCTION:
            allowed = str(second).lower() in _CALLABLE
        case _:
            allowed = False
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def check_filter(rule_id: str, fragment: str) -> None:
    """Compile a filter, and run it on a sample episode without metadata.

    Raises:
        FilterError: It is not allowed, or fails; with the position if that is known.
    """
    with filter_checker() as check:
        check(rule_id, fragment)


@contextmanager
def filter_checker() -> Iterator[Callable[[str, str], None]]:
    """Yield a `check_filter` for many filters: they share one connection, which is slow to make."""
    timer = _Timer()
    with _sample() as connection, _restrict(connection, [1], timer.is_over):
        yield partial(_check, connection, timer)


@dataclass(slots=True)
class _Timer:
    """The deadline of the current check."""

    deadline: float = 0.0

    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() > self.deadline


def _check(connection: sqlite3.Connection, timer: _Timer, rule_id: str, fragment: str) -> None:
    if not fragment.strip():
        return
    timer.deadline = time.monotonic() + SECONDS
    result = Filter(rule_id, fragment).select_restricted(connection, [1])
    for problem in result.failed.values():
        raise FilterError(rule_id, problem)


def select_samples(fragment: str, samples: Sequence[Mapping[str, object]]) -> list[bool]:
    """Return whether a filter selects each of some episodes, which differ by their metadata.

    Raises:
        FilterError: It is not allowed.
    """
    timer = _Timer(time.monotonic() + SECONDS)
    rids = range(1, len(samples) + 1)
    with _sample(samples) as connection, _restrict(connection, rids, timer.is_over):
        found = Filter("samples", fragment).select_restricted(connection, rids)
    return [rid in found.matched for rid in rids]


@contextmanager
def _sample(
    metadata: Sequence[Mapping[str, object]] = _NO_METADATA,
) -> Iterator[sqlite3.Connection]:
    """Yield a database of episodes that differ by their metadata only."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute(_EPISODES["create_table"])
        for number, one in enumerate(metadata, 1):
            document = orjson.dumps(one).decode()
            row = (f"e{number}", _SCOPE, _PLAIN, "2026-01-01T00:00:00+00:00", document)
            connection.execute(_EPISODES["insert"], row)
        prepare(connection)
        yield connection
    finally:
        connection.close()
