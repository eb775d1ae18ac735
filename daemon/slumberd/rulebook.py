"""Load rule files: all of them or none, with every mistake of every file at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import orjson
from pydantic import AfterValidator, Field, model_validator

from slumberd.core.cadence import MOST_EVERY, Cron, cadence_of
from slumberd.core.rule import ConsolidationRule
from slumberd.documents import Document, Trail, Value, dotted, read_document
from slumberd.errors import ConfigurationError, FilterError, Mistake
from slumberd.forms import Form, Name, TimeZone, mistakes_of

CheckFilter = Callable[[str, str], None]
"""Takes a rule's id and its ``when_filter``; raises `FilterError` when it must not run."""

CheckCron = Callable[[str, str], None]
"""Takes a cron expression and a time zone; raises ValueError when it is none."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a daemon.

    Attributes:
        rules: By id; disabled ones included.
        multi_valued: The predicates that may hold several objects at once, by channel.
        sources: The file that each rule stands in, by its id.
    """

    rules: tuple[ConsolidationRule, ...]
    multi_valued: Mapping[str, frozenset[str]]
    sources: Mapping[str, str]

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with any rule or channel, but not with the files."""
        channels = {name: sorted(predicates) for name, predicates in self.multi_valued.items()}
        content = [[rule.content_hash for rule in self.rules], channels]
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]


class CadenceForm(Form):
    """A rule's ``cadence``, as a file has it."""

    every: int | None = Field(default=None, ge=1, le=MOST_EVERY)
    cron: str | None = None
    timezone: TimeZone | None = None

    @model_validator(mode="after")
    def _is_one_cadence(self) -> Self:
        cadence_of(self.model_dump(exclude_unset=True))
        return self


def _without_repeats(channels: list[str]) -> list[str]:
    if repeated := [name for n, name in enumerate(channels) if name in channels[:n]]:
        raise ValueError(f"channel {repeated[0]!r} is given twice; once is enough")
    return channels


class RuleForm(Form):
    """One rule, as a file has it."""

    id: Name
    cadence: CadenceForm
    when_filter: str
    then_emits: Annotated[list[Name], Field(min_length=1), AfterValidator(_without_repeats)]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"

    def rule(self) -> ConsolidationRule:
        """Return the rule that is meant."""
        return ConsolidationRule.model_validate(self.model_dump(exclude_unset=True))


class ChannelForm(Form):
    """What a file says of one channel."""

    multi_valued: list[Annotated[str, Field(min_length=1)]]


class RuleFile(Form):
    """One rule file."""

    rules: list[RuleForm]
    channels: dict[Name, ChannelForm] = Field(default_factory=dict)


def load_rules(
    directory: Path, *, check_filter: CheckFilter, check_cron: CheckCron, timezone: str
) -> RuleSet:
    """Load every ``*.yaml`` and ``*.yml`` of a directory, but for hidden ones.

    Args:
        directory: Must be there; without a rule file in it, the set is empty.
        check_filter: Called for each rule that is well formed.
        check_cron: Called for each of them that has a cron cadence.
        timezone: Of cron rules that name none.

    Raises:
        ConfigurationError: With every mistake of every file.
    """
    return load_rule_files(
        rule_files(directory), check_filter=check_filter, check_cron=check_cron, timezone=timezone
    )


def rule_files(directory: Path) -> list[Path]:
    """Return the rule files of a directory, by name.

    Raises:
        ConfigurationError: There is no such directory, or it may not be read.
    """
    try:
        names = sorted(directory.iterdir())
    except OSError as error:
        problem = f"cannot be read as a directory of rules: {error.strerror}; see 'rules_dir'"
        raise ConfigurationError([Mistake(str(directory), 0, 0, "", problem)]) from error
    return [p for p in names if p.suffix in (".yaml", ".yml") and not p.name.startswith(".")]


