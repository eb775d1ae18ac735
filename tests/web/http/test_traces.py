"""Traces that arrive become episodes of a running daemon, and the answer is as OTLP says."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from slumberd.daemon.interfaces import Served
from slumberd.integrations.interchange.genai_spans import SpanOwner, read_spans
from slumberd.integrations.interchange.spans import Span, SpanEvent, spans_of_document
from slumberd.model.episode import Episode
from slumberd.model.errors import StoreBusyError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.writes.put_once import OncePutter
from slumberd.rules.settings_schema import ServeSettings
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.web.http.traces import PATH, traces_route
from tests.support.daemons_in_loop import memory_in_loop, served_by
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount
from tests.support.traces import (
    Traced,
    document_of,
    messages,
    requests_of,
    span,
    text,
    traced_conversations,
)

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as protobuf

    from slumberd.web.http import otlp_protobuf
else:
    otlp_protobuf = LateModule("slumberd.web.http.otlp_protobuf")
    protobuf = LateModule("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

pytestmark = pytest.mark.integration

ADA = Caller(name="token ada", user="ada", rights=frozenset({Right.READ, Right.WRITE}))
TEA, ANSWER = text("user", "Tea for me."), text("assistant", "Noted.")
MOST_BYTES = ServeSettings().max_body_bytes
CALL = span(attributes={"gen_ai.conversation.id": "c1", **messages([TEA], [ANSWER])})


def as_caller(app: ASGIApp, caller: Caller) -> ASGIApp:
    """Return an app whose requests come from a caller, as the server's middleware says it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = caller
        await app(scope, receive, send)

    return call


@dataclass(frozen=True)
class Receiver:
    """A daemon that takes traces."""

    served: Served
    app: ASGIApp

    @property
    def memory(self) -> EngineMemoryStore:
        assert isinstance(self.served.putter, OncePutter)
        return self.served.putter._memory

    async def post(
        self, content: bytes, caller: Caller = ADA, form: str = "application/json", **headers: str
    ) -> httpx.Response:
        transport = httpx.ASGITransport(as_caller(self.app, caller))
        sent = {"content-type": form, **{k.replace("_", "-"): v for k, v in headers.items()}}
        async with httpx.AsyncClient(transport=transport, base_url="http://slumberd") as client:
            return await client.post(PATH, content=content, headers=sent)

    async def post_spans(self, *spans: Span, caller: Caller = ADA) -> dict[str, Any]:
        answer = await self.post(json.dumps(document_of(spans)).encode(), caller)
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    async def episodes(self, user: str = "ada") -> list[Episode]:
        return await self.memory.recent(user, limit=1_000)


@asynccontextmanager
async def receiving(directory: Path) -> AsyncIterator[Receiver]:
    async with memory_in_loop(directory) as memory:
        served = served_by(memory)
        yield Receiver(served, Starlette(routes=[traces_route(served)]))


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with receiving(tmp_path / "state") as found:
        yield found


async def test_messages_of_a_call_are_episodes(receiver: Receiver) -> None:
    answer = await receiver.post_spans(CALL)

    assert answer == {}
    found = [(each.source_node, each.content, each.session) for each in await receiver.episodes()]
    assert found == [("assistant", "Noted.", "c1"), ("user", "Tea for me.", "c1")]


async def test_request_that_is_sent_again_changes_nothing(receiver: Receiver) -> None:
    await receiver.post_spans(CALL)
    before = await receiver.episodes()

    again = await receiver.post_spans(CALL, CALL)

    assert again == {}
    assert await receiver.episodes() == before


async def test_same_message_in_another_scope_of_the_user_is_not_put_again(
    receiver: Receiver,
) -> None:
    agent = span(span_id="aa", attributes={"gen_ai.agent.id": "desk", **CALL.attributes})

    await receiver.post_spans(CALL)
    answer = await receiver.post_spans(agent)

    assert answer == {}
    assert {each.agent for each in await receiver.episodes()} == {"default"}


async def test_id_that_another_user_has_taken_is_refused(receiver: Receiver) -> None:
    taken = read_spans([CALL], SpanOwner("ada"))[0].episodes[0].id
    request = {"id": taken, "text": "mine", "user": "mallory"}
    await receiver.served.dispatcher.call("remember", request, Caller.here())

    answer = await receiver.post_spans(CALL)

    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    assert [each.content for each in await receiver.episodes()] == ["Noted."]


@pytest.mark.slow
async def test_rejected_spans_are_counted_with_their_reasons_and_others_are_taken(
    receiver: Receiver,
) -> None:
    cut = span(span_id="cc", attributes={"gen_ai.input.messages": "[{"})
    other = span(span_id="dd", attributes={"user.id": "bob", **messages([TEA])})

    answer = await receiver.post_spans(cut, CALL, other)

    assert answer["partialSuccess"]["rejectedSpans"] == "2"
    assert "span cc: " in answer["partialSuccess"]["errorMessage"]
    assert "span dd: it names another user" in answer["partialSuccess"]["errorMessage"]
    assert len(await receiver.episodes()) == 2
    assert await receiver.episodes("bob") == []


