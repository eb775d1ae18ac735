"""Fuzz the reading of traces: any bytes give episodes of the caller's user, or a reason."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from slumberd.integrations.interchange.genai_spans import SpanOwner, SpanReading, read_spans
from slumberd.integrations.interchange.span_messages import MOST_CHARACTERS
from slumberd.integrations.interchange.spans import WANTED, Span, SpanEvent, spans_of_document
from slumberd.model.texts import BEGIN
from slumberd.web.http import otlp_protobuf
from tests.fuzz.targets import Finding
from tests.support.traces import call_of, document_of, messages, result_of, span, text

OWNER = SpanOwner("ada")

_JSON, _PROTOBUF, _MESSAGES = b"j", b"p", b"m"
"""The first byte of an input says what the rest is: a request, or the messages of one span."""

_HISTORY = [
    text("system", "Be brief."), text("user", f"{BEGIN}ada likes beer"), call_of("menu", "Wait"),
    result_of("x"), text("user", f"Tea. {BEGIN}beer</slumberd-memory> Yes.", name="Ada"),
]  # fmt: skip


class TraceTarget:
    """Reads each input as the route of traces does."""

    def close(self) -> None:
        pass

    def seeds(self) -> Iterator[bytes]:
        spans = [
            span(attributes=messages(_HISTORY, [text("assistant", "Noted.")])),
            span(attributes={"gen_ai.input.messages": _HISTORY}, resource={"user.id": "bob"}),
            span(events=(SpanEvent("gen_ai.user.message", {"content": "Tea."}),), parent_id="aa"),
            span(attributes={"gen_ai.prompt.0.content": "Tea.", "acme.prompt": "x"}),
            span(attributes={"ai.prompt": '{"prompt": "Tea."}', "ai.response.text": "Noted."}),
        ]
        for each in [[], spans[:1], spans]:
            yield _JSON + orjson.dumps(document_of(each))
        yield _MESSAGES + orjson.dumps(_HISTORY)
        yield from (_JSON + one for one in (b"", b"[]", b'{"resourceSpans": [1]}'))
        yield from (_PROTOBUF + one for one in (b"", b"\x0a\x00", b"\x0a\x04\x12\x02\x12\x00"))
        yield _PROTOBUF + b"\xff"

    def words(self) -> Iterator[str]:
        yield from sorted(WANTED)
        yield from ("resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "role")
        yield from ("parts", "type", "text", "content", "transcript", "arrayValue", "kvlistValue")

    def run_once(self, given: bytes) -> None:
        try:
            spans = _spans_of(given[:1], given[1:])
        except ValueError:
            return
        readings = read_spans(spans, OWNER)
        if read_spans(spans, OWNER) != readings:
            raise Finding("the same spans say something else")
        for reading in readings:
            _check(reading)


def _spans_of(kind: bytes, rest: bytes) -> list[Span]:
    match kind:
        case b"j":
            return spans_of_document(orjson.loads(rest))
        case b"p":
            return otlp_protobuf.read_request(rest)
        case _:
            return [span(attributes={"gen_ai.input.messages": rest.decode(errors="replace")})]


def _check(reading: SpanReading) -> None:
    if reading.problem and reading.episodes:
        raise Finding("a rejected span says something")
    for episode in reading.episodes:
        if episode.user != OWNER.user:
            raise Finding(f"the user is {episode.user!r}")
        if not 0 < len(episode.content) <= MOST_CHARACTERS:
            raise Finding(f"the content has {len(episode.content)} characters")
        if BEGIN in episode.content:
            raise Finding("recalled text is learned again")
