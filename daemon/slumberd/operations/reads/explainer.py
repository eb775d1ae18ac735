"""Read from open stores why a fact is current, and what became of an episode."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from slumberd.consolidation.claim import states_nothing
from slumberd.consolidation.explanation import Decision, Read, outcome_of
from slumberd.logs.lines import printable
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import FilterError, NoInputError
from slumberd.model.firing import HeldBatch
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter, fact_id_of
from slumberd.operations.episodes import newest_versions
from slumberd.operations.reads.episode_results import (
    STATES_ITSELF,
    Circumstances,
    ResultOfRule,
    Unmet,
    results_of,
)
from slumberd.operations.reads.explanations import (
    ExplainedFact,
    decision_document,
    describe_withdrawn,
    would_change,
)
from slumberd.rules.filters.conditions import STATED, Condition, condition_of, describe_unmet
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore


class ExplainedEpisode(NamedTuple):
    """What became of an episode.

    Attributes:
        version: Its newest version; None when it is no longer stored.
        decisions: The outcome, by rule and channel.
        held: The batches that await approval, by rule.
    """

    version: EpisodeVersion | None
    decisions: list[Decision]
    held: Mapping[str, HeldBatch]

    def remedies(self, rules: Sequence[ConsolidationRule], latest: datetime) -> Iterator[str]:
        """Yield what would change each decision.

        Args:
            latest: The latest instant that is not in the future.
        """
        by_id = {rule.id: rule for rule in rules}
        withdrawn = self.version.withdrawn if self.version is not None else ""
        for decision in self.decisions:
            if withdrawn and decision.outcome != "pending":
                yield describe_withdrawn(withdrawn)
                continue
            yield would_change(
                decision,
                by_id.get(decision.rule_id),
                in_memory=self.version is not None,
                held=self.held.get(decision.rule_id),
                latest=microseconds(latest),
            )


class EpisodeOutcome(NamedTuple):
    """What became of an episode under every rule, and what would change it.

    Attributes:
        version: Its newest version; None when it is no longer stored.
        decisions: The outcome, by rule and channel, with what would change it.
        results: The same in words, by rule and channel of facts.
    """

    id: str
    version: EpisodeVersion | None
    decisions: list[tuple[Decision, str]]
    results: list[ResultOfRule]

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "id": self.id,
            "rules": [decision_document(*pair) for pair in self.decisions],
            "results": [result.document() for result in self.results],
        }


async def explain_fact(
    facts: EngineFactStore,
    memory: EngineMemoryStore | None,
    fact_id: str,
    *,
    content: bool,
    scope: ScopeFilter | None = None,
) -> ExplainedFact:
    """Return why a fact is current, or why it is not.

    Args:
        memory: The episodes; None when there are none yet.
        content: Whether to include what the episodes say.
        scope: Only what episodes of this scope say is included; None for those of all.

    Raises:
        NoInputError: Neither the facts nor the ledger have the id.
    """
    explanation = await facts.why(fact_id)
    ids = [source.id for source in explanation.sources]
    newest = await newest_versions(memory, ids)
    # Another owner may have put an episode of that id since.
    kept = {id: found for id, found in newest.items() if scope is None or scope.holds(found)}
    return ExplainedFact(explanation, kept, content=content)


async def read_outcome(
    memory: EngineMemoryStore | None,
    facts: EngineFactStore | None,
    rules: Sequence[ConsolidationRule],
    episode_id: str,
) -> ExplainedEpisode:
    """Return the outcome of an episode under every rule.

    Args:
        memory: The episodes; None when there are none yet.
        facts: The facts; None when slumberd has not made them yet.
        rules: The rules that read episodes.

    Raises:
        NoInputError: Neither the episodes nor the ledger have it.
    """
    # Memory first: a version that a rule reads in between then has a row, and is not pending.
    version = (await newest_versions(memory, [episode_id])).get(episode_id)
    newest = {rule.id: await newest_versions(memory, [episode_id], rule) for rule in rules}
    versions = {id: found[episode_id] for id, found in newest.items() if episode_id in found}
    held: Mapping[str, HeldBatch] = {}
    if facts is None:
        decisions = _before_any_firing(episode_id, rules, versions)
    else:
        decisions = await facts.reads.decisions_of(episode_id, rules, versions)
        held = await facts.watermarks.held()
    if version is None and not any(decision.row for decision in decisions):
        remedy = "neither the episodes nor the ledger have it"
        raise NoInputError(episode_id, remedy)
    return ExplainedEpisode(version, decisions, held)


async def read_results(
    memory: EngineMemoryStore | None,
    facts: EngineFactStore | None,
    rules: Sequence[ConsolidationRule],
    found: ExplainedEpisode,
    paused: Collection[str] = (),
) -> list[ResultOfRule]:
    """Return in words what became of an episode under each rule, in each channel of facts.

    Args:
        memory: The episodes; None when there are none yet.
        facts: The facts; None when slumberd has not made them yet.
        rules: The rules that `found` was read with.
        found: The outcome of the episode.
        paused: The ids of the paused rules.
    """
    by_id = {rule.id: rule for rule in rules}
    outcomes = {decision.rule_id: decision.outcome for decision in found.decisions}
    known = Circumstances(by_id, found.held, paused=paused)
    if memory is not None and found.version is not None:
        known = known._replace(
            withdrawn=bool(found.version.withdrawn),
            pending=await _count_pending(
                memory,
                facts,
                [id for id, one in outcomes.items() if one == "pending"],
                found.version.seq,
            ),
            unmet={
                id: await explain_filter(memory, by_id[id], found.version)
                for id, outcome in outcomes.items()
                if outcome == "filtered" and id in by_id
            },
        )
    return results_of(found.decisions, known)


MOST_PENDING = 10_000
"""Pending versions that are counted for a rule."""


async def _count_pending(
    memory: EngineMemoryStore, facts: EngineFactStore | None, rule_ids: Sequence[str], seq: int
) -> dict[str, int]:
    """Return how many versions are pending for rules to which a version was pending.

    Args:
        seq: The log row of that version. A rule that has passed it meanwhile gets 0.
    """
    if not rule_ids:
        return {}
    marks = await facts.watermarks.positions() if facts is not None else {}
    starts = {id: marks[id][0].seq if id in marks else 0 for id in rule_ids}
    return {
        id: await memory.pending(start, at_most=MOST_PENDING, rule_id=id) if start < seq else 0
        for id, start in starts.items()
    }


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


_MOST_CONDITIONS = 3

_OF_STATEMENTS = frozenset({*STATED, "confidence", "metadata"})
"""The columns of what an episode states itself."""


async def explain_filter(
    memory: EngineMemoryStore, rule: ConsolidationRule, version: EpisodeVersion
) -> Unmet:
    """Return which conditions of a rule's filter an episode does not meet.

    Args:
        memory: The episodes.
        rule: A rule whose filter does not select the episode.
        version: The newest version of the episode.
    """
    condition = condition_of(rule.when_filter)
    needs = f"`{printable(rule.when_filter)}`"
    if condition is None:
        return Unmet("filtered", f"filtered: the rule's filter needs {needs}")
    try:
        unmet = {
            single.text
            for single in condition.singles()
            if not await _meets(memory, rule, single.text, version)
        }
        if _is_person_missing(condition, unmet) and not await _meets(
            memory, rule, "is_person", version
        ):
            return _explain_speaker(version.speaker)
    except FilterError:
        return Unmet("filtered", f"filtered: the rule's filter needs {needs}")
    if _reads_texts_only(rule, version, condition, unmet):
        return Unmet("filtered", STATES_ITSELF)
    lacking = describe_unmet(condition, unmet, _unstated_in(version))
    words = " and ".join(lacking[:_MOST_CONDITIONS]) or needs
    return Unmet("filtered", f"filtered: the rule's filter needs {words}")


def _reads_texts_only(
    rule: ConsolidationRule, version: EpisodeVersion, condition: Condition, unmet: Collection[str]
) -> bool:
    """Return whether a rule that extracts leaves out an episode since it states something."""
    missing = [one for one in condition.singles() if one.text in unmet]
    return (
        rule.extract is not None
        and condition.joined != "or"
        and not states_nothing(version.metadata)
        and bool(missing)
        and all(
            one.columns <= _OF_STATEMENTS and one.text.casefold().endswith("is null")
            for one in missing
        )
    )


async def _meets(
    memory: EngineMemoryStore, rule: ConsolidationRule, condition: str, version: EpisodeVersion
) -> bool:
    plain = {"when_filter": condition, "extract": None, "salience": None}
    asked = rule.model_copy(update=plain)
    found = await newest_versions(memory, [version.id], asked)
    return any(one.matched for one in found.values())


def _is_person_missing(condition: Condition, unmet: Collection[str]) -> bool:
    """Return whether a condition on who spoke must hold, and does not."""
    needed = condition.parts if condition.joined == "and" else (condition,)
    return any(one.columns == {"is_person"} and one.text in unmet for one in needed)


def _explain_speaker(speaker: str | None) -> Unmet:
    if speaker is None:
        return Unmet("speaker_unknown", "taken from nobody: the speaker is not known")
    said = f"{speaker!r:.100} said this"
    return Unmet("other_speaker", f"filtered: the rule takes only what the person says; {said}")


def _unstated_in(version: EpisodeVersion) -> set[str]:
    columns = {name for name in STATED if version.metadata.get(name) is None}
    return columns | ({"speaker"} if version.speaker is None else set())
