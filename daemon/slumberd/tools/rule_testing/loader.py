"""Find and read test files, and combine each test with its rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from slumberd.consolidation.extraction.language_model import MAX_TRIPLES
from slumberd.model.episode import Episode, is_part_of
from slumberd.model.errors import (
    ConfigurationError,
    MemoryScopeError,
    Mistake,
    NoInputError,
    UsageError,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import Scope, episode_id_of, validate_scope
from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.rule_loader import RuleSet, load_rules
from slumberd.rules.validation import mistakes_of, problems, read_instant, suggestion
from slumberd.rules.yaml_reader import Document, Trail, read_document
from slumberd.tools.rule_testing.case_schema import (
    CaseFile,
    CaseForm,
    EpisodeForm,
    ExpectForm,
    StepForm,
    answer_text,
)
from slumberd.tools.rule_testing.comparison import Content
from slumberd.workers.scheduling import cron

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant of a test's first episode, unless it gives another."""

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a test.

    Attributes:
        episodes: The episodes, in the order in which they are put.
        expected: The expectation; only the parts that the author wrote.
        at: When the rules fire.
        answers: What a language model answers about episodes, as it writes it, by their ids.
    """

    episodes: tuple[Episode, ...]
    expected: Content
    at: datetime = FIRST
    answers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One test of rules.

    Attributes:
        name: What the test shows.
        file: The file of the test.
        line: The line where it begins, from 1.
        rules: The ids of the rules that it names; empty when it names none.
        steps: The steps, one after the other on the same stores.
    """

    name: str
    file: str
    line: int
    rules: tuple[str, ...]
    steps: tuple[Step, ...]


def read_cases(file: Path, known: Collection[str] | None) -> list[Case]:
    """Read one file of tests.

    Args:
        known: The ids of the rules that a test may name; None skips that check.

    Raises:
        ConfigurationError: The file has mistakes; the error lists all of them.
    """
    document = read_document(file)
    mistakes = mistakes_of(document, CaseFile)
    readings = [_Reading(document, trail, form, known) for trail, form in _well_formed(document)]
    cases = [reading.case() for reading in readings]
    found = (mistake for reading in readings for mistake in reading.mistakes)
    mistakes += [*found, *_find_surrogates(document), *_find_repeated_names(document, readings)]
    if mistakes:
        raise ConfigurationError(sorted(mistakes, key=lambda m: (m.line, m.column)))
    return cases


def _well_formed(document: Document) -> Iterator[tuple[Trail, CaseForm]]:
    """Yield the well-formed tests, each with its place."""
    tests = document.at(("tests",))
    for number, test in enumerate(tests if isinstance(tests, list) else ()):
        if not problems(CaseForm, test, strict=True):
            yield ("tests", number), CaseForm.model_validate(test, strict=True)


def _find_surrogates(document: Document) -> Iterator[Mistake]:
    """Yield a mistake for each text with a lone surrogate, which no store accepts."""
    for trail in document.values:
        value = document.at(trail)
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            yield document.mistake(trail, f"{value!r} is not valid Unicode")


def _find_repeated_names(document: Document, readings: Iterable[_Reading]) -> Iterator[Mistake]:
    first: dict[str, Trail] = {}
    for reading in readings:
        trail = (*reading.trail, "name")
        other = first.setdefault(reading.form.name, trail)
        if other != trail:
            line = document.place(other).line
            problem = f"name {reading.form.name!r} is taken by the test in line {line}"
            yield document.mistake(trail, f"{problem}; give one another name")


