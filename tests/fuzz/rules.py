"""Fuzz the loader of rule files: any text gives a set of rules, or mistakes with lines."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from slumberd.model.errors import ConfigurationError, Mistake
from slumberd.model.rule import Every, cadence_of
from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.rule_loader import RuleSet, load_rule_files
from slumberd.workers.scheduling import cron
from tests.fuzz.targets import Finding
from tests.support.repository import ROOT

SECONDS = 2.0
"""Limit of processor time for one file of at most a few KiB."""
MOST_BYTES = 64 * 1024 * 1024

_SHIPPED = ROOT / "rules"
_TEXTS = (
    b"rules: []", b"", b"rules:", b"rules: {}", b"- a", b"rules: [{id: a}]", b"\xff\xfe",
    b"rules: &a [*a]", b"rules: !!python/object:os.system {}", b"a: b: c", b"? a\n: b", b"\t",
    b"rules:\n- {id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]}",
    b"rules:\n- {id: a, cadence: {cron: '0 3 * * *'}, when_filter: '1 =', then_emits: [x]}",
    b"channels: {facts: {multi_valued: [likes]}}\nrules: []", b"rules: " + b"[" * 50,
    b"rules:\n- id: a\n  id: b\n  cadence: {every: 0300}\n", b"<<: {a: 1}", b"a: 'x\n\n b'",
    b"rules:\n- id: a\n  cadence: {every: 1e18, cron: x, timezone: Mars}\n  when_filter: >\n    1",
)  # fmt: skip


class RuleTarget:
    """Loads each text as the one file of a directory."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slumberd-fuzz-")
        self._file = Path(self._folder.name) / "fuzz.yaml"

    def close(self) -> None:
        self._folder.cleanup()

    def seeds(self) -> Iterator[bytes]:
        yield from _TEXTS
        yield from (file.read_bytes() for file in sorted(_SHIPPED.glob("*.yaml")))

    def words(self) -> Iterator[str]:
        yield from (
            "rules:",
            "- id: ",
            "cadence: {",
            "every: ",
            "cron: ",
            "timezone: ",
            "enabled: ",
        )
        yield from ("when_filter: ", "then_emits: [", "channels:", "multi_valued: [", "limits: {")
        yield from ("on_missed: ", "timeout: ", "start: now", "&a ", "*a", "!!str ", "<<: ", "---")

    def run_once(self, given: bytes) -> None:
        self._file.write_bytes(given)
        began = time.thread_time()
        try:
            found = self.load()
        except ConfigurationError as error:
            self._check_mistakes(given, error.mistakes)
        else:
            self._check_rules(given, found)
        took = time.thread_time() - began
        if took > SECONDS:
            raise Finding(f"took {took:.1f} s")

    def load(self) -> RuleSet:
        """Load the file."""
        return load_rule_files(
            [self._file], check_filter=check_filter, check_cron=cron.check, timezone="UTC",
            by_root=False,
        )  # fmt: skip

    def _check_mistakes(self, given: bytes, mistakes: tuple[Mistake, ...] | list[Mistake]) -> None:
        lines = given.count(b"\n") + given.count(b"\r") + _other_ends(given) + 1
        if not mistakes or len(set(mistakes)) != len(mistakes):
            raise Finding(f"no mistake, or one twice: {mistakes}")
        for mistake in mistakes:
            if (
                not mistake.problem
                or not mistake.problem.isprintable()
                or not 0 <= mistake.line <= lines
            ):
                raise Finding(f"a mistake without a line or a readable message: {mistake}")

    def _check_rules(self, given: bytes, found: RuleSet) -> None:
        """Check that the rules are those that PyYAML reads."""
        document = yaml.safe_load(given.decode("utf-8-sig"))
        ids = sorted(rule["id"] for rule in (document or {}).get("rules") or [])
        if [rule.id for rule in found.rules] != ids or len(set(ids)) != len(ids):
            raise Finding(f"rules {[rule.id for rule in found.rules]} of {ids}")
        for rule in found.rules:
            cadence = cadence_of(rule.cadence)
            if isinstance(cadence, Every) and cadence.count < 1:
                raise Finding(f"a rule that is always due: {rule}")
            check_filter(rule.id, rule.when_filter)
        if self.load().content_hash != found.content_hash:
            raise Finding("it says something else when it is read again")


def _other_ends(given: bytes) -> int:
    return sum(given.count(end) for end in (b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"))


def peak(target: RuleTarget, given: bytes) -> int:
    """Return how many bytes an input takes at most; slow, so not part of each try."""
    tracemalloc.start()
    try:
        target.run_once(given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
