"""An installation of slumberd: configuration, rules, state directory and command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slumberd.cli.environment import RESERVED
from slumberd.model.episode import Episode
from tests.support.cli_runner import called
from tests.support.forked_commands import Process, run_command, start_command
from tests.support.waiting import PATIENCE_SECONDS as PATIENCE_SECONDS
from tests.support.waiting import wait_until as wait_until

RULES = """\
channels:
  facts: {multi_valued: [likes]}
rules:
  - id: profile
    cadence: {every: 1}
    when_filter: "predicate IS NOT NULL"
    then_emits: [facts]
  - id: quiet
    cadence: {cron: "0 3 * * *"}
    when_filter: "predicate = 'never'"
    then_emits: [notes]
"""
CONFIG = "state_dir: state\nrules_dir: rules.d\nlogging: {file: slumberd.log}\n"


class Installation:
    """A configuration with its state directory, and the command to run on it."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "slumberd.yaml"
        self.rules = directory / "rules.d" / "rules.yaml"
        self.state = directory / "state"
        self.rules.parent.mkdir()
        self.rules.write_text(RULES)
        self.config.write_text(CONFIG)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "slumberd", *arguments, "--config", str(self.config)]

    def run(
        self, *arguments: str, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a process of its own; a traceback fails the test."""
        return run_command(self.command(*arguments), environment(environ), stdin)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in this process, which is ten times as quick."""
        return called(*arguments, "--config", str(self.config))

    def look(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call a command that changes nothing."""
        return self.call(*arguments)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the JSON lines that a command prints; it is run as by `look`."""
        done = self.look(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def put(self, *episodes: Episode) -> None:
        file = self.config.with_name("put.jsonl")
        file.write_bytes(jsonl(*episodes))
        assert self.call("import", str(file)).returncode == 0

    @contextmanager
    def daemon(self) -> Iterator[Process]:
        """Run the daemon while the block runs."""
        process = start_command(self.command("run"), environment({}))
        try:
            wait_until(lambda: self.lines("status")[0]["running"])
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask for the block, whatever the launcher of the tests has set."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith("SLUMBERD_")}
    reserved = dict.fromkeys(RESERVED - {"SLUMBERD_DEBUG"}, "is none of the settings")
    return {**ours, **reserved, **extra}


def jsonl(*episodes: Episode) -> bytes:
    return b"".join(episode.model_dump_json().encode() + b"\n" for episode in episodes)
