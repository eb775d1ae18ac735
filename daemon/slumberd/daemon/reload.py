"""Replace the rules and some settings of a running daemon between two firings, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from slumberd.clock import Clock
from slumberd.daemon.composition import limits_of, retention_of
from slumberd.model.errors import (
    ConfigurationError,
    ReloadFailedError,
    SlumberdError,
    SupersededError,
)
from slumberd.model.firing import CHANNELS
from slumberd.model.predicates import ChannelPlan
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer
from slumberd.operations.writes.rule_runner import RuleRunner, Turn
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings

Load = Callable[[], tuple[Settings, RuleSet]]
"""Reads configuration and rules; raises ConfigurationError with every mistake in them."""

Follow = Callable[[Sequence[ConsolidationRule], str], None]
"""Takes the rules in force, and the time zone of rules without one."""

LIVE = frozenset({"rules_dir", "timezone", "limits", "retention"})
"""The settings that a reload replaces, beside ``postgres.rules``; others need a restart."""

_LIVE_KEYS: dict[str, Any] = {**dict.fromkeys(LIVE, True), "postgres": {"rules"}}

LONGEST_ERRORS = 6_000
"""Characters of mistakes in one log line; journald breaks up longer lines."""

_log = structlog.get_logger("slumberd")


@dataclass(slots=True)
class InForce:
    """The settings and rules that a daemon runs with.

    Attributes:
        settings: The settings of the start, with those that a reload replaced.
        rules: An immutable set, which a reload replaces.
        pause: Set while a firing must end and roll back its current batch.
        wanted: Set by `want`, which requests a reload.
        wanted_by: Who requested it last, for the log.
        ends: Whether the daemon is stopping.
    """

    settings: Settings
    rules: RuleSet
    pause: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    wanted_by: str = ""
    ends: bool = False
    _noticed: int | None = None

    def want(self, by: str) -> None:
        """Request a reload.

        Args:
            by: Who wants it, for the log.
        """
        self.wanted_by = by
        self.wanted.set()

    def notice_version(self, version: int) -> None:
        """Request a reload if a version of the rules was published that is not in force.

        A version with mistakes is loaded once, not again and again.

        Args:
            version: The newest version; 0 when none was published.
        """
        known = (0, self.rules.version, self._noticed)
        if self.settings.are_rules_published and version not in known:
            self._noticed = version
            self.want("a publication")

    def notice_again(self) -> None:
        """Request a reload at the next notice, since the last one failed for other reasons."""
        self._noticed = None

    def describe(self) -> dict[str, Any]:
        """Return what other hosts see of the rules in force."""
        return {"rules_hash": self.rules.content_hash, "rules_version": self.rules.version}

    def replace(self, settings: Settings, rules: RuleSet) -> None:
        """Put other rules in force, and those settings that need no restart."""
        self.rules = replace(rules, generation=self.rules.generation + 1)
        live = {name: getattr(settings, name) for name in LIVE}
        source = {"rules": settings.postgres.rules}
        postgres = self.settings.postgres.model_copy(update=source)
        self.settings = self.settings.model_copy(update={**live, "postgres": postgres})

    def end(self) -> None:
        """Begin no more firings and reloads."""
        self.ends = True
        self.pause.set()
        self.wanted.set()


class Reloading:
    """Reloads configuration and rules, or changes nothing.

    Args:
        in_force: The settings and rules to replace.
        load: Reads configuration and rules.
        runner: Holds the facts whose changed channels are resolved again; None for a host's facts.
        turn: The lock that each change of the facts holds.
        follow: Called with each new set of rules.
    """

    def __init__(
        self,
        in_force: InForce,
        load: Load,
        runner: RuleRunner | None,
        turn: Turn,
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
        """Pass the rules in force to every follower."""
        for follow in self._follow:
            follow(self._in_force.rules.rules, self._in_force.settings.timezone)

    async def run(self) -> None:
        """Reload at each signal and publication, until the daemon ends.

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
                await self.reload(by=self._in_force.wanted_by)

    async def answer(self, _: RequestForm, caller: Caller) -> Answer:
        """Reload at a caller's request, and return what changed."""
        return await self.reload(by=str(caller))

    async def outdated(self, _: RequestForm, __: Caller) -> Answer:
        """Return the keys of the configuration that changed after the daemon read it.

        Raises:
            ConfigurationError: The configuration or a rule file has mistakes.
        """
        new, _rules = await asyncio.to_thread(self._load)
        old = self._in_force.settings
        return {"reload": _reload_keys(old, new), "restart": _restart_keys(old, new)}

    async def reload(self, *, by: str) -> Answer:
        """Read configuration and rules, and apply them from the next batch on.

        Raises:
            ReloadFailedError: They have mistakes; the old ones stay in force.
        """
        async with self._alone:
            try:
                settings, rules = await asyncio.to_thread(self._load)
                async with _between_firings(self._in_force, self._turn):
                    return await self._put_in_force(settings, rules, by)
            except SupersededError:
                raise
            except (SlumberdError, OSError) as error:  # a full disk of the log, too
                _note_failure(self._in_force, error, by)
                raise ReloadFailedError(error) from error

    async def _put_in_force(self, settings: Settings, rules: RuleSet, by: str) -> Answer:
        old, restart = self._in_force.rules, _restart_keys(self._in_force.settings, settings)
        channels = ChannelChange()
        if self._runner is not None:
            channels = await self._apply(settings, rules, self._runner)
        self._in_force.replace(settings, rules)
        self.begin()
        summary = _log_success(old, self._in_force.rules, restart, by)
        return {**_identity(self._in_force.rules), **summary, **channels._asdict()}

    async def _apply(self, settings: Settings, rules: RuleSet, runner: RuleRunner) -> ChannelChange:
        """Apply limits, channels and retention; if the channels fail, keep the old limits."""
        consolidator, limits = runner.consolidator, runner.consolidator.limits
        consolidator.limits = limits_of(settings)
        try:
            channels = await apply_channels(runner, rules, self._clock.now())
        except BaseException:
            consolidator.limits = limits
            raise
        consolidator.retention = retention_of(settings, lambda: self._in_force.rules)
        return channels


