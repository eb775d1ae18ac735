"""The provenance of a delta that a host applies, in ledger and log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slumberd.model.delta import AddDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.firing import Record
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.providers import AnyFactStore, Provider

pytestmark = pytest.mark.integration

TEA = {"id": "f1", "user": "alice", "agent": "rag", "subject": "a", "predicate": "b", "object": 1}


def provenance(*sources: str, confidence: float = 0.5) -> dict[str, Any]:
    return {
        "source_episode_ids": list(sources),
        "promotion_ts": START,
        "rule_id": "theirs",
        "confidence": confidence,
    }


@pytest.fixture
async def store(provider: Provider) -> AsyncIterator[AnyFactStore]:
    async with provider.facts(clock=FakeClock()) as opened:
        await opened.bootstrap()
        await opened.apply_delta(
            AddDelta(kind="add", fact_payload=TEA, **provenance("e1", "e0", "e1"))
        )
        yield opened


async def last(store: AnyFactStore) -> Record:
    return (await store.reads.records())[-1]


async def test_added_fact_is_recorded_with_each_source_once(store: AnyFactStore) -> None:
    record = await last(store)

    assert (record.kind, record.fact_id) == ("add", "f1")
    assert record.source_episode_ids == ("e1", "e0")
    assert record.confidence == 0.5


async def test_updated_fact_is_recorded_with_its_sources(store: AnyFactStore) -> None:
    body = TEA | {"id": "f2", "object": 2}

    await store.apply_delta(
        UpdateDelta(kind="update", fact_payload=body, replaces=["f1"], **provenance("e2"))
    )

    record = await last(store)
    assert (record.kind, record.fact_id, record.replaces) == ("update", "f2", ("f1",))
    assert record.source_episode_ids == ("e2",)


async def test_deleted_fact_is_recorded_with_the_sources_of_the_delta(
    store: AnyFactStore,
) -> None:
    await store.apply_delta(DeleteDelta(kind="delete", replaces=["f1"], **provenance("e7", "e8")))

    record = await last(store)
    assert (record.kind, record.replaces) == ("delete", ("f1",))
    assert record.source_episode_ids == ("e7", "e8")


async def test_noop_is_recorded_with_its_sources_and_confidence(store: AnyFactStore) -> None:
    await store.apply_delta(NoopDelta(kind="noop", **provenance("e9", confidence=0.25)))

    record = await last(store)
    assert (record.kind, record.source_episode_ids, record.confidence) == ("noop", ("e9",), 0.25)
