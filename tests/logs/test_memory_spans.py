"""Operations on memory become spans of the conventions, without any content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from slumberd.logs.memory_spans import CONVENTIONS, MemorySpans
from slumberd.model.errors import NoInputError, UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Dispatcher, observe_calls
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    from opentelemetry.sdk import trace as sdk
    from opentelemetry.sdk.trace import export
    from opentelemetry.sdk.trace.export import in_memory_span_exporter as in_memory
else:
    sdk = LateModule("opentelemetry.sdk.trace")
    export = LateModule("opentelemetry.sdk.trace.export")
    in_memory = LateModule("opentelemetry.sdk.trace.export.in_memory_span_exporter")

pytestmark = pytest.mark.unit

SECRET = "ada drinks tea"  # noqa: S105 # content that no span may hold


class Traced:
    """A dispatcher with one operation, whose answer or error is given."""

    def __init__(self, name: str, outcome: Answer | Exception) -> None:
        self._exporter = in_memory.InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(export.SimpleSpanProcessor(self._exporter))
        self._name = name

        async def handle(_: dict[str, Any], __: Caller) -> Answer:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        handlers = observe_calls({name: handle}, MemorySpans(self.provider))
        self._dispatcher = Dispatcher(handlers)

    async def call(self, request: Mapping[str, Any]) -> Answer:
        return await self._dispatcher.call(self._name, dict(request), Caller.here())

    @property
    def spans(self) -> tuple[sdk.ReadableSpan, ...]:
        return tuple(self._exporter.get_finished_spans())


ONE = {"fact_ids": ["f1"], "firing_id": "x", "counts": {}}
TWO = {**ONE, "fact_ids": ["f1", "f2"]}


@pytest.mark.parametrize(
    ("name", "request_", "answer", "operation", "count", "id"),
    [
        pytest.param(
            "remember", {"text": SECRET}, {"id": "e1", "state": "new"}, "create_memory", 1, "e1",
            id="remember",
        ),
        pytest.param(
            "remember", {"text": SECRET, "id": "e1"}, {"id": "e1", "state": "changed"},
            "upsert_memory", 1, "e1", id="remember with an id",
        ),
        pytest.param(
            "transcript", {"turn": {"text": SECRET, "id": "e1"}}, {"id": "e1", "state": "new"},
            "upsert_memory", 1, "e1", id="turn of a transcript",
        ),
        pytest.param(
            "remember", {"text": SECRET, "key": "k"}, {"id": "e1", "state": "changed"},
            "upsert_memory", 1, "e1", id="remember with a key",
        ),
        pytest.param(
            "put_many", {"episodes": [{"text": SECRET}]}, {"episodes": [{}, {}]},
            "upsert_memory", 2, None, id="many",
        ),
        pytest.param(
            "recall", {"query": SECRET}, {"hits": [SECRET, SECRET]}, "search_memory", 2, None,
            id="recall",
        ),
        pytest.param(
            "context", {"question": SECRET}, {"text": SECRET, "items": [SECRET]}, "search_memory",
            1, None, id="context",
        ),
        pytest.param(
            "correct", {"fact": "f1", "object": SECRET, "reason": SECRET}, ONE, "update_memory", 1,
            "f1", id="correct by id",
        ),
        pytest.param(
            "correct", {"subject": SECRET, "predicate": "p", "object": SECRET}, ONE,
            "upsert_memory", 1, "f1", id="correct by subject and predicate",
        ),
        pytest.param(
            "correct", {"subject": SECRET, "predicate": "p", "retract": True}, TWO,
            "delete_memory", 2, None, id="retract",
        ),
        pytest.param(
            "forget", {"user": SECRET, "plan": "p"}, {"certificate": SECRET}, "delete_memory",
            None, None, id="forget",
        ),
    ],
)  # fmt: skip
async def test_operation_becomes_a_span_without_content(
    name: str,
    request_: dict[str, Any],
    answer: Answer,
    operation: str,
    count: int | None,
    id: str | None,
) -> None:
    traced = Traced(name, answer)

    assert await traced.call(request_) == answer

    [span] = traced.spans
    expected = {
        "gen_ai.operation.name": operation,
        "gen_ai.memory.record.count": count,
        "gen_ai.memory.record.id": id,
    }
    assert dict(span.attributes or {}) == {k: v for k, v in expected.items() if v is not None}
    assert (span.name, span.kind) == (operation, SpanKind.INTERNAL)
    assert span.status.status_code is StatusCode.UNSET
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.schema_url == CONVENTIONS
    assert SECRET not in span.to_json()


async def test_error_is_named_by_its_class_only() -> None:
    traced = Traced("recall", NoInputError("f1", SECRET))

    with pytest.raises(NoInputError):
        await traced.call({"query": SECRET})

    [span] = traced.spans
    assert (span.attributes or {})["error.type"] == "NoInputError"
    assert span.status.status_code is StatusCode.ERROR
    assert span.events == ()
    assert SECRET not in span.to_json()


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        pytest.param("forget", {"dry_run": True}, id="a plan to erase"),
        pytest.param("correct", {"fact": "f1", "dry_run": True}, id="a correction that is tried"),
        pytest.param("status", {}, id="an operation on no memory"),
    ],
)
async def test_call_that_changes_and_finds_nothing_has_no_span(
    name: str, request_: dict[str, Any]
) -> None:
    traced = Traced(name, {"fact_ids": []})

    await traced.call(request_)

    assert traced.spans == ()


async def test_span_is_a_child_of_the_callers_span() -> None:
    traced = Traced("recall", {"hits": []})

    with traced.provider.get_tracer("host").start_as_current_span("turn") as turn:
        await traced.call({"query": "?"})

    child = next(span for span in traced.spans if span.name == "search_memory")
    assert child.parent is not None
    assert child.parent.span_id == turn.get_span_context().span_id


async def test_unknown_operation_has_no_span() -> None:
    traced = Traced("recall", {"hits": []})

    with pytest.raises(UsageError):
        await Dispatcher({}).call("recall", {}, Caller.here())

    assert traced.spans == ()
