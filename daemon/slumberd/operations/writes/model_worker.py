"""Ask language models about pending episodes in the background, so that no firing waits for one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from slumberd.clock import Clock, set_within
from slumberd.consolidation.claim import sources_in_lineage
from slumberd.consolidation.extraction.turns import name_of_speaker
from slumberd.consolidation.protocols import EpisodeLog, Watermarks
from slumberd.model.episode import instant, microseconds
from slumberd.model.errors import (
    BudgetSpentError,
    FilterError,
    ModelRequestError,
    ModelUnavailableError,
)
from slumberd.model.extraction import (
    Extracted,
    Extraction,
    ModelSettings,
    ModelSummariser,
    Question,
    ShownFact,
    Stated,
    SummaryQuestion,
    Turn,
)
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.predicates import names_predicate
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import episode_id_of
from slumberd.workers.language_models.budget import AnswerLog
from slumberd.workers.language_models.recorder import AnswerRecorder, Recording

WINDOW_ROWS = 64
"""Rows of the log whose questions are asked before the rule may fire."""

READ_FACTS = 500
"""So many of the newest facts of a user and agent are looked through for one request."""

POLL_SECONDS = 1.0
"""The pause between two looks for new episodes; a look without any takes some 0.1 ms."""

BACKOFF_SECONDS = (1.0, 5.0, 25.0, 60.0)
"""The pause after the first, second, third, and each further failure in a row."""

LONGEST_PAUSE = 3_600.0
"""The longest pause that a server may ask for."""

_log = structlog.get_logger("slumberd")


class KnownFacts(Protocol):
    """A store of facts that a search reads."""

    async def query(self, pattern: FactPattern) -> list[Fact]:
        """Return the current facts that match a pattern."""
        ...


class _Looked(NamedTuple):
    """What a look at a rule has asked about; the same again has no new questions.

    Attributes:
        after: The rule's watermark.
        newest: All log rows up to this number have answers.
        pending: What their turns assert.
    """

    rule_hash: str
    after: int
    newest: int
    pending: PendingFacts


class ModelWorker:
    """Asks about the pending episodes of each rule, and records the answers.

    Args:
        facts: The current facts, which a question may show.
        watermarks: How far each rule has read.
        recorder: Asks.
        rules: Returns the rules that may be asked about.
        recorded: Called with the id of a rule that may fire now.

    Attributes:
        problem: Why the last attempt failed; empty when it did not.
    """

    def __init__(  # noqa: PLR0913 # one for each part that it joins
        self,
        episodes: EpisodeLog,
        facts: KnownFacts,
        watermarks: Watermarks,
        answers: AnswerLog,
        recorder: AnswerRecorder,
        *,
        rules: Callable[[], Sequence[ConsolidationRule]],
        clock: Clock,
        recorded: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._watermarks = watermarks
        self._answers = answers
        self._recorder = recorder
        self._rules = rules
        self._clock = clock
        self._recorded = recorded
        self._looked: dict[str, _Looked] = {}
        self._summaries: dict[str, tuple[str, list[SummaryQuestion]]] = {}
        self._failures = 0
        self._reported = ""
        self.problem = ""
        self._cleaned_on = ""
        self._alone = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until `stop` is set; a request that is under way ends without its answer."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work(stop))
            await stop.wait()
            work.cancel()

    async def _work(self, stop: asyncio.Event) -> None:
        while not await set_within(stop, await self.turn()):
            pass

    async def turn(self) -> float:
        """Ask about everything that is pending; return the seconds until the next turn."""
        try:
            async with self._alone:
                await self._clean()
                failed = [error for rule in self._rules() if (error := await self._ask(rule))]
        except Exception as error:  # noqa: BLE001 - whatever fails here must not stop the daemon
            return self._report(error)
        if failed:
            return self._report(failed[0])
        self._failures, self._reported, self.problem = 0, "", ""
        return POLL_SECONDS

    async def _ask(self, rule: ConsolidationRule) -> ModelRequestError | FilterError | None:
        """Ask about one rule; return its own failure, which must not stop the other rules."""
        try:
            await self._ask_pending(rule)
            await self._summarise(rule)
        except (ModelRequestError, FilterError) as error:
            return error
        return None

    async def _clean(self) -> None:
        """Remove, once a day, the answers about episodes that their host has deleted."""
        day = self._clock.now().date().isoformat()
        if day != self._cleaned_on:
            await self._answers.remove_orphans()
            self._cleaned_on = day

    async def _ask_pending(self, rule: ConsolidationRule) -> None:
        if rule.extract is None or not rule.extract.asks_model:
            return
        mark = await self._watermarks.position(rule.id)
        if mark is None and rule.start == "now":
            return  # its first firing says where it begins
        after = 0 if mark is None else mark.seq
        newest, stops = (await self._episodes.newest()).seq, self._recorder.stops
        looked = self._looked.get(rule.id)
        if looked is None or looked[:2] != (rule.content_hash, after):
            looked = _Looked(rule.content_hash, after, after, PendingFacts())
        if newest != looked.newest:
            # The rows before have answers. A firing that finds one without lets look again at all.
            self._looked.pop(rule.id, None)
            await self._ask_window_by_window(
                rule, rule.extract, looked.newest, looked.pending, again=False
            )
            if self._recorder.stops == stops:
                self._looked[rule.id] = looked._replace(newest=newest)

    def look_again(self, rule_id: str) -> None:
        """Look for questions of a rule, since a firing found an episode without an answer."""
        self._looked.pop(rule_id, None)

    def ask_for_summaries(
        self, rule: ConsolidationRule, questions: Sequence[SummaryQuestion]
    ) -> None:
        """Remember the summaries that a firing lacks; the next turns ask for them.

        The next firing of the rule lists again those that are not recorded by then.
        """
        self._summaries[rule.id] = rule.content_hash, [*questions]

    def drop_questions(self) -> None:
        """Drop all texts that wait, before an erasure; end what runs before its next call."""
        self._recorder.stop()
        self._summaries.clear()
        self._looked.clear()

    async def _summarise(self, rule: ConsolidationRule) -> None:
        """Ask for the summaries that the last firing of a rule lacked, unless the rule changed."""
        rule_hash, waiting = self._summaries.get(rule.id, ("", []))
        if waiting and rule_hash == rule.content_hash:
            await self._summarise_each(rule, waiting)

    async def _summarise_each(
        self, rule: ConsolidationRule, questions: list[SummaryQuestion]
    ) -> Recording:
        """Ask for summaries, and remove from the list those that are recorded."""
        done = Recording()
        model, stops = rule.summariser, self._recorder.stops
        try:
            while (
                questions and isinstance(model, ModelSummariser) and self._recorder.stops == stops
            ):
                await self._recorder.summarise(model, questions[0], done)
                del questions[0]
        finally:
            if isinstance(model, ModelSummariser):
                self._note(rule, model.model, done)
        return done

    async def summarise_all(
        self, rule: ConsolidationRule, questions: Sequence[SummaryQuestion]
    ) -> Recording:
        """Ask for some summaries of a rule; return what was done.

        Raises:
            LanguageModelError: The model gives no answer; earlier summaries are recorded.
        """
        async with self._alone:
            return await self._summarise_each(rule, [*questions])

    async def ask_all(self, rule: ConsolidationRule, *, again: bool = False) -> Recording:
        """Ask about all episodes of a rule that have no answer; return what was done.

        Args:
            rule: The rule; it asks a language model.
            again: Whether to ask again about episodes whose answer is ``refused`` or ``invalid``.

        Raises:
            LanguageModelError: The model gives no answer; earlier answers are recorded.
            FilterError: The rule's filter must not run, or ran over its time limit.
        """
        if rule.extract is None:
            return Recording()
        async with self._alone:
            return await self._ask_window_by_window(
                rule, rule.extract, 0, PendingFacts(), again=again
            )

    async def _ask_window_by_window(
        self,
        rule: ConsolidationRule,
        extraction: Extraction,
        after: int,
        pending: PendingFacts,
        *,
        again: bool,
    ) -> Recording:
        total, stops = Recording(), self._recorder.stops
        while True:
            found = await self._answers.questions(rule, after=after, limit=WINDOW_ROWS, again=again)
            if found.upto == after or self._recorder.stops != stops:
                return total
            after = found.upto
            pending.add(found.stated)
            if found.questions and extraction.asked is not None:
                _, settings = extraction.asked
                window = Recording()
                try:
                    find_facts = partial(self._find_facts, rule, settings, pending)
                    await self._recorder.record(
                        settings, found.questions, window, find_facts, pending.add_answer
                    )
                finally:
                    total.add_all(window)
                    self._note(rule, settings.model, window)

    async def _find_facts(
        self,
        rule: ConsolidationRule,
        settings: ModelSettings,
        pending: PendingFacts,
        questions: Sequence[Question],
    ) -> list[ShownFact]:
        """Return the facts that some turns of one user and agent may take back."""
        turn = questions[0].turn
        until = instant(max(question.turn.at for question in questions))
        found = [
            fact
            for channel in rule.then_emits
            for fact in await self._facts.query(
                FactPattern(
                    user=turn.user,
                    agent=turn.agent,
                    channel=channel,
                    said_until=until,
                    order="said_at",
                    descending=True,
                    limit=READ_FACTS,
                )
            )
        ]
        return known_facts(found, pending.of(turn.user, turn.agent), settings, questions)

    def _note(self, rule: ConsolidationRule, model: str, done: Recording) -> None:
        """Log what was recorded, and let the rule fire; do nothing without an answer."""
        if not done.statuses:
            return
        statuses = {name: done.statuses[name] for name in ("ok", "refused", "invalid")}
        _log.info(
            "answers.recorded",
            rule_id=rule.id,
            model=model,
            calls=done.calls,
            **statuses,
            triples=done.triples,
            dropped=done.dropped,
            tokens_in=done.tokens_in,
            tokens_out=done.tokens_out,
        )
        self._recorded(rule.id)

    def _report(self, error: Exception) -> float:
        """Log a failure, once until it ends or another one follows; return the pause."""
        pause = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        if isinstance(error, ModelUnavailableError) and error.retry_seconds is not None:
            pause = min(max(pause, error.retry_seconds), LONGEST_PAUSE)
        elif isinstance(error, BudgetSpentError | ModelRequestError | FilterError):
            pause = BACKOFF_SECONDS[-1]
        name = type(error).__name__
        self.problem = f"{name}: {error}"
        if name != self._reported:
            failure = {"error": name, "message": str(error), "retry_seconds": pause}
            if isinstance(error, ModelRequestError):
                _log.error("answers.failed", **failure)
            else:
                _log.warning("answers.waiting", **failure)
        self._reported = name
        return pause


MOST_FACTS = 50
"""The most facts that a request shows."""

MOST_STATED = 100
"""So many of the last statements of a user and agent are kept until a firing promotes them."""

MOST_OWNERS = 200
"""The number of users and agents whose statements are kept."""


class PendingFacts:
    """What turns assert that no firing has promoted yet: the last statements of each owner."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[tuple[str, str], OrderedDict[str, ShownFact]] = OrderedDict()

    def add(self, found: Iterable[Stated]) -> None:
        """Add what turns assert."""
        for user, agent, fact in found:
            self._add((user, agent), fact)

    def add_answer(self, turn: Turn, triples: Sequence[Extracted]) -> None:
        """Add what a language model found in a turn."""
        for number, one in enumerate(triples, 1):
            if one.intent == "add":
                name = f"{turn.id}#{number}"
                said = (one.subject, one.predicate, one.object)
                self._add((turn.user, turn.agent), ShownFact(name, *said, turn.at, (turn.id,)))

    def _add(self, owner: tuple[str, str], fact: ShownFact) -> None:
        facts = self._by_owner.setdefault(owner, OrderedDict())
        facts[fact.name] = fact
        if len(facts) > MOST_STATED:
            facts.popitem(last=False)
        self._by_owner.move_to_end(owner)
        if len(self._by_owner) > MOST_OWNERS:
            self._by_owner.popitem(last=False)

    def of(self, user: str, agent: str) -> list[ShownFact]:
        """Return what the turns of a user and agent assert."""
        return [*self._by_owner.get((user, agent), {}).values()]


