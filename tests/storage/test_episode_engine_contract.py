"""The contract of an engine of episodes: writes that nobody waits for, and news of commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from slumberd.model.errors import RowRefusedError
from slumberd.storage.engine import EpisodeEngine, Session, Transact
from tests.support.providers import Provider
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


@pytest.fixture
async def engines(provider: Provider) -> AsyncIterator[tuple[EpisodeEngine, EpisodeEngine]]:
    """Provide two engines of one store."""
    found = provider.episode_engine(), provider.episode_engine()
    for engine in found:
        await engine.bootstrap()
    yield found
    for engine in found:
        await engine.close()


@pytest.fixture
def engine(engines: tuple[EpisodeEngine, EpisodeEngine]) -> EpisodeEngine:
    return engines[0]


def insert(id: str) -> Callable[[Session], int]:
    row = (id, "/user/u/session/s/agent/a/", b"{}", "2026-01-01T00:00:00+00:00", b"{}")
    return lambda session: session.do("episodes.insert", row)


def ids(session: Session) -> list[Any]:
    return [row[1] for row in session.rows("episodes.page", {"after": -1, "limit": 99})]


async def flushed(engine: EpisodeEngine, flush: Callable[[Transact], None]) -> None:
    """Post a flush, and wait for its end."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run(transact: Transact) -> None:
        flush(transact)
        loop.call_soon_threadsafe(ended.set)

    await engine.post(run)
    await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)


async def test_flush_commits_each_of_its_transactions(engine: EpisodeEngine) -> None:
    counts: list[int] = []

    def flush(transact: Transact) -> None:
        counts.extend(transact(insert(id)) for id in ("e1", "e2"))

    await flushed(engine, flush)

    assert counts == [1, 1]
    assert await engine.read(ids) == ["e1", "e2"]


@pytest.mark.slow
async def test_transaction_of_a_flush_is_committed_when_it_returns(
    engines: tuple[EpisodeEngine, EpisodeEngine],
) -> None:
    engine, other = engines
    loop = asyncio.get_running_loop()
    seen: list[list[Any]] = []

    def flush(transact: Transact) -> None:
        transact(insert("e1"))
        meanwhile = asyncio.run_coroutine_threadsafe(other.read(ids), loop)
        seen.append(meanwhile.result(PATIENCE_SECONDS))

    await flushed(engine, flush)

    assert seen == [["e1"]]


async def test_failed_transaction_of_a_flush_writes_nothing_and_the_next_one_is_committed(
    engine: EpisodeEngine,
) -> None:
    def fail(session: Session) -> None:
        insert("e1")(session)
        raise LookupError("in the middle")

    def flush(transact: Transact) -> None:
        with pytest.raises(LookupError, match="in the middle"):
            transact(fail)
        transact(insert("e2"))

    await flushed(engine, flush)

    assert await engine.read(ids) == ["e2"]


async def test_refused_row_is_an_error_of_its_own_and_nothing_is_written(
    engine: EpisodeEngine,
) -> None:
    """A flush of puts finds out by this error that one of them is at fault."""
    await engine.write(insert("e1"))

    def insert_both(session: Session) -> None:
        for id in ("e2", "e1"):
            insert(id)(session)

    def flush(transact: Transact) -> None:
        with pytest.raises(RowRefusedError):
            transact(insert_both)

    await flushed(engine, flush)
    with pytest.raises(RowRefusedError):
        await engine.write(insert_both)

    assert await engine.read(ids) == ["e1"]


async def test_flushes_run_one_after_the_other_in_the_order_of_their_posts(
    engine: EpisodeEngine,
) -> None:
    for number in range(9):
        await engine.post(lambda transact, id=f"e{number}": transact(insert(id)))  # type: ignore[misc] # one default each

    await flushed(engine, lambda _: None)

    assert await engine.read(ids) == [f"e{number}" for number in range(9)]


async def test_version_changes_with_each_commit_and_only_then(
    engines: tuple[EpisodeEngine, EpisodeEngine],
) -> None:
    engine, other = engines
    first = [await engine.version(), await engine.version()]

    await engine.write(insert("e1"))
    own = [await engine.version(), await engine.version()]
    await other.write(insert("e2"))
    others = [await engine.version(), await engine.version()]
    await other.write(insert("e3"), keep=False)

    assert first[0] == first[1] != own[0] == own[1] != others[0] == others[1]
    assert await engine.version() == others[0]


async def test_synced_store_has_every_row(engine: EpisodeEngine) -> None:
    await engine.write(insert("e1"))

    await engine.fsync()
    engine.notify()

    assert await engine.read(ids) == ["e1"]


@pytest.mark.parametrize("call", ["read", "write", "post", "version"])
async def test_first_use_of_a_missing_store_creates_it(provider: Provider, call: str) -> None:
    engine = provider.episode_engine()

    def insert_one(transact: Transact) -> None:
        transact(insert("e1"))

    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: engine.read(ids),
        "write": lambda: engine.write(insert("e1")),
        "post": lambda: flushed(engine, insert_one),
        "version": engine.version,
    }

    await calls[call]()

    assert await engine.read(ids) == (["e1"] if call in ("write", "post") else [])
    await engine.close()
