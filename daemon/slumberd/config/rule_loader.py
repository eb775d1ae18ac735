"""Load rule files: all of them or none, with every mistake of every file at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import orjson

from slumberd.config.credentials import is_installed
from slumberd.config.file_access import open_to_everybody
from slumberd.config.rule_channels import misspelled_channels
from slumberd.config.rule_schema import RuleFile
from slumberd.config.validation import mistakes_of
from slumberd.config.yaml_reader import Document, Trail, dotted, read_document
from slumberd.errors import (
    ConfigurationError,
    ExtraMissingError,
    FilterError,
    Mistake,
    UnportableCypherError,
    UsageError,
)
from slumberd.model.rule import ConsolidationRule

CheckFilter = Callable[[str, str], None]
"""Takes a rule's id and its ``when_filter``; raises `FilterError` when it must not run."""

CheckCron = Callable[[str, str], None]
"""Takes a cron expression and a time zone; raises ValueError when it is none."""

_EXTRAS = {("similarity",): "vectors", ("salience", "about"): "vectors"}
"""Keys of a rule, and the optional part of slumberd that each needs."""


CheckCypher = Callable[[str], None]
"""Takes a ``filter_cypher``; raises `UnportableCypherError` when it must not run, `UsageError` when
there is no graph, and `ExtraMissingError` when none can be asked."""


def _as_it_is(_: str) -> None:
    """Take a query as it is."""


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

    def of_episodes(self) -> RuleSet:
        """Return the set without the rules of graphs."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.reads_episodes))

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with any rule or channel, but not with the files."""
        channels = {name: sorted(predicates) for name, predicates in self.multi_valued.items()}
        content = [[rule.content_hash for rule in self.rules], channels]
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]


def load_rules(
    directory: Path,
    *,
    check_filter: CheckFilter,
    check_cron: CheckCron,
    timezone: str,
    check_cypher: CheckCypher = _as_it_is,
    by_root: bool | None = None,
) -> RuleSet:
    """Load the rule files of a directory.

    Args:
        directory: Must be there; without a rule file in it, the set is empty.
        check_filter: Called for each rule that is well formed.
        check_cron: Called for each of them that has a cron cadence.
        timezone: Of cron rules that name none.
        check_cypher: Called for each rule of a graph that is well formed.
        by_root: Whether root loads them, who must not obey everybody; None looks.

    Raises:
        ConfigurationError: With every mistake of every file.
    """
    rule_files(directory)
    return load_rule_files(
        [directory],
        check_filter=check_filter,
        check_cron=check_cron,
        timezone=timezone,
        check_cypher=check_cypher,
        by_root=by_root,
    )


