"""Turn the spans of calls of models and agents into episodes.

The names are those of OpenTelemetry's conventions for generative AI, version 1.42.0
(https://opentelemetry.io/schemas/gen-ai/1.42.0, repository semantic-conventions-genai).

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

from slumberd.interchange.records import DEFAULT, optional_text
from slumberd.interchange.spans import Span
from slumberd.model.episode import Episode, instant
from slumberd.model.recalled import strip_recalled
from slumberd.model.speaker import PERSON

CONVENTIONS = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
"""The version of the conventions whose names are read."""

MOST_CHARACTERS = 100_000
"""The longest text of a message."""

_NAME = "otlp"
_USER, _ASSISTANT = "user", "assistant"
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_DETAILS = "gen_ai.client.inference.operation.details"
"""The event that may hold the messages instead of the span."""

_CALLS = frozenset(
    {"chat", "generate_content", "invoke_agent", "invoke_workflow", "text_completion"}
)
"""The operations whose spans hold messages, if their program records them."""

_OLDER_EVENTS = frozenset({
    "gen_ai.assistant.message", "gen_ai.choice", "gen_ai.content.completion",
    "gen_ai.content.prompt", "gen_ai.tool.message", "gen_ai.user.message",
})  # fmt: skip
"""The events of conventions up to 1.36.0, which hold one message each."""

_MOST_ANCESTORS = 32
_LONGEST_NAME = 1_000
_ID_BYTES = 16


class Owner(NamedTuple):
    """Whose memory the spans become part of.

    Attributes:
        user: The user; None when each span names its own.
        agent: The agent; None when each span may name its own.
    """

    user: str | None = None
    agent: str | None = None


class Reading(NamedTuple):
    """What one span says.

    Attributes:
        span: The span.
        episodes: What is new in it, in the order of its messages.
        left_out: How many of its messages are no episodes: the history, messages of the system
            and of tools, further choices, and messages without text.
        problem: Why it cannot be read; empty when it can.
        silent: Whether it is the call of a model or agent that holds no messages.
    """

    span: Span
    episodes: tuple[Episode, ...] = ()
    left_out: int = 0
    problem: str = ""
    silent: bool = False


class _Message(NamedTuple):
    role: str
    text: str
    speaker: str | None = None


class _Place(NamedTuple):
    """The scope of a span's episodes."""

    user: str
    session: str
    agent: str


def read_spans(spans: Sequence[Span], owner: Owner) -> list[Reading]:
    """Return what each span says; spans of other kinds say nothing.

    Args:
        spans: The spans of one request. A span without session or agent has those of the span
            that it is part of, if that is among them.
        owner: Whose memory they become part of.
    """
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    return [_read_span(span, by_id, owner) for span in spans]


def _read_span(span: Span, by_id: Mapping[tuple[str, str], Span], owner: Owner) -> Reading:
    try:
        held = _messages_of(span)
        if held is None:
            return Reading(span, silent=_label(span, "gen_ai.operation.name") in _CALLS)
        history, answers = held
        fresh = [*_fresh(history), *_first(answers)]
        told = [each for each in fresh if each.text]
        place = _place_of(span, by_id, owner)
        episodes = tuple(_episodes_of(told, span, place))
    except ValueError as error:
        return Reading(span, problem=str(error))
    return Reading(span, episodes, left_out=len(history) + len(answers) - len(episodes))


def _messages_of(span: Span) -> tuple[list[_Message], list[_Message]] | None:
    """Return the messages before the answer, and the answers; None for a span without messages.

    Raises:
        ValueError: They have another form.
    """
    details = (event.attributes for event in span.events if event.name == _DETAILS)
    for attributes in (span.attributes, *details):
        if _INPUT in attributes or _OUTPUT in attributes:
            return _read_messages(attributes, _INPUT), _read_messages(attributes, _OUTPUT)
    if older := [event.name for event in span.events if event.name in _OLDER_EVENTS]:
        raise ValueError(
            f"its messages are in events {older[0]!r} of an older convention; set"
            " OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental in its program"
        )
    return None


