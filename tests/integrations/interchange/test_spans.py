"""The JSON form of OTLP is read as spans, and anything else is refused with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.integrations.interchange.spans import (
    DEEPEST,
    LONGEST_NAME,
    MOST_OTHERS,
    MOST_SPANS,
    Span,
    SpanEvent,
    spans_of_document,
)
from tests.support.sample_sizes import amount
from tests.support.traces import NOON, SECOND, document_of, span

pytestmark = pytest.mark.unit


def with_value(value: Any) -> dict[str, Any]:
    pair = {"key": "user.id", "value": value}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [pair]}]}]}]}


def test_spans_come_back_as_they_were_written() -> None:
    spans = [
        span(
            attributes={"gen_ai.input.messages": [{"role": "user", "parts": [1, 2.5, True]}]},
            resource={"user.id": "ada"},
            events=(SpanEvent("gen_ai.choice", {"session.id": "s"}),),
        ),
        span(span_id="cc", parent_id="bb"),
    ]

    assert spans_of_document(document_of(spans)) == spans


def test_attributes_that_nobody_reads_are_left_out() -> None:
    [found] = spans_of_document(document_of([span(attributes={"db.query.text": "SELECT 1"})]))

    assert found.attributes == {}


MAY_HOLD = (
    "acme.prompt", "traceloop.entity.input", "langfuse.observation.output", "mlflow.spanInputs",
    "pydantic_ai.all_messages", "lk.user_transcript", "gen_ai.response.text", "events",
)  # fmt: skip
HOLD_NOTHING = (
    "gen_ai.response.id", "gen_ai.response.model", "gen_ai.output.type", "input.mime_type",
    "gen_ai.response.finish_reasons", "gen_ai.system_instructions", "llm.prompt_template.template",
    "ai.response.providerMetadata", "http.request.body.content", "db.query.text",
    "messaging.message.id", "exception.message", "gen_ai.tool.call.arguments", "server.address",
)  # fmt: skip


@pytest.mark.parametrize("name", MAY_HOLD)
def test_name_of_an_attribute_that_may_hold_messages_is_kept(name: str) -> None:
    for value in ("x", ["x"], {"a": "x"}):
        [found] = spans_of_document(document_of([span(attributes={name: value})]))

        assert (found.attributes, found.others) == ({}, (name,))


@pytest.mark.parametrize("name", HOLD_NOTHING)
def test_name_of_another_attribute_is_left_out(name: str) -> None:
    [found] = spans_of_document(document_of([span(attributes={name: "x"})]))

    assert found.others == ()


@pytest.mark.parametrize(
    ("event", "attributes", "names"),
    [
        ("llm.content.prompt", {"llm.prompts": "x", "a": "x"}, ("llm.content.prompt.llm.prompts",)),
        ("said", {"gen_ai.input.messages": "x"}, ("said.gen_ai.input.messages",)),
        ("gen_ai.user.message", {"body": "x"}, ("gen_ai.user.message.body",)),
        ("gen_ai.user.message", {"content": "x", "role": "x", "gen_ai.input.messages": "x"}, ()),
        ("exception", {"exception.message": "x"}, ()),
        ("retry", {"attempt": "x"}, ()),
    ],
)
def test_attributes_of_events_that_may_hold_messages_are_kept_by_name(
    event: str, attributes: dict[str, Any], names: tuple[str, ...]
) -> None:
    [found] = spans_of_document(document_of([span(events=(SpanEvent(event, attributes),))]))

    assert found.others == names


def test_numbers_and_empty_values_hold_no_messages() -> None:
    values = [1, 2.5, True, "", [], {}]

    for value in values:
        [found] = spans_of_document(document_of([span(attributes={"acme.prompt": value})]))
        assert found.others == ()


def test_names_are_cut_and_only_the_first_are_kept() -> None:
    attributes = {f"acme.{'x' * 200}.{n}.prompt": "x" for n in range(99)} | {
        f"acme.{n}.prompt{'x' * 200}.text": "x" for n in range(99)
    }

    [found] = spans_of_document(document_of([span(attributes=attributes)]))

    assert len(found.others) == MOST_OTHERS
    assert {len(name) for name in found.others} == {LONGEST_NAME}


def test_unknown_keys_and_missing_ones_are_no_mistake() -> None:
    document = {"resourceSpans": [{"x": 1, "scopeSpans": [{"spans": [{"traceState": "a=b"}]}]}]}

    assert spans_of_document(document) == [Span("", "")]
    assert spans_of_document({}) == []


def test_ids_are_read_in_lower_case_and_ids_of_zeros_are_none() -> None:
    spans = [{"traceId": "AB", "spanId": "0000000000000000"}]

    [found] = spans_of_document({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})

    assert (found.trace_id, found.span_id) == ("ab", "")


@pytest.mark.parametrize("start", [NOON, str(NOON)], ids=["number", "text"])
def test_instants_are_numbers_or_texts(start: object) -> None:
    spans = [{"startTimeUnixNano": start, "endTimeUnixNano": str(NOON + SECOND)}]

    [found] = spans_of_document({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})

    assert (found.start, found.end) == (NOON, NOON + SECOND)


def test_kind_of_value_of_a_later_version_is_null() -> None:
    [found] = spans_of_document(with_value({"newValue": 1}))

    assert found.attributes == {"user.id": None}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param([], "the request holds no object", id="array"),
        pytest.param({"resourceSpans": 1}, "'resourceSpans' holds no array", id="number"),
        pytest.param({"resource_spans": [{}]}, "'resourceSpans' is missing; there is 'resource_",
                     id="other spelling"),
        pytest.param({"resourceSpans": [{"instrumentationLibrarySpans": [{}]}]},
                     "'scopeSpans' is missing; there is 'instrumentationLibrarySpans'", id="older"),
        pytest.param({"resourceSpans": [{"scopeSpans": [{"span": [{}]}]}]},
                     "'spans' is missing; there is 'span'", id="other key"),
        pytest.param({"resourceSpans": [1]}, "entry of key 'resourceSpans'", id="entry"),
        pytest.param(with_value({"intValue": "seven"}), "holds no integer", id="integer"),
        pytest.param(with_value({"intValue": True}), "holds no integer", id="boolean"),
        pytest.param(with_value({"arrayValue": 1}), "holds no object", id="array value"),
        pytest.param(with_value("x"), "holds no object", id="value"),
        pytest.param(
            {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]},
            "no hexadecimal digits", id="trace id",
        ),
        pytest.param(
            {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": str(2**64)}]}]}]},
            "holds no instant", id="instant",
        ),
    ],
)  # fmt: skip
def test_other_form_is_refused_with_a_reason(document: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        spans_of_document(document)


def test_value_that_is_nested_too_deep_is_refused() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(DEEPEST + 1):
        value = {"arrayValue": {"values": [value]}}

    with pytest.raises(ValueError, match="deeper"):
        spans_of_document(with_value(value))


@pytest.mark.slow
def test_request_with_too_many_spans_is_refused() -> None:
    spans: list[dict[str, Any]] = [{} for _ in range(MOST_SPANS + 1)]

    with pytest.raises(ValueError, match="more than 10,000 spans"):
        spans_of_document({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    assert len(spans_of_document({"resourceSpans": [{"scopeSpans": [{"spans": spans[1:]}]}]}))


_KEYS = st.sampled_from([
    "resourceSpans", "resource", "scopeSpans", "spans", "attributes", "events", "key", "value",
    "traceId", "startTimeUnixNano", "stringValue", "arrayValue", "kvlistValue", "values",
])  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "user.id", "0a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(200, full=5_000))
@given(_JSON)
def test_no_document_raises_anything_but_a_reason(document: Any) -> None:
    with suppress(ValueError):
        assert all(isinstance(each, Span) for each in spans_of_document(document))