async def test_long_list_of_reasons_is_cut_and_says_so(receiver: Receiver) -> None:
    cut = [span(attributes={"gen_ai.input.messages": "["}) for _ in range(8)]

    answer = await receiver.post_spans(*cut)

    assert answer["partialSuccess"]["rejectedSpans"] == "8"
    assert "3 more spans were rejected" in answer["partialSuccess"]["errorMessage"]


async def test_message_that_the_store_refuses_rejects_its_span_only(receiver: Receiver) -> None:
    bad = span(span_id="bb", attributes={"gen_ai.conversation.id": "a\nb", **messages([TEA])})

    answer = await receiver.post_spans(bad, span(trace_id="f" * 32, attributes=messages([TEA])))

    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    assert "span bb: " in answer["partialSuccess"]["errorMessage"]
    assert len(await receiver.episodes()) == 1


@pytest.mark.slow
async def test_erased_messages_do_not_come_back(receiver: Receiver) -> None:
    await receiver.post_spans(CALL)
    dispatcher, caller = receiver.served.dispatcher, Caller.here()
    # Without the hash of a plan: a rule may fire after the plan, and so change it.
    await dispatcher.call("forget", {"user": "ada"}, caller)

    again = await receiver.post_spans(CALL)
    history = [TEA, ANSWER, text("user", "And milk.")]
    late = receiver.served.clock.now().timestamp() + 1
    later = span(trace_id="e" * 32, start=int(late * 10**9), attributes=messages(history))
    await receiver.post_spans(later)

    assert again["partialSuccess"]["rejectedSpans"] == "1"
    assert [each.content for each in await receiver.episodes()] == ["And milk."]


async def test_program_that_records_no_messages_is_told_so(receiver: Receiver) -> None:
    answer = await receiver.post_spans(span(attributes={"gen_ai.operation.name": "chat"}))

    assert answer["partialSuccess"]["rejectedSpans"] == "0"
    assert "CAPTURE_MESSAGE_CONTENT" in answer["partialSuccess"]["errorMessage"]


async def test_operator_takes_the_user_of_the_span(receiver: Receiver) -> None:
    named = span(attributes={"user.id": "bob", **messages([TEA])})

    await receiver.post_spans(named, caller=Caller.here())

    assert len(await receiver.episodes("bob")) == 1
    assert await receiver.episodes() == []


async def test_caller_without_the_right_to_write_is_refused(receiver: Receiver) -> None:
    reader = Caller(name="token r", user="ada", rights=frozenset({Right.READ}))

    answer = await receiver.post(json.dumps(document_of([CALL])).encode(), reader)

    assert answer.status_code == 403
    assert "no right" in answer.json()["message"]
    assert await receiver.episodes() == []


@pytest.mark.parametrize(
    ("content", "headers", "status", "problem"),
    [
        pytest.param(b"{", {}, 400, "cannot be read", id="cut JSON"),
        pytest.param(b"[]", {}, 400, "holds no object", id="array"),
        pytest.param(b"{}", {"content_encoding": "gzip"}, 400, "damaged", id="no gzip"),
        pytest.param(
            gzip.compress(b"{}")[:-4], {"content_encoding": "gzip"}, 400, "ends early", id="cut"
        ),
        pytest.param(
            gzip.compress(b"{}") * 2, {"content_encoding": "gzip"}, 400, "goes on", id="two in one"
        ),
        pytest.param(b"{}", {"content_encoding": "br"}, 415, "use gzip", id="compression"),
        pytest.param(b"{}", {"form": "text/plain"}, 415, "neither", id="form"),
        pytest.param(
            gzip.compress(b" " * (MOST_BYTES + 1)), {"content_encoding": "gzip"}, 413, "fewer",
            id="bomb",
        ),
    ],
)  # fmt: skip
async def test_request_that_cannot_be_read_is_refused_with_a_reason(
    receiver: Receiver, content: bytes, headers: dict[str, Any], status: int, problem: str
) -> None:
    answer = await receiver.post(content, **headers)

    assert answer.status_code == status
    assert problem in answer.json()["message"]
    assert "retry-after" not in answer.headers


async def test_compressed_request_is_read(receiver: Receiver) -> None:
    content = gzip.compress(json.dumps(document_of([CALL])).encode())

    answer = await receiver.post(
        content, form="application/json; charset=utf-8", content_encoding="gzip"
    )

    assert answer.json() == {}
    assert len(await receiver.episodes()) == 2