def load_again(in_force: InForce, load: Load, *, by: str) -> None:
    """Replace settings and rules that nothing runs with yet; mistakes keep the old ones.

    Args:
        in_force: The settings and rules to replace.
        load: Reads configuration and rules.
        by: Who wants it, for the log.
    """
    in_force.wanted.clear()
    old = in_force.rules
    try:
        settings, rules = load()
    except (SlumberdError, OSError) as error:
        _note_failure(in_force, error, by)
        return
    restart = _restart_keys(in_force.settings, settings)
    in_force.replace(settings, rules)
    if restart or old.content_hash != rules.content_hash:
        _log_success(old, in_force.rules, restart, by)


@asynccontextmanager
async def _between_firings(in_force: InForce, turn: Turn) -> AsyncIterator[None]:
    """End the current firing, and let none begin while the block runs."""
    in_force.pause.set()
    try:
        async with turn:
            yield
    finally:
        if not in_force.ends:
            in_force.pause.clear()


def _identity(rules: RuleSet) -> dict[str, Any]:
    return {
        "generation": rules.generation,
        "rules_hash": rules.content_hash,
        "rules": len(rules.rules),
    }


def _changes(old: RuleSet, new: RuleSet) -> dict[str, list[str]]:
    """Return the ids of the rules that were added, removed and changed."""
    before = {rule.id: rule.content_hash for rule in old.rules}
    after = {rule.id: rule.content_hash for rule in new.rules}
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "changed": [name for name in after if before.get(name, after[name]) != after[name]],
    }


def _restart_keys(old: Settings, new: Settings) -> list[str]:
    """Return the changed keys of the configuration that only a restart applies."""
    before, after = (one.model_dump(exclude=_LIVE_KEYS) for one in (old, new))
    return list(_changed_keys(before, after))


def _reload_keys(old: Settings, new: Settings) -> list[str]:
    """Return the changed keys of the configuration that a reload applies."""
    before, after = (one.model_dump(include=_LIVE_KEYS) for one in (old, new))
    return list(_changed_keys(before, after))


def _changed_keys(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict) and value and before[key]:
            yield from _changed_keys(before[key], value, f"{path}{key}.")
        elif before.get(key) != value:
            yield path + key
    yield from (path + key for key in before if key not in after)


