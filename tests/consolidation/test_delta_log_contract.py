"""The contract of every log of deltas: one line for each claim's row, batch, key and head."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any, Protocol

import orjson
import pytest

from slumberd.consolidation.protocols import CountedLogs, DeltaLog, Logs
from slumberd.logs.output import configure
from slumberd.model.episode import Misspelling
from slumberd.model.firing import Counts, Firing, Outcome, Record, Report
from slumberd.model.record import Checkpoint
from tests.support.builders import START
from tests.support.fakes import FakeLogs

pytestmark = pytest.mark.unit

OWN_ROW = Record(1, "all@1", "all", "firing", "", (), (), "", 1.0, START)
ADDED = OWN_ROW._replace(seq=2, kind="add", fact_id="e1", source_episode_ids=("e1",))
KNOWN = ADDED._replace(seq=3, kind="noop", fact_id="e2", reason="known")


class Provider(Protocol):
    """A way to the log of deltas, and the lines that it wrote."""

    @property
    def logs(self) -> CountedLogs: ...
    def applied(self) -> list[int]: ...
    def completed(self) -> list[str]: ...
    def finished(self) -> list[tuple[str, int, int, int]]: ...
    def misspelled(self) -> list[str]: ...
    def heads(self) -> list[tuple[int, bytes]]: ...


class FakeProvider:
    """The fake."""

    def __init__(self) -> None:
        self.logs = FakeLogs()

    def applied(self) -> list[int]:
        return [record.seq for record in self.logs.deltas.lines]

    def completed(self) -> list[str]:
        return [outcome.firing_id for outcome in self.logs.deltas.batches]

    def finished(self) -> list[tuple[str, int, int, int]]:
        return [
            (one.rule_id, len(one.firing_ids), one.channels["facts"].added, len(one.purged))
            for one in self.logs.deltas.reports
        ]

    def misspelled(self) -> list[str]:
        return [found.key for found in self.logs.deltas.misspellings]

    def heads(self) -> list[tuple[int, bytes]]:
        return [(head.rows, head.head) for head in self.logs.deltas.heads]


class StreamProvider:
    """The log lines in a stream."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self.logs = configure("json", "info", self._stream, terminal=False, now=_now)

    def applied(self) -> list[int]:
        return [event["seq"] for event in self._events("delta.applied")]

    def completed(self) -> list[str]:
        return [event["firing_id"] for event in self._events("firing.completed")]

    def finished(self) -> list[tuple[str, int, int, int]]:
        return [
            (
                event["rule_id"],
                event["batches"],
                event["channels"]["facts"]["added"],
                event["purged"],
            )
            for event in self._events("firing.finished")
        ]

    def misspelled(self) -> list[str]:
        return [event["key"] for event in self._events("metadata.misspelled")]

    def heads(self) -> list[tuple[int, bytes]]:
        events = self._events("ledger.checkpoint")
        return [(event["rows"], bytes.fromhex(event["head"])) for event in events]

    def _events(self, name: str) -> list[dict[str, Any]]:
        lines = map(orjson.loads, self._stream.getvalue().splitlines())
        return [event for event in lines if event["event"] == name]


def _now() -> datetime:
    return START


@pytest.fixture(params=[FakeProvider, StreamProvider], ids=["fake", "stream"])
def streams(request: pytest.FixtureRequest) -> Provider:
    streams: Provider = request.param()
    return streams


@pytest.fixture
def log(streams: Provider) -> DeltaLog:
    logs: Logs = streams.logs
    return logs.keyed(b"")


def test_each_row_of_a_claim_has_a_line_in_order(streams: Provider, log: DeltaLog) -> None:
    log.applied([OWN_ROW, ADDED, KNOWN])
    log.applied([KNOWN._replace(seq=4)])

    assert streams.applied() == [2, 3, 4]


def test_row_of_a_firing_alone_has_no_line(streams: Provider, log: DeltaLog) -> None:
    log.applied([OWN_ROW])

    assert streams.applied() == []


def test_each_batch_has_a_line(streams: Provider, log: DeltaLog) -> None:
    outcome = Outcome(Firing("all", "", "every", START), "all@1", {"facts": Counts()}, [], 0.0)

    log.completed(outcome)

    assert streams.completed() == ["all@1"]


def test_each_firing_has_a_line_with_the_sum_of_its_batches(
    streams: Provider, log: DeltaLog
) -> None:
    channels = {"facts": Counts(read=3, added=3)}

    log.finished(Report("all", channels, "run1", ["all@1", "all@3"], purged=["e9"]))

    assert streams.finished() == [("all", 2, 3, 1)]


def test_each_misspelled_key_has_a_line(streams: Provider, log: DeltaLog) -> None:
    log.misspelled([Misspelling("subjct", "subject", "e1"), Misspelling("objct", "object", "e2")])

    assert streams.misspelled() == ["subjct", "objct"]


def test_each_checkpoint_has_a_line(streams: Provider, log: DeltaLog) -> None:
    log.checkpointed(Checkpoint(7, b"\1" * 32))

    assert streams.heads() == [(7, b"\1" * 32)]


def test_logs_of_two_keys_write_to_the_same_stream(streams: Provider) -> None:
    streams.logs.keyed(b"a" * 32).applied([ADDED])
    streams.logs.keyed(b"b" * 32).applied([KNOWN])

    assert streams.applied() == [2, 3]


def test_line_that_is_written_is_not_dropped(streams: Provider, log: DeltaLog) -> None:
    log.applied([ADDED])

    assert streams.logs.dropped == 0