def protobuf_of(*spans: Span) -> bytes:
    """Return spans as protobuf, from their JSON."""
    request = protobuf.ExportTraceServiceRequest()
    for one in document_of(spans)["resourceSpans"]:
        resource = request.resource_spans.add()
        _fill(resource.resource.attributes, one["resource"]["attributes"])
        [written] = one["scopeSpans"][0]["spans"]
        made = resource.scope_spans.add().spans.add(
            trace_id=bytes.fromhex(written["traceId"]),
            span_id=bytes.fromhex(written["spanId"]),
            parent_span_id=bytes.fromhex(written["parentSpanId"]),
            start_time_unix_nano=int(written["startTimeUnixNano"]),
            end_time_unix_nano=int(written["endTimeUnixNano"]),
        )
        _fill(made.attributes, written["attributes"])
        for event in written["events"]:
            _fill(made.events.add(name=event["name"]).attributes, event["attributes"])
    return request.SerializeToString()


def _fill(pairs: Any, written: Sequence[dict[str, Any]]) -> None:
    for pair in written:
        _fill_value(pairs.add(key=pair["key"]).value, pair["value"])


def _fill_value(value: Any, written: dict[str, Any]) -> None:
    for kind, found in written.items():
        match kind:
            case "stringValue":
                value.string_value = found
            case "boolValue":
                value.bool_value = found
            case "intValue":
                value.int_value = int(found)
            case "doubleValue":
                value.double_value = found
            case "arrayValue":
                for each in found["values"]:
                    _fill_value(value.array_value.values.add(), each)
            case _:
                _fill(value.kvlist_value.values, found["values"])


async def test_protobuf_says_the_same_as_json(receiver: Receiver) -> None:
    values = {"gen_ai.input.messages": [TEA], "gen_ai.output.messages": [ANSWER], "user.id": "ada"}
    by_value = span(trace_id="d" * 32, attributes=values)

    answer = await receiver.post(protobuf_of(CALL, by_value), form="application/x-protobuf")
    first = await receiver.episodes()
    again = await receiver.post_spans(CALL, by_value)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert (
        protobuf.ExportTraceServiceResponse.FromString(answer.content)
        == protobuf.ExportTraceServiceResponse()
    )
    assert again == {}
    assert len(first) == 4
    assert await receiver.episodes() == first


def test_spans_in_protobuf_are_those_in_json() -> None:
    spans = [
        CALL,
        span(
            parent_id="aa" * 8,
            attributes={"gen_ai.prompt.0.content": "x", "acme.prompt": ["x"], "acme.input": [],
                        "llm.text.output": {"a": 1}, "acme.output": "", "acme.message": 7},
            resource={"user.id": "bob", "acme.prompt": "x"},
            events=(SpanEvent("gen_ai.choice", {"message": "x"}),
                    SpanEvent("other", {"message": "x", "acme.output": 7})),
        ),
    ]  # fmt: skip

    found = spans_of_document(document_of(spans))

    assert found[1].others == ("acme.prompt", "llm.text.output", "other.message")
    assert [event.attributes for event in found[1].events] == [{"message": "x"}, {}]
    assert otlp_protobuf.read_request(protobuf_of(*spans)) == found


async def test_answer_to_protobuf_is_protobuf(receiver: Receiver) -> None:
    bad = protobuf_of(span(attributes={"gen_ai.input.messages": "["}))

    partial = await receiver.post(bad, form="application/x-protobuf")
    malformed = await receiver.post(b"\xff\xff", form="application/x-protobuf")

    found = protobuf.ExportTraceServiceResponse.FromString(partial.content).partial_success
    assert found.rejected_spans == 1
    assert "holds no JSON" in found.error_message
    assert malformed.status_code == 400
    # A status of gRPC has its text under the number 2, as the message of a partial success.
    status = protobuf.ExportTracePartialSuccess.FromString(malformed.content)
    assert "no protobuf of OTLP" in status.error_message


async def test_protobuf_without_the_extra_is_refused_with_the_remedy(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "slumberd.web.http.otlp_protobuf", None)

    answer = await receiver.post(protobuf_of(CALL), form="application/x-protobuf")

    assert answer.status_code == 415
    assert "slumberd[otlp]" in answer.json()["message"]


async def test_value_in_protobuf_that_is_nested_too_deep_is_refused(receiver: Receiver) -> None:
    value: Any = "x"
    for _ in range(40):
        value = [value]

    answer = await receiver.post(
        protobuf_of(span(attributes={"user.id": value})), form="application/x-protobuf"
    )

    assert answer.status_code == 400


async def test_store_that_is_busy_is_an_error_to_try_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreBusyError("memory.db", 1.0)

    monkeypatch.setattr(receiver.memory, "put_many", fail)

    answer = await receiver.post(json.dumps(document_of([CALL])).encode())

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"


