"""Reload: other rules for a running daemon, all of them or none, between two firings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog

from slumberd.clock import Clock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.errors import ConfigurationError, ReloadFailedError, SlumberdError, SupersededError
from slumberd.model.rule import ConsolidationRule
from slumberd.service.composition import limits_of
from slumberd.service.control_socket import Answer, Peer
from slumberd.service.requests import RequestForm
from slumberd.service.rule_runner import RuleRunner

Load = Callable[[], tuple[Settings, RuleSet]]
"""Reads configuration and rules; raises ConfigurationError with every mistake."""

Follow = Callable[[Sequence[ConsolidationRule], str], None]
"""Goes by other rules, and by another time zone of those that name none, from now on."""

LIVE = frozenset({"rules_dir", "timezone", "limits"})
"""What a reload puts into force of the configuration; the rest counts from the next start."""

LONGEST_ERRORS = 6_000
"""Characters of mistakes in one line of the log, which journald must not break up."""

_log = structlog.get_logger("slumberd")


@dataclass(slots=True)
class InForce:
    """What a daemon goes by.

    Attributes:
        settings: As of its start, but for what a reload changes.
        rules: One immutable set; a reload puts another in its place.
        pause: Set while a firing must end, and take back the batch under way.
        wanted: Set by whoever wants a reload and no answer.
        ends: Whether the daemon does.
    """

    settings: Settings
    rules: RuleSet
    pause: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    ends: bool = False

    def end(self) -> None:
        """Let nothing begin any more."""
        self.ends = True
        self.pause.set()
        self.wanted.set()


class Reloading:
    """Puts other rules into force, or leaves everything as it is.

    Args:
        in_force: What is replaced.
        load: Reads what there is now.
        runner: Of the facts whose channels are settled again.
        turn: Held by whoever changes the facts.
        follow: Told of every set of rules.
        clock: For the instant of what is settled again.
    """

    def __init__(
        self,
        in_force: InForce,
        load: Load,
        runner: RuleRunner,
        turn: asyncio.Lock,
        *,
        follow: Sequence[Follow],
        clock: Clock,
    ) -> None:
        self._in_force = in_force
        self._load = load
        self._runner = runner
        self._turn = turn
        self._follow = follow
        self._clock = clock
        self._alone = asyncio.Lock()

    def begin(self) -> None:
        """Let everyone who follows go by what is in force."""
        for follow in self._follow:
            follow(self._in_force.rules.rules, self._in_force.settings.timezone)

    async def keep(self) -> None:
        """Reload whenever it is wanted, until the daemon ends.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        wanted = self._in_force.wanted
        while True:
            await wanted.wait()
            wanted.clear()
            if self._in_force.ends:
                return
            with suppress(ReloadFailedError):
                await self.reload(by="a signal")

    async def answer(self, _: RequestForm, peer: Peer) -> Answer:
        """Reload for a peer, and return what changed."""
        return await self.reload(by=str(peer))

    async def outdated(self, _: RequestForm, __: Peer) -> Answer:
        """Return the keys of the configuration that have changed since it was read.

        Raises:
            ConfigurationError: Something is wrong with what there is now.
        """
        fresh, _rules = await asyncio.to_thread(self._load)
        old = self._in_force.settings
        return {"reload": _needing_reload(old, fresh), "restart": _needing_restart(old, fresh)}

    async def reload(self, *, by: str) -> Answer:
        """Read configuration and rules, and go by them from the next batch on.

        Raises:
            ReloadFailedError: Something is wrong with them; what was in force stays.
        """
        async with self._alone:
            try:
                settings, rules = await asyncio.to_thread(self._load)
                async with _between_firings(self._in_force, self._turn):
                    return await self._take(settings, rules, by)
            except SupersededError:
                raise
            except (SlumberdError, OSError) as error:  # a full disk of the log, too
                _log_failure(error, by)
                raise ReloadFailedError(error) from error

    async def _take(self, settings: Settings, rules: RuleSet, by: str) -> Answer:
        old, late = self._in_force.rules, _needing_restart(self._in_force.settings, settings)
        await apply_channels(self._runner, rules, self._clock.now())
        self._in_force.rules = replace(rules, generation=old.generation + 1)
        live = {name: getattr(settings, name) for name in LIVE}
        self._in_force.settings = self._in_force.settings.model_copy(update=live)
        self._runner.consolidator.limits = limits_of(settings)
        self.begin()
        changes = _changes(old, self._in_force.rules)
        told = {**changes, "restart_needed": late}
        _log_success(old, self._in_force.rules, told, by)
        return {**_named(self._in_force.rules), **told}


