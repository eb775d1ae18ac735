"""Two tenants of one state directory: the tenant whose view is compared, and a hostile tenant.

Each history runs twice, with the hostile tenant and without. Clock and firings are equal in both
runs, so all instants that the victim sees must be equal, too.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slumberd.model.delta import UpdateDelta
from slumberd.model.episode import Episode
from slumberd.model.errors import ForgottenError, NothingKeptError, SlumberdError
from slumberd.model.fact import FactPattern
from slumberd.model.scope import Scope
from slumberd.model.stages import Decay, Dedup, Summarise
from slumberd.operations.caller import Caller
from slumberd.rules.settings_schema import LimitsSettings
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at, rule
from tests.support.state_directory import StateDirectory, state_directory

Step = tuple[Any, ...]

STAGES = (Dedup(method="exact"), Summarise(when_more_than=2), Decay())
RULES = [
    rule("all", stages=STAGES),
    rule("likes", when_filter="predicate = 'likes'", then_emits=["facts", "notes"]),
]
MULTI = {"facts": frozenset({"likes"}), "notes": frozenset({"likes"})}
MINE = ("e1", "e_", "E1", "caf\u00e9", "@notes/e1")
"""Ids of the tenant's episodes."""

PEER = Caller.of_user(1, 1)
MUCH = 10_000


class Owner(NamedTuple):
    """A user and an agent."""

    user: str
    agent: str


@dataclass(frozen=True)
class Story:
    """The steps of two tenants.

    Attributes:
        tenant: The tenant whose view is compared.
        other: The hostile tenant, who has another user, or only another agent.
        steps: The steps of the tenant and of the daemon.
        between: The steps of the hostile tenant after each step.
        batch: Log rows that one transaction resolves.
        held: Whether a batch that deletes even one fact waits for approval.
    """

    tenant: Owner
    other: Owner
    steps: Sequence[Step]
    between: Sequence[Sequence[Step]]
    batch: int = 1_000
    held: bool = False


@dataclass
class TenantHistory:
    """A state directory in which a story is played."""

    story: Story
    folder: Path
    state_directory: StateDirectory
    answers: list[Any] = field(default_factory=list)
    firings: list[list[str]] = field(default_factory=list)
    pending: bool = False

    @property
    def facts(self) -> SQLiteFactStore:
        facts = self.state_directory.stores.facts
        assert isinstance(facts, SQLiteFactStore)
        return facts

    async def play(self, *, hostile: bool) -> None:
        """Take every step; keep the answers to the tenant."""
        for step, others in zip(self.story.steps, self.story.between, strict=True):
            self.state_directory.clock.advance(60)
            self.answers.append(await _answered(self, *step))
            for other in others if hostile else ():
                with suppress(SlumberdError):
                    await getattr(_HostileSteps(self), other[0])(*other[1:])
        self.state_directory.clock.advance(60)
        await self.fire()

    async def put(self, owner: Owner, id: str, session: str, seconds: int, **fields: Any) -> None:
        fields_of_episode: dict[str, Any] = {
            "id": id,
            "content": f"{owner.user} said {seconds}",
            "timestamp": at(seconds),
            "source_node": "chat",
            "session": session,
            **owner._asdict(),
            **fields,
        }
        scope: dict[str, Any] = {"user": owner.user, "session": session, "agent": owner.agent}
        await self.state_directory.stores.memory.put(Episode(**fields_of_episode), **scope)

    async def fire(self) -> list[str]:
        """Fire every rule until nothing is pending; approve every batch that waits."""
        self.pending = False
        done = await self.ask("fire", rules=None)
        found = _firing_ids(done)
        while held := await self.facts.watermarks.held():
            for batch in held.values():
                done = await self.ask("decide", firing=batch.firing_id, approve=True)
                found += _firing_ids(done)
        return found

    async def ask(self, name: str, **request: Any) -> dict[str, Any]:
        return await self.state_directory.operations.handlers[name](request, PEER)

    async def undo(self, firing_ids: Sequence[str]) -> list[str]:
        answers = [await self.ask("undo", firing=id) for id in reversed(firing_ids)]
        return [answer["firing_id"] for answer in answers]


def _firing_ids(answer: dict[str, Any]) -> list[str]:
    return [id for report in answer["reports"] for id in report["firing_ids"]]


async def _answered(world: TenantHistory, what: str, *rest: Any) -> Any:
    """Take a step of the tenant, or of the daemon; return the answer."""
    try:
        return await getattr(_TenantSteps(world), what)(*rest)
    except SlumberdError as error:
        return [type(error).__name__, str(error)]


class _TenantSteps:
    """The steps of the tenant, and of the daemon."""

    def __init__(self, world: TenantHistory) -> None:
        self._world = world
        self._owner = world.story.tenant

    async def put(self, id: str, session: str, seconds: int, metadata: dict[str, Any]) -> None:
        self._world.pending = True
        await self._world.put(self._owner, id, session, seconds, metadata=metadata)

    async def fire(self) -> None:
        self._world.firings.append(await self._world.fire())

    async def undo(self, which: int) -> None:
        if self._world.firings:
            chosen = self._world.firings[which % len(self._world.firings)]
            self._world.firings.append(await self._world.undo(chosen))

    async def backfill(self, rule_id: str) -> None:
        self._world.firings.append(_firing_ids(await self._world.ask("backfill", rule=rule_id)))

    async def retry(self) -> None:
        self._world.firings.append(_firing_ids(await self._world.ask("retry")))

    async def pin(self, id: str, what: str) -> Any:
        return await self._world.ask("pin", id=id, **_triple(what), **self._owner._asdict())

    async def unpin(self, id: str) -> Any:
        return await self._world.ask("unpin", facts=[id], reason="because")

    async def forget(self, session: str) -> Any:
        # An erasure of nothing is refused and not remembered. A forged row would be something.
        with suppress(ForgottenError):
            await self._world.put(self._owner, f"erased in {session}", session, 0)
        certificate = await self._world.ask("forget", session=session, **self._owner._asdict())
        # Not the number of episodes: a forged row with the tenant's key is erased with them.
        return certificate["current_again"]

    async def forget_named(self, kind: str, id: str) -> Any:
        request = {kind: id, **self._owner._asdict()}
        try:
            certificate = await self._world.ask("forget", **request)
        except NothingKeptError as error:
            return str(error)
        return [certificate.get(name) for name in ("episodes", "facts", "current_again")]


