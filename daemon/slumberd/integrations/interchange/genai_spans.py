"""Turn the spans of calls of models and agents into episodes.

A span holds the whole history of its conversation. Only its end is new: the user's messages after
the last answer, and the answer of this call. Nothing else becomes an episode. The history has no
time of its own, and after an erasure it still holds what was erased.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import orjson

from slumberd.integrations.interchange.records import DEFAULT, optional_text
from slumberd.integrations.interchange.span_messages import (
    ASSISTANT,
    USER,
    Message,
    Messages,
    messages_of,
)
from slumberd.integrations.interchange.spans import (
    AGENTS,
    CALL_OF_SDK,
    CALLS,
    INPUTS,
    KIND,
    MODELS,
    OPERATIONS,
    OTHER_CALLS,
    OUTPUTS,
    SESSIONS,
    USERS,
    Span,
    is_of_models,
)
from slumberd.model.episode import Episode, instant

_NAME = "otlp"
_OLDER_EVENTS = (
    ".user.message", ".assistant.message", ".content.prompt", ".content.completion", "_ai.choice",
)  # fmt: skip
"""How the names of events end that hold messages, if their program records them."""

_MOST_ANCESTORS = 32
_LONGEST_NAME = 1_000
_ID_BYTES = 16


class SpanOwner(NamedTuple):
    """Whose memory the spans become part of.

    Attributes:
        user: The user; None when each span names its own.
        agent: The agent; None when each span may name its own.
    """

    user: str | None = None
    agent: str | None = None


class SpanReading(NamedTuple):
    """What one span says.

    Attributes:
        episodes: What is new in it, in the order of its messages.
        left_out: How many of its messages are no episodes: the history, messages of the system
            and of tools, further choices, and messages without text.
        problem: Why it cannot be read; empty when it can.
        silent: Whether it is the call of a model or agent that holds no messages.
        unread: The names of attributes that may hold messages in an unknown form.
    """

    span: Span
    episodes: tuple[Episode, ...] = ()
    left_out: int = 0
    problem: str = ""
    silent: bool = False
    unread: tuple[str, ...] = ()


class _Place(NamedTuple):
    """The scope of a span's episodes."""

    user: str
    session: str
    agent: str


def read_spans(spans: Sequence[Span], owner: SpanOwner) -> list[SpanReading]:
    """Return what each span says; spans of other kinds say nothing.

    Args:
        spans: The spans of one request. A span without session or agent has those of the span
            that it is part of, if that is among them.
        owner: Whose memory they become part of.
    """
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    readings = [_read_span(span, by_id, owner) for span in spans]
    # The steps of OpenInference's chains repeat what the calls of models within them hold.
    taken = {reading.span.trace_id for reading in readings if reading.episodes}
    return [
        reading._replace(unread=())
        if reading.span.trace_id in taken
        and reading.span.attributes.get(KIND) not in (None, "LLM", "AGENT")
        else reading
        for reading in readings
    ]


def _read_span(span: Span, by_id: Mapping[tuple[str, str], Span], owner: SpanOwner) -> SpanReading:
    try:
        held = messages_of(span)
        unread = tuple(_unread(span, held))
        history, answers = held.history, held.answers
        if not history and not answers:
            return SpanReading(span, silent=_is_silent(span) and not unread, unread=unread)
        fresh = [*_fresh(history), *_first(answers)]
        told = [each for each in fresh if each.text]
        place = _place_of(span, by_id, owner)
        episodes = tuple(_episodes_of(told, span, place))
    except ValueError as error:
        return SpanReading(span, problem=str(error))
    left_out = len(history) + len(answers) - len(episodes)
    return SpanReading(span, episodes, left_out=left_out, unread=unread)


def _unread(span: Span, held: Messages) -> Iterator[str]:
    """Yield the names of attributes that may hold messages, if the known ones lack some."""
    yield from held.unread
    if not (held.history and held.answers) and _label(span, *OPERATIONS) not in OTHER_CALLS:
        is_call = _is_call(span)
        yield from (name for name in span.others if is_call or is_of_models(name))


def _is_silent(span: Span) -> bool:
    """Return whether a call holds no messages at all, not even none of them."""
    return _is_call(span) and not any(name in span.attributes for name in (*INPUTS, *OUTPUTS))


def _is_call(span: Span) -> bool:
    """Return whether a span is the call of a model or agent."""
    operation = _label(span, *OPERATIONS) or ""
    return (
        operation in CALLS
        or CALL_OF_SDK.fullmatch(operation) is not None
        or any(event.name.endswith(_OLDER_EVENTS) for event in span.events)
    )


