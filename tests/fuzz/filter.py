"""Fuzz the sandbox of ``when_filter``: it refuses a text, or runs it as an allowed filter.

The oracle has its own list of what a filter may use, and imports nothing of it from the sandbox.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from slumberd.model.errors import FilterError
from slumberd.rules.filters import sandbox as filter_sandbox
from slumberd.rules.filters.sandbox import STEPS, Filter, FilterResult, prepare
from slumberd.sql_statements import statements
from tests.fuzz.grammar import examples, spelled
from tests.fuzz.targets import Finding
from tests.support import filter_fragments as fragments

SECONDS = 0.1
OVERRUN = 0.1
"""Seconds; of the processor, for the machine may be busy with other things."""

_TRIES = 3
_SPELLED = b"\0"
"""The first byte of an input that is not text, but choices of a grammar."""

_REQUESTED = frozenset({2, 3, 4, 5, 6, 7})
_VIEWS = frozenset({"slumberd_filter_by_scope", "slumberd_filter_by_content"})
_OUR_TABLES = frozenset({"episodes", "slumberd_batch", *_VIEWS})
_COLUMNS = frozenset({
    "rid", "id", "scope_key", "user", "session", "agent", "content", "source_node", "timestamp",
    "metadata", "intent", "subject", "predicate", "object", "confidence",
})  # fmt: skip
_FUNCTIONS = frozenset({
    "->", "->>", "abs", "coalesce", "date", "datetime", "glob", "ifnull", "iif", "instr",
    "json_array_length", "json_extract", "json_type", "json_valid", "julianday", "length",
    "like", "likelihood", "likely", "lower", "max", "min", "nullif", "round", "sign",
    "strftime", "substr", "substring", "time", "typeof", "unicode", "unixepoch", "unlikely",
    "upper",
})  # fmt: skip
_KEYWORDS = (
    "AND", "OR", "NOT", "IN (", "SELECT", "UNION ALL", "FROM", "secrets", "episodes", "CASE WHEN",
    "THEN", "ELSE", "END", "CAST(", "AS TEXT", "AS BLOB", "COLLATE NOCASE", "BETWEEN", "IS", "NULL",
    "LIKE", "GLOB", "ESCAPE", "||", "->", "->>", "'now'", "'$.a'", "'%a%b'", "--", "/*", "*/", ";",
    "DISTINCT", "EXISTS (", "VALUES (", "WITH", "LIMIT", "pragma_table_info", "sqlite_master",
)  # fmt: skip
_FUNCTIONS_OF_VIEWS = frozenset({
    "instr", "json_extract", "json_type", "json_valid", "length", "replace", "substr",
    "slumberd_with_offset",
    "slumberd_speaker",
    "slumberd_is_person",
})  # fmt: skip
_EPISODES = statements("episodes")


def _row(
    id: object, content: object, metadata: object, timestamp: object = "now"
) -> tuple[object, ...]:
    return (id, "/user/u/session/s/agent/a/", content, timestamp, metadata)


def _json(**fields: object) -> bytes:
    return orjson.dumps(fields)


# The first row and the last row are never requested.
ROWS: tuple[tuple[object, ...], ...] = (
    _row("theirs", _json(content="a secret", user="x"), _json(subject="a secret")),
    _row("e2", _json(content="tea", user="u"), _json(subject="u", object=1, confidence=0.4)),
    _row("a" * 60_000, _json(content="a" * 60_000), b"[" + b"[]," * 20_000 + b"1]"),
    _row("now", _json(content="now"), _json(subject="now", confidence="x"), "now"),
    _row("e5", b"{" * 3_000, b'{"a": 1, "a": 2}', 2_461_041.5),
    _row(b"\xff\x00", "\0", b"\xff", ""),
    _row("e7", 7, "[" * 999 + "]" * 999, b"2026-01-01"),
    _row("e8", _json(content="another secret"), b"{}"),
)


class SlowFinding(Finding):
    """It took too long, which another try may not."""


class FilterTarget:
    """Runs each fragment on rows of a real file, and watches what SQLite is allowed to do.

    Args:
        rows: What the file holds, from rowid 1.
        overrun: Seconds of the processor beyond the budget that are no finding.
        steps: Steps of SQLite between two checks of the budget.
    """

    def __init__(
        self,
        rows: Iterable[tuple[object, ...]] = ROWS,
        *,
        overrun: float = OVERRUN,
        steps: int = STEPS,
    ) -> None:
        self._steps = steps
        self._overrun = overrun
        self._folder = TemporaryDirectory(prefix="slumberd-fuzz-")
        self._path = Path(self._folder.name) / "memory.db"
        _fill(self._path, rows)
        self._before = self._path.read_bytes()
        self._connection = sqlite3.connect(
            f"file:{self._path}?mode=ro", uri=True, isolation_level=None
        )
        prepare(self._connection)

    def close(self) -> None:
        self._connection.close()
        self._folder.cleanup()

    def seeds(self) -> Iterator[bytes]:
        families = (*fragments.REFUSED.values(), *fragments.NOT_COMPILED.values())
        for fragment in (member for family in families for member in family):
            yield fragment.encode(errors="surrogateescape" if _is_escaped(fragment) else "replace")
        for legitimate in fragments.LEGITIMATE:
            yield legitimate.fragment.encode()
        yield from (bomb.encode() for bomb in fragments.BOMBS)
        yield from (_SPELLED + choices for choices in examples(200))

    def words(self) -> Iterator[str]:
        yield from (f" {word} " for word in (*_COLUMNS, *_KEYWORDS))
        yield from (f"{name}(" for name in (*_FUNCTIONS, "printf", "load_extension"))

    def run_once(self, given: bytes) -> None:
        fragment = (
            spelled(given[1:])
            if given.startswith(_SPELLED)
            else given.decode(errors="surrogateescape")
        )
        try:
            self.judge(fragment)
        except FilterError:
            return
        self._check_that_it_is_one_expression(fragment)

    def judge(self, fragment: str) -> FilterResult:
        """Run a filter on the requested rows, and check all promises but one.

        Raises:
            FilterError: The sandbox refuses the filter, or stops it.
            Finding: A promise is broken.
        """
        for _ in range(_TRIES - 1):
            with suppress(SlowFinding):
                return self._judge(fragment)
        return self._judge(fragment)

    def _judge(self, fragment: str) -> FilterResult:
        with _watched() as granted:
            began = time.thread_time()
            try:
                selection = Filter("fuzz", fragment, seconds=SECONDS, steps=self._steps).select(
                    self._connection, sorted(_REQUESTED)
                )
            finally:
                took = time.thread_time() - began
                self._check(granted, took)
        if not selection.matched | selection.failed.keys() <= _REQUESTED:
            raise Finding(f"rows that were not requested: {selection}")
        return selection

    def _check(self, granted: list[tuple[object, ...]], took: float) -> None:
        if granted:
            raise Finding(f"the authorizer let pass {granted}")
        if took > SECONDS + self._overrun:
            raise SlowFinding(f"took {took:.3f} s with a budget of {SECONDS:g} s")
        if self._path.read_bytes() != self._before or len(list(self._path.parent.iterdir())) > 1:
            raise Finding("the file changed, or another was made")

    def _check_that_it_is_one_expression(self, fragment: str) -> None:
        try:
            selection = self.judge(f"({fragment}\n) AND 0")
        except FilterError:
            return  # one parenthesis or some bytes too many, and too slow this time
        if selection.matched:
            raise Finding("it is more than one expression")


def _is_escaped(fragment: str) -> bool:
    return all(not "\ud800" <= character <= "\udc7f" for character in fragment)


def _fill(path: Path, rows: Iterable[tuple[object, ...]]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(_EPISODES["create_table"])
    connection.executemany(_EPISODES["insert"], rows)
    connection.execute("CREATE TABLE secrets (secret TEXT)")
    connection.execute("INSERT INTO secrets (secret) VALUES ('the sentinel')")
    connection.close()


@contextmanager
def _watched() -> Iterator[list[tuple[object, ...]]]:
    """Record what the authorizer wrongly allows."""
    authorize = filter_sandbox._authorize
    granted: list[tuple[object, ...]] = []

    def note(
        action: int, first: str | None, second: str | None, _: str | None, within: str | None
    ) -> int:
        answer = authorize(action, first, second, _, within)
        if answer == sqlite3.SQLITE_OK and not _is_allowed(action, first, second, within):
            granted.append((action, first, second, within))
        return answer

    filter_sandbox._authorize = note
    try:
        yield granted
    finally:
        filter_sandbox._authorize = authorize


def _is_allowed(action: int, first: str | None, second: str | None, within: str | None) -> bool:
    if action == sqlite3.SQLITE_SELECT:
        return True
    if action == sqlite3.SQLITE_FUNCTION:
        return str(second).lower() in (_FUNCTIONS_OF_VIEWS if within in _VIEWS else _FUNCTIONS)
    if action != sqlite3.SQLITE_READ:
        return False
    if within in _VIEWS or not second:
        return first in _OUR_TABLES
    return first in _VIEWS and second in _COLUMNS