@asynccontextmanager
async def _between_firings(in_force: InForce, turn: asyncio.Lock) -> AsyncIterator[None]:
    """Let the firing under way end with its batch, and none begin while the block runs."""
    in_force.pause.set()
    try:
        async with turn:
            yield
    finally:
        if not in_force.ends:
            in_force.pause.clear()


def _named(rules: RuleSet) -> dict[str, Any]:
    return {
        "generation": rules.generation,
        "rules_hash": rules.content_hash,
        "rules": len(rules.rules),
    }


def _changes(old: RuleSet, new: RuleSet) -> dict[str, list[str]]:
    """Return the ids of the rules that came, went, and are no longer what they were."""
    before = {rule.id: rule.content_hash for rule in old.rules}
    after = {rule.id: rule.content_hash for rule in new.rules}
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "changed": [name for name in after if before.get(name, after[name]) != after[name]],
    }


def _needing_restart(old: Settings, new: Settings) -> list[str]:
    """Return the keys of the configuration that changed and that a reload leaves alone."""
    before, after = old.model_dump(exclude=set(LIVE)), new.model_dump(exclude=set(LIVE))
    return list(_differing(before, after))


def _needing_reload(old: Settings, new: Settings) -> list[str]:
    """Return the keys that changed and that a reload puts into force."""
    before, after = old.model_dump(include=set(LIVE)), new.model_dump(include=set(LIVE))
    return list(_differing(before, after))


def _differing(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict) and value and before[key]:
            yield from _differing(before[key], value, f"{path}{key}.")
        elif before.get(key) != value:
            yield path + key
    yield from (path + key for key in before if key not in after)


def _log_success(old: RuleSet, new: RuleSet, told: dict[str, list[str]], by: str) -> None:
    before = {rule.id: rule.content_hash for rule in old.rules}
    after = {rule.id: rule.content_hash for rule in new.rules}
    for name in told["removed"]:
        _log.info("rule.removed", rule_id=name, rule_hash=before[name])
    for name in told["added"]:
        _log.info("rule.added", rule_id=name, rule_hash=after[name], file=new.sources[name])
    for name in told["changed"]:
        _log.info("rule.changed", rule_id=name, rule_hash=after[name], before=before[name])
    if told["restart_needed"]:
        _log.warning("config.restart_needed", keys=told["restart_needed"])
    counts = {name: len(told[name]) for name in ("added", "removed", "changed")}
    _log.info("config.reloaded", by=by, **_named(new), **counts)


def _log_failure(error: SlumberdError | OSError, by: str) -> None:
    mistakes = error.mistakes if isinstance(error, ConfigurationError) else [error]
    told = [str(mistake) for mistake in mistakes]
    for part in _parted(told):
        _log.error("config.reload_failed", by=by, mistakes=len(told), errors=part)


def _parted(told: Sequence[str]) -> Iterator[list[str]]:
    """Yield all of the texts, in parts that are short enough for a line of the log."""
    part: list[str] = []
    for text in told:
        if part and sum(map(len, part)) + len(text) > LONGEST_ERRORS:
            yield part
            part = []
        part.append(text)
    yield part


async def apply_channels(runner: RuleRunner, rules: RuleSet, at: datetime) -> None:
    """Settle again what a change of multi-valued predicates, or of lineages' depth, touches.

    Raises:
        StoreError: The facts cannot be written.
    """
    if keys := await runner.facts.redraw(at=at):
        _log.info("lineage.redrawn", keys=keys)
    outcome = await runner.facts.set_channels(rules.multi_valued, at=at)
    if outcome is not None:
        _log.info("channels.changed", firing_id=outcome.firing_id, rows=len(outcome.records))
    await runner.consolidator.tell_again()
