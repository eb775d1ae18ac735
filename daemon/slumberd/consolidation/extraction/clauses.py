"""Divide a turn of plain English into clauses, without those that assert nothing.

A question, a guess, a condition, the words of another and quoted text assert nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slumberd.consolidation.extraction.sentences import (
    Sentence,
    divide_into_sentences,
    readable_form,
)

MAX_SENTENCE = 400
"""The characters of a sentence that are read. This bounds the time for a long sentence."""

CUT = "\ufffc"
"""Stands for each character of quoted text, code and mail."""


class Clause(NamedTuple):
    """One clause of a turn.

    Attributes:
        span: Where its sentence stands in the turn, in characters.
        text: Its words, without contractions and introductions.
        sentence: The number of its sentence in the turn, from 0.
    """

    span: tuple[int, int]
    text: str
    sentence: int


def _words(words: str) -> str:
    return rf"\b(?:{'|'.join(words.split())})\b"


# What is not the speaker's own: code, quoted lines, quoted words, transcripts, and pasted texts.
_FOREIGN = re.compile(
    r"```(?s:.*?)(?:```|\Z)|`[^`\n]{1,300}`|^[ \t]*[>|].*$"
    r"|^[ \t]*-*[ \t]*(?:from|to|subject|sent|cc|forwarded message|original message)\b"
    r"[^\n:]{0,20}:?(?s:.*)\Z",
    re.IGNORECASE | re.MULTILINE,
)
_PASTED = re.compile(
    r"\b(?:e-?mail|mail|message|letter|article|poem|lyrics|paragraph|essay|draft|transcript"
    r"|excerpt|review|bio|cover letter|sentences?|text|tweet|caption|passage|following"
    r"|translate|rewrite|proofread|correct|summari[sz]e|paraphrase|rephrase|polish|role-?play"
    r"|example|says|said|reads|wrote|writes|sings|goes|quote|something"
    r" like)\b[^.!?\n:]{0,60}:(?=\s)",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"\"[^\"\n]{1,300}\"|[\u201c\u201e][^\u201d\n]{1,300}\u201d|\u00ab[^\u00bb\n]{1,300}\u00bb"
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){8,300}'(?!\w)"
)
_TITLE = re.compile(
    r"\W*[A-Z0-9][\w'&.:-]*(?: (?:[A-Z0-9][\w'&.:-]*|of|the|and|in|on|a|to|for|de))*\W*"
)
_FIRST_PERSON = re.compile(r"\b(?:I|my|we|our|i)\b")
_TRANSCRIPT = re.compile(r"^[ \t]*[A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20})?:[ \t]", re.MULTILINE)
_SHORT_QUOTE = 14


def clean(text: str) -> str:
    """Return a turn of the same length with `CUT` for all that is not its speaker's own words."""
    text = _FOREIGN.sub(_blank, text)
    pasted = _PASTED.search(text)
    if pasted and not _is_announcement(text[: pasted.end()]):
        text = text[: pasted.end()] + CUT * (len(text) - pasted.end())
    return _QUOTED.sub(_blank_quote, readable_form(text))


def _is_announcement(words: str) -> bool:
    return _ANNOUNCED.search(words) is not None


_ANNOUNCED = re.compile(r"\b(?:correct(?:ion)?|update|note)\s*:$", re.IGNORECASE)


def _blank(match: re.Match[str]) -> str:
    return "".join("\n" if mark == "\n" else CUT for mark in match[0])


def _blank_quote(match: re.Match[str]) -> str:
    inside = match[0][1:-1]
    is_short = len(inside) < _SHORT_QUOTE and not _FIRST_PERSON.search(inside)
    is_name = is_short or (_TITLE.fullmatch(inside) and not _FIRST_PERSON.search(inside))
    return f" {inside} " if is_name else _blank(match)


