"""Read and write the protobuf form of OTLP. Needs the extra ``otlp``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from slumberd.integrations.interchange.spans import (
    DEEPEST,
    LONGEST_NAME,
    MOST_OTHERS,
    Span,
    SpanEvent,
    is_of_calls,
    is_other,
    is_wanted,
    limited,
    name_in_event,
)


def read_request(body: bytes) -> list[Span]:
    """Return the spans of an ``ExportTraceServiceRequest``.

    Raises:
        ValueError: It is malformed, or has too many spans.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(f"the request is no protobuf of OTLP: {error}") from error
    return limited(_spans_of(request))


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        common = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _span(span, common)


def _span(span: trace_pb2.Span, resource: dict[str, Any]) -> Span:
    return Span(
        _id(span.trace_id),
        _id(span.span_id),
        _id(span.parent_span_id),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        resource,
        tuple(map(_event, span.events)),
        tuple(islice(_others(span), MOST_OTHERS)),
    )


def _event(event: trace_pb2.Span.Event) -> SpanEvent:
    is_kept = is_of_calls(event.name)
    return SpanEvent(event.name, _attributes(event.attributes, is_kept=lambda _: is_kept))


def _others(span: trace_pb2.Span) -> Iterator[str]:
    for pair in span.attributes:
        if _holds_texts(pair.value) and is_other(pair.key):
            yield pair.key[:LONGEST_NAME]
    for event in span.events:
        for pair in event.attributes:
            name = name_in_event(event.name, pair.key)
            if name and _holds_texts(pair.value):
                yield name


def _holds_texts(value: AnyValue) -> bool:
    return bool(value.string_value or value.array_value.values or value.kvlist_value.values)


def _id(value: bytes) -> str:
    """Return an id in hexadecimal digits; empty for one of zeros, which OTLP calls invalid."""
    return value.hex() if any(value) else ""


def _attributes(
    pairs: Iterable[KeyValue], is_kept: Callable[[str], bool] = is_wanted
) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if is_kept(pair.key)}


def _value(value: AnyValue, depth: int = 0) -> Any:  # noqa: ANN401 # any JSON
    if depth > DEEPEST:
        raise ValueError(f"an attribute is nested deeper than {DEEPEST} levels")
    match value.WhichOneof("value"):
        case "array_value":
            return [_value(each, depth + 1) for each in value.array_value.values]
        case "kvlist_value":
            pairs = value.kvlist_value.values
            return {pair.key: _value(pair.value, depth + 1) for pair in pairs}
        case None:
            return None
        case kind:
            return getattr(value, kind)


def write_success(rejected: int, message: str) -> bytes:
    """Return an ``ExportTraceServiceResponse``; a complete success has neither of both."""
    if not rejected and not message:
        return ExportTraceServiceResponse().SerializeToString()
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=message)
    return ExportTraceServiceResponse(partial_success=partial).SerializeToString()


def write_failure(message: str) -> bytes:
    """Return a ``google.rpc.Status`` without a code, as OTLP answers a failed request."""
    # No installed package has the message; this one has its text under the same number.
    return ExportTracePartialSuccess(error_message=message).SerializeToString()
