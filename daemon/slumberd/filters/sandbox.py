"""Run a rule's ``when_filter`` where it can read the documented columns, and nothing else.

Three walls, each of which holds without the others: `fragments` lets through one expression of
known words; an authorizer lets through the columns of one temporary view and functions that
cannot run long; and limits on values, patterns and time bound what is left. All of it happens
on the connection, and in the snapshot, that the rows themselves are read in.

SQLite's date functions without its clock: what they say depends on what they are given.

A row may hold the text ``now`` where a date is looked for; built in, they would read the time.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event

import orjson

from slumberd.errors import FilterError, StoppedError
from slumberd.filters.checks import COLUMNS, DATES, FUNCTIONS, LONGEST_PATTERN, tokens_of
from slumberd.filters.tokenizer import Token
from slumberd.model.naive_timestamps import NaiveTimestamps, with_offset
from slumberd.model.scope import ScopeMismatch
from slumberd.sql_statements import statements

_Value = str | bytes | int | float | None

# A date, a time of day and a day number all begin with a digit; words do not.
_TIME = re.compile(r"\s*[-+.]*\d")
_ZONES = frozenset({"localtime", "utc"})


@contextmanager
def clockless(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the date functions of a connection give NULL where they would read clock or zone.

    Afterwards the connection has no date functions: SQLite never goes back to those it came with.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as calendar:
        for name in DATES:
            connection.create_function(name, -1, partial(_call, calendar, name), deterministic=True)
        yield


def _call(calendar: sqlite3.Connection, name: str, *given: _Value) -> _Value:
    if not _is_told(given[1:] if name == "strftime" else given) or _is_long(given[0]):
        return None
    marks = ", ".join("?" * len(given))
    answer: _Value = calendar.execute(f"SELECT {name}({marks})", given).fetchone()[0]
    return answer


def _is_told(given: tuple[_Value, ...]) -> bool:
    if not given or not all(isinstance(one, str | int | float) for one in given):
        return False
    time, *modifiers = given
    return _TIME.match(str(time)) is not None and _ZONES.isdisjoint(
        str(modifier).strip().lower() for modifier in modifiers
    )


def _is_long(text: _Value) -> bool:
    # No date is, and a long format takes long.
    return isinstance(text, str) and len(text) > LONGEST_PATTERN


SECONDS = 5.0
"""How long a filter may take for one batch."""

LARGEST = 1024 * 1024
"""Bytes of the content, or of the metadata, of an episode that a filter can read."""

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
    }
)
_CALLABLE = FUNCTIONS | {"->", "->>"}
_READABLE = frozenset({"rid", *COLUMNS})

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: LONGEST_PATTERN,
    # Of any value, and so of an episode that is read: each mention may hold on to a copy.
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 16,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 1,
}
# Steps between two looks at the deadline; only jumps look, so the view has one in each column.
_STEPS = 10

_NEAR = re.compile(r'near "(.*?)"|no such (?:column|function): (\S+)|function (\w+)\(\)')
_REASONS = {
    "string or blob too big": f"reads or makes a text of more than {LARGEST} bytes",
    "parser stack overflow": "its parentheses and operators are nested too deep",
    "JSON path error": "{}; a path begins with '$.', as in '$.topic'",
    "user-defined function raised exception": "a date function met a text that is no UTF-8",
    "bad JSON path": "{}; a path begins with '$.', as in '$.topic'",
}
_UNFIT = re.compile(r'near "(.*)": syntax error')
_MOST_TRIED = 20
_NO_ROWS = {"first": 1, "last": 0}
_PLAIN = '{"content":"a text","source_node":"","agent":"a","user":"u","session":"s"}'


@dataclass(slots=True)
class Verdict:
    """What a filter makes of a batch.

    Attributes:
        matched: The rowids that it selects.
        failed: Why it cannot be evaluated on others, by rowid.
    """

    matched: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)


class Filter:
    """One rule's filter, ready to judge rows.

    Args:
        rule_id: For errors.
        fragment: The ``when_filter``; not empty.
        mismatch: Under ``trust_episode`` the columns user, session and agent are the content's.
        stop: When set, a judgement under way ends with `StoppedError`.
        seconds: How long one judgement may take.

    Attributes:
        reads: The columns that it names.

    Raises:
        FilterError: The fragment may not run.
    """

    def __init__(
        self,
        rule_id: str,
        fragment: str,
        *,
        mismatch: ScopeMismatch = "quarantine",
        stop: Event | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._rule_id = rule_id
        self._fragment = fragment
        self._tokens = tokens_of(rule_id, fragment)
        self.reads = frozenset(COLUMNS) & {
            token.text.strip('"`[]').lower() for token in self._tokens
        }
        self._stop = stop or Event()
        self._seconds = seconds
        source = "content" if mismatch == "trust_episode" else "scope"
        # The one place where SQL is put together: on lines of its own, inside parentheses.
        self._start = _SQL[f"select_by_{source}"]
        self._sql = f"{self._start}\n{fragment}\n)"

    def judge(self, connection: sqlite3.Connection, rids: Sequence[int]) -> Verdict:
        """Say which rows the filter selects; `prepare` must have seen the connection.

        Raises:
            FilterError: The filter does not compile, or runs over its budget.
            StoppedError: The store was told to stop.
        """
        deadline = time.monotonic() + self._seconds

        def late() -> bool:
            return self._stop.is_set() or time.monotonic() > deadline

        with _seated(connection, rids, late):
            return self.judge_seated(connection, rids)

    def judge_seated(self, connection: sqlite3.Connection, rids: Sequence[int]) -> Verdict:
        """Do what `judge` does, on a connection that is confined and holds the rows already."""
        verdict = Verdict()
        self._compile(connection)
        self._judge(connection, sorted(rids), verdict)
        return verdict

    def _compile(self, connection: sqlite3.Connection) -> None:
        try:
            self._run(connection, 1, 0)
        except sqlite3.Error as error:
            raise self._refused(connection, error) from error

    def _judge(self, connection: sqlite3.Connection, rids: Sequence[int], verdict: Verdict) -> None:
        # A row that the filter fails on must not take the others with it: halve until found.
        stretches = [rids] if rids else []
        while stretches:
            some = stretches.pop()
            try:
                verdict.matched.update(self._run(connection, some[0], some[-1]))
            except sqlite3.Error as error:
                if len(some) > 1:
                    middle = len(some) // 2
                    stretches += [some[:middle], some[middle:]]
                else:
                    verdict.failed[some[0]] = _reason(error)

    def _run(self, connection: sqlite3.Connection, first: int, last: int) -> list[int]:
        try:
            found = connection.execute(self._sql, {"first": first, "last": last}).fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise self._interrupted() from error
        except UnicodeDecodeError as error:
            # SQLite quotes the row in its message, and the driver cannot read it.
            raise sqlite3.DataError("fails on a text that is no UTF-8") from error
        return [rid for (rid,) in found]

    def _interrupted(self) -> FilterError | StoppedError:
        if self._stop.is_set():
            return StoppedError(f"the filter of rule {self._rule_id!r} was told to stop")
        return FilterError(self._rule_id, f"ran over its budget of {self._seconds:g} s")

    def _refused(self, connection: sqlite3.Connection, error: sqlite3.Error) -> FilterError:
        problem = _reason(error)
        position = self._position(connection, problem)
        if _code(error) == sqlite3.SQLITE_AUTH:
            problem = f"reads or calls what a filter may not: {problem}"
        elif position is None and problem.startswith('near ")"'):
            problem, position = "something is missing at its end", len(self._fragment)
        elif match := _UNFIT.fullmatch(problem):
            problem = f"{match[1]!r} does not fit here"
        return FilterError(self._rule_id, problem, position=position)

    def _position(self, connection: sqlite3.Connection, problem: str) -> int | None:
        """Return where the piece stands that SQLite names; None when it may be several."""
        match = _NEAR.search(problem)
        named = next(filter(None, match.groups()), None) if match else None
        found = [token for token in self._tokens if token.text == named]
        if len(found) > 1 and match and match[1]:
            tried = (token for token in found[:_MOST_TRIED] if self._fails_at(connection, token))
            found = list(islice(tried, 1))
        return found[0].position if len(found) == 1 else None

    def _fails_at(self, connection: sqlite3.Connection, token: Token) -> bool:
        # SQLite gives up at the first piece that does not fit, so what follows does not count.
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
    # What the driver itself refuses carries no code.
    return getattr(error, "sqlite_errorcode", None)


def prepare(connection: sqlite3.Connection, naive: NaiveTimestamps = "local") -> None:
    """Give a connection what filters read; outside of any transaction.

    Args:
        connection: The connection.
        naive: How a timestamp without an offset is read.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    with_an_offset = partial(with_offset, naive=naive)
    connection.create_function("slumberd_with_offset", 1, with_an_offset, deterministic=True)
    with _writable(connection):
        for name in ("create_batch", "create_view_by_scope", "create_view_by_content"):
            connection.execute(_SQL[name])