def _read_messages(attributes: Mapping[str, Any], name: str) -> list[_Message]:
    value = attributes.get(name)
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise ValueError(
                f"attribute {name!r} holds no JSON: {error.msg}; a limit on the length of"
                " attributes may have cut it"
            ) from error
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError(f"attribute {name!r} holds no array of messages")
    return [_read_message(each, name) for each in value]


def _read_message(message: Mapping[str, Any], name: str) -> _Message:
    role, parts = optional_text(message, "role"), message.get("parts")
    if role is None or not isinstance(parts, list):
        raise ValueError(f"a message in {name!r} has no role or no parts")
    text = strip_recalled("\n".join(_texts(parts)))
    if role in (_USER, _ASSISTANT) and len(text) > MOST_CHARACTERS:
        raise ValueError(f"a message in {name!r} is longer than {MOST_CHARACTERS:,} characters")
    return _Message(role, text, _speaker_of(role, optional_text(message, "name")))


def _speaker_of(role: str, name: str | None) -> str | None:
    """Return the name of a message's speaker; no program has the name of the person."""
    return None if role != _USER and name in PERSON else name


def _texts(parts: Sequence[object]) -> Iterator[str]:
    """Yield what a message says: its texts, and the words of its sound."""
    for part in parts:
        if isinstance(part, dict):
            found = part.get("content" if part.get("type") == "text" else "transcript")
            if isinstance(found, str):
                yield found


def _fresh(history: Sequence[_Message]) -> list[_Message]:
    """Return the user's messages after the last answer in a history."""
    end = len(history)
    # A program may begin the answer itself, by a message of the assistant at the end.
    while end and history[end - 1].role == _ASSISTANT:
        end -= 1
    begin = end
    while begin and history[begin - 1].role != _ASSISTANT:
        begin -= 1
    return [each for each in history[begin:end] if each.role == _USER]


def _first(answers: Sequence[_Message]) -> list[_Message]:
    """Return the first of several choices: only one of them goes on in the conversation."""
    return [each for each in answers[:1] if each.role == _ASSISTANT]


def _place_of(span: Span, by_id: Mapping[tuple[str, str], Span], owner: Owner) -> _Place:
    """Return the scope of a span's episodes.

    Raises:
        ValueError: No user is known, or the span names another than its owner's.
    """
    if not span.trace_id or not span.span_id:
        raise ValueError("it has no trace id or no span id")
    # The user only from the span itself or its program: a trace may cross the users of a service.
    named = _named((span.attributes, span.resource), "user.id", "enduser.id")
    if owner.user is not None and named not in (None, owner.user):
        raise ValueError("it names another user than the one of the caller")
    user = owner.user or named
    if not user:
        raise ValueError("it names no user; set the attribute 'user.id'")
    around = [each.attributes for each in _with_ancestors(span, by_id)]
    session = _named((*around, span.resource), "gen_ai.conversation.id", "session.id")
    agent = _named((*around, span.resource), "gen_ai.agent.id", "gen_ai.agent.name")
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


def _episodes_of(messages: Sequence[_Message], span: Span, place: _Place) -> Iterator[Episode]:
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


def _id_of(message: _Message, span: Span, user: str, repeated: int) -> str:
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
    at = max(span.start, span.end) if role == _ASSISTANT else span.start
    return instant(at // 1_000) + timedelta(microseconds=number)


def _metadata_of(message: _Message, span: Span) -> dict[str, Any]:
    said_by = {} if message.speaker is None else {"speaker": message.speaker}
    named = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "operation": _label(span, "gen_ai.operation.name"),
        "model": _label(span, "gen_ai.request.model"),
        "agent_name": _label(span, "gen_ai.agent.name"),
    }
    kept = {key: value for key, value in named.items() if value is not None}
    return {**said_by, "role": message.role, _NAME: kept}


def _label(span: Span, name: str) -> str | None:
    """Return an attribute that decides nothing; None when it is no short text."""
    found = span.attributes.get(name)
    return found if isinstance(found, str) and len(found) <= _LONGEST_NAME else None
