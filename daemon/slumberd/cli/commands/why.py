"""`slumberd why` and `slumberd why-not`: explain a fact, and the outcome of an episode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, NamedTuple

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.explain_output import (
    DECISION_COLUMNS,
    FactExplanation,
    Versions,
    decision_document,
    decision_row,
    print_episode,
    would_change,
)
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.consolidation.explanation import Decision, Explanation, Read, outcome_of
from slumberd.errors import NoInputError
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact_ids import fact_id_of
from slumberd.model.firing import HeldBatch
from slumberd.model.rule import FACTS, ConsolidationRule
from slumberd.service.composition import (
    inspections_of,
    open_facts,
    open_facts_if_present,
    open_memory,
    rules_of,
)

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
    """Show why a fact is current, or why it is no longer current.

    The command shows its lineage, the episodes that it comes from, and the firings that promoted
    it. Of each firing it shows the rule, the rule's content hash at that time, the instant, what
    triggered it, and who requested it. It also shows what the fact replaced, and what replaced or
    deleted the fact.
    """
    settings = settings_of(config, state_dir)
    explanation, versions = asyncio.run(_explain(settings, _check_unicode(fact)))
    output = FactExplanation(explanation, versions, content=content)
    if json:
        print_json(output.document())
    else:
        output.print()


def why_not(
    episode: Annotated[str, typer.Argument(help="The id of an episode.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the outcome of an episode under every rule, and what would change it.

    pending: the rule has not read its newest version; it may wait for the answer of a language
    model. filtered: the rule's filter does not select
    it. erased: its scope was erased. skipped: the rule has no row about it, whatever its filter
    says. quarantined: the rule could not read it. undone: the firing that evaluated it was undone.
    Otherwise the command shows the delta that the episode made.

    With --json, each rule and channel is printed on a line.
    """
    settings = settings_of(config, state_dir)
    rules = rules_of(settings).of_episodes().rules
    outcome = asyncio.run(_read_outcome(settings, rules, _check_unicode(episode)))
    remedies = _remedies_for(outcome, rules, settings)
    rows = list(zip(outcome.decisions, remedies, strict=True))
    if json:
        print_json_lines(decision_document(*row) for row in rows)
    else:
        print_episode(episode, outcome.version)
        print_table(DECISION_COLUMNS, (decision_row(*row) for row in rows))


def _check_unicode(id: str) -> str:
    """Return an id; of bytes that are not valid Unicode, the error becomes one of wrong use."""
    id.encode()
    return id


async def _explain(settings: Settings, fact_id: str) -> tuple[Explanation, Versions]:
    async with open_facts(settings) as facts:
        explanation = await facts.why(fact_id)
    ids = [source.id for source in explanation.sources]
    by_rule = await _read_newest(settings, [_EVERYTHING], ids)
    return explanation, by_rule[_EVERYTHING.id]


async def _read_newest(
    settings: Settings, rules: Sequence[ConsolidationRule], ids: Sequence[str]
) -> dict[str, Versions]:
    """Return the newest versions of episodes that each rule selects, by the rule's id."""
    if not inspections_of(settings).episodes.exists():
        return {rule.id: {} for rule in rules}
    async with open_memory(settings) as memory:
        return {
            rule.id: {
                version.id: version for version in await memory.reread(rule, ids, upto=_NEWEST)
            }
            for rule in rules
        }


class _Outcome(NamedTuple):
    """The outcome of an episode.

    Attributes:
        version: Its newest version; None when it is no longer stored.
        decisions: The outcome, by rule and channel.
        held: The batches that await approval, by rule.
    """

    version: EpisodeVersion | None
    decisions: list[Decision]
    held: Mapping[str, HeldBatch]


def _remedies_for(
    outcome: _Outcome, rules: Sequence[ConsolidationRule], settings: Settings
) -> Iterator[str]:
    """Yield what would change each decision."""
    by_id = {rule.id: rule for rule in rules}
    tolerance = timedelta(seconds=settings.memory.future_tolerance)
    latest = microseconds(SystemClock().now() + tolerance)
    for decision in outcome.decisions:
        yield would_change(
            decision,
            by_id.get(decision.rule_id),
            in_memory=outcome.version is not None,
            held=outcome.held.get(decision.rule_id),
            latest=latest,
        )


async def _read_outcome(
    settings: Settings, rules: Sequence[ConsolidationRule], episode_id: str
) -> _Outcome:
    # Memory first: a version that a rule reads in between then has a row, and is not pending.
    newest = await _read_newest(settings, [_EVERYTHING, *rules], [episode_id])
    version = newest.pop(_EVERYTHING.id).get(episode_id)
    versions = {id: found[episode_id] for id, found in newest.items() if episode_id in found}
    held: Mapping[str, HeldBatch] = {}
    async with open_facts_if_present(settings) as facts:
        if facts is None:
            decisions = _before_any_firing(episode_id, rules, versions)
        else:
            decisions = await facts.reads.decisions_of(episode_id, rules, versions)
            held = await facts.ledger.held()
    if version is None and not any(decision.row for decision in decisions):
        remedy = "neither the episodes nor the ledger have it"
        raise NoInputError(episode_id, remedy)
    return _Outcome(version, decisions, held)


def _before_any_firing(
    episode_id: str, rules: Sequence[ConsolidationRule], versions: Mapping[str, EpisodeVersion]
) -> list[Decision]:
    reads = [Read(rule, None, versions.get(rule.id)) for rule in rules]
    return [
        Decision(
            read.rule.id,
            channel,
            fact_id_of(channel, episode_id),
            outcome_of(None, read, ()),
            unrecorded=read.unrecorded,
        )
        for read in reads
        for channel in sorted(read.rule.then_emits)
    ]
