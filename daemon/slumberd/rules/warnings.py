"""Find what is valid in rule files, but probably not what their author meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from slumberd.model.episode import INTERFACES, are_near
from slumberd.model.errors import Mistake
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import FACTS
from slumberd.rules.filters.doubts import find_doubts, needs_stated_triple
from slumberd.rules.rule_loader import RulePlace, RuleSet, rule_files

_NEEDS_TRIPLE = (
    "selects only episodes that state a triple themselves, and 'extract' reads only those that do"
    " not: it never finds anything; take the conditions on subject, predicate and object away"
)


def find_warnings(rules: RuleSet) -> list[Mistake]:
    """Return warnings about rules, with their places, in order of file and line.

    They do not have what the rules name that is outdated.
    """
    found = [*_find_doubtful_channels(rules)]
    for rule in rules.rules:
        place = rules.places.get(rule.id)
        if place is not None:
            found += _find_in_rule(rule, place)
    return sorted(found, key=lambda warning: (warning.file, warning.line, warning.column))


def find_empty_directory(directory: Path) -> list[Mistake]:
    """Return a warning when a directory has no rule file."""
    if rule_files(directory):
        return []
    problem = "has no rule files, so no rule fires; their names end in .yaml"
    others = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    found = f", and it has {others[0]!r}" if others else ""
    return [Mistake(str(directory), 0, 0, "", f"{problem}{found}")]


def _find_in_rule(rule: ConsolidationRule, place: RulePlace) -> Iterator[Mistake]:
    for doubt in find_doubts(rule.when_filter):
        yield place.mistake_within("when_filter", doubt.problem, doubt.position)
    if rule.extract is None:
        return
    if needs_stated_triple(rule.when_filter):
        yield place.mistake("when_filter", problem=_NEEDS_TRIPLE)
    for trail in place.forms_of("extract"):
        speakers = place.document.at((*place.trail, *trail, "speakers"))
        for name in speakers if isinstance(speakers, dict) else ():
            if name in INTERFACES:
                problem = (
                    f"{name!r} names an interface, not a speaker; write 'user', or leave the entry"
                    " out: the person is {user} without it"
                )
                yield place.mistake(*trail, "speakers", name, problem=problem)


def _find_doubtful_channels(rules: RuleSet) -> Iterator[Mistake]:
    """Find channels whose names resemble that of a channel which is used more."""
    emitted = Counter(channel for rule in rules.rules for channel in rule.then_emits)
    configured = {
        name
        for place in rules.places.values()
        if isinstance(found := place.document.at(("channels",)), dict)
        for name in found
    }
    for rule in rules.rules:
        place = rules.places.get(rule.id)
        for number, channel in enumerate(rule.then_emits if place is not None else ()):
            if channel == FACTS or channel in configured:
                continue
            better = [FACTS, *sorted(configured), *_used_more(emitted, channel)]
            if place is not None and (meant := _nearest_channel(channel, better)):
                named = "nothing else names" if emitted[channel] == 1 else "only rules name"
                problem = (
                    f"emits into channel {channel!r}, which {named}; did you mean {meant!r}? The"
                    " facts of a channel have ids of their own, and replace none of another channel"
                )
                yield place.mistake("then_emits", number, problem=problem)


def _used_more(emitted: Mapping[str, int], channel: str) -> list[str]:
    return sorted(name for name, count in emitted.items() if count > emitted[channel])


def _nearest_channel(channel: str, known: list[str]) -> str:
    """Return the channel that was probably meant; empty for a name that is no typing error."""
    near = (name for name in known if name != channel and are_near(channel, name))
    return next((name for name in near if not _are_a_series(channel, name)), "")


def _are_a_series(name: str, other: str) -> bool:
    """Return whether names are told apart by a number or a short part, as ``team_a`` is.

    Short words are near to many others, so they count as told apart, too.
    """
    stems = {_END_OF_SERIES.sub("", one) for one in (name, other)}
    return len(stems) == 1 or max(len(name), len(other)) < _SHORTEST_SLIP


_END_OF_SERIES = re.compile(r"[-_.]?\d+$|[-_.]\w{1,2}$")
_SHORTEST_SLIP = 5