def known_facts(
    facts: Iterable[Fact],
    pending: Iterable[ShownFact],
    settings: ModelSettings,
    questions: Sequence[Question],
) -> list[ShownFact]:
    """Return the facts that some turns may take back, the newest first.

    They are about the user, the agent, a speaker, or somebody whom a turn names. Facts that no
    episode stated are left out: nothing that came from elsewhere is sent.

    Args:
        facts: Current facts of the user and agent of the turns.
        pending: What their turns assert that no firing has promoted yet.
        settings: What is asked.
        questions: The turns, of one user, agent and session.
    """
    names = {name for question in questions for name in _names_in(question, settings)}
    texts = [question.turn.content.casefold() for question in questions]
    predicates = frozenset(settings.predicates)
    latest = max(question.turn.at for question in questions)
    by_name = {one.name: one for one in (*_promoted(facts), *pending)}
    found = [
        one
        for one in by_name.values()
        if one.at < latest
        if names_predicate(predicates, one.predicate)
        if _is_of(one.subject, names) or any(one.subject.casefold() in text for text in texts)
    ]
    return sorted(found, key=lambda one: (one.at, one.name), reverse=True)[:MOST_FACTS]


def _promoted(facts: Iterable[Fact]) -> Iterator[ShownFact]:
    """Yield the facts that episodes stated."""
    for fact in facts:
        subject, predicate = fact.payload.get("subject"), fact.payload.get("predicate")
        stated = sources_in_lineage(fact.lineage[:1])
        if isinstance(subject, str) and isinstance(predicate, str) and subject and stated:
            yield ShownFact(
                episode_id_of(fact.id), subject, predicate, fact.payload.get("object"),
                microseconds(fact.said_at), sources_in_lineage(fact.lineage),
            )  # fmt: skip


def _names_in(question: Question, settings: ModelSettings) -> set[str]:
    turns = [turn for turn in (question.turn, question.before) if turn is not None]
    spoken = {name_of_speaker(turn, settings.speakers) for turn in turns}
    return {question.turn.user, question.turn.agent, *spoken} - {""}


def _is_of(subject: str, names: Iterable[str]) -> bool:
    """Return whether a subject is one of some names, or belongs to one: ``ann's sister``."""
    return any(
        subject == name or subject.startswith((f"{name}'s ", f"{name}\u2019s ")) for name in names
    )
