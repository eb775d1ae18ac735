"""Spans as plain values, the names of their attributes, and the JSON form of OTLP.

Of a span only its place, its time and the wanted attributes are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

KIND = "openinference.span.kind"

USERS = (
    "user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId", "ai.telemetry.metadata.user_id",
)  # fmt: skip
"""The names of the user; the first one that a span has counts."""

SESSIONS = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
    "ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.session_id",
)  # fmt: skip
AGENTS = ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name")
MODELS = ("gen_ai.request.model", "llm.model_name", "ai.model.id")
OPERATIONS = (
    "gen_ai.operation.name", "ai.operationId", "llm.request.type", KIND, "traceloop.span.kind",
)  # fmt: skip

INPUTS = (
    "gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt", "llm.prompts",
    "ai.prompt.messages", "ai.prompt",
)  # fmt: skip
"""The attributes of the messages before an answer: of OpenTelemetry, OpenInference, OpenLLMetry,
and the AI SDK. Each may also be the begin of the names of one attribute for each value."""

PROMPTS = ("gen_ai.prompt", "llm.prompts")
"""Those of OpenLLMetry, whose entries may hold the user's text under ``user``."""

ANSWER_TEXTS = ("ai.response.text", "ai.result.text")
"""The attributes that hold the text of an answer, whatever it looks like."""

OUTPUTS = (
    "gen_ai.output.messages", "llm.output_messages", "gen_ai.completion", "llm.completions",
    "llm.choices", *ANSWER_TEXTS,
)  # fmt: skip
VALUES = ("input.value", "output.value")
"""The attributes of OpenInference that any span may have, whatever it does."""

OF_EVENTS = ("role", "name", "content", "tool_calls", "message", "gen_ai.event.content", "index")
"""The attributes that are read of an event that holds one message."""

WANTED = frozenset({
    *USERS, *SESSIONS, *AGENTS, *MODELS, *OPERATIONS, *INPUTS, *OUTPUTS, *VALUES,
})  # fmt: skip
"""The attributes that are read; all others are left out at once."""

_FLAT = tuple(f"{name}." for name in (*INPUTS, *OUTPUTS) if name not in ANSWER_TEXTS)

CALLS = frozenset({
    "chat", "generate_content", "invoke_agent", "invoke_workflow", "text_completion", "completion",
    "LLM", "AGENT",
})  # fmt: skip
"""The operations whose spans hold messages, if their program records them."""

OTHER_CALLS = frozenset({
    "execute_tool", "embeddings", "retrieval", "tool", "ai.toolCall", "TOOL", "RETRIEVER",
    "EMBEDDING", "RERANKER",
})  # fmt: skip
"""The operations whose spans hold no words of a user or an assistant."""

CALL_OF_SDK = re.compile(r"ai\.(generate|stream)(Text|Object)(\.do(Generate|Stream))?")

_FAMILIES = frozenset({
    "gen_ai", "genai", "llm", "ai", "openinference", "traceloop", "langfuse", "langsmith",
    "langchain", "langgraph", "mlflow", "lk", "pydantic_ai", "logfire", "crewai", "dspy",
    "haystack", "openai", "anthropic", "smolagents", "autogen", "lmnr", "braintrust", "agent",
    "chat", "conversation", "input", "output", "prompt", "completion", "messages",
    "all_messages_events",
})  # fmt: skip
"""Names that begin attributes of programs that call models."""

