"""The queue of log lines: a slow reader blocks no caller, and lost lines are counted."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import structlog

from slumberd.cli.setup import daemon_logs
from slumberd.logs.lines import (
    EVENT_BYTES,
    LineStream,
    LineWriter,
    WriteRequest,
    console_line,
    json_line,
)
from slumberd.logs.output import DeltaLines, leads_to_journal, prefix_priority, queued_writer, send
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import LoggingSettings
from tests.logs.test_logs import TS, _now, _outcome, _record
from tests.support.cli_runner import restored_logging
from tests.support.fakes import FakeClock
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit


class Reader:
    """A reader that reads nothing until a test sets `reads`."""

    def __init__(self) -> None:
        self.taken = b""
        self.writing = threading.Event()
        self.reads = threading.Event()

    def write(self, lines: bytes) -> None:
        self.writing.set()
        assert self.reads.wait(PATIENCE_SECONDS)
        self.taken += lines

    @property
    def lines(self) -> list[bytes]:
        return self.taken.splitlines()


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.reads.set()


def _line_writer(write: Callable[[bytes], None], patience: float = 0.0) -> LineWriter:
    return LineWriter(write, _dropped_line, patience_seconds=patience)


def _dropped_line(lines: int) -> bytes:
    return b"%d lost\n" % lines


def _stalled_writer(reader: Reader) -> LineWriter:
    line_writer = _line_writer(reader.write)
    line_writer.write(b"first\n")
    assert reader.writing.wait(PATIENCE_SECONDS)
    return line_writer


def _deltas(line_writer: LineWriter) -> DeltaLines:
    return DeltaLines(line_writer, level="info", now=_now, render=json_line)


def _read_all(line_writer: LineWriter, reader: Reader) -> None:
    reader.reads.set()
    line_writer.close(seconds=PATIENCE_SECONDS)


def test_lines_are_written_in_order(reader: Reader) -> None:
    line_writer = _stalled_writer(reader)

    line_writer.write(b"second\n")
    line_writer.write(b"third\n", must=True)
    line_writer.write_and_wait(b"fourth\n")
    _read_all(line_writer, reader)

    assert reader.lines == [b"first", b"second", b"third", b"fourth"]


def test_lines_without_room_are_counted_and_reported(reader: Reader) -> None:
    line_writer, big = _stalled_writer(reader), b"x" * (EVENT_BYTES // 2) + b"\n"

    taken = [line_writer.write(big) for _ in range(5)]
    _read_all(line_writer, reader)

    assert taken == [True, False, False, False, False]
    assert line_writer.dropped == 4
    assert reader.lines == [b"first", big.strip(), b"4 lost"]


def test_lines_that_a_full_disk_refuses_are_counted_and_reported_later() -> None:
    taken, disk = [], {"full": True}

    def write(lines: bytes) -> None:
        if disk["full"]:
            raise OSError(28, "full")
        taken.append(lines)

    line_writer = _line_writer(write, patience=PATIENCE_SECONDS)
    line_writer.write(b"first\n")
    line_writer.write(b"second\n", must=True)
    assert line_writer.write_and_wait(b"delta\n").error is not None
    disk["full"] = False

    line_writer.write_and_wait(b"delta\n")
    line_writer.close()

    assert taken == [b"delta\n", b"2 lost\n"]
    assert line_writer.dropped == 2


def test_lines_that_must_be_written_have_room_when_others_have_none(reader: Reader) -> None:
    line_writer = _stalled_writer(reader)
    line_writer.write(b"x" * (EVENT_BYTES - 100) + b"\n")

    assert not line_writer.write(b"y" * 200 + b"\n")
    assert line_writer.write(b"z" * 200 + b"\n", must=True)
    _read_all(line_writer, reader)

    assert reader.lines[-1] == b"z" * 200
    assert line_writer.dropped == 1


def test_lines_that_must_be_written_do_not_fill_the_memory(reader: Reader) -> None:
    line_writer = LineWriter(reader.write, _dropped_line, event_bytes=10, must_bytes=20)

    taken = [line_writer.write(b"x" * 10, must=True) for _ in range(5)]

    assert taken == [True, True, True, False, False]
    assert line_writer.dropped == 2
    _read_all(line_writer, reader)


def test_request_is_done_when_its_lines_are_written(reader: Reader) -> None:
    reader.reads.set()
    line_writer = _line_writer(reader.write, patience=PATIENCE_SECONDS)

    request = line_writer.write_and_wait(b"line\n")

    assert request.done
    assert reader.taken == b"line\n"
    line_writer.close(seconds=PATIENCE_SECONDS)


def test_close_does_not_wait_for_a_stuck_reader(reader: Reader) -> None:
    line_writer = _stalled_writer(reader)

    line_writer.close(seconds=0.01)

    assert reader.taken == b""


def test_delta_lines_that_wait_for_a_reader_are_queued_once(reader: Reader) -> None:
    line_writer = _stalled_writer(reader)
    deltas = _deltas(line_writer)

    for _ in range(3):
        with pytest.raises(TimeoutError, match="reader"):
            deltas.applied([_record(seq) for seq in range(1, 100)])

    _read_all(line_writer, reader)
    assert len(reader.lines) == 100, "and not three times as many"


class SlowOutput:
    """A writer that does not finish its first request until a test says so."""

    dropped = 0

    def __init__(self) -> None:
        self.requests: list[tuple[WriteRequest, bytes]] = []

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        raise NotImplementedError

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        request = WriteRequest(lambda: None, done=bool(self.requests))
        self.requests.append((request, lines))
        return request


def test_delta_lines_that_were_written_late_are_not_written_again() -> None:
    output = SlowOutput()
    deltas = DeltaLines(output, level="info", now=_now, render=json_line)
    with pytest.raises(TimeoutError):
        deltas.applied([_record(1), _record(2)])
    output.requests[0][0].done = True

    deltas.applied([_record(1), _record(2), _record(3)])

    written = b"".join(lines for _, lines in output.requests).splitlines()
    assert [orjson.loads(line)["seq"] for line in written] == [1, 2, 3]


def test_delta_lines_that_cannot_be_written_raise_the_error() -> None:
    def full(_: bytes) -> None:
        raise OSError(28, "full")

    line_writer = _line_writer(full, patience=PATIENCE_SECONDS)

    with pytest.raises(OSError, match="full"):
        _deltas(line_writer).applied([_record()])

    line_writer.close(seconds=PATIENCE_SECONDS)


@pytest.mark.nightly
def test_events_and_firings_do_not_wait_for_a_pipe_without_a_reader() -> None:
    source, target = os.pipe()
    stream = os.fdopen(target, "wb", buffering=0)
    sink = LineStream(cast("Any", stream))
    with restored_logging(), queued_writer(sink, json_line, _now) as line_writer:
        deltas, log = send(line_writer, json_line, "info", _now), structlog.get_logger()
        for _ in range(20_000):
            log.info("external.noticed", rows=1)
        deltas.completed(_outcome())
        line_writer.run_between_writes(stream.close)

        with os.fdopen(source, "rb") as reader:
            lines = [orjson.loads(line) for line in reader]

    names = Counter(line["event"] for line in lines)
    assert names["firing.completed"] == 1
    assert sum(line.get("lines", 0) for line in lines) == line_writer.dropped > 0
    assert names["external.noticed"] == 20_000 - line_writer.dropped


def _log_into(folder: Path, *steps: Callable[[Path], None]) -> Path:
    """Log a line before each step, reopen the file after it, and log a last line."""
    settings = Settings(state_dir=folder, rules_dir=folder, logging=LoggingSettings(file="log"))
    file, log = folder / "log", structlog.get_logger()
    with restored_logging(), daemon_logs(settings, FakeClock()) as logs:
        for row, step in enumerate(steps):
            log.info("external.noticed", rows=row)
            logs.line_writer.run_between_writes(partial(step, file))
            logs.reopen()
        log.info("external.noticed", rows=len(steps))
    return file


def test_reopen_creates_a_new_file_after_a_rename(tmp_path: Path) -> None:
    file = _log_into(tmp_path, lambda file: _rename(file, "old"))

    assert orjson.loads((tmp_path / "old").read_bytes())["rows"] == 0
    assert orjson.loads(file.read_bytes())["rows"] == 1


def test_failed_reopen_is_reported_in_the_old_file(tmp_path: Path) -> None:
    def replace_by_a_directory(file: Path) -> None:
        _rename(file, "old")
        file.mkdir()

    _log_into(tmp_path, replace_by_a_directory)

    lines = [orjson.loads(line) for line in (tmp_path / "old").read_bytes().splitlines()]
    assert {line["event"] for line in lines} == {"external.noticed", "logs.reopen_failed"}
    assert [line["rows"] for line in lines if "rows" in line] == [0, 1]


def _rename(file: Path, name: str) -> None:
    file.rename(file.with_name(name))


@pytest.mark.parametrize(
    ("level", "prefix"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3)]
)
def test_lines_for_the_journal_begin_with_their_priority(level: str, prefix: int) -> None:
    event = {"ts": TS, "level": level, "event": "a.b"}

    assert prefix_priority(json_line)(event) == b"<%d>" % prefix + json_line(event)


def test_every_line_of_a_traceback_has_its_priority_in_the_journal() -> None:
    event = {"ts": TS, "level": "error", "event": "a.b", "exception": "Traceback\nit"}

    lines = prefix_priority(lambda event: console_line(event, colors=False))(event).splitlines()

    assert [line[:5] for line in lines] == [b"<3>20", b"<3>  ", b"<3>  "]


def test_only_the_file_of_journal_stream_is_the_journal() -> None:
    source, target = os.pipe()
    status = os.fstat(target)
    stream = f"{status.st_dev}:{status.st_ino}"

    assert leads_to_journal(target, stream)
    assert not leads_to_journal(target, stream + "0")
    assert not leads_to_journal(target, "")

    os.close(source)
    os.close(target)
