"""Find rules that learn nothing from what they read, and say why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from slumberd.diagnostics.store_checks import DoctorContext, check_person
from slumberd.extraction.function import FunctionExtractor
from slumberd.filters.conditions import STATED, condition_of, describe_unmet
from slumberd.model.episode import EpisodeVersion
from slumberd.model.health import Finding
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LATEST, Readings
from slumberd.service.erased_content import read_or_none

_NEEDS_TRIPLES = (
    "put triples with the episodes; or add a rule with the stage `extract`, which finds them in"
    " text"
)
_NO_PATTERN = "no pattern matched: add a pattern, or let a language model read the text"
_NO_RESULT = "the function found no triple: correct the function, or add a pattern"
_NO_ANSWER = "the language model found no triple that counts: change its prompt or its predicates"


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
