"""Recordings of the JSON that commands print, and how a command's output becomes one.

A recording holds every key and every value. A value that differs from run to run has a name in its
place, as ``<now>`` or ``<run 1>``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from subprocess import CompletedProcess
from typing import Any

from slumberd import __version__
from slumberd.clock import SystemClock
from tests.support.trial_installation import TrialInstallation

VARYING = {
    "bytes", "disk_free_bytes", "gid", "group", "log_bytes", "mode", "pid", "python", "salt",
    "seconds", "sha256", "slumberd", "uid", "uptime_seconds",
}  # fmt: skip
"""Keys whose values differ from run to run; a recording has their type."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_REPLACED = re.compile(r"\.replaced-\d{8}T\d{6}Z")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_WIDTH = 100


class AnswerRecorder:
    """Calls commands on one installation, and records what they print as JSON.

    Attributes:
        site: The installation.
        runs: The ids of the runs that answers have named, the first one first.
        documents: What the last command printed.
        lines: The recording.
    """

    def __init__(self, site: TrialInstallation) -> None:
        self.site = site
        self.runs: list[str] = []
        self.lines: list[str] = []
        self.documents: list[Any] = []
        self._directory = str(site.config.parent)
        self._began = SystemClock().now()

    def __call__(self, *words: str) -> None:
        """Call a command on the installation, and record it."""
        self.record(words, self.site.call(*words))

    def record(self, words: Sequence[str], done: CompletedProcess[str]) -> None:
        """Record the words of a command, what it printed on standard output, and its exit code."""
        self.documents = [json.loads(line) for line in done.stdout.splitlines()]
        for document in self.documents:
            self.runs += dict.fromkeys(run for run in _runs_in(document) if run not in self.runs)
        self.lines.append(self._text(f"$ slumberd {' '.join(words)}"))
        for document in self.documents:
            self.lines += layout(self._recorded(document, ""))
        self.lines += [f"[exit code {done.returncode}]"] if done.returncode else []
        self.lines.append("")

    def record_log(self) -> None:
        """Record the first line of each event that the commands have logged."""
        lines = map(json.loads, (self.site.state / "slumberd.log").read_text().splitlines())
        first: dict[str, Any] = {}
        for line in lines:
            first.setdefault(line["event"], line)
        self.lines.append("The first line of each event in the log:")
        for event in sorted(first):
            self.lines += layout(self._recorded(first[event], ""))

    def _recorded(self, value: Any, key: str) -> Any:
        """Return a value with names in the place of what differs from run to run."""
        match value:
            case dict():
                owner = {"user": "<owner>"} if "uid" in value else {}
                items = (value | owner).items()
                return {self._text(name): self._recorded(each, name) for name, each in items}
            case list():
                return [self._recorded(each, key) for each in value]
            case None | "":
                return value
            case _ if key in VARYING:
                return f"<{type(value).__name__}>"
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        text = text.replace(self._directory, "<directory>")
        text = text.replace(__version__, "<version>")
        text = re.sub(rf"\buid {os.getuid()}\b", "uid <mine>", text)
        text = _REPLACED.sub(".replaced-<now>", text)
        text = _INSTANT.sub(self._instant, _HASH.sub("<hash>", text))
        for number, run in enumerate(self.runs, start=1):
            text = text.replace(run, f"<run {number}>")
        return text

    def _instant(self, found: re.Match[str]) -> str:
        """Return the name of an instant that belongs to this run; other instants as they are."""
        at = datetime.fromisoformat(found[0])
        if at > SystemClock().now():
            return "<later>"
        return "<now>" if at >= self._began.replace(microsecond=0) else found[0]


def _runs_in(value: Any) -> Iterator[str]:
    match value:
        case dict():
            yield from {
                run for name in ("run", "run_id") if isinstance(run := value.get(name), str)
            }
            for each in value.values():
                yield from _runs_in(each)
        case list():
            for each in value:
                yield from _runs_in(each)
        case _:
            pass


def layout(value: Any, before: str = "", after: str = "", indent: str = "") -> list[str]:
    """Return lines of JSON: each value on one line if it fits, else each of its parts."""
    whole = f"{indent}{before}{json.dumps(value, ensure_ascii=False)}{after}"
    if len(whole) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return [whole]
    if isinstance(value, dict):
        parts = [(f"{json.dumps(key)}: ", each) for key, each in value.items()]
    else:
        parts = [("", each) for each in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    lines = [f"{indent}{before}{left}"]
    for number, (name, each) in enumerate(parts, start=1):
        lines += layout(each, name, "," if number < len(parts) else "", f"{indent}  ")
    return [*lines, f"{indent}{right}{after}"]
