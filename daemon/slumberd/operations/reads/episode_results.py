"""Say in one word and in one sentence what became of an episode under each rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, assert_never, get_args

import orjson
from pydantic import JsonValue

from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.consolidation.state import IN_TRIPLES, NOTHING_SAID
from slumberd.logs.lines import printable
from slumberd.model.extraction import Extraction, ModelSettings
from slumberd.model.firing import HeldBatch
from slumberd.model.rule import ConsolidationRule, Cron, Every
from slumberd.model.stages import STAGE_CHANNELS
from slumberd.operations.forms import Result

SOON: frozenset[Became] = frozenset({"unanswered", "due"})
"""The words for an episode that a running daemon evaluates without more episodes."""

_MOST_NAMED = 10
"""The most facts that a sentence names. The list of facts has all."""

_SENTENCES: Mapping[Became, str] = {
    "held": "waiting: a batch of the rule awaits approval",
    "unanswered": "waiting: the language model has not answered yet",
    "due": "due: the rule has enough episodes to fire",
    "paused": "waiting: a person paused the rule",
    "disabled": "not read: the rule is disabled",
    "withdrawn": "nothing: its speaker took it back",
    "undone": "nothing: the firing that evaluated it was undone",
    "erased": "nothing: its scope was erased",
    "skipped": "not read: the rule has passed it without an evaluation",
    "below_salience": "held back: its salience is below what the rule requires",
    "speaker_unknown": "taken from nobody: the speaker is not known",
}
"""The sentences that are always the same."""

_ABOUT_FACTS: Mapping[Became, str] = {
    "learned": "learned",
    "known": "known already",
    "retracted": "retracted",
    "replaced": "not current any more",
}
"""How the sentences about facts begin."""

_NO_EFFECTS: Mapping[str, str] = {
    "noop": "nothing: its intent is noop",
    "unresolved": "nothing retracted: it retracts nothing that is known yet",
    "unsaid": "nothing: its newest version does not say it",
}


STATES_ITSELF = "filtered: the rule reads only texts that state nothing themselves"
"""The sentence about a rule that extracts, and an episode that states a triple."""


Became = Literal[
    "learned",
    "retracted",
    "replaced",
    "known",
    "no_effect",
    "quarantined",
    "held",
    "unanswered",
    "due",
    "waiting",
    "paused",
    "said_nothing",
    "speaker_unknown",
    "other_speaker",
    "filtered",
    "below_salience",
    "withdrawn",
    "undone",
    "erased",
    "disabled",
    "skipped",
]
"""What became of an episode, in one word. Of several words, the one that comes first here counts:
what was learned first, then what may still come, then why nothing was learned."""


_ORDER: Mapping[str, int] = {word: place for place, word in enumerate(get_args(Became))}

NO_RULE = "not read: no rule reads episodes"
"""The sentence without any rule."""


class FactOfEpisode(Result):
    """What an episode says in one fact.

    Attributes:
        id: The fact.
        subject: What it is about; None for a fact of text alone.
        predicate: What it says of it.
        object: The value; any JSON.
        became: What became of it: ``learned``, ``retracted``, ``replaced`` or ``known``.
        current: Whether it is current.
    """

    id: str
    subject: JsonValue = None
    predicate: JsonValue = None
    object: JsonValue = None
    became: Became
    current: bool


class ResultOfRule(Result):
    """What became of an episode under one rule, in one channel of facts.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        became: What became of it, in one word, such as ``learned`` or ``said_nothing``.
        sentence: The same in a sentence.
        facts: What it says, fact by fact.
    """

    rule_id: str
    channel: str
    became: Became
    sentence: str
    facts: list[FactOfEpisode]


class Unmet(NamedTuple):
    """Why a filter does not select an episode.

    Attributes:
        became: Whether its speaker is the reason.
        sentence: The reason for a person.
    """

    became: Literal["filtered", "speaker_unknown", "other_speaker"]
    sentence: str


class Circumstances(NamedTuple):
    """What the sentences need beside the decisions.

    Attributes:
        rules: The loaded rules, by id.
        held: The batches that await approval, or were approved, by rule.
        pending: How many versions are pending for a rule, where one of its decisions is pending;
            0 where the rule has read that version since.
        unmet: Why a rule's filter does not select the episode, where it does not.
        paused: The ids of the paused rules.
        withdrawn: Whether the speaker took the episode back.
    """

    rules: Mapping[str, ConsolidationRule]
    held: Mapping[str, HeldBatch] = {}
    pending: Mapping[str, int] = {}
    unmet: Mapping[str, Unmet] = {}
    paused: Collection[str] = ()
    withdrawn: bool = False


def results_of(decisions: Sequence[Decision], known: Circumstances) -> list[ResultOfRule]:
    """Return what became of an episode under each rule, in each channel of facts.

    Args:
        decisions: The outcomes of the episode, by rule and channel.
        known: What the sentences need beside them.
    """
    facts = (each for each in decisions if each.channel not in STAGE_CHANNELS)
    return [
        _result(rule_id, channel, [*found], known)
        for (rule_id, channel), found in groupby(facts, lambda one: (one.rule_id, one.channel))
    ]


def best_of(results: Sequence[ResultOfRule]) -> ResultOfRule | None:
    """Return the result that says most about an episode; None when no rule reads episodes."""
    return min(
        results, key=lambda one: (_ORDER[one.became], one.sentence == STATES_ITSELF), default=None
    )


def _result(
    rule_id: str, channel: str, decisions: Sequence[Decision], known: Circumstances
) -> ResultOfRule:
    # The episode's own decision is about its triples, when these have facts of their own.
    own = [each for each in decisions if each.reason != IN_TRIPLES] or decisions
    found = sorted(((_became(each, known), each) for each in own), key=lambda one: _ORDER[one[0]])
    facts = [_fact(each, became) for became, each in found if became in _ABOUT_FACTS]
    if facts:  # "I like tea" takes back a dislike that nobody has stated; that says nothing
        found = [(word, each) for word, each in found if not _is_aside(word, each)]
    sentences = [_sentence(*pair, known) for pair in _by_word(found)]
    return ResultOfRule(
        rule_id=rule_id,
        channel=channel,
        became=found[0][0],
        sentence="; ".join(sentences),
        facts=facts,
    )


def _is_aside(became: Became, decision: Decision) -> bool:
    """Return whether an extractor retracts something beside what a text states, in vain."""
    return became == "no_effect" and "extracted" in decision.said


def _by_word(
    found: Sequence[tuple[Became, Decision]],
) -> Iterator[tuple[Became, list[Decision]]]:
    for became, several in groupby(found, lambda one: one[0]):
        yield became, [decision for _, decision in several]


def _words_about(decision: Decision, fact: FactOfEpisode) -> str:
    """Return the triple of a fact in one line, or the ids that a retraction without one names."""
    if fact.became == "retracted" and fact.subject is None and decision.row is not None:
        return printable(", ".join(decision.row.record.replaces)) or _words_of(fact)
    return _words_of(fact)


def _words_of(fact: FactOfEpisode) -> str:
    """Return the triple of a fact in one line; other words for a fact of text alone."""
    if fact.subject is None:
        return "its text"
    parts = (fact.subject, fact.predicate, fact.object)
    return printable(" ".join(_text_of(part) for part in parts if part is not None))


def _text_of(part: object) -> str:
    return part if isinstance(part, str) else orjson.dumps(part).decode()


def _fact(decision: Decision, became: Became) -> FactOfEpisode:
    # What a language model ends has empty parts.
    said = {part: decision.said.get(part) or None for part in ("subject", "predicate")}
    said["object"] = decision.said.get("object")
    return FactOfEpisode(id=decision.fact_id, **said, became=became, current=decision.is_current)


def _became(decision: Decision, known: Circumstances) -> Became:
    if decision.outcome == "pending":
        return _became_pending(decision, known.rules.get(decision.rule_id), known)
    if known.withdrawn:
        return "withdrawn"
    match decision.outcome:
        case "filtered":
            unmet = known.unmet.get(decision.rule_id)
            return unmet.became if unmet else "filtered"
        case "add" | "update" | "delete" | "noop":
            return _became_resolved(decision)
        case "quarantined" | "erased" | "skipped" | "undone":
            return decision.outcome
        case _:
            assert_never(decision.outcome)


def _became_pending(
    decision: Decision, rule: ConsolidationRule | None, known: Circumstances
) -> Became:
    held = known.held.get(decision.rule_id)
    if held is not None and not held.approved:
        return "held"
    if rule is not None and not rule.enabled:
        return "disabled"
    if decision.unrecorded:
        return "unanswered"
    if decision.rule_id in known.paused:
        return "paused"
    match rule.due if rule is not None else None:
        case Every(count) if not 0 < known.pending.get(decision.rule_id, 1) < count:
            return "due"
        case _:
            return "waiting"


def _became_resolved(decision: Decision) -> Became:
    """Return what became of a claim that the precedence rule resolved, or that a gate held back."""
    row = decision.row
    if row is not None and row.event == "gated":
        return "below_salience"
    if decision.outcome == "delete":
        return "retracted"
    if decision.reason == NOTHING_SAID:
        return "said_nothing"
    if decision.is_current:
        return "known" if decision.outcome == "noop" else "learned"
    if decision.removed_by is not None:
        return "replaced"
    # Another claim of the version states the same, and its fact is the fact of both.
    if decision.reason == "known":
        return "known"
    return "replaced" if row is not None and row.asserts else "no_effect"


def _sentence(became: Became, decisions: Sequence[Decision], known: Circumstances) -> str:
    first = decisions[0]
    rule = known.rules.get(first.rule_id)
    match became:
        case "learned" | "known" | "retracted" | "replaced":
            return f"{_ABOUT_FACTS[became]}: {_names(decisions, became)}"
        case "no_effect":
            return _NO_EFFECTS.get(first.reason, "nothing: what it retracts is newer, or is gone")
        case "quarantined":
            return ": ".join(filter(None, (became, first.reason, printable(first.detail))))
        case "waiting":
            return _describe_cadence(rule, known.pending.get(first.rule_id, 1))
        case "said_nothing":
            return _describe_silence(rule)
        case "filtered" | "speaker_unknown" | "other_speaker":
            return _describe_filtered(rule, known.unmet.get(first.rule_id))
        case _:
            return _SENTENCES[became]


def _names(decisions: Sequence[Decision], became: Became) -> str:
    facts = [_words_about(each, _fact(each, became)) for each in decisions]
    more = len(facts) - _MOST_NAMED
    return ", ".join(facts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _describe_cadence(rule: ConsolidationRule | None, pending: int) -> str:
    match rule.due if rule is not None else None:
        case Every(count):
            return f"waiting: the rule fires every {count:,} episodes, {pending:,} pending"
        case Cron(expression, timezone):
            zone = f" {timezone}" if timezone else ""
            return f"waiting: the rule fires by cron {expression}{zone}, {pending:,} pending"
        case _:
            return "waiting: the rule has not read it yet"


def _describe_silence(rule: ConsolidationRule | None) -> str:
    parts = rule.extract.parts if rule is not None and rule.extract is not None else ()
    found = dict.fromkeys(_describe_nothing(part) for part in parts) or (
        "the rule found no triple",
    )
    return f"nothing said: {', and '.join(found)}"


def _describe_nothing(extraction: Extraction) -> str:
    match extraction.extractor:
        case ModelSettings():
            return "the language model found no triple that counts"
        case FunctionExtractor():
            return "the function found no triple"
        case _:
            return "no pattern matched"


def _describe_filtered(rule: ConsolidationRule | None, unmet: Unmet | None) -> str:
    if unmet is not None:
        return unmet.sentence
    if rule is None:
        return "filtered: the rule is no longer loaded, and its filter did not select it"
    return f"filtered: the rule's filter needs `{printable(rule.when_filter)}`"