def _fresh(history: Sequence[Message]) -> list[Message]:
    """Return the user's messages after the last answer in a history."""
    end = len(history)
    # A program may begin the answer itself, by a message of the assistant at the end.
    while end and history[end - 1].role == ASSISTANT:
        end -= 1
    begin = end
    while begin and history[begin - 1].role != ASSISTANT:
        begin -= 1
    return [each for each in history[begin:end] if each.role == USER]


def _first(answers: Sequence[Message]) -> list[Message]:
    """Return the first of several choices: only one of them goes on in the conversation.

    Some programs return the whole conversation; then the answer is its end.
    """
    said = [each for each in answers if each.role in (USER, ASSISTANT)]
    if any(each.role == USER for each in said):
        return [each for each in said[-1:] if each.role == ASSISTANT]
    return said[:1]


def _place_of(span: Span, by_id: Mapping[tuple[str, str], Span], owner: SpanOwner) -> _Place:
    """Return the scope of a span's episodes.

    Raises:
        ValueError: No user is known, or the span names another than its owner's.
    """
    if not span.trace_id or not span.span_id:
        raise ValueError("it has no trace id or no span id")
    # The user only from the span itself or its program: a trace may cross the users of a service.
    named = _named((span.attributes, span.resource), *USERS)
    if owner.user is not None and named not in (None, owner.user):
        raise ValueError("it names another user than the one of the caller")
    user = owner.user or named
    if not user:
        raise ValueError("it names no user; set the attribute 'user.id'")
    around = [each.attributes for each in _with_ancestors(span, by_id)]
    session = _named((*around, span.resource), *SESSIONS)
    agent = _named((*around, span.resource), *AGENTS)
    return _Place(user, session or span.trace_id, owner.agent or agent or DEFAULT)


def _with_ancestors(span: Span, by_id: Mapping[tuple[str, str], Span]) -> Iterator[Span]:
    """Yield a span, and the spans that it is part of, nearest first."""
    found: Span | None = span
    for _ in range(_MOST_ANCESTORS):
        if found is None:
            return
        yield found
        found = by_id.get((found.trace_id, found.parent_id))


def _named(places: Sequence[Mapping[str, Any]], *names: str) -> str | None:
    """Return the first text under one of some names, in the first of some places that has one.

    Raises:
        ValueError: It is no text, or too long.
    """
    for place in places:
        for name in names:
            if found := optional_text(place, name):
                if len(found) > _LONGEST_NAME:
                    raise ValueError(f"key {name!r} is longer than {_LONGEST_NAME:,} characters")
                return found
    return None


def _episodes_of(messages: Sequence[Message], span: Span, place: _Place) -> Iterator[Episode]:
    said: Counter[tuple[str, str]] = Counter()
    for number, message in enumerate(messages):
        words = (message.role, message.text)
        yield Episode(
            id=_id_of(message, span, place.user, said[words]),
            content=message.text,
            timestamp=_instant_of(span, message.role, number),
            source_node=message.role,
            user=place.user,
            session=place.session,
            agent=place.agent,
            metadata=_metadata_of(message, span),
        )
        said[words] += 1


def _id_of(message: Message, span: Span, user: str, repeated: int) -> str:
    """Return the id of a message: equal in all spans of one trace that hold it as new.

    Neither session nor agent is part of it: the span of an agent and the spans of its calls repeat
    the message, and not all of them name both.
    """
    named = orjson.dumps([user, span.trace_id, message.role, message.text, repeated])
    return f"{_NAME}:{hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()}"


def _instant_of(span: Span, role: str, number: int) -> datetime:
    """Return when a message was said: at the begin of the call, or at its end for the answer.

    Messages of one span keep their order by a microsecond each.

    Raises:
        ValueError: The span has no time.
    """
    if not span.start:
        raise ValueError("it has no start")
    at = max(span.start, span.end) if role == ASSISTANT else span.start
    return instant(at // 1_000) + timedelta(microseconds=number)


def _metadata_of(message: Message, span: Span) -> dict[str, Any]:
    said_by = {} if message.speaker is None else {"speaker": message.speaker}
    named = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "operation": _label(span, *OPERATIONS),
        "model": _label(span, *MODELS),
        "agent_name": _label(span, *AGENTS[1:]),
    }
    kept = {key: value for key, value in named.items() if value is not None}
    return {**said_by, "role": message.role, _NAME: kept}


def _label(span: Span, *names: str) -> str | None:
    """Return an attribute that decides nothing: the first that is a short text; else None."""
    values = (span.attributes.get(name) for name in names)
    texts = (each for each in values if isinstance(each, str) and len(each) <= _LONGEST_NAME)
    return next(texts, None)
