"""`slumberd why` and `slumberd why-not`: how a fact came, and what became of an episode."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, NamedTuple

import typer

from slumberd.cli.client import reading_facts, reading_facts_or_none, reading_memory
from slumberd.cli.commands.explain_output import (
    DECISION_COLUMNS,
    Told,
    Versions,
    decision_document,
    decision_row,
    print_episode,
    would_change,
)
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.consolidation.explanation import Decision, Explanation, Read, became
from slumberd.errors import NoInputError
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact_ids import fact_id_of
from slumberd.model.firing import Held
from slumberd.model.rule import FACTS, ConsolidationRule
from slumberd.service.composition import rules_of

_EVERYTHING = ConsolidationRule(id="@why", cadence={"every": 1}, when_filter="", then_emits=[FACTS])
_NEWEST = 2**63 - 1


def why(
    fact: Annotated[str, typer.Argument(help="The id of a fact, as `slumberd facts` shows it.")],
    content: Annotated[
        bool, typer.Option("--content", help="Show what the episodes say, in their own words.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show why a fact stands, or why it does not stand any more.

    Its lineage; the episodes that it comes from; the firings that promoted it, each with its
    rule, the rule's content hash then, its instant, what triggered it and who asked for it; what
    it replaced, and what took it out.
    """
    settings = settings_of(config, state_dir)
    explanation, versions = asyncio.run(_explained(settings, _checked(fact)))
    told = Told(explanation, versions, content=content)
    if json:
        print_json(told.document())
    else:
        told.print()


def why_not(
    episode: Annotated[str, typer.Argument(help="The id of an episode.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show what became of an episode under every rule, and what would change that.

    Pending: the rule has not read its newest version. Filtered: the rule's filter does not select
    it. Forgotten: its scope was. Skipped: the rule has no row about it, whatever its filter says.
    Quarantined: it cannot be read. Undone: the firing that met it was undone. Else the delta that
    it made.

    With --json, each rule and channel on a line of its own.
    """
    settings = settings_of(config, state_dir)
    rules = rules_of(settings).of_episodes().rules
    found = asyncio.run(_decided(settings, rules, _checked(episode)))
    by_id = {rule.id: rule for rule in rules}
    tolerance = timedelta(seconds=settings.memory.future_tolerance)
    latest = microseconds(SystemClock().now() + tolerance)
    remedies = (
        would_change(
            one,
            by_id.get(one.rule_id),
            in_memory=found.version is not None,
            held=found.held.get(one.rule_id),
            latest=latest,
        )
        for one in found.decisions
    )
    rows = list(zip(found.decisions, remedies, strict=True))
    if json:
        print_json_lines(decision_document(*row) for row in rows)
    else:
        print_episode(episode, found.version)
        print_table(DECISION_COLUMNS, (decision_row(*row) for row in rows))


def _checked(id: str) -> str:
    id.encode()  # bytes of the command line that are no text are wrong use
    return id


async def _explained(settings: Settings, fact_id: str) -> tuple[Explanation, Versions]:
    async with reading_facts(settings) as facts:
        explanation = await facts.why(fact_id)
    ids = [source.id for source in explanation.sources]
    found = await _newest(settings, [_EVERYTHING], ids)
    return explanation, found[_EVERYTHING.id]


async def _newest(
    settings: Settings, rules: Sequence[ConsolidationRule], ids: Sequence[str]
) -> dict[str, Versions]:
    """Return the newest versions of some episodes as each of some rules reads them."""
    if not settings.memory_path.exists():
        return {rule.id: {} for rule in rules}
    async with reading_memory(settings) as memory:
        return {
            rule.id: {one.id: one for one in await memory.reread(rule, ids, upto=_NEWEST)}
            for rule in rules
        }


class _Found(NamedTuple):
    version: EpisodeVersion | None
    decisions: list[Decision]
    held: Mapping[str, Held]


async def _decided(
    settings: Settings, rules: Sequence[ConsolidationRule], episode_id: str
) -> _Found:
    # Memory first: what a rule reads in between has a row then, and nothing is called pending.
    newest = await _newest(settings, [_EVERYTHING, *rules], [episode_id])
    version = newest.pop(_EVERYTHING.id).get(episode_id)
    versions = {id: found[episode_id] for id, found in newest.items() if episode_id in found}
    held: Mapping[str, Held] = {}
    async with reading_facts_or_none(settings) as facts:
        if facts is None:
            decisions = _before_any_firing(episode_id, rules, versions)
        else:
            decisions = await facts.decisions_of(episode_id, rules, versions)
            held = await facts.held()
    if version is None and not any(one.line for one in decisions):
        remedy = "neither memory.db nor the ledger knows such an episode"
        raise NoInputError(episode_id, remedy)
    return _Found(version, decisions, held)


def _before_any_firing(
    episode_id: str, rules: Sequence[ConsolidationRule], versions: Mapping[str, EpisodeVersion]
) -> list[Decision]:
    return [
        Decision(
            rule.id,
            channel,
            fact_id_of(channel, episode_id),
            became(None, Read(rule, None, versions.get(rule.id)), ()),
        )
        for rule in rules
        for channel in sorted(rule.then_emits)
    ]
