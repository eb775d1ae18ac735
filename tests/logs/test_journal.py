"""The journal gets entries with fields; what it does not take goes to standard error."""

from __future__ import annotations

import io
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from slumberd.logs.journal import JournalStream, render_entries
from slumberd.logs.lines import Event, LineStream, json_line
from slumberd.logs.output import DeltaLines, ScopeForm
from slumberd.model.firing import Record
from tests.support.builders import START

pytestmark = pytest.mark.integration

FAILED: Event = {
    "ts": "2026-01-01T00:00:00Z",
    "level": "warning",
    "event": "firing.failed",
    "rule_id": "tea",
    "failures": 3,
    "error": "StoreError",
    "message": "the disk is full",
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        journal.setblocking(False)
        yield journal


def read_entry(journal: socket.socket) -> dict[str, bytes]:
    """Return the fields of the next entry, as journald reads them."""
    rest = journal.recv(1 << 20)
    fields: dict[str, bytes] = {}
    while rest:
        line, _, after = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", after)
            value, after = after[8 : 8 + length], after[8 + length :]
            assert after.startswith(b"\n")
            after = after[1:]
        assert name.decode() not in fields
        fields[name.decode()] = value
        rest = after
    return fields


def stream_to(tmp_path: Path) -> tuple[JournalStream, io.BytesIO]:
    standard_error = io.BytesIO()
    return JournalStream(LineStream(standard_error), tmp_path / "socket"), standard_error


def test_entry_has_the_line_its_priority_and_the_fields_of_the_event(
    journal: socket.socket, tmp_path: Path
) -> None:
    stream, standard_error = stream_to(tmp_path)

    assert stream.write(render_entries(json_line)(FAILED))

    assert read_entry(journal) == {
        "MESSAGE": json_line(FAILED).rstrip(b"\n"),
        "PRIORITY": b"4",
        "SYSLOG_IDENTIFIER": b"slumberd",
        "EVENT": b"firing.failed",
        "RULE_ID": b"tea",
        "ERROR": b"StoreError",
    }
    assert standard_error.getvalue() == b""
    stream.close()


@pytest.mark.parametrize("rule_id", ["a\nMESSAGE=forged", "a=b", "\x1b[2J", "\udcff", "ä" * 300])
def test_value_of_an_event_cannot_add_or_break_fields(
    journal: socket.socket, tmp_path: Path, rule_id: str
) -> None:
    stream, _ = stream_to(tmp_path)
    event = {**FAILED, "rule_id": rule_id}

    stream.write(render_entries(lambda _: b"line\n")(event))

    entry = read_entry(journal)
    assert entry["MESSAGE"] == b"line"
    assert entry["RULE_ID"] == rule_id.encode(errors="backslashreplace")
    assert len(entry) == 6
    stream.close()


def test_several_lines_of_one_write_are_several_entries(
    journal: socket.socket, tmp_path: Path
) -> None:
    stream, _ = stream_to(tmp_path)
    render = render_entries(json_line)

    stream.write_and_wait(render(FAILED) + render({**FAILED, "rule_id": "milk"}))

    assert [read_entry(journal)["RULE_ID"] for _ in range(2)] == [b"tea", b"milk"]
    stream.close()


ADDED = Record(
    seq=7,
    firing_id="tea@6",
    rule_id="tea",
    kind="add",
    fact_id="e2",
    replaces=(),
    source_episode_ids=("e2",),
    reason="",
    confidence=0.9,
    at=START,
    user="ada",
    agent="",
)


@pytest.mark.parametrize("scope", ["full", "hashed", "none"])
def test_field_names_a_user_as_the_line_does(
    journal: socket.socket, tmp_path: Path, scope: ScopeForm
) -> None:
    stream, _ = stream_to(tmp_path)
    lines = DeltaLines(
        stream, level="info", now=lambda: START, render=render_entries(json_line), scope=scope
    )

    lines.keyed(b"key").applied([ADDED])

    entry = read_entry(journal)
    assert (entry["EVENT"], entry["KIND"]) == (b"delta.applied", b"add")
    assert entry.get("USER") == {"full": b"ada", "none": None}.get(scope, entry.get("USER"))
    assert any(b"ada" in value for value in entry.values()) == (scope == "full")
    assert ("USER" in entry) == (scope != "none")
    assert "AGENT" not in entry
    stream.close()


def test_lines_go_to_standard_error_while_no_journal_runs(tmp_path: Path) -> None:
    stream, standard_error = stream_to(tmp_path)
    entry = render_entries(lambda _: b"line\n  traceback\n")(FAILED)

    assert stream.write(entry)

    assert standard_error.getvalue() == b"<4>line\n<4>  traceback\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        stream.write(entry)
        assert read_entry(journal)["MESSAGE"] == b"line\n  traceback"
    stream.close()


def test_entry_that_is_too_long_for_a_datagram_goes_to_standard_error(
    journal: socket.socket, tmp_path: Path
) -> None:
    stream, standard_error = stream_to(tmp_path)

    stream.write(render_entries(lambda _: b"x" * (1 << 23) + b"\n")(FAILED))

    assert len(standard_error.getvalue()) == (1 << 23) + len(b"<4>\n")
    stream.close()


def test_line_that_nobody_takes_is_an_error_when_it_must_not_be_lost(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as broken:
        stream = JournalStream(LineStream(broken), tmp_path / "none")
        entry = render_entries(json_line)(FAILED)

        assert not stream.write(entry)
        with pytest.raises(BrokenPipeError):
            stream.write(entry, must=True)
        stream.close()
