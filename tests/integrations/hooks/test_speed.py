"""How long a coding agent waits for a hook, and for the daemon within it."""

from __future__ import annotations

import socket
import statistics
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest

from slumberd import SyncMemory
from slumberd.integrations.hooks.agents import AGENTS
from slumberd.integrations.hooks.command import CONTEXT_TOKENS, MIN_SCORE, MOST_RECALLED
from slumberd.integrations.hooks.daemon_client import SOCKET, call_daemon
from tests.support.transcripts import CLAUDE_CODE, Hook, said

pytestmark = [pytest.mark.integration, pytest.mark.timing]

EPISODES = 2_000


def test_daemon_answers_the_questions_of_hooks_within_50_ms(tmp_path: Path) -> None:
    ada = {"user": "ada", "agent": "desk"}
    requests: dict[str, dict[str, Any]] = {
        "context": {"question": "app", "budget": CONTEXT_TOKENS},
        "recall": {"query": "How do we deploy?", "limit": MOST_RECALLED, "min_score": MIN_SCORE},
        "remember": {"text": "We deploy on Fridays"},
    }
    taken: dict[str, list[float]] = {name: [] for name in requests}
    with SyncMemory.open(tmp_path / "memory", user="ada", agent="desk") as memory:
        memory.put_many(
            [
                {"text": f"We deploy the service number {number} with make ship-{number}"}
                for number in range(EPISODES)
            ]
        )
        for _ in range(20):
            for name, request in requests.items():
                start = time.perf_counter()
                answer = call_daemon(tmp_path / "memory", name, ada | request)
                taken[name].append(time.perf_counter() - start)
                assert not answer.problem

    medians = {name: statistics.median(found) for name, found in taken.items()}
    assert max(medians.values()) < 0.05, medians


def test_hook_uses_little_processor_time(tmp_path: Path) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.write(said(CLAUDE_CODE, "user", "We deploy on Fridays", 1))
    with SyncMemory.open(hook.state_dir, user="ada"):
        before = getrusage(RUSAGE_CHILDREN)
        for _ in range(5):
            hook.run("Stop")
        after = getrusage(RUSAGE_CHILDREN)

    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent / 5 < 0.15, sys.version


def test_hook_ends_in_time_when_the_daemon_never_answers(tmp_path: Path) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.state_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(hook.state_dir / SOCKET))
        listener.listen()
        start = time.perf_counter()
        hook.run_as_installed("UserPromptSubmit", prompt="x")
        taken = time.perf_counter() - start

    assert taken < min(agent.timeout_seconds for agent in AGENTS.values())
