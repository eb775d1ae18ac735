"""Check the answer of a language model, and keep only the triples that the turns support.

An answer of another form is invalid as a whole. A triple
counts only if its predicate is in the list of the rule and its words are in the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slumberd.errors import InvalidAnswerError
from slumberd.extraction.model_prompt import MAX_TEXT, MAX_TRIPLES, speaker_of
from slumberd.extraction.turns import arrange
from slumberd.model.extraction import Extracted, ModelSettings, Question

_Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class _Triple(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    turn: str
    subject: _Text
    predicate: str
    object: _Text
    quote: _Text
    intent: Literal["add", "delete"]
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False)


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    triples: Annotated[list[_Triple], Field(max_length=MAX_TRIPLES)]


class Supported(NamedTuple):
    """The part of an answer that counts, for one turn.

    Attributes:
        triples: The triples, in the order of the text.
        dropped: How many triples do not count.
    """

    triples: list[Extracted]
    dropped: int


def read_answer(
    text: str, settings: ModelSettings, questions: Sequence[Question]
) -> list[Supported]:
    """Return what counts of an answer, for each question in order.

    Args:
        text: The answer.
        settings: What was asked.
        questions: As `messages_for` got them.

    Raises:
        InvalidAnswerError: The answer is not JSON of the given form, or names an unknown turn.
    """
    answer = _parse(text)
    by_turn: dict[str, list[_Triple]] = {f"t{n}": [] for n in range(1, len(questions) + 1)}
    for triple in answer.triples:
        if triple.turn not in by_turn:
            raise InvalidAnswerError("it names a turn that was not given")
        by_turn[triple.turn].append(triple)
    return [
        _supported(found, question, settings)
        for found, question in zip(by_turn.values(), questions, strict=True)
    ]


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


def _supported(
    triples: Sequence[_Triple], question: Question, settings: ModelSettings
) -> Supported:
    found = [_extracted(triple, question, settings) for triple in triples]
    counted = [one for one in found if one is not None]
    kept = arrange(counted)
    return Supported(kept, len(found) - len(kept))


def _extracted(triple: _Triple, question: Question, settings: ModelSettings) -> Extracted | None:
    """Return a triple that the turn supports; None for another one."""
    start = _find(triple.quote, question.turn.content)
    if (
        start < 0
        or triple.predicate not in settings.predicates
        or (triple.intent == "delete" and not settings.may_retract)
        or _find(triple.object, triple.quote) < 0
        or not _is_named(triple.subject, question, settings)
    ):
        return None
    return Extracted(
        subject=triple.subject,
        predicate=triple.predicate,
        object=triple.object,
        intent=triple.intent,
        span=(start, start + len(triple.quote)),
        by=settings.model,
        confidence=triple.confidence,
    )


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
