"""No door stores a secret, and a turn that a person asks to forget comes through none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from slumberd import SyncMemory, Triple
from slumberd.integrations.interchange.formats import FORMATS
from slumberd.model.errors import SecretRefusedError
from tests.support.builders import episode
from tests.support.installation import Installation, jsonl
from tests.support.transcripts import CLAUDE_CODE, CODEX, Hook, said

pytestmark = pytest.mark.integration

KEY = "sk-proj-" + "x7Qz" * 10
PASSWORD = "hunter" + "22hunter"
TEXT = f"Use this: export ACME_API_KEY={KEY} and the password is {PASSWORD}"


def stored_bytes(folder: Path) -> bytes:
    """Return all bytes of the files beneath a folder."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def holds_secret(folder: Path) -> bool:
    found = stored_bytes(folder)
    assert b"ACME" in found or b"masked" in found or b"Lisbon" in found
    return KEY.encode() in found or PASSWORD.encode() in found


def configured(folder: Path, text: str) -> Path:
    """Make a state directory with a section in its configuration, and return it."""
    state = folder / "memory"
    with SyncMemory.open(state, user="ada"):
        pass
    config = state / "slumberd.yaml"
    config.write_text(f"{config.read_text() if config.exists() else ''}\ncapture: {{{text}}}\n")
    return state


def test_episode_is_masked_in_its_text_metadata_and_triples(tmp_path: Path) -> None:
    state = tmp_path / "memory"
    with SyncMemory.open(state, user="ada") as memory:
        done = memory.remember(
            TEXT,
            id="e1",
            triples=[Triple("wifi", "password", PASSWORD), Triple("ada", "uses", f"token {KEY}")],
            metadata={"tool": {"output": TEXT, "env": {"DB_PASSWORD": PASSWORD}}},
        )
        again = memory.remember(TEXT, id="e2", metadata={"tool": None})
        [second, first] = memory.episodes()

    assert first.content == second.content
    assert "ACME_API_KEY=[masked" in first.content
    assert sum(done.masked.values()) == 7
    assert sum(again.masked.values()) == 2
    assert not holds_secret(state)


def test_same_text_put_again_is_unchanged(tmp_path: Path) -> None:
    with SyncMemory.open(tmp_path / "memory", user="ada") as memory:
        memory.remember(TEXT, id="e1")

        assert memory.remember(TEXT, id="e1").state == "unchanged"


def test_kinds_are_logged_and_no_text(tmp_path: Path) -> None:
    with (
        SyncMemory.open(tmp_path / "memory", user="ada") as memory,
        structlog.testing.capture_logs() as lines,
    ):
        memory.remember(TEXT)

    [line] = [line for line in lines if line["event"] == "secrets.masked"]
    assert sum(line["masked"].values()) == 2
    assert KEY not in str(lines) and PASSWORD not in str(lines)


def test_secrets_are_kept_when_the_configuration_says_so(tmp_path: Path) -> None:
    state = configured(tmp_path, "secrets: keep")
    with SyncMemory.open(state, user="ada") as memory:
        done = memory.remember(TEXT)
        [found] = memory.episodes()

    assert (found.content, done.masked) == (TEXT, {})


def test_text_with_a_secret_is_refused_when_the_configuration_says_so(tmp_path: Path) -> None:
    state = configured(tmp_path, "secrets: refuse")
    with SyncMemory.open(state, user="ada") as memory:
        with pytest.raises(SecretRefusedError, match="holds secrets"):
            memory.remember(TEXT)
        memory.remember("I moved to Lisbon.")

        assert [one.content for one in memory.episodes()] == ["I moved to Lisbon."]
    assert not holds_secret(state)


