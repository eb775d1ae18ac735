"""An erasure through the daemon leaves no erased text in an index, or elsewhere in its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slumberd import Memory
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.model.errors import VersionConflictError
from slumberd.search.embeddings import WordEmbedder
from tests.support.reachable_texts import reachable_texts

pytestmark = pytest.mark.integration

CANARY = "zeppelinism"
STEM = "zeppelin"
"""In every form in which an index may hold the word."""

QUESTION = f"Who knows {CANARY}?"
SEARCH = "{language: english, vectors: true}"


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Memory]:
    """Run a daemon in this process."""
    directory = tmp_path / "memory"
    make_state_directory(directory)
    file = directory / "slumberd.yaml"
    file.write_text(file.read_text().replace("{language: auto}", SEARCH))
    async with Memory.open(directory, user="host") as memory:
        yield memory


def of_user(daemon: Memory, user: str, agent: str = "desk") -> Memory:
    return Memory(daemon._transport, user=user, agent=agent, session="s1")


async def fill_indexes(memory: Memory) -> None:
    """Remember the canary as a text, a name and a fact, and search for it."""
    await memory.remember(
        f"All about {CANARY}", triples=[(CANARY, "likes", CANARY)], id="e1", speaker=CANARY
    )
    await memory.remember("I know.", id="e2")
    await memory.wait_for("e1")
    assert {hit.kind for hit in await memory.recall(QUESTION)} == {"episode", "fact"}
    assert CANARY in (await memory.context(QUESTION)).text


@pytest.mark.slow
async def test_erased_text_leaves_the_memory_of_the_daemon_at_once(daemon: Memory) -> None:
    victim, other = of_user(daemon, "victim"), of_user(daemon, "other")
    await fill_indexes(victim)
    await other.remember("I like tea", id="o1")
    await other.wait_for("o1")
    before = await other.recall("tea")
    embedder = WordEmbedder()
    embedder.embed([CANARY])  # as the comparison of facts does
    assert reachable_texts(daemon, holding=STEM)
    assert reachable_texts(embedder, holding=STEM)

    plan = await victim.forget()
    await victim.forget(plan=plan.plan)

    assert reachable_texts(daemon, embedder, holding=STEM) == []
    assert await other.recall("tea") == before
    assert await victim.recall(QUESTION) == []


@pytest.mark.slow
async def test_erasure_of_a_session_leaves_its_texts_in_no_index_of_the_user(
    daemon: Memory,
) -> None:
    victim = of_user(daemon, "victim")
    await fill_indexes(victim)
    await victim.remember("I like tea", id="t1", session="s2")
    await victim.wait_for("t1")

    plan = await victim.forget(session="s1")
    await victim.forget(session="s1", plan=plan.plan)

    assert reachable_texts(daemon, holding=STEM) == []
    assert {hit.id for hit in await victim.recall("tea")} == {"t1", "t1#1"}


async def test_refused_erasure_keeps_what_is_not_erased(daemon: Memory) -> None:
    victim = of_user(daemon, "victim")
    await fill_indexes(victim)

    with pytest.raises(VersionConflictError):
        await victim.forget(plan="0" * 32)

    assert await victim.recall(QUESTION)
