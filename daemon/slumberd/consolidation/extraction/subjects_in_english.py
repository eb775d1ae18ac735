"""Find out whom a clause in plain English is about, and which people and pets it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slumberd.consolidation.extraction.objects_in_english import animal_of, cut, names_in
from slumberd.consolidation.extraction.vocabulary import Vocabulary, singular, word_set

ADVERBS = word_set(
    "also just really actually still now currently recently finally always usually often only "
    "mostly mainly both all even already basically personally honestly absolutely definitely "
    "totally truly literally presently newly officially proudly happily sadly unfortunately "
    "originally very super pretty quite generally normally typically simply too so deeply "
    "extremely severely highly mildly finally certainly especially particularly genuinely "
    "secretly obviously clearly apparently not-so technically permanently temporarily legally "
    "seriously eventually successfully gladly luckily properly formally lately presently "
    "strictly fully completely deathly violently badly terribly slightly once regularly "
    "frequently purely largely primarily fluently"
)
_NEGATIONS = frozenset({"not", "never"})
_AUXILIARIES = word_set("am is are was were be been have has had do does did would can used cannot")
_ADJECTIVES = word_set(
    "older younger little big twin eldest youngest oldest elder baby dear lovely beautiful "
    "amazing wonderful best good close closest old new current middle kid half step poor own "
    "beloved sweet cute adorable first second third two three four only other whole long-time "
    "longtime pet rescue first-born great late"
)
_FORMER = re.compile(r"(?<!-)\b(?:ex|former|late|future|old|previous|ex-\w+)\b", re.IGNORECASE)


class Said(NamedTuple):
    """What a clause says of its subject.

    Attributes:
        words: What follows the subject, without adverbs and negation.
        ended: Whether it was true before, as with ``no longer`` and ``any more``.
        also: Whether it is true beside something else.
        past: Whether it was true before and is not denied otherwise, as with ``used to``.
    """

    words: str
    negated: bool = False
    ended: bool = False
    also: bool = False
    past: bool = False


_USED_TO = re.compile(r"^(?:also |always |really |never )?used to (?=\w)")
_BASE_BE = re.compile(r"^be (?=\w)")
_ENDED = re.compile(r",?\s+(?:any ?more|any longer)\b", re.IGNORECASE)
_UNTIL_NOW = (
    r"^(?:have|has) (?P<verb>lived|worked|played|studied|collected|volunteered|supported|smoked"
    r"|used|owned|taught|spoken|driven|known|loved|hated|liked|enjoyed|wanted|listened)\b"
    r"(?!.*\bwhen\b)"
)
_ALWAYS = re.compile(_UNTIL_NOW)
_SINCE = re.compile(
    rf"{_UNTIL_NOW}(?=.* (?:since|for (?:\w+ )?\w+ (?:years?|months?|decades?)|all my life)\b)"
)
_PRESENT = {"studied": "study", "taught": "teach", "spoken": "speak", "driven": "drive"}
_HEADS = (
    (re.compile(r"^(?:have|has) been (?=\w+ing\b)"), "am "),
    (
        re.compile(r"^(?:have|has) got (?=(?:a|an|two|three|four|\d|no|any|some|my|the|one)\b)"),
        "have ",
    ),
    (re.compile(r"^(?:have|has) had (?=(?:a|an|\w+)\b)"), "have "),
    (re.compile(r"^(?:do|does) (?=\w)"), ""),
    (re.compile(r"^(?:have|has) to (?=\w)"), "must "),
)


def said(text: str) -> Said:
    """Return what the words after a subject say.

    Args:
        text: The words after the subject.
    """
    if match := _USED_TO.match(text):
        before = said(_BASE_BE.sub("am ", text[match.end() :]))
        return before._replace(negated=True, ended=True, past=True)
    without = _ENDED.sub("", text)
    ended = without != text
    tokens = without.replace("no longer ", "not not-longer ").split()
    ended = ended or "not-longer" in tokens
    negated, head, rest = False, list[str](), list[str]()
    also = re.search(r"\balso\b|\bas well\b", text) is not None
    for place, token in enumerate(tokens):
        word = token.strip(",").casefold()
        if word in _NEGATIONS or (word == "no" and head[-1:] and head[-1] in ("am", "is", "are")):
            negated = True
        elif word in _AUXILIARIES:
            head.append(word)
        elif word not in ADVERBS and word != "not-longer":
            rest = tokens[place:]
            break
    words = " ".join([*head, *rest])
    words = words[:1].lower() + words[1:] if not head else words
    if "never" in tokens and head[:1] in (["have"], ["has"], ["had"]):
        return Said(f"never {words}", negated)  # what never was has not ended
    words = (_ALWAYS if "always" in tokens else _SINCE).sub(_present, words)
    for pattern, other in _HEADS:
        words = pattern.sub(other, words)
    return Said(words, negated, ended, also)


def _present(match: re.Match[str]) -> str:
    """Return the present tense of a verb that holds until now, as in ``have played for years``."""
    verb = match["verb"]
    ends = ("lived", "loved", "hated", "liked", "smoked", "used")
    return _PRESENT.get(verb) or (verb[:-1] if verb in ends else verb.removesuffix("ed"))


class Mention(NamedTuple):
    """A relative, a friend or a pet that a clause names as the speaker's own.

    Attributes:
        kind: The usual word for the person or animal.
        names: The names that follow.
        is_pet: Whether it is an animal.
        start: Where the mention begins in the clause.
        end: Where the mention ends, names included.
        possessive: Whether ``'s`` follows.
    """

    kind: str
    names: tuple[str, ...]
    is_pet: bool
    start: int
    end: int
    possessive: bool = False


_MY = re.compile(
    r"\b(?P<det>my|our)\s+(?P<words>[\w\u2019'-]+(?:\s+[\w\u2019'-]+){0,6})", re.IGNORECASE
)
_HAS = re.compile(
    r"^(?:also |just |recently |now |only )*(?:have|has|got|adopted|rescued|bought)\b"
)
_A = re.compile(
    r"\b(?P<det>a|an|one|two|three|four|another)\s+(?P<words>[\w'-]+(?:\s+[\w'-]+){0,6})",
    re.IGNORECASE,
)


def mentions(text: str, vocabulary: Vocabulary) -> Iterator[Mention]:
    """Yield the people and pets that a clause names as the speaker's own.

    Args:
        text: The clause.
        vocabulary: Has the words for people and animals.
    """
    place = 0
    while match := _MY.search(text, place):
        place = match.start("words")
        found = _mention(text, match, vocabulary)
        if found is not None:
            yield found


def introduced(text: str, vocabulary: Vocabulary) -> Iterator[Mention]:
    """Yield the people and pets that words after a subject introduce, as in ``have a sister``."""
    place = 0 if _HAS.match(text) else len(text)
    while match := _A.search(text, place):
        place = match.start("words")
        found = _mention(text, match, vocabulary)
        if found is not None:
            yield found


def _mention(text: str, match: re.Match[str], vocabulary: Vocabulary) -> Mention | None:
    tokens = list(re.finditer(r"[\w\u2019'-]+", text[match.start("words") : match.end("words")]))
    offset = match.start("words")
    for number, token in enumerate(tokens[:5]):
        word = token[0].replace("\u2019", "'")
        bare = word.removesuffix("'s")
        joined = _in_law(tokens, number)
        kind = vocabulary.named(joined or bare)
        end = offset + (tokens[number + 2].end() if joined else token.end())
        is_pet = kind not in vocabulary.people
        if is_pet:
            two = f"{bare} {tokens[number + 1][0]}" if number + 1 < len(tokens) else bare
            kind = (
                animal_of(two, vocabulary)
                if " " in two and animal_of(two, vocabulary) in _TWO_WORDS
                else ""
            )
            if kind:
                end = offset + tokens[number + 1].end()
            else:
                kind = animal_of(bare, vocabulary)
        if kind:
            if _FORMER.search(text[match.start() : offset + token.start()]) or bare.startswith(
                "ex-"
            ):
                return None
            if (
                number + 1 < len(tokens)
                and not joined
                and word == bare
                and tokens[number + 1][0].casefold() in _COMPOUNDS
            ):
                return None
            has_s = word != bare
            names = () if has_s else _names_after(text, end, vocabulary)
            end = text.find(names[-1], end) + len(names[-1]) if names else end
            return Mention(kind, names, is_pet, match.start(), end, has_s)
        if word.casefold() not in _ADJECTIVES and not re.fullmatch(r"\d+(?:-\w+)*|\w+-\w+", word):
            return None
    return None


_COMPOUNDS = word_set(
    "food park house trainer walker sitter show lover person phone tongue language company "
    "group circle friends name names day birthday side country land ship shop store in-law "
    "in-laws law stuff owner owners tail painting paintings ranch riding shelter rescue "
    "treats toy toys bed video videos picture pictures photo photos hair allergy"
)
_TWO_WORDS = frozenset({"guinea pig", "bearded dragon", "golden retriever", "german shepherd"})


def _in_law(tokens: list[re.Match[str]], number: int) -> str:
    words = [token[0].casefold() for token in tokens[number : number + 3]]
    return f"{words[0]}-in-law" if words[1:] == ["in", "law"] else ""


_NAME_AFTER = re.compile(
    r",? (?:(?:is |was )?(?:named|called) )?(?=[^\W\d_a-z])|,? (?:named|called) "
)


def _names_after(text: str, end: int, vocabulary: Vocabulary) -> tuple[str, ...]:
    start = _NAME_AFTER.match(text, end)
    if start is None:
        return ()
    # After "my son", a word in capitals is a name, even that of a job such as "Mason".
    names = names_in(cut(text[start.end() :]), vocabulary, ("nationalities", "languages"))
    is_one = "," in start[0] and not _SEVERAL.search(text[:end])
    return tuple(names[:1] if is_one else names)


_SEVERAL = re.compile(
    r"\b(?:two|three|four|five|six|\d|our|my) (?:\w+ )?(?:cats|dogs|kittens|puppies|rabbits"
    r"|hamsters"
    r"|horses|parrots|birds|daughters|sons|brothers|sisters)$",
    re.IGNORECASE,
)
"""Behind ``two cats,`` stand the names of both."""

_SUBJECT = re.compile(
    r"(?P<we>(?:me and )?(?:my|our) [\w ,'-]{2,40}? and (?:I|me)\b|(?-i:[A-Z])\w+ and I\b"
    r"|(?:both )?we(?: all| both| two)?\b)"
    r"|(?P<i>I)\b(?!')|(?P<she>she)\b|(?P<he>he)\b|(?P<who>who)\b|(?P<my>(?:my|our) )"
    r"|(?P<name>(?-i:[^\W\d_a-z])[\w'-]+(?: (?-i:[^\W\d_a-z])[\w'-]+)?)(?= (?:is|has|lives"
    r"|works|loves|likes"
    r"|hates|moved|was|just|also|now|died|passed|got|started|does|plays|speaks|studies|quit"
    r"|left|became|crossed"
    r"|turned|had|ran|prefers|wants|eats|drinks|owns|never|still|recently)\b)",
    re.IGNORECASE,
)
_PRONOUNS = word_set(
    "it they you this that there these those everyone everybody someone nobody what which "
    "people everything something nothing one all some many most both none his her their its "
    "your here the a an"
)


class Subject(NamedTuple):
    """The subject of a clause.

    Attributes:
        kind: ``i``, ``we``, ``she``, ``he``, ``who``, ``my`` or ``name``; ``me`` for a part of what
            ``I am`` begins.
        rest: What follows.
        mention: The person or pet after ``my``.
    """

    kind: str
    words: str
    rest: str
    mention: Mention | None = None


def subject_of(text: str, vocabulary: Vocabulary) -> Subject | None:
    """Return the subject of a clause and what follows; None when it has none that is known."""
    match = _SUBJECT.match(text)
    if match is None or match.lastgroup is None:
        return None
    kind, words = match.lastgroup, match[0]
    if kind == "name" and (not words[0].isupper() or words.split()[0].casefold() in _PRONOUNS):
        return None
    if kind != "my":
        return Subject(kind, words, text[match.end() :].strip(" ,"))
    found = next(mentions(text[:160], vocabulary), None)
    if found is None or found.start != 0:
        return Subject("my", "", text[match.end() :].strip())
    rest = text[found.end :]
    if found.possessive:
        if re.match(r" (?:a|an|in|at|not|allergic|vegan|vegetarian|called|named|\d+)\b", rest):
            return Subject("my", text[: found.end], "is" + rest, found._replace(possessive=False))
        return Subject("my", text[: found.end], rest.strip(" ,"), found)
    return Subject("my", text[: found.end], rest.strip(" ,"), found)


def kind_of_favourite(words: str) -> str:
    """Return the predicate of ``favourite`` with a noun phrase, such as ``favourite_food``."""
    parts = words.casefold().split()
    if not parts or len(parts) > 3 or not all(part.isalpha() for part in parts):
        return ""
    return "_".join(["favourite", *parts[:-1], singular(parts[-1])])
