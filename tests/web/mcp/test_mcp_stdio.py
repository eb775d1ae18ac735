"""`slumberd mcp`: its process, with a daemon and without one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd import Memory
from slumberd.cli.own_installation import install_command
from slumberd.daemon.control_socket import SOCKET
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.daemon.tenure import StateLock
from tests.support.catalogue_check import problems_of_lines
from tests.support.cli_runner import called
from tests.support.daemons import PATIENCE_SECONDS, Home
from tests.support.mcp_clients import answer, names, refusal, resource, stdio_client
from tests.web.mcp.test_mcp import MOVE, TOOLS

pytestmark = pytest.mark.integration

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LINES = (
    INITIALIZE,
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    make_state_directory(tmp_path / "memory")
    return tmp_path / "memory"


@pytest.mark.path
async def test_without_a_daemon_the_command_is_the_daemon(state: Path) -> None:
    async with stdio_client(state, "ann") as client:
        remembered = await answer(
            client, "remember", text="I moved to Lisbon", id="e1", triples=[MOVE]
        )
        async with Memory.open(f"unix:{state}", user="ann", agent="desk") as memory:
            outcome = await memory.wait_for("e1")
        profile = await resource(client, "slumberd://profile")

    learned = ("new", "learned", "learned: ann lives_in Lisbon")
    assert tuple(remembered[name] for name in ("state", "became", "sentence")) == learned
    assert outcome.settled
    assert "ann lives in Lisbon" in profile
    assert not (state / SOCKET).exists()


@pytest.mark.slow
async def test_second_command_uses_the_daemon_of_the_first(state: Path) -> None:
    async with stdio_client(state, "ann") as ann, stdio_client(state, "bob") as bob:
        await answer(ann, "remember", text="Tea for Ann", id="e1")
        await answer(bob, "remember", text="Tea for Bob", id="e2")
        found = [
            [hit["id"] for hit in (await answer(one, "recall", query="tea"))["hits"]]
            for one in (ann, bob)
        ]

    assert found == [["e1"], ["e2"]]


@pytest.mark.nightly
async def test_command_says_that_its_daemon_has_ended(state: Path) -> None:
    async with AsyncExitStack() as open_client:
        async with Memory.open(state, user="host"):
            client = await open_client.enter_async_context(stdio_client(state, "ann"))
            await answer(client, "remember", text="x")
        message = await refusal(client, "remember", text="x")

    assert message == f"no slumberd runs on {str(state)!r}"


@pytest.mark.nightly
async def test_session_of_the_command_is_that_of_new_episodes(state: Path) -> None:
    async with stdio_client(state, "ann", "--session", "s7") as client:
        await answer(client, "remember", text="Tea", id="e1")
        await answer(client, "remember", text="Tea", id="e2", session="s8")
        found = {
            hit["id"]: hit["session"]
            for hit in (await answer(client, "recall", query="tea"))["hits"]
        }

    assert found == {"e1": "s7", "e2": "s8"}


@pytest.mark.nightly
async def test_administrative_tools_need_the_option(state: Path) -> None:
    async with stdio_client(state, "ann", "--admin") as client:
        offered = names((await client.list_tools()).tools)
        fired = await answer(client, "fire", dry_run=True)

    assert offered[: len(TOOLS)] == TOOLS
    assert offered[len(TOOLS) :] == ["status", "held", "fire", "approve", "reject", "undo"]
    assert [report["rule_id"] for report in fired["reports"]] == ["repeats", "said", "stated"]


def run(state: Path, sent: bytes, *, results: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run the command on some input, which ends when so many results have come.

    A request is cancelled when the input ends before its answer.
    """
    words = ["-m", "slumberd", "mcp", "--user", "ann", "--config", str(state / "slumberd.yaml")]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *words], stdin=pipe, stdout=pipe, stderr=pipe
    ) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(sent)
        command.stdin.flush()
        lines: list[bytes] = []
        while sum(b'"result"' in line for line in lines) < results:
            lines.append(command.stdout.readline())
            assert lines[-1], "the command has ended early"
        rest, log = command.communicate(timeout=PATIENCE_SECONDS)
    return subprocess.CompletedProcess(words, command.returncode, b"".join([*lines, rest]), log)


