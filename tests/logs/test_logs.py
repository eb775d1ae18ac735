"""Each log line is complete, is one line, and has the documented fields."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import structlog

from slumberd.consolidation.protocols import DeltaLog
from slumberd.logs.lines import (
    MOST_BYTES,
    LineStream,
    console_line,
    json_line,
    open_file,
    timestamp,
)
from slumberd.logs.output import DeltaLines, Level, ScopeForm, configure, send
from slumberd.model.errors import ConfigurationError
from slumberd.model.firing import Counts, Firing, Outcome, Position, Record
from tests.support.cli_runner import restored_logging
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
TS = "2026-01-01T12:00:00.000000Z"


def _now() -> datetime:
    return AT


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    with restored_logging():
        yield


@pytest.fixture(autouse=True)
def lines_of_the_catalogue() -> None:
    """Allow events in these tests that the catalogue does not list."""


@pytest.fixture
def stream() -> io.BytesIO:
    return io.BytesIO()


def _lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def _json(stream: io.BytesIO, level: Level = "info") -> DeltaLines:
    return configure("json", level, stream, terminal=False, now=_now)


def _console(stream: io.BytesIO) -> DeltaLines:
    return configure("auto", "info", stream, terminal=True, now=_now)


def _record(seq: int = 7, **overrides: Any) -> Record:
    fields: dict[str, Any] = {
        "firing_id": "tea@6",
        "rule_id": "tea",
        "kind": "update",
        "fact_id": "e2",
        "replaces": ("e1",),
        "source_episode_ids": ("e2",),
        "reason": "",
        "confidence": 0.9,
        "at": AT,
        "user": "alice",
        "agent": "rag",
    }
    return Record(seq=seq, **(fields | overrides))


def _outcome() -> Outcome:
    return Outcome(
        firing=Firing("tea", "abc", "every", AT, Position(3, "e3"), Position(5, "e5")),
        firing_id="tea@6",
        channels={"facts": Counts(read=2, added=1, noop=1)},
        records=[],
        seconds=0.0123456789,
    )


def test_event_is_one_line_of_json(stream: io.BytesIO) -> None:
    _json(stream)

    structlog.get_logger().info("rule.loaded", rule_id="tea", path=Path("/a"), text="one\ntwo")

    assert stream.getvalue().count(b"\n") == 1
    assert list(_lines(stream)[0].items()) == [
        ("ts", TS),
        ("level", "info"),
        ("event", "rule.loaded"),
        ("rule_id", "tea"),
        ("path", "/a"),
        ("text", "one\ntwo"),
    ]


def test_instant_of_any_offset_is_shown_in_utc() -> None:
    there = datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2)))

    assert timestamp(there) == "2025-12-31T23:02:03.000004Z"


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(
    stream: io.BytesIO, level: Level, written: list[str]
) -> None:
    _json(stream, level)

    for method in ("debug", "info", "warning", "error"):
        getattr(structlog.get_logger(), method)("clock.jumped")

    assert [line["level"] for line in _lines(stream)] == written


def test_exception_is_logged_with_its_traceback(stream: io.BytesIO) -> None:
    _json(stream)

    try:
        int("spilt")
    except ValueError:
        structlog.get_logger().exception("firing.failed")

    [line] = _lines(stream)
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("'spilt'")


def test_line_of_another_library_is_logged_as_an_event(stream: io.BytesIO) -> None:
    _json(stream)

    logging.getLogger("apscheduler.scheduler").warning("job %s missed", "a")

    assert _lines(stream) == [
        {
            "ts": TS,
            "level": "warning",
            "event": "library.logged",
            "logger": "apscheduler.scheduler",
            "message": "job a missed",
        }
    ]


@pytest.mark.parametrize(
    ("number", "level"), [(logging.CRITICAL, "error"), (35, "warning"), (99, "error")]
)
def test_level_of_another_library_is_mapped_to_a_known_level(
    stream: io.BytesIO, number: int, level: str
) -> None:
    _json(stream)

    logging.getLogger("apscheduler").log(number, "odd")

    assert _lines(stream)[0]["level"] == level


def test_debug_lines_of_other_libraries_are_never_written(stream: io.BytesIO) -> None:
    _json(stream, "debug")

    logging.getLogger("asyncio").debug("executing a call with the content of an episode")
    logging.getLogger("apscheduler").info("added job")

    assert stream.getvalue() == b""


def test_message_with_wrong_arguments_is_written_unformatted(stream: io.BytesIO) -> None:
    _json(stream)

    logging.getLogger("x").warning("no place for %d", "this")

    assert _lines(stream)[0]["message"] == "no place for %d"


def test_python_warning_is_logged_as_an_event(stream: io.BytesIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _json(stream)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)

    assert "DeprecationWarning: old" in _lines(stream)[0]["message"]


def test_logger_that_was_used_before_writes_to_the_new_stream(stream: io.BytesIO) -> None:
    log = structlog.get_logger()
    _json(io.BytesIO())
    log.info("rule.loaded")
    _json(stream)

    log.info("rule.loaded")

    assert len(_lines(stream)) == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 20_000, id="text"),
        pytest.param("\0" * 20_000, id="text that grows when escaped"),
        pytest.param(["e" * 40] * 1000, id="list"),
        pytest.param({"key": "\N{PILE OF POO}" * 9000}, id="mapping"),
    ],
)
def test_line_that_is_too_long_is_cut_and_marked_as_truncated(value: object) -> None:
    line = json_line({"ts": TS, "level": "info", "event": "a.b", "seq": 5, "value": value})

    event = orjson.loads(line)
    assert len(line) <= MOST_BYTES
    assert event["truncated"] is True
    assert event["seq"] == 5
    assert event["value"].endswith("\N{HORIZONTAL ELLIPSIS}")


def test_line_with_too_many_keys_keeps_the_important_ones() -> None:
    event = {"ts": TS, "level": "info", "event": "a.b"} | {f"k{n}": "x" * 40 for n in range(999)}

    assert orjson.loads(json_line(event)) == {
        "ts": TS,
        "level": "info",
        "event": "a.b",
        "truncated": True,
    }


def test_line_of_the_longest_length_is_not_cut() -> None:
    event = {"ts": TS, "level": "info", "event": "a.b", "value": ""}
    room = MOST_BYTES - len(json_line(event))

    line = json_line(event | {"value": "x" * room})

    assert len(line) == MOST_BYTES
    assert b"truncated" not in line


@pytest.mark.parametrize("value", ["\ud800", 2**70, {1: 2}, {"a": {"\ud800"}}])
def test_value_that_is_invalid_in_json_is_written_as_text(value: object) -> None:
    event = {"ts": TS, "level": "info", "event": "a.b", "value": value}

    assert orjson.loads(json_line(event))["event"] == "a.b"


def test_console_line_contains_no_control_characters() -> None:
    event = {"ts": TS, "level": "warning", "event": "a.b", "text": "x\n\33[2J\u202e", "n": 5}

    line = console_line(event, colors=False)

    assert (
        line == b"2026-01-01T12:00:00Z warning a.b                 text=x\\n\\x1b[2J\\u202e  n=5\n"
    )


def test_console_line_is_coloured_only_on_a_terminal() -> None:
    event = {"ts": TS, "level": "error", "event": "a.b"}

    assert b"\33[31merror" in console_line(event, colors=True)
    assert b"\33" not in console_line(event, colors=False)


def test_traceback_in_console_format_has_its_own_lines() -> None:
    event = {"ts": TS, "level": "error", "event": "a.b", "exception": "Traceback\n\33 it"}

    assert console_line(event, colors=False).splitlines()[1:] == [b"  Traceback", b"  \\x1b it"]


def test_auto_format_is_json_without_a_terminal(stream: io.BytesIO) -> None:
    configure("auto", "info", stream, terminal=False, now=_now)

    structlog.get_logger().info("rule.loaded")

    assert _lines(stream)[0]["event"] == "rule.loaded"


def test_delta_lines_implement_the_delta_log(stream: io.BytesIO) -> None:
    log: DeltaLog = _json(stream)

    log.applied([])

    assert stream.getvalue() == b""


def test_delta_line_has_the_fields_of_the_record_without_content(stream: io.BytesIO) -> None:
    _json(stream).applied([_record()])

    assert list(_lines(stream)[0].items()) == [
        ("ts", TS),
        ("level", "info"),
        ("event", "delta.applied"),
        ("seq", 7),
        ("firing_id", "tea@6"),
        ("rule_id", "tea"),
        ("kind", "update"),
        ("fact_id", "e2"),
        ("replaces", ["e1"]),
        ("source_episode_ids", ["e2"]),
        ("reason", ""),
        ("confidence", 0.9),
        ("user", "alice"),
        ("agent", "rag"),
        ("promotion_ts", TS),
    ]


def _logged_scopes(
    stream: io.BytesIO, scope: ScopeForm, *keys: bytes, **who: Any
) -> list[tuple[Any, Any]]:
    """Return user and agent of the lines of stores with these keys."""
    first = send(LineStream(stream), json_line, "info", _now, scope)
    for key in keys:
        first.keyed(key).applied([_record(**who)])
    return [(line["user"], line["agent"]) for line in _lines(stream)]


def test_scope_hashes_are_equal_within_a_store_and_differ_between_stores(
    stream: io.BytesIO,
) -> None:
    first, again, other = _logged_scopes(stream, "hashed", b"key 1", b"key 1", b"key 2")

    assert first == again != other
    assert first[0] != first[1]
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in (*first, *other))


def test_scope_hashes_differ_between_users_and_an_empty_name_stays_empty(
    stream: io.BytesIO,
) -> None:
    _logged_scopes(stream, "hashed", b"key", user="bob", agent="")
    (bob, no_name), (alice, _) = _logged_scopes(stream, "hashed", b"key", user="alice")

    assert (no_name, bob != alice) == ("", True)


def test_store_without_a_key_logs_no_scope_hash(stream: io.BytesIO) -> None:
    assert _logged_scopes(stream, "hashed", b"") == [(None, None)]


def test_scope_none_keeps_user_and_agent_out_of_the_log(stream: io.BytesIO) -> None:
    assert _logged_scopes(stream, "none", b"key") == [(None, None)]
    assert b"alice" not in stream.getvalue()


def test_every_row_except_a_firing_has_one_line_in_order(stream: io.BytesIO) -> None:
    records = [
        _record(1, kind="firing"),
        _record(2, kind="add"),
        _record(3, kind="noop", reason="known"),
        _record(4, kind="quarantine", reason="bad_intent"),
    ]

    _json(stream).applied(records)

    assert [(line["seq"], line["level"]) for line in _lines(stream)] == [
        (2, "info"),
        (3, "info"),
        (4, "warning"),
    ]


def test_level_applies_to_delta_lines(stream: io.BytesIO) -> None:
    log = _json(stream, "warning")

    log.applied([_record(1), _record(2, kind="quarantine", reason="bad_intent")])
    log.completed(_outcome())

    assert [line["seq"] for line in _lines(stream)] == [2]


def test_delta_line_of_hostile_ids_is_one_line(stream: io.BytesIO) -> None:
    ids = tuple(f'"}}\n{n}' * 50 for n in range(500))

    _json(stream).applied([_record(replaces=ids), _record(fact_id="\ud800")])

    first, second = _lines(stream)
    assert first["truncated"] is True
    assert first["source_episode_ids"] == ["e2"]
    assert second["fact_id"] == "\\ud800"


def test_firing_line_contains_the_counts(stream: io.BytesIO) -> None:
    _json(stream).completed(_outcome())

    assert _lines(stream) == [
        {
            "ts": TS,
            "level": "info",
            "event": "firing.completed",
            "firing_id": "tea@6",
            "run_id": "",
            "rule_id": "tea",
            "rule_hash": "abc",
            "trigger": "every",
            "at": TS,
            "missed_count": 0,
            "lateness_ms": None,
            "window": {"after": 3, "upto": 5},
            "channels": {"facts": Counts(read=2, added=1, noop=1)._asdict()},
            "seconds": 0.012346,
        }
    ]


def test_console_lines_of_deltas_and_firings_are_short(stream: io.BytesIO) -> None:
    log = configure("console", "info", stream, terminal=False, now=_now)

    log.applied([_record(), _record(kind="quarantine", fact_id="", reason="bad_intent")])
    log.completed(_outcome())

    assert [line[29:] for line in stream.getvalue().decode().splitlines()] == [
        "delta.applied       update  e2  replaces e1  by tea@6",
        "delta.applied       quarantine  e2  replaces e1  (bad_intent)  by tea@6",
        "firing.completed    tea@6  facts: 2 read, 1 added, 1 noop  0.012 s",
    ]


class LimitedStream(io.RawIOBase):
    """A stream that accepts a given number of bytes in each write, or fails."""

    def __init__(self, *takes: int | OSError) -> None:
        self.takes = list(takes)
        self.taken = b""

    def write(self, data: Any) -> int:
        take = self.takes.pop(0) if self.takes else len(data)
        if isinstance(take, OSError):
            raise take
        self.taken += bytes(data[:take])
        return min(take, len(data))


def _sink(stream: LimitedStream) -> LineStream:
    return LineStream(cast("Any", stream))


def test_lines_of_a_batch_are_one_write() -> None:
    stream = LimitedStream()
    log = DeltaLines(_sink(stream), level="info", now=_now, render=json_line)
    stream.takes = [10**6, OSError(28, "a second write")]

    log.applied([_record(seq) for seq in range(100)])

    assert stream.taken.count(b"\n") == 100


def test_short_write_is_continued_to_the_end() -> None:
    stream = LimitedStream(1, 3)

    _sink(stream).write(b"first line\n")

    assert stream.taken == b"first line\n"


def test_line_after_a_partial_write_starts_on_a_new_line() -> None:
    stream = LimitedStream(4, OSError(28, "full"), OSError(28, "full"))
    sink = _sink(stream)

    written = [sink.write(b"a line\n") for _ in range(4)]

    assert written == [False, False, True, True]
    assert stream.taken == b"a li\na line\na line\n"


def test_line_after_a_failed_write_leaves_no_empty_line() -> None:
    stream = LimitedStream(OSError(28, "full"))
    sink = _sink(stream)

    with pytest.raises(OSError, match="full"):
        sink.write(b"one\n", must=True)
    sink.write(b"two\n", must=True)

    assert stream.taken == b"two\n"


def test_failed_write_of_delta_lines_raises() -> None:
    stream = LimitedStream(OSError(28, "full"))
    log = DeltaLines(_sink(stream), level="info", now=_now, render=json_line)

    with pytest.raises(OSError, match="full"):
        log.applied([_record()])


def test_failed_write_of_an_event_raises_nothing() -> None:
    stream = LimitedStream(OSError(32, "gone"))
    configure("json", "info", cast("Any", stream), terminal=False, now=_now)

    structlog.get_logger().info("rule.loaded")

    assert stream.taken == b""


def test_writer_waits_for_a_non_blocking_stream() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lines = b"a line of twenty by.\n" * 20_000
    read = bytearray()

    def drain() -> None:
        while part := os.read(reader, 65_536):
            read.extend(part)

    thread = threading.Thread(target=drain)
    thread.start()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        LineStream(cast("Any", stream)).write(lines, must=True)
    thread.join(timeout=PATIENCE_SECONDS)
    os.close(reader)

    assert read == lines


def test_log_file_is_appended_to_and_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "daemon.log"
    before = os.umask(0)

    for line in (b"one\n", b"two\n"):
        with open_file(file) as stream:
            LineStream(stream).write(line)

    os.umask(before)
    assert file.read_bytes() == b"one\ntwo\n"
    assert file.stat().st_mode & 0o777 == 0o660


def test_two_writers_of_one_file_lose_no_line(tmp_path: Path) -> None:
    file = tmp_path / "daemon.log"

    with open_file(file) as first, open_file(file) as second:
        for stream in (first, second, first):
            LineStream(stream).write(b"line\n")

    assert file.read_bytes() == b"line\n" * 3


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        pytest.param(b'{"event": "half', b'{"event": "half\nnext\n', id="half a line"),
        pytest.param(b"whole\n", b"whole\nnext\n", id="a whole line"),
        pytest.param(b"", b"next\n", id="nothing"),
    ],
)
def test_line_starts_on_a_new_line_after_a_killed_process(
    tmp_path: Path, left: bytes, wanted: bytes
) -> None:
    file = tmp_path / "deltas.log"
    file.write_bytes(left)
    sink = LineStream(open_file(file))

    sink.write(b"next\n")
    sink.close()

    assert file.read_bytes() == wanted


def test_line_starts_on_a_new_line_in_a_reopened_file(tmp_path: Path) -> None:
    file = tmp_path / "deltas.log"
    sink = LineStream(open_file(file))
    file.write_bytes(b"half")

    sink.replace(open_file(file))
    sink.write(b"next\n")
    sink.close()

    assert file.read_bytes() == b"half\nnext\n"


@pytest.mark.parametrize("name", [".", "fifo", "none/daemon.log"])
def test_log_file_that_cannot_be_opened_is_a_mistake(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(ConfigurationError, match=r"logging\.file: cannot be opened"):
        open_file(tmp_path / name)
