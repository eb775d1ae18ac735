"""A put that the database cannot store is refused alone, as malformed input."""

from __future__ import annotations

import asyncio

import pytest

from slumberd.model.episode import Episode
from slumberd.model.errors import InputError
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import episode

pytestmark = pytest.mark.integration

TOO_LONG = episode("é" * 501)
"""An episode whose id has more than 1000 bytes."""


async def put(memory: PostgresMemoryStore, each: Episode) -> Exception | None:
    try:
        await memory.put(each, user=each.user, session=each.session, agent=each.agent)
    except Exception as error:  # noqa: BLE001 # the test compares it
        return error
    return None


async def test_put_that_is_refused_refuses_no_other_put(postgres_address: str) -> None:
    good = [episode(f"e{number}") for number in range(3)]
    async with PostgresMemoryStore(postgres_address) as memory:
        # All wait for the same transaction.
        errors = await asyncio.gather(*(put(memory, each) for each in [*good, TOO_LONG]))
        found = await memory.recent("alice", limit=5)

    assert errors[:3] == [None, None, None]
    assert isinstance(errors[3], InputError)
    assert {each.id for each in found} == {"e0", "e1", "e2"}


async def test_too_long_id_is_malformed_input(postgres_address: str) -> None:
    async with PostgresMemoryStore(postgres_address) as memory:
        with pytest.raises(InputError, match="1000 bytes"):
            await memory.put_many([episode("e1"), TOO_LONG])

        assert await memory.recent("alice", limit=5) == []
