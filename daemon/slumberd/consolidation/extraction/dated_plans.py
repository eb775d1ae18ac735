"""Read plans with their dates, cancelled plans, and habits, in plain English."""

from __future__ import annotations

import re
from typing import NamedTuple

from slumberd.consolidation.extraction.normalisers import MONTHS, read_date
from slumberd.consolidation.extraction.objects_in_english import cut, is_object, plain
from slumberd.consolidation.extraction.vocabulary import word_set
from slumberd.model.episode import instant

_A_MONTH = "|".join(MONTHS)
_DATE = re.compile(
    r"\s+(?:(?P<month>(?:in|this|next|for|during) (?:(?:early|late|mid)[- ])?(?:"
    + _A_MONTH
    + r"))(?! \d)"
    r"|(?P<date>(?:on |in |for |from |until |starting )?(?:the )?(?:(?:next|this|this coming)"
    r" (?:\w+day|week|month|year)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:a|two|three|four|five|six|seven|eight"
    r"|nine|ten|\d{1,2}) (?:days?|weeks?|months?|years?)(?: from now)?"
    r"|\d{4}-\d\d-\d\d|(?:" + _A_MONTH + r") (?:the )?\d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?"
    r"|\d{1,2}(?:st|nd|rd|th)?(?: of)? (?:" + _A_MONTH + r")(?:,? \d{4})?"
    r"|(?:" + _A_MONTH + r") \d{4}|tomorrow|today|tonight|the day after tomorrow)))\b",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"(?:am|is|are) (?:going to(?! [A-Z])|planning to|planning on|set to|scheduled to|due to)"
    r" (?P<verb>.+)"
    r"|(?:am|is|are) (?P<doing>(?:going|flying|travell?ing|moving|heading|visiting|starting"
    r"|running|leaving|attending"
    r"|getting married|getting|having|taking|hosting|meeting|driving|hiking|competing"
    r"|performing|graduating|retiring|sailing|cycling"
    r"|buying|selling|speaking|giving|doing|throwing) ?.*)"
    r"|(?:have|has|booked|have booked|scheduled|have scheduled|bought|got|have got)"
    r" (?P<thing>(?:a|an|my|our|the|tickets|flights)\b.*\b(?:appointment|exam|flight|flights"
    r"|interview|surgery|operation|trip|wedding"
    r"|concert|marathon|race|holiday|vacation|tickets|conference|ceremony|party|check-?up"
    r"|visit|meeting|presentation|recital|tour|cruise|safari|half[- ]marathon)\b.*)"
)
_TRIP = re.compile(
    r"(?:(?:am|is|are) planning|booked|have booked|(?:am|is|are) organi[sz]ing|plan|have"
    r" planned) (?P<o>(?:a|an|my|our) (?:\w+ ){0,2}?(?:trip|holiday|vacation|wedding|honeymoon"
    r"|road trip|move|safari|cruise|weekend|getaway)\b(?: (?:to|in|around|through|across) .+)?)"
)
_TRIVIAL = re.compile(
    r"^(?:be|have to|do|get|see|try|make|take a|sleep|rest|relax|watch|eat|cook|check|talk"
    r"|call|tell|let|give|keep|look|start|go to (?:bed|sleep|work)|going to (?:bed|sleep|work"
    r"|class)|say|stay|work|study|go out|getting (?:ready|better|used|back|up)|giving up|going"
    r" out|taking (?:a break|it)|hang|send|text|miss|need|ask|leave|having a|doing)\b"
    r"|\b(?:it|this|that|you|them|something|stuff|some)\b",
    re.IGNORECASE,
)


class Plan(NamedTuple):
    """What somebody intends.

    Attributes:
        words: The plan, with its date.
        is_kept: Whether it is more than a day ahead.
    """

    words: str
    is_kept: bool

    def __str__(self) -> str:
        return self.words


def plan_in(text: str, at: int) -> Plan | None:
    """Return the plan that words after a subject state; None when they state none.

    Args:
        text: The words, from the verb.
        at: When they were said, in microseconds since 1970 UTC.
    """
    if trip := _TRIP.match(text):
        return _with_date(trip["o"], at, needs_date=False)
    match = _PLAN.match(text)
    if match is None:
        return None
    words = match["verb"] or match["doing"] or match["thing"]
    return None if _TRIVIAL.search(words) else _with_date(words, at, needs_date=True)


def _with_date(text: str, at: int, *, needs_date: bool) -> Plan | None:
    found = _DATE.search(f" {text}")
    words = plain(cut(f" {text}"[: found.start()] if found else text))
    if not is_object(_VERB.sub("", words) or words):
        return None
    when = _read(found, at) if found else ""
    if not when:
        return Plan(words, not needs_date)
    link = "on" if len(when) == _FULL_DATE else "in"
    soon = (read_date("tomorrow", at) or "")[: len(when)]
    is_kept = when > soon if len(when) == _FULL_DATE else when >= soon
    return Plan(f"{words} {link} {when}", is_kept)


