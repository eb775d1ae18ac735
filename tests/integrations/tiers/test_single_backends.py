"""What single back ends do beyond the contract of all of them: limits, failures, upkeep."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd import SQLiteMemoryStore
from slumberd.integrations.tiers.backends import cache
from slumberd.model.episode import microseconds, speaker_of
from slumberd.model.errors import ExtraMissingError
from slumberd.model.scope import ScopeFilter
from slumberd.tiers import (
    CacheMemoryBackend,
    DatabaseMemoryBackend,
    EmbeddingError,
    InMemoryMemoryBackend,
    MemoryCapacityError,
    MemoryQuery,
    MemoryStoreError,
    VectorMemoryBackend,
)
from tests.support.builders import START, episode
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids
from tests.support.redis_server import PROGRAM, running_redis
from tests.support.word_vectors import embed_words

pytestmark = pytest.mark.integration

needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")


async def test_full_store_refuses_new_entries_only() -> None:
    clock = FakeClock()
    backend = InMemoryMemoryBackend(max_entries=2, clock=clock)
    await backend.store(entry("e1", owner_id="ada", expires_at=START + timedelta(seconds=5)))
    await backend.store(entry("e2"))

    with pytest.raises(MemoryCapacityError) as caught:
        await backend.store(entry("e3"))
    assert caught.value.capacity == 2
    await backend.store(entry("e2", "new"))

    clock.advance(5)
    await backend.store(entry("e3"))
    assert (await backend.health_check()).details == {"entries": 2}


async def test_entry_without_a_vector_needs_a_function() -> None:
    backend = VectorMemoryBackend()

    with pytest.raises(EmbeddingError, match="embed_fn"):
        await backend.store(entry("e1"))
    await backend.store(entry("e2", embedding=[1.0, 0.0]))

    assert ids(await backend.get_recent(9)) == ["e2"]
    with pytest.raises(EmbeddingError):
        await backend.retrieve(MemoryQuery("tea"))
    assert ids(await backend.retrieve(MemoryQuery(""))) == ["e2"]


async def test_failed_vector_stores_nothing() -> None:
    async def fail(_: str) -> Sequence[float]:
        raise OSError("no model")

    kept = InMemoryMemoryBackend()
    backend = VectorMemoryBackend(kept, fail)

    with pytest.raises(EmbeddingError, match="no model"):
        await backend.store(entry("e1"))

    assert await kept.get_recent(9) == []
    found = await backend.health_check()
    assert found.is_degraded()
    assert "no model" in str(found.error)


async def test_vector_of_another_length_is_not_relevant() -> None:
    backend = VectorMemoryBackend(embed_fn=embed_words)
    await backend.store(entry("short", "tea", embedding=[1.0, 0.0]))
    await backend.store(entry("own", "tea"))

    found = await backend.retrieve(MemoryQuery("tea", min_relevance=0.5))

    assert ids(found) == ["own"]


async def test_opposite_vectors_are_not_relevant() -> None:
    async def first(_: str) -> Sequence[float]:
        return [1.0, 0.0]

    backend = VectorMemoryBackend(embed_fn=first)
    await backend.store(entry("same", embedding=[2.0, 0.0]))
    await backend.store(entry("across", embedding=[0.0, 1.0]))
    await backend.store(entry("opposite", embedding=[-1.0, 0.0]))

    found = await backend.retrieve(MemoryQuery("x", recency_weight=0, importance_weight=0))

    assert {one.entry.id: one.relevance for one in found} == {"same": 1, "across": 0, "opposite": 0}


async def test_slow_component_is_degraded_in_time() -> None:
    async def hang(_: str) -> Sequence[float]:
        await asyncio.Event().wait()
        return []

    found = await VectorMemoryBackend(embed_fn=hang).health_check(timeout=0.001)

    assert (found.is_degraded(), found.message) == (True, "no answer within 0.001 s")


@pytest.fixture
async def episodes(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "memory.db", clock=FakeClock()) as store:
        yield store


def database(episodes: SQLiteMemoryStore, **settings: Any) -> DatabaseMemoryBackend:
    return DatabaseMemoryBackend(episodes, **{"clock": FakeClock(), **settings})


async def test_agents_of_one_database_do_not_see_each_other(episodes: SQLiteMemoryStore) -> None:
    first, second = database(episodes, agent="a"), database(episodes, agent="b")
    await first.store(entry("e1", "1", owner_id="ada"))
    await second.store(entry("e1", "2", owner_id="ada"))

    await second.clear(owner_id="ada")

    assert [one.content for one in await first.get_recent(9, owner_id="ada")] == ["1"]
    assert (await first.owners(), await second.owners()) == (["ada"], [])


async def test_expired_entry_is_deleted_from_the_database(episodes: SQLiteMemoryStore) -> None:
    clock = FakeClock()
    backend = database(episodes, ttl_seconds=60, clock=clock)
    await backend.store(entry("e1", owner_id="ada"))
    clock.advance(60)

    await backend.retrieve(MemoryQuery("", owner_id="ada"))

    assert await episodes.recent("ada", limit=9) == []


async def test_erased_owner_has_no_entries_and_stores_none(episodes: SQLiteMemoryStore) -> None:
    backend = database(episodes)
    await backend.store(entry("e1", "tea", owner_id="ada"))
    assert await backend.retrieve(MemoryQuery("tea", owner_id="ada"))

    erased = await episodes.forget(
        ScopeFilter("ada", None, None), [], moment=microseconds(START), key=b"k" * 32
    )

    assert erased["episodes"] == 1
    assert await backend.retrieve(MemoryQuery("tea", owner_id="ada")) == []
    with pytest.raises(MemoryStoreError):
        await backend.store(entry("e2", owner_id="ada"))


async def test_change_by_plain_sql_is_found(episodes: SQLiteMemoryStore, tmp_path: Path) -> None:

    backend = database(episodes)
    for id in ("e1", "e2"):
        await backend.store(entry(id, "tea", owner_id="ada"))
    assert len(await backend.retrieve(MemoryQuery("", owner_id="ada"))) == 2

    with sqlite3.connect(tmp_path / "memory.db") as other:
        other.execute("DELETE FROM episodes WHERE id LIKE '%/e1'")
    other.close()

    assert ids(await backend.retrieve(MemoryQuery("", owner_id="ada"))) == ["e2"]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("text", id="no object"),
        pytest.param({"id": "e1"}, id="without a role"),
        pytest.param({"id": "e1", "role": "user", "expires_at": "soon"}, id="no instant"),
        pytest.param({"id": "e1", "role": "user", "expires_at": "2026-01-01"}, id="naive instant"),
        pytest.param({"id": "e1", "role": "user", "embedding": ["x"]}, id="no vector"),
    ],
)
async def test_episode_that_another_program_has_changed_fails_no_search(
    episodes: SQLiteMemoryStore, block: object
) -> None:
    backend = database(episodes)
    changed = episode("x1", user="ada", agent="ai_memory", metadata={"memory_entry": block})
    await episodes.put(changed, user="ada", session="s1", agent="ai_memory")
    await backend.store(entry("e2", owner_id="ada", age=5))

    assert ids(await backend.get_recent(9, owner_id="ada")) == ["x1", "e2"]
    [first, _] = await backend.retrieve(MemoryQuery("", owner_id="ada"))
    assert first.entry.metadata == {"session_id": "s1"}


async def test_owner_that_cannot_be_a_user_is_refused(episodes: SQLiteMemoryStore) -> None:
    with pytest.raises(MemoryStoreError, match="control character"):
        await database(episodes).store(entry("e1", owner_id="a\nb"))


async def test_database_that_is_broken_is_degraded(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("no database")
    async with SQLiteMemoryStore(tmp_path / "broken.db") as broken:
        backend = database(broken)

        assert (await backend.health_check()).is_degraded()
        with pytest.raises(MemoryStoreError) as caught:
            await backend.store(entry("e1"))
        assert caught.value.store == "database"


@needs_redis
async def test_redis_lets_all_keys_of_an_owner_expire(redis_address: str) -> None:
    async with cache.open_cache(redis_address) as client:
        backend = CacheMemoryBackend(client, 100, namespace="expiry", clock=FakeClock())
        await backend.store(entry("long", expires_at=START + timedelta(seconds=500)))
        await backend.store(entry("short"))

        keys = [key async for key in client.scan_iter("slumberd:expiry:*")]
        left = {key.decode().split(":")[2]: await client.ttl(key) for key in sorted(keys)}

    assert left.pop("owners") == -1
    assert left.pop("entry") <= 100
    assert all(400 < seconds <= 500 for seconds in left.values()), left


@needs_redis
async def test_entry_that_redis_has_let_expire_leaves_the_index(redis_address: str) -> None:
    async with cache.open_cache(redis_address) as client:
        backend = CacheMemoryBackend(client, 0, namespace="gone", clock=FakeClock())
        for id in ("e1", "e2"):
            await backend.store(entry(id))
        await client.delete("slumberd:gone:entry::e1")

        assert ids(await backend.get_recent(9)) == ["e2"]

        assert await client.zrange("slumberd:gone:by_instant:", 0, -1) == [b"e2"]


@needs_redis
async def test_recent_entries_of_redis_read_only_their_keys(redis_address: str) -> None:
    async with cache.open_cache(redis_address) as client:
        backend = CacheMemoryBackend(client, namespace="few", clock=FakeClock())
        for n in range(50):
            await backend.store(entry(f"e{n}", age=n))
        before = (await client.info("stats"))["keyspace_hits"]

        assert ids(await backend.get_recent(1)) == ["e0"]

        assert (await client.info("stats"))["keyspace_hits"] - before == 2


@needs_redis
async def test_entry_that_another_process_writes_in_the_meantime_is_not_replaced(
    redis_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cache.open_cache(redis_address) as client,
        cache.open_cache(redis_address) as other_client,
    ):
        backend = CacheMemoryBackend(client, 0, namespace="race")
        other = CacheMemoryBackend(other_client, 0, namespace="race")
        await backend.store(entry("e1"))
        read = await backend.get_recent(1)
        pipeline = client.pipeline

        def racing(**options: Any) -> Any:
            work = pipeline(**options)
            execute = work.execute

            async def write_then_execute() -> Any:
                await other.store(entry("e1", "new content"))
                return await execute()

            work.execute = write_then_execute
            return work

        monkeypatch.setattr(client, "pipeline", racing)

        assert not await backend.replace_entries(read, [entry("summary")])
        assert [one.content for one in await other.get_recent(9)] == ["new content"]


@pytest.mark.slow
@needs_redis
async def test_full_redis_is_a_capacity_error() -> None:
    with running_redis("--maxmemory", "2mb") as address:
        async with cache.open_cache(address) as client:
            backend = CacheMemoryBackend(client, clock=FakeClock())
            large = [entry(f"e{n}", "x" * 100_000) for n in range(100)]

            found = await asyncio.gather(*map(backend.store, large), return_exceptions=True)

            [error, *_] = [one for one in found if one is not None]
            assert isinstance(error, MemoryCapacityError)
            assert "no memory left" in str(error)


@needs_redis
async def test_redis_that_has_ended_fails_and_is_degraded() -> None:
    with running_redis() as address:
        pass
    async with cache.open_cache(address) as client:
        backend = CacheMemoryBackend(client, clock=FakeClock())

        with pytest.raises(MemoryStoreError, match="redis failed") as caught:
            await backend.store(entry("e1"))
        assert caught.value.store == "cache"
        with pytest.raises(MemoryStoreError, match="redis failed"):
            await backend.retrieve(MemoryQuery(""))
        assert (await backend.health_check()).is_degraded()


def test_redis_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(ExtraMissingError, match=r"slumberd\[redis\]"):
        cache.open_cache("redis://localhost")


@pytest.mark.parametrize(
    ("role", "metadata", "speaker"),
    [
        pytest.param("assistant", {}, "assistant", id="role"),
        pytest.param("assistant", {"role": " "}, "assistant", id="role beside an empty one"),
        pytest.param("user", {"role": "tool"}, "tool", id="role in the metadata"),
        pytest.param("user", {"speaker": "Ann"}, "Ann", id="speaker in the metadata"),
    ],
)
async def test_role_of_an_entry_is_the_speaker_of_its_episode(
    tmp_path: Path, role: str, metadata: dict[str, Any], speaker: str
) -> None:
    given = replace(entry("e1", "I live in Rome", owner_id="ada"), role=role, metadata=metadata)
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        backend = DatabaseMemoryBackend(store)
        await backend.store(given)
        [kept] = await backend.get_recent(9, owner_id="ada")
        [stored] = await store.recent("ada", agent="ai_memory", limit=9)

    assert (kept.role, {key: kept.metadata.get(key) for key in metadata}) == (role, metadata)
    assert "role" in metadata or "role" not in kept.metadata
    assert speaker_of(stored.source_node, stored.metadata) == speaker
