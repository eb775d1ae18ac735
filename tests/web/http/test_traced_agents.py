"""Agents send their traces to a real daemon over HTTP, with OpenTelemetry's own exporter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slumberd.rules.settings_schema import ServeSettings
from slumberd.web.http.traces import PATH
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.late_imports import LateModule
from tests.support.model_server import completion, server_in_a_thread
from tests.support.traces import call_of, document_of, messages, result_of, span, text
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from opentelemetry import trace as api
    from opentelemetry.exporter.otlp.proto import http as otlp
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk import resources
    from opentelemetry.sdk import trace as sdk
    from opentelemetry.sdk.trace import export
    from opentelemetry.sdk.trace.export import in_memory_span_exporter as in_memory
else:
    otlp = LateModule("opentelemetry.exporter.otlp.proto.http")
    trace_exporter = LateModule("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    resources = LateModule("opentelemetry.sdk.resources")
    sdk = LateModule("opentelemetry.sdk.trace")
    export = LateModule("opentelemetry.sdk.trace.export")
    in_memory = LateModule("opentelemetry.sdk.trace.export.in_memory_span_exporter")

pytestmark = [pytest.mark.integration, pytest.mark.slow]


JSON = {"content-type": "application/json"}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path) as found:
        yield found


def exporter_of(
    receiver: HttpDaemon, token: str, compression: otlp.Compression
) -> trace_exporter.OTLPSpanExporter:
    headers = {"authorization": f"Bearer {token}"}
    return trace_exporter.OTLPSpanExporter(
        receiver.url + PATH, headers=headers, compression=compression
    )


def said(receiver: HttpDaemon, user: str) -> list[tuple[str, str]]:
    """Return who said what to the agents of a user, oldest first."""
    with receiver.by_socket() as client:
        found = client.get("/v1/episodes", params={"user": user, "limit": 100}).json()
    episodes = reversed(found["episodes"])
    return [(each["metadata"]["role"], each["content"]) for each in episodes]


def run_agent(tracer: api.Tracer) -> None:
    """Trace two turns; the calls of the model have the whole history, the agent its last part."""
    history: list[dict[str, Any]] = [text("system", "Be brief.")]
    for asked_for, answer in [("Tea for me.", "Noted."), ("Yes.", "Noted."), ("Yes.", "Goodbye.")]:
        asked, answered = text("user", asked_for), text("assistant", answer)
        with tracer.start_as_current_span(
            "invoke_agent waiter",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": "waiter",
                "gen_ai.conversation.id": "c1",
                **messages([asked], [answered]),
            },
        ):
            calls = [[*history, asked, call_of("menu"), result_of("x")], [*history, asked]]
            for heard, made in zip(reversed(calls), [call_of("menu"), answered], strict=True):
                with tracer.start_as_current_span("chat m", attributes=messages(heard, [made])):
                    pass
        history += [asked, call_of("menu"), result_of("x"), answered]


TURNS = [
    ("user", "Tea for me."), ("assistant", "Noted."),
    ("user", "Yes."), ("assistant", "Noted."),
    ("user", "Yes."), ("assistant", "Goodbye."),
]  # fmt: skip


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("compression", "batch"),
    [
        pytest.param("Gzip", 1, id="compressed, one at a time"),
        pytest.param("NoCompression", 4, id="a few at a time"),
    ],
)
def test_agent_with_the_exporter_of_opentelemetry_is_remembered(
    receiver: HttpDaemon, batch: int, compression: str
) -> None:
    provider = sdk.TracerProvider()
    exporter = exporter_of(receiver, receiver.tokens["ana"], otlp.Compression[compression])
    provider.add_span_processor(export.BatchSpanProcessor(exporter, max_export_batch_size=batch))

    run_agent(provider.get_tracer("agent"))
    provider.shutdown()

    assert said(receiver, "ana") == TURNS
    assert said(receiver, "bob") == []


@pytest.mark.nightly
def test_spans_of_another_user_are_rejected_and_the_exporter_goes_on(receiver: HttpDaemon) -> None:
    exporter = exporter_of(receiver, receiver.tokens["ana"], otlp.Compression.Gzip)
    kept = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(resource=resources.Resource({"user.id": "bob"}))
    provider.add_span_processor(export.SimpleSpanProcessor(kept))

    run_agent(provider.get_tracer("agent"))
    result = exporter.export(kept.get_finished_spans())

    assert result is export.SpanExportResult.SUCCESS
    assert receiver.daemon.wait_for("traces.taken")["rejected"] == 9
    assert said(receiver, "ana") == said(receiver, "bob") == []


@pytest.mark.nightly
def test_exporter_with_a_wrong_token_fails(receiver: HttpDaemon) -> None:
    kept = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))

    run_agent(provider.get_tracer("agent"))

    exporter = exporter_of(receiver, "slumberd_wrong", otlp.Compression.Gzip)
    result = exporter.export(kept.get_finished_spans())
    assert result is export.SpanExportResult.FAILURE


@pytest.mark.nightly
def test_operator_sends_json_for_the_users_that_the_spans_name(receiver: HttpDaemon) -> None:
    spans = [
        span(
            trace_id=str(n) * 32,
            attributes={"user.id": user, **messages([text("user", f"I am {user}.")])},
        )
        for n, user in enumerate(["ana", "bob"], start=1)
    ]
    content = json.dumps(document_of(spans))

    with receiver.by_socket(**JSON) as client:
        answer = client.post(PATH, content=content)

    assert (answer.status_code, answer.json()) == (200, {})
    assert said(receiver, "ana") == [("user", "I am ana.")]
    assert said(receiver, "bob") == [("user", "I am bob.")]


@pytest.mark.cases(1)
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in parts"])
def test_request_that_is_too_large_is_refused(receiver: HttpDaemon, announced: bool) -> None:
    content = b" " * (ServeSettings().max_body_bytes + 1)
    parts = (content[at : at + 2**16] for at in range(0, len(content), 2**16))

    with receiver.by_socket(**JSON) as client:
        answer = client.post(PATH, content=content if announced else parts)

    assert answer.status_code == 413


INSTRUMENTED = """
import sys
from openai import OpenAI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
OpenAIInstrumentor().instrument(tracer_provider=provider)

client = OpenAI(base_url=sys.argv[1], api_key="k")
history = [{"role": "system", "content": "Be brief."}]
for said in ["Tea for me.", "And milk."]:
    history.append({"role": "user", "content": said})
    answer = client.chat.completions.create(model="m", messages=history).choices[0].message
    history.append({"role": "assistant", "content": answer.content})
provider.shutdown()
"""


def test_program_with_the_instrumentation_of_a_real_client_is_remembered(
    receiver: HttpDaemon,
) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.url + PATH,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{receiver.tokens['ana']}",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
    }
    with server_in_a_thread() as server:
        server.will(completion("Noted."), completion("Noted."))
        done = subprocess.run(
            [sys.executable, "-c", INSTRUMENTED, server.url],
            env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert said(receiver, "ana") == [
        ("user", "Tea for me."), ("assistant", "Noted."),
        ("user", "And milk."), ("assistant", "Noted."),
    ]  # fmt: skip