class _Reading:
    """Reads one test.

    Attributes:
        trail: The place of the test in its file.
        form: The form of the test.
        mistakes: The mistakes that the form does not check.
    """

    def __init__(
        self, document: Document, trail: Trail, form: CaseForm, known: Collection[str] | None
    ) -> None:
        self.trail = trail
        self.form = form
        self.mistakes: list[Mistake] = []
        self._document = document
        self._known = known
        self._latest = FIRST - _MINUTE
        self._fired_at = FIRST
        self._earlier: dict[str, Episode] = {}

    def case(self) -> Case:
        """Return the test, and collect its mistakes."""
        self._check_rules()
        steps = tuple(
            self._step(form, (*self.trail, "steps", number) if self.form.steps else self.trail)
            for number, form in enumerate(self.form.script())
        )
        line = self._document.place(self.trail).line
        return Case(self.form.name, self._document.file, line, tuple(self.form.rules), steps)

    def _check_rules(self) -> None:
        for number, rule in enumerate(self.form.rules):
            if self._known is not None and rule not in self._known:
                problem = f"there is no rule {rule!r}; {_suggestion(rule, self._known)}"
                self._add((*self.trail, "rules", number), problem)

    def _step(self, form: StepForm, trail: Trail) -> Step:
        episodes = tuple(
            self._episode(episode, (*trail, "episodes", number))
            for number, episode in enumerate(form.episodes)
        )
        here = [episode.id for episode in episodes]
        for number, id in enumerate(here):
            if id in here[:number]:
                problem = f"episode {id!r} is given twice; an edit goes into a step of its own"
                self._add((*trail, "episodes", number, "id"), problem)
        for place, id, known in _named_episodes(
            form.expect, [*dict.fromkeys(here)], [*self._earlier]
        ):
            if id not in known:
                problem = f"there is no episode {id!r}; {_suggestion(id, known)}"
                self._add((*trail, "expect", *place), problem)
        if form.at is not None:
            self._fired_at = read_instant(form.at)
        answers = self._answers(form, trail)
        return Step(episodes, form.expect.content(), self._fired_at, answers)

    def _answers(self, form: StepForm, trail: Trail) -> dict[str, str]:
        for id, triples in form.answers.items():
            if id not in self._earlier:
                problem = f"there is no episode {id!r}; {_suggestion(id, self._earlier)}"
                self._add((*trail, "answers", id), problem, at="key")
            if len(triples) > MAX_TRIPLES:
                problem = f"an answer has at most {MAX_TRIPLES} triples, not {len(triples)}"
                self._add((*trail, "answers", id), problem)
        return {id: answer_text(triples) for id, triples in form.answers.items()}

    def _episode(self, form: EpisodeForm, trail: Trail) -> Episode:
        earlier = self._earlier.get(form.id)
        episode = form.episode(self._instant(form, earlier))
        self._check_scope(episode, earlier or episode, trail)
        self._latest = max(self._latest, episode.timestamp)
        self._earlier[form.id] = episode
        return episode

    def _instant(self, form: EpisodeForm, earlier: Episode | None) -> datetime:
        if form.timestamp is not None:
            return read_instant(form.timestamp)
        return earlier.timestamp if earlier else self._latest + _MINUTE

    def _check_scope(self, episode: Episode, earlier: Episode, trail: Trail) -> None:
        try:
            scope = validate_scope(_scope(episode), operation="put")
        except MemoryScopeError as error:
            self._add(trail, error.violation)
            return
        if scope != _scope(earlier):
            problem = f"episode {episode.id!r} is of another user, session or agent"
            self._add(trail, f"{problem}; an edit keeps them")

    def _add(self, trail: Trail, problem: str, *, at: Literal["key", "value"] = "value") -> None:
        self.mistakes.append(self._document.mistake(trail, problem, at=at))


def _scope(episode: Episode) -> Scope:
    return Scope(episode.user, episode.session, episode.agent)


def _named_episodes(
    expect: ExpectForm, own: Sequence[str], known: Sequence[str]
) -> Iterator[tuple[Trail, str, Sequence[str]]]:
    """Yield each episode id of an expectation: its place, the id, and the ids allowed there.

    Args:
        own: The ids of the episodes of its step.
        known: These, and the ids of all earlier steps.
    """
    for number, id in enumerate(expect.filtered):
        yield ("filtered", number), id, own
    for number, delta in enumerate(expect.deltas):
        yield ("deltas", number, "episode"), delta.episode, known
        for nth, gone in enumerate(delta.replaces):
            yield ("deltas", number, "replaces", nth), _episode_named(gone, known), known
        if delta.fact:
            yield ("deltas", number, "fact"), _episode_named(delta.fact, known), known
    for number, fact in enumerate(expect.facts):
        if fact.id:
            yield ("facts", number, "id"), _episode_named(fact.id, known), known
        for nth, id in enumerate(fact.episodes):
            yield ("facts", number, "episodes", nth), id, known


def _episode_named(fact_id: str, known: Sequence[str]) -> str:
    """Return the id of the episode of a fact, which may be one of several claims."""
    id = episode_id_of(fact_id)
    return next((whole for whole in known if is_part_of(id, whole)), id) if id not in known else id


def _suggestion(word: str, known: Collection[str]) -> str:
    return suggestion(word, known) if known else "none is defined"


ENDINGS = (".test.yaml", ".test.yml")
"""The endings of test file names; the rest is the name of the rule file."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A case with its rules.

    Attributes:
        rules: The rules that fire after each step, by id.
        rule_set: All rules of the directory, with the settings of its channels.
    """

    case: Case
    rules: tuple[ConsolidationRule, ...]
    rule_set: RuleSet


