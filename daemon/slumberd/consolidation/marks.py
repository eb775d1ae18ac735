"""Make the candidates of marks, summaries and weights: what a rule's stages say of episodes."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, assert_never

from slumberd.consolidation.claim import assertion_of, statements_of
from slumberd.consolidation.incoming import FUTURE, Candidate, ClaimCandidate, Unsaid
from slumberd.consolidation.stages.duplicates import no_vectors
from slumberd.consolidation.stages.entries import USUAL_IMPORTANCE, Entry, Summary, SummaryFailure
from slumberd.consolidation.stages.marking import (
    MarkChanges,
    Summariser,
    decide_marks,
    staged_entry,
    summarise_by_sentences,
)
from slumberd.consolidation.stages.similar_texts import Embed
from slumberd.consolidation.stages.summary import estimate, summarise_by_function, summary_of
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    PERSON,
    EpisodeVersion,
    due_at,
)
from slumberd.model.extraction import (
    ModelSummariser,
    RecordedSummary,
    SummaryQuestion,
    summary_key,
    summary_key_by_node,
    turn_of,
)
from slumberd.model.fact import Fact
from slumberd.model.rule import ConsolidationRule, RuleFunction
from slumberd.model.salience import importance_of
from slumberd.model.scope import canonical, channel_of, episode_id_of, fact_id_of, owner_of
from slumberd.model.stages import (
    ALWAYS_DUE,
    MARKS,
    REWEIGHTED,
    SUMMARIES,
    SUMMARISES,
    WEIGHTS,
    KnownMark,
    KnownMarks,
    KnownWeight,
    Mark,
    StagedEntry,
    Weight,
)

_ASSERTED = ("intent", "subject", "predicate", "object", "replaces")

Owner = tuple[str, str]
"""A user and an agent."""


def known_marks(
    facts: Iterable[Fact], rule_id: str, *, anew: bool = False
) -> dict[Owner, KnownMarks]:
    """Return what is in force, by user and agent, as one rule sees it.

    Args:
        facts: The current facts of the channels ``marks``, ``summaries`` and ``weights``.
        anew: Whether the rule decides about its own marks again.
    """
    by_owner: dict[Owner, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_owner[fact.user, fact.agent].append(fact)
    return {owner: _known_to(rule_id, found, anew=anew) for owner, found in by_owner.items()}


def _known_to(rule_id: str, facts: Sequence[Fact], *, anew: bool) -> KnownMarks:
    own = {fact.id for fact in facts if is_of_rule(fact, rule_id)}
    marks = [(mark_in(fact), fact.id in own) for fact in facts if channel_of(fact.id) == MARKS]
    weights = [
        (weight_in(fact), fact.id in own) for fact in facts if channel_of(fact.id) == WEIGHTS
    ]
    return KnownMarks(
        {mark.id: KnownMark(mark, is_own) for mark, is_own in marks},
        {
            fact.id: tuple(fact.payload.get(SUMMARISES, ()))
            for fact in facts
            if fact.id in own and channel_of(fact.id) == SUMMARIES
        },
        {weight.id: KnownWeight(weight, is_own) for weight, is_own in weights},
        anew,
    )


def mark_in(fact: Fact) -> Mark:
    """Return the mark that a fact of the channel ``marks`` holds."""
    payload = fact.payload
    return Mark(
        id=episode_id_of(fact.id),
        kind=payload.get("predicate", "archived"),
        object=payload.get("object", ""),
        digest=payload.get("digest", ""),
        confidence=fact.confidence,
    )


def weight_in(fact: Fact) -> Weight:
    """Return the weight that a fact of the channel ``weights`` holds."""
    payload = fact.payload
    return Weight(episode_id_of(fact.id), payload.get("object", 1.0), payload.get("digest", ""))


def is_of_rule(fact: Fact, rule_id: str) -> bool:
    """Return whether a rule promoted a fact."""
    return any(entry.get("rule_id") == rule_id for entry in fact.lineage)


class EvaluatedMarks(NamedTuple):
    """What a rule's stages change.

    Attributes:
        candidates: By channel: summaries, then marks.
        unsummarised: The groups of episodes that could not be summarised.
        questions: The summaries that the rule's language model is to write.
        staged: What is kept of each episode, if the known marks ask for it.
    """

    candidates: Mapping[str, list[Candidate]]
    unsummarised: Sequence[SummaryFailure] = ()
    questions: Sequence[SummaryQuestion] = ()
    staged: Sequence[StagedEntry] = ()


def evaluate_marks(  # noqa: PLR0913 # what a firing knows
    versions: Sequence[EpisodeVersion],
    rule: ConsolidationRule,
    known: KnownMarks,
    at: datetime,
    *,
    embed: Embed = no_vectors,
    recorded: Mapping[str, RecordedSummary] = {},
    person: Collection[str] = PERSON,
    future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
) -> EvaluatedMarks:
    """Return what a rule's stages change about the marks of one user and agent.

    Args:
        versions: The newest versions of one user's and agent's episodes: all that the rule
            selects, and those that have a mark or a weight. Unreadable ones keep what they have.
        known: The marks in force.
        at: Now.
        embed: Returns the vectors of texts, for a stage that compares them.
        recorded: The summaries that the rule's language model wrote, by key.
        person: The speakers whose words are those of the user.
        future_tolerance_seconds: A version that was set aside is evaluated so long before its
            instant.

    Raises:
        ExtraMissingError: A stage needs an extra that is not installed.
    """
    readable = {version.id: version for version in versions if not version.fault}
    selected = [entry_of(version) for version in readable.values() if version.matched]
    # An episode without a mark or weight, which is only read because it changed, is left out.
    marked = known.marks.keys() | known.weights.keys()
    unselected = {id for id in marked if id in readable and not readable[id].matched}
    questions: list[SummaryQuestion] = []
    decide = partial(
        decide_marks,
        selected,
        rule.stages,
        at=at,
        unselected=unselected,
        summariser=_summariser_of(rule, readable, recorded, questions, person),
        division="whole" if isinstance(rule.summariser, ModelSummariser) else "even",
        embed=embed,
    )
    changes = decide(known=known)
    if known.anew and questions:
        # What a summary hides stays hidden until the new summary is there.
        wanted = [*questions]
        changes = decide(known=known._replace(anew=False))
        questions[:] = wanted
    found = _candidates_of(changes, readable, rule.id, known)
    staged = changes.staged
    if questions:
        staged = [one._replace(due=ALWAYS_DUE) for one in staged]
    staged = [*staged, *_to_come(versions, known, future_tolerance_seconds)]
    return EvaluatedMarks(found, changes.unsummarised, questions, staged)


def _to_come(
    versions: Sequence[EpisodeVersion], known: KnownMarks, tolerance_seconds: float
) -> Iterator[StagedEntry]:
    """Yield what is kept of the versions whose instant is still to come: when they are due."""
    if known.stages_entries:
        for version in versions:
            if version.fault.startswith(f"{FUTURE}:"):
                due = due_at(version.at, tolerance_seconds)
                yield staged_entry(version.id, due, known)


def _candidates_of(
    changes: MarkChanges,
    readable: Mapping[str, EpisodeVersion],
    rule_id: str,
    known: KnownMarks,
) -> dict[str, list[Candidate]]:
    """Return the candidates of changes, by channel."""
    summaries: list[Candidate] = [
        _summary(readable[summary.ids[0]], rule_id, summary)
        for summary in changes.summaries.values()
    ]
    summaries += _dropped_summaries(changes.dropped, readable, rule_id, known)
    marks: list[Candidate] = [_mark(readable[mark.id], rule_id, mark) for mark in changes.marks]
    marks += [_unsaid(readable[id], rule_id, fact_id_of(MARKS, id), id) for id in changes.unmarked]
    weights: list[Candidate] = [
        _weight(readable[weight.id], rule_id, weight) for weight in changes.weights
    ]
    weights += [
        _unsaid(readable[id], rule_id, fact_id_of(WEIGHTS, id), id) for id in changes.unweighted
    ]
    return {SUMMARIES: summaries, MARKS: marks, WEIGHTS: weights}


def _summariser_of(
    rule: ConsolidationRule,
    versions: Mapping[str, EpisodeVersion],
    recorded: Mapping[str, RecordedSummary],
    questions: list[SummaryQuestion],
    person: Collection[str],
) -> Summariser:
    """Return what summarises for a rule; it adds what is not recorded to the questions."""
    match rule.summariser:
        case None:
            return summarise_by_sentences
        case RuleFunction():
            return partial(_summarise, rule.summariser, versions, person)
        case ModelSummariser():
            return partial(_look_up, rule.summariser, versions, recorded, questions)
        case _:
            assert_never(rule.summariser)


def _look_up(  # four of them are bound
    model: ModelSummariser,
    versions: Mapping[str, EpisodeVersion],
    recorded: Mapping[str, RecordedSummary],
    questions: list[SummaryQuestion],
    entries: Sequence[Entry],
    max_tokens: int,
) -> Summary | SummaryFailure:
    """Return the recorded summary of entries; one without a text when there is none yet."""
    turns = tuple(turn_of(versions[entry.id]) for entry in entries)
    key = summary_key(model.digest, turns, max_tokens)
    by_node = summary_key_by_node(model.digest, turns, max_tokens)
    found = recorded.get(key) or recorded.get(by_node)
    if found is None:
        questions.append(SummaryQuestion(key, turns, max_tokens))
        return summary_of(entries, "", 0)
    if found.status != "ok":
        return SummaryFailure(tuple(entry.id for entry in entries), found.problem)
    return summary_of(entries, found.text, estimate(found.text))


def _summarise(
    function: RuleFunction,
    versions: Mapping[str, EpisodeVersion],
    person: Collection[str],
    entries: Sequence[Entry],
    max_tokens: int,
) -> Summary | SummaryFailure:
    turns = [turn_of(versions[entry.id], person) for entry in entries]
    return summarise_by_function(function, entries, turns, max_tokens=max_tokens)


def entry_of(version: EpisodeVersion) -> Entry:
    """Return a readable version as stages see it."""
    return Entry(
        id=version.id,
        session=version.session,
        content=version.content,
        at=version.at,
        importance=importance_of(version.metadata, USUAL_IMPORTANCE),
        triple=_triple_of(version),
        digest=_digest_of(version),
    )


def _triple_of(version: EpisodeVersion) -> str | None:
    """Return what a version states, as one text; None when it states nothing."""
    stated = [
        {key: statement.metadata[key] for key in _ASSERTED if key in statement.metadata}
        for statement in statements_of(version)
    ]
    return canonical(stated) if any(stated) else None


def _digest_of(version: EpisodeVersion) -> str:
    said = canonical([version.content, version.metadata])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _mark(version: EpisodeVersion, rule_id: str, mark: Mark) -> ClaimCandidate:
    says = {
        "subject": mark.id, "predicate": mark.kind, "object": mark.object,
        "confidence": mark.confidence,
    }  # fmt: skip
    stated = version._replace(content="", metadata=says)
    return _candidate(stated, rule_id, MARKS, {"digest": mark.digest})


def _weight(version: EpisodeVersion, rule_id: str, weight: Weight) -> ClaimCandidate:
    says = {"subject": weight.id, "predicate": REWEIGHTED, "object": weight.factor}
    stated = version._replace(content="", metadata=says)
    return _candidate(stated, rule_id, WEIGHTS, {"digest": weight.digest})


def _summary(version: EpisodeVersion, rule_id: str, summary: Summary) -> ClaimCandidate:
    stated = version._replace(content=summary.text, metadata={})
    return _candidate(stated, rule_id, SUMMARIES, {SUMMARISES: [*summary.ids]})


def _candidate(
    version: EpisodeVersion, rule_id: str, channel: str, beside: Mapping[str, Any]
) -> ClaimCandidate:
    claim = assertion_of(version, channel)
    claim = claim._replace(payload={**claim.payload, **beside})
    return ClaimCandidate(
        fact_id=claim.fact_id,
        owner=claim.owner,
        rule_id=rule_id,
        at=version.at,
        eid=version.id,
        claim=claim,
        version=version.seq,
        session=version.session,
    )


def _dropped_summaries(
    dropped: Iterable[str],
    readable: Mapping[str, EpisodeVersion],
    rule_id: str,
    known: KnownMarks,
) -> list[Unsaid]:
    """Return what withdraws summaries; each by the first of its episodes that can be read."""
    found: list[Unsaid] = []
    for fact_id in dropped:
        # A summary is withdrawn because of an episode that can be read.
        version = next(readable[id] for id in known.summaries[fact_id] if id in readable)
        found.append(_unsaid(version, rule_id, fact_id, episode_id_of(fact_id)))
    return found


def ended_marks(versions: Iterable[EpisodeVersion], rule_id: str) -> list[Candidate]:
    """Return what withdraws a rule's marks of some episodes."""
    return [_unsaid(one, rule_id, fact_id_of(MARKS, one.id), one.id) for one in versions]


def _unsaid(version: EpisodeVersion, rule_id: str, fact_id: str, eid: str) -> Unsaid:
    return Unsaid(
        fact_id=fact_id,
        owner=owner_of(version.user, version.agent, channel_of(fact_id)),
        rule_id=rule_id,
        at=version.at,
        eid=eid,
        version=version.seq,
        session=version.session,
    )
