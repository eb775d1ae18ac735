"""Find what people say of themselves, their relatives and their pets, in plain English.

The extractor prefers silence: a wrong fact costs more than a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from slumberd.extraction.clauses import FINITE, Clause, divide_into_clauses
from slumberd.extraction.dated_plans import cancelled_plan, habit_in, plan_in
from slumberd.extraction.objects_in_english import READERS, Object, cut
from slumberd.extraction.own_objects import OWN_READERS
from slumberd.extraction.short_answers import answered, is_taken_back, meant_instead
from slumberd.extraction.statements_in_english import Effect, Expression, expressions
from slumberd.extraction.subjects_in_english import (
    Mention,
    Said,
    Subject,
    introduced,
    kind_of_favourite,
    mentions,
    said,
    subject_of,
)
from slumberd.extraction.turns import arrange, name_of_speaker
from slumberd.extraction.vocabulary import Vocabulary
from slumberd.model.extraction import Extracted, Turn

VERSION = 1
"""Changes when the same text and vocabulary give other triples than before."""

STATED, IMPLIED, ANSWERED = 0.9, 0.8, 0.7
"""The confidence of what a clause states, of what a possessive implies, and of a short answer."""

NAME = "conversation"

MAX_TEXT = 20_000
"""Of a longer text only so many characters are read."""

_GATE = re.compile(
    r"\b(?:i|im|ive|my|we|our|he|she|hes|shes|moved|adopted|quit|joined|graduated|retired|switched"
    r"|living|working|allergic|studying|based|born|cancel\w*|called off|fell through|call me|died|passed away|not a|lives|works|is|has)\b",
    re.IGNORECASE,
)
_READERS: Mapping[str, Callable[[str, Vocabulary], list[Object]]] = {**READERS, **OWN_READERS}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Finds triples in what people say.

    Attributes:
        vocabulary: The words that it knows.
        speakers: The name of each speaker, by the speaker of a turn. Others keep theirs.
    """

    vocabulary: Vocabulary
    speakers: Mapping[str, str] = field(default_factory=dict)

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        """Return the triples of each turn; see `Extractor`."""
        return [self._extract(*pair) for pair in zip(turns, before, strict=True)]

    def _extract(self, turn: Turn, before: Turn | None) -> list[Extracted]:
        name = name_of_speaker(turn, self.speakers)
        found = _Reading(turn, name, self.vocabulary).find() if name else []
        if name and not found and before is not None:
            found = self._answer(turn, before, name)
        if name and turn.own_last is not None and is_taken_back(turn.content):
            found = [*self._take_back(turn, turn.own_last, name, found), *found]
        if not turn.is_person:
            found = [one for one in found if one.intent == "add"]
        return arrange(one for one in found if one.by not in self.vocabulary.removed)

    def _answer(self, turn: Turn, before: Turn, name: str) -> list[Extracted]:
        answer = answered(before.content, turn.content)
        if answer is None or not self.vocabulary.knows(answer.predicate):
            return []
        objects = _READERS[answer.reader](answer.words, self.vocabulary)
        span = (0, len(turn.content))
        return [
            Extracted(name, answer.predicate, one, "add", span, f"{NAME}/answer", ANSWERED)
            for one in objects[:1]
        ]

    def _take_back(
        self, turn: Turn, last: Turn, name: str, found: Sequence[Extracted]
    ) -> Iterator[Extracted]:
        """Yield the retractions of a speaker's last turn, and what was meant instead."""
        said_before = [
            one for one in _Reading(last, name, self.vocabulary).find() if one.intent == "add"
        ]
        span = (0, len(turn.content))
        by = f"{NAME}/taken_back"
        for subject, predicate in dict.fromkeys(
            (one.subject, one.predicate) for one in said_before
        ):
            yield Extracted(subject, predicate, None, "delete", span, by, STATED, (), (last.id,))
        words = meant_instead(turn.content)
        if words and said_before and not found:
            first = said_before[0]
            for one in _read_again(first, words, self.vocabulary)[:1]:
                yield Extracted(first.subject, first.predicate, one, "add", span, by, ANSWERED)