_VERB = re.compile(r"^\w+ing (?:to |in |a |the |my |for )*")
_FULL_DATE = 10


def _read(found: re.Match[str], at: int) -> str:
    if found["month"]:
        today = instant(at)
        month = found["month"].split()[-1].split("-")[-1].casefold()
        year = today.year + (MONTHS.index(month) + 1 < today.month)
        return read_date(f"{month} {year:04}", at) or ""
    words = re.sub(
        r"^(?:for|from|until|starting) (?:the )?|^(?:in|on) (?=next|this)|^the (?=\d)",
        "",
        found["date"],
        flags=re.IGNORECASE,
    )
    words = re.sub(r"^this coming ", "this ", words, flags=re.IGNORECASE)
    return read_date(words, at) or read_date(re.sub(r"^(?:in|on) ", "", words), at) or ""


_CANCELLED = re.compile(
    r"(?:(?:the|my|our) (?P<o>.+?) (?:is|are|was|were|got|has been|have been|had to be)"
    r" (?:just |now |sadly |unfortunately )*(?:cancell?ed|called off|off$|postponed"
    r" indefinitely|not happening|no longer happening|scrapped)"
    r"|(?:the|my|our) (?P<p>.+?) (?:fell through|will not happen|got axed)"
    r"|(?:I|we)(?: have)?(?: had to)?(?: just)? (?:cancel(?:l?ed)?|called off|call off"
    r"|scrapped) (?:the|my|our) (?P<q>.+))",
    re.IGNORECASE,
)
_NOT_PLANS = word_set(
    "the a an my our trip plan plans holiday vacation flight to in of for on visit tickets "
    "this that next whole entire"
)


_PLANNED = re.compile(
    r"\b(?:trip|holiday|vacation|wedding|honeymoon|flight|move|party|concert|appointment"
    r"|meeting|exam"
    r"|interview|race|marathon|tour|cruise|surgery|operation|visit|plans?|conference|weekend|hike"
    r"|safari|getaway|engagement|dinner|lunch|date|course|class|game|match|picnic|festival)s?\b"
    r"|(?<!^)\b[A-Z]"
)


def cancelled_plan(text: str) -> tuple[str, ...] | None:
    """Return the words of a plan that a clause cancels; None when it cancels none."""
    match = _CANCELLED.match(text)
    if match is None:
        return None
    words = cut((match["o"] or match["p"] or match["q"]).strip())
    if not _PLANNED.search(words):
        return None
    every = [word.strip("'-") for word in re.findall(r"[\w'-]+", words)]
    names = [word for word in every if word[:1].isupper()]
    content = [word for word in every if word.casefold() not in _NOT_PLANS]
    chosen = names or content or every
    return tuple(chosen[:3]) or None


_OFTEN = (
    r"(?:every (?:single |other )?(?:day|morning|evening|night|week|weekend|month|year|summer"
    r"|winter|\w+day|two weeks|few weeks)s?"
    r"|(?:once|twice|three times|four times|five times|\d times|two times|\d+ (?:km|miles"
    r"|minutes|hours)) (?:a|per|each) (?:day|week|month|year)"
    r"|each (?:day|morning|evening|week)|on (?:mon|tues|wednes|thurs|fri|satur|sun)days|on"
    r" weekends|daily|weekly"
    r"|before (?:work|breakfast|bed)|after work)"
)
_HABIT = re.compile(
    r"(?P<o>(?:go|goes|do|does|run|runs|swim|swims|cycle|cycles|bike|bikes|meditate|meditates"
    r"|work out|works out|exercise|exercises"
    r"|train|trains|practi[cs]es?|jog|jogs|cook|cooks|wake up|wakes up|get up|gets up|walk"
    r"|walks|hike|hikes|play|plays|read|reads"
    r"|attend|attends|visit|visits|volunteer|volunteers|journal|journals|stretch|bake|bakes"
    r"|call|calls|write|writes|paint|paints|climb|climbs|row|rows|commute|commutes|garden"
    r"|gardens)\b.{0,60}?\b" + _OFTEN + r")(?:$|,| )",
    re.IGNORECASE,
)


def habit_in(text: str) -> str:
    """Return what somebody does regularly; empty when the words state no habit."""
    match = _HABIT.match(text)
    words = match["o"] if match else ""
    return words if words and not _NO_HABIT.search(words) else ""


_NO_HABIT = re.compile(r"\b(?:it|that|this|them|these|those|you|him|her|something|I|we|so|like)\b")
