"""Open the memory that `slumberd init` makes, as a host does: by the library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from slumberd.client.memory import Memory
from slumberd.client.transports import Transport, open_transport
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.model.episode import Episode
from slumberd.operations.facts import KnownFact
from slumberd.operations.forms import MOST_CHARACTERS
from slumberd.operations.puts import Remembered
from tests.recall.engine import Engine, Ledger, Line, Named, Prompt
from tests.recall.figures import STARTED
from tests.recall.prompts_of_hits import lines_of, prompt_of

_AGENT = "default"
_PUT_AT_ONCE = 5_000
_WAIT_SECONDS = 60
_PAGE = 1_000


class StartedMemory:
    """A daemon with the configuration and the rules of a new state directory.

    Args:
        transport: Calls the daemon.
    """

    name = STARTED

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, episodes: Sequence[Episode]) -> None:
        by_user: dict[str, list[Episode]] = defaultdict(list)
        for episode in episodes:
            by_user[episode.user].append(episode)
        for user, some in by_user.items():
            for first in range(0, len(some), _PUT_AT_ONCE):
                await self._put(self._memory(user), some[first : first + _PUT_AT_ONCE])

    async def _put(self, memory: Memory, episodes: Sequence[Episode]) -> None:
        """Put episodes, fire every rule, and wait until all of them are evaluated."""
        put = await memory.put_many([_arguments(episode) for episode in episodes])
        await self._transport.call("fire", {})
        for one in reversed(put):
            if _is_stored(one):
                outcome = await memory.wait_for(one.id, seconds=_WAIT_SECONDS)
                if not outcome.settled:
                    raise RuntimeError(f"the rules have not evaluated {one.id}")
                break

    async def forget(self, user: str, session: str) -> None:
        memory = self._memory(user)
        planned = await memory.forget(session=session)
        await memory.forget(session=session, plan=planned.plan)

    async def search(self, user: str, query: str, limit: int) -> list[str]:
        hits = await self._memory(user).recall(query, kinds="episode", limit=limit)
        return [hit.id for hit in hits]

    async def declare(self, named: Sequence[Named]) -> None:
        raise NotImplementedError("the library has no search for names alone")

    async def search_names(self, user: str, scope: str, query: str) -> list[str]:
        raise NotImplementedError("the library has no search for names alone")

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        context = await self._memory(user).context(question, budget=budget)
        return prompt_of(context.text, context.items)

    async def ranked(self, user: str, question: str, limit: int) -> list[Line]:
        return lines_of(await self._memory(user).recall(question, kinds="episode", limit=limit))

    async def ledger(self, user: str) -> Ledger | None:
        facts = await self._facts(user)
        removed = removed_facts(await self._changes(user), facts)
        current = {_value_of(fact.payload) for fact in facts}
        # A value that was said again is removed with its fact, and holds by another one.
        replaced = [
            episode
            for episode, ids in removed.items()
            if not current.intersection([await self._said(user, id) for id in ids])
        ]
        return Ledger(facts, frozenset(replaced))

    async def _said(self, user: str, fact: str) -> Value | None:
        """Return the value of a fact that is not current any more; None when nothing has it."""
        request = {"user": user, "id": fact, "kind": "fact"}
        answer = await self._transport.call("explain", request)
        for row in answer["explanation"]["history"]:
            if row["fact_id"] == fact and row["event"] == "claim":
                return _value_of(row["said"])
        return None

    async def _facts(self, user: str) -> list[KnownFact]:
        found: list[KnownFact] = []
        cursor = None
        while True:
            page = await self._memory(user).facts(limit=_PAGE, cursor=cursor)
            found += page.facts
            cursor = page.next
            if cursor is None:
                return found

    async def _changes(self, user: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        after, more = 0, True
        while more:
            request = {"user": user, "after": after, "limit": _PAGE}
            page = await self._transport.call("changes", request)
            rows += page["changes"]
            after, more = page["last"], page["more"]
        return rows

    def _memory(self, user: str) -> Memory:
        return Memory(self._transport, user=user, agent=_AGENT, session=_AGENT)


def removed_facts(
    changes: Sequence[dict[str, Any]], facts: Sequence[KnownFact]
) -> dict[str, set[str]]:
    """Return the facts of each episode of whose facts later rows have removed all.

    Args:
        changes: Rows of the ledger, oldest first.
        facts: The current facts.
    """
    current = {fact.id for fact in facts}
    removed = {id for row in changes for id in row["replaces"]}
    made: dict[str, set[str]] = defaultdict(set)
    for row in changes:
        if row["kind"] in ("add", "update"):
            for episode in row["episode_ids"]:
                made[episode].add(row["fact_id"])
    return {episode: ids for episode, ids in made.items() if ids <= removed and not ids & current}


Value = tuple[str, ...]
"""A subject, a predicate and an object, without regard to case and white space."""


def _value_of(payload: dict[str, Any]) -> Value:
    return tuple(
        " ".join(str(payload.get(name)).casefold().split())
        for name in ("subject", "predicate", "object")
    )


def _is_stored(one: Remembered) -> bool:
    return one.state in ("new", "changed", "unchanged")


def _arguments(episode: Episode) -> dict[str, Any]:
    """Return the arguments of `Memory.remember` for an episode; a host cuts a longer text."""
    metadata = dict(episode.metadata)
    return {
        "text": episode.content[:MOST_CHARACTERS],
        "id": episode.id,
        "when": episode.timestamp,
        "session": episode.session,
        "speaker": metadata.pop("speaker", None),
        "triples": metadata.pop("triples", ()),
        "metadata": metadata,
    }


@asynccontextmanager
async def open_started() -> AsyncIterator[Engine]:
    """Open a memory in a new directory, which `slumberd init` would make."""
    with TemporaryDirectory(prefix="slumberd-recall-") as folder:
        directory = Path(folder) / "slumberd"
        make_state_directory(directory)
        async with open_transport(directory) as transport:
            yield StartedMemory(transport)
