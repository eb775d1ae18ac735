"""Find misspelled channels and predicates under ``channels`` of rule files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slumberd.config.validation import nearest, shown
from slumberd.config.yaml_reader import Document, Trail, Value
from slumberd.errors import Mistake
from slumberd.model.episode import are_near
from slumberd.model.rule import FACTS

Sheet = tuple[Document, Sequence[Mistake]]
"""A rule file, and the mistakes of its form."""

_COMPARED = re.compile(
    r"\bpredicate\s*(?:[=!]=?|<>|is(?:\s+not)?|(?:not\s+)?in)\s*"
    r"(?P<texts>\((?:\s*(?:'[^']*'|\"[^\"]*\")\s*,?)+\)|'[^']*'|\"[^\"]*\")",
    re.IGNORECASE,
)
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class _Entry(NamedTuple):
    """One predicate of a list of ``multi_valued``."""

    document: Document
    trail: Trail
    channel: str
    predicate: str

    def mistake(self, problem: str) -> Mistake:
        """Return a mistake at the predicate."""
        return self.document.mistake(self.trail, f"predicate {shown(self.predicate)} {problem}")


def misspelled_channels(sheets: Sequence[Sheet], *, whole: bool) -> Iterator[Mistake]:
    """Yield probable misspellings under ``channels`` of rule files.

    Args:
        sheets: The files.
        whole: Whether these are all rule files. If not, an unknown channel is a mistake only when
            its name resembles one of theirs.
    """
    named = _predicates_by_channel(sheets)
    whole = whole and all(document.readable for document, _ in sheets)
    for document, wrong in sheets:
        yield from _check_channels(document, [*named], whole=whole)
        paths = {mistake.path for mistake in wrong}
        yield from (slip for slip in _check_predicates(document, named) if slip.path not in paths)


def _check_channels(
    document: Document, emitted: Sequence[str], *, whole: bool
) -> Iterator[Mistake]:
    for name in _mapping(document.at(("channels",))):
        if name in emitted:
            continue
        close = nearest(name, emitted)
        if close or whole:
            remedy = (
                f"did you mean {close!r}?" if close else f"rules emit into {', '.join(emitted)}"
            )
            problem = f"no rule emits into channel {shown(name)}; {remedy}"
            yield document.mistake(("channels", name), problem, at="key")


def _check_predicates(document: Document, named: Mapping[str, set[str]]) -> Iterator[Mistake]:
    for channel, form in _mapping(document.at(("channels",))).items():
        listed = _mapping(form).get("multi_valued")
        trail = ("channels", channel, "multi_valued")
        entries = [
            _Entry(document, (*trail, number), channel, predicate)
            for number, predicate in enumerate(listed if isinstance(listed, list) else ())
            if isinstance(predicate, str)
        ]
        yield from _find_slips(entries, named.get(channel, set()))


def _find_slips(entries: Sequence[_Entry], named: set[str]) -> Iterator[Mistake]:
    listed = [entry.predicate for entry in entries]
    for number, entry in enumerate(entries):
        predicate = entry.predicate
        meant = [name for name in sorted(named) if name not in listed and are_near(predicate, name)]
        if predicate in listed[:number]:
            yield entry.mistake("is given twice; leave one of them out")
        elif "," in predicate:
            yield entry.mistake("contains a comma; write each predicate as an entry of its own")
        elif predicate != predicate.strip():
            yield entry.mistake("begins or ends with a space; leave the space out")
        elif predicate not in named and meant:
            other = f"a rule that emits into {entry.channel!r} names {meant[0]!r}"
            yield entry.mistake(f"is named by no rule, and {other}; did you mean that?")


def _predicates_by_channel(sheets: Sequence[Sheet]) -> dict[str, set[str]]:
    """Return the predicates that filters compare with, by channel that their rules emit into."""
    found: dict[str, set[str]] = {FACTS: set()}  # manual edits write there without a rule
    for document, _ in sheets:
        rules = document.at(("rules",))
        for rule in map(_mapping, rules if isinstance(rules, list) else ()):
            queries = rule.get("when_filter"), rule.get("filter_cypher")
            named = {predicate for query in queries for predicate in _predicates_in(query)}
            for channel in _emitted_channels(rule):
                found.setdefault(channel, set()).update(named)
    return found


def _emitted_channels(rule: Mapping[str, Value]) -> list[str]:
    match rule.get("then_emits"):
        case list() as channels:
            return [str(channel) for channel in channels]
        case str() as channel:  # a mistake that is reported elsewhere
            return [channel]
        case _:
            return [FACTS] if rule.get("kind") == "graph" else []


def _predicates_in(query: Value) -> Iterator[str]:
    for comparison in _COMPARED.finditer(query) if isinstance(query, str) else ():
        for single, double in _TEXT.findall(comparison["texts"]):
            yield single or double


def _mapping(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}