def _read_again(first: Extracted, words: str, vocabulary: Vocabulary) -> list[Object]:
    """Return the object that replaces the one of a triple, by the reader that read it."""
    effects = (
        effect
        for expression in expressions()
        for effect in expression.effects
        if effect.predicate == first.predicate and effect.reader
    )
    readers = [effect.reader for effect in effects] or ["phrase"]
    for reader in dict.fromkeys(readers):
        if found := _READERS[reader](words, vocabulary):
            return found
    return []


class _Reading:
    """Reads one turn.

    Args:
        turn: The turn.
        speaker: What the speaker is called.
        vocabulary: The words that are known.
    """

    def __init__(self, turn: Turn, speaker: str, vocabulary: Vocabulary) -> None:
        self._turn = turn
        self._speaker = speaker
        self._vocabulary = vocabulary
        self._found: list[Extracted] = []
        self._people: list[tuple[str, str]] = []
        self._told: dict[str, tuple[str, bool]] = {}
        self._last: Subject | None = None
        self._attribute_before: tuple[str, str, str] | None = None
        self._object = ""

    def find(self) -> list[Extracted]:
        """Return the triples of the turn."""
        text = self._turn.content[:MAX_TEXT]
        if not _GATE.search(text):
            return []
        number = -1
        for clause in divide_into_clauses(text):
            if clause.sentence != number:
                self._last, number = None, clause.sentence
                self._attribute_before, self._object = None, ""
            self._read(clause)
        known = (one for one in self._found if self._vocabulary.knows(one.predicate))
        return [*known]

    def _read(self, clause: Clause) -> None:
        if (words := cancelled_plan(clause.text)) is not None:
            self._retract(clause, "cancelled", self._speaker, "plans", words)
            return
        if " my " in clause.text and self._inverted(clause):
            return
        subject = subject_of(clause.text, self._vocabulary) or self._inherited(clause)
        self._mention(clause, subject)
        if subject is None:
            self._read_without_subject(clause)
            return
        if subject.kind != "who":
            self._last = subject
        if subject.kind == "my" and subject.mention is None:
            self._attribute(clause, subject.rest)
            return
        self._state(clause, subject)

    def _inherited(self, clause: Clause) -> Subject | None:
        """Return the subject of a clause that begins with a verb."""
        text = clause.text
        if self._last is not None and _FINITE.match(text):
            return self._last._replace(rest=text)
        if self._last is None and (match := _ELIDED.match(text)):
            if match["be"] and _GOES_ON.search(text):
                return None
            return Subject("i", "", f"am {text}" if match["be"] else text)
        return None

    def _read_without_subject(self, clause: Clause) -> None:
        """Read ``it is green`` after ``my favourite colour``, and ``call me Bob``."""
        if self._attribute_before and (match := _IT_IS.match(clause.text)):
            self._say_attribute(clause, *self._attribute_before, said(match["rest"]))
        elif match := _HOME_IS.match(clause.text):
            for place in _READERS["named_place"](match["o"], self._vocabulary)[:1]:
                self._add(clause, "home_is", self._speaker, "lives_in", place)
        elif match := _CALL_ME.match(clause.text):
            for name in _READERS["names"](match["o"], self._vocabulary):
                self._add(clause, "call_me", self._speaker, "name", name)

    # People and pets

    def _mention(self, clause: Clause, subject: Subject | None) -> None:
        """State what ``my wife Ana`` and ``our dog Rex`` imply; remember who was named."""
        text = clause.text
        for mention in mentions(text, self._vocabulary):
            self._remember(mention)
            if not _IMPLIES_NOTHING.search(text) and not (
                subject is not None
                and subject.mention == mention
                and _END_OF_LIFE.match(subject.rest)
            ):
                self._imply(clause, mention)
        if subject is None or subject.kind not in ("i", "we") or said(subject.rest).negated:
            return
        for mention in introduced(subject.rest, self._vocabulary):
            self._remember(mention)
            if mention.kind in _CLOSE:
                self._imply(clause, mention)
            else:
                self._name(clause, mention)

    def _remember(self, mention: Mention) -> None:
        who = f"{self._speaker}'s {mention.kind}"
        person = self._vocabulary.people.get(mention.kind)
        self._people.append((person.gender if person else "", who))
        for name in mention.names:
            self._told[name] = (mention.kind, mention.is_pet)

    def _imply(self, clause: Clause, mention: Mention) -> None:
        add = partial(self._add, clause, "implied", self._speaker, confidence=IMPLIED)
        if mention.is_pet:
            if mention.names or mention.kind not in _EATEN:
                add("has_pet", mention.kind)
        else:
            for predicate, object_ in self._vocabulary.people[mention.kind].implies.items():
                add(predicate, object_)
        self._name(clause, mention)

    def _name(self, clause: Clause, mention: Mention) -> None:
        person = self._vocabulary.people.get(mention.kind)
        predicate = "pet_name" if mention.is_pet else person.named if person else ""
        for name in mention.names if predicate else ():
            self._add(clause, "named", self._speaker, predicate, name)

    # Statements

    def _state(self, clause: Clause, subject: Subject) -> None:
        who = self._who(subject)
        if not who:
            return
        words = said(subject.rest)
        if " yet" in clause.text and words.negated:
            return
        if clause.greets and subject.kind == "i" and (match := _I_AM.match(words.words)):
            for name in _READERS["names"](match["o"], self._vocabulary):
                self._add(clause, "greeting", who, "name", name)
        if self._relation(clause, subject, words) or self._end(clause, subject, words):
            return
        is_speaker = who == self._speaker
        known = is_speaker or subject.kind != "name" or subject.words in self._told
        if known and not words.negated and (habit := habit_in(words.words)):
            self._add(clause, "habit", who, "habit", habit)
            return
        if is_speaker and (plan := plan_in(words.words, self._turn.at)):
            if words.negated:
                if names := _names_in(plan.words):
                    self._retract(clause, "cancelled", who, "plans", names)
            elif plan.is_kept:
                self._add(clause, "plan", who, "plans", plan.words)
            return
        for expression in expressions():
            if expression.subjects == "speaker" and not is_speaker:
                continue
            if expression.subjects == "known" and not known:
                continue
            if expression.id == ("left_for" if subject.kind != "we" else "switched_jobs"):
                continue
            match = expression.when.match(self._resolved(words.words))
            if match and self._apply(clause, expression, match, who, words):
                return

    def _resolved(self, words: str) -> str:
        """Return words with the last object of the sentence for ``it`` and ``them`` at their end."""
        match = _IT.search(words)
        return f"{words[: match.start()]} {self._object}" if match and self._object else words

    def _who(self, subject: Subject) -> str:
        """Return what the subject of a clause is called; empty when nobody is known."""
        match subject.kind:
            case "i" | "we":
                return self._speaker
            case "my":
                return f"{self._speaker}'s {subject.mention.kind}" if subject.mention else ""
            case "she" | "he" | "who":
                wanted = {"she": ("female", ""), "he": ("male", "")}.get(subject.kind)
                fits = [who for gender, who in self._people if wanted is None or gender in wanted]
                return fits[-1] if fits else ""
            case _:
                return subject.words

    def _apply(
        self, clause: Clause, expression: Expression, match: re.Match[str], who: str, words: Said
    ) -> bool:
        """State the effects of an expression that matches; return whether there are any."""
        first = expression.effects[0]
        if words.negated:
            return self._deny(clause, expression, match, who, words)
        if not first.retracts and not self._objects(first, match):
            return False
        if first.retracts and first.reader and not self._objects(first, match):
            return False
        self._keep_object(first, match)
        before = len(self._found)
        for effect in expression.effects:
            predicate = effect.predicate
            if predicate == "works_at" and words.also and not effect.retracts:
                predicate = "works_also_at"
            if effect.retracts:
                self._take(clause, expression.id, who, effect, match)
                continue
            for object_ in self._objects(effect, match):
                self._add(clause, expression.id, who, predicate, object_)
        return len(self._found) > before

    def _keep_object(self, effect: Effect, match: re.Match[str]) -> None:
        """Remember what ``it`` means in the rest of the sentence."""
        if effect.group and match[effect.group]:
            self._object = cut(match[effect.group])

    def _objects(self, effect: Effect, match: re.Match[str]) -> list[Object]:
        if effect.words:
            return [effect.words]
        text = match[effect.group] if effect.group else ""
        if effect.reader == "drunk" and not text:
            return ["alcohol"]
        return _READERS[effect.reader](text.strip(), self._vocabulary) if text else []

    def _take(
        self, clause: Clause, id: str, who: str, effect: Effect, match: re.Match[str]
    ) -> None:
        """Take back what an effect of an expression names."""
        if effect.words:
            self._retract(clause, id, who, effect.predicate, _content_words(effect.words))
        elif not effect.group:
            self._retract(clause, id, who, effect.predicate, ())
        elif text := match[effect.group]:
            objects = self._objects(effect, match) if effect.reader else [text]
            for predicate in _GROUPS.get(effect.predicate, (effect.predicate,)):
                if predicate == "has_pet":
                    self._lose_pet(clause, id, text)
                    continue
                for object_ in objects:
                    if words := _content_words(str(object_)):
                        self._retract(clause, id, who, predicate, words)

    def _deny(
        self, clause: Clause, expression: Expression, match: re.Match[str], who: str, words: Said
    ) -> bool:
        first = expression.effects[0]
        objects = [] if first.retracts else self._objects(first, match)
        if not expression.negated or not objects:
            return False
        self._keep_object(first, match)
        for object_ in objects:
            if not expression.negated.startswith("-") and not words.past:
                self._add(clause, expression.id, who, expression.negated, object_)
                continue
            self._retract(clause, expression.id, who, first.predicate, _content_words(str(object_)))
            if words.ended and expression.negated.startswith("-") and expression.negated != "-":
                self._add(clause, expression.id, who, expression.negated[1:], object_)
        return True

    def _relation(self, clause: Clause, subject: Subject, words: Said) -> bool:
        """State the name of a relative or pet, as in ``my sister is called Ana``."""
        mention = subject.mention
        if mention is None or mention.names:
            return False
        match = _CALLED.match(words.words) if not mention.possessive else _S_NAME.match(words.words)
        if match is None or words.negated:
            return False
        names = _READERS["names"](match["o"], self._vocabulary)
        for name in names:
            self._remember(mention._replace(names=(str(name),)))
            self._name(clause, mention._replace(names=(str(name),)))
        return bool(names)

    def _end(self, clause: Clause, subject: Subject, words: Said) -> bool:
        """Take back what ends with a death or a separation."""
        mention = subject.mention
        if subject.kind == "name" and subject.words in self._told:
            kind, is_pet = self._told[subject.words]
            mention = Mention(kind, (subject.words,), is_pet, 0, 0)
        if subject.kind in ("he", "she") and (who := self._who(subject)):
            kind = who.removeprefix(f"{self._speaker}'s ")
            is_pet = kind not in self._vocabulary.people
            named = [name for name, (told, _) in self._told.items() if told == kind]
            mention = Mention(kind, tuple(named[-1:]), is_pet, 0, 0)
        is_over = _END_OF_LIFE.match(words.words) and not words.negated
        if mention is None:
            if is_over and subject.kind == "name":
                self._retract(clause, "died", self._speaker, "pet_name", (subject.words,))
            return bool(is_over)
        if is_over and mention.is_pet:
            self._retract(clause, "died", self._speaker, "has_pet", (mention.kind,))
            for name in mention.names:
                self._retract(clause, "died", self._speaker, "pet_name", (name,))
            return True
        person = self._vocabulary.people.get(mention.kind)
        if person is None or person.named != "partner":
            return bool(is_over)
        if is_over and _DIED.match(words.words):
            self._add(clause, "died", self._speaker, "marital_status", "widowed")
            self._retract(clause, "died", self._speaker, "partner", ())
            return True
        if words.words.startswith("proposed") and not words.negated:
            self._add(clause, "proposed", self._speaker, "marital_status", "engaged")
            return True
        if _LEFT_ME.match(words.words) and not words.negated:
            self._add(clause, "separated", self._speaker, "marital_status", "single")
            self._retract(clause, "separated", self._speaker, "partner", ())
            return True
        return False

    def _lose_pet(self, clause: Clause, id: str, text: str) -> None:
        for mention in mentions(text, self._vocabulary):
            if mention.is_pet:
                self._drop_implied("has_pet", mention.kind)
                self._drop_implied("pet_name", *mention.names)
                self._retract(clause, id, self._speaker, "has_pet", (mention.kind,))
                for name in mention.names:
                    self._retract(clause, id, self._speaker, "pet_name", (name,))

    def _drop_implied(self, predicate: str, *objects: str) -> None:
        self._found = [
            one
            for one in self._found
            if one.predicate != predicate or one.object not in objects or one.intent != "add"
        ]

    # Attributes: ``my favourite food is sushi``

    def _attribute(self, clause: Clause, text: str) -> None:
        if match := _PRESCRIBED.match(text):
            for drug in _READERS["medication"](match["o"], self._vocabulary):
                self._add(clause, "prescribed", self._speaker, "medication", drug)
            return
        for id, pattern, predicate, reader in _ATTRIBUTES:
            match = pattern.match(text)
            if match is None:
                continue
            predicate = predicate or kind_of_favourite(match["kind"] or "")
            self._attribute_before = (id, predicate, reader)
            self._say_attribute(clause, id, predicate, reader, said(match["rest"]))
            return

    def _say_attribute(
        self, clause: Clause, id: str, predicate: str, reader: str, words: Said
    ) -> None:
        be = _IS.match(words.words)
        objects = _READERS[reader](be["o"], self._vocabulary) if be and predicate else []
        for object_ in objects:
            if words.negated:
                content = _content_words(str(object_))
                self._retract(clause, id, self._speaker, predicate, content)
            else:
                self._add(clause, id, self._speaker, predicate, object_)

    def _inverted(self, clause: Clause) -> bool:
        """State ``sushi is my favourite food`` and ``Ana is my sister``; return whether it did."""
        match = _INVERTED.match(clause.text)
        if match is None:
            return False
        before = len(self._found)
        if match["kind"]:
            predicate = kind_of_favourite(match["kind"])
            for object_ in READERS["favourites"](match["o"], self._vocabulary) if predicate else ():
                self._add(clause, "inverted", self._speaker, predicate, object_)
            return len(self._found) > before
        names = tuple(map(str, _READERS["names"](match["o"], self._vocabulary)))
        for mention in mentions(f"my {match['who']}", self._vocabulary):
            named = mention._replace(names=names)
            self._remember(named)
            if names:
                self._imply(clause, named)
        return len(self._found) > before

    # Triples

    def _add(
        self,
        clause: Clause,
        id: str,
        subject: str,
        predicate: str,
        object_: Object,
        confidence: float = STATED,
    ) -> None:
        self._found.append(
            Extracted(subject, predicate, object_, "add", clause.span, f"{NAME}/{id}", confidence)
        )
        for opposite in sorted(self._vocabulary.opposites.get(predicate, ())):
            self._found.append(
                Extracted(
                    subject, opposite, object_, "delete", clause.span, f"{NAME}/{id}", confidence
                )
            )

    def _retract(
        self, clause: Clause, id: str, subject: str, predicate: str, words: Iterable[str]
    ) -> None:
        self._found.append(
            Extracted(
                subject,
                predicate,
                None,
                "delete",
                clause.span,
                f"{NAME}/{id}",
                STATED,
                tuple(words),
            )
        )


