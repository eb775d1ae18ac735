"""A writer of the soak, a process: ``python -m tests.soak.writers NAME FOLDER HOW WHAT``.

After each commit it writes the episode into its journal. It ends when a file ``stop`` appears.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import orjson

from slumberd.model.episode import Episode, instant, microseconds
from slumberd.model.errors import ForgottenError
from slumberd.model.scope import Scope
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.soak.chat import chats
from tests.support.builders import START

DAY = 86_400_000_000
OF_A_USER = 50
"""Episodes that a writer puts for a user before the next user; few, for the oracle is slow."""

_PAUSE_SECONDS = 0.03
_CHAT_SECONDS = 0.2
_TRIPLES = [("tea", "is"), ("tea", "likes"), ("milk", "is"), ("milk", "likes")]
_INTENTS = [None] * 6 + ["update", "delete", "noop", "?"]

ManualAssertion = dict[str, Any]


class EpisodeWriter(Protocol):
    """Writes episodes into a store."""

    async def write(self, episode: Episode) -> None:
        """Return when an episode is committed."""
        ...


def sayings(name: str, chance: random.Random) -> Iterator[ManualAssertion]:
    """Yield random episodes; one in five is a new version of an earlier one."""
    count = 0
    while True:
        number = count
        if count and chance.random() < 0.2:
            number = chance.randrange(max(0, count - 40), count)
        else:
            count += 1
        yield _random_episode(name, number, chance)


def _random_episode(name: str, number: int, chance: random.Random) -> ManualAssertion:
    metadata = _random_statement(name, number, chance)
    if chance.random() < 0.15:
        several = chance.randrange(4)
        triples = [_random_statement(name, number, chance) for _ in range(several)]
        metadata = {**chance.choice([{}, metadata]), "triples": triples}
    user = f"u{number // OF_A_USER}"
    if number % 25 == 0:
        user = f"gone{number // 400}"
    return {
        "id": f"{name}-{number}",
        "user": user,
        "agent": "rag",
        "at": microseconds(START) + chance.randrange(DAY),
        "tag": chance.randrange(3),
        "metadata": metadata,
    }


def _random_statement(name: str, number: int, chance: random.Random) -> dict[str, Any]:
    subject, predicate = chance.choice(_TRIPLES)
    metadata: dict[str, Any] = {"subject": subject, "predicate": predicate}
    if chance.random() < 0.9:
        metadata["object"] = chance.choice(["a", "b", 3])
    if intent := chance.choice(_INTENTS):
        metadata["intent"] = intent
        if chance.random() < 0.5:
            earlier = f"{name}-{max(0, number - chance.randrange(9))}"
            metadata["replaces"] = [chance.choice([earlier, f"{earlier}#1"])]
    return metadata


def episode_of(fields: ManualAssertion) -> Episode:
    """Return the fields as an episode."""
    speaker = f"tag {fields['tag']}" if "tag" in fields else "guest"
    return Episode(
        id=fields["id"], content=fields.get("content", "text"), timestamp=instant(fields["at"]),
        agent=fields["agent"], source_node=speaker, user=fields["user"],
        session=fields.get("session", "s"), metadata=fields["metadata"],
    )  # fmt: skip


class LibraryWriter:
    """Writes with the library."""

    def __init__(self, memory: SQLiteMemoryStore) -> None:
        self._memory = memory

    async def write(self, episode: Episode) -> None:
        await self._memory.put(
            episode, user=episode.user, session=episode.session, agent=episode.agent
        )


class SqlWriter:
    """Writes rows, as a program without slumberd does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def write(self, episode: Episode) -> None:
        row = encode(episode, Scope(episode.user, episode.session, episode.agent), operation="put")
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)", row)


@asynccontextmanager
async def open_writer(path: Path, how: str) -> AsyncIterator[EpisodeWriter]:
    if how == "put":
        async with SQLiteMemoryStore(path) as memory:
            yield LibraryWriter(memory)
    else:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            yield SqlWriter(connection)


async def write(name: str, folder: Path, how: str, what: str) -> None:
    """Write until the file ``stop`` appears; ``what`` is ``triples`` or ``chats``."""
    chance = random.Random(name)
    episodes, pause = (chats, _CHAT_SECONDS) if what == "chats" else (sayings, _PAUSE_SECONDS)
    async with open_writer(folder / "state" / "memory.db", how) as writer:
        with (folder / f"{name}.journal").open("ab") as journal:
            for fields in episodes(name, chance):
                if (folder / "stop").exists():
                    return
                try:
                    await writer.write(episode_of(fields))
                    journal.write(orjson.dumps(fields) + b"\n")
                    journal.flush()
                except ForgottenError:
                    pass
                time.sleep(chance.uniform(0, 2 * pause))  # noqa: ASYNC251 # alone here


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