_REPAIRS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"\bi\b", "I"),
        (r"\bim\b", "I am"),
        (r"\bive\b", "I have"),
        (r"\b(?:can't|cant|can not)\b", "cannot"),
        (r"\b(?:won't|wont)\b", "will not"),
        (r"\b(?:ain't|aint)\b", "am not"),
        (r"\b(do|does|did|is|are|was|were|have|has|had)n'?t\b", r"\1 not"),
        (r"\bI'm\b", "I am"),
        (r"\b(we|they|you|who)'re\b", r"\1 are"),
        (r"\b(I|we|they|you|who)'ve\b", r"\1 have"),
        (r"\b(I|we|he|she|they|you|it|who)'ll\b", r"\1 will"),
        (r"\b(I|we|he|she|they|you|it|who)'d\b", r"\1 would"),
        (r"\b(he|she|it|that|who|there|here|name|birthday)'s\b", r"\1 is"),
        (r"\b(he|she|that|there)s\b", r"\1 is"),
        (r"\b(favou?rite \w+|\w+(?='s not\b))'s\b", r"\1 is"),
        (r"\b(moved (?:from|to)\b[^.!?;]{1,80}?)(?:,? and|,) then to\b", r"\1 and moved to"),
        (r"^her name is\b(?= [A-Z])", "she is called"),
        (r"^(?:his|its) name is\b(?= [A-Z])", "he is called"),
        (r"\bgonna\b", "going to"),
        (r"\bwanna\b", "want to"),
        (r"\b(?:favorite|fav|fave)\b", "favourite"),
        (
            r"\b(kids|children|daughters|sons|boys|girls|brothers|sisters|siblings|cats|dogs|pets"
            r"|languages|hobbies are)(?:\s*:\s+|\s+[-\u2013\u2014]+\s|\s*\()(?=\w)",
            r"\1, ",
        ),
    )
)

_QUESTION = re.compile(
    r"\?|^(?:do|does|did|are|is|was|were|can|could|would|will|shall|should|have|has|what|where"
    r"|who|whose|why|how|which|let's|lets|please)\s(?!not\b|(?:just )?call me\b)",
    re.IGNORECASE,
)
_ASKS_AFTER = re.compile(
    r",\s*(?:and\s+|so\s+|but\s+|now\s+)?(?:can|could|would|should|will|how (?:do|can|should"
    r"|would|could|might|to|is|are)"
    r"|what (?:is|are|do|should|can|would|could|kind)|where (?:can|do|should|is|are)|why|is|are|do"
    r"|does|did|any (?:tips|advice|ideas?|thoughts)|am I|have you)\b.*$",
    re.IGNORECASE,
)
_EMPHATIC = re.compile(r"(?:\?[?!]+|!+\?)$")
_DOUBTED = re.compile(
    r"(?:so |and |but )?(?:you|that|really|seriously|wait|what|am|have|did|do)\b", re.IGNORECASE
)
_HARMLESS_IF = re.compile(
    r"\bif (?:you ask me|I am (?:being )?honest|that (?:matters|helps)|anyone asks|you must know"
    r"|you were wondering|you remember|you are wondering|it helps|it matters)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    _words(
        "if unless whether imagine imagining pretend pretending suppose supposing hypothetically"
        " role-?play roleplay joking kidding jk"
    )
    + r"|\b(?:one more [^.]{1,60}and I\b|I swear|let us say|as though|in (?:my|a|the|this)"
    r" (?:dream|game|book|novel|movie|film|story"
    r"|show|series|play|song)|my character|april fools|what would|for example|e\.g\.|act as"
    r"|you are a)\b",
    re.IGNORECASE,
)
_ROLE_WORD = re.compile(
    r"pretend|imagin|suppos|role-?play|let'?s say|let us say|scenario|game|story|scene|campaign",
    re.IGNORECASE,
)
_OWN_ROLE = re.compile(
    r"\b(?:pretend|imagine|suppose|let us say|let's (?:say|pretend|imagine)|role-?play)\b"
    r"[^.!?]{0,80}?\b(?:I|we) (?:am|are|was|were|will be) (?:an?|the|your|(?-i:[A-Z]))"
    r"|\bI (?:(?:am|will be) )?(?:pretend|pretending|role-?play|role-?playing|will pretend"
    r"|will role-?play)\b(?: to be| as)? (?:an?|the|your|(?-i:[A-Z]))"
    r"|\b(?:in|for) (?:this|our|the|my) (?:role-?play|game|scenario|scene|story|campaign),?"
    r" (?:I|we) (?:am|are|play|will (?:be|play))\b",
    re.IGNORECASE,
)
"""Gives the speaker a role: what follows in the turn is said in it."""

