"""Read short answers to questions: "Porto." after "Where do you live?" states where somebody lives.

Most answers become a sentence of their speaker, which is then read as any other: "Yes." after "Are
you vegan?" becomes "I am vegan".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slumberd.consolidation.extraction.clauses import CUT, clean
from slumberd.consolidation.extraction.normalisers import read_number

MAX_ANSWER = 60
"""A longer first sentence is no short answer."""

READ_LAST = 400
"""The characters of a turn before, at its end, and of an answer, at its start, that are read."""


class ShortAnswer(NamedTuple):
    """A short answer, and what it states.

    Attributes:
        predicate: What it states of the speaker.
        reader: The name of the reader of the object.
        words: The object.
    """

    predicate: str
    reader: str
    words: str


_QUESTIONS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(rf"\b(?:{question})[^.!?\n]{{0,40}}\?\W*$", re.IGNORECASE), predicate, reader)
    for question, predicate, reader in (
        (
            "where (?:do|are) you (?:live|living|based)|(?:which|what) city do you live in",
            "lives_in",
            "named_place",
        ),
        ("where (?:are|r) you (?:originally )?from|where do you come from", "from", "named_place"),
        ("where did you grow up", "grew_up_in", "named_place"),
        ("where were you born", "born_in", "named_place"),
        ("where do you work|who do you work for", "works_at", "named_employer"),
        (
            "what (?:do you do for (?:work|a living)|is your job|kind of work do you do)"
            "|what's your (?:job|profession)",
            "job",
            "job",
        ),
        ("what(?:'s| is) your name|what should I call you", "name", "names"),
        ("how old are you", "age", "age"),
        (
            "who (?:do you report to|is your (?:new )?(?:boss|manager))|who's your (?:new"
            " )?(?:boss|manager)",
            "boss",
            "names",
        ),
        ("what are you watching", "watching", "title"),
        ("what are you reading", "reading", "title"),
        (
            "which language(?:s)? (?:do|can) you speak|what languages? do you speak",
            "speaks",
            "language",
        ),
        ("who do you live with", "lives_with", "names"),
        (
            "what (?:do|are|did) you (?:study|studying|major in|majoring in)|what(?:'s| is)"
            " your major",
            "studies",
            "study",
        ),
    )
)
_VOCATIVE = re.compile(
    r"\b(?:hi|hello|hey|back|thanks|thank you|morning|evening|welcome|sure|of"
    r" course)\b[^.!?\n]{0,20}?,? "
    r"(?-i:[A-Z][a-z]+)[!.,?]",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(
    r"(?:(?:no|oh|um),? )*(?:it is|it's|I am|I'm) (?P<o>(?-i:[A-Z][a-z]+))(?:,? (?:actually"
    r"|not [A-Z]\w+|btw|by the way))",
    re.IGNORECASE,
)
_FAVOURITE = re.compile(
    r"\b(?:what(?:'s| is)|who(?:'s| is)) your (?:all[- ]time )?favou?rite (?P<kind>[a-z]+(?:"
    r" [a-z]+)?)\?\W*$",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"(?:(?:I am|I'm|it's|in|at|from|a|an|just|mine is|currently)"
    r" )*(?P<o>(?-i:[^\W\d_a-z])[\w'-]*(?: (?-i:[^\W\d_a-z])[\w'-]*)?|\d{1,3})[.!]*",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:hi|hello|hey|yes|no|yeah|yep|nope|ok|okay|thanks|thank|sure|sorry|lol|haha\w*|hm+|oh"
    r"|wow|good|great|nice|well|maybe|same|me|you|i|nothing|nowhere|none|not|idk|what|why"
    r"|guess|secret|home|here|everywhere)\b",
    re.IGNORECASE,
)


_FIRST_SENTENCE = re.compile(r"[^.!?]*[.!]?")


def answered(question: str, text: str) -> ShortAnswer | None:
    """Return what a short answer to a question states; None for another text.

    Args:
        question: The turn before, of another speaker.
        text: The turn.
    """
    if (match := _OTHER_NAME.match(clean(text[:READ_LAST]))) and _VOCATIVE.search(question):
        return ShortAnswer("name", "names", match["o"])
    match = _ANSWER.fullmatch(_first_sentence(text))
    if match is None or _GREETING.match(match["o"]):
        return None
    if not (match["o"][0].isupper() or match["o"].isdigit()):
        return None
    asked = question[-READ_LAST:].replace("\u2019", "'").rstrip()
    for pattern, predicate, reader in _QUESTIONS:
        if pattern.search(asked):
            return ShortAnswer(predicate, reader, match["o"])
    if favourite := _FAVOURITE.search(asked):
        kind = favourite["kind"].casefold().replace(" ", "_")
        return ShortAnswer(f"favourite_{kind}", "things", match["o"])
    return None


_LAST_SENTENCE = re.compile(
    r"(?:^|(?P<before>[.!?\n]))\s*(?P<said>[^.!?\n]{2,120})(?P<end>[.!?])?\W*$"
)
_BEFORE_QUESTION = re.compile(
    r"(?:(?:so|and|then|oh|ok|okay|great|nice|cool|sure|also|by the way|btw"
    r"|just to (?:check|confirm)|may I ask)[ ,:]+)+",
    re.IGNORECASE,
)
_ASKED_YES_OR_NO = re.compile(
    r"(?P<verb>are|do|have) you (?P<still>still )?(?:ever )?(?P<rest>.+)", re.IGNORECASE
)
_SUPPOSED = re.compile(
    r"(?:(?:noted|got it|I (?:see|understand|remember)|if I remember (?:correctly|right(?:ly)?)"
    r"|you (?:said|told me|mentioned)|last time)[ ,:]+(?:that )?)*"
    r"you(?P<verb>'re| are| have|'ve)? (?P<still>still )?(?P<rest>.+?)"
    r"(?:,? (?:right|correct|yes|is that (?:right|correct)|don't you|aren't you|isn't it))?",
    re.IGNORECASE,
)
"""What the other speaker supposes, as in "so you live in Leeds" or "you're vegan, right"."""

_NOT_SO = re.compile(
    r"(?:no|nope|nah|actually|not quite|wrong)[,.!]* (?:(?:actually|it's|it is|I'm|I am|in|at|from"
    r"|that's|my name is)[, ]+)*(?P<o>\w[\w' -]{0,40}?)(?:,? not [\w' -]+)?",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(
    r"\b(?:you|yours|me|us|we|my|our|I|it|that|this|there|here|these|those|them|or|not|others?|else"
    r"|more|further|new|additional|mean|need|sure|ready|able|right|someone|somebody)\b|n't\b",
    re.IGNORECASE,
)
"""Words of a question that "yes" does not say again, or that mean something else in an answer."""

_OF_ANY = re.compile(r"\b(?:any\w*|a lot|much|many|often)\b", re.IGNORECASE)
_YES = re.compile(
    r"(?:(?:oh|well|hm+|haha),? )?(?:yes|yeah|yep|yup|yea|indeed|correct|exactly|absolutely"
    r"|definitely|certainly|of course|I (?:do|am|have)|that is right|that's right)"
    r"(?:,? (?:I (?:really |still )?(?:do|am|have)|indeed|of course|definitely|absolutely|exactly"
    r"|a lot|very much(?: so)?|always|for (?:\w+ ){1,3}(?:years?|months?)(?: now)?"
    r"|since [\w ]{2,20}))*",
    re.IGNORECASE,
)
_NO = re.compile(
    r"(?:(?:oh|well|hm+),? )?(?:no|nope|nah|never|(?P<ended>no longer|not any ?more)"
    r"|I (?:do not|don't|am not|have not|haven't)|I'm not)"
    r"(?:,? (?:I (?:do not|don't|am not|have not|haven't)|I'm not|not at all|(?P<over>any ?more"
    r"|not any ?more)))*",
    re.IGNORECASE,
)


class _Open(NamedTuple):
    """An open question, and the sentence that its answer ends.

    Attributes:
        asked: The question.
        begin: How the sentence begins; it may name groups of the question.
        noun: What a number counts.
    """

    asked: re.Pattern[str]
    begin: str
    noun: str = ""


_HAVE_ANY = r"(?:do you have|have you got|got|any|are there)(?: any| some)?(?: \w+)?"
_OPEN = tuple(
    _Open(re.compile(asked, re.IGNORECASE), begin, noun)
    for asked, begin, noun in (
        (rf"{_HAVE_ANY} (?:pets?|animals)|what pets? do you have", "I have", "pets"),
        (rf"{_HAVE_ANY} cats?", "I have", "cats"),
        (rf"{_HAVE_ANY} dogs?", "I have", "dogs"),
        (
            rf"{_HAVE_ANY} (?:kids|children)|how many (?:kids|children) do you have",
            "I have",
            "kids",
        ),
        (
            rf"{_HAVE_ANY} (?:siblings|brothers (?:or|and) sisters|sisters (?:or|and) brothers)",
            "I have",
            "siblings",
        ),
        (
            rf"{_HAVE_ANY} (?:allergy|allergies)(?: or (?:\w+ )?\w+)?(?:(?: that)? I should"
            r" (?:know(?: about| of)?|be aware of|avoid))?"
            r"|are you allergic to (?:anything|something|any(?:thing)? \w+)"
            r"|(?:what|which foods?) are you allergic to"
            r"|what (?:are your allergies|allergies do you have)",
            "I am allergic to",
            "",
        ),
        (
            r"(?:which|what) languages? (?:do|can) you speak|do you speak any languages",
            "I speak",
            "",
        ),
        (
            r"when(?: i|')s your birthday|what(?: i|')s your (?:birthday|date of birth|birth date)",
            "My birthday is",
            "",
        ),
        (
            r"what do you do(?: for (?:work|a living))?|what(?: i|')s your (?:job|profession"
            r"|occupation)",
            "I am a",
            "",
        ),
        (
            r"what(?: i|')s your (?:all[- ]time )?favou?rite (?P<kind>[a-z]+(?: [a-z]+)?)",
            "My favourite {kind} is",
            "",
        ),
        (
            r"(?:what|which) (?:musical )?instruments? do you play|do you play (?:an|any)"
            r" (?:musical )?instruments?",
            "I play",
            "",
        ),
        (rf"what are your hobbies|{_HAVE_ANY} hobbies", "My hobbies are", ""),
        (r"what (?:(?:kind|sort) of )?car do you (?:drive|have|own)", "I drive a", ""),
        (
            r"what(?: i|')s your (?P<who>wife|husband|partner|girlfriend|boyfriend|son|daughter|mum"
            r"|mom|mother|dad|father|sister|brother|boss|manager|dog|cat)(?:'s name| called)",
            "My {who} is called",
            "",
        ),
        (
            r"(?:what|which) (?:medications?|medicines?|meds) (?:do you take|are you (?:on|taking))"
            r"|(?:do you take|are you on|are you taking|do you use) any (?:medications?|medicines?"
            r"|meds)",
            "I take",
            "",
        ),
    )
)
_BEFORE_ANSWER = re.compile(
    r"(?:(?:yes|yeah|yep|yup|well|um+|uh+|hm+|oh|just|only|mostly|mainly|I have(?: got)?|I've got"
    r"|I got|it is|it's|I'm|I am|mine is|they are|that is|that's|her name is|his name is)"
    r"\b[ ,:]*)+",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"\b(?:I|it|he|she|we|they|you|your|that|this|is|are|was|were|has|had|did|does|not|no|none"
    r"|nothing|nobody|never|maybe|perhaps|probably|know|think|idk|few|some|lots?|many|several|too"
    r"|why|what|how|which|if|depends?|all|every\w*|any\w*|various|different|same|sure|secret|guess"
    r"|both|bad|severe|mild|please|thanks?|question|ask\w*|hi|hello|hey|ok|okay|sorry|good|great"
    r"|yes|yeah|nope|can|could|would|will|let|tell)\b|n't\b|[^\w ,&'-]",
    re.IGNORECASE,
)
_MOST_WORDS = 8


def sentence_of_answer(question: str, text: str) -> str:
    """Return the sentence that a short answer stands for; empty for another text.

    ``Yes.`` after ``Are you vegan?`` stands for ``I am vegan``, and ``two cats`` after ``Do you
    have any pets?`` for ``I have two cats``.

    Args:
        question: The turn before, of another speaker.
        text: The turn.
    """
    asked, answer = _last_sentence(question), _first_sentence(text)
    if asked is None or not answer or CUT in answer:
        return ""
    supposed = _supposed_in(asked)
    found = _yes_or_no(supposed, answer, is_asked=asked.is_asked) if supposed else ""
    return found or (_open_answer(asked.words, answer) if asked.is_asked else "")


def supposed_and_meant(question: str, text: str) -> tuple[str, str]:
    """Return what another speaker supposed, as a sentence of this one, and what is meant instead.

    ``No, York.`` after ``So you live in Leeds?`` means ``York`` in ``I live in Leeds``. Both are
    empty for another text.

    Args:
        question: The turn before, of another speaker.
        text: The turn.
    """
    is_short = len(text) <= MAX_ANSWER
    meant = _NOT_SO.fullmatch(clean(text).strip(" .!\n")) if is_short else None
    asked = _last_sentence(question) if meant else None
    supposed = _supposed_in(asked) if asked else None
    return (supposed.sentence(), meant["o"]) if supposed and meant else ("", "")


class _Sentence(NamedTuple):
    """The last sentence of a turn.

    Attributes:
        words: Its words, without an introduction.
        is_asked: Whether it is a question.
    """

    words: str
    is_asked: bool


class _Supposed(NamedTuple):
    """What a sentence supposes of the other speaker.

    Attributes:
        verb: ``am``, ``have``, or nothing before another verb.
        rest: What follows, in the words of the other speaker.
        still: Whether it says ``still``.
    """

    verb: str
    rest: str
    still: bool

    def sentence(self, adverb: str = "") -> str:
        """Return the sentence of the other speaker, with an adverb."""
        return " ".join(filter(None, ("I", self.verb, adverb, self.rest)))


def _last_sentence(text: str) -> _Sentence | None:
    """Return the last sentence of a turn; None when the one before asks, or it quotes."""
    found = _LAST_SENTENCE.search(clean(text[-READ_LAST:]))
    if found is None or found["before"] == "?" or CUT in found[0]:
        return None
    words = _BEFORE_QUESTION.sub("", found["said"].strip(), count=1)
    return _Sentence(words, found["end"] == "?")


def _supposed_in(sentence: _Sentence) -> _Supposed | None:
    words = sentence.words
    found = _ASKED_YES_OR_NO.fullmatch(words) if sentence.is_asked else None
    found = found or _SUPPOSED.fullmatch(words)
    if found is None or _UNCLEAR.search(found["rest"]):
        return None
    verb = _OWN[(found["verb"] or "do").strip().casefold()]
    rest = re.sub(r"\byour\b", "my", found["rest"], flags=re.IGNORECASE)
    return _Supposed(verb, rest, found["still"] is not None)


_OWN = {"are": "am", "'re": "am", "have": "have", "'ve": "have", "do": ""}


def _first_sentence(text: str) -> str:
    """Return the first sentence of a turn; empty for a long one."""
    words = clean(text[:READ_LAST]).strip().split("\n")[0]
    found = _FIRST_SENTENCE.match(words)
    words = found[0].strip(" .!") if found else ""
    return words if len(words) <= MAX_ANSWER else ""


def _yes_or_no(supposed: _Supposed, answer: str, *, is_asked: bool) -> str:
    """Return what "yes" or "no" says; "yes" counts after a question only."""
    if _YES.fullmatch(answer):
        is_clear = is_asked and not _OF_ANY.search(supposed.rest)
        return supposed.sentence("still" if supposed.still else "") if is_clear else ""
    no = _NO.fullmatch(answer)
    if no is None or supposed.verb == "have":
        return ""
    if supposed.still or no["ended"] or no["over"]:
        return supposed.sentence("no longer")
    return f"I {supposed.verb or 'do'} not {supposed.rest}"


def _open_answer(asked: str, answer: str) -> str:
    words = _BEFORE_ANSWER.sub("", answer, count=1) if _BEFORE_ANSWER.match(answer) else answer
    if not words or len(words.split()) > _MOST_WORDS or _NO_ANSWER.search(words):
        return ""
    for one in _OPEN:
        if (match := one.asked.fullmatch(asked)) is None:
            continue
        begin = one.begin.format_map(match.groupdict())
        if begin.endswith(" a"):
            words = re.sub(r"^an? ", "", words, flags=re.IGNORECASE)
        if begin.startswith("I ") and begin != "I speak":
            words = words[0].lower() + words[1:]
        first, comma, further = words.partition(",")
        if one.noun and read_number(first) is not None:
            words = f"{first} {one.noun}{comma}{further}"
        return f"{begin} {words}"
    return ""