def _log_success(
    old: RuleSet, new: RuleSet, restart_needed: list[str], by: str
) -> dict[str, list[str]]:
    """Log what changed, and return it."""
    summary = {**_changes(old, new), "restart_needed": restart_needed}
    before = {rule.id: rule.content_hash for rule in old.rules}
    after = {rule.id: rule.content_hash for rule in new.rules}
    for name in summary["removed"]:
        _log.info("rule.removed", rule_id=name, rule_hash=before[name])
    for name in summary["added"]:
        _log.info("rule.added", rule_id=name, rule_hash=after[name], file=new.sources[name])
    for name in summary["changed"]:
        _log.info("rule.changed", rule_id=name, rule_hash=after[name], before=before[name])
    if summary["restart_needed"]:
        _log.warning("config.restart_needed", keys=summary["restart_needed"])
    counts = {name: len(summary[name]) for name in ("added", "removed", "changed")}
    _log.info("config.reloaded", by=by, **_identity(new), **counts)
    return summary


def _note_failure(in_force: InForce, error: SlumberdError | OSError, by: str) -> None:
    if not isinstance(error, ConfigurationError):  # perhaps the server was away
        in_force.notice_again()
    _log_failure(error, by)


def _log_failure(error: SlumberdError | OSError, by: str) -> None:
    mistakes = error.mistakes if isinstance(error, ConfigurationError) else [error]
    messages = [str(mistake) for mistake in mistakes]
    for part in _split(messages):
        _log.error("config.reload_failed", by=by, mistakes=len(messages), errors=part)


def _split(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield all texts, in parts that fit into one log line."""
    part: list[str] = []
    for text in texts:
        if part and sum(map(len, part)) + len(text) > LONGEST_ERRORS:
            yield part
            part = []
        part.append(text)
    yield part


class ChannelChange(NamedTuple):
    """What a change of multi-valued predicates did to the facts, or would do.

    Attributes:
        facts_appear: How many facts become current.
        facts_go: How many facts are not current any more.
        held_firing_id: The id by which the change awaits approval.
        rejected_firing_id: The id by which a person rejected the change. It is in force when both
            ids are None.
    """

    facts_appear: int = 0
    facts_go: int = 0
    held_firing_id: str | None = None
    rejected_firing_id: str | None = None


async def apply_channels(runner: RuleRunner, rules: RuleSet, at: datetime) -> ChannelChange:
    """Resolve again what a change of multi-valued predicates or of the lineage depth affects.

    A change that removes more facts than the deletion limits allow awaits approval; until then the
    old setting goes on. A rejection of the same change holds while the limits do not allow it.

    Raises:
        StoreError: The facts cannot be written.
    """
    if keys := await runner.facts.ledger.rewrite_facts(at=at):
        _log.info("lineage.redrawn", keys=keys)
    plan = await runner.facts.ledger.plan_channels(rules.multi_valued)
    change = ChannelChange() if plan is None else await _decide_change(runner, plan, at)
    if plan is not None and not (change.held_firing_id or change.rejected_firing_id):
        for outcome in await runner.facts.ledger.set_channels(rules.multi_valued, at=at):
            _log.info("channels.changed", firing_id=outcome.firing_id, rows=len(outcome.records))
    await runner.consolidator.log_pending_records()
    return change


async def _decide_change(runner: RuleRunner, plan: ChannelPlan, at: datetime) -> ChannelChange:
    """Return a change of channels, with the id by which it awaits approval or was rejected."""
    change = ChannelChange(plan.appear, plan.go)
    ledger = runner.facts.ledger
    problem = plan.describe_excess(runner.consolidator.limits)
    if not problem:
        return change
    for firing_id in await ledger.rejections(CHANNELS, plan.content_hash):
        _log.warning("channels.rejected", firing_id=firing_id, reason=problem)
        return change._replace(rejected_firing_id=firing_id)
    held = await ledger.hold_channels(plan, problem, at=at)
    if held.approved:
        return change
    _log.warning("channels.held", firing_id=held.firing_id, reason=problem)
    return change._replace(held_firing_id=held.firing_id)
