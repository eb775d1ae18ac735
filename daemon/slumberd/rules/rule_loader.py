"""Load rule files as one set, and report all mistakes of all files at once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import orjson

from slumberd.consolidation.extraction.vocabulary import Vocabulary
from slumberd.model.episode import are_near
from slumberd.model.errors import (
    ConfigurationError,
    ExtraMissingError,
    FilterError,
    Mistake,
    UnportableCypherError,
    UsageError,
)
from slumberd.model.extraction import Extraction, ModelSettings
from slumberd.model.predicates import ManyBut, Several, document_of
from slumberd.model.rule import CADENCE_KEYS, ONE_CADENCE, ConsolidationRule
from slumberd.model.scope import FACTS
from slumberd.rules.file_access import (
    check_world_writable,
    is_installed,
    read_text,
    unreadable_error,
)
from slumberd.rules.filters.conditions import are_disjoint
from slumberd.rules.function_loader import Functions
from slumberd.rules.pattern_loader import combined_extraction, extraction_of, model_extraction
from slumberd.rules.rule_schema import AnyRuleForm, RuleFile, RuleForm
from slumberd.rules.stage_schema import ExtractForm
from slumberd.rules.validation import format_value, mistakes_of, nearest
from slumberd.rules.vocabulary_loader import conversation_extraction, vocabulary_of
from slumberd.rules.yaml_reader import (
    Document,
    Trail,
    Value,
    dotted_path,
    read_document,
    read_document_text,
)

CheckFilter = Callable[[str, str], None]
"""Takes the id and ``when_filter`` of a rule; raises `FilterError` when the filter is invalid."""

CheckCron = Callable[[str, str], None]
"""Takes a cron expression and a time zone; raises ValueError when one is invalid."""

CheckCypher = Callable[[str], None]
"""Takes a ``filter_cypher``; raises `UnportableCypherError` when the query is not portable,
`UsageError` when no graph is configured, and `ExtraMissingError` without the extra ``graph``."""

CheckModel = Callable[[], None]
"""Checks that language models can be asked; raises `UsageError` or `ExtraMissingError`."""

_EXTRAS = {("similarity",): "vectors", ("salience", "about"): "vectors"}
"""The extra that a key of a rule needs, by the path of the key."""

HEURISTIC = "heuristic"
"""The name of the extractor ``conversation`` in slumberd 0.2.0."""

_COMPARED = re.compile(
    r"\bpredicate\s*(?:[=!]=?|<>|is(?:\s+not)?|(?:not\s+)?in)\s*"
    r"(?P<texts>\((?:\s*(?:'[^']*'|\"[^\"]*\")\s*,?)+\)|'[^']*'|\"[^\"]*\")",
    re.IGNORECASE,
)
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def _accept_cypher(_: str) -> None:
    """Accept any query."""


def _accept_model() -> None:
    """Accept any rule that asks a language model."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a daemon.

    Attributes:
        rules: All rules, disabled ones too, by id.
        multi_valued: The predicates that may hold several objects at once, by channel.
        sources: The file of each rule, by rule id.
        generation: The number of the set in a daemon, from 1; each reload adds 1.
        version: The version of a set that was published in a database; None for one of files.
        outdated: What the next release will not read any more, with its place.
        places: Where each rule is, by rule id.
        files: The files of patterns and words that rules name.
    """

    rules: tuple[ConsolidationRule, ...]
    multi_valued: Mapping[str, Several]
    sources: Mapping[str, str]
    generation: int = 1
    version: int | None = None
    outdated: tuple[Mistake, ...] = ()
    places: Mapping[str, RulePlace] = field(default_factory=dict, compare=False, repr=False)
    files: tuple[str, ...] = field(default=(), compare=False)

    def of_episodes(self) -> RuleSet:
        """Return the set without rules of kind ``graph``."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.reads_episodes))

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with any rule or channel, but not with the files."""
        content = [[rule.content_hash for rule in self.rules], document_of(self.multi_valued)]
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]


def load_rules(  # noqa: PLR0913 # one for each check
    directory: Path,
    *,
    check_filter: CheckFilter,
    check_cron: CheckCron,
    timezone: str,
    check_cypher: CheckCypher = _accept_cypher,
    check_model: CheckModel = _accept_model,
    by_root: bool | None = None,
) -> RuleSet:
    """Load the rule files of a directory.

    Args:
        directory: The directory, which must exist; without rule files the set is empty.
        check_filter: Called for the filter of each well-formed rule.
        check_cron: Called for the cron expression of each well-formed rule that has one.
        timezone: The time zone of cron rules that name none.
        check_cypher: Called for the query of each well-formed rule of kind ``graph``.
        check_model: Called for each rule that asks a language model.
        by_root: Whether root loads the files. For root, a file that everybody can write is a
            mistake. None asks the process.

    Raises:
        ConfigurationError: The files have mistakes; the error lists all of them.
    """
    rule_files(directory)
    return load_rule_files(
        [directory],
        check_filter=check_filter,
        check_cron=check_cron,
        timezone=timezone,
        check_cypher=check_cypher,
        check_model=check_model,
        by_root=by_root,
    )


def rule_files(directory: Path) -> list[Path]:
    """Return the rule files of a directory, by name, without hidden files and test files.

    Raises:
        ConfigurationError: The directory does not exist or cannot be read.
    """
    try:
        names = sorted(directory.iterdir())
    except OSError as error:
        problem = f"cannot be read as a directory of rules: {error.strerror}; see 'rules_dir'"
        raise ConfigurationError([Mistake(str(directory), 0, 0, "", problem)]) from error
    return [path for path in names if _is_rule_file(path)]


def _is_rule_name(name: str) -> bool:
    """Return whether a file of this name, within a directory of rules, is a rule file."""
    return "/" not in name and _is_rule_file(Path(name))


def _is_rule_file(path: Path) -> bool:
    hidden, test = path.name.startswith("."), path.stem.endswith(".test")
    return path.suffix in (".yaml", ".yml") and not hidden and not test


def load_rule_files(  # noqa: PLR0913 # one for each check
    paths: Sequence[Path],
    *,
    check_filter: CheckFilter,
    check_cron: CheckCron,
    timezone: str,
    check_cypher: CheckCypher = _accept_cypher,
    check_model: CheckModel = _accept_model,
    by_root: bool | None = None,
) -> RuleSet:
    """Load files, and the rule files of directories, as one set.

    A path may be a link to a file. A link in a directory must not lead out of it. The other
    arguments are those of `load_rules`.
    """
    sheets = [sheet for path in paths for sheet in _read_sheets(path, by_root)]
    # A file that is loaded alone may configure channels that rules of other files emit into.
    whole = any(path.is_dir() for path in paths)
    extractions = _Extractions(by_root, partial(read_document, by_root=by_root))
    checks = _Checks(check_filter, check_cron, timezone, check_cypher, check_model)
    return _load_sheets(sheets, extractions, checks, whole=whole)


def load_rule_texts(  # noqa: PLR0913 # one for each check
    texts: Mapping[str, str],
    place: str,
    *,
    check_filter: CheckFilter,
    check_cron: CheckCron,
    timezone: str,
    check_cypher: CheckCypher = _accept_cypher,
    check_model: CheckModel = _accept_model,
) -> RuleSet:
    """Load the texts that `read_rule_texts` returned, perhaps on another host.

    Args:
        texts: The text of each file, by its name within the directory of rules.
        place: What stands for that directory in messages.
        check_filter: As of `load_rules`.
        check_cron: As of `load_rules`.
        timezone: As of `load_rules`.
        check_cypher: As of `load_rules`.
        check_model: As of `load_rules`.

    Raises:
        ConfigurationError: The texts have mistakes; the error lists all of them.
    """

    def read(file: Path) -> Document:
        name = os.path.normpath(file).removeprefix(f"{place}/")
        if name not in texts:
            raise unreadable_error(file, "was not published with the rules that name it")
        return read_document_text(texts[name], str(file))

    names = [Path(place, name) for name in sorted(texts) if _is_rule_name(name)]
    documents = [read(file) for file in names]
    sheets = [_Sheet(document, mistakes_of(document, RuleFile)) for document in documents]
    extractions = _Extractions(None, read)
    checks = _Checks(check_filter, check_cron, timezone, check_cypher, check_model)
    return _load_sheets(sheets, extractions, checks, whole=True)


def read_rule_texts(directory: Path) -> dict[str, str]:
    """Return what another host needs to load the rules of a directory, besides Python functions.

    Args:
        directory: The directory; its rules must have no mistakes.

    Returns:
        The texts of its rule files, and of the files of patterns and words that these name, by the
        name of the file within the directory.

    Raises:
        ConfigurationError: A file cannot be read, or a rule names patterns outside of it.
    """
    files = rule_files(directory)
    texts = {file.name: read_text(file, inside=directory.resolve()).text for file in files}
    places = [place for file in files for place in _rule_places(_read_sheet(file, None, None))]
    mistakes = []
    for place, trail, named in _named_files(places):
        file = _beside(place.document.file, named)
        name = os.path.relpath(os.path.normpath(file), os.path.normpath(directory))
        if name.startswith(os.pardir):
            problem = f"{named!r} is outside of the directory of rules; put the file into it"
            mistakes.append(place.mistake(*trail, problem=problem))
        else:
            texts[name] = read_text(file).text
    if mistakes:
        raise ConfigurationError(mistakes)
    return texts


class _Checks(NamedTuple):
    """What checks the rules of files; see `load_rules`."""

    filter: CheckFilter
    cron: CheckCron
    timezone: str
    cypher: CheckCypher
    model: CheckModel


def _load_sheets(
    sheets: Sequence[_Sheet], extractions: _Extractions, checks: _Checks, *, whole: bool
) -> RuleSet:
    places = [place for sheet in sheets for place in _rule_places(sheet)]
    mistakes = [
        *(mistake for sheet in sheets for mistake in sheet.mistakes),
        *_find_repeated_ids(places),
        *_find_mixed_cadences(places),
        *_find_idle_rules(places),
        *_check_filters(places, checks.filter),
        *_check_crons(places, checks.cron, checks.timezone),
        *_check_extras(places),
        *_check_methods(places),
        *_check_parsers(places),
        *extractions.check(places),
        *extractions.functions.check(_trusted(places, sheets)),
        *_check_cyphers(places, checks.cypher),
        *_check_models(places, checks.model),
        *_find_shared_extractions(places),
        *_find_misspelled_channels(sheets, whole=whole),
        *_find_mixed_channels(sheets),
    ]
    if mistakes:
        raise ConfigurationError(_sort_mistakes(mistakes))
    files = [_validate(sheet) for sheet in sheets]
    forms = zip(places, (form for file in files for form in file.rules), strict=True)
    if unnamed := [one for place, form in forms for one in extractions.find_unnamed(place, form)]:
        raise ConfigurationError(_sort_mistakes(unnamed))
    sources = [sheet.document.file for sheet in sheets]
    rules = _build_set([*zip(sources, files, strict=True)], extractions)
    return replace(
        rules,
        outdated=tuple(_find_outdated(places)),
        places={place.text("id"): place for place in places},
        files=extractions.files,
    )


def _trusted(places: Sequence[RulePlace], sheets: Iterable[_Sheet]) -> Sequence[RulePlace]:
    """Return no rules if a file itself is refused: then nobody knows who wrote the rules."""
    refused = any(mistake.line == 0 for sheet in sheets for mistake in sheet.mistakes)
    return () if refused else places


class _Sheet(NamedTuple):
    """One rule file, and the mistakes of its form."""

    document: Document
    mistakes: list[Mistake]


def _read_sheets(path: Path, by_root: bool | None) -> list[_Sheet]:
    if not path.is_dir():
        return [_read_sheet(path, None, by_root)]
    try:
        files = rule_files(path)
    except ConfigurationError as error:
        return [_sheet_of_directory(path, error.mistakes)]
    mistakes = list(check_world_writable(path, by_root=by_root))
    blank = [_sheet_of_directory(path, mistakes)] if mistakes else []
    home = path.resolve()
    return [*blank, *(_read_sheet(file, home, by_root) for file in files)]


def _sheet_of_directory(directory: Path, mistakes: list[Mistake]) -> _Sheet:
    """Return a sheet for a directory that has mistakes itself."""
    return _Sheet(Document(str(directory), None, False, {}, {}, ()), mistakes)


def _read_sheet(file: Path, inside: Path | None, by_root: bool | None) -> _Sheet:
    document = read_document(file, inside=inside, by_root=by_root)
    if document.at(("patterns",)) is not None and document.at(("rules",)) is None:
        return _Sheet(document, [document.mistake(("patterns",), _NO_RULES, at="key")])
    return _Sheet(document, mistakes_of(document, RuleFile))


_NO_RULES = (
    "patterns are no rules: move the file to a directory inside, such as patterns/, and name it in"
    " the stage `extract` of a rule"
)
"""The problem of a pattern file among the rule files."""


class RulePlace(NamedTuple):
    """The place of a rule in a document.

    The paths in `wrong` have mistakes. Keys of the rule may be missing.
    """

    document: Document
    trail: Trail
    wrong: Set[str]

    def text(self, *keys: str | int) -> str:
        """Return a text of the rule; empty when it is not text, or has a mistake."""
        trail = (*self.trail, *keys)
        value = self.document.at(trail)
        return value if isinstance(value, str) and dotted_path(trail) not in self.wrong else ""

    def mistake(self, *keys: str | int, problem: str) -> Mistake:
        """Return a mistake at a key of the rule."""
        return self.document.mistake((*self.trail, *keys), problem)

    def forms_of(self, stage: str) -> list[Trail]:
        """Return where the forms of a stage are; a list of extractions has several."""
        stages = self.document.at((*self.trail, "stages"))
        count = len(stages) if isinstance(stages, list) else 0
        trails = [("stages", number, stage) for number in range(count)]
        return [form for trail in trails for form in self._forms_at(trail)]

    def _forms_at(self, trail: Trail) -> list[Trail]:
        match self.document.at((*self.trail, *trail)):
            case list() as forms:
                return [(*trail, number) for number in range(len(forms))]
            case dict() as form if lists := [key for key in ("first", "all") if key in form]:
                return [one for key in lists for one in self._forms_at((*trail, key))]
            case dict():
                return [trail]
            case _:
                return []

    def filter_mistake(self, error: FilterError) -> Mistake:
        """Return a mistake at a character of the filter."""
        return self.mistake_within("when_filter", error.problem, error.position)

    def cypher_mistake(self, error: UnportableCypherError) -> Mistake:
        """Return a mistake at a character of the query."""
        problem = f"{error.rule}: {error.problem}"
        return self.mistake_within("filter_cypher", problem, error.position)

    def mistake_within(self, key: str, problem: str, position: int | None) -> Mistake:
        """Return a mistake at a character of a text of the rule, from 0; None for all of it."""
        whole = self.mistake(key, problem=problem)
        if position is None:
            return whole
        place = self.document.within((*self.trail, key), position)
        if place is None:
            return replace(whole, problem=f"at character {position + 1} of the filter: {problem}")
        return replace(whole, line=place.line, column=place.column)


def _rule_places(sheet: _Sheet) -> list[RulePlace]:
    rules = sheet.document.at(("rules",))
    count = len(rules) if isinstance(rules, list) else 0
    wrong = {mistake.path for mistake in sheet.mistakes}
    return [RulePlace(sheet.document, ("rules", number), wrong) for number in range(count)]


def _named_files(places: Iterable[RulePlace]) -> Iterator[tuple[RulePlace, Trail, str]]:
    """Yield where rules name files of patterns or words, and the names."""
    for place in places:
        for trail, key in product(place.forms_of("extract"), ("patterns", "vocabulary")):
            if file := place.text(*trail, key):
                yield place, (*trail, key), file


def _find_repeated_ids(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    first: dict[str, RulePlace] = {}
    for place in places:
        id = place.text("id")
        other = first.setdefault(id, place)
        if id and other is not place:
            first_place = other.mistake("id", problem="")
            where = f"{first_place.file}:{first_place.line}:{first_place.column}"
            problem = f"id {id!r} is taken by the rule at {where}; give one another id"
            yield place.mistake("id", problem=problem)


def _find_mixed_cadences(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    """Report keys of a cadence that exclude each other, where another mistake hides that."""
    for place in places:
        keys = place.document.at((*place.trail, "cadence"))
        mistake = place.mistake("cadence", problem=ONE_CADENCE)
        mixed = isinstance(keys, dict) and len(keys.keys() & {*CADENCE_KEYS}) > 1
        if mixed and mistake.path not in place.wrong:
            yield mistake


def _find_idle_rules(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    """Report rules of episodes without a channel and without a stage that marks episodes."""
    for place in places:
        rule = _mapping(place.document.at(place.trail))
        stages = rule.get("stages")
        marks = isinstance(stages, list) and any("extract" not in _mapping(one) for one in stages)
        if rule.get("then_emits") == [] and rule.get("kind") != "graph" and not marks:
            problem = "a channel is needed, such as 'facts', unless a stage marks episodes"
            yield place.mistake("then_emits", problem=problem)


def _find_shared_extractions(places: Sequence[RulePlace]) -> Iterator[Mistake]:
    """Report rules that may extract triples of one episode into one channel, with equal ids."""
    extracting = [(place, channels) for place in places if (channels := _extracts_into(place))]
    for number, (place, channels) in enumerate(extracting):
        for other, emitted in extracting[:number]:
            shared = sorted(channels & emitted)
            if shared and not are_disjoint(place.text("when_filter"), other.text("when_filter")):
                first = other.mistake("id", problem="")
                problem = (
                    f"rule {other.text('id')!r} at {first.file}:{first.line} extracts into the"
                    f" channel {shared[0]!r}, too, and an episode may pass both filters: its"
                    " triples would share their ids; write filters that exclude each other, such"
                    " as is_person and NOT is_person, or name another channel"
                )
                yield place.mistake("stages", problem=problem)
                break


def _extracts_into(place: RulePlace) -> set[str]:
    """Return the channels into which an enabled rule extracts triples."""
    rule = place.document.at(place.trail)
    stages = rule.get("stages") if isinstance(rule, dict) else None
    extracts = isinstance(stages, list) and any(
        isinstance(stage, dict) and "extract" in stage for stage in stages
    )
    if not extracts or not isinstance(rule, dict) or rule.get("enabled") is False:
        return set()
    return {*_emitted_channels(rule)} if place.text("when_filter") else set()


def _check_filters(places: Iterable[RulePlace], check: CheckFilter) -> Iterator[Mistake]:
    for place in places:
        try:
            check(place.text("id"), place.text("when_filter"))
        except FilterError as error:
            yield from map(place.filter_mistake, (error, *error.further))


def _check_crons(places: Iterable[RulePlace], check: CheckCron, timezone: str) -> Iterator[Mistake]:
    for place in places:
        try:
            if expression := place.text("cadence", "cron"):
                check(expression, place.text("cadence", "timezone") or timezone)
        except ValueError as error:
            yield place.mistake("cadence", "cron", problem=str(error))


def _check_extras(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    for place in places:
        for keys, extra in _EXTRAS.items():
            if place.document.at((*place.trail, *keys)) not in (None, "") and not is_installed(
                extra
            ):
                problem = f"{keys[-1]!r} needs the extra: `pip install 'slumberd[{extra}]'`"
                yield place.mistake(*keys, problem=problem)


def _check_methods(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    for place in places:
        stages = place.document.at((*place.trail, "stages"))
        for number in range(len(stages) if isinstance(stages, list) else 0):
            trail = ("stages", number, "dedup", "method")
            method = place.text(*trail)  # has the name of its extra
            if method in ("fuzzy", "vectors") and not is_installed(method):
                problem = f"{method!r} needs the extra: `pip install 'slumberd[{method}]'`"
                yield place.document.mistake((*place.trail, *trail), problem)


def _check_parsers(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    for place in places:
        for trail in place.forms_of("extract"):
            wanted = place.document.at((*place.trail, *trail, "parser"))
            if wanted is True and not is_installed("english"):
                problem = "'parser' needs the extra: `pip install 'slumberd[english]'`"
                yield place.mistake(*trail, "parser", problem=problem)


def _check_cyphers(places: Iterable[RulePlace], check: CheckCypher) -> Iterator[Mistake]:
    for place in places:
        try:
            if place.text("kind") == "graph" and (query := place.text("filter_cypher")):
                check(query)
        except UnportableCypherError as error:
            yield place.cypher_mistake(error)
        except (ExtraMissingError, UsageError) as error:
            if place.document.at((*place.trail, "enabled")) is not False:
                yield place.mistake("kind", problem=str(error))


def _check_models(places: Iterable[RulePlace], check: CheckModel) -> Iterator[Mistake]:
    for place in places:
        if place.document.at((*place.trail, "enabled")) is False:
            continue
        for trail in (*place.forms_of("extract"), *place.forms_of("summarise")):
            if place.text(*trail, "with") == "openai":
                yield from _mistakes_of_model(place, (*trail, "with"), check)


def _mistakes_of_model(place: RulePlace, trail: Trail, check: CheckModel) -> Iterator[Mistake]:
    try:
        check()
    except (ExtraMissingError, UsageError) as error:
        yield place.document.mistake((*place.trail, *trail), str(error))


def _sort_mistakes(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Return the mistakes without repetition, in order of file, line and column."""
    order = {file: number for number, file in enumerate(dict.fromkeys(m.file for m in mistakes))}
    return sorted(dict.fromkeys(mistakes), key=lambda m: (order[m.file], m.line, m.column))


