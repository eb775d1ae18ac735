"""Run the tests of rules on real stores in temporary files, and the tests of patterns."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.extraction.language_model import read_answer
from slumberd.consolidation.extraction.patterns import run_pattern_tests
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import PERSON, Misspelling
from slumberd.model.errors import (
    ConfigurationError,
    ConsolidationRuleError,
    InputError,
    MemoryScopeError,
    Mistake,
)
from slumberd.model.extraction import ModelSettings, Question, RecordedAnswer
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Outcome, Record, Report
from slumberd.model.record import Checkpoint
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import channel_of, episode_id_of
from slumberd.model.stages import MARKS, WEIGHTS
from slumberd.rules.pattern_loader import load_pattern_tests, load_patterns
from slumberd.rules.yaml_reader import read_document
from slumberd.search.embeddings import WordEmbedder
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.tools.rule_testing.comparison import Content, Entry, Line, Part, compare
from slumberd.tools.rule_testing.loader import ENDINGS, FIRST, Step, Trial
from slumberd.workers.language_models.budget import AnswerLog

_BATCH = 8_000
_NEWEST = 2**63 - 1
IN_MEMORY = Path("/dev/shm")  # noqa: S108 # each trial creates a directory in it
"""The file system in memory, on hosts that have one."""

_ANSWERED_ROWS = 500
"""Rows of the log whose questions are answered in one transaction."""

_NO_TRIPLES = '{"triples": []}'
"""The answer about an episode without an entry."""


@dataclass(frozen=True, slots=True)
class StepDifferences:
    """The differences after one step.

    Attributes:
        step: The number of the step, from 1.
        comparisons: The parts that differ, line by line.
        decisions: What each rule did with the episodes whose deltas or facts differ.
        held: The deletion limit that a rule's batch exceeded, by rule id.
    """

    step: int
    comparisons: dict[Part, list[Line]]
    decisions: list[Decision]
    held: dict[str, str]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        findings: The differences of its steps.
        refused: The error that ended the trial early; empty when it finished.
    """

    trial: Trial
    findings: list[StepDifferences]
    refused: str = ""

    @property
    def ok(self) -> bool:
        """Whether the trial finished without differences."""
        return not (self.findings or self.refused)


async def run_trial(
    trial: Trial, in_memory: Path = IN_MEMORY, *, person: Collection[str] = PERSON
) -> TrialResult:
    """Run one trial, on stores of its own.

    Args:
        in_memory: A directory in memory. When it is not writable, the stores are on disk.
        person: The speakers whose words are those of the user.
    """
    findings: list[StepDifferences] = []
    try:
        async with _open_trial(trial, in_memory, person) as run:
            for number, step in enumerate(trial.case.steps, 1):
                finding = await run.run_step(number, step)
                findings += [finding] if finding else []
    except (ConsolidationRuleError, InputError, MemoryScopeError) as error:
        return TrialResult(trial, findings, str(error))
    return TrialResult(trial, findings)


class _StoppedClock:
    """A clock that always returns the same instant; implements `Clock`."""

    def now(self) -> datetime:
        """Return the instant of the first episode."""
        return FIRST

    def monotonic(self) -> float:
        """Return a fixed reading."""
        return 0.0


