"""The file sink writes whole lines, syncs them, and starts a new line after a truncated one."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import orjson
import pytest

from slumberd.model.provenance import ProvenanceBundle
from slumberd.workers.provenance.publisher import FileSink
from tests.support.builders import START
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

BUNDLE: ProvenanceBundle = {
    "origin": "consolidation",
    "source": "rule-tea",
    "run_id": "tea@1",
    "step": 2,
    "confidence": Decimal(1),
    "timestamp": START,
}


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[FileSink]:
    sink = FileSink(tmp_path / "provenance.jsonl")
    yield sink
    await sink.close()


def lines_of(path: Path) -> list[str]:
    return [orjson.loads(line)["slots"]["subject"] for line in path.read_bytes().splitlines()]


async def publish(sink: FileSink, subject: str) -> None:
    await sink.assert_with_provenance("fact", {"subject": subject}, BUNDLE)


async def test_line_has_the_assertion_and_its_provenance(tmp_path: Path, sink: FileSink) -> None:
    await publish(sink, "née\n")
    [line] = (tmp_path / "provenance.jsonl").read_bytes().splitlines()
    assert orjson.loads(line) == {
        "template": "fact",
        "slots": {
            "subject": "née\n",
            "_origin": "consolidation",
            "_source": "rule-tea",
            "_run_id": "tea@1",
            "_step": 2,
            "_confidence": "1",
            "_timestamp": "2026-01-01T12:00:00Z",
        },
    }


async def test_file_has_no_permissions_for_others(tmp_path: Path, sink: FileSink) -> None:
    await publish(sink, "a")
    assert stat.S_IMODE((tmp_path / "provenance.jsonl").stat().st_mode) & 0o027 == 0


async def test_line_after_a_truncated_line_starts_a_new_line(
    tmp_path: Path, sink: FileSink
) -> None:
    path = tmp_path / "provenance.jsonl"
    await publish(sink, "a")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    await publish(sink, "b")
    first, cut, second = path.read_bytes().splitlines()
    assert cut == whole[:20]
    assert [orjson.loads(line)["slots"]["subject"] for line in (first, second)] == ["a", "b"]


async def test_file_may_be_removed_at_any_time(tmp_path: Path, sink: FileSink) -> None:
    path = tmp_path / "provenance.jsonl"
    await publish(sink, "a")
    path.rename(tmp_path / "old.jsonl")
    await publish(sink, "b")
    assert lines_of(tmp_path / "old.jsonl") == ["a"]
    assert lines_of(path) == ["b"]


async def test_line_is_on_the_disk_when_the_call_returns(
    tmp_path: Path, sink: FileSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append("line"))
    monkeypatch.setattr(os, "fsync", lambda _: synced.append("name"))
    await publish(sink, "a")
    await publish(sink, "b")
    assert synced == ["line", "name", "line"]


async def test_partial_writes_leave_whole_lines(
    tmp_path: Path, sink: FileSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    await publish(sink, "a")
    await publish(sink, "b")
    assert lines_of(tmp_path / "provenance.jsonl") == ["a", "b"]


async def test_full_disk_raises_an_error(sink: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        await publish(sink, "a")


async def test_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    sink = FileSink(tmp_path / "pipe")
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(OSError, match="is not a regular file"):
            await publish(sink, "a")
    await sink.close()
