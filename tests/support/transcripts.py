"""Transcripts in the formats of the coding agents, and the events that their hooks get."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slumberd.integrations.hooks import command
from tests.support.waiting import PATIENCE_SECONDS

CLAUDE_CODE, CODEX = "claude-code", "codex"
PATIENT = (
    "import sys; from slumberd import entry; from slumberd.integrations.hooks import command; "
    f"command.MOST_SECONDS = {PATIENCE_SECONDS}; "
    "sys.argv.insert(1, 'hook'); entry.main()"
)
"""A hook as `slumberd hook` runs it, but with time enough on a busy machine."""

SESSION = "0198c0de-0000-7000-8000-000000000001"


def line_of(record: dict[str, Any]) -> bytes:
    """Return a record as a line of a transcript."""
    return json.dumps(record, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


def claude_line(speaker: str, content: Any, number: int = 1, **fields: Any) -> bytes:
    """Return a line of Claude Code; `fields` override those of its envelope."""
    record = {
        "type": speaker,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": SESSION,
        "timestamp": f"2026-03-01T09:{number // 60 % 60:02}:{number % 60:02}.123Z",
        "cwd": "/src/app",
        "version": "2.1.0",
        "message": {"role": speaker, "content": content},
    }
    return line_of(record | fields)


def codex_line(kind: str, payload: dict[str, Any], number: int = 1) -> bytes:
    """Return a line of a rollout of Codex."""
    timestamp = f"2026-03-01T09:{number // 60 % 60:02}:{number % 60:02}.123Z"
    return line_of({"timestamp": timestamp, "type": kind, "payload": payload})


def codex_message(role: str, text: str, number: int = 1) -> bytes:
    """Return a message as the model of Codex gets or gives it."""
    block = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return codex_line(
        "response_item", {"type": "message", "role": role, "content": [block]}, number
    )


def said(agent: str, speaker: str, text: str, number: int) -> bytes:
    """Return the lines in which a coding agent records that something was said."""
    if agent == CLAUDE_CODE:
        content = text if speaker == "user" else [{"type": "text", "text": text}]
        return claude_line(speaker, content, number)
    mirror = {"type": f"{'user' if speaker == 'user' else 'agent'}_message", "message": text}
    return codex_message(speaker, text, number) + codex_line("event_msg", mirror, number)


def noise(agent: str, number: int) -> bytes:
    """Return lines that record a tool call, thinking and bookkeeping, but nothing that was said."""
    if agent == CLAUDE_CODE:
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "a file"}
        thinking = {"type": "thinking", "thinking": "let me look", "signature": "x"}
        return (
            claude_line("assistant", [thinking, call], number, uuid=f"call-{number}")
            + claude_line("user", [result], number, uuid=f"result-{number}")
            + line_of({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
        )
    return (
        codex_line("turn_context", {"turn_id": f"t{number}", "model": "m"}, number)
        + codex_message("user", "<environment_context>a shell</environment_context>", number)
        + codex_message("developer", "what a hook gave", number)
        + codex_line("response_item", {"type": "reasoning", "summary": []}, number)
        + codex_line("response_item", {"type": "function_call_output", "output": "a"}, number)
    )


@dataclass
class Hook:
    """A hook of one coding agent, with its transcript.

    Attributes:
        agent: The coding agent.
        folder: Holds the transcript and the cursors.
        state_dir: The state directory of the daemon.
        session: The conversation.
        user: Whose memory it is.
    """

    agent: str
    folder: Path
    state_dir: Path
    session: str = SESSION
    user: str = "ada"
    transcript: Path = field(init=False)

    def __post_init__(self) -> None:
        self.transcript = self.folder / f"{self.session}.jsonl"

    @property
    def cursors(self) -> Path:
        return self.folder / "cursors"

    @property
    def words(self) -> list[str]:
        """The words after ``slumberd hook``."""
        return [
            self.agent, "--user", self.user, "--agent", "desk", "--state-dir", str(self.state_dir),
            "--cursors", str(self.cursors),
        ]  # fmt: skip

    def event(self, name: str, **fields: Any) -> bytes:
        """Return an event, as the coding agent writes it to the hook."""
        event = {
            "session_id": self.session,
            "transcript_path": str(self.transcript),
            "cwd": "/src/app",
            "hook_event_name": name,
        }
        return json.dumps(event | fields).encode()

    def write(self, *lines: bytes) -> None:
        """Write lines at the end of the transcript."""
        with self.transcript.open("ab") as file:
            file.writelines(lines)

    def run(self, name: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run the hook in a process, as the coding agent does."""
        return self.run_on(self.event(name, **fields))

    def run_as_installed(self, name: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run the hook by the command line of slumberd, with no more time than agents get."""
        return self.run_on(self.event(name, **fields), sys.executable, "-m", "slumberd", "hook")

    def run_on(self, event: bytes, *program: str) -> subprocess.CompletedProcess[str]:
        """Run the hook on an event; `program` replaces the words before its own."""
        words = [*(program or (sys.executable, "-c", PATIENT)), *self.words]
        ours = ("SLUMBERD_", "PYTHONUNBUFFERED")  # the latter hides what Python cannot flush
        environ = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        done = subprocess.run(words, input=event, capture_output=True, env=environ)
        output, errors = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in errors, errors
        return subprocess.CompletedProcess(words, done.returncode, output, errors)

    def call(self, name: str) -> str:
        """Run the hook in this process, with time enough; return what it reports to a person."""
        source, errors = io.BytesIO(self.event(name)), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "MOST_SECONDS", PATIENCE_SECONDS)
            assert command.run_hook(self.words, source, io.StringIO(), errors) == 0
        return errors.getvalue()


def context_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the context that a hook printed; an empty text when it printed nothing."""
    if not done.stdout:
        return ""
    document = json.loads(done.stdout)
    assert document.keys() == {"hookSpecificOutput"}
    text = document["hookSpecificOutput"]["additionalContext"]
    assert isinstance(text, str)
    return text