@dataclass(slots=True)
class _Deltas:
    """Collects committed deltas; implements `DeltaLog`."""

    records: list[Record] = field(default_factory=list)

    def applied(self, records: Sequence[Record]) -> None:
        """Collect the records of deltas."""
        self.records += [record for record in records if record.kind != "firing"]

    def completed(self, outcome: Outcome) -> None:
        """Ignore the counts of a batch."""

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Ignore misspelled keys."""

    def finished(self, report: Report) -> None:
        """Ignore the sum of the batches."""

    def checkpointed(self, head: Checkpoint) -> None:
        """Ignore the head of the ledger."""


_CLOCK = _StoppedClock()


@asynccontextmanager
async def _open_trial(
    trial: Trial, in_memory: Path, person: Collection[str]
) -> AsyncIterator[_TrialRun]:
    """Open empty stores for a trial, set its channels, and fire every rule once."""
    # The files are temporary, and syncing them to a disk would take most of the time.
    place = in_memory if os.access(in_memory, os.W_OK | os.X_OK) else None
    with TemporaryDirectory(prefix="slumberd-test-", dir=place) as name:
        memory = SQLiteMemoryStore(
            Path(name) / "memory.db",
            clock=_CLOCK,
            misspelled=lambda _: None,
            future_tolerance_seconds=math.inf,
            embedding=WordEmbedder,
            person=person,
        )
        facts = SQLiteFactStore(
            Path(name) / "facts.db", synchronous="normal", clock=_CLOCK, comparer=WordEmbedder
        )
        async with memory, facts:
            await memory.bootstrap()
            await facts.bootstrap()
            await facts.ledger.set_channels(trial.rule_set.multi_valued, at=_CLOCK.now())
            run = _TrialRun(trial.rules, memory, facts)
            await run.fire(_CLOCK.now())
            yield run


class _TrialRun:
    """The stores of one trial and its rules; only the deletion limits of the rules apply."""

    def __init__(
        self,
        rules: Sequence[ConsolidationRule],
        memory: EngineMemoryStore,
        facts: EngineFactStore,
    ) -> None:
        self._rules = rules
        self._memory = memory
        self._facts = facts
        self._log = _Deltas()
        self._answers: dict[str, str] = {}
        self._consolidator = Consolidator(memory, facts, self._log, _CLOCK, batch=_BATCH)

    async def fire(self, at: datetime) -> None:
        """Fire every rule at an instant, in order of id."""
        for rule in self._rules:
            await self._consolidator.fire(FireRequest(rule, "manual", at))

    async def run_step(self, number: int, step: Step) -> StepDifferences | None:
        """Put the episodes of a step and fire; return the differences, if there are any."""
        self._log.records.clear()
        await self._memory.put_many(step.episodes)
        self._answers.update(step.answers)
        for rule in self._rules:
            await _record_answers(self._memory.answers, rule, self._answers)
        await self.fire(step.at)
        got = await self._content([episode.id for episode in step.episodes])
        compared = {part: compare(part, want, got[part]) for part, want in step.expected.items()}
        differing = {
            part: lines for part, lines in compared.items() if not all(line.same for line in lines)
        }
        return await self._finding(number, differing) if differing else None

    async def _content(self, episode_ids: Sequence[str]) -> Content:
        deltas = [_delta_entry(record) for record in self._log.records]
        mentioned = {delta["episode"] for delta in deltas} | await self._selected_ids(episode_ids)
        return {
            "deltas": tuple(deltas),
            "filtered": tuple({"episode": id} for id in episode_ids if id not in mentioned),
            "facts": tuple(map(_fact_entry, await self._current_facts())),
        }

    async def _current_facts(self) -> list[Fact]:
        """Return all current facts, marks and weights too."""
        hidden = [await self._facts.query(FactPattern(channel=name)) for name in (MARKS, WEIGHTS)]
        return [*await self._facts.query(FactPattern()), *chain(*hidden)]

    async def _selected_ids(self, episode_ids: Sequence[str]) -> set[str]:
        """Return the episodes that any rule selects."""
        return {
            version.id
            for rule in self._rules
            for version in await self._memory.reread(rule, episode_ids, upto=_NEWEST)
            if version.matched
        }

    async def _finding(self, number: int, comparisons: dict[Part, list[Line]]) -> StepDifferences:
        decisions = [
            decision
            for id in _differing_episodes(comparisons)
            for decision in await self._decisions(id)
        ]
        held = {rule: held.problem for rule, held in (await self._facts.watermarks.held()).items()}
        return StepDifferences(number, comparisons, decisions, held)

    async def _decisions(self, episode_id: str) -> list[Decision]:
        versions = {
            rule.id: version
            for rule in self._rules
            for version in await self._memory.reread(rule, [episode_id], upto=_NEWEST)
        }
        return await self._facts.reads.decisions_of(episode_id, self._rules, versions)


def _differing_episodes(comparisons: dict[Part, list[Line]]) -> list[str]:
    """Return the ids of episodes whose expected deltas or facts differ."""
    named = (_episode_of(line) for lines in comparisons.values() for line in lines if not line.same)
    return [id for id in dict.fromkeys(named) if id]


def _episode_of(line: Line) -> str:
    entry = line.expected or {}
    return str(entry.get("episode", "")) or episode_id_of(str(entry.get("id", "")))


def _delta_entry(record: Record) -> Entry:
    return {
        "episode": record.source_episode_ids[0],
        "rule": record.rule_id,
        "channel": channel_of(record.fact_id),
        "kind": "quarantined" if record.kind == "quarantine" else record.kind,
        "reason": record.reason or None,
        "fact": record.fact_id or None,
        "replaces": sorted(record.replaces),
    }


def _fact_entry(fact: Fact) -> Entry:
    statement = {
        part: fact.payload.get(part) for part in ("subject", "predicate", "object", "content")
    }
    return {
        "id": fact.id,
        "user": fact.user,
        "agent": fact.agent,
        "channel": channel_of(fact.id),
        "confidence": fact.confidence,
        "episodes": sorted(_own_episodes(fact.lineage)),
        **statement,
    }


def _own_episodes(lineage: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the episodes that a fact comes from, each once; entries of older facts have no rule."""
    found = (id for own in lineage if "rule_id" in own for id in own["source_episode_ids"])
    yield from dict.fromkeys(found)