_IT_IS = re.compile(r"(?:now )?(?:it|they) (?P<rest>(?:is|are) .+)", re.IGNORECASE)
_HOME_IS = re.compile(r"[Hh]ome is (?:now |currently )?(?P<o>[A-Z].+)")
_PRESCRIBED = re.compile(
    r"(?:doctor|gp|psychiatrist|dermatologist|cardiologist|vet|therapist) (?:has |have |just )*(?:put me on"
    r"|prescribed me|prescribed|started me on|switched me to) (?P<o>.+)",
    re.IGNORECASE,
)
_CALL_ME = re.compile(
    r"(?:[Pp]lease |[Yy]ou can |[Jj]ust |[Ee]veryone |[Ee]verybody |[Pp]eople |(?:[Mm]y )?friends )*[Cc]alls? me (?P<o>[A-Z].+)"
)
_FINITE = re.compile(rf"(?:{FINITE})\b", re.IGNORECASE)
_ELIDED = re.compile(
    r"(?:moved|relocated|adopted|quit|joined|graduated|retired|switched|broke up|got (?:a|married|engaged"
    r"|divorced|fired|laid|promoted|hired)|started (?:a|at|working|learning)|bought a|sold my)\b"
    r"|(?P<be>(?:living|working|allergic|studying|based|born) (?:in|at|as|for|to)\b|not an? )",
    re.IGNORECASE,
)
_IT = re.compile(r" (?:it|them)$")
_GOES_ON = re.compile(
    r" (?:is|are|was|has|have|had|not only|can|will|gives?|makes?|means|helps?|provides?|requires?|takes)\b"
)
_I_AM = re.compile(r"am (?P<o>[^\W\d_a-z][\w'-]*)(?: [^\W\d_a-z][\w'-]*)?$")
_CALLED = re.compile(
    r"(?:is|are|was)(?: called| named)? (?P<o>[^\W\d_a-z].*)|(?:is|are) (?:called|named) (?P<p>.+)"
)
_S_NAME = re.compile(r"(?:name|names) (?:is|are) (?P<o>.+)")
_IS = re.compile(
    r"(?:is|are|am|has been|have been|became|has become|has changed to|changed to|will be)(?: at| in| as| with)? (?P<o>.+)"
)
_END_OF_LIFE = re.compile(
    r"(?:has |have |had to be |is |was |just |sadly )*(?:died|passed(?: away| on)?$|passed away|put down|put to sleep|dead|ran away"
    r"|run away|crossed the rainbow|rehomed|stolen|no longer with us|gone$)",
    re.IGNORECASE,
)
_DIED = re.compile(r"(?:has |is )?(?:died|passed|dead|no longer)", re.IGNORECASE)
_LEFT_ME = re.compile(
    r"(?:has |just )?(?:left|dumped|divorced|broke up with|is divorcing|ended things with) (?:me|us)\b"
    r"|(?:and I|and me) (?:broke|split|separated|divorced)",
    re.IGNORECASE,
)
_IMPLIES_NOTHING = re.compile(
    r"\b(?:used to|ex|never had|no longer|any ?more|future|imaginary|died|passed away|lost|put down|as a kid|childhood"
    r"|growing up|when I was|not my|like my|be my|become my|find my|meet my|was my|were my|left me|dumped me"
    r"|broke up|broken up|split up|separated|divorced|getting a divorce)\b",
    re.IGNORECASE,
)
_EATEN = frozenset({"chicken", "fish", "hen", "goat", "pig", "lab", "rat", "bird"})
"""``my fish`` may be a meal, and ``my lab`` a place of work."""

