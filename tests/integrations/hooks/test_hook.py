"""Hooks as the coding agents run them: real processes, a real daemon, and its absence."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from slumberd import SyncMemory
from slumberd.daemon import control_socket
from slumberd.integrations.hooks import daemon_client
from slumberd.integrations.hooks.agents import EVENTS, PUTTING
from slumberd.model.texts import BEGIN, END
from tests.support.cli_runner import called
from tests.support.transcripts import (
    CLAUDE_CODE,
    CODEX,
    PATIENT,
    Hook,
    claude_line,
    context_of,
    noise,
    said,
)
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

HEAVY = {
    "apscheduler", "asyncio", "dataclasses", "logging", "orjson", "pydantic", "rich", "sqlite3",
    "structlog", "typer", "yaml",
}  # fmt: skip
TALK = [
    ("user", "How do we deploy the billing service?"),
    ("assistant", "With make ship, on Fridays."),
    ("user", "And where are the credentials kept?"),
    ("assistant", "In the vault of the operations team."),
]


@pytest.fixture(params=[CLAUDE_CODE, CODEX])
def hook(request: pytest.FixtureRequest, tmp_path: Path) -> Hook:
    """Return a hook of either agent; no daemon runs yet."""
    return Hook(request.param, tmp_path, tmp_path / "memory")


@contextmanager
def daemon(hook: Hook, user: str = "ada") -> Iterator[SyncMemory]:
    """Run a daemon in another thread, with its control socket, and yield a user's memory."""
    with SyncMemory.open(hook.state_dir, user=user, agent="desk") as memory:
        yield memory


def lines_of(hook: Hook, talk: list[tuple[str, str]], first: int = 1) -> list[bytes]:
    return [said(hook.agent, *one, number) for number, one in enumerate(talk, first)]


def stored(memory: SyncMemory) -> list[tuple[str, str]]:
    """Return who said what, oldest first."""
    found = reversed(memory.episodes(limit=1_000))
    return [(str(one.metadata["speaker"]), one.content) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("event", sorted(PUTTING))
def test_new_turns_are_put_once_in_their_order(hook: Hook, event: str) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK[:2]), noise(hook.agent, 3))
        first = hook.run(event)
        hook.write(*lines_of(hook, TALK[2:], 4))
        second, third = hook.run(event), hook.run(event)

        assert stored(memory) == TALK
        [newest, *_] = memory.episodes()

    assert newest.session == hook.session
    assert newest.timestamp.isoformat() == "2026-03-01T09:00:05.123000+00:00"
    assert [(done.returncode, done.stdout, done.stderr) for done in (first, second, third)] == [
        (0, "", "")
    ] * 3


@pytest.mark.slow
def test_next_session_starts_with_a_context_and_prompts_recall(hook: Hook) -> None:
    with daemon(hook):
        hook.write(*lines_of(hook, TALK))
        hook.run("Stop")
        later = Hook(hook.agent, hook.folder, hook.state_dir, session="later")

        start = context_of(later.run("SessionStart", source="startup"))
        prompt = context_of(later.run("UserPromptSubmit", prompt="How do we deploy billing?"))
        own = context_of(hook.run("UserPromptSubmit", prompt="How do we deploy billing?"))
        other = context_of(later.run("UserPromptSubmit", prompt="What is for lunch?"))

    for text in (start, prompt):
        assert text.startswith(BEGIN) and text.endswith(END)
    assert "vault of the operations team" in start
    assert "How do we deploy the billing service?" in prompt
    assert (own, other) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"prompt": ""}, {"prompt": " \n"}, {}])
