"""What a user sees by the Model Context Protocol does not depend on what another user does."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from slumberd.client.memory import Memory
from slumberd.operations.caller import Caller
from slumberd.operations.episodes import KnownEpisode
from tests.support.daemons_in_loop import served_by
from tests.support.late_imports import LateModule
from tests.support.mcp_clients import configure, http_client, serving_memory, text_of
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    import mcp
else:
    mcp = LateModule("mcp")


pytestmark = [pytest.mark.integration, pytest.mark.sampled, pytest.mark.slow]

IDS = ("e1", "e2", "E1", "caf\u00e9")
WORDS = ("tea", "coffee", "Lisbon", "Porto")
FULL = ("read", "write", "erase")

Step = tuple[str, dict[str, Any]]
Act = Callable[[str, dict[str, Any]], Awaitable[Any]]


def random_steps(chance: random.Random, ids: tuple[str, ...], many: int) -> list[Step]:
    """Return calls of tools: each id and each word may come several times."""
    return [_random_step(chance, ids) for _ in range(many)]


def _random_step(chance: random.Random, ids: tuple[str, ...]) -> Step:
    id, word = chance.choice(ids), chance.choice(WORDS)
    triple = {"subject": "ann", "predicate": chance.choice(["likes", "lives_in"]), "object": word}
    arguments: dict[str, dict[str, Any]] = {
        "remember": {"text": f"I said {word}", "id": id, "triples": [triple]},
        "recall": {"query": word},
        "context": {"question": f"What about {word}?", "budget": 300},
        "correct": {"fact": id, "object": word, "reason": "so"},
        "explain": {"id": id},
        "forget": {},
    }
    tool = chance.choice(["remember", "remember", *arguments])
    return tool, arguments[tool]


def hostile_steps(chance: random.Random, taken: set[str]) -> list[Step]:
    """Return what another user tries, with own ids, and ids and names of the first user.

    An id belongs to the user who takes it first, so only a taken one may be tried.
    """
    steps = [
        (tool, arguments)
        for tool, arguments in random_steps(chance, (*IDS, "b1", "b2"), 6)
        if tool != "remember" or arguments["id"] in {*taken, "b1", "b2"}
    ]
    tool, arguments = chance.choice([*steps, ("recall", {"query": "tea"})])
    return [*steps, (tool, {**arguments, "user": "ann"}), (tool, {**arguments, "agent": "desk"})]


class World:
    """A daemon, the client of the user whose view is compared, and that of another user."""

    def __init__(self, ann: mcp.Client, bob: mcp.Client, memory: Memory) -> None:
        self._ann, self._bob = ann, bob
        self._memory = memory
        self._taken: set[str] = set()

    async def play(self, seed: int, *, hostile: bool) -> list[Any]:
        """Return all that the user sees."""
        own, other = random.Random(seed), random.Random(seed + 1)
        seen = []
        for step in random_steps(own, IDS, 8):
            seen.append(await self._call(self._ann, "ann", *step))
            self._taken = {episode.id for episode in await self._episodes()}
            for tried in hostile_steps(other, self._taken) if hostile else []:
                await self._call(self._bob, "bob", *tried)
        return seen + [await self._read(uri) for uri in RESOURCES]

    async def _call(
        self, client: mcp.Client, user: str, tool: str, arguments: dict[str, Any]
    ) -> Any:
        result = await client.call_tool(tool, arguments)
        if tool == "remember" and not result.is_error:
            await self._settle(user, arguments["id"])
        if tool == "forget" and not result.is_error:
            plan = result.structured_content["plan"]
            done = await client.call_tool(tool, {"plan": plan})
            assert not done.is_error, text_of(done)
            rows = done.structured_content["certificate"]["rows"]
            # Reads are counted two seconds later, however many users there are.
            del rows["episodes"]["slumberd_accesses"]
            return rows
        return [result.is_error, normalised(text_of(result))]

    async def _episodes(self) -> list[KnownEpisode]:
        memory = Memory(self._memory._transport, user="ann", agent="desk", session="s")
        return await memory.episodes()

    async def _settle(self, user: str, id: str) -> None:
        """Wait until the rules have evaluated an episode, so that both runs fire alike."""
        dispatcher = served_by(self._memory).dispatcher
        request = {"user": user, "agent": "desk", "id": id, "seconds": 30.0}
        assert (await dispatcher.call("outcome", request, Caller.here()))["settled"]

    async def _read(self, uri: str) -> Any:
        try:
            [content] = (await self._ann.read_resource(uri)).contents
        except mcp.MCPError as error:
            return str(error)
        return normalised(content.text)  # type: ignore[union-attr] # all are texts


RESOURCES = [
    "slumberd://profile",
    "slumberd://report/latest",
    *(f"slumberd://{kind}/{id}" for kind in ("facts", "episodes") for id in IDS[:3]),
]

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?")
_NUMBERED = re.compile(r"(?<=@)\d+\b|\"(seq|version|plan|run)\": ?(\"[^\"]*\"|\d+)")


def normalised(text: str) -> str:
    """Return a text without instants, and without the numbers of the ledger that all share."""
    return _NUMBERED.sub("N", _INSTANT.sub("T", text))


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    configure(directory, {user: (user, *FULL) for user in ("ann", "bob")})
    async with (
        serving_memory(directory) as (memory, socket),
        http_client(socket, "ann") as ann,
        http_client(socket, "bob") as bob,
    ):
        yield World(ann, bob, memory)


@pytest.mark.parametrize("seed", range(amount(1, full=40)))
async def test_view_of_a_user_is_the_same_with_and_without_a_hostile_user(
    tmp_path: Path, seed: int
) -> None:
    views = []
    for hostile in (False, True):
        async with world(tmp_path / str(hostile)) as played:
            views.append(await played.play(100 * seed, hostile=hostile))

    assert orjson.dumps(views[0]) == orjson.dumps(views[1])
    assert "bob" not in str(views[1])