@contextmanager
def _writable(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the connection write; to temporary tables, for its files are opened for reading."""
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
def _seated(
    connection: sqlite3.Connection, rids: Iterable[int], late: Callable[[], bool]
) -> Iterator[None]:
    """Let nothing but filters run on a connection, over these rows, until `late` says so."""
    _fill(connection, rids)
    with clockless(connection), _confined(connection, late):
        yield


@contextmanager
def _confined(connection: sqlite3.Connection, late: Callable[[], bool]) -> Iterator[None]:
    limits = {limit: connection.setlimit(limit, most) for limit, most in _LIMITS.items()}
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(late, _STEPS)
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
        # Without a column SQLite asks for the tables beneath a view that nothing is read from.
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
    """Compile a filter, and try it on an episode that says nothing.

    Raises:
        FilterError: It may not run, or fails; with its position where it can be told.
    """
    with checking_filters() as check:
        check(rule_id, fragment)


@contextmanager
def checking_filters() -> Iterator[Callable[[str, str], None]]:
    """Yield `check_filter` for many: they share what takes longer to make than to ask."""
    timer = _Timer()
    with _sample() as connection, _seated(connection, [1], timer.late):
        yield partial(_check, connection, timer)


@dataclass(slots=True)
class _Timer:
    """Of one check after the other."""

    deadline: float = 0.0

    def late(self) -> bool:
        return time.monotonic() > self.deadline


def _check(connection: sqlite3.Connection, timer: _Timer, rule_id: str, fragment: str) -> None:
    if not fragment.strip():
        return
    timer.deadline = time.monotonic() + SECONDS
    verdict = Filter(rule_id, fragment).judge_seated(connection, [1])
    for problem in verdict.failed.values():
        raise FilterError(rule_id, problem)


@contextmanager
def _sample() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute(_EPISODES["create_table"])
        connection.execute(
            _EPISODES["insert"],
            ("e", "/user/u/session/s/agent/a/", _PLAIN, "2026-01-01T00:00:00+00:00", "{}"),
        )
        prepare(connection)
        yield connection
    finally:
        connection.close()
