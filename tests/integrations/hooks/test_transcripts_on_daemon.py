"""Transcripts of coding agents on a daemon: what is taken back, what is late, what is not known."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd import SyncMemory
from slumberd.clock import SystemClock
from slumberd.integrations.hooks import command, putting
from slumberd.integrations.hooks.command import run_hook
from slumberd.integrations.hooks.cursors import Cursors, Transcript
from slumberd.integrations.hooks.daemon_client import call_daemon
from slumberd.integrations.hooks.putting import read_line
from slumberd.operations.transcript_counts import FILE, read_transcript_counts
from tests.support.cli_runner import called
from tests.support.transcripts import (
    CLAUDE_CODE,
    CODEX,
    SESSION,
    Hook,
    claude_line,
    codex_line,
    codex_message,
)
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_SECONDS", PATIENCE_SECONDS)  # on a busy machine


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    return Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")


@pytest.fixture
def memory(hook: Hook) -> Iterator[SyncMemory]:
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as found:
        yield found


def run(hook: Hook, event: str = "Stop", **fields: Any) -> str:
    """Run a hook in this process, and return what it reports."""
    errors = io.StringIO()
    source = io.BytesIO(hook.event(event, **fields))
    assert run_hook(hook.words, source, io.StringIO(), errors) == 0
    return errors.getvalue()


def stored(memory: SyncMemory) -> dict[str, Any]:
    """Return the texts, oldest first, each with why it was taken back."""
    found = reversed(memory.episodes(limit=1_000))
    return {one.content: one.metadata.get("withdrawn") for one in found}


def turn(text: str, number: int, parent: int | None, speaker: str = "user", **fields: Any) -> bytes:
    name = None if parent is None else f"m{parent}"
    return claude_line(speaker, text, number, uuid=f"m{number}", parentUuid=name, **fields)


def test_rewound_turn_is_taken_back_and_counts_again(hook: Hook, memory: SyncMemory) -> None:
    hook.write(
        turn("Hello", 1, None), turn("Tabs are best", 2, 1), turn("Noted", 3, 2, "assistant")
    )
    run(hook)
    hook.write(turn("Spaces are best", 4, 1))
    run(hook)
    rewound = stored(memory)
    found = memory.recall("tabs")
    hook.write(turn("And why?", 5, 3))
    run(hook)

    assert rewound == {
        "Hello": None, "Tabs are best": "rewound", "Noted": "rewound", "Spaces are best": None,
    }  # fmt: skip
    assert "Tabs are best" not in [hit.text for hit in found]
    assert stored(memory) == {
        "Hello": None, "Tabs are best": None, "Noted": None, "Spaces are best": "rewound",
        "And why?": None,
    }  # fmt: skip
    assert "Tabs are best" in [hit.text for hit in memory.recall("tabs")]


def test_lost_cursor_revives_no_rewound_turn(hook: Hook, memory: SyncMemory) -> None:
    hook.write(turn("Hello", 1, None), turn("Tabs", 2, 1), turn("Spaces", 3, 1))
    run(hook)
    before = memory.episodes(limit=10)
    for file in hook.cursors.rglob("*.json"):
        file.unlink()
    run(hook)

    assert memory.episodes(limit=10) == before
    assert stored(memory)["Tabs"] == "rewound"


def test_repeated_put_revives_no_episode_that_was_taken_back(memory: SyncMemory) -> None:
    def put(**metadata: Any) -> str:
        return memory.remember("Tabs", id="e1", session="s", metadata=metadata).state

    states = [put(), put(withdrawn="rewound"), put(), put(withdrawn="rewound")]

    assert states == ["new", "changed", "unchanged", "unchanged"]
    assert stored(memory) == {"Tabs": "rewound"}


@pytest.mark.parametrize("seconds", [3_600, 86_400 * 365], ids=["an hour", "a year"])
def test_turn_of_a_clock_that_is_ahead_is_put(hook: Hook, memory: SyncMemory, seconds: int) -> None:
    at = SystemClock().now() + timedelta(seconds=seconds)
    hook.write(turn("Hello", 1, None, timestamp=at.isoformat()))

    assert run(hook) == ""

    [episode] = memory.episodes()
    assert episode.timestamp == at


def test_long_line_is_skipped_in_parts(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(putting, "MOST_LINE_BYTES", 1_000)
    hook.write(turn("before", 1, None), b"x" * 2_500)
    first = run(hook)
    hook.write(b"x" * 10_000)
    second = run(hook)
    hook.write(b"x" * 700 + b"\n", turn("after", 2, 1))
    third = run(hook)

    assert "longer than 1,000 bytes" in first
    assert (second, third) == ("", "")
    assert [*stored(memory)] == ["before", "after"]


@pytest.mark.parametrize("make", ["fifo", "device", "directory"])
def test_what_is_no_file_is_not_read(hook: Hook, memory: SyncMemory, make: str) -> None:
    path = str(hook.folder / "odd")
    if make == "fifo":
        os.mkfifo(path)
    elif make == "directory":
        Path(path).mkdir()
    else:
        path = "/dev/zero"

    assert "is no file" in run(hook, transcript_path=path)
    assert not [*hook.cursors.rglob("*.unfinished")]


def test_endless_event_is_refused(hook: Hook) -> None:
    errors = io.StringIO()
    with Path("/dev/zero").open("rb") as source:
        assert run_hook(hook.words, source, io.StringIO(), errors) == 0

    assert "the event is longer than" in errors.getvalue()


@pytest.mark.timing
def test_endless_line_ends_in_time(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_SECONDS", 0.3)
    with hook.transcript.open("wb") as file:
        file.truncate(1 << 40)  # a hole; on disk it takes nothing
    begin = SystemClock().now()

    report = run(hook)

    assert "was not done within 0.3 s" in report
    assert SystemClock().now() - begin < timedelta(seconds=10)


def test_line_at_which_two_hooks_ended_is_skipped(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:

    def slowly(agent: str, line: bytes, session: str) -> Any:
        if b"slow" in line:
            signal.raise_signal(signal.SIGALRM)
        return read_line(agent, line, session)

    hook.write(turn("before", 1, None), turn("slow", 2, 1), turn("after", 3, 2))
    monkeypatch.setattr(putting, "read_line", slowly)
    reports = [run(hook) for _ in range(4)]

    assert ["not done" in report for report in reports] == [True, True, False, False]
    assert "was skipped: 2 hooks ended while they read it" in reports[2]
    assert reports[3] == ""
    assert [*stored(memory)] == ["before", "after"]


def test_daemon_that_is_slow_skips_no_line(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter(range(9))

    def slowly(*words: Any) -> Any:
        if next(tries) < 4:
            signal.raise_signal(signal.SIGALRM)
        return call_daemon(*words)

    hook.write(turn("Hello", 1, None))
    monkeypatch.setattr(putting, "call_daemon", slowly)
    reports = [run(hook) for _ in range(5)]

    assert ["not done" in report for report in reports] == [True] * 4 + [False]
    assert [*stored(memory)] == ["Hello"]


def test_slow_daemon_gets_every_turn_in_the_end(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def one_each(*words: Any) -> Any:
        calls.append(words)
        if len(calls) > 1:
            signal.raise_signal(signal.SIGALRM)
        return call_daemon(*words)

    monkeypatch.setattr(putting, "call_daemon", one_each)
    hook = Hook(CODEX, hook.folder, hook.state_dir)
    names = [f"turn {n}" for n in range(4)]
    for n, name in enumerate(names):
        content = [{"type": "text", "text": name}]
        item = {"type": "UserMessage", "id": f"i{n}", "content": content}
        hook.write(codex_line("event_msg", {"type": "item_completed", "item": item}, n))
        hook.write(codex_line("event_msg", {"type": "task_complete"}, n))
    for _ in names:
        calls.clear()
        run(hook)

    assert [*stored(memory)] == names


def test_transcript_that_another_hook_reads_is_left_to_it(hook: Hook, memory: SyncMemory) -> None:
    other = Hook(CLAUDE_CODE, hook.folder, hook.state_dir, session="other")
    other.write(turn("other", 1, None, sessionId="other"))
    hook.write(turn("own", 2, None))
    run(hook)
    [directory] = hook.cursors.iterdir()
    Cursors(directory).mark_unfinished(Transcript(str(other.transcript), "other"))
    with other.transcript.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        report = run(hook)
        before = [*stored(memory)]
    run(hook)

    assert (report, before) == ("", ["own"])
    assert {*stored(memory)} == {"own", "other"}


def test_transcript_that_cannot_be_read_stops_no_other(hook: Hook, memory: SyncMemory) -> None:
    other = Hook(CLAUDE_CODE, hook.folder, hook.state_dir, session="other")
    other.write(turn("other", 1, None, sessionId="other"))
    hook.write(turn("own", 2, None))
    run(hook)
    [directory] = hook.cursors.iterdir()
    unreadable = "/proc/self/mem"  # a file, whose reading fails
    for n, path in enumerate([unreadable, str(other.transcript)]):
        Cursors(directory).mark_unfinished(Transcript(path, f"s{n}"))

    report = run(hook)

    assert f"'{unreadable}' of another session" in report
    assert {*stored(memory)} == {"own", "other"}


def test_cursor_of_an_older_slumberd_finds_what_that_did_not_know(
    hook: Hook, memory: SyncMemory
) -> None:
    hook = Hook(CODEX, hook.folder, hook.state_dir)
    content = [{"type": "text", "text": "I live in Porto"}]
    item = {"type": "UserMessage", "id": "i", "content": content}
    hook.write(codex_line("event_msg", {"type": "item_completed", "item": item}))
    hook.write(codex_message("assistant", "Noted", 2))
    run(hook)
    [file] = hook.cursors.rglob("*.json")
    document = json.loads(file.read_bytes())
    file.write_text(json.dumps({key: document[key] for key in ("path", "offset", "tail")}))
    before = memory.episodes()
    run(hook)

    assert memory.episodes() == before
    assert [*stored(memory)] == ["I live in Porto", "Noted"]


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "old"])
@pytest.mark.parametrize("name", [f"{SESSION}.jsonl", "another.jsonl"])
def test_newer_transcript_of_the_session_is_read_too(
    hook: Hook, memory: SyncMemory, name: str, is_gone: bool
) -> None:
    stale = hook.folder / "stale.jsonl"
    if not is_gone:
        stale.write_bytes(turn("old", 1, None))
        os.utime(stale, (1, 1))
    (hook.folder / name).write_bytes(turn("new", 2, None))
    (hook.folder / "b.jsonl").write_bytes(turn("of another", 3, None, sessionId="b"))

    report = run(hook, transcript_path=str(stale))

    assert f"{name}' of the same session is read, too" in report
    assert {*stored(memory)} == {"new"} | ({"old"} if not is_gone else set())


def test_transcript_of_a_subagent_is_not_the_newer_one(hook: Hook, memory: SyncMemory) -> None:
    hook.write(turn("own", 1, None))
    os.utime(hook.transcript, (1, 1))
    (hook.folder / "agent-a1.jsonl").write_bytes(turn("asked", 2, None, isSidechain=True))

    assert run(hook) == ""
    assert [*stored(memory)] == ["own"]


@pytest.mark.parametrize(
    "instant", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday", None]
)
def test_turn_with_an_impossible_instant_is_put(
    hook: Hook, memory: SyncMemory, instant: str | None
) -> None:
    hook.write(turn("Hello", 1, None, timestamp=instant))

    assert run(hook) == ""
    assert [*stored(memory)] == ["Hello"]


def test_line_that_gets_its_end_after_the_session_is_put_by_another(
    hook: Hook, memory: SyncMemory
) -> None:
    last = turn("last", 2, 1)
    hook.write(turn("own", 1, None), last[:-9])
    run(hook, "SessionEnd")
    hook.write(last[-9:])
    other = Hook(CLAUDE_CODE, hook.folder, hook.state_dir, session="other")
    other.write(turn("other", 3, None, sessionId="other"))
    os.utime(other.transcript, (1, 1))
    run(other)

    assert {*stored(memory)} == {"own", "last", "other"}
    assert not [*hook.cursors.rglob("*.unfinished")]


def test_older_transcript_of_the_session_is_not_read(hook: Hook, memory: SyncMemory) -> None:
    other = hook.folder / "older.jsonl"
    other.write_bytes(turn("old", 1, None))
    os.utime(other, (1, 1))
    hook.write(turn("new", 2, None))

    assert run(hook) == ""
    assert {*stored(memory)} == {"new"}


def findings(hook: Hook, *words: str) -> str:
    return called(*words, "--state-dir", str(hook.state_dir)).stdout


def test_transcript_without_a_person_is_reported(hook: Hook, memory: SyncMemory) -> None:
    hook.write(turn("I did it", 1, None, "assistant", version="2.9.9"))
    run(hook)

    for words in (("doctor",), ("status", "--check")):
        found = findings(hook, *words)
        assert "transcripts.no_person" in found
        assert "claude-code 2.9.9" in found
        assert "1 turn of the agent and none of a person" in found
    hook.write(turn("Thank you", 2, 1))
    run(hook)
    assert "transcripts" not in findings(hook, "doctor")


def test_share_of_unknown_lines_is_reported(hook: Hook, memory: SyncMemory) -> None:
    hook = Hook(CODEX, hook.folder, hook.state_dir)
    hook.write(codex_line("session_meta", {"id": SESSION, "cli_version": "0.199.0"}))
    hook.write(*(codex_line("weather", {"text": "secret"}, n) for n in range(3)))
    run(hook)

    for words in (("doctor",), ("status", "--check")):
        found = findings(hook, *words)
        assert "transcripts.unknown" in found
        assert "codex 0.199.0" in found
        assert "3 of 4 lines (75%)" in found
        assert "weather" in found and "secret" not in found


def test_few_unknown_lines_are_no_finding(hook: Hook, memory: SyncMemory) -> None:
    hook = Hook(CODEX, hook.folder, hook.state_dir)
    hook.write(*(codex_message("developer", "x", n) for n in range(18)))
    hook.write(codex_line("event_msg", {"type": "user_message", "message": "Hi"}))
    hook.write(codex_line("weather", {}))
    run(hook)

    assert "transcripts" not in findings(hook, "doctor")
    [counts] = read_transcript_counts(hook.state_dir)
    assert (counts.lines, counts.person, counts.unknown) == (20, 1, {"weather": 1})


def test_counts_go_with_the_user(hook: Hook, memory: SyncMemory) -> None:
    for user in ("ada", "bob"):
        hook.user = user
        hook.transcript = hook.folder / f"{user}.jsonl"
        hook.write(turn("Hello", 1, None))
        run(hook)
    for one in memory.episodes():
        memory.wait_for(one.id)  # a firing between the plan and the erasure makes the plan stale
    memory.forget(plan=memory.forget().plan)

    assert [one.user for one in read_transcript_counts(hook.state_dir)] == ["bob"]
    assert b"ada" not in (hook.state_dir / FILE).read_bytes()


def test_counts_go_with_the_user_also_without_a_daemon(hook: Hook) -> None:
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk"):
        hook.write(turn("Hello", 1, None))
        run(hook)
    before = read_transcript_counts(hook.state_dir)
    done = called("forget", "--user", "ada", "--yes", "--state-dir", str(hook.state_dir))

    assert done.returncode == 0, done.stderr
    assert [one.user for one in before] == ["ada"]
    assert read_transcript_counts(hook.state_dir) == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"transcripts": [7, {}]}', b"\xff"])
def test_damaged_counts_are_made_anew(hook: Hook, memory: SyncMemory, content: bytes) -> None:
    (hook.state_dir / FILE).write_bytes(content)
    before = read_transcript_counts(hook.state_dir)
    hook.write(turn("Hello", 1, None))
    run(hook)

    assert before == []
    assert [one.person for one in read_transcript_counts(hook.state_dir)] == [1]


PATTERNS = r"""
patterns:
  - id: home
    when: '\b(?P<who>I) live in (?P<place>\w+)'
    says: {subject: "{who}", predicate: lives_in, object: "{place}"}