MEMORY = {"id": "m1", "memory": TEXT, "user_id": "ada", "created_at": "2025-01-01T00:00Z"}
RELATION = {"source": "wifi", "relationship": "password", "target": PASSWORD, "user_id": "ada"}
EDGE = {
    "uuid": "u1", "name": "USES", "fact": TEXT, "group_id": "ada", "source_node_name": "Ada",
    "target_node_name": KEY, "valid_at": "2025-01-01T00:00:00Z",
}  # fmt: skip
ENTITY = {"type": "entity", "name": "Ada", "entityType": "person", "observations": [TEXT]}
ITEM = {
    "namespace": ["memories", "ada"], "key": "k", "value": {"text": TEXT, "secret": PASSWORD},
    "updated_at": "2025-01-01T00:00:00Z",
}  # fmt: skip
USER = ("--user", "ada")
FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "episodes": ("a", jsonl(episode(user="ada", content=TEXT)).decode(), ()),
    "mem0": ("a", json.dumps({"results": [MEMORY], "relations": [RELATION]}), ()),
    "graphiti": ("a", json.dumps([EDGE]), ()),
    "mcp-memory": ("a", json.dumps(ENTITY), USER),
    "langgraph": ("a", json.dumps([ITEM]), ("--user-at", "2")),
    "claude-folder": ("MEMORY.md", f"# {TEXT}\n\n{TEXT}", USER),
    "codex-folder": ("memory_summary.md", f"v1\n\n## User\n\n{TEXT}", USER),
}


def import_of(folder: Path, name: str) -> list[str]:
    file, text, arguments = FILES[name]
    inputs = folder / "inputs"
    inputs.mkdir()
    (inputs / file).write_text(text)
    place = inputs if name.endswith("-folder") else inputs / file
    return ["import", str(place), "--format", name, *arguments]


@pytest.mark.parametrize("name", FORMATS)
def test_import_of_every_format_masks_and_counts(tmp_path: Path, name: str) -> None:
    site = Installation(tmp_path)

    done = site.call(*import_of(tmp_path, name))

    assert done.returncode == 0, done.stderr
    assert "masked" in done.stderr and "secret" in done.stderr
    assert KEY not in done.stderr and PASSWORD not in done.stderr
    assert not holds_secret(site.state)


