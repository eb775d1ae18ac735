"""When a checkpoint is written, what its line holds, and how it is found in a log again."""

from __future__ import annotations

import gzip
import io

import orjson
import pytest

from slumberd.cli.commands.verify import checkpoints_in
from slumberd.consolidation.firing import CHECKPOINT_ROWS, CHECKPOINT_SECONDS, Checkpoints
from slumberd.logs.lines import LineStream, json_line
from slumberd.logs.output import DeltaLines
from slumberd.model.errors import InputError
from slumberd.model.record import Checkpoint
from tests.support.builders import START
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeLedger

pytestmark = pytest.mark.unit

HEAD = Checkpoint(7, bytes(range(32)))


@pytest.fixture
def log() -> FakeDeltaLog:
    return FakeDeltaLog()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def checkpoints(log: FakeDeltaLog, clock: FakeClock) -> Checkpoints:
    return Checkpoints(FakeLedger(), log, clock)


async def test_batches_within_a_minute_share_a_checkpoint(
    checkpoints: Checkpoints, log: FakeDeltaLog, clock: FakeClock
) -> None:
    for _ in range(5):
        clock.advance(CHECKPOINT_SECONDS / 2)
        await checkpoints.follow(rows=3)

    assert len(log.heads) == 2


async def test_many_rows_have_a_checkpoint_at_once(
    checkpoints: Checkpoints, log: FakeDeltaLog
) -> None:
    await checkpoints.follow(rows=CHECKPOINT_ROWS - 1)
    assert log.heads == []

    await checkpoints.follow(rows=CHECKPOINT_ROWS)

    assert len(log.heads) == 1


async def test_checkpoint_names_the_head_of_the_ledger(log: FakeDeltaLog, clock: FakeClock) -> None:
    ledger = FakeLedger()

    await Checkpoints(ledger, log, clock).write()

    assert log.heads == [await ledger.head()]


def line(head: Checkpoint) -> bytes:
    stream = io.BytesIO()
    lines = DeltaLines(LineStream(stream), level="info", now=lambda: START, render=json_line)
    lines.checkpointed(head)
    return stream.getvalue()


def test_the_line_of_a_checkpoint_contains_rows_and_head() -> None:
    assert orjson.loads(line(HEAD)) == {
        "ts": "2026-01-01T12:00:00.000000Z",
        "level": "info",
        "event": "ledger.checkpoint",
        "rows": 7,
        "head": bytes(range(32)).hex(),
    }


def read(log: bytes) -> list[Checkpoint]:
    return list(checkpoints_in(io.BytesIO(log), "a.log"))


def test_a_checkpoint_can_be_read_from_a_log() -> None:
    assert read(line(HEAD)) == [HEAD._replace(logged_at="2026-01-01T12:00:00.000000Z")]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\n\n", id="empty lines"),
        pytest.param(b"\xff\x00ledger.checkpoint\n", id="bytes"),
        pytest.param(b'"ledger.checkpoint"\n', id="a text"),
        pytest.param(b'["ledger.checkpoint"]\n', id="a list"),
        pytest.param(line(HEAD)[:-20] + b"\n", id="half a line"),
        pytest.param(b'{"event":"library.logged","message":"ledger.checkpoint"}\n', id="other"),
        pytest.param(line(HEAD).replace(b":7,", b":-7,"), id="negative"),
        pytest.param(line(HEAD).replace(b":7,", b":18446744073709551615,"), id="too many"),
        pytest.param(line(HEAD).replace(b":7,", b':"7",'), id="rows as text"),
        pytest.param(line(HEAD).replace(b"0001", b"000x"), id="no hexadecimal"),
        pytest.param(b"x" * 100_000 + b"\n", id="a long line"),
    ],
)
def test_other_lines_of_a_log_are_ignored(garbage: bytes) -> None:
    assert len(read(garbage + line(HEAD) + garbage)) == 1


def test_a_truncated_compressed_log_is_an_error() -> None:
    packed = gzip.compress(line(HEAD) * 1_000)[:-30]
    stream = gzip.GzipFile(fileobj=io.BytesIO(packed))

    with pytest.raises(InputError, match="ends early, or is damaged"):
        list(checkpoints_in(stream, "a.log.gz"))  # type: ignore[arg-type] # it has the methods of a file
