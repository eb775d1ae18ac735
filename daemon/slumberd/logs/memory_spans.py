"""Emit a span for each operation on memory, as OpenTelemetry's conventions for GenAI say.

The names are those of the span ``gen_ai.memory.client``, version 1.42.0. No span holds content, a
question, a user or an agent. The module needs ``opentelemetry-api``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider, get_tracer

CONVENTIONS = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
"""The version of the conventions of the spans."""

_SCOPE = "slumberd"
_OPERATION = "gen_ai.operation.name"
_RECORD_ID = "gen_ai.memory.record.id"
_RECORD_COUNT = "gen_ai.memory.record.count"
_ERROR_TYPE = "error.type"

Answer = Mapping[str, Any]


class _Records(NamedTuple):
    """The records of memory that an operation concerns.

    Attributes:
        total: How many; None when the answer does not say it.
        id: The only one; None for several.
    """

    total: int | None = None
    id: str | None = None


class MemorySpans:
    """Makes a span of each operation on memory; it is a child of the caller's span.

    Args:
        provider: Where the spans go; by default the provider of the program, once it has one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer(_SCOPE, tracer_provider=provider, schema_url=CONVENTIONS)

    @contextmanager
    def observe(self, name: str, request: Mapping[str, Any]) -> Iterator[Callable[[Answer], None]]:
        """Enclose the call of an operation in a span; other operations and dry runs have none."""
        operation = _operation_of(name, request)
        if operation is None:
            yield _ignore
            return
        with self._tracer.start_as_current_span(
            operation,
            kind=SpanKind.INTERNAL,
            attributes={_OPERATION: operation},
            # The message of an error may name a user.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield lambda answer: _describe(span, _records_in(name, answer))
            except BaseException as error:
                span.set_attribute(_ERROR_TYPE, type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


_NAMES = ("id", "key", "idempotency_key")


def _ignore(_: Answer) -> None:
    pass


def _operation_of(name: str, request: Mapping[str, Any]) -> str | None:
    """Return the operation of the conventions that a request is; None for no such operation."""
    if request.get("dry_run") or (name == "transcript" and not request.get("turn")):
        return None
    match name:
        case "remember":
            # With a name, the caller leaves open whether the record is new.
            named = any(request.get(name) is not None for name in _NAMES)
            return "upsert_memory" if named else "create_memory"
        case "put_many" | "transcript":
            return "upsert_memory"
        case "recall" | "context":
            return "search_memory"
        case "correct" if request.get("retract"):
            return "delete_memory"
        case "correct":
            return "upsert_memory" if request.get("fact") is None else "update_memory"
        case "forget":
            return "delete_memory"
        case _:
            return None


def _records_in(name: str, answer: Answer) -> _Records:
    match name:
        case "remember" | "transcript":
            return _Records(1, answer["id"])
        case "put_many":
            return _Records(len(answer["episodes"]))
        case "recall":
            return _Records(len(answer["hits"]))
        case "context":
            return _Records(len(answer["items"]))
        case "correct":
            ids = answer["fact_ids"]
            return _Records(len(ids), ids[0] if len(ids) == 1 else None)
        case _:
            return _Records()


def _describe(span: Span, records: _Records) -> None:
    if records.total is not None:
        span.set_attribute(_RECORD_COUNT, records.total)
    if records.id is not None:
        span.set_attribute(_RECORD_ID, records.id)