def case_files(paths: Iterable[Path]) -> list[Path]:
    """Return the test files among paths: files, and those of directories.

    Raises:
        NoInputError: A path does not exist, or has no tests.
        UsageError: A path is a file of another kind.
    """
    return list(dict.fromkeys(file for path in paths for file in _files(path)))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted([*path.iterdir(), *path.glob("patterns/*")])
        found = [file for file in files if _is_test_file(file)]
        if not found:
            remedy = "write tests beside the rules, as in rules/preferences.test.yaml"
            raise NoInputError(str(path / f"*{ENDINGS[0]}"), remedy)
        return found
    if not path.exists():
        raise NoInputError(str(path), "name a test file, or a directory of rules")
    if not _is_test_file(path):
        endings = " or ".join(f"'*{ending}'" for ending in ENDINGS)
        raise UsageError(f"{str(path)!r} is not a test file: their names end in {endings}")
    return [path]


def _is_test_file(path: Path) -> bool:
    return path.name.endswith(ENDINGS) and not path.name.startswith(".")


def load_trials(files: Sequence[Path], *, timezone: str) -> list[Trial]:
    """Return the trials of test files, in order.

    Args:
        files: The test files; each one tests rules of its own directory.
        timezone: The time zone of cron rules that name none.

    Raises:
        ConfigurationError: The test files or the rule files beside them have mistakes; the error
            lists all of them.
    """
    loader = _TrialLoader(timezone)
    trials = [trial for file in files for trial in loader.load(file)]
    if loader.mistakes:
        raise ConfigurationError(loader.mistakes)
    return trials


class _TrialLoader:
    """Reads test files, and the rules of each directory once."""

    def __init__(self, timezone: str) -> None:
        self.mistakes: list[Mistake] = []
        self._timezone = timezone
        self._rule_sets: dict[Path, RuleSet | None] = {}

    def load(self, file: Path) -> list[Trial]:
        """Return the trials of one file, and collect its mistakes."""
        rule_set = self._rules_beside(file)
        try:
            cases = read_cases(file, None if rule_set is None else list(rule_set.sources))
            return [] if rule_set is None else [_trial(case, file, rule_set) for case in cases]
        except ConfigurationError as error:
            self.mistakes += error.mistakes
            return []

    def _rules_beside(self, file: Path) -> RuleSet | None:
        directory = file.parent
        if directory not in self._rule_sets:
            self._rule_sets[directory] = self._load_rules(directory)
        return self._rule_sets[directory]

    def _load_rules(self, directory: Path) -> RuleSet | None:
        try:
            return load_rules(
                directory,
                check_filter=check_filter,
                check_cron=cron.check,
                timezone=self._timezone,
            )
        except ConfigurationError as error:
            self.mistakes += error.mistakes
            return None


def _trial(case: Case, file: Path, rule_set: RuleSet) -> Trial:
    found = tuple(_rules_of(case, file, rule_set))
    rules = tuple(rule for rule in found if rule.reads_episodes)
    if found and (case.rules or not rules) and found != rules:
        graphs = ", ".join(rule.id for rule in found if not rule.reads_episodes)
        problem = f"{graphs} reads no episodes, but a graph: a test needs rules of kind 'episodes'"
        raise ConfigurationError([Mistake(str(file), case.line, 0, "", problem)])
    if not rules:
        problem = f"no rule of the test in {str(file.parent)!r} is enabled; name one in 'rules'"
        raise ConfigurationError([Mistake(str(file), case.line, 0, "", problem)])
    if any(step.answers for step in case.steps) and not any(map(_asks_model, rules)):
        problem = "no rule of the test asks a language model; leave out 'answers'"
        raise ConfigurationError([Mistake(str(file), case.line, 0, "", problem)])
    return Trial(case, rules, rule_set)


def _asks_model(rule: ConsolidationRule) -> bool:
    return rule.extract is not None and rule.extract.asks_model


def _rules_of(case: Case, file: Path, rule_set: RuleSet) -> Iterator[ConsolidationRule]:
    if case.rules:
        yield from (rule for rule in rule_set.rules if rule.id in case.rules)
        return
    stem = _stem(file)
    beside = {id for id, source in rule_set.sources.items() if Path(source).stem == stem}
    yield from (
        rule for rule in rule_set.rules if rule.enabled and (rule.id in beside or not beside)
    )


def _stem(file: Path) -> str:
    return next(file.name.removesuffix(end) for end in ENDINGS if file.name.endswith(end))