"""
RULE = """
rules:
  - id: homes
    cadence: {every: 1}
    when_filter: "is_person"
    then_emits: [facts]
    stages: [extract: {with: patterns, patterns: patterns/homes.yaml}]
"""


@pytest.fixture
def homes(hook: Hook) -> Iterator[SyncMemory]:
    """A memory with a rule that takes from the person's words where the person lives."""
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk"):
        pass  # makes the directory
    rules = hook.state_dir / "rules.d"
    (rules / "patterns").mkdir()
    (rules / "patterns/homes.yaml").write_text(PATTERNS)
    (rules / "homes.yaml").write_text(RULE)
    for name in ("conversation.yaml", "conversation.test.yaml"):
        (rules / name).unlink()  # it takes homes from the person's words, too
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as found:
        yield found


def places(memory: SyncMemory) -> list[object]:
    """Return where the person lives, after the rule has evaluated every episode."""
    for one in memory.episodes(limit=1_000):
        memory.wait_for(one.id, seconds=60)
    return [fact.payload["object"] for fact in memory.facts().facts]


def test_rewound_statement_is_no_fact_and_why_not_says_so(hook: Hook, homes: SyncMemory) -> None:
    hook.write(turn("I live in Lisbon.", 1, None), turn("Noted", 2, 1, "assistant"))
    hook.write(turn("I live in Porto.", 3, 2))
    run(hook)
    before = places(homes)
    hook.write(turn("List the files.", 4, 2))
    run(hook)
    rewound = places(homes)
    [id] = [one.id for one in homes.episodes() if "Porto" in one.content]
    reasons = findings(hook, "why-not", id)
    hook.write(turn("And now?", 5, 3))
    run(hook)

    assert (before, rewound, places(homes)) == (["Porto"], ["Lisbon"], ["Porto"])
    assert "the turn was rewound" in reasons
    assert "the turn was rewound" in str(
        homes.explain(next(one.id for one in homes.episodes() if "List" in one.content))
    )