def rule_files(directory: Path) -> list[Path]:
    """Return the rule files of a directory, by name: not the hidden ones, and no rule tests.

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
    paths: Sequence[Path],
    *,
    check_filter: CheckFilter,
    check_cron: CheckCron,
    timezone: str,
    check_cypher: CheckCypher = _as_it_is,
    by_root: bool | None = None,
) -> RuleSet:
    """Load files, and what directories hold, as one set; the rest as in `load_rules`.

    A file that is named may be a link. What lies in a directory must not lead out of it.
    """
    sheets = [sheet for path in paths for sheet in _sheets(path, by_root)]
    # A file that is named alone may speak of channels that rules of other files emit into.
    whole = any(path.is_dir() for path in paths)
    places = [place for sheet in sheets for place in _places(sheet)]
    mistakes = [
        *(mistake for sheet in sheets for mistake in sheet.mistakes),
        *_repeated_ids(places),
        *_mixed_cadences(places),
        *_refused_filters(places, check_filter),
        *_refused_crons(places, check_cron, timezone),
        *_without_their_extra(places),
        *_refused_cyphers(places, check_cypher),
        *misspelled_channels([(sheet.document, sheet.mistakes) for sheet in sheets], whole=whole),
    ]
    if mistakes:
        raise ConfigurationError(_in_order(mistakes))
    return _rule_set([(sheet.document.file, _form(sheet)) for sheet in sheets])


class _Sheet(NamedTuple):
    """One file, and what is wrong with its form."""

    document: Document
    mistakes: list[Mistake]


def _sheets(path: Path, by_root: bool | None) -> list[_Sheet]:
    if not path.is_dir():
        return [_sheet(path, None, by_root)]
    try:
        files = rule_files(path)
    except ConfigurationError as error:
        return [_blank(path, error.mistakes)]
    mistakes = list(open_to_everybody(path, by_root=by_root))
    blank = [_blank(path, mistakes)] if mistakes else []
    home = path.resolve()
    return [*blank, *(_sheet(file, home, by_root) for file in files)]


def _blank(directory: Path, mistakes: list[Mistake]) -> _Sheet:
    """Return what stands for a directory that has mistakes itself."""
    return _Sheet(Document(str(directory), None, False, {}, {}, ()), mistakes)


def _sheet(file: Path, inside: Path | None, by_root: bool | None) -> _Sheet:
    document = read_document(file, inside=inside, by_root=by_root)
    return _Sheet(document, mistakes_of(document, RuleFile))


class _Place(NamedTuple):
    """Where a rule stands; parts of it may be wrong, as the paths in `wrong` are, or not there."""

    document: Document
    trail: Trail
    wrong: Set[str]

    def text(self, *keys: str) -> str:
        """Return a text of the rule; empty when it is none, or known to be wrong."""
        trail = (*self.trail, *keys)
        value = self.document.at(trail)
        return value if isinstance(value, str) and dotted(trail) not in self.wrong else ""

    def mistake(self, *keys: str, problem: str) -> Mistake:
        """Return a mistake in a part of the rule."""
        return self.document.mistake((*self.trail, *keys), problem)

    def filter_mistake(self, error: FilterError) -> Mistake:
        """Return a mistake in the filter, at the place in the file that it names."""
        return self._mistake_at("when_filter", error.problem, error.position)

    def cypher_mistake(self, error: UnportableCypherError) -> Mistake:
        """Return a mistake in the query, at the place in the file that it names."""
        problem = f"{error.rule}: {error.problem}"
        return self._mistake_at("filter_cypher", problem, error.position)

    def _mistake_at(self, key: str, problem: str, position: int | None) -> Mistake:
        whole = self.mistake(key, problem=problem)
        if position is None:
            return whole
        place = self.document.within((*self.trail, key), position)
        if place is None:
            return replace(whole, problem=f"at character {position + 1} of the filter: {problem}")
        return replace(whole, line=place.line, column=place.column)


def _places(sheet: _Sheet) -> list[_Place]:
    rules = sheet.document.at(("rules",))
    count = len(rules) if isinstance(rules, list) else 0
    wrong = {mistake.path for mistake in sheet.mistakes}
    return [_Place(sheet.document, ("rules", number), wrong) for number in range(count)]


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


def _mixed_cadences(places: Iterable[_Place]) -> Iterator[Mistake]:
    """Tell of cadences with keys that exclude each other where a wrong value hides it."""
    for place in places:
        keys = place.document.at((*place.trail, "cadence"))
        mistake = place.mistake("cadence", problem="exactly one of 'every' and 'cron' is needed")
        mixed = isinstance(keys, dict) and {"every", "cron"} <= keys.keys()
        if mixed and mistake.path not in place.wrong:
            yield mistake


def _refused_filters(places: Iterable[_Place], check: CheckFilter) -> Iterator[Mistake]:
    for place in places:
        try:
            check(place.text("id"), place.text("when_filter"))
        except FilterError as error:
            yield from map(place.filter_mistake, (error, *error.further))


def _refused_crons(places: Iterable[_Place], check: CheckCron, timezone: str) -> Iterator[Mistake]:
    for place in places:
        try:
            if expression := place.text("cadence", "cron"):
                check(expression, place.text("cadence", "timezone") or timezone)
        except ValueError as error:
            yield place.mistake("cadence", "cron", problem=str(error))


def _without_their_extra(places: Iterable[_Place]) -> Iterator[Mistake]:
    for place in places:
        for keys, extra in _EXTRAS.items():
            if place.document.at((*place.trail, *keys)) not in (None, "") and not is_installed(
                extra
            ):
                problem = f"{keys[-1]!r} needs the extra: `pip install 'slumberd[{extra}]'`"
                yield place.mistake(*keys, problem=problem)


def _refused_cyphers(places: Iterable[_Place], check: CheckCypher) -> Iterator[Mistake]:
    for place in places:
        try:
            if place.text("kind") == "graph" and (query := place.text("filter_cypher")):
                check(query)
        except UnportableCypherError as error:
            yield place.cypher_mistake(error)
        except (ExtraMissingError, UsageError) as error:
            if place.document.at((*place.trail, "enabled")) is not False:
                yield place.mistake("kind", problem=str(error))


def _in_order(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Return mistakes in the order of the files, then of places; each once."""
    order = {file: number for number, file in enumerate(dict.fromkeys(m.file for m in mistakes))}
    return sorted(dict.fromkeys(mistakes), key=lambda m: (order[m.file], m.line, m.column))


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