_CLOSE = frozenset({"son", "daughter", "brother", "sister"})
"""``I have a sister`` implies what ``my sister`` does."""

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "activity": ("habit", "hobby", "plays", "learning"),
    "pet": ("has_pet",),
}
"""What a retraction of several predicates takes back."""

_EMPTY_WORDS = frozenset(
    "a an the my our his her of in on at to for with and or it this that some any all more new old"
    " very just really own other things stuff".split()
)


def _names_in(text: str) -> tuple[str, ...]:
    """Return the words in capitals after the first word of a text."""
    return tuple(word for word in re.findall(r"[\w'-]+", text)[1:] if word[:1].isupper())[:4]


def _content_words(text: object) -> tuple[str, ...]:
    """Return the words of a text by which a retraction finds an object."""
    words = [
        word.strip("'-")
        for word in re.findall(r"[\w'-]+", str(text))
        if word.casefold() not in _EMPTY_WORDS
    ]
    return tuple(words)[:4]


_ADJ = r"(?:new |current |full |real |first |actual |own |present |newest |main |primary |dream )*"


def _attribute_of(words: str) -> re.Pattern[str]:
    return re.compile(
        rf"{_ADJ}(?:{words})(?:'s)?(?: here| now| at the moment| these days)?,? (?P<rest>(?:is|are|am|was|has|have|will|just|now|used|became|changed)\b.*)",
        re.IGNORECASE,
    )


