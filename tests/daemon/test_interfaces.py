"""A program that uses OpenTelemetry sees the operations on its memory; any other loads none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAM = """
import asyncio, sys
from slumberd import Memory

async def main():
    async with Memory.open(sys.argv[1], user="ada") as memory, \\
            Memory.open("unix:" + sys.argv[1], user="ada") as by_socket:
        await memory.remember("Tea for me.", triples=[("ada", "prefers", "tea")], id="e1")
        await memory.wait_for("e1")
        await memory.recall("tea")
        await by_socket.correct(fact="e1", object="coffee", reason="she said so")
        plan = await memory.forget()
        await memory.forget(plan=plan.plan)

asyncio.run(main())
"""
TRACING = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
write = lambda span: f"{span.name} {dict(span.attributes)}\\n"
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=write)))
trace.set_tracer_provider(provider)
"""
LOADED = "print([name for name in sys.modules if name.startswith('opentelemetry')])"


def run(program: str, directory: Path) -> list[str]:
    command = [sys.executable, "-c", program, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.nightly
def test_program_with_a_tracer_provider_sees_each_operation(tmp_path: Path) -> None:
    lines = run(TRACING + PROGRAM, tmp_path / "memory")

    assert [line.partition(" ")[0] for line in lines] == [
        "upsert_memory", "search_memory", "update_memory", "delete_memory",
    ]  # fmt: skip
    assert "'gen_ai.memory.record.id': 'e1'" in lines[0]
    assert "Tea" not in "".join(lines)


@pytest.mark.nightly
def test_program_without_opentelemetry_does_not_load_it(tmp_path: Path) -> None:
    assert run(PROGRAM + LOADED, tmp_path / "memory") == ["[]"]