def test_blank_prompt_recalls_nothing_and_reports_nothing(
    hook: Hook, fields: dict[str, str]
) -> None:
    with daemon(hook):
        done = hook.run("UserPromptSubmit", **fields)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_other_users_and_agents_are_not_recalled(hook: Hook) -> None:
    with daemon(hook) as memory:
        with SyncMemory.open(f"unix:{hook.state_dir}", user="bob", agent="desk") as others:
            others.remember("Bob deploys with tape", session="b")
        with SyncMemory.open(f"unix:{hook.state_dir}", user="ada", agent="kitchen") as others:
            others.remember("The kitchen deploys with forks", session="k")

        texts = [
            context_of(hook.run("SessionStart")),
            context_of(hook.run("UserPromptSubmit", prompt="Who deploys with what?")),
        ]

        assert memory.episodes() == []
    assert texts == ["", ""]


@pytest.mark.slow
def test_what_a_hook_printed_is_not_learned_again(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK))
        hook.run("Stop")
        context = context_of(hook.run("SessionStart"))
        hook.write(said(hook.agent, "user", f"{context}\nAnd who may read it?", 9))
        hook.run("Stop")

        assert stored(memory) == [*TALK, ("user", "And who may read it?")]


@pytest.mark.parametrize("event", EVENTS)
def test_hook_without_a_daemon_reports_that_and_breaks_nothing(hook: Hook, event: str) -> None:
    hook.write(*lines_of(hook, TALK))

    done = hook.run(event, prompt="How do we deploy?")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"slumberd: no slumberd runs on {str(hook.state_dir)!r}\n"


@pytest.mark.slow
def test_turns_of_a_time_without_a_daemon_are_put_by_the_next_hook(hook: Hook) -> None:
    hook.write(*lines_of(hook, TALK[:2]))
    hook.run("SessionEnd")  # the session will run no further hook
    later = Hook(hook.agent, hook.folder, hook.state_dir, session="later")
    later.write(*lines_of(hook, TALK[2:], 3))

    with daemon(hook) as memory:
        later.run("Stop")

        assert stored(memory) == TALK
        assert (
            {one.session for one in memory.episodes()} >= {"later"}
            if (hook.agent == CODEX)
            else True
        )


@pytest.mark.slow
def test_line_that_is_half_written_is_left_for_the_next_hook(hook: Hook) -> None:
    [line] = lines_of(hook, TALK[:1])
    with daemon(hook) as memory:
        for part in (line[:20], line[20:-1], b"\n"):
            hook.write(part)
            assert hook.run("Stop").stderr == ""

        assert stored(memory) == TALK[:1]


KILLED = """
import os, signal, sys
from slumberd.integrations.hooks.cursors import Cursors
from slumberd.integrations.hooks.command import run_on_standard_streams
Cursors.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(run_on_standard_streams(sys.argv[1:]))
"""


@pytest.mark.slow
def test_hook_that_is_killed_before_it_moves_the_cursor_puts_nothing_twice(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK[:3]))
        killed = hook.run_on(hook.event("Stop"), sys.executable, "-c", KILLED)
        before = stored(memory)
        hook.write(*lines_of(hook, TALK[3:], 4))
        hook.run("Stop")

        assert stored(memory) == TALK
    assert killed.returncode == -signal.SIGKILL
    assert before == TALK[:3]


@pytest.mark.slow
def test_transcript_that_was_replaced_is_read_from_its_beginning(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK[:2]))
        hook.run("Stop")
        hook.transcript.write_bytes(b"".join(lines_of(hook, [*TALK[2:], TALK[0]], 3)))
        hook.run("Stop")

        assert stored(memory) == [*TALK, TALK[0]]


@pytest.mark.path
def test_refused_turn_is_reported_and_the_others_are_put(tmp_path: Path) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    lines = lines_of(hook, TALK)
    lines[1] = claude_line("assistant", "hostile", sessionId="s" * 2_000)
    lines.insert(3, b"no JSON\n")
    with daemon(hook) as memory:
        hook.write(*lines)
        done = hook.run("Stop")
        again = hook.run("Stop")

        assert stored(memory) == [TALK[0], *TALK[2:]]
    assert len(done.stderr.splitlines()) == 2
    assert "session" in done.stderr and "a line of" in done.stderr
    assert (done.returncode, again.returncode, again.stderr) == (0, 0, "")


