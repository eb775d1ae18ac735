"""Check the answer of a language model, and keep only the triples that the turns support.

An answer of another form is invalid as a whole. A triple
counts only if its predicate is in the list of the rule and its words are in the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from slumberd.errors import InvalidAnswerError
from slumberd.extraction.dates_in_text import find_dates, parts_between, write_dates_out
from slumberd.extraction.model_prompt import MAX_TEXT, MAX_TRIPLES, speaker_of
from slumberd.extraction.normalisers import collapse_spaces
from slumberd.extraction.turns import arrange
from slumberd.model.extraction import Extracted, ModelSettings, Question, ShownFact
from slumberd.model.predicates import names_predicate

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]


class _Triple(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    turn: str
    subject: _Text
    predicate: str
    object: _Text
    quote: _Text
    intent: Literal["add", "delete"]
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False)


class _Ended(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    turn: str
    fact: str
    quote: _Text


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    triples: Annotated[list[_Triple], Field(max_length=MAX_TRIPLES)]
    ended: Annotated[list[_Ended], Field(max_length=MAX_TRIPLES)] = []


class Supported(NamedTuple):
    """The part of an answer that counts, for one turn.

    Attributes:
        triples: The triples, in the order of the text.
        dropped: How many triples do not count.
    """

    triples: list[Extracted]
    dropped: int


def read_answer(
    text: str,
    settings: ModelSettings,
    questions: Sequence[Question],
    facts: Sequence[ShownFact] = (),
) -> list[Supported]:
    """Return what counts of an answer, for each question in order.

    Args:
        text: The answer.
        settings: What was asked.
        questions: As `messages_for` got them.
        facts: As `messages_for` got them.

    Raises:
        InvalidAnswerError: The answer is not JSON of the given form, or names an unknown turn.
    """
    answer = _parse(text)
    by_turn = {f"t{n}": question for n, question in enumerate(questions, 1)}
    by_id = {f"f{n}": fact for n, fact in enumerate(facts, 1)}
    found: dict[str, list[Extracted | None]] = {turn: [] for turn in by_turn}
    for triple in answer.triples:
        question = _turn_of(triple, by_turn)
        found[triple.turn].append(_extracted(triple, question, settings))
    for ended in answer.ended:
        question = _turn_of(ended, by_turn)
        found[ended.turn].append(_taken_back(ended, question, settings, by_id.get(ended.fact)))
    return [*map(_supported, found.values())]


def _turn_of(stated: _Triple | _Ended, by_turn: Mapping[str, Question]) -> Question:
    if stated.turn not in by_turn:
        raise InvalidAnswerError("it names a turn that was not given")
    return by_turn[stated.turn]


def _parse(text: str) -> _Answer:
    try:
        return _Answer.model_validate_json(without_fence(text))
    except ValidationError as error:
        raise InvalidAnswerError(describe_first(error)) from None


def describe_first(error: ValidationError) -> str:
    """Return the first problem that a validation found, without words of the answer."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "extra_forbidden":
        return "it has a key that the form lacks"
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def without_fence(text: str) -> str:
    """Return an answer without the fence of a code block, which many models write around it."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        return stripped.removesuffix("```").partition("\n")[2]
    return stripped


def _supported(found: Sequence[Extracted | None]) -> Supported:
    counted = [one for one in found if one is not None]
    kept = arrange(counted)
    return Supported(kept, len(found) - len(kept))


def _extracted(triple: _Triple, question: Question, settings: ModelSettings) -> Extracted | None:
    """Return a triple that the turn supports; None for another one."""
    start = _find(triple.quote, question.turn.content)
    object_ = _object_in(triple.object, triple.quote, question.turn.at)
    if (
        start < 0
        or object_ is None
        or not names_predicate(frozenset(settings.predicates), triple.predicate)
        or triple.predicate.endswith("*")
        or (triple.intent == "delete" and not settings.may_retract)
        or not _is_named(triple.subject, question, settings)
    ):
        return None
    return Extracted(
        subject=triple.subject,
        predicate=triple.predicate,
        object=collapse_spaces(object_),
        intent=triple.intent,
        span=(start, start + len(triple.quote)),
        by=settings.model,
        confidence=triple.confidence,
    )


def _taken_back(
    ended: _Ended, question: Question, settings: ModelSettings, fact: ShownFact | None
) -> Extracted | None:
    """Return what takes a fact back that the turn ends; None for another one.

    It names the fact and repeats nothing of it: the episodes of the fact may be erased.
    """
    start = _find(ended.quote, question.turn.content)
    if start < 0 or fact is None or not settings.may_retract or fact.at >= question.turn.at:
        return None
    return Extracted(
        subject="",
        predicate="",
        object=None,
        intent="delete",
        span=(start, start + len(ended.quote)),
        by=settings.model,
        replaces=(fact.name,),
    )


def _object_in(object_: str, quote: str, at: int) -> str | None:
    """Return an object of a quote, with its relative dates written out; None for another one.

    Each date must be one that the quote means, and the rest must be words of the quote.
    """
    if _find(object_, quote) >= 0:
        return write_dates_out(object_, at)
    dates = find_dates(object_, at)
    meant = [date for one in find_dates(quote, at) for date in one.dates]
    known = all(any(date.startswith(one.dates[0]) for date in meant) for one in dates)
    rest = parts_between(object_, dates)
    return object_ if dates and known and all(_find(part, quote) >= 0 for part in rest) else None


def _is_named(subject: str, question: Question, settings: ModelSettings) -> bool:
    """Return whether a subject is a speaker, the user or the agent, or occurs in the text."""
    turn, before = question.turn, question.before
    names = {turn.user, turn.agent, speaker_of(turn, settings)}
    texts = [turn.content]
    if before is not None:
        names.add(speaker_of(before, settings))
        texts.append(before.content)
    return subject in names or any(_find(subject, text) >= 0 for text in texts)


def _find(part: str, text: str) -> int:
    """Return where a text contains a part, as whole words and without case; -1 for nowhere."""
    whole = text.lower()
    if len(whole) == len(text):  # else a letter has another length in lower case
        part = part.lower()
    else:
        whole = text
    start = whole.find(part)
    while start >= 0:
        end = start + len(part)
        if not (_joins(whole, start) or _joins(whole, end)):
            return start
        start = whole.find(part, start + 1)
    return -1


def _joins(text: str, place: int) -> bool:
    """Return whether a place in a text is inside a word; scripts without spaces have none."""
    return 0 < place < len(text) and all(
        letter.isdecimal() or letter.lower() != letter.upper()
        for letter in text[place - 1 : place + 1]
    )