def test_import_reports_refused_records_and_puts_the_others(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text(f"{site.config.read_text()}capture: {{secrets: refuse}}\n")
    file = tmp_path / "in.jsonl"
    file.write_bytes(
        jsonl(episode(id="a", user="ada", content=TEXT), episode(id="b", user="ada", content="ok"))
    )

    done = site.call("import", str(file))

    assert done.returncode == 65
    assert "line 1: the text holds secrets" in done.stderr and KEY not in done.stderr
    assert [line["id"] for line in site.lines("recent", "ada")] == ["b"]


@pytest.fixture(params=[CLAUDE_CODE, CODEX])
def hook(request: pytest.FixtureRequest, tmp_path: Path) -> Hook:
    """Return a hook of either agent; no daemon runs yet."""
    return Hook(request.param, tmp_path, tmp_path / "memory")


def write(hook: Hook, talk: list[tuple[str, str]], first: int = 1) -> None:
    hook.write(*(said(hook.agent, *one, number) for number, one in enumerate(talk, first)))


def texts(memory: SyncMemory) -> list[str]:
    """Return what is stored and not withdrawn, oldest first."""
    found = reversed(memory.episodes(limit=1_000))
    return [one.content for one in found if "withdrawn" not in one.metadata]


def test_hook_stores_no_pasted_secret(hook: Hook) -> None:
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        write(hook, [("user", TEXT), ("assistant", f"I set {KEY}.")])

        assert hook.call("Stop") == ""
        assert len(texts(memory)) == 2
    assert not holds_secret(hook.state_dir)
    assert not holds_secret_in_cursors(hook)


def holds_secret_in_cursors(hook: Hook) -> bool:
    found = stored_bytes(hook.cursors)
    return KEY.encode() in found or PASSWORD.encode() in found


def test_secret_at_the_end_of_a_piece_of_a_long_turn_is_masked(hook: Hook) -> None:
    text = "w " * 49_990 + TEXT
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        write(hook, [("user", text)])

        assert hook.call("Stop") == ""
        assert len(texts(memory)) == 2
    assert not holds_secret(hook.state_dir)


def test_refused_turn_is_reported_once_and_blocks_no_other(hook: Hook, tmp_path: Path) -> None:
    configured(tmp_path, "secrets: refuse")
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        write(hook, [("user", TEXT), ("assistant", "Done.")])

        first, second = hook.call("Stop"), hook.call("Stop")

        assert texts(memory) == ["Done."]
    assert "holds secrets" in first and KEY not in first
    assert second == ""


TALK = [
    ("user", "I moved to Lisbon."),
    ("assistant", "Noted, Lisbon."),
    ("user", "My sister is ill. Don't remember this."),
    ("assistant", "I am sorry about your sister."),
    ("assistant", "I forget it."),
    ("user", "I like tea."),
    ("assistant", "Tea it is."),
]


@pytest.mark.parametrize("step", [1, 2, 7])
def test_hook_leaves_out_a_turn_and_the_replies_to_it(hook: Hook, step: int) -> None:
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        for begin in range(0, len(TALK), step):
            write(hook, TALK[begin : begin + step], begin + 1)
            assert hook.call("Stop") == ""

        assert texts(memory) == [TALK[number][1] for number in (0, 1, 5, 6)]
    assert b"sister" not in stored_bytes(hook.state_dir)


@pytest.mark.parametrize("step", [1, 2, 7])
def test_hook_takes_back_the_turn_before_when_asked(hook: Hook, step: int) -> None:
    talk = [
        *TALK[:2],
        ("user", "My sister is ill."), ("assistant", "I am sorry."),
        ("user", "Please forget that."), ("assistant", "Forgotten."),
        *TALK[5:],
    ]  # fmt: skip
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        for begin in range(0, len(talk), step):
            write(hook, talk[begin : begin + step], begin + 1)
            assert hook.call("Stop") == ""
        everything = memory.episodes(limit=100)

        assert texts(memory) == [talk[number][1] for number in (0, 1, 6, 7)]
    withdrawn = [one for one in everything if one.metadata.get("withdrawn") == "forgotten"]
    assert [one.content for one in withdrawn] == ["", ""]


def test_long_turn_is_left_out_as_a_whole_wherever_the_words_stand(hook: Hook) -> None:
    long = "sister " * 20_000
    talk = [
        ("user", f"Don't remember this. {long}"), ("assistant", "No sister."),
        ("user", f"{long}. Don't remember this."), ("assistant", "No sister."),
        ("user", "I like tea."),
    ]  # fmt: skip
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        write(hook, talk)
        assert hook.call("Stop") == ""

        assert texts(memory) == ["I like tea."]


def test_words_of_the_configuration_are_heard(hook: Hook, tmp_path: Path) -> None:
    configured(tmp_path, "forget_this: [nicht merken], forget_that: []")
    with SyncMemory.open(hook.state_dir, user="ada", agent="desk") as memory:
        write(hook, [("user", "Bitte nicht merken: ich ziehe um."), ("user", "Forget that.")])
        assert hook.call("Stop") == ""

        assert texts(memory) == ["Forget that."]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[SyncMemory]:
    with SyncMemory.open(tmp_path / "memory", user="ada") as found:
        yield found


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        pytest.param({}, "left_out", id="the person"),
        pytest.param({"speaker": "assistant"}, "new", id="an agent"),
    ],
)
def test_only_the_person_is_heard(memory: SyncMemory, fields: dict[str, Any], state: str) -> None:
    done = memory.remember("Don't remember this: I am ill.", **fields)

    assert (done.state, done.forget) == (state, "this" if state == "left_out" else None)
    assert len(memory.episodes()) == (state == "new")
