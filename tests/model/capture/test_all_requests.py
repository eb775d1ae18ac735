"""Secrets and requests to forget, in every request that makes episodes, and in what hooks keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slumberd import SyncMemory
from slumberd.integrations.hooks import putting
from slumberd.integrations.hooks.daemon_client import DaemonAnswer, call_daemon
from slumberd.integrations.hooks.putting import read_line
from slumberd.integrations.hooks.transcripts import TranscriptTurn, episodes_of
from slumberd.model.errors import RecordRefusedError
from tests.support.transcripts import (
    CLAUDE_CODE,
    CODEX,
    SESSION,
    Hook,
    claude_line,
    codex_line,
    line_of,
    said,
)

pytestmark = pytest.mark.integration

KEYS = ["sk-proj-" + "x7Qz" * 10, "sk-proj-" + "y8Rw" * 10]
ILL = "I am ill. Don't remember this."


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def memory(state_dir: Path) -> Iterator[SyncMemory]:
    with SyncMemory.open(state_dir, user="ada", agent="desk") as found:
        yield found


def contents(memory: SyncMemory) -> dict[str, Any]:
    """Return the texts, oldest first, each with why it was taken back."""
    found = reversed(memory.episodes(limit=1_000))
    return {one.content: one.metadata.get("withdrawn") for one in found}


def put_turn(state_dir: Path, text: str, *, id: str = "t1", **fields: Any) -> dict[str, Any]:
    turn = {"id": id, "text": text, "session": "s", "speaker": "user", **fields}
    answer = call_daemon(
        state_dir,
        "transcript",
        {
            "user": "ada", "agent": "desk", "session": "s", "coding_agent": CODEX,
            "transcript": "/t.jsonl", "turn": turn,
        },
    )  # fmt: skip
    assert not answer.problem, answer.problem
    return answer.document


def test_many_episodes_are_masked_and_left_out_each_for_itself(memory: SyncMemory) -> None:
    many: list[dict[str, Any]] = [
        {"text": f"my key is {KEYS[0]}", "key": "1"},
        {"text": ILL, "key": "2"},
        {"text": "I moved to Lisbon.", "key": "3", "metadata": {"env": {"TOKEN": KEYS[0]}}},
    ]

    first, second = memory.put_many(many), memory.put_many(many)

    assert [one.state for one in first] == ["new", "left_out", "new"]
    assert [one.state for one in second] == ["unchanged", "left_out", "unchanged"]
    assert [one.forget for one in first] == [None, "this", None]
    assert [sum(one.masked.values()) for one in first] == [1, 0, 1]
    assert KEYS[0] not in str(memory.episodes())


def test_only_requests_to_forget_put_nothing(memory: SyncMemory) -> None:
    [done] = memory.put_many([{"text": ILL}])

    assert (done.state, memory.put_many([]), memory.episodes()) == ("left_out", [], [])


def test_refused_episode_is_named_by_its_place_in_the_request(memory: SyncMemory) -> None:
    with pytest.raises(RecordRefusedError, match="record 2: ") as caught:
        memory.put_many(
            [
                {"text": ILL},
                {"text": "fine"},
                {"text": "bad", "metadata": {"triples": 7}},
            ]
        )

    assert caught.value.position == 2
    assert memory.episodes() == []


def test_secret_refuses_many_episodes_by_the_place_of_the_first(tmp_path: Path) -> None:
    state = tmp_path / "memory"
    with SyncMemory.open(state, user="ada"):
        pass
    (state / "slumberd.yaml").write_text("capture: {secrets: refuse}\n")
    with SyncMemory.open(state, user="ada") as memory:
        with pytest.raises(RecordRefusedError, match="record 1: the text holds secrets"):
            memory.put_many([{"text": "fine"}, {"text": KEYS[0]}])

        assert memory.episodes() == []


def test_content_of_a_key_is_compared_without_its_secrets(memory: SyncMemory) -> None:
    texts = [f"my key is {KEYS[0]}", f"my key is {KEYS[1]}", "my key is lost"]

    states = [memory.remember(text, key="k").state for text in texts]

    assert states == ["new", "unchanged", "changed"]


def test_turn_of_a_transcript_is_masked_and_counted(memory: SyncMemory, state_dir: Path) -> None:
    done = put_turn(state_dir, f"my key is {KEYS[0]}")

    assert done["state"] == "new" and sum(done["masked"].values()) == 1
    assert KEYS[0] not in str(memory.episodes())


def test_turn_that_asks_to_forget_is_left_out(memory: SyncMemory, state_dir: Path) -> None:
    done = put_turn(state_dir, "Please forget that.")

    assert (done["state"], done["forget"], memory.episodes()) == ("left_out", "that", [])


@pytest.mark.parametrize(
    "fields",
    [{}, {"withdrawn": True}, {"withdrawn": False}, {"is_copy": True}, {"forgotten": True}],
    ids=["again", "rewound", "gone back to", "a copy", "again forgotten"],
)
def test_forgotten_turn_stays_forgotten(
    memory: SyncMemory, state_dir: Path, fields: dict[str, Any]
) -> None:
    put_turn(state_dir, "I am ill.")
    gone = put_turn(state_dir, "", forgotten=True)

    done = put_turn(state_dir, "I am ill.", **fields)
    remembered = memory.remember("I am ill.", id="t1", session="s")
    [many] = memory.put_many([{"text": "I am ill.", "id": "t1", "session": "s"}])

    assert gone["state"] == "changed"
    assert (done["state"], remembered.state, many.state) == ("unchanged",) * 3
    assert contents(memory) == {"": "forgotten"}


def test_rewound_turn_loses_its_text_when_it_is_forgotten(
    memory: SyncMemory, state_dir: Path
) -> None:
    put_turn(state_dir, "I am ill.", withdrawn=True)
    put_turn(state_dir, "", forgotten=True)

    assert contents(memory) == {"": "forgotten"}


def test_forgotten_turn_that_is_not_stored_makes_no_episode(
    memory: SyncMemory, state_dir: Path
) -> None:
    done = put_turn(state_dir, "", forgotten=True)

    assert (done["state"], memory.episodes()) == ("left_out", [])


def test_turn_of_another_user_is_not_forgotten(memory: SyncMemory, state_dir: Path) -> None:
    memory.for_user("bob").remember("I am well.", id="t1")

    assert put_turn(state_dir, "", forgotten=True)["state"] == "left_out"
    assert [one.content for one in memory.for_user("bob").episodes()] == ["I am well."]


@pytest.fixture(params=[CLAUDE_CODE, CODEX])
def hook(request: pytest.FixtureRequest, tmp_path: Path, state_dir: Path) -> Hook:
    return Hook(request.param, tmp_path, state_dir)


TALK = [
    ("user", "I moved to Lisbon."), ("assistant", "Noted."),
    ("user", "My sister is ill."), ("assistant", "I am sorry."),
    ("user", "Please forget that."), ("assistant", "Your sister is forgotten."),
    ("user", f"{ILL} So is my sister."), ("assistant", "Get well, both."),
    ("user", "I like tea."), ("assistant", "Tea it is."),
]  # fmt: skip
KEPT = {
    "I moved to Lisbon.": None, "Noted.": None, "": "forgotten", "I like tea.": None,
    "Tea it is.": None,
}  # fmt: skip


def test_lost_cursor_revives_nothing_forgotten(hook: Hook, memory: SyncMemory) -> None:
    hook.write(*(said(hook.agent, *one, number) for number, one in enumerate(TALK, 1)))
    hook.call("Stop")
    before = memory.episodes(limit=100)
    for file in hook.cursors.rglob("*.json"):
        file.unlink()

    assert hook.call("Stop") == ""
    assert memory.episodes(limit=100) == before
    assert contents(memory) == KEPT


@pytest.mark.parametrize("failing", range(16))
def test_request_that_fails_once_changes_nothing_of_what_is_forgotten(
    hook: Hook, memory: SyncMemory, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls = iter(range(1_000))

    def call(directory: Path, operation: str, request: dict[str, Any]) -> DaemonAnswer:
        lost = next(calls) == failing
        return DaemonAnswer({}, "lost") if lost else call_daemon(directory, operation, request)

    monkeypatch.setattr(putting, "call_daemon", call)
    for number, one in enumerate(TALK, 1):
        hook.write(said(hook.agent, *one, number))
        if number % 3 == 0:
            hook.call("Stop")
    hook.call("Stop")
    hook.call("Stop")

    assert contents(memory) == KEPT


def branch(text: str, number: int, parent: int | None, speaker: str = "user") -> bytes:
    name = None if parent is None else f"m{parent}"
    return claude_line(speaker, text, number, uuid=f"m{number}", parentUuid=name)


def test_turn_before_is_that_of_the_branch(tmp_path: Path, memory: SyncMemory) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.write(
        branch("Hello", 1, None), branch("Hi", 2, 1, "assistant"),
        branch("I am ill", 3, 2), branch("Get well", 4, 3, "assistant"),
        branch("And I like tea", 5, 4), branch("Tea", 6, 5, "assistant"),
        branch("Forget that", 7, 4), branch("Gone", 8, 7, "assistant"),
    )  # fmt: skip
    hook.call("Stop")
    gone = contents(memory)
    hook.write(branch("Tell me more", 9, 6))  # back to what was rewound
    hook.call("Stop")

    assert gone == {
        "Hello": None, "Hi": None, "": "forgotten", "And I like tea": "rewound", "Tea": "rewound",
    }  # fmt: skip
    assert contents(memory) == {
        "Hello": None, "Hi": None, "": "forgotten", "And I like tea": None, "Tea": None,
        "Tell me more": None,
    }  # fmt: skip


def test_reply_that_was_left_out_stays_out_in_every_branch(
    tmp_path: Path, memory: SyncMemory
) -> None:
    hook = Hook(CLAUDE_CODE, tmp_path, tmp_path / "memory")
    hook.write(
        branch("Hello", 1, None), branch(ILL, 2, 1), branch("Get well", 3, 2, "assistant"),
        branch("I like tea", 4, 1), branch("Tea", 5, 4, "assistant"),
    )  # fmt: skip
    hook.call("Stop")
    hook.write(branch("Thanks", 6, 3), branch("Welcome", 7, 6, "assistant"))
    hook.call("Stop")

    assert contents(memory) == {
        "Hello": None, "I like tea": "rewound", "Tea": "rewound", "Thanks": None, "Welcome": None,
    }  # fmt: skip


def test_turn_that_an_older_version_stored_is_forgotten_with_its_reply(
    hook: Hook, memory: SyncMemory
) -> None:
    talk = [said(hook.agent, *one, number) for number, one in enumerate(TALK[6:8], 1)]
    lines = b"".join(talk).splitlines(keepends=True)
    turns = [read_line(hook.agent, line, SESSION).turn for line in lines]
    for turn in filter(None, turns):
        [request] = episodes_of(turn, "ada", "desk")
        memory.remember(
            "stored before" if request["speaker"] == "user" else request["text"],
            **{name: request[name] for name in ("id", "session", "speaker", "when")},
        )
    hook.write(*lines)

    assert hook.call("Stop") == ""
    assert contents(memory) == {"": "forgotten"}
    assert len(memory.episodes()) == 2


def turn_in(agent: str, line: bytes) -> TranscriptTurn:
    turn = read_line(agent, line, "s").turn
    assert turn is not None
    return turn


def codex_typed(text: str) -> bytes:
    return codex_line("event_msg", {"type": "user_message", "message": text})


def codex_item(text: str) -> bytes:
    item = {"type": "UserMessage", "content": [{"type": "text", "text": text}]}
    return codex_line("event_msg", {"type": "item_completed", "item": item})


def claude_taken(text: str) -> bytes:
    return line_of({"type": "queue-operation", "operation": "remove", "content": text})


def claude_queued(text: str) -> bytes:
    attachment = {"type": "queued_command", "prompt": text}
    return line_of({"type": "attachment", "attachment": attachment})


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        (CODEX, codex_typed),
        (CODEX, codex_item),
        (CLAUDE_CODE, claude_taken),
        (CLAUDE_CODE, claude_queued),
    ],
)
def test_key_of_a_turn_does_not_depend_on_a_secret(
    agent: str, line: Callable[[str], bytes]
) -> None:
    first, second, other = (turn_in(agent, line(f"my key is {key}")) for key in (*KEYS, "here"))

    assert first.text != second.text
    assert first.key == second.key != other.key


def test_cursor_keeps_nothing_of_a_secret(tmp_path: Path, memory: SyncMemory) -> None:
    kept = []
    for number, key in enumerate(KEYS):
        folder = tmp_path / str(number)
        folder.mkdir()
        hook = Hook(CLAUDE_CODE, folder, tmp_path / "memory")
        hook.write(branch(f"my key is {key}", 1, None))
        hook.call("Stop")
        [cursor] = hook.cursors.rglob("*.json")
        kept.append(json.loads(cursor.read_bytes())["history"])

    assert kept[0] == kept[1]
    assert len(kept[0]["nodes"]) == 1
