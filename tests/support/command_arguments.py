"""Arguments for each command, and a state directory on which they have an effect."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import typer

from slumberd.cli.registry import ENTRIES
from tests.support.builders import at, triple
from tests.support.installation import RULES, Installation

READING = {
    "audit export": "",
    "audit ls": "",
    "audit replay": "{new}",
    "audit verify": "",
    "backup": "{backup}",
    "context": "alice tea",
    "check": "--against-data",
    "diff": "{rules}",
    "doctor": "",
    "events": "",
    "export": "",
    "facts": "",
    "hooks install": "claude-code --project {project} --dry-run",
    "logs": "",
    "next": "",
    "quarantine ls": "",
    "recent": "alice",
    "report": "",
    "rules": "",
    "search": "tea --user alice",
    "schema": "rules",
    "status": "",
    "test": "{rules}",
    "token new": "laptop --user alice",
    "version": "",
    "why": "e1",
    "why-not": "e1",
}
"""Arguments of the commands that change nothing in a state directory, by command."""

WRITING = {
    "approve": "profile@1",
    "backfill": "profile",
    "demo": "",
    "extract": "profile",
    "fire": "--all",
    "forget": "--user alice --yes",
    "hook": "codex --user alice --agent a --state-dir {project} --cursors {project}",
    "hooks uninstall": "codex --project {project}",
    "import": "{episodes}",
    "init": "{begun}",
    "mcp": "--user alice",
    "move": "--user alice --to 1",
    "pause": "profile",
    "pin": "--user alice --agent a --subject alice --predicate is --object up --reason so",
    "quarantine drop": "--all",
    "quarantine retry": "",
    "quarantine future": "",
    "clock accept": "--yes",
    "reject": "profile@1",
    "reload": "",
    "restore": "{backup}",
    "resume": "profile",
    "rules publish": "",
    "rules published": "",
    "run": "",
    "copy": "--from {absent} --to postgresql://127.0.0.1:1/nowhere",
    "postgres add-shard": "postgresql://127.0.0.1:1/nowhere",
    "postgres balance": "postgresql://127.0.0.1:1/nowhere",
    "postgres check": "postgresql://127.0.0.1:1/nowhere",
    "postgres init": "postgresql://127.0.0.1:1/nowhere",
    "postgres upgrade": "postgresql://127.0.0.1:1/nowhere",
    "undo": "profile@2",
    "unpin": "e1 --reason so",
    "upgrade": "--yes",
}
"""Arguments of all other commands."""

NOTING = """\
  - {id: noting, cadence: {every: 1}, when_filter: "", then_emits: [notes]}
"""
TESTS = """\
tests:
  - name: a triple is evaluated
    episodes: [{id: e1, subject: s, predicate: p, object: o}]
    expect: {filtered: []}
"""

WITHOUT_CONFIG = {
    "demo", "events", "hook", "hooks uninstall", "init", "postgres check", "postgres init",
    "postgres upgrade", "schema", "token new", "version",
}  # fmt: skip


def every_command() -> Iterator[str]:
    """Yield the name of every command; a command of a group has the name of the group before it."""
    for entry in ENTRIES:
        module, _, name = entry.home.partition(":")
        found = getattr(import_module(f"slumberd.cli.commands.{module}"), name)
        if isinstance(found, typer.Typer):
            alone = found.registered_callback
            if alone is not None and alone.invoke_without_command:  # the group is a command itself
                yield entry.name
            shown = [command for command in found.registered_commands if not command.hidden]
            yield from (f"{entry.name} {command.name}" for command in shown)
        else:
            yield entry.name


def words_of(command: str, site: Installation) -> list[str]:
    """Return all words of a call of a command on a site."""
    folder = site.config.parent
    places = {
        "backup": folder / "backup",
        "new": folder / "again.db",
        "absent": folder / "absent",
        "begun": folder / "begun",
        "project": folder / "project",
        "rules": site.rules.parent,
        "episodes": folder / "more.jsonl",
    }
    words = [*command.split(), *(READING | WRITING)[command].format(**places).split()]
    return words if command in WITHOUT_CONFIG else [*words, "--config", str(site.config)]


def installation_with_data(folder: Path) -> Installation:
    """Return a site with facts in two channels, a row in quarantine, and an episode to read."""
    site = Installation(folder)
    site.rules.write_text(RULES + NOTING)
    site.rules.with_name("rules.test.yaml").write_text(TESTS)
    bad = triple("e2", "alice", "likes", "rum", timestamp=at(2), metadata={"intent": "wish"})
    site.put(triple("e1", "alice", "likes", "tea", timestamp=at(1)), bad)
    assert site.call("fire", "--all").returncode == 0
    more = triple("e3", "alice", "likes", "milk", timestamp=at(3))
    (folder / "more.jsonl").write_text(more.model_dump_json())
    return site


def moved(site: Installation, folder: Path) -> Installation:
    """Return a copy of a site in a directory that is not there yet."""
    shutil.copytree(site.config.parent, folder)
    copy = Installation.__new__(Installation)
    copy.config, copy.state = folder / site.config.name, folder / site.state.name
    copy.rules = folder / site.rules.relative_to(site.config.parent)
    return copy