_FOREIGN = frozenset({
    "http", "db", "messaging", "rpc", "url", "server", "client", "net", "network", "code",
    "thread", "process", "exception", "error", "faas", "tool", "mcp", "retrieval", "embedding",
    "reranker", "document", "metadata", "telemetry", "headers", "tools",
})  # fmt: skip
_HOLDS = frozenset({
    "prompt", "prompts", "completion", "completions", "message", "messages", "input", "inputs",
    "output", "outputs", "content", "response", "transcript", "transcription", "question",
    "answer", "query", "reply", "utterance", "conversation", "history", "choices", "object",
    "events",
})  # fmt: skip
_PLAIN = frozenset({"value", "text", "data", "body", "json", "raw", "content", "messages"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TELLS = frozenset({
    "type", "mime", "tokens", "token", "model", "id", "ids", "name", "reason", "reasons", "format",
    "kind", "schema", "template", "variables", "count", "length", "timestamp", "role", "hash",
    "tool", "tools", "system", "instructions", "version", "language", "metadata", "provider",
})  # fmt: skip


def is_wanted(name: str) -> bool:
    """Return whether an attribute is read."""
    return name in WANTED or name.startswith(_FLAT)


def may_hold_messages(name: str) -> bool:
    """Return whether an attribute that is not read may hold messages, by its name."""
    *places, last = name.split(".")
    words = {word.lower() for word in _WORD.findall(last)}
    if last in _PLAIN and places:
        words |= {word.lower() for word in _WORD.findall(places[-1])}
    return bool(words & _HOLDS) and not words & _TELLS and not _FOREIGN & {*places}


def is_of_models(name: str) -> bool:
    """Return whether the name of an attribute is one of programs that call models."""
    return not _FAMILIES.isdisjoint(name.split("."))


MOST_SPANS = 10_000
"""The most spans of one request; exporters send 512 at once, unless told otherwise."""

DEEPEST = 32
"""No value of an attribute may be nested deeper."""

LONGEST_NAME = 100
"""Of the name of an attribute that is not read, no more characters are kept."""

MOST_OTHERS = 10
"""Of the names of such attributes of one span, no more are kept."""

_MOST_NANOSECONDS = 2**64

_NAMES = frozenset({*USERS, *SESSIONS, *AGENTS, *MODELS, *OPERATIONS})
"""The attributes that name something, and hold no text of a message."""


class SpanEvent(NamedTuple):
    """An event of a span.

    Attributes:
        attributes: Its attributes, if it is one of the calls of models.
    """

    name: str
    attributes: Mapping[str, Any]


class Span(NamedTuple):
    """One span.

    Attributes:
        trace_id: The trace, in hexadecimal digits; empty when it has none.
        span_id: The span, in hexadecimal digits.
        parent_id: The span that it is part of; empty for the first one.
        start: When it began, nanoseconds since 1970 UTC; 0 when that is not known.
        end: When it ended, nanoseconds since 1970 UTC; 0 when that is not known.
        attributes: Its wanted attributes.
        resource: The wanted attributes of the program that it comes from.
        others: The names of attributes that are not read, and may hold messages.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    start: int = 0
    end: int = 0
    attributes: Mapping[str, Any] = {}
    resource: Mapping[str, Any] = {}
    events: tuple[SpanEvent, ...] = ()
    others: tuple[str, ...] = ()


def without_secrets(span: Span, secrets: Callable[[Any], Any]) -> Span:
    """Return a span as a filter of secrets leaves it; its names stay.

    Args:
        secrets: Returns a value without its secrets.
    """
    events = tuple(
        event._replace(attributes=_filtered(event.attributes, secrets)) for event in span.events
    )
    return span._replace(attributes=_filtered(span.attributes, secrets), events=events)


def _filtered(attributes: Mapping[str, Any], secrets: Callable[[Any], Any]) -> Mapping[str, Any]:
    return {key: value if key in _NAMES else secrets(value) for key, value in attributes.items()}


def spans_of_document(document: object) -> list[Span]:
    """Return the spans of an ``ExportTraceServiceRequest`` in JSON.

    Unknown keys are left out, as OTLP demands.

    Raises:
        ValueError: A part has another form, or there are too many spans.
    """
    return limited(_spans_of(document))


def limited(spans: Iterator[Span]) -> list[Span]:
    """Return spans, if there are not too many.

    Raises:
        ValueError: There are more than `MOST_SPANS`.
    """
    found = [*islice(spans, MOST_SPANS)]
    if next(spans, None) is not None:
        raise ValueError(f"there are more than {MOST_SPANS:,} spans; send fewer at once")
    return found


def _spans_of(document: object) -> Iterator[Span]:
    for resource_spans in _children(_object(document, "the request"), "resourceSpans"):
        resource = _object(resource_spans.get("resource") or {}, "key 'resource'")
        common = _attributes(resource)
        for scope_spans in _children(resource_spans, "scopeSpans"):
            for span in _children(scope_spans, "spans"):
                yield _span(span, common)


def _span(span: Mapping[str, Any], resource: Mapping[str, Any]) -> Span:
    return Span(
        _hexadecimal(span, "traceId"),
        _hexadecimal(span, "spanId"),
        _hexadecimal(span, "parentSpanId"),
        _nanoseconds(span, "startTimeUnixNano"),
        _nanoseconds(span, "endTimeUnixNano"),
        _attributes(span),
        resource,
        tuple(map(_event, _objects(span, "events"))),
        tuple(islice(_others(span), MOST_OTHERS)),
    )


def _event(event: Mapping[str, Any]) -> SpanEvent:
    name = _text(event, "name")
    return SpanEvent(name, _attributes(event, is_kept=lambda _: is_of_calls(name)))


def is_of_calls(event: str) -> bool:
    """Return whether an event is one of the calls of models, so that it may hold messages."""
    return event.startswith("gen_ai.")


def _others(span: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of attributes that are not read, and may hold messages.

    Those of an event begin with its name.
    """
    for pair in _objects(span, "attributes"):
        name = _text(pair, "key")
        if _holds_texts(pair.get("value")) and is_other(name):
            yield name[:LONGEST_NAME]
    for event in _objects(span, "events"):
        for pair in _objects(event, "attributes"):
            name = name_in_event(_text(event, "name"), _text(pair, "key"))
            if name and _holds_texts(pair.get("value")):
                yield name


def _holds_texts(value: object) -> bool:
    """Return whether the value of an attribute is a text, or an array or object, and not empty."""
    kinds = ("stringValue", "arrayValue", "kvlistValue")
    found = [value.get(kind) for kind in kinds] if isinstance(value, dict) else []
    return any(each not in (None, "", {}, {"values": []}) for each in found)


def is_other(name: str) -> bool:
    """Return whether an attribute is not read, and may hold messages."""
    return not is_wanted(name) and may_hold_messages(name)


def name_in_event(event: str, key: str) -> str:
    """Return the name of an attribute of an event, if it is not read and may hold messages."""
    whole = f"{event}.{key}"
    is_read = is_of_calls(event) and (is_wanted(key) or key in OF_EVENTS)
    is_named = not is_read and (is_wanted(key) or may_hold_messages(whole))
    return whole[:LONGEST_NAME] if is_named else ""


def _attributes(
    owner: Mapping[str, Any], is_kept: Callable[[str], bool] = is_wanted
) -> dict[str, Any]:
    """Return the wanted attributes of a span, an event or a resource, by name."""
    found = ((_text(pair, "key"), pair.get("value")) for pair in _objects(owner, "attributes"))
    return {name: _value(value) for name, value in found if is_kept(name)}


def _value(value: object, depth: int = 0) -> Any:  # noqa: ANN401 # any JSON
    """Return the value of an attribute as plain JSON."""
    if depth > DEEPEST:
        raise ValueError(f"an attribute is nested deeper than {DEEPEST} levels")
    for kind, found in _object(value or {}, "key 'value'").items():
        match kind:
            case "arrayValue":
                values = _array(_object(found, f"key {kind!r}"), "values")
                return [_value(each, depth + 1) for each in values]
            case "kvlistValue":
                pairs = _objects(_object(found, f"key {kind!r}"), "values")
                return {_text(each, "key"): _value(each.get("value"), depth + 1) for each in pairs}
            case "intValue":
                return _integer(found, kind)
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return found
            case _:  # a kind of a later version of OTLP
                return None
    return None


def _object(value: object, place: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{place} holds no object")


def _array(owner: Mapping[str, Any], key: str) -> list[Any]:
    found = owner.get(key) or []
    if isinstance(found, list):
        return found
    raise ValueError(f"key {key!r} holds no array")


def _objects(owner: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    return (_object(each, f"an entry of key {key!r}") for each in _array(owner, key))


def _children(owner: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    """Return the objects under a key; an older or misspelled key must not lose them in silence."""
    others = [other for other, value in owner.items() if isinstance(value, list) and value]
    if key not in owner and others:
        raise ValueError(f"key {key!r} is missing; there is {others[0][:LONGEST_NAME]!r}")
    return _objects(owner, key)


def _text(owner: Mapping[str, Any], key: str) -> str:
    found = owner.get(key) or ""
    if isinstance(found, str):
        return found
    raise ValueError(f"key {key!r} holds no text")


def _hexadecimal(owner: Mapping[str, Any], key: str) -> str:
    """Return an id in lower case; empty for one of zeros, which OTLP calls invalid."""
    found = _text(owner, key).lower()
    if not set(found) <= set("0123456789abcdef"):
        raise ValueError(f"key {key!r} holds no hexadecimal digits")
    return found if found.strip("0") else ""


def _nanoseconds(owner: Mapping[str, Any], key: str) -> int:
    found = _integer(owner.get(key) or 0, key)
    if not 0 <= found < _MOST_NANOSECONDS:
        raise ValueError(f"key {key!r} holds no instant")
    return found


def _integer(value: object, key: str) -> int:
    """Return an integer, which JSON holds as a number or as a text of digits."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"key {key!r} holds no integer")
