"""An installation on which tests try rules, in this process and without logs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from slumberd.cli.context import settings_of
from slumberd.clock import SystemClock
from slumberd.daemon.one_operation import run_operation
from slumberd.rules.settings import Settings
from tests.support.fakes import FakeLogs
from tests.support.installation import Installation


class TrialInstallation(Installation):
    """A site with the rules of a test, and a directory for others that may take their place."""

    def __init__(self, directory: Path, rules: str) -> None:
        super().__init__(directory)
        self.rules.write_text(rules)
        self.candidate = directory / "new" / "rules.yaml"
        self.candidate.parent.mkdir()
        self.candidate.write_text(rules)

    @property
    def settings(self) -> Settings:
        return settings_of(self.config, None)

    def do(self, operation: str, **request: Any) -> dict[str, Any]:
        """Run an operation as a command does."""
        done = run_operation(
            self.settings, operation, request, clock=SystemClock(), logs=FakeLogs()
        )
        return dict(asyncio.run(done))

    def fire(self) -> None:
        self.do("fire", rules=None)

    def files(self) -> dict[str, str]:
        """Return a hash of every file in the state directory."""
        return {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(self.state.iterdir())
        }

    def against_data(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return what `check --against-data` reports of each rule, by id."""
        done = self.look("check", *arguments, "--against-data", "--json")
        assert done.returncode == 0, done.stderr
        return {result["rule_id"]: result for result in json.loads(done.stdout)["data"]}

    def diff(self, *arguments: str) -> tuple[list[tuple[str, Any, Any]], dict[str, Any]]:
        """Return what `diff` reports: (change, old id, new id) of each fact, and the summary."""
        done = self.look("diff", str(self.candidate.parent), *arguments, "--json")
        assert done.returncode in (0, 1), done.stderr
        *lines, last = map(json.loads, done.stdout.splitlines())
        summary = last["summary"]
        differ = summary["appear"] + summary["change"] + summary["disappear"]
        assert done.returncode == (1 if differ else 0)
        changes = [
            (line["change"], *(side and side["id"] for side in (line["old"], line["new"])))
            for line in lines
        ]
        return changes, summary


def rule(id: str, filter: str = "", *channels: str, **keys: str) -> str:
    """Return one rule as a rule file has it."""
    fields = {"cadence": "{every: 1}", "when_filter": json.dumps(filter)}
    fields |= {"then_emits": f"[{', '.join(channels or ('facts',))}]", **keys}
    return f"  - id: {id}\n" + "".join(f"    {key}: {value}\n" for key, value in fields.items())


def rules(*texts: str, multi_valued: str = "") -> str:
    """Return a rule file."""
    channels = f"channels:\n  facts: {{multi_valued: [{multi_valued}]}}\n" if multi_valued else ""
    return f"{channels}rules:\n" + "".join(texts) if texts else f"{channels}rules: []\n"
