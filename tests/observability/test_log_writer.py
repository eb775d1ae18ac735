"""The outbox: nobody waits for a reader, and what is lost is counted."""

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
from tests.unit.test_logs import TS, _now, _outcome, _record

from slumberd.cli.context import unhurried_logs
from slumberd.config.settings import LoggingSettings, Settings
from slumberd.observability.line_format import console_line, json_line
from slumberd.observability.log_writer import (
    MOST_BYTES,
    MOST_KEPT_BYTES,
    Outbox,
    Sink,
    WriteRequest,
)
from slumberd.observability.logs import DeltaLines, leads_to_journal, prioritised, send, unhurried
from tests.support.calling import logging_as_before
from tests.support.fakes import FakeClock
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.unit


class Reader:
    """A reader who does not read before being told to."""

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


def _outbox(write: Callable[[bytes], None], patience: float = 0.0) -> Outbox:
    return Outbox(write, lambda lost: b"%d lost\n" % lost, patience_seconds=patience)


def _stalled(reader: Reader) -> Outbox:
    outbox = _outbox(reader.write)
    outbox.tell(b"first\n")
    assert reader.writing.wait(PATIENCE_SECONDS)
    return outbox


def _deltas(outbox: Outbox) -> DeltaLines:
    return DeltaLines(outbox, level="info", now=_now, render=json_line)


def _read_all(outbox: Outbox, reader: Reader) -> None:
    reader.reads.set()
    outbox.close(seconds=PATIENCE_SECONDS)


def test_lines_are_written_in_order(reader: Reader) -> None:
    outbox = _stalled(reader)

    outbox.tell(b"second\n")
    outbox.keep(b"third\n")
    outbox.deliver(b"fourth\n")
    _read_all(outbox, reader)

    assert reader.lines == [b"first", b"second", b"third", b"fourth"]