@pytest.mark.slow
def test_turns_of_an_erased_scope_do_not_come_back(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK[:2]))
        hook.run("Stop")
        memory.forget(plan=memory.forget().plan)
        hook.transcript.write_bytes(b"".join(lines_of(hook, TALK)))
        for file in hook.cursors.rglob("*.json"):
            file.unlink()
        done = hook.run("Stop")

        assert stored(memory) == []
    assert done.returncode == 0
    assert done.stderr


@pytest.mark.slow
def test_an_erased_turn_does_not_come_back_and_blocks_no_later_one(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK[:2]))
        hook.run("Stop")
        id = memory.episodes()[-1].id
        memory.forget(episode=id, plan=memory.forget(episode=id).plan)
        hook.transcript.write_bytes(b"".join(lines_of(hook, TALK)))
        for file in hook.cursors.rglob("*.json"):
            file.unlink()
        done = hook.run("Stop")

        assert stored(memory) == TALK[1:]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="no event"),
        pytest.param(b'{"hook_event_name": "PostToolUse"}', id="another event"),
        pytest.param(b'{"hook_event_name": ["Stop"]}', id="list in place of an event"),
        pytest.param(b'{"hook_event_name": "Stop", "transcript_path": "/none"}', id="no file"),
        pytest.param(b'{"hook_event_name": "Stop", "transcript_path": "/"}', id="directory"),
        pytest.param(b'{"hook_event_name": "Stop", "transcript_path": "\\u0000"}', id="NUL"),
        pytest.param(b'{"hook_event_name": "Stop", "transcript_path": "\\ud800"}', id="surrogate"),
        pytest.param(b'{"hook_event_name": "\\u001b[31m"}', id="escape codes"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"\xff", id="bytes"),
    ],
)
def test_malformed_event_is_one_line_on_standard_error(tmp_path: Path, event: bytes) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")

    done = hook.run_on(event)

    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(r"slumberd: [^\x00-\x1f]+\n", done.stderr), done.stderr


@pytest.mark.slow
def test_event_without_a_transcript_puts_nothing(hook: Hook) -> None:
    done = hook.run("Stop", transcript_path=None)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["cursor"],
        ["codex"],
        ["codex", "--user", "a"],
        ["codex", "--user", "a", "--user", "a", "--state-dir", "s", "--cursors", "c"],
        ["codex", "--user", "a", "--agent", "a", "--state-dir", "s", "--cursors"],
        ["codex", "--user", "a", "--agent", "a", "--state-dir", "s", "--cursor", "c"],
    ],
    ids=" ".join,
)
def test_malformed_command_line_is_a_usage_error(words: list[str]) -> None:
    command = [sys.executable, "-m", "slumberd", "hook", *words]

    done = subprocess.run(command, input="{}", capture_output=True, text=True)

    assert done.returncode == 64
    assert done.stderr.startswith("slumberd: hook: ")


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """Yield a path of a directory that fits into the address of a socket."""
    descriptor = os.open(directory, os.O_PATH)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def answering(hook: Hook, answer: bytes | None) -> Iterator[None]:
    """Listen in place of a daemon: answer each request with a line, or never for None."""
    hook.state_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, short_path(hook.state_dir) as folder:
        listener.bind(f"{folder}/{daemon_client.SOCKET}")
        listener.listen()
        kept = []

        def answer_one() -> None:
            with suppress(OSError):  # the time of the hook is over
                connection, _ = listener.accept()
                kept.append(connection)
                if answer is not None:
                    connection.makefile("rb").readline()
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=answer_one, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)  # a hook on a busy machine may not even connect
        thread.join()
        for connection in kept:
            connection.close()


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop"])
def test_daemon_that_never_answers_blocks_no_agent(tmp_path: Path, event: str) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.write(*lines_of(hook, TALK))

    with answering(hook, None):
        done = hook.run_as_installed(event, prompt="x")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "slumberd: the hook was not done within 2 s; the next one goes on\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        pytest.param(b"", True, id="ended"),
        pytest.param(b'{"ok": fal', True, id="half an answer"),
        pytest.param(b'{"ok":false,"error":"busy","exit_code":75,"kind":"StoreBusyError"}\n', True,
                     id="busy"),
        pytest.param(b'{"ok":false,"error":"version 2","exit_code":64}\n', True,
                     id="another version"),
        pytest.param(b'{"ok":false,"error":"old","exit_code":65,"kind":"ForgottenError"}\n', False,
                     id="erased scope"),
    ],
)  # fmt: skip
def test_turn_that_the_daemon_could_not_take_is_put_later(
    hook: Hook, answer: bytes, kept: bool
) -> None:
    hook.write(*lines_of(hook, TALK[:1]))
    with answering(hook, answer):
        done = hook.run("Stop")
    (hook.state_dir / daemon_client.SOCKET).unlink()
    hook.state_dir.rmdir()

    with daemon(hook) as memory:
        hook.run("Stop")

        assert stored(memory) == (TALK[:1] if kept else [])
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


