"""Find what keeps rules from learning: filters, missing answers, transcripts that nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.daemon.erased_content import read_or_none
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.extraction import Turn
from slumberd.model.health import Finding
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LATEST, FactStoreStatus, Readings
from slumberd.operations.transcript_counts import TranscriptCounts, read_transcript_counts
from slumberd.rules.filters.conditions import STATED, condition_of, describe_unmet
from slumberd.storage.inspections import EpisodeInspection
from slumberd.tools.diagnostics.status import read_spending
from slumberd.tools.diagnostics.store_checks import (
    DoctorContext,
    check_person,
    paused_or_none,
    started_recently,
)
from slumberd.workers.scheduling.rule_status import start_of

_NEEDS_TRIPLES = (
    "put triples with the episodes; or add a rule with the stage `extract`, which finds them in"
    " text"
)
_NO_PATTERN = "no pattern matched: add a pattern, or let a language model read the text"
_NO_RESULT = "the function found no triple: correct the function, or add a pattern"
_NO_ANSWER = "the language model found no triple that counts: change its prompt or its predicates"

ANSWER_PATIENCE = timedelta(hours=1)
"""How long an episode may wait for an answer before a check reports it."""

WINDOW_ROWS = 256
"""Rows of the log after a rule's watermark that a check reads, in some 10 to 200 ms."""

LATELY = timedelta(days=7)
"""Older counts are about a transcript that nobody continues."""

MOST_UNKNOWN = 0.1
"""More than this share of lines that a hook does not know is a finding."""

_NAMED_KINDS = 3
_UNKNOWN_FORM = (
    "upgrade slumberd, and report the version: its hooks do not know this form of transcript"
)


def check_learning(context: DoctorContext) -> Iterator[Finding]:
    """Find enabled rules that learned nothing from the last episodes that they read."""
    loaded = context.rules.of_episodes().rules if context.rules else ()
    rules = [rule for rule in loaded if rule.enabled]
    seen = read_or_none(context.stores.facts.status)
    if not rules or seen is None:
        return
    readings = {rule.id: seen.readings.get(rule.id, Readings()) for rule in rules}
    learns = any(one.learned or one.unchanged for one in readings.values())
    silent = [rule for rule in rules if _is_silent(readings[rule.id], others_learn=learns)]
    if not silent:
        return
    # Another finding says that nobody is the person.
    known = {finding.subject for finding in check_person(context)}
    latest = read_or_none(partial(context.stores.episodes.latest_versions, LATEST)) or []
    for rule in silent:
        subject = f"rule {rule.id}"
        if subject not in known:
            problem, remedy = _explain(rule, readings[rule.id], latest)
            yield Finding("rule.learns_nothing", subject, problem, remedy)


def _is_silent(readings: Readings, *, others_learn: bool) -> bool:
    """Return whether a rule learns nothing, unless it leaves the episodes to rules that do."""
    selected = readings.said_nothing + readings.quarantined
    return readings.learns_nothing and (not others_learn or selected > readings.filtered)


def _explain(
    rule: ConsolidationRule, readings: Readings, latest: Sequence[EpisodeVersion]
) -> tuple[str, str]:
    """Return the problem of a rule that learned nothing, and its remedy."""
    parts = {
        "filtered": readings.filtered,
        "said nothing": readings.said_nothing,
        "are in quarantine": readings.quarantined,
    }
    counts = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    problem = f"learned nothing from the last {readings.read:,} episodes that it read: {counts}"
    most = max(parts, key=lambda name: parts[name])
    if most == "are in quarantine":
        return problem, "`slumberd quarantine ls` says why"
    if most == "said nothing":
        return problem, _remedy_of_silence(rule)
    needs = _needs_of(rule, latest)
    if needs:
        return f"{problem}; its filter needs {needs}", _NEEDS_TRIPLES
    asked = f"`slumberd why-not {latest[-1].id}`" if latest else "`slumberd why-not EPISODE`"
    return problem, f"{asked} names the condition of its filter; correct the filter or the episodes"


def _remedy_of_silence(rule: ConsolidationRule) -> str:
    parts = () if rule.extract is None else rule.extract.parts
    if rule.extract is not None and rule.extract.asks_model:
        return _NO_ANSWER
    called = parts and all(isinstance(part.extractor, FunctionExtractor) for part in parts)
    return _NO_RESULT if called else _NO_PATTERN


def _needs_of(rule: ConsolidationRule, latest: Sequence[EpisodeVersion]) -> str:
    """Return what a filter needs that none of the latest episodes states; empty for nothing."""
    condition = condition_of(rule.when_filter)
    if condition is None or not latest:
        return ""
    stated = {name for one in latest for name in STATED if one.metadata.get(name) is not None}
    unstated = set(STATED) - stated
    unmet = [one.text for one in condition.singles() if one.columns and one.columns <= unstated]
    return " and ".join(describe_unmet(condition, unmet, unstated))