def load_rule_files(
    files: Sequence[Path], *, check_filter: CheckFilter, check_cron: CheckCron, timezone: str
) -> RuleSet:
    """Load rule files as one set; arguments and errors as in `load_rules`."""
    sheets = [_sheet(file) for file in files]
    entries = [entry for sheet in sheets for entry in _entries(sheet)]
    mistakes = [
        *(mistake for sheet in sheets for mistake in sheet.mistakes),
        *_repeated_ids(entries),
        *_refused_filters(entries, check_filter),
        *_refused_crons(entries, check_cron, timezone),
    ]
    if mistakes:
        raise ConfigurationError(_in_order(mistakes, files))
    return _rule_set(entries, sheets)


class _Sheet(NamedTuple):
    """One file, and what is wrong with its form."""

    document: Document
    mistakes: list[Mistake]


class _Entry(NamedTuple):
    """A well-formed rule and where it stands."""

    rule: ConsolidationRule
    document: Document
    trail: Trail

    def mistake(self, *keys: str, problem: str) -> Mistake:
        return self.document.mistake((*self.trail, *keys), problem)


def _sheet(file: Path) -> _Sheet:
    document = read_document(file)
    return _Sheet(document, mistakes_of(document, RuleFile))


def _entries(sheet: _Sheet) -> Iterator[_Entry]:
    """Yield the rules of a file that nothing is wrong with, whatever is with others."""
    for number, rule in enumerate(_listed(sheet.document.value)):
        trail: Trail = ("rules", number)
        if not any(mistake.path.startswith(dotted(trail)) for mistake in sheet.mistakes):
            form = RuleForm.model_validate(rule)
            yield _Entry(form.rule(), sheet.document, trail)


def _listed(value: Value) -> list[Value]:
    rules = value.get("rules") if isinstance(value, dict) else None
    return rules if isinstance(rules, list) else []


def _repeated_ids(entries: Iterable[_Entry]) -> Iterator[Mistake]:
    first: dict[str, _Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.rule.id, entry)
        if other is not entry:
            there = f"{other.document.file}:{other.document.place((*other.trail, 'id')).line}"
            problem = f"id {entry.rule.id!r} is taken by the rule in {there}; give one another id"
            yield entry.mistake("id", problem=problem)


def _refused_filters(entries: Iterable[_Entry], check: CheckFilter) -> Iterator[Mistake]:
    for entry in entries:
        try:
            check(entry.rule.id, entry.rule.when_filter)
        except FilterError as error:
            problem = error.violation.removeprefix("when_filter").lstrip(" :")
            yield entry.mistake("when_filter", problem=problem)


def _refused_crons(entries: Iterable[_Entry], check: CheckCron, timezone: str) -> Iterator[Mistake]:
    for entry in entries:
        cadence = entry.rule.due
        if not isinstance(cadence, Cron):
            continue
        try:
            check(cadence.expression, cadence.timezone or timezone)
        except ValueError as error:
            yield entry.mistake("cadence", "cron", problem=str(error))


def _in_order(mistakes: Iterable[Mistake], files: Sequence[Path]) -> list[Mistake]:
    order = {str(file): number for number, file in enumerate(files)}
    return sorted(mistakes, key=lambda m: (order[m.file], m.line, m.column))


def _rule_set(entries: Sequence[_Entry], sheets: Sequence[_Sheet]) -> RuleSet:
    rules = sorted((entry.rule for entry in entries), key=lambda rule: rule.id)
    sources = {entry.rule.id: entry.document.file for entry in entries}
    return RuleSet(tuple(rules), _multi_valued(sheets), sources)


def _multi_valued(sheets: Sequence[_Sheet]) -> dict[str, frozenset[str]]:
    union: dict[str, frozenset[str]] = {}
    for sheet in sheets:
        for name, channel in RuleFile.model_validate(sheet.document.value).channels.items():
            union[name] = union.get(name, frozenset()).union(channel.multi_valued)
    return union