@pytest.mark.slow
def test_two_memories_of_one_transcript_each_get_all_turns(hook: Hook) -> None:
    with daemon(hook) as memory, daemon_of(hook, "bob") as other:
        hook.write(*lines_of(hook, TALK))
        hook.run("Stop")
        hook.user = "bob"
        hook.run("Stop")

        assert stored(memory) == stored(other) == TALK


def daemon_of(hook: Hook, user: str) -> Any:
    return SyncMemory.open(f"unix:{hook.state_dir}", user=user, agent="desk")


@pytest.mark.slow
def test_hooks_at_the_same_time_put_each_turn_once(hook: Hook) -> None:
    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK))
        command = [sys.executable, "-c", PATIENT, *hook.words]
        running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(5)]
        for process in running:
            assert process.stdin is not None
            process.stdin.write(hook.event("Stop"))
            process.stdin.close()
        codes = [process.wait() for process in running]

        assert stored(memory) == TALK
    assert codes == [0] * 5


@pytest.mark.slow
def test_cursors_are_private_and_go_with_their_transcripts(hook: Hook) -> None:
    with daemon(hook):
        hook.write(*lines_of(hook, TALK))
        hook.run("SessionEnd")
        modes = [file.stat().st_mode & 0o077 for file in hook.cursors.rglob("*")]
        hook.transcript.unlink()
        later = Hook(hook.agent, hook.folder, hook.state_dir, session="later")
        later.write(*lines_of(hook, TALK[:1], 9))
        later.run("SessionEnd")

    assert modes == [0] * 2  # a directory, and a cursor in it
    [left] = hook.cursors.rglob("*.*")
    assert json.loads(left.read_bytes())["path"] == str(later.transcript)