@pytest.mark.nightly
def test_standard_output_holds_messages_and_standard_error_the_log(state: Path) -> None:
    sent = b"".join(orjson.dumps(line) + b"\n" for line in LINES)

    ended = run(state, b"no json\n" + sent, results=2)

    assert ended.returncode == 0, ended.stderr
    answers: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one.get("id") for one in answers if "result" in one] == [1, 2]
    assert names_of(answers[1]) == TOOLS
    log = ended.stderr.splitlines()
    assert b'"daemon.stopped"' in log[-1]
    assert not problems_of_lines(log)


NO_JSON = b"no json", b'{"jsonrpc": "2.0", "id": 7', b'["\\ud800"]', b"\xff\xfe", b"", b"[" * 9_999
NO_MESSAGES = b'{"id": 7}', b"[]", b"7", b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}'


def test_each_line_that_is_no_message_is_answered_without_an_id(state: Path) -> None:
    first, *others = map(orjson.dumps, LINES)
    sent = [*NO_JSON, first, *NO_MESSAGES, *others]

    ended = run(state, b"".join(one + b"\n" for one in sent), results=2)

    answers = [json.loads(each) for each in ended.stdout.splitlines()]
    refusals = [(one["id"], one["error"]["code"]) for one in answers if "error" in one]
    assert refusals == [(None, -32700)] * len(NO_JSON) + [(None, -32600)] * len(NO_MESSAGES)
    assert sorted(one["id"] for one in answers if "result" in one) == [1, 2]


def names_of(message: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in message["result"]["tools"]]


@pytest.mark.nightly
def test_empty_input_ends_the_command(state: Path) -> None:
    ended = run(state, b"")

    assert (ended.returncode, ended.stdout) == (0, b"")


def test_malformed_scope_is_told_before_anything_starts(state: Path) -> None:
    config = str(state / "slumberd.yaml")

    ended = called("mcp", "--user", "a\nb", "--config", config)

    assert ended.returncode == 65
    assert "user holds the control character" in ended.stderr


@pytest.mark.nightly
def test_mistake_in_a_rule_is_told_before_anything_starts(state: Path) -> None:
    (state / "rules.d/conversation.yaml").write_text("rules: [{id: 1}]")

    ended = run(state, b"")

    assert (ended.returncode, ended.stdout) == (78, b"")
    assert b"conversation.yaml" in ended.stderr


def test_command_that_has_ended_leaves_the_handlers_of_signals(state: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    with StateLock(state):
        ended = called("mcp", "--user", "ann", "--config", str(state / "slumberd.yaml"))

    assert ended.returncode == 75
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


WITHOUT_EXTRA = """
import sys

sys.modules["mcp"] = None  # as if it were not installed
from slumberd.cli import main

main(sys.argv[1:])
"""


@pytest.mark.nightly
def test_missing_extra_is_named(state: Path) -> None:
    words = ["mcp", "--user", "ann", "--config", str(state / "slumberd.yaml")]

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *words], capture_output=True, text=True
    )

    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr == (
        "slumberd: the Model Context Protocol cannot be served:"
        f" install it with `{install_command('serve')}`\n"
    )


@pytest.mark.nightly
def test_import_of_slumberd_imports_no_part_of_the_protocol() -> None:
    program = (
        "import slumberd, slumberd.daemon.daemon, slumberd.cli.commands.run, sys;"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'mcp', 'mcp_types', 'starlette', 'uvicorn'}))"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert printed.stdout == "[]\n"


@pytest.mark.nightly
@pytest.mark.acceptance
async def test_command_uses_the_daemon_that_runs_as_a_service(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    with home.daemon() as daemon:
        config = home.state / "slumberd.yaml"
        config.write_bytes(home.config.read_bytes())
        async with stdio_client(home.state, "ann") as client:
            await answer(client, "remember", text="x", id="e1", triples=[MOVE])
            event = await asyncio.to_thread(daemon.wait_for, "delta.applied")

    assert (event["user"], event["agent"]) == ("ann", "desk")
