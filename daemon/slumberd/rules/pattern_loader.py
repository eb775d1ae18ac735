"""Load pattern files and their tests, and report all mistakes of a file at once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from slumberd.consolidation.extraction.language_model import VERSION as PROMPT_VERSION
from slumberd.consolidation.extraction.language_model import VERSION_OF_0_2_0
from slumberd.consolidation.extraction.normalisers import alias_key
from slumberd.consolidation.extraction.patterns import (
    SPEAKERS,
    Aliases,
    Expected,
    Pattern,
    PatternSet,
    PatternTest,
    Says,
    UnlessIn,
    content_words,
    insert_words,
    placeholders,
    word_lists,
)
from slumberd.consolidation.extraction.sentences import replace_surrogates
from slumberd.consolidation.stages.summary import SUMMARY_VERSION
from slumberd.model.episode import PERSON, microseconds
from slumberd.model.errors import ConfigurationError, ExtraMissingError, Mistake, PatternError
from slumberd.model.extraction import (
    Extraction,
    ModelSettings,
    ModelSummariser,
    Several,
    Turn,
)
from slumberd.rules.pattern_schema import (
    PatternFile,
    PatternForm,
    PatternTestFile,
    PatternTestForm,
    TurnForm,
)
from slumberd.rules.validation import format_value, mistakes_of, problems, read_instant, suggestion
from slumberd.rules.yaml_reader import Document, Trail, read_document
from slumberd.search.expressions import Expression, compile_expression

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant of a test's first turn, unless it gives another."""

VERSION = 2
"""Changes when the same patterns find other triples than before."""

_MINUTE = timedelta(minutes=1)


def load_patterns(file: Path, *, by_root: bool | None = None) -> PatternSet:
    """Load a pattern file.

    Args:
        file: The file, or a link to it.
        by_root: Whether root loads the file. For root, a file that everybody can write is a
            mistake. None asks the process.

    Raises:
        ConfigurationError: The file has mistakes; the error lists all of them.
    """
    return _load(read_document(file, by_root=by_root))[1]