_REAL = re.compile(
    r"\b(?:back to reality|in real(?:ity| life)|irl|out of character|for real|jok(?:e|es|ing) aside"
    r"|actually|seriously though|in truth)\b",
    re.IGNORECASE,
)
"""Ends the role of a speaker."""

_HEDGED = re.compile(
    _words(
        "wish wishes wished would might could should shall maybe perhaps probably possibly almost"
        " nearly allegedly supposedly presumably hopefully guess think thought thinking"
        " considering wonder wondering hoping doubt seems? seemed kinda sometimes dream dreamed"
        " dreamt dreaming theoretically ideally someday tempted potentially likely unlikely"
    )
    + r"|\b(?:hope(?! to)|(?:am|is|are|was|I|just|we) (?:sort|kind) of|not sure|as if|one day"
    r"|about to|supposed to|trying to(?! learn)"
    r"|need to|(?:have|has) to(?! take)|feels? like|felt like|looks? like|used to think)\b"
    r"|\b(?-i:may)\b",
    re.IGNORECASE,
)
_WANTS = re.compile(
    r"\bwould (?:really |absolutely |so )?(?:love|like) to\b|^my (?:\w+ )?dream is to\b",
    re.IGNORECASE,
)
_SPEECH = re.compile(
    _words(
        "says said saying tells told asked asks claims claimed thinks believes believed heard"
        " texted replied insists insisted swears joked announced mentioned"
    )
    + r"|\b(?:according to|(?:sings|reads|writes|wrote|goes)(?= that|$|,))",
    re.IGNORECASE,
)
_FAREWELL = re.compile(r"\bsaid (?=(?:good-?bye|farewell) to\b)", re.IGNORECASE)
_OWN_SPEECH = re.compile(
    r"^(?:I (?:must |have to |can |will |should |do )?(?:admit|confess|forget|forgot"
    r"|reali[sz]e|reali[sz]ed"
    r"|found out|discovered|learned|learnt|am (?:glad|happy|proud|sorry|afraid|sad|pleased"
    r"|excited)(?: to say)?)"
    r"(?: sometimes| now| today| just)?(?: that)?,? (?=(?:I|my|we|our)\b)|(?:as )?I(?:"
    r" have)?(?: already| just)? (?:told you|said|mentioned)"
    r"(?: before| earlier| already)?(?: that)?[, ]+)",
    re.IGNORECASE,
)

FINITE = (
    "am|is|are|have|has|lives?|works?|loves?|likes?|hates?|enjoys?|plays?|studies|moved|got"
    "|started|joined|quit|left|became|owns?|drives?|speaks?|eats?|drinks?|takes?|prefers?|wants?"
    "|do not|does not|did not|cannot|bought|adopted|sold|married|retired|graduated|grew|was|were"
    "|used to|teach(?:es)?|went|switched|changed|stopped|gave|broke|volunteers?|never|collects?"
    "|just|now|currently|also|only|mostly|mainly|recently|lost|split|resigned|turned|relocated"
    "|no longer|still|run"
)
"""The verbs with which a clause may begin that has its subject from the clause before."""

_SUBJECT = "I|we|he|she|they|it|you|my|our|his|her|there|this|that"
_RESTRICTION = (
    "only|just|mostly|mainly|especially|particularly|rather|rarely|seldom|hardly|barely|never|even"
    "|sometimes|occasionally|usually|normally|often|always|typically|generally|apart from|sadly"
    "|unfortunately|luckily|fortunately|thankfully"
)
"""The words after a comma that say how far a statement holds; what follows is no part of a list."""