def test_lines_without_room_are_counted_and_told_of(reader: Reader) -> None:
    outbox, big = _stalled(reader), b"x" * (MOST_BYTES // 2) + b"\n"

    for _ in range(5):
        outbox.tell(big)
    _read_all(outbox, reader)

    assert outbox.dropped == 4
    assert reader.lines == [b"first", big.strip(), b"4 lost"]


def test_lines_that_a_full_disk_does_not_take_are_counted_and_told_of_later() -> None:
    taken, disk = [], {"full": True}

    def write(lines: bytes) -> None:
        if disk["full"]:
            raise OSError(28, "full")
        taken.append(lines)

    outbox = _outbox(write, patience=PATIENCE_SECONDS)
    outbox.tell(b"first\n")
    outbox.keep(b"second\n")
    assert outbox.deliver(b"delta\n").error is not None
    disk["full"] = False

    outbox.deliver(b"delta\n")
    outbox.close()

    assert taken == [b"delta\n", b"2 lost\n"]
    assert outbox.dropped == 2


def test_lines_of_firings_are_kept_when_there_is_no_room_for_others(reader: Reader) -> None:
    outbox = _stalled(reader)
    outbox.tell(b"x" * (MOST_BYTES - 100) + b"\n")

    outbox.tell(b"y" * 200 + b"\n")
    outbox.keep(b"z" * 200 + b"\n")
    _read_all(outbox, reader)

    assert reader.lines[-1] == b"z" * 200
    assert outbox.dropped == 1


def test_even_lines_of_firings_do_not_fill_the_memory(reader: Reader) -> None:
    outbox = _stalled(reader)

    for _ in range(20):
        outbox.keep(b"x" * MOST_BYTES)

    assert outbox.dropped == 20 - MOST_KEPT_BYTES // MOST_BYTES
    _read_all(outbox, reader)


def test_letter_is_done_once_it_is_written(reader: Reader) -> None:
    reader.reads.set()
    outbox = _outbox(reader.write, patience=PATIENCE_SECONDS)

    request = outbox.deliver(b"line\n")

    assert request.done
    assert reader.taken == b"line\n"
    outbox.close(seconds=PATIENCE_SECONDS)


def test_end_does_not_wait_for_a_reader_who_does_not_read(reader: Reader) -> None:
    outbox = _stalled(reader)

    outbox.close(seconds=0.01)

    assert reader.taken == b""


def test_delta_lines_that_nobody_reads_are_to_be_given_again(reader: Reader) -> None:
    outbox = _stalled(reader)
    deltas = _deltas(outbox)

    for _ in range(3):
        with pytest.raises(TimeoutError, match="nobody reads"):
            deltas.applied([_record(seq) for seq in range(1, 100)])

    _read_all(outbox, reader)
    assert len(reader.lines) == 100, "and not three times as many"


class Late:
    """Takes lines, and writes those that came first only when it is told to."""

    dropped = 0

    def __init__(self) -> None:
        self.letters: list[tuple[WriteRequest, bytes]] = []

    def tell(self, line: bytes) -> None:
        raise NotImplementedError

    keep = tell

    def deliver(self, lines: bytes) -> WriteRequest:
        request = WriteRequest(lambda: None, done=bool(self.letters))
        self.letters.append((request, lines))
        return request


def test_delta_lines_that_were_written_late_are_not_written_again() -> None:
    late = Late()
    deltas = DeltaLines(late, level="info", now=_now, render=json_line)
    with pytest.raises(TimeoutError):
        deltas.applied([_record(1), _record(2)])
    late.letters[0][0].done = True

    deltas.applied([_record(1), _record(2), _record(3)])

    written = b"".join(lines for _, lines in late.letters).splitlines()
    assert [orjson.loads(line)["seq"] for line in written] == [1, 2, 3]


def test_delta_lines_that_cannot_be_written_are_told() -> None:
    def full(_: bytes) -> None:
        raise OSError(28, "full")

    outbox = _outbox(full, patience=PATIENCE_SECONDS)

    with pytest.raises(OSError, match="full"):
        _deltas(outbox).applied([_record()])

    outbox.close(seconds=PATIENCE_SECONDS)


def test_events_and_firings_do_not_wait_for_a_pipe_that_nobody_reads() -> None:
    source, target = os.pipe()
    stream = os.fdopen(target, "wb", buffering=0)
    sink = Sink(cast("Any", stream))
    with logging_as_before(), unhurried(sink, json_line, _now) as outbox:
        deltas, log = send(outbox, json_line, "info", _now), structlog.get_logger()
        for _ in range(20_000):
            log.info("external.noticed", rows=1)
        deltas.completed(_outcome())
        outbox.do(stream.close)

        with os.fdopen(source, "rb") as reader:
            lines = [orjson.loads(line) for line in reader]

    names = Counter(line["event"] for line in lines)
    assert names["firing.completed"] == 1
    assert sum(line.get("lines", 0) for line in lines) == outbox.dropped > 0
    assert names["external.noticed"] == 20_000 - outbox.dropped


def _log_into(folder: Path, *steps: Callable[[Path], None]) -> Path:
    """Log a line before each of some steps, and one after; the file is opened anew after each."""
    settings = Settings(state_dir=folder, rules_dir=folder, logging=LoggingSettings(file="log"))
    file, log = folder / "log", structlog.get_logger()
    with logging_as_before(), unhurried_logs(settings, FakeClock()) as logs:
        for row, step in enumerate(steps):
            log.info("external.noticed", rows=row)
            logs.outbox.do(partial(step, file))
            logs.reopen()
        log.info("external.noticed", rows=len(steps))
    return file


def test_file_that_was_renamed_is_opened_anew(tmp_path: Path) -> None:
    file = _log_into(tmp_path, lambda file: _rename(file, "old"))

    assert orjson.loads((tmp_path / "old").read_bytes())["rows"] == 0
    assert orjson.loads(file.read_bytes())["rows"] == 1


def test_file_that_cannot_be_opened_anew_is_told_in_the_old_one(tmp_path: Path) -> None:
    def put_a_directory_there(file: Path) -> None:
        _rename(file, "old")
        file.mkdir()

    _log_into(tmp_path, put_a_directory_there)

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

    assert prioritised(json_line)(event) == b"<%d>" % prefix + json_line(event)


def test_every_line_of_a_traceback_has_its_priority_in_the_journal() -> None:
    event = {"ts": TS, "level": "error", "event": "a.b", "exception": "Traceback\nit"}

    lines = prioritised(lambda event: console_line(event, colors=False))(event).splitlines()

    assert [line[:5] for line in lines] == [b"<3>20", b"<3>  ", b"<3>  "]


def test_only_the_very_file_that_leads_to_the_journal_does() -> None:
    source, target = os.pipe()
    status = os.fstat(target)
    stream = f"{status.st_dev}:{status.st_ino}"

    assert leads_to_journal(target, stream)
    assert not leads_to_journal(target, stream + "0")
    assert not leads_to_journal(target, "")

    os.close(source)
    os.close(target)
