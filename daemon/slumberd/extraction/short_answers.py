"""Read short answers to questions, and what a speaker takes back at once, in plain English."""

from __future__ import annotations

import re
from typing import NamedTuple

from slumberd.extraction.clauses import clean

MAX_ANSWER = 60
"""A longer first sentence is no short answer."""

_READ_LAST = 400
"""The characters at the end of the turn before that are read."""


class Answer(NamedTuple):
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


def answered(question: str, text: str) -> Answer | None:
    """Return what a short answer to a question states; None for another text.

    Args:
        question: The turn before, of another speaker.
        text: The turn.
    """
    if (match := _OTHER_NAME.match(clean(text[:_READ_LAST]))) and _VOCATIVE.search(question):
        return Answer("name", "names", match["o"])
    words = clean(text[:_READ_LAST]).strip().split("\n")[0]
    words = _FIRST_SENTENCE.match(words)[0]  # type: ignore[index]  # it matches every text
    if len(words) > MAX_ANSWER:
        return None
    match = _ANSWER.fullmatch(words)
    if match is None or _GREETING.match(match["o"]):
        return None
    if not (match["o"][0].isupper() or match["o"].isdigit()):
        return None
    asked = question[-_READ_LAST:].replace("\u2019", "'").rstrip()
    for pattern, predicate, reader in _QUESTIONS:
        if pattern.search(asked):
            return Answer(predicate, reader, match["o"])
    if favourite := _FAVOURITE.search(asked):
        kind = favourite["kind"].casefold().replace(" ", "_")
        return Answer(f"favourite_{kind}", "things", match["o"])
    return None


_TAKEN_BACK = re.compile(
    r"\W*(?:(?:oh|wait|no|actually|oops|sorry|hmm|ah|whoops|ugh|hang on|hold on|my bad|my"
    r" mistake)[\s,.!-]+)*"
    r"(?:scratch that|strike that|ignore (?:that|my last message|what I said|the last message)"
    r"|disregard (?:that|my last message)"
    r"|forget (?:that|what I (?:just )?said|I said that)|I take (?:that|it) back|never"
    r" ?mind(?: that| what I said)?|(?:I was |I am |I'm |im )?(?:just |only )?(?:kidding|joking)"
    r"|jk|that (?:was|is) (?:wrong|not true|a typo|a mistake|incorrect|a joke)|that's (?:wrong"
    r"|not true|not right|a typo|incorrect)|I misspoke|I was wrong|typo|wrong|I lied"
    r"|(?:I )?meant(?: to (?:say|write|type))?|I mean(?= \w+[.!]?$)|correction|not true)\b",
    re.IGNORECASE,
)
_SLIP = re.compile(
    r"\W*(?:(?:oh|no|wait|ah|oops),? )*(?:sorry|oops|no|correction|wait)[,:]+ (?:it is |it's "
    r"|the |on |in |at )*"
    r"(?P<o>[\w][\w '-]{0,40}?)(?:[.,!]|$)",
    re.IGNORECASE,
)
_MEANT = re.compile(
    r"\b(?:meant(?: to (?:say|write|type))?|mean|correction:?|it's|it is|should be|should have"
    r" been)[ :]+(?:in |at |a |an |the )?(?P<o>[\w][\w '-]{0,40}?)(?:[.,!]|$)",
    re.IGNORECASE,
)


def is_taken_back(text: str) -> bool:
    """Return whether a turn takes back what its speaker said just before."""
    match = _TAKEN_BACK.match(clean(text[:_READ_LAST]))
    return match is not None and "?" not in text[:_READ_LAST]


def meant_instead(text: str) -> str:
    """Return what was meant instead, as in ``sorry, I meant Leeds``; empty when it is not said."""
    match = _MEANT.search(clean(text[:_READ_LAST]))
    return match["o"].strip() if match else ""


def slip(text: str) -> str:
    """Return what a turn such as ``sorry, 15th of May`` puts in the place of what was said."""
    match = _SLIP.match(clean(text[:_READ_LAST]))
    return match["o"].strip() if match and "?" not in text[:_READ_LAST] else ""


class Correction(NamedTuple):
    """Words in a turn that take back what stands before them.

    Attributes:
        start: Where they begin, in characters.
        end: Where they end.
        meant: What is meant instead; empty when the words do not say.
        is_certain: Whether they take something back even when nothing is meant instead.
    """

    start: int
    end: int
    meant: str
    is_certain: bool


_CORRECTED = re.compile(
    r"(?<![\w'])(?:(?P<certain>no,? wait|wait,? no|no,? sorry|sorry,? no|(?:scratch|strike) that"
    r"|I meant(?: to (?:say|write|type))?|or rather)(?=\s*[,.:!\u2013\u2014-]|\s*$"
    r"|\s+(?-i:I|[A-Z0-9]|in|at|it|my)\b)"
    r"|(?:sorry|no|oops)(?=\s?[,:\u2013\u2014-])|actually|(?P<mean>I mean))"
    r"[\s,.:!\u2013\u2014-]{1,4}"
    r"(?:(?:it is|it's|in|at|on|the|a|an) ){0,2}"
    r"(?P<o>(?-i:[^\W_a-z])[\w'-]*(?: (?-i:[^\W_a-z])[\w'-]*)?)?(?P<end>\s*(?:[.!]|$))?",
    re.IGNORECASE,
)


def corrected(text: str) -> Correction | None:
    """Return how a turn corrects itself, as in ``I live in Paris, no wait, Lyon``.

    Args:
        text: The turn.
    """
    for match in _CORRECTED.finditer(clean(text)):
        meant = match["o"] or "" if match["end"] is not None else ""
        is_certain = match["certain"] is not None
        begins = text[: match.start()].rstrip()[-1:] in ".!?"  # "Sorry, Kim." calls somebody
        is_meant = meant and (match["mean"] is not None or not begins)
        if match.start() and (is_certain or is_meant):
            end = match.end() if meant else match.end("certain")
            return Correction(match.start(), end, meant, is_certain)
    return None


_LEFT_THERE = re.compile(
    r"\b(?:I|we) (?:no longer (?P<a>live|work) there"
    r"|do(?: not|n['\u2019]?t) (?P<b>live|work) there (?:any ?more|any longer|now))\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<=[\w,] )[^\W\d_a-z][\w'-]*(?: [^\W\d_a-z][\w'-]*)?")


def left_there(text: str) -> str:
    """Return the predicate that ``I don't live there any more`` ends; empty when it ends none."""
    match = _LEFT_THERE.search(clean(text[:_READ_LAST]))
    if match is None or "?" in text[:_READ_LAST]:
        return ""
    return "lives_in" if (match["a"] or match["b"]).casefold() == "live" else "works_at"


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in the end of a turn, which ``there`` may mean."""
    return tuple(dict.fromkeys(_NAMES.findall(text[-_READ_LAST:])))[:4]