def check_waiting_answers(context: DoctorContext) -> Iterator[Finding]:
    """Find rules whose first pending episode waits for an answer for too long.

    Only the first pending rows of a rule are read; see `WINDOW_ROWS`.
    """
    paused = paused_or_none(context.settings)
    if context.rules is None or paused is None or started_recently(context):
        return
    seen = read_or_none(context.stores.facts.status)
    for rule in context.rules.rules:
        if rule.enabled and rule.id not in paused and rule.extract and rule.extract.asks_model:
            yield from _check_answers(rule, seen, context)


def _check_answers(
    rule: ConsolidationRule, seen: FactStoreStatus | None, context: DoctorContext
) -> Iterator[Finding]:
    watermark = seen.watermarks.get(rule.id) if seen else None
    first = _first_unanswered(context.stores.episodes, rule, start_of(rule, watermark))
    if first is None:
        return
    # A firing that reads nothing has no batch: the last batch is the last progress.
    progress = seen.fired.get(rule.id, 0) if seen else 0
    since = instant(max(first.at, progress))
    if context.now - since > ANSWER_PATIENCE:
        yield _waiting_finding(rule, since, context)


def _first_unanswered(
    episodes: EpisodeInspection, rule: ConsolidationRule, after: int | None
) -> Turn | None:
    if after is None:
        return None
    # None for a filter that fails, too: the firings of the rule report it.
    return read_or_none(partial(episodes.first_unanswered, rule, after=after, limit=WINDOW_ROWS))


def _waiting_finding(rule: ConsolidationRule, since: datetime, context: DoctorContext) -> Finding:
    spending = read_or_none(partial(read_spending, context.settings, context.now))
    spent = spending.exceeded if spending else None
    problem = f"episodes wait for the answer of the language model since {since:%Y-%m-%d %H:%M:%S}Z"
    if spent is not None:
        problem += f": the budget of {spent.limit:g} {spent.kind} a day is spent"
        remedy = f"wait until tomorrow UTC, or raise `language_model.budget.{spent.kind}`"
    elif context.daemon is not None:
        reason = "see `answers.waiting` or `answers.failed` in the daemon's log for the reason"
        remedy = f"{reason}; `slumberd extract {rule.id}` asks now"
    else:
        remedy = f"start the daemon, or `slumberd extract {rule.id}`"
    return Finding("answers.waiting", f"rule {rule.id}", problem, remedy)


def check_transcripts(directory: Path, now: datetime) -> Iterator[Finding]:
    """Find transcripts without turns of a person, and agents whose lines are not known.

    Args:
        directory: The state directory.
    """
    since = (now - LATELY).timestamp()
    found = [one for one in read_transcript_counts(directory) if one.at >= since]
    silent: dict[str, list[TranscriptCounts]] = {}
    for one in found:
        if one.assistant and not one.person:
            silent.setdefault(_agent_of(one), []).append(one)
    for agent, some in silent.items():
        turns = sum(one.assistant for one in some)
        problem = (
            f"{_count_in_words(some)} with {turns} {'turn' if turns == 1 else 'turns'} of the agent"
            f" and none of a person; the latest is {some[-1].transcript}"
        )
        yield Finding("transcripts.no_person", agent, problem, _UNKNOWN_FORM)
    yield from _find_unknown(found)


def _find_unknown(found: Sequence[TranscriptCounts]) -> Iterator[Finding]:
    by_agent: dict[str, list[TranscriptCounts]] = {}
    for one in found:
        by_agent.setdefault(_agent_of(one), []).append(one)
    for agent, some in by_agent.items():
        kinds = Counter[str]()
        for one in some:
            kinds.update(one.unknown)
        lines, unknown = sum(one.lines for one in some), kinds.total()
        if unknown > lines * MOST_UNKNOWN:
            named = ", ".join(kind for kind, _ in kinds.most_common(_NAMED_KINDS))
            problem = (
                f"hooks do not know {unknown} of {lines} lines ({unknown / max(lines, 1):.0%}) in"
                f" {_count_in_words(some)}, such as: {named}"
            )
            yield Finding("transcripts.unknown", agent, problem, _UNKNOWN_FORM)


def _agent_of(one: TranscriptCounts) -> str:
    return f"{one.coding_agent} {one.agent_version}".strip()


def _count_in_words(some: Sequence[TranscriptCounts]) -> str:
    return "1 transcript" if len(some) == 1 else f"{len(some)} transcripts"
