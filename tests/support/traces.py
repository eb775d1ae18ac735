"""Traces of agents in the forms of OTLP, and conversations that agents trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from slumberd.integrations.interchange.spans import Span

NOON = 1_772_366_400_000_000_000
"""2026-03-01 12:00 UTC in nanoseconds."""
SECOND = 1_000_000_000
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def text(role: str, content: str, **others: Any) -> dict[str, Any]:
    """Return a message of one text."""
    return {"role": role, "parts": [{"type": "text", "content": content}], **others}


def call_of(tool: str, said: str = "") -> dict[str, Any]:
    """Return the message of an assistant that calls a tool."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": said}] if said else []
    parts.append({"type": "tool_call", "id": "c1", "name": tool, "arguments": {"q": 1}})
    return {"role": "assistant", "parts": parts}


def result_of(result: str) -> dict[str, Any]:
    """Return the message of a tool."""
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": result}]}


def messages(
    history: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the attributes that hold messages, as instrumentations write them."""
    return {
        "gen_ai.input.messages": json.dumps(history),
        "gen_ai.output.messages": json.dumps(answers),
    }


def span(**parts: Any) -> Span:
    """Return a span with an id and a time."""
    return Span(**{
        "trace_id": TRACE, "span_id": SPAN, "start": NOON, "end": NOON + SECOND, **parts,
    })  # fmt: skip


def document_of(spans: Iterable[Span]) -> dict[str, Any]:
    """Return spans as an ``ExportTraceServiceRequest`` in JSON, each with its own resource."""
    return {"resourceSpans": [_resource_spans(each) for each in spans]}


def _resource_spans(span: Span) -> dict[str, Any]:
    written = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": "chat",
        "kind": 3,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _pairs(span.attributes),
        "events": [
            {"name": event.name, "timeUnixNano": "1", "attributes": _pairs(event.attributes)}
            for event in span.events
        ],
        "status": {},
    }
    return {
        "resource": {"attributes": _pairs(span.resource)},
        "scopeSpans": [{"scope": {"name": "test"}, "spans": [written]}],
    }


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": _pairs(value)}}
        case _:
            return {}


class Turn(NamedTuple):
    """One turn of a conversation: a trace with one or more calls of a model.

    Attributes:
        said: What the user says.
        steps: What the model says before it calls a tool, for each call of a tool.
        answer: What it answers.
    """

    said: list[str]
    steps: list[str]
    answer: str


_WORDS = st.sampled_from(["yes", "no", "tea", "coffee"])
"""Few, so that speakers repeat themselves."""

TURNS = st.lists(
    st.builds(
        Turn,
        st.lists(_WORDS, min_size=1, max_size=2),
        st.lists(st.one_of(st.just(""), _WORDS), max_size=2),
        _WORDS,
    ),
    min_size=1,
    max_size=4,
)


class Traced(NamedTuple):
    """A conversation with its spans.

    Attributes:
        spans: All spans of its turns.
        said: How often each speaker says each words, by trace.
    """

    spans: list[Span]
    said: dict[tuple[str, str, str], int]


@st.composite
def traced_conversations(draw: st.DrawFn) -> Traced:
    """Draw a conversation that an agent and a client of a model trace, each in its own way.

    The span of a call has the whole history, its end, or what is new only. The span of the agent
    may be missing. Programs differ in this, and so do the spans of one program.
    """
    history: list[dict[str, Any]] = [text("system", "Be brief.")]
    spans: list[Span] = []
    said: dict[tuple[str, str, str], int] = {}
    for number, turn in enumerate(draw(TURNS), start=1):
        trace = f"{number:032x}"
        for role, words, times in _counted(turn):
            said[trace, role, words] = times
        spans += draw(_spans_of_turn(trace, number, turn, history))
    return Traced(spans, said)


def _counted(turn: Turn) -> Iterator[tuple[str, str, int]]:
    for words in turn.said:
        yield "user", words, turn.said.count(words)
    for words in filter(None, (*turn.steps, turn.answer)):
        # The same words in two answers of one trace count once, because no span has both as new.
        yield "assistant", words, 1


@st.composite
def _spans_of_turn(
    draw: st.DrawFn, trace: str, number: int, turn: Turn, history: list[dict[str, Any]]
) -> list[Span]:
    begin = NOON + number * 60 * SECOND
    fresh = [text("user", words) for words in turn.said]
    agent = f"{number:08x}00000000"
    spans = [
        span(
            trace_id=trace, span_id=agent, start=begin, end=begin + 50 * SECOND,
            attributes={
                "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c",
                **messages(draw(st.sampled_from([fresh, [*history, *fresh]])),
                           [text("assistant", turn.answer)]),
            },
        )
    ] if draw(st.booleans()) else []  # fmt: skip
    history += fresh
    needed = len(fresh)
    for step, words in enumerate([*turn.steps, turn.answer]):
        is_last = step == len(turn.steps)
        answer = text("assistant", words) if is_last else call_of("look", words)
        first = draw(st.sampled_from([0, max(len(history) - needed, 0)]))
        spans.append(
            span(
                trace_id=trace,
                span_id=f"{number:08x}{step + 1:08x}",
                parent_id=agent,
                start=begin + (step * 10 + 1) * SECOND,
                end=begin + (step * 10 + 9) * SECOND,
                attributes={
                    "gen_ai.operation.name": "chat",
                    "gen_ai.conversation.id": "c",
                    **messages(history[first:], [{**answer, "finish_reason": "stop"}]),
                },
            )
        )
        history += [answer] if is_last else [answer, result_of("found")]
        needed = 1
    return spans


@st.composite
def requests_of(draw: st.DrawFn, spans: list[Span]) -> list[list[Span]]:
    """Draw requests that hold some spans in any order, each at least once."""
    more = draw(st.lists(st.sampled_from(spans), max_size=6))
    order = draw(st.permutations([*spans, *more]))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