_ATTRIBUTES: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
    ("my_job_at", re.compile(rf"{_ADJ}job (?P<rest>(?:is|will be) (?:at|with|for) .+)", re.IGNORECASE), "works_at", "employer"),
    ("my_name", _attribute_of("name|first name|full name|preferred name"), "name", "names"),
    ("my_age", _attribute_of("age"), "age", "age"),
    ("my_birthday", _attribute_of("birthday|birthdate|date of birth|bday|b-day"), "birthday", "day"),
    ("my_job", _attribute_of("job|job title|profession|occupation|role|title|position"), "job", "job"),
    ("my_employer", _attribute_of("employer|company|workplace"), "works_at", "employer"),
    ("my_boss", _attribute_of("boss|manager|supervisor|line manager"), "boss", "names"),
    ("my_children", _attribute_of("kids|children"), "has_child", "names"),
    ("my_hobby", _attribute_of("hobby|hobbies|pastime|favourite (?:hobby|hobbies|pastime|pastimes)"), "hobby", "things"),
    ("favourite", re.compile(r"(?:new |all[- ]time |absolute |current )*favourite (?P<kind>[a-z]+(?: [a-z]+){0,2}?)(?: of all time| ever| now| these days)? (?P<rest>(?:is|are|was|has|will|used|just|now|became|changed)\b.*)", re.IGNORECASE), "", "favourites"),
    ("my_hometown", _attribute_of("hometown|home town|home country|birthplace"), "from", "place"),
    ("my_home", _attribute_of("home|place|flat|apartment|house|address"), "lives_in", "named_place"),
    ("my_religion", _attribute_of("religion|faith"), "religion", "religion"),
    ("my_nationality", _attribute_of("nationality"), "nationality", "nationality"),
    ("my_pronouns", _attribute_of("pronouns|preferred pronouns"), "pronouns", "pronouns"),
    ("my_language", _attribute_of("native language|first language|mother tongue|native tongue|second language"), "speaks", "language"),
    ("my_height", _attribute_of("height"), "height", "phrase"),
    ("my_diet", _attribute_of("diet"), "diet", "diet"),
    ("my_major", _attribute_of("major|degree|course"), "studies", "study"),
    ("my_school", _attribute_of("school|university|uni|college|alma mater"), "studies_at", "named_employer"),
    ("my_sign", _attribute_of("sign|star sign|zodiac sign"), "trait", "trait"),
    ("my_team", _attribute_of("team|football team|club"), "supports", "team"),
    ("my_thing", _attribute_of("car|phone|laptop|bike|computer|camera|guitar"), "owns", "phrase"),
)  # fmt: skip
_INVERTED = re.compile(
    r"(?!I |my |our |this |that |it |he |she |they )(?P<o>[\w][\w '&-]{0,60}?) (?:is|are|will always be|has to be) (?:still |now |definitely |by far |also )*my "
    r"(?:(?:new |all[- ]time |absolute |current )*favourite (?P<kind>[a-z]+(?: [a-z]+)?)(?: of all time| ever| now)?$|(?P<who>.+))",
    re.IGNORECASE,
)


_IN_CODE = (
    "answer", "call_me", "cancelled", "died", "greeting", "habit", "home_is", "implied", "inverted",
    "named", "plan", "prescribed", "proposed", "separated", "taken_back",
)  # fmt: skip
"""The patterns that are in no table; `tests/extraction/test_removed_patterns.py` checks them."""


def pattern_names() -> frozenset[str]:
    """Return the names of all patterns, as ``extracted.by`` has them."""
    ids = (one.id for one in expressions()), (row[0] for row in _ATTRIBUTES), _IN_CODE
    return frozenset(f"{NAME}/{id}" for some in ids for id in some)