async def test_secrets_in_messages_are_masked_before_their_ids_are_made(
    receiver: Receiver,
) -> None:
    secret = "hunter" + "22hunter"
    tool = text("tool", f"DB_PASSWORD={secret}")
    told = [tool, text("user", f"the password is {secret}")]
    answer = text("assistant", f"export DB_PASSWORD={secret}")
    call = span(attributes={"user.id": secret, **messages(told, [answer])})
    masked = span(
        attributes={
            "user.id": secret,
            **messages(
                [text("user", "the password is [masked password]")],
                [text("assistant", "export DB_PASSWORD=[masked contextual_secret]")],
            ),
        }
    )
    operator = Caller(name="token op", rights=frozenset({Right.READ, Right.WRITE}))

    with structlog.testing.capture_logs() as lines:
        assert await receiver.post_spans(call, caller=operator) == {}

    found = await receiver.episodes(secret)
    [reading] = read_spans([masked], SpanOwner())
    assert [one.id for one in reversed(found)] == [one.id for one in reading.episodes]
    assert secret not in str([(one.content, one.metadata) for one in found])
    [line] = [line for line in lines if line["event"] == "secrets.masked"]
    assert line["masked"]["password"] == 1


async def test_turn_that_a_person_asks_to_forget_is_left_out_with_its_answer(
    receiver: Receiver,
) -> None:
    asked = [text("user", "Tea for me. Don't remember this.")]

    assert await receiver.post_spans(span(attributes=messages(asked, [ANSWER]))) == {}

    assert await receiver.episodes() == []


async def test_log_line_counts_and_holds_no_content(receiver: Receiver) -> None:
    with structlog.testing.capture_logs() as lines:
        await receiver.post_spans(CALL)
        await receiver.post_spans(CALL)

    [line] = [each for each in lines if each["event"] == "traces.taken"]
    assert line == {
        "event": "traces.taken", "log_level": "info", "by": "token ada",
        "spans": 1, "new": 2, "known": 0, "erased": 0, "left_out": 0, "rejected": 0,
    }  # fmt: skip


FORMS = [
    {"gen_ai.input.messages": '[{"role": "user", "content": "Tea."}]'},
    {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Tea."},
    {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Tea."},
    {"ai.prompt.messages": '[{"role": "user", "content": [{"type": "text", "text": "Tea."}]}]'},
    {"openinference.span.kind": "AGENT", "input.value": "Tea."},
]


@pytest.mark.parametrize("attributes", FORMS, ids=lambda form: next(reversed(form)))
async def test_messages_of_every_convention_are_taken(
    receiver: Receiver, attributes: dict[str, Any]
) -> None:
    assert await receiver.post_spans(span(attributes=attributes)) == {}

    assert [each.content for each in await receiver.episodes()] == ["Tea."]


async def test_attribute_that_is_not_taken_is_named(receiver: Receiver) -> None:
    other = span(span_id="dd", attributes={"acme.llm.conversation": "Tea."})

    with structlog.testing.capture_logs() as lines:
        answer = await receiver.post_spans(CALL, other)

    told = "not taken, since their form is unknown: attributes 'acme.llm.conversation' (1)"
    assert answer == {"partialSuccess": {"rejectedSpans": "0", "errorMessage": told}}
    [line] = [each for each in lines if each["event"] == "traces.unread"]
    assert line == {
        "event": "traces.unread", "log_level": "warning", "by": "token ada",
        "attributes": ["acme.llm.conversation"],
    }  # fmt: skip


async def test_long_list_of_attributes_is_cut_and_says_so(receiver: Receiver) -> None:
    others = [span(attributes={f"acme.llm.{n}.prompt": "Tea."}) for n in range(12)]

    answer = await receiver.post_spans(*others)

    assert answer["partialSuccess"]["errorMessage"].endswith("'acme.llm.9.prompt' (1) and 2 others")


async def test_requests_at_the_same_time_put_each_message_once(receiver: Receiver) -> None:
    spans = [CALL._replace(span_id=f"{n:02x}", start=CALL.start + n) for n in range(1, 10)]

    answers = await asyncio.gather(*map(receiver.post_spans, spans))

    assert answers == [{}] * 9
    assert len(await receiver.episodes()) == 2


@pytest.mark.sampled
@settings(max_examples=amount(8, full=100))
@given(traced=traced_conversations(), data=st.data())
def test_any_split_order_and_repetition_of_spans_stores_every_message_once(
    traced: Traced, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    requests = data.draw(requests_of(traced.spans))

    async def run() -> Counter[tuple[str, str, str]]:
        async with receiving(tmp_path_factory.mktemp("state") / "state") as receiver:
            for request in requests:
                assert await receiver.post_spans(*request) == {}
            return Counter(
                (each.metadata["otlp"]["trace_id"], each.source_node, each.content)
                for each in await receiver.episodes()
            )

    assert asyncio.run(run()) == traced.said
