"""The files of settings: bytes restored, links kept, written in one step, refused when unclear."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slumberd.integrations.hooks.agents import CLAUDE_CODE, EVENTS
from slumberd.integrations.hooks.installation import SettingsFile
from slumberd.integrations.hooks.settings_text import commands_in
from tests.support.cli_runner import called

pytestmark = pytest.mark.integration

Call = Callable[..., CompletedProcess[str]]
OLD = b'{\r\n\t"model": "opus",\r\n\t"hooks": {"Stop": []}\r\n}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user without settings of any agent."""
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "SLUMBERD_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def hooks(home: Path) -> Call:
    """Return what calls ``slumberd hooks install``, or another word, on a state directory."""

    def call(word: str, *words: str, code: int = 0) -> CompletedProcess[str]:
        place = ["--state-dir", str(home / "state")] if word == "install" else []
        done = called("hooks", word, *words, *place)
        assert done.returncode == code, done.stderr
        return done

    return call


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["claude-code"], ".claude/settings.json"),
        (["codex"], ".codex/hooks.json"),
        (["claude-code", "--project", "app"], "app/.claude/settings.local.json"),
        (["codex", "--project", "app"], "app/.codex/hooks.json"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("old", [None, b"", b"{}\n", OLD], ids=["none", "empty", "{}", "settings"])
def test_uninstallation_restores_the_bytes_of_settings(
    home: Path, hooks: Call, monkeypatch: pytest.MonkeyPatch, words: list[str], file: str,
    old: bytes | None,
) -> None:  # fmt: skip
    monkeypatch.chdir(home)
    path = home / file
    if old is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(old)

    hooks("install", *words)
    new = path.read_bytes()
    hooks("uninstall", *words)

    assert json.loads(new)["hooks"].keys() == {*EVENTS}
    assert (path.read_bytes() if path.exists() else None) == old


def test_directories_of_the_agents_come_from_their_variables(
    home: Path, hooks: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "c"))
    monkeypatch.setenv("CODEX_HOME", str(home / "x"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "s"))

    hooks("install", "claude-code")
    hooks("install", "codex")

    text = (home / "c" / "settings.json").read_text()
    assert str(home / "s" / "slumberd" / "hooks" / "cursors") in text
    assert (home / "x" / "hooks.json").exists()
    assert {path.name for path in home.iterdir()} == {"c", "x", "s"}


def test_command_names_the_memory_and_its_daemon(home: Path, hooks: Call) -> None:
    hooks("install", "claude-code", "--user", "ada o'neil", "--agent", "app")

    found = commands_in((home / ".claude/settings.json").read_text(), CLAUDE_CODE)
    [command] = {one for commands in found.values() for one in commands}
    words = shlex.split(command)
    assert words[words.index("hook") :] == [
        "hook", "claude-code", "--user", "ada o'neil", "--agent", "app",
        "--state-dir", str(home / "state"),
        "--cursors", str(home / ".local/state/slumberd/hooks/cursors"),
    ]  # fmt: skip


def test_second_installation_changes_nothing(home: Path, hooks: Call) -> None:
    hooks("install", "claude-code")
    path = home / ".claude/settings.json"
    before = (path.read_bytes(), path.stat().st_ino)

    done = hooks("install", "claude-code")

    assert "already" in done.stdout
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_installation_for_another_user_replaces_the_hooks(home: Path, hooks: Call) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_bytes(OLD)

    hooks("install", "claude-code", "--user", "ada")
    hooks("install", "claude-code", "--user", "bob")
    found = commands_in(path.read_text(), CLAUDE_CODE)
    hooks("uninstall", "claude-code")

    assert all(len(commands) == 1 and "bob" in commands[0] for commands in found.values())
    assert path.read_bytes() == OLD


def test_uninstallation_after_an_edit_removes_the_hooks_alone(home: Path, hooks: Call) -> None:
    path = home / ".claude/settings.json"
    hooks("install", "claude-code")
    path.write_text(json.dumps({"model": "opus", **json.loads(path.read_text())}))

    hooks("uninstall", "claude-code")

    assert path.read_text() == '{"model": "opus"}'
    assert "no hooks" in hooks("uninstall", "claude-code").stdout


def test_installation_mends_hooks_that_a_person_removed_in_part(home: Path, hooks: Call) -> None:
    path = home / ".claude/settings.json"
    hooks("install", "claude-code")
    document = json.loads(path.read_text())
    del document["hooks"]["Stop"]
    path.write_text(json.dumps(document))

    hooks("install", "claude-code")

    found = commands_in(path.read_text(), CLAUDE_CODE)
    assert {event: len(commands) for event, commands in found.items()} == dict.fromkeys(EVENTS, 1)


def test_dry_run_shows_the_change_and_writes_nothing(home: Path, hooks: Call) -> None:
    done = hooks("install", "claude-code", "--dry-run")

    assert '+    "SessionStart": [' in done.stdout.splitlines()
    assert [*home.iterdir()] == []


def test_link_and_mode_of_the_file_stay(home: Path, hooks: Call) -> None:
    kept = home / "dotfiles" / "claude.json"
    kept.parent.mkdir()
    kept.write_bytes(OLD)
    kept.chmod(0o640)
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.symlink_to(kept)

    hooks("install", "claude-code")

    assert path.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert json.loads(kept.read_bytes())["hooks"].keys() == {*EVENTS}
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1,}', "is no JSON"),
        (b"\xff", "cannot be read"),
        (b'{"hooks": []}', "no JSON object"),
    ],
)
@pytest.mark.parametrize("word", ["install", "uninstall"])
def test_file_that_cannot_be_edited_is_refused_and_stays(
    home: Path, hooks: Call, word: str, content: bytes, problem: str
) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_bytes(content)

    done = hooks(word, "claude-code", code=65)

    assert problem in done.stderr and str(path) in done.stderr and "by hand" in done.stderr
    assert path.read_bytes() == content


def test_directory_in_place_of_the_file_is_refused(home: Path, hooks: Call) -> None:
    (home / ".claude/settings.json").mkdir(parents=True)

    assert "cannot be read" in hooks("install", "claude-code", code=65).stderr


def test_damaged_record_is_not_used(home: Path, hooks: Call) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_bytes(OLD)
    hooks("install", "claude-code")
    [record] = (home / ".local/state/slumberd/hooks/installed").iterdir()
    record.write_bytes(b"{")

    hooks("uninstall", "claude-code")

    assert json.loads(path.read_bytes()) == {"model": "opus"}


def test_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(OLD)
    file = SettingsFile(path, CLAUDE_CODE, tmp_path / "records")
    (tmp_path / "records").write_text("no directory")

    with pytest.raises(OSError, match="records"):
        file.write(file.installed("/bin/slumberd hook claude-code"))

    assert path.read_bytes() == OLD
    assert sorted(one.name for one in tmp_path.iterdir()) == ["records", "settings.json"]


def test_installation_says_what_is_left_to_do(home: Path, hooks: Call) -> None:
    done = hooks("install", "codex")

    assert "/hooks" in done.stdout
    assert "no slumberd runs" in done.stderr