def _validate(sheet: _Sheet) -> RuleFile:
    return RuleFile.model_validate(sheet.document.value)


class _Extractions:
    """The extractions and functions of rules; each file of patterns or words is read once.

    Args:
        by_root: Whether root loads them; None asks the process.
        read: Reads a file, or raises ConfigurationError.
    """

    def __init__(self, by_root: bool | None, read: Callable[[Path], Document]) -> None:
        self.functions = Functions(by_root)
        self._read = read
        self._patterns: dict[Path, Extraction] = {}
        self._vocabularies: dict[Path, Vocabulary] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read."""
        return tuple(map(str, (*self._patterns, *self._vocabularies)))

    def check(self, places: Iterable[RulePlace]) -> Iterator[Mistake]:
        """Load the files that rules name; yield their mistakes, and those of the names."""
        loads = {"patterns": self._load_patterns, "vocabulary": self._load_words}
        for place, trail, file in _named_files(places):
            try:
                loads[str(trail[-1])](_beside(place.document.file, file))
            except ConfigurationError as error:
                for mistake in error.mistakes:
                    # What is wrong with a whole file is told where the rule names it.
                    problem = f"{mistake.file!r} {mistake.problem}"
                    yield mistake if mistake.line else place.mistake(*trail, problem=problem)

    def _load_patterns(self, path: Path) -> None:
        if path not in self._patterns:
            self._patterns[path] = extraction_of(self._read(path))

    def _load_words(self, path: Path) -> None:
        if path not in self._vocabularies:
            self._vocabularies[path] = vocabulary_of(self._read(path))

    def find_unnamed(self, place: RulePlace, form: AnyRuleForm) -> Iterator[Mistake]:
        """Yield where a rule asks a language model, and nothing names predicates for it."""
        found = self.of(form, place.document.file)
        parts = () if found is None else found.parts
        for trail, part in zip(place.forms_of("extract"), parts, strict=True):
            if isinstance(part.extractor, ModelSettings) and not part.extractor.predicates:
                problem = "'predicates' is needed: no entry before this one names predicates"
                yield place.mistake(*trail, "with", problem=problem)

    def of(self, form: AnyRuleForm, source: str) -> Extraction | None:
        """Return the extraction of a rule; None when it has none."""
        stages = form.stages if isinstance(form, RuleForm) else []
        for stage in stages:
            parts: list[Extraction] = []
            for one in stage.extractions:
                parts.append(self._of(one, source, parts))
            if parts:
                return combined_extraction(parts, unites=stage.unites)
        return None

    def _of(self, form: ExtractForm, source: str, before: Sequence[Extraction]) -> Extraction:
        """Return the extraction of a form, after those that stand before it in its list."""
        match form.method:
            case "patterns":
                return self._patterns[_beside(source, form.patterns or "")]
            case "openai":
                settings = form.model_settings()
                if not settings.predicates:
                    settings = replace(settings, predicates=_named_by(before))
                return model_extraction(settings)
            case "conversation" | "heuristic":
                words = form.vocabulary and self._vocabularies[_beside(source, form.vocabulary)]
                return conversation_extraction(form.speakers, words or None, parser=form.parser)
            case function:
                return self.functions.extraction(function)


def _find_outdated(places: Iterable[RulePlace]) -> Iterator[Mistake]:
    """Yield where a rule names the extractor ``heuristic`` of slumberd 0.2.0."""
    for place in places:
        for trail in place.forms_of("extract"):
            if place.text(*trail, "with") == HEURISTIC:
                problem = (
                    "'heuristic' is the old name of another extractor: 'conversation' reads the"
                    " sentences now; write 'with: conversation', for the next release refuses this"
                    " name"
                )
                yield place.mistake(*trail, "with", problem=problem)


def _named_by(extractions: Iterable[Extraction]) -> tuple[str, ...]:
    """Return the predicates that extractions name, in order of the alphabet."""
    return tuple(sorted({name for one in extractions for name in one.named_predicates}))


def _beside(source: str, file: str) -> Path:
    return Path(source).parent / file


def _build_set(forms: Sequence[tuple[str, RuleFile]], extractions: _Extractions) -> RuleSet:
    rules = [
        form.rule().model_copy(
            update={
                "extract": extractions.of(form, source),
                "summariser": extractions.functions.summariser(form),
            }
        )
        for source, file in forms
        for form in file.rules
    ]
    sources = {form.id: source for source, file in forms for form in file.rules}
    return RuleSet(
        rules=tuple(sorted(rules, key=lambda rule: rule.id)),
        multi_valued=_combine_channels((file for _, file in forms), rules),
        sources=sources,
    )


def _combine_channels(
    files: Iterable[RuleFile], rules: Iterable[ConsolidationRule]
) -> dict[str, Several]:
    """Return the setting of each channel: of its files, and of what its rules extract."""
    union: dict[str, Several] = {}
    for file in files:
        for name, channel in file.channels.items():
            several, before = channel.several, union.get(name)
            if isinstance(several, ManyBut):
                known = before.single_valued if isinstance(before, ManyBut) else frozenset()
                union[name] = ManyBut(several.single_valued | known)
            else:
                union[name] = several | (before if isinstance(before, frozenset) else frozenset())
    for rule in rules:
        # A rule that rests keeps its predicates: what it has learned must not change by that.
        if rule.extract is not None:
            for name in rule.then_emits:
                union[name] = _with_extracted(union.get(name, frozenset()), rule.extract)
    return union


def _with_extracted(several: Several, extraction: Extraction) -> Several:
    """Return the setting of a channel with the predicates of an extraction."""
    if isinstance(several, ManyBut):
        return ManyBut(several.single_valued | extraction.single_valued)
    return several | extraction.multi_valued


_LISTS = ("multi_valued", "single_valued")


def _find_mixed_channels(sheets: Sequence[_Sheet]) -> Iterator[Mistake]:
    """Yield a mistake where a channel is given in both ways, in one file or in several.

    The ways are ``multi_valued``, and ``values`` with ``single_valued``.
    """
    first: dict[str, tuple[str, Mistake]] = {}
    listed: dict[tuple[str, str], tuple[str, Mistake]] = {}
    for document, _ in sheets:
        for channel, form in _mapping(document.at(("channels",))).items():
            given = [key for key in _mapping(form) if key in ("values", *_LISTS)]
            for key in given:
                trail: Trail = ("channels", channel, key)
                way = "multi_valued" if key == "multi_valued" else "values: many"
                place = document.mistake(trail, f"gives {way!r}", at="key")
                yield from _find_contradiction(first.setdefault(channel, (way, place)), way, place)
                predicates = _mapping(form)[key]
                for number, predicate in enumerate(
                    predicates if isinstance(predicates, list) else ()
                ):
                    place = document.mistake((*trail, number), f"lists {predicate!r}")
                    known = listed.setdefault((channel, str(predicate)), (key, place))
                    yield from _find_contradiction(known, key, place)


def _find_contradiction(
    known: tuple[str, Mistake], given: str, place: Mistake
) -> Iterator[Mistake]:
    other, at = known
    if other != given:
        where = f"{at.file}:{at.line}:{at.column}"
        yield replace(place, problem=f"{place.problem}, and {where} {other!r}; keep one of them")


class _ListedPredicate(NamedTuple):
    """One predicate of a list of ``multi_valued`` or ``single_valued``."""

    document: Document
    trail: Trail
    channel: str
    predicate: str

    def mistake(self, problem: str) -> Mistake:
        """Return a mistake at the predicate."""
        return self.document.mistake(
            self.trail, f"predicate {format_value(self.predicate)} {problem}"
        )


def _find_misspelled_channels(sheets: Sequence[_Sheet], *, whole: bool) -> Iterator[Mistake]:
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
            problem = f"no rule emits into channel {format_value(name)}; {remedy}"
            yield document.mistake(("channels", name), problem, at="key")


def _check_predicates(document: Document, named: Mapping[str, set[str]]) -> Iterator[Mistake]:
    for channel, form in _mapping(document.at(("channels",))).items():
        for name in _LISTS:
            listed = _mapping(form).get(name)
            entries = [
                _ListedPredicate(document, ("channels", channel, name, number), channel, predicate)
                for number, predicate in enumerate(listed if isinstance(listed, list) else ())
                if isinstance(predicate, str)
            ]
            yield from _find_slips(entries, named.get(channel, set()))


def _find_slips(entries: Sequence[_ListedPredicate], named: set[str]) -> Iterator[Mistake]:
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


def _predicates_by_channel(sheets: Sequence[_Sheet]) -> dict[str, set[str]]:
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
        case str() as channel:  # a mistake that the schema reports
            return [channel]
        case _:
            return [FACTS] if rule.get("kind") == "graph" else []


def _predicates_in(query: Value) -> Iterator[str]:
    for comparison in _COMPARED.finditer(query) if isinstance(query, str) else ():
        for single, double in _TEXT.findall(comparison["texts"]):
            yield single or double


def _mapping(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}