def extraction_of(document: Document) -> Extraction:
    """Return the extraction of a pattern file that was read.

    Raises:
        ConfigurationError: The file has mistakes; the error lists all of them.
    """
    form, patterns = _load(document)
    content = orjson.dumps([VERSION, form.model_dump()], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Extraction(
        "patterns", digest, patterns, reads_previous=True,
        single_valued=frozenset(form.single_valued), multi_valued=frozenset(form.multi_valued),
    )  # fmt: skip


def model_summariser(
    model: str, instructions: str, parameters: Mapping[str, Any]
) -> ModelSummariser:
    """Return the summaries by a language model; the arguments are those of `ModelSummariser`."""
    asked = [SUMMARY_VERSION, model, instructions, dict(parameters)]
    content = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return ModelSummariser(digest, model, instructions, parameters)


def model_extraction(settings: ModelSettings) -> Extraction:
    """Return the extraction by a language model.

    Args:
        settings: What the model is asked.
    """
    # The number of turns in a request changes no question.
    asked = asdict(replace(settings, turns_per_call=0))
    digest, older = (
        hashlib.sha256(orjson.dumps([number, asked], option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
        for number in (PROMPT_VERSION, VERSION_OF_0_2_0)
    )
    return Extraction("openai", digest, settings, reads_previous=True, digest_of_0_2_0=older)


def combined_extraction(parts: Sequence[Extraction], *, unites: bool) -> Extraction:
    """Return the extraction of a list; a list of one is that one.

    Args:
        parts: The extractions, in order, at least one.
        unites: Whether the triples of all count, not only those of the first that finds any.
    """
    if len(parts) == 1:
        return parts[0]
    way = "all" if unites else "first"
    content = orjson.dumps([way, [[part.name, part.digest] for part in parts]])
    return Extraction(
        f"{way}: {', '.join(part.name for part in parts)}",
        hashlib.sha256(content).hexdigest()[:16],
        Several(tuple(parts), unites),
        any(part.reads_previous for part in parts),
        frozenset().union(*(part.single_valued for part in parts)),
        frozenset().union(*(part.multi_valued for part in parts)),
    )


def _load(document: Document) -> tuple[PatternFile, PatternSet]:
    mistakes = mistakes_of(document, PatternFile)
    readings = _read_patterns(document)
    mistakes += [mistake for reading in readings for mistake in reading.mistakes]
    others = _Expressions(document, _word_lists(document))
    unless = others.compile_all(("unless",))
    for trail in _entries(document, "patterns"):
        if not _well_formed(PatternForm, document, trail):
            for key in ("when", "unless", "when_previous"):
                others.compile_all((*trail, key))
    mistakes += others.mistakes
    mistakes += [*_find_repeated(document, "patterns", "id"), *_check_aliases(document)]
    mistakes += [*_find_contradictions(document), *_find_aliases_in_lists(document)]
    _raise(mistakes)
    form = PatternFile.model_validate(document.value)
    aliases = Aliases(*(_by_key(names) for names in form.aliases.model_dump().values()))
    of_file = tuple(named.compiled for named in unless)
    patterns = tuple(reading.pattern(of_file, form.unless_in) for reading in readings)
    return form, PatternSet(patterns, aliases, form.speakers, _opposites(form.opposites))


def _opposites(pairs: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    opposites: dict[str, list[str]] = {}
    for one, other in pairs:
        opposites.setdefault(one, []).append(other)
        opposites.setdefault(other, []).append(one)
    return opposites


def load_pattern_tests(file: Path, person: Collection[str] = PERSON) -> list[PatternTest]:
    """Load a file of tests for patterns.

    Args:
        person: The speakers whose words are those of the user.

    Raises:
        ConfigurationError: The file has mistakes; the error lists all of them.
    """
    document = read_document(file)
    mistakes = mistakes_of(document, PatternTestFile)
    _raise([*mistakes, *_find_repeated(document, "tests", "name")])
    forms = PatternTestFile.model_validate(document.value).tests
    return [
        replace(_test(form, person), line=document.place(("tests", number, "name")).line)
        for number, form in enumerate(forms)
    ]


def _raise(mistakes: Iterable[Mistake]) -> None:
    found = sorted(dict.fromkeys(mistakes), key=lambda m: (m.line, m.column))
    if found:
        raise ConfigurationError(found)


def _find_repeated(document: Document, group: str, key: str) -> Iterator[Mistake]:
    first: dict[str, Trail] = {}
    for trail in _entries(document, group):
        value = document.at((*trail, key))
        if not isinstance(value, str):
            continue
        other = first.setdefault(value, trail)
        if other != trail:
            line = document.place((*other, key)).line
            problem = f"{key} {format_value(value)} is taken in line {line}; choose another"
            yield document.mistake((*trail, key), problem)


def _entries(document: Document, group: str) -> list[Trail]:
    entries = document.at((group,))
    return [(group, number) for number in range(len(entries) if isinstance(entries, list) else 0)]


def _well_formed(form: type[BaseModel], document: Document, trail: Trail) -> bool:
    return not problems(form, document.at(trail), strict=True)


def _by_key(names: Mapping[str, str]) -> dict[str, str]:
    return {alias_key(alias): name for alias, name in names.items()}


def _check_aliases(document: Document) -> Iterator[Mistake]:
    for part in ("subjects", "predicates", "objects"):
        trail = ("aliases", part)
        names = document.at(trail)
        entries = names.items() if isinstance(names, dict) else ()
        texts = {alias: name for alias, name in entries if isinstance(name, str)}
        yield from _check_names(document, trail, texts)


def _check_names(document: Document, trail: Trail, names: Mapping[str, str]) -> Iterator[Mistake]:
    """Report aliases that are equal, and names that are aliases of other names."""
    first: dict[str, str] = {}
    for alias in names:
        other = first.setdefault(alias_key(alias), alias)
        if other != alias:
            problem = f"{format_value(alias)} is the same alias as {format_value(other)}"
            yield document.mistake((*trail, alias), f"{problem}; leave one out", at="key")
    final = _by_key(names)
    for alias, name in names.items():
        further = final.get(alias_key(name), name)
        if alias_key(further) != alias_key(name):
            problem = f"{format_value(name)} is itself an alias; write {format_value(further)}"
            yield document.mistake((*trail, alias), problem)


def _find_contradictions(document: Document) -> Iterator[Mistake]:
    """Report predicates that are listed twice, and that are their own opposite."""
    first: dict[str, str] = {}
    for key in ("single_valued", "multi_valued"):
        listed = document.at((key,))
        for number, predicate in enumerate(listed if isinstance(listed, list) else ()):
            if other := first.get(str(predicate)):
                where = "is given twice" if other == key else f"is under {other} too"
                problem = f"{format_value(predicate)} {where}; leave one of them out"
                yield document.mistake((key, number), problem)
            first[str(predicate)] = key
    pairs = document.at(("opposites",))
    for number, pair in enumerate(pairs if isinstance(pairs, list) else ()):
        if isinstance(pair, list) and len(pair) == 2 and pair[0] == pair[1]:
            problem = f"{format_value(pair[0])} is no opposite of itself; name another predicate"
            yield document.mistake(("opposites", number, 1), problem)


def _find_aliases_in_lists(document: Document) -> Iterator[Mistake]:
    """Report aliases in lists of predicates: triples have the names."""
    given = document.at(("aliases", "predicates"))
    texts = {
        alias: name
        for alias, name in (given.items() if isinstance(given, dict) else ())
        if isinstance(name, str)
    }
    names = _by_key(texts)
    for trail in _predicates_listed(document):
        predicate = document.at(trail)
        name = names.get(alias_key(predicate)) if isinstance(predicate, str) else None
        if name is not None and name != predicate:
            problem = f"{format_value(predicate)} is an alias; write {format_value(name)}"
            yield document.mistake(trail, problem)


def _predicates_listed(document: Document) -> Iterator[Trail]:
    for key in ("single_valued", "multi_valued"):
        listed = document.at((key,))
        yield from ((key, n) for n in range(len(listed) if isinstance(listed, list) else 0))
    for pair in _entries(document, "opposites"):
        listed = document.at(pair)
        yield from ((*pair, n) for n in range(len(listed) if isinstance(listed, list) else 0))


def _read_patterns(document: Document) -> list[_Reading]:
    """Return the well-formed patterns of a file, compiled."""
    words = _word_lists(document)
    return [
        _Reading(document, trail, PatternForm.model_validate(document.at(trail)), words)
        for trail in _entries(document, "patterns")
        if _well_formed(PatternForm, document, trail)
    ]


def _word_lists(document: Document) -> dict[str, list[str]]:
    words = document.at(("words",))
    return {
        name: [word for word in listed if isinstance(word, str) and _is_valid(word)]
        for name, listed in (words.items() if isinstance(words, dict) else ())
        if isinstance(listed, list)
    }


def _is_valid(text: str) -> bool:
    """Return whether a text is valid Unicode."""
    return replace_surrogates(text) == text


class _Named(NamedTuple):
    """A compiled expression with its place."""

    trail: Trail
    compiled: Expression

    @property
    def groups(self) -> Collection[str]:
        """The names of its groups."""
        return self.compiled.groupindex.keys()


class _Expressions:
    """Compiles the expressions of a file.

    Attributes:
        mistakes: The mistakes that the form does not check.
    """

    def __init__(self, document: Document, words: Mapping[str, Sequence[str]]) -> None:
        self.mistakes: list[Mistake] = []
        self._document = document
        self._words = words

    def compile_all(self, trail: Trail) -> list[_Named]:
        """Return the valid expressions of a key: one, a list, or none."""
        given = self._document.at(trail)
        if isinstance(given, str):
            texts: list[tuple[Trail, object]] = [(trail, given)]
        else:
            listed = given if isinstance(given, list) else ()
            texts = [((*trail, number), text) for number, text in enumerate(listed)]
        compiled = (self._compile(at, text) for at, text in texts if isinstance(text, str))
        return [named for named in compiled if named is not None]

    def _compile(self, trail: Trail, text: str) -> _Named | None:
        if not text or not _is_valid(text):
            return None  # the form reports it
        if unknown := [name for name in word_lists(text) if name not in self._words]:
            known = _known(unknown[0], self._words)
            self.add(trail, f"there is no word list {unknown[0]!r}; {known}")
            return None
        whole = insert_words(text, self._words)
        try:
            return _Named(trail, compile_expression("expression", whole, ignore_case=True))
        except PatternError as error:
            position = error.position if whole == text else None
            self.add(trail, f"the expression is not valid RE2: {error.problem}", position)
        except ExtraMissingError as error:
            self.add(trail, f"needs the extra: `pip install 'slumberd[{error.extra}]'`")
        return None

    def add(self, trail: Trail, problem: str, position: int | None = None) -> None:
        """Add a mistake.

        Args:
            trail: The key.
            problem: What is wrong, and the remedy.
            position: Where in the text of the key, in characters.
        """
        mistake = self._document.mistake(trail, problem)
        place = None if position is None else self._document.within(trail, position)
        if place is not None:
            mistake = replace(mistake, line=place.line, column=place.column)
        self.mistakes.append(mistake)


class _Reading(_Expressions):
    """Reads one pattern."""

    def __init__(
        self,
        document: Document,
        trail: Trail,
        form: PatternForm,
        words: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(document, words)
        self._trail = trail
        self._form = form
        self._when = self.compile_all((*trail, "when"))
        self._unless = self.compile_all((*trail, "unless"))
        self._previous = self.compile_all((*trail, "when_previous"))
        if not self.mistakes:
            self._check_groups()

    def pattern(self, of_file: Sequence[Expression], unless_in: UnlessIn) -> Pattern:
        """Return the pattern; it must have no mistakes.

        Args:
            of_file: The expressions of ``unless`` of the file.
            unless_in: Where the file looks for them.
        """
        form, says = self._form, self._form.says
        own = [named.compiled for named in self._unless]
        return Pattern(
            id=form.id,
            when=tuple(named.compiled for named in self._when),
            says=Says(says.subject, says.predicate, says.object, says.object_words or ""),
            when_previous=self._previous[0].compiled if self._previous else None,
            unless=(*own, *(of_file if form.file_unless else ())),
            unless_in=form.unless_in or unless_in,
            intent=form.intent,
            negated=form.negated,
            confidence=form.confidence,
            normalise=form.normalise,
            keep_unknown=frozenset(form.keep_unknown),
        )

    def _check_groups(self) -> None:
        asked = {name for named in self._previous for name in named.groups}
        self._check_reserved()
        for key in ("subject", "predicate", "object", "object_words"):
            template = getattr(self._form.says, key)
            for name in placeholders(template) if isinstance(template, str) else ():
                self._check_name(("says", key), name, asked)
        words = self._form.says.object_words
        if words and not placeholders(words) and not content_words(words):
            problem = f"{format_value(words)} has no word that counts; name a word of the objects"
            self.add((*self._trail, "says", "object_words"), problem)
        known = sorted(asked.union(*(named.groups for named in self._when)))
        named_groups: dict[Trail, str] = {
            **{("normalise", name): name for name in self._form.normalise},
            **{("keep_unknown", n): name for n, name in enumerate(self._form.keep_unknown)},
        }
        for keys, name in named_groups.items():
            if name not in known:
                self._add_unknown(keys, name, known)

    def _check_reserved(self) -> None:
        for named in (*self._when, *self._previous):
            if reserved := [name for name in SPEAKERS if name in named.groups]:
                problem = f"group {reserved[0]!r} has the name of a speaker; give it another name"
                self.add(named.trail, problem)

    def _check_name(self, keys: Trail, name: str, asked: Collection[str]) -> None:
        """Check that every expression of ``when`` gives a name of a template."""
        if name in asked or name in SPEAKERS:
            return
        for number, named in enumerate(self._when, start=1):
            if name not in named.groups:
                where = "" if len(self._when) == 1 else f" in entry {number} of 'when'"
                known = sorted({*named.groups, *asked}) + list(SPEAKERS)
                self._add_unknown(keys, name, known, where=where)
                return

    def _add_unknown(
        self, keys: Trail, name: str, known: Collection[str], *, where: str = ""
    ) -> None:
        problem = f"there is no group {name!r}{where}; {_known(name, known)}"
        self.add((*self._trail, *keys), problem)


def _known(word: str, known: Collection[str]) -> str:
    return suggestion(word, known) if known else "none is defined"


def _test(form: PatternTestForm, person: Collection[str]) -> PatternTest:
    turns: list[Turn] = []
    at = FIRST - _MINUTE
    for number, said in enumerate(form.says, start=1):
        at = at + _MINUTE if said.at is None else read_instant(said.at)
        turns.append(_turn(number, said, at, person))
    expected = tuple(
        Expected(one.subject, one.predicate, one.object, one.intent, tuple(one.object_words or ()))
        for one in form.expect
    )
    return PatternTest(form.name, tuple(turns), expected)


def _turn(number: int, said: TurnForm, at: datetime, person: Collection[str]) -> Turn:
    return Turn(
        f"{number:06}", "test", said.speaker, said.text, microseconds(at),
        user="user", agent="agent", is_person=said.speaker in person,
    )  # fmt: skip