_BREAK = re.compile(
    rf";\s*|\s[-\u2013\u2014]+\s|\u2014|\s*[()\[\]]\s*|\s*\.{{2,}}\s*|\u2026|:\s+|[{CUT}]+"
    r"|[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f]+"
    r"|[\s,]*\b(?:but|because|cause|cuz|though|although|however|whereas|while|plus|except)\b[\s,]*"
    rf"|,?\s+(?:and|so|then)\s+(?:then\s+|now\s+)?(?=(?:{_SUBJECT})\b)"
    r"|,\s+(?:and|so|then)\s+(?:(?!(?:maybe|perhaps|probably|hopefully|if|unless|when|that|he|she"
    r"|they|you|I|we)\b)[a-z]+\s+){1,4}(?=(?:I|we)\b)|,\s+(?=since\b)"
    r"|,\s+(?=(?-i:[A-Z])\w+ (?:is|has|lives|works|moved)\b)"
    rf"|,\s*(?=(?:{_SUBJECT}|who|where|which|not|now|{_RESTRICTION})\b)"
    r"|,\s+(?=(?-i:[a-z])[\w'-]*(?:\s+(?:(?:and|or)\s+)?(?!(?:and|or)\b)[\w'-]+){0,2}?"
    r"\s+(?:is|are|was|were|has|have|does|do|can|will|not|less)\b)"
    rf"|\s+(?=who\s)|\s+(?=where\s+I\b)"
    r"|,\s+(?=(?:living|working|studying|based) (?:in|at|as|for)\b)"
    rf"|,?\s+and\s+(?=(?:{FINITE})\b)"
    r"|,\s+(?=(?:moved|got|started|joined|became|quit|have|am|loves?|hates?|dislikes?|prefers?|adores?"
    r"|enjoys?|cannot stand|do not)\b)",
    re.IGNORECASE,
)
_OPENER = re.compile(
    r"(?:(?:well|so|ok|okay|oh|ah|aww?|hey|hi|hello|hiya|yes|yeah|yep|yup|no|nope|nah|ha(?:ha)+|lol"
    r"|omg|btw|by the way|fyi|actually|turns out|it turns out|honestly|also|anyway|anyways|and|but"
    r"|plus|then|now|update|edit|ps|p\.s\.|(?:good|bad|great|big|sad|some|quick|small) (?:news"
    r"|update)|news"
    r"|guess what|fun fact|sorry|thanks|thank you|sure|right|cool|nice|great|same|me too|me|well"
    r"|unfortunately|sadly|luckily|fortunately|finally|recently|currently|lately|these days"
    r"|nowadays|as of (?:today|now|last week|this week|yesterday)|for the record|to be honest|tbh"
    r"|just so you know|please remember|remember|in other news|on another note|note|apparently"
    r"|heads up|as you know|you know"
    r"|well then"
    r"|after all|besides|personally|for me|in fact|believe it or not|about me|a bit about me"
    r"|in real(?:ity| life)|irl"
    r"|good morning|good evening|morning|wow|ugh|yay|correction|to clarify|just to clarify"
    r"|I should (?:mention|add|say)|just|still|apparently not|true|exactly|indeed|meanwhile"
    r"|at the moment|right now|at present|(?:my friends?|dude|man|guys|everyone)(?=[,!])"
    r"|(?:the )?thing is"
    r"|long story short|speaking of which|and yes|not gonna lie|ngl|I mean|you see|see|glad to"
    r"|last (?:week|month|year|night|summer|winter|spring|autumn|fall|weekend|[a-z]+day)"
    r"|this (?:week|month|year|morning|summer|winter|spring|autumn|fall|weekend)|yesterday|today"
    r"|tonight|earlier(?: today)?|(?:a|two|three|four|five|six|\d+|a few|a couple of) "
    r"(?:days?|weeks?|months?|years?) ago|(?:in|since|until|back in) "
    r"(?:(?:early|late|mid) )?(?:january|february|march|april|may|june|july|august|september"
    r"|october|november|december|(?:19|20)\d\d)(?: (?:19|20)\d\d)?|at (?:work|home|school))"
    r"(?: (?!I\b|[A-Z])that)?(?:[ ,:!.\u2013-]+|$))+",
    re.IGNORECASE,
)
_SHORT_OPENER = re.compile(
    r"(?:(?:so|and|but|hey|hi|hello|ok|okay|well|oh|also|btw|by the way)[ ,]+)+", re.IGNORECASE
)
_CLOSER = re.compile(
    r"(?:,? (?:by the way|btw|lol|haha+|you know|anyway|after all|of course|for what it is"
    r" worth|fyi|yes really|no joke|I think))+$",
    re.IGNORECASE,
)
_VOCATIVE = re.compile(r"(?:[A-Z]\w+[,!] +)(?=(?:I|my|My|we|We|our|Our)\b)")
_NAMED_OPENER = re.compile(
    r"(?:hi|hello|hey|thanks|thank you|yes|no|ok|okay|sorry) [A-Z]\w+[ ,!.]+", re.IGNORECASE
)
_BEGINS_AS_GUESS = re.compile(
    _words("maybe perhaps probably possibly hopefully ideally imagine picture had were should"),
    re.IGNORECASE,
)
_PAST_TIME = re.compile(r"^(?:when|while|back when|before|until)\b", re.IGNORECASE)


