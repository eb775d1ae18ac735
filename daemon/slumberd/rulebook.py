"""Load rule files: all of them or none, with every mistake of every file at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import orjson
from pydantic import AfterValidator, Field, model_validator

from slumberd.core.cadence import MOST_EVERY, cadence_of
from slumberd.core.rule import ConsolidationRule
from slumberd.documents import Document, Trail, dotted, read_document
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
        generation: How many sets a daemon has gone by, this one included.
    """

    rules: tuple[ConsolidationRule, ...]
    multi_valued: Mapping[str, frozenset[str]]
    sources: Mapping[str, str]
    generation: int = 1

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


class LimitsForm(Form):
    """How many facts one batch may take out, as a file has it."""

    max_deletes: int | None = Field(default=None, ge=0)
    max_delete_fraction: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class RuleForm(Form):
    """One rule, as a file has it."""

    id: Name
    cadence: CadenceForm
    when_filter: str
    then_emits: Annotated[list[Name], Field(min_length=1), AfterValidator(_without_repeats)]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: LimitsForm = LimitsForm()

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
    return [path for path in names if _is_rule_file(path)]


def _is_rule_file(path: Path) -> bool:
    hidden, test = path.name.startswith("."), path.stem.endswith(".test")
    return path.suffix in (".yaml", ".yml") and not hidden and not test


def load_rule_files(
    files: Sequence[Path], *, check_filter: CheckFilter, check_cron: CheckCron, timezone: str
) -> RuleSet:
    """Load rule files as one set; arguments and errors as in `load_rules`."""
    sheets = [_sheet(file) for file in files]
    places = [place for sheet in sheets for place in _places(sheet)]
    mistakes = [
        *(mistake for sheet in sheets for mistake in sheet.mistakes),
        *_repeated_ids(places),
        *_refused_filters(places, check_filter),
        *_refused_crons(places, check_cron, timezone),
    ]
    if mistakes:
        raise ConfigurationError(_in_order(mistakes, files))
    return _rule_set([(sheet.document.file, _form(sheet)) for sheet in sheets])


class _Sheet(NamedTuple):
    """One file, and what is wrong with its form."""

    document: Document
    mistakes: list[Mistake]


def _sheet(file: Path) -> _Sheet:
    document = read_document(file)
    return _Sheet(document, mistakes_of(document, RuleFile))


class _Place(NamedTuple):
    """Where a rule stands; parts of it may be wrong, or not there."""

    sheet: _Sheet
    trail: Trail

    def text(self, *keys: str) -> str:
        """Return a text of the rule; empty when it is none, or known to be wrong."""
        trail = (*self.trail, *keys)
        value = self.sheet.document.at(trail)
        wrong = any(mistake.path == dotted(trail) for mistake in self.sheet.mistakes)
        return value if isinstance(value, str) and not wrong else ""

    def mistake(self, *keys: str, problem: str) -> Mistake:
        """Return a mistake in a part of the rule."""
        return self.sheet.document.mistake((*self.trail, *keys), problem)


def _places(sheet: _Sheet) -> list[_Place]:
    rules = sheet.document.at(("rules",))
    count = len(rules) if isinstance(rules, list) else 0
    return [_Place(sheet, ("rules", number)) for number in range(count)]


def _repeated_ids(places: Iterable[_Place]) -> Iterator[Mistake]:
    first: dict[str, _Place] = {}
    for place in places:
        id = place.text("id")
        other = first.setdefault(id, place)
        if id and other is not place:
            there = other.mistake("id", problem="")
            where = f"{there.file}:{there.line}:{there.column}"
            problem = f"id {id!r} is taken by the rule at {where}; give one another id"
            yield place.mistake("id", problem=problem)


def _refused_filters(places: Iterable[_Place], check: CheckFilter) -> Iterator[Mistake]:
    for place in places:
        try:
            check(place.text("id"), place.text("when_filter"))
        except FilterError as error:
            problem = error.violation.removeprefix("when_filter").lstrip(" :")
            yield place.mistake("when_filter", problem=problem)


def _refused_crons(places: Iterable[_Place], check: CheckCron, timezone: str) -> Iterator[Mistake]:
    for place in places:
        try:
            if expression := place.text("cadence", "cron"):
                check(expression, place.text("cadence", "timezone") or timezone)
        except ValueError as error:
            yield place.mistake("cadence", "cron", problem=str(error))


def _in_order(mistakes: Iterable[Mistake], files: Sequence[Path]) -> list[Mistake]:
    order = {str(file): number for number, file in enumerate(files)}
    return sorted(mistakes, key=lambda m: (order[m.file], m.line, m.column))


def _form(sheet: _Sheet) -> RuleFile:
    return RuleFile.model_validate(sheet.document.value)


def _rule_set(forms: Sequence[tuple[str, RuleFile]]) -> RuleSet:
    rules = [form.rule() for _, file in forms for form in file.rules]
    sources = {form.id: source for source, file in forms for form in file.rules}
    return RuleSet(
        rules=tuple(sorted(rules, key=lambda rule: rule.id)),
        multi_valued=_multi_valued(file for _, file in forms),
        sources=sources,
    )


def _multi_valued(files: Iterable[RuleFile]) -> dict[str, frozenset[str]]:
    union: dict[str, frozenset[str]] = {}
    for file in files:
        for name, channel in file.channels.items():
            union[name] = union.get(name, frozenset()).union(channel.multi_valued)
    return union
