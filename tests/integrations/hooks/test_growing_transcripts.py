"""Every turn is put exactly once, however a transcript grows and whatever goes wrong meanwhile."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd import SyncMemory
from slumberd.integrations.hooks import command
from slumberd.integrations.hooks.command import run_hook
from slumberd.integrations.hooks.daemon_client import SOCKET
from slumberd.integrations.hooks.transcripts import MOST_CHARACTERS
from tests.support.sample_sizes import amount
from tests.support.transcripts import CLAUDE_CODE, CODEX, Hook, noise, said
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Trouble = Literal["none", "daemon down", "cursor lost", "cursor damaged", "cursor behind"]
TROUBLES: tuple[Trouble, ...] = (
    "none", "daemon down", "cursor lost", "cursor damaged", "cursor behind",
)  # fmt: skip
_numbers = itertools.count()


class Step(NamedTuple):
    """What happens before a hook runs.

    Attributes:
        share: How much of the rest of the transcript is written, 0 to 1.
        event: The event of the hook.
        trouble: What goes wrong.
    """

    share: float
    event: str
    trouble: Trouble


texts = (
    st.text(min_size=1, max_size=30)
    | st.just("\r\n\x85\u2028 lines")
    | st.just("x" * (MOST_CHARACTERS + 1))
).filter(lambda text: text.replace("\0", "x").strip())
talks = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=6)
steps = st.lists(
    st.builds(
        Step,
        st.floats(0, 1),
        st.sampled_from(["Stop", "PreCompact", "SessionEnd", "SessionStart"]),
        st.sampled_from(TROUBLES),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a daemon in another thread, and yield its state directory."""
    directory = tmp_path_factory.mktemp("daemon") / "memory"
    with SyncMemory.open(directory, user="host"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "MOST_SECONDS", PATIENCE_SECONDS)  # on a busy machine
        yield directory


def run(hook: Hook, event: str) -> None:
    source = io.BytesIO(hook.event(event))
    assert run_hook(hook.words, source, io.StringIO(), io.StringIO()) == 0


def cause(trouble: Trouble, hook: Hook, before: dict[Path, bytes]) -> None:
    """Let something go wrong; `before` is what the cursors said before the last hook."""
    if trouble == "daemon down":
        (hook.state_dir / SOCKET).rename(hook.state_dir / "away")
    for file in hook.cursors.rglob("*.json") if trouble.startswith("cursor") else ():
        if trouble == "cursor lost":
            file.unlink()
        elif trouble == "cursor damaged":
            file.write_bytes(file.read_bytes()[:-3])
        elif file in before:  # as after a kill between the put and the move of the cursor
            file.write_bytes(before[file])


def expected(talk: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the episodes of a conversation: who said what."""
    cleaned = [(speaker, text.replace("\0", "\N{REPLACEMENT CHARACTER}").strip())
               for speaker, text in talk]  # fmt: skip
    return [
        (speaker, text[start : start + MOST_CHARACTERS])
        for speaker, text in cleaned
        for start in range(0, len(text), MOST_CHARACTERS)
    ]


@pytest.mark.cases(1)
@pytest.mark.parametrize("agent", [CLAUDE_CODE, CODEX])
@settings(max_examples=amount(40, full=400), suppress_health_check=list(HealthCheck))
@given(talk=talks, plan=steps)
def test_every_turn_is_put_exactly_once(
    state_dir: Path, tmp_path: Path, agent: str, talk: list[tuple[str, str]], plan: list[Step]
) -> None:
    name = f"user{next(_numbers)}"
    folder = tmp_path / name
    folder.mkdir()
    hook = Hook(agent, folder, state_dir, user=name, session=name)
    lines = [said(agent, *one, n) + noise(agent, n) for n, one in enumerate(talk, 1)]
    rest, before = b"".join(lines), dict[Path, bytes]()
    for step in plan:
        size = int(len(rest) * step.share)
        hook.write(rest[:size])
        rest = rest[size:]
        cause(step.trouble, hook, before)
        before = {file: file.read_bytes() for file in hook.cursors.rglob("*.json")}
        run(hook, step.event)
        if step.trouble == "daemon down":
            (state_dir / "away").rename(state_dir / SOCKET)
    hook.write(rest)
    run(hook, "Stop")

    with SyncMemory.open(f"unix:{state_dir}", user=name, agent="desk") as memory:
        found = memory.episodes(limit=1_000)
    assert sorted((str(one.metadata["speaker"]), one.content) for one in found) == sorted(
        expected(talk)
    )
    assert not [*hook.cursors.rglob("*.unfinished")]