async def _record_answers(
    log: AnswerLog, rule: ConsolidationRule, answers: Mapping[str, str]
) -> None:
    """Answer every open question of a rule; nothing is sent.

    Args:
        rule: The rule. It may ask no language model.
        answers: The answers, as a language model writes them, by the id of the episode.
    """
    if rule.extract is None or rule.extract.asked is None:
        return
    _, settings = rule.extract.asked
    after = 0
    while (found := await log.questions(rule, after=after, limit=_ANSWERED_ROWS)).upto != after:
        after = found.upto
        await log.record([_answered(question, settings, answers) for question in found.questions])


def _answered(
    question: Question, settings: ModelSettings, answers: Mapping[str, str]
) -> RecordedAnswer:
    [found] = read_answer(answers.get(question.turn.id, _NO_TRIPLES), settings, [question])
    return RecordedAnswer(
        key=question.key,
        episode_id=question.turn.id,
        model=settings.model,
        status="ok",
        triples=found.triples,
        dropped=found.dropped,
    )


class PatternTestResult(NamedTuple):
    """The result of one test of patterns.

    Attributes:
        failures: What differs, in words; empty when the test passes.
    """

    file: str
    line: int
    name: str
    failures: Sequence[str]

    @property
    def ok(self) -> bool:
        """Whether the test passes."""
        return not self.failures


def is_pattern_test(file: Path) -> bool:
    """Return whether a test file is beside a pattern file, and not beside a rule file."""
    beside = _pattern_file_of(file)
    value = read_document(beside).value if beside.exists() else None
    return isinstance(value, dict) and "patterns" in value


def run_pattern_files(
    files: Iterable[Path], person: Collection[str] = PERSON
) -> list[PatternTestResult]:
    """Run the tests of test files, in order.

    Args:
        files: The test files.
        person: The speakers whose words are those of the user.

    Raises:
        ConfigurationError: A test file, or the pattern file beside it, has mistakes; the error
            lists those of all files.
    """
    results: list[PatternTestResult] = []
    mistakes: list[Mistake] = []
    for file in files:
        try:
            results += _run_file(file, person)
        except ConfigurationError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigurationError(mistakes)
    return results


def _run_file(file: Path, person: Collection[str]) -> list[PatternTestResult]:
    patterns = load_patterns(_pattern_file_of(file))
    return [
        PatternTestResult(str(file), test.line, test.name, run_pattern_tests(patterns, [test]))
        for test in load_pattern_tests(file, person)
    ]


def _pattern_file_of(file: Path) -> Path:
    ending = next(ending for ending in ENDINGS if file.name.endswith(ending))
    return file.with_name(file.name.removesuffix(ending) + ending.removeprefix(".test"))