def _triple(what: str) -> dict[str, str]:
    return {"subject": "s", "predicate": "is", "object": what, "reason": "because"}


class _HostileSteps:
    """The steps of the hostile tenant; the daemon may refuse each."""

    def __init__(self, world: TenantHistory) -> None:
        self._world = world
        self._owner = world.story.other

    async def put(
        self, id: str, session: str, seconds: int, metadata: dict[str, Any], node: str
    ) -> None:
        await self._world.put(
            self._owner, id, session, seconds, metadata=metadata, source_node=node
        )

    async def restate(self, id: str) -> None:
        """Put an episode under an id of the tenant; the daemon must refuse it."""
        if await self._has_episode(id):
            await self._world.put(self._owner, id, "s1", 99, metadata=_said("delete"))
            raise AssertionError(f"the episode {id!r} of another was taken")

    async def _has_episode(self, id: str) -> bool:
        tenant = self._world.story.tenant
        found = await self._world.state_directory.stores.memory.recent(
            tenant.user, agent=tenant.agent, limit=MUCH
        )
        return id in {episode.id for episode in found}

    async def row(self, id: str, key: str, content_of: str, metadata: str, timestamp: str) -> None:
        """Write an episode's row directly, with either tenant's scope in key and content."""
        owners = {"one": self._world.story.tenant, "other": self._owner}
        scopes = [Scope(owners[name].user, "s1", owners[name].agent) for name in (key, content_of)]
        content = {"content": "x", "source_node": "chat", **scopes[1]._asdict()}
        row = (id, scopes[0].key, orjson.dumps(content), timestamp, metadata.encode())
        with closing(sqlite3.connect(self._world.folder / "memory.db")) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)", row)

    async def pin(self, id: str, what: str) -> None:
        await self._world.ask("pin", id=id, **_triple(what), **self._owner._asdict())

    async def steal(self, id: str) -> None:
        """Pin a fact under the id of a current fact of the tenant."""
        if id in {fact.id for fact in await self._facts(self._world.story.tenant)}:
            await self.pin(id, "stolen")
            raise AssertionError(f"the fact {id!r} of another was taken")

    async def unpin(self, id: str) -> None:
        mine = {fact.id for fact in await self._facts(self._owner)}
        await self._world.ask("unpin", facts=sorted(mine & {id}), reason="because")

    async def delta(self, id: str, replaces: list[str]) -> None:
        """Apply a delta that replaces facts of the tenant."""
        payload = {"id": id, "subject": "s", "predicate": "is", **self._owner._asdict()}
        delta = UpdateDelta(
            kind="update", fact_payload=payload, source_episode_ids=[*MINE], replaces=replaces,
            rule_id="all", promotion_ts=at(0), confidence=1.0,
        )  # fmt: skip
        await self._world.facts.apply_delta(delta)

    async def edit(self, id: str) -> None:
        """Write a row into the table of facts directly, under the hostile tenant's name."""
        payload = b'{"subject":"s","predicate":"is"}'
        row = (id, *self._owner, payload, b"[]", 1.0, b"{}", "2026-01-01")
        with closing(sqlite3.connect(self._world.facts.path)) as connection, connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    async def fire_and_undo(self, undone: bool) -> None:
        """Fire and perhaps undo, when nothing of the tenant is pending."""
        if not self._world.pending:
            firing_ids = await self._world.fire()
            if undone:
                await self._world.undo(firing_ids)

    async def forget(self, session: str | None) -> None:
        with suppress(NothingKeptError):
            await self._world.ask("forget", session=session, **self._owner._asdict())

    async def forget_named(self, kind: str, id: str) -> None:
        with suppress(NothingKeptError):
            await self._world.ask("forget", **{kind: id}, **self._owner._asdict())

    async def _facts(self, owner: Owner) -> list[Any]:
        return await self._world.facts.query(FactPattern(**owner._asdict()))


def _said(intent: str) -> dict[str, Any]:
    return {"subject": "s", "predicate": "is", "object": "z", "intent": intent}


Look = Callable[[TenantHistory], Awaitable[dict[str, Any]]]
"""Returns what a tenant sees of a state directory."""


def play(story: Story, *, hostile: bool, look: Look) -> dict[str, Any]:
    """Play a story on new files; return what `look` sees at its end."""

    async def main(folder: Path) -> dict[str, Any]:
        limits = LimitsSettings(max_deletes=0) if story.held else LimitsSettings()
        async with state_directory(
            folder, RULES, multi_valued=MULTI, limits=limits, batch=story.batch
        ) as there:
            world = TenantHistory(story, folder, there)
            await world.play(hostile=hostile)
            return await look(world)

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder)))
