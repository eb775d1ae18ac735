"""Recordings of what commands print, as JSON or for people, and how output becomes a recording.

A recording holds every key and every value. A value that differs from run to run has a name in its
place, as ``<now>`` or ``<run 1>``. In what people read, several spaces become two, because the
width of a column depends on such values.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from subprocess import CompletedProcess
from typing import Any, Literal

from slumberd import __version__
from slumberd.clock import SystemClock
from tests.support.trial_installation import TrialInstallation

VARYING = {
    "bytes", "disk_free_bytes", "free_seconds", "gid", "group", "held_seconds", "log_bytes", "mode",
    "pid", "plan", "python", "salt", "seconds", "server", "sha256", "slumberd", "uid",
    "unnumbered_seconds", "uptime_seconds",
}  # fmt: skip
"""Keys whose values differ from run to run; a recording has their type."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_REPLACED = re.compile(r"\.replaced-\d{8}T\d{6}Z")
_HASH = re.compile(r"\b[0-9a-f]{64}\b|(?<=head )[0-9a-f]{16}\b")
_DAY_AND_TIME = re.compile(r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d\d:\d\d")
_COUNTS = re.compile(r'[\d,]+(?= MB free)|(?<=\bpid )\d+|(?<="pid":)\d+')
_OF_A_DATABASE = re.compile(r"(?<=: PostgreSQL )[\d.]+, [\d,]+ MB|(?<=since )\d+(?= s$)")
_PERHAPS_RUN = re.compile(r"\b[a-z0-9]{12}\b")
_SPACES = re.compile(r" {2,}")
_WIDTH = 100

Form = Literal["json", "text"]
"""What is recorded: the JSON, or the text for people."""


class AnswerRecorder:
    """Calls commands on one installation, and records what they print.

    Args:
        names: Names for further texts that differ from run to run.

    Attributes:
        site: The installation.
        form: What is recorded.
        runs: The ids of the runs that answers have named, the first one first.
        lines: The recording.
    """

    def __init__(
        self, site: TrialInstallation, form: Form, names: Mapping[str, str] | None = None
    ) -> None:
        self.site = site
        self.form = form
        self.runs: list[str] = []
        self.lines: list[str] = []
        self._names = {**(names or {}), str(site.config.parent): "<directory>"}
        self._began = SystemClock().now()

    def __call__(self, *words: str) -> None:
        """Call a command on the installation, with ``--json`` if JSON is recorded."""
        words = (*words, "--json") if self.form == "json" else words
        done = self.site.call(*words)
        if self.form == "text" and _PERHAPS_RUN.search(done.stdout):
            listed = self.site.call("audit", "ls", "--json").stdout
            self._note_runs([json.loads(line) for line in listed.splitlines()])
        self.record(words, done, self.form)

    def record(self, words: Sequence[str], done: CompletedProcess[str], form: Form) -> None:
        """Record the words of a command, what it printed in a form, and its exit code."""
        if form == "json":
            printed = self._documents(done.stdout)
        else:
            printed = [_SPACES.sub("  ", self._text(line)) for line in _lines_of(done)]
        self.lines.append(self._text(f"$ slumberd {' '.join(words)}"))
        self.lines += printed
        self.lines += [f"[exit code {done.returncode}]"] if done.returncode else []
        self.lines.append("")

    def _documents(self, printed: str) -> list[str]:
        documents = [json.loads(line) for line in printed.splitlines()]
        self._note_runs(documents)
        return [line for each in documents for line in layout(self._recorded(each, ""))]

    def _note_runs(self, documents: Any) -> None:
        self.runs += dict.fromkeys(
            run for run in _runs_in(documents) if run not in (*self.runs, "")
        )

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
        for long, short in self._names.items():
            text = text.replace(long, short)
        text = text.replace(__version__, "<version>")
        text = re.sub(rf"\buid {os.getuid()}\b", "uid <mine>", text)
        text = _REPLACED.sub(".replaced-<now>", text)
        text = _OF_A_DATABASE.sub("<int>", text)
        text = _COUNTS.sub("<int>", _DAY_AND_TIME.sub("<later>", text))
        text = _INSTANT.sub(self._instant, _HASH.sub("<hash>", text))
        for number, run in enumerate(self.runs, start=1):
            text = text.replace(run, f"<run {number}>")
        return text

    def _instant(self, found: re.Match[str]) -> str:
        """Return a name for an instant of this run, with its zone; other instants as they are."""
        at = datetime.fromisoformat(found[0])
        if at > SystemClock().now():
            return "<later>"
        return f"<now>{found[2]}" if at >= self._began.replace(microsecond=0) else found[0]


def _lines_of(done: CompletedProcess[str]) -> list[str]:
    """Return what a person reads: the answer, and then the lines on standard error."""
    errors = [f"[error] {line}" for line in done.stderr.splitlines()]
    return [line.rstrip() for line in (*done.stdout.rstrip("\n").splitlines(), *errors)]


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
