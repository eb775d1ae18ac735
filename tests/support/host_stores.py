"""Two stores in memory with exactly the specification's methods, and a factory of stores in files.

Nothing here is imported from slumberd: the deltas are of classes of their own, too. A daemon in a
process of its own imports this module by its path, so it imports nothing of the tests either.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "HOST_STORES_FOLDER"
"""Names the folder with the episodes and facts of `make_stores`."""

KILL_VARIABLE = "HOST_STORES_KILL"
"""``before:N`` or ``after:N``: the process kills itself at the N-th delta of its life."""


@dataclass(frozen=True)
class HostEpisode:
    """An episode of a host."""

    id: str
    at: int
    user: str = "alice"
    subject: str | None = None
    object: Any = None
    intent: str = ""
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostDelta:
    """A delta; one without a payload deletes, or does nothing."""

    kind: str
    rule_id: str
    source_episode_ids: list[str]
    promotion_ts: datetime
    confidence: float = 1.0
    fact_payload: dict[str, Any] | None = None
    replaces: list[str] | None = None


@dataclass(frozen=True)
class HostFact:
    """A fact of a host."""

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    lineage: list[dict[str, Any]]


@dataclass(frozen=True)
class HostHealth:
    """What `health` returns."""

    ok: bool
    fragment_count: int | None


@dataclass
class HostMemoryStore:
    """Episodes of a host, and the deltas of all of them at each call, as specified."""

    episodes: dict[str, HostEpisode] = field(default_factory=dict)
    calls: int = 0

    async def bootstrap(self) -> None:
        """Do nothing."""

    async def health(self) -> HostHealth:
        return HostHealth(ok=True, fragment_count=len(self.episodes))

    async def migrate(self, plan: Any) -> None:
        """Do nothing."""

    async def put(self, episode: HostEpisode, *, user: str, session: str, agent: str) -> None:
        self.episodes[episode.id] = episode

    async def recent(
        self, user: str, session: str | None = None, agent: str | None = None, *, limit: int
    ) -> list[HostEpisode]:
        own = [episode for episode in self.episodes.values() if episode.user == user]
        return sorted(own, key=lambda episode: -episode.at)[:limit]

    async def consolidate(self, rule: Any) -> list[HostDelta]:
        """Return a delta for each episode whose user the rule's filter names; all if empty."""
        self.calls += 1
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.calls)
        found = (one for one in self.episodes.values() if rule.when_filter in ("", one.user))
        earlier: dict[tuple[str, str], str] = {}
        return [
            _delta(episode, rule.id, now, earlier)
            for episode in sorted(found, key=lambda episode: (episode.at, episode.id))
        ]


def _delta(
    episode: HostEpisode, rule_id: str, now: datetime, earlier: dict[tuple[str, str], str]
) -> HostDelta:
    common: dict[str, Any] = {
        "rule_id": rule_id,
        "source_episode_ids": [episode.id],
        "promotion_ts": now,
    }
    payload = {
        "id": episode.id,
        "user": episode.user,
        "subject": episode.subject,
        "object": episode.object,
    }
    if episode.intent == "noop":
        return HostDelta("noop", **common)
    if episode.intent == "delete":
        return HostDelta("delete", replaces=[*episode.replaces], **common)
    replaces = [*episode.replaces] if episode.intent == "update" else []
    if not episode.intent and episode.subject is not None:
        key = episode.user, episode.subject
        replaces = [earlier[key]] if key in earlier else []
        earlier[key] = episode.id
    if replaces:
        return HostDelta("update", replaces=replaces, fact_payload=payload, **common)
    return HostDelta("add", fact_payload=payload, **common)


@dataclass
class HostFactStore:
    """Facts of a host; `applied` lists every delta that it took."""

    facts: dict[str, HostFact] = field(default_factory=dict)
    applied: list[HostDelta] = field(default_factory=list)

    async def bootstrap(self) -> None:
        """Do nothing."""

    async def health(self) -> HostHealth:
        return HostHealth(ok=True, fragment_count=len(self.facts))

    async def migrate(self, plan: Any) -> None:
        """Do nothing."""

    async def pin(self, fact: HostFact) -> None:
        self.facts[fact.id] = fact

    async def unpin(self, fact_id: str) -> None:
        self.facts.pop(fact_id, None)

    async def query(self, pattern: Any) -> list[HostFact]:
        return [one for one in self.facts.values() if pattern.user in (None, one.user)]

    async def apply_delta(self, delta: Any) -> None:
        self.applied.append(delta)
        for fact_id in delta.replaces or ():
            await self.unpin(fact_id)
        if delta.fact_payload is not None:
            payload = delta.fact_payload
            link = {"rule_id": delta.rule_id, "source_episode_ids": delta.source_episode_ids}
            await self.pin(HostFact(payload["id"], payload["user"], "", payload, [link]))


class FileMemoryStore(HostMemoryStore):
    """The same store, whose episodes a test writes into a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def health(self) -> HostHealth:
        self._read()
        return await super().health()

    async def consolidate(self, rule: Any) -> list[HostDelta]:
        self._read()
        return await super().consolidate(rule)

    def _read(self) -> None:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found = [HostEpisode(**json.loads(line)) for line in lines]
        self.episodes = {episode.id: episode for episode in found}


class FileFactStore(HostFactStore):
    """The same store; each delta is durable when the call returns, or the process is killed."""

    def __init__(self, path: Path, kill: str) -> None:
        super().__init__()
        self._path = path
        self._when, _, number = kill.partition(":")
        self._left = int(number or 0)
        if path.exists():
            self.facts = {one["id"]: HostFact(**one) for one in json.loads(path.read_text())}

    async def apply_delta(self, delta: Any) -> None:
        self._left -= 1
        if (self._when, self._left) == ("before", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().apply_delta(delta)
        with self._path.with_suffix(".log").open("a") as log:
            log.write(f"{delta.kind} {delta.source_episode_ids[0]}\n")
        spare = self._path.with_suffix(".new")
        spare.write_text(json.dumps([vars(fact) for fact in self.facts.values()]))
        spare.replace(self._path)
        if (self._when, self._left) == ("after", 0):
            os.kill(os.getpid(), signal.SIGKILL)


def make_stores() -> tuple[FileMemoryStore, FileFactStore]:
    """Return the stores of the folder that the environment names: the factory of the tests."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    facts = FileFactStore(folder / "facts.json", os.environ.get(KILL_VARIABLE, ""))
    return FileMemoryStore(folder / "episodes.jsonl"), facts


async def never_make_stores() -> None:
    """Wait for ever, as for a database that does not answer."""
    sys.stderr.write("waiting\n")
    await asyncio.Event().wait()


NOT_A_FUNCTION = 1


def make_nothing() -> object:
    """Return an object that is no store."""
    return object()


def make_with(argument: str) -> str:
    """Return the argument that a factory does not get."""
    return argument
