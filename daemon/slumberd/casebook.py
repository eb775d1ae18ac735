"""Read the tests of rules: what is said, step by step, and what is to come of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from slumberd.caseforms import CaseFile, CaseForm, EpisodeForm, ExpectForm, StepForm, instant_in
from slumberd.config.validation import mistakes_of, problems, suggestion
from slumberd.config.yaml_reader import Document, Trail, read_document
from slumberd.core.expectation import Content
from slumberd.errors import ConfigurationError, MemoryScopeError, Mistake
from slumberd.model.episode import Episode
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.scope import Scope, checked_scope

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant of a test's first episode, unless it gives another."""

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Step:
    """Some episodes, put together, and what is to come of them.

    Attributes:
        episodes: In the order in which they are put.
        expected: Only the parts that the author speaks of.
    """

    episodes: tuple[Episode, ...]
    expected: Content


@dataclass(frozen=True, slots=True)
class Case:
    """One test of rules.

    Attributes:
        name: What it shows.
        file: Where it stands.
        line: And in which line.
        rules: The ids of the rules that it is about; none when it names none.
        steps: One after the other, on the same stores.
    """

    name: str
    file: str
    line: int
    rules: tuple[str, ...]
    steps: tuple[Step, ...]


def read_cases(file: Path, known: Collection[str] | None) -> list[Case]:
    """Read one file of tests.

    Args:
        file: The file.
        known: The ids of the rules that a test may name; None when they cannot be told.

    Raises:
        ConfigurationError: With every mistake of the file.
    """
    document = read_document(file)
    mistakes = mistakes_of(document, CaseFile)
    readings = [_Reading(document, trail, form, known) for trail, form in _sound(document)]
    cases = [reading.case() for reading in readings]
    found = (mistake for reading in readings for mistake in reading.mistakes)
    mistakes += [*found, *_no_unicode(document), *_repeated_names(document, readings)]
    if mistakes:
        raise ConfigurationError(sorted(mistakes, key=lambda m: (m.line, m.column)))
    return cases


def _sound(document: Document) -> Iterator[tuple[Trail, CaseForm]]:
    """Yield the tests without a mistake of form, each with where it stands."""
    tests = document.at(("tests",))
    for number, test in enumerate(tests if isinstance(tests, list) else ()):
        if not problems(CaseForm, test, strict=True):
            yield ("tests", number), CaseForm.model_validate(test, strict=True)


def _no_unicode(document: Document) -> Iterator[Mistake]:
    """Yield the texts that escapes make of halves of characters: no store could take them."""
    for trail in document.values:
        value = document.at(trail)
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            yield document.mistake(trail, f"{value!r} is no valid Unicode")


def _repeated_names(document: Document, readings: Iterable[_Reading]) -> Iterator[Mistake]:
    first: dict[str, Trail] = {}
    for reading in readings:
        trail = (*reading.trail, "name")
        other = first.setdefault(reading.form.name, trail)
        if other != trail:
            line = document.place(other).line
            problem = f"name {reading.form.name!r} is taken by the test in line {line}"
            yield document.mistake(trail, f"{problem}; give one another name")


class _Reading:
    """One test being read.

    Attributes:
        trail: Where it stands.
        form: What stands there.
        mistakes: What its form alone cannot tell.
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
        self._said: dict[str, Episode] = {}

    def case(self) -> Case:
        """Return the test, and find its mistakes."""
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
            self._episode(one, (*trail, "episodes", number))
            for number, one in enumerate(form.episodes)
        )
        here = [episode.id for episode in episodes]
        for number, id in enumerate(here):
            if id in here[:number]:
                problem = f"episode {id!r} is given twice; an edit goes into a step of its own"
                self._add((*trail, "episodes", number, "id"), problem)
        for place, id, known in _named(form.expect, [*dict.fromkeys(here)], [*self._said]):
            if id not in known:
                problem = f"there is no episode {id!r}; {_suggestion(id, known)}"
                self._add((*trail, "expect", *place), problem)
        return Step(episodes, form.expect.content())

    def _episode(self, form: EpisodeForm, trail: Trail) -> Episode:
        earlier = self._said.get(form.id)
        episode = form.episode(self._instant(form, earlier))
        self._check_scope(episode, earlier or episode, trail)
        self._latest = max(self._latest, episode.timestamp)
        self._said[form.id] = episode
        return episode

    def _instant(self, form: EpisodeForm, earlier: Episode | None) -> datetime:
        if form.timestamp is not None:
            return instant_in(form.timestamp)
        return earlier.timestamp if earlier else self._latest + _MINUTE

    def _check_scope(self, episode: Episode, earlier: Episode, trail: Trail) -> None:
        try:
            scope = checked_scope(_scope(episode), operation="put")
        except MemoryScopeError as error:
            self._add(trail, error.violation)
            return
        if scope != _scope(earlier):
            problem = f"episode {episode.id!r} is of another user, session or agent"
            self._add(trail, f"{problem}; an edit keeps them")

    def _add(self, trail: Trail, problem: str) -> None:
        self.mistakes.append(self._document.mistake(trail, problem))


def _scope(episode: Episode) -> Scope:
    return Scope(episode.user, episode.session, episode.agent)


def _named(
    expect: ExpectForm, here: Sequence[str], said: Sequence[str]
) -> Iterator[tuple[Trail, str, Sequence[str]]]:
    """Yield every episode that an expectation names: where, its id, and which it may be."""
    for number, id in enumerate(expect.filtered):
        yield ("filtered", number), id, here
    for number, delta in enumerate(expect.deltas):
        yield ("deltas", number, "episode"), delta.episode, said
        for nth, gone in enumerate(delta.replaces):
            yield ("deltas", number, "replaces", nth), episode_id_of(gone), said
        if delta.fact:
            yield ("deltas", number, "fact"), episode_id_of(delta.fact), said
    for number, fact in enumerate(expect.facts):
        if fact.id:
            yield ("facts", number, "id"), episode_id_of(fact.id), said
        for nth, id in enumerate(fact.episodes):
            yield ("facts", number, "episodes", nth), id, said


def _suggestion(word: str, known: Collection[str]) -> str:
    return suggestion(word, known) if known else "there is none"