def divide_into_clauses(text: str) -> list[Clause]:
    """Return the clauses of a turn that assert something, in order. Takes linear time.

    Args:
        text: The turn.
    """
    found: list[Clause] = []
    for number, sentence in _real_sentences(text):
        found += _clauses(sentence, number)
    return found


def asserted_sentences(text: str) -> Iterator[Clause]:
    """Yield the whole sentences of a turn that assert something, in order.

    A sentence that quotes or reports the words of another is left out.
    """
    for number, sentence in _real_sentences(text):
        if CUT in sentence.text or len(sentence.text) > MAX_SENTENCE:
            continue
        words = _without_openers(_asserted(sentence.text))
        if words and not _reports(words) and not _BEGINS_AS_GUESS.match(words):
            yield Clause(_span(sentence), words, number)


def is_stated(words: str) -> bool:
    """Return whether a clause is neither a guess nor about the time when something else was."""
    return not (_HEDGED.search(_WANTS.sub("", words)) or _PAST_TIME.match(words))


def _real_sentences(text: str) -> Iterator[tuple[int, Sentence]]:
    """Yield the sentences that the speaker does not say in a pretended role, each with its number.

    A role that the speaker gives to another ends with its sentence: what follows is real.
    """
    cleaned = clean(text)
    is_pretending, may_pretend = False, _ROLE_WORD.search(cleaned) is not None
    for number, sentence in enumerate(divide_into_sentences(cleaned)):
        if may_pretend:
            words = _expand(sentence.text[:MAX_SENTENCE])
            is_pretending = not _REAL.search(words) and (
                is_pretending or _OWN_ROLE.search(words) is not None
            )
        if not is_pretending:
            yield number, sentence


def _reports(words: str) -> bool:
    """Return whether words say what somebody said."""
    return _SPEECH.search(_FAREWELL.sub("", words)) is not None


def _span(sentence: Sentence) -> tuple[int, int]:
    return sentence.start, sentence.start + len(sentence.text)


def _clauses(sentence: Sentence, number: int) -> Iterator[Clause]:
    text = _asserted(sentence.text[:MAX_SENTENCE])
    span = _span(sentence)
    parts = [part for part in _BREAK.split(text) if part and part.strip()]
    if len(sentence.text) > MAX_SENTENCE:
        parts = parts[:-1]
    for part in parts:
        words = _without_openers(part)
        if _reports(words):
            return
        if words and is_stated(words):
            yield Clause(span, words, number)


def _asserted(sentence: str) -> str:
    """Return a sentence without contractions; empty when it asserts nothing."""
    if _TRANSCRIPT.match(sentence) and not _OPENER.match(sentence):
        return ""
    text = _OWN_SPEECH.sub("", _expand(sentence))
    if not _DOUBTED.match(text):
        text = _EMPHATIC.sub("!", text)
    text = _ASKS_AFTER.sub(".", text, count=1) if text.endswith("?") else text
    if _QUESTION.search(_SHORT_OPENER.sub("", text)):
        return ""
    return "" if _SUPPOSED.search(_HARMLESS_IF.sub("", text)) else text


def _expand(text: str) -> str:
    """Return a text without contractions."""
    for pattern, words in _REPAIRS:
        text = pattern.sub(words, text)
    return " ".join(text.split())


def _without_openers(part: str) -> str:
    """Return a clause without its introduction."""
    words = part.strip(_EDGES)
    for opener in (_NAMED_OPENER, _OPENER, _VOCATIVE):
        start = opener.match(words)
        words = words[start.end() :] if start else words
    return _CLOSER.sub("", words.strip(_EDGES))


_EDGES = " ,.!\"'*~_#\u2022-"