def test_fork_makes_no_old_statement_new(hook: Hook, homes: SyncMemory) -> None:
    def session(name: str, *lines: bytes) -> None:
        other = Hook(CODEX, hook.folder, hook.state_dir, session=name)
        other.write(*lines)
        assert run(other) == ""

    def head(id: str, n: int, **fields: Any) -> bytes:
        return codex_line("session_meta", {"id": id, **fields}, n)

    def typed(text: str, n: int) -> bytes:
        return codex_line("event_msg", {"type": "user_message", "message": text}, n)

    session("p", head("p", 1), typed("I live in Lisbon.", 2))
    session("o", head("o", 20), typed("I live in Porto.", 21))
    session(
        "f", head("f", 40, forked_from_id="p"), head("p", 40), typed("I live in Lisbon.", 40),
        typed("List the files.", 50),
    )  # fmt: skip

    assert places(homes) == ["Porto"]
    assert "List the files." in stored(homes)


def test_fork_of_claude_code_makes_no_old_statement_new(hook: Hook, homes: SyncMemory) -> None:
    def session(name: str, *lines: bytes) -> None:
        other = Hook(CLAUDE_CODE, hook.folder, hook.state_dir, session=name)
        other.write(*lines)
        assert run(other) == ""

    session("p", turn("I live in Lisbon.", 1, None, sessionId="p"))
    session("o", turn("I live in Porto.", 5, None, sessionId="o"))
    copied = {"sessionId": "p", "messageUuid": "m1"}
    session(
        "f", turn("I live in Lisbon.", 9, None, sessionId="f", forkedFrom=copied),
        turn("Go on.", 10, 9, sessionId="f"),
    )  # fmt: skip

    assert places(homes) == ["Porto"]
    assert len(stored(homes)) == 3


def test_inserted_text_is_no_fact_of_the_person(hook: Hook, homes: SyncMemory) -> None:
    hook.write(
        turn("<ide_selection>I live in Atlantis.</ide_selection>\nTranslate it.", 1, None),
        turn("<peer-note>I live in Rome.</peer-note>", 2, 1),
        turn("I live in Oslo.", 3, 2, origin={"kind": "task-notification"}),
        turn("I live in Bern.", 4, 3, isMeta=True),
    )
    run(hook)

    assert places(homes) == []
    assert [*stored(homes)] == ["Translate it."]