@pytest.mark.slow
def test_installed_command_puts_and_recalls(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "SLUMBERD_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(hook.folder))
    where = ["--user", "ada", "--agent", "desk", "--state-dir", str(hook.state_dir)]
    assert called("hooks", "install", hook.agent, *where).returncode == 0
    [file] = [*hook.folder.glob(".claude/*"), *hook.folder.glob(".codex/*")]
    groups = json.loads(file.read_bytes())["hooks"]

    def run(event: str, **fields: str) -> subprocess.CompletedProcess[str]:
        [group] = groups[event]
        [handler] = group["hooks"]
        return hook.run_on(hook.event(event, **fields), "sh", "-c", handler["command"])

    with daemon(hook) as memory:
        hook.write(*lines_of(hook, TALK))
        while stored(memory) != TALK:  # on a busy machine, a hook may leave turns to the next one
            assert run("Stop").returncode == 0
        hook.session = "later"
        while not (start := context_of(run("SessionStart"))):
            pass
        while not (prompt := context_of(run("UserPromptSubmit", prompt="How do we deploy?"))):
            pass

    assert TALK[3][1] in start
    assert TALK[0][1] in prompt


def test_hook_imports_neither_the_daemon_nor_the_command_line(hook: Hook) -> None:
    code = (
        "import sys, runpy\nbefore = {*sys.modules}\nsys.argv[0] = 'slumberd'\ntry:\n"
        "    runpy.run_module('slumberd', run_name='__main__')\nexcept SystemExit: pass\n"
        "print(*sorted({*sys.modules} - before))"
    )
    hook.write(*lines_of(hook, TALK))

    done = hook.run_on(hook.event("Stop"), sys.executable, "-c", code, "hook")

    modules = done.stdout.split()
    assert "slumberd.integrations.hooks.command" in modules
    assert {name.split(".")[0] for name in modules} & HEAVY == set()
    assert not [name for name in modules if name.startswith("slumberd.cli")]


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-", "2>/dev/full"])
def test_hook_without_a_stream_breaks_nothing(tmp_path: Path, closed: str) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")

    done = hook.run_on(hook.event("SessionStart"), *patient_on(closed))

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_hook_whose_answer_cannot_be_written_breaks_nothing(hook: Hook) -> None:
    with daemon(hook):
        hook.write(*lines_of(hook, TALK))
        hook.run("Stop")
        later = Hook(hook.agent, hook.folder, hook.state_dir, session="later")

        done = later.run_on(later.event("SessionStart"), *patient_on(">/dev/full"))

    problem = "slumberd: the hook failed: OSError: [Errno 28] No space left on device\n"
    assert (done.returncode, done.stderr) == (0, problem)


def patient_on(streams: str) -> list[str]:
    """Return the words of a shell that runs a hook on other standard streams."""
    return ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, "-c", PATIENT]


@pytest.mark.slow
def test_long_transcript_is_put_by_several_hooks(tmp_path: Path) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.write(*lines_of(hook, TALK))
    hurried = [
        sys.executable, "-c",
        "import signal, sys\n"
        "from slumberd.integrations.hooks import command, putting\n"
        "ask = putting.call_daemon\n"
        "def once(*args):\n"
        "    putting.call_daemon = lambda *_: signal.raise_signal(signal.SIGALRM)\n"
        "    return ask(*args)\n"
        "putting.call_daemon = once\n"
        "sys.exit(command.run_on_standard_streams(sys.argv[1:]))",
    ]  # fmt: skip
    found = []
    with daemon(hook) as memory:
        for _ in TALK:
            done = hook.run_on(hook.event("Stop"), *hurried)
            found.append((done.returncode, done.stderr.count("not done within"), stored(memory)))

    assert [(code, count) for code, count, _ in found] == [(0, 1)] * 3 + [(0, 0)]
    assert [talk for _, _, talk in found] == [TALK[:number] for number in range(1, 5)]


@pytest.mark.slow
def test_hook_ends_in_time_although_the_agent_has_blocked_its_alarm(hook: Hook) -> None:
    blocked = (
        "import signal, sys\n"
        "from slumberd.integrations.hooks import command\n"
        "command.MOST_SECONDS = 0.1\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGALRM,))\n"
        "sys.exit(command.run_on_standard_streams(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", blocked, *hook.words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        code = process.wait(PATIENCE_SECONDS)  # no event comes, so only the alarm ends the hook
        assert process.stderr is not None
        errors = process.stderr.read().decode()

    assert code == 0
    assert "the hook was not done within 0.1 s" in errors


@pytest.mark.slow
def test_help_of_the_hook_comes_from_the_command_line() -> None:
    command = [sys.executable, "-m", "slumberd", "hook", "--help"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_client_of_hooks_speaks_the_protocol_of_the_control_socket() -> None:
    assert (daemon_client.SOCKET, daemon_client.VERSION) == (
        control_socket.SOCKET, control_socket.VERSION,
    )  # fmt: skip
