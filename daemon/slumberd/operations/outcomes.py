"""Explain facts, and what became of episodes; wait until rules have evaluated one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from slumberd.clock import Clock, CommitSignal
from slumberd.model.errors import MemoryScopeError, NoInputError
from slumberd.model.fact import FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller, Right
from slumberd.operations.change_report import is_of
from slumberd.operations.forms import (
    Name,
    OperatorForm,
    ReadForm,
    Result,
    reading_scope,
    singular_kind,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.reads.episode_results import NO_RULE, Became, ResultOfRule, best_of
from slumberd.operations.reads.explainer import (
    EpisodeOutcome,
    ExplainedEpisode,
    explain_fact,
    read_outcome,
    read_results,
)
from slumberd.operations.reads.explanations import ExplainedFact
from slumberd.operations.responses import as_json
from slumberd.operations.stores import Stores, StoresThere
from slumberd.search.hits import Kind

if TYPE_CHECKING:  # a command that explains a fact needs no rules
    from slumberd.rules.rule_loader import RuleSet

_NEITHER = "neither the episodes nor the ledger of this scope have it"


OUTCOME: dict[str, Any] = {
    "rule_id": "home",
    "channel": "facts",
    "outcome": "add",
    "reason": "",
    "fact_id": "e1",
    "current": True,
    "would_change": "",
}


RESULT: dict[str, Any] = {
    "became": "learned",
    "sentence": "learned: ana lives_in Lisbon",
    "results": [
        {
            "rule_id": "home",
            "channel": "facts",
            "became": "learned",
            "sentence": "learned: ana lives_in Lisbon",
            "facts": [
                {
                    "id": "e1",
                    "subject": "ana",
                    "predicate": "lives_in",
                    "object": "Lisbon",
                    "became": "learned",
                    "current": True,
                }
            ],
        }
    ],
}


class ExplainForm(ReadForm, OperatorForm):
    """The request ``explain``: the id of a fact or of an episode.

    Attributes:
        id: The fact or the episode.
        kind: What it is: most facts have the id of their episode. By default a fact that is
            current, else an episode; ``fact`` also explains a fact that is not current any more.
        content: Whether to include the texts of the episodes.
    """

    id: Name
    kind: Annotated[Kind | None, BeforeValidator(singular_kind)] = None
    content: bool = True


class OutcomeForm(ReadForm):
    """The request ``outcome``: the id of an episode, and how long to wait for it, in seconds."""

    id: Name
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class RuleOutcome(Result):
    """What became of an episode under one rule, in one channel.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        outcome: Such as ``add``, ``pending``, ``filtered`` or ``quarantined``.
        reason: Why.
        fact_id: The fact that it may have made.
        current: Whether that fact is current.
        would_change: What would change the outcome.
    """

    rule_id: str
    channel: str
    outcome: str
    reason: str
    fact_id: str
    current: bool
    would_change: str


class Outcome(Result):
    """What became of an episode.

    Attributes:
        id: The episode.
        settled: Whether every enabled rule has evaluated its newest version.
        rules: By rule, channel and fact.
        became: What became of it, in one word: the one of `results` that says most; ``skipped``
            when no rule reads episodes.
        sentence: The same in a sentence.
        results: By rule and channel.
    """

    id: str
    settled: bool
    rules: list[RuleOutcome]
    became: Became = "skipped"
    sentence: str = NO_RULE
    results: list[ResultOfRule] = []  # noqa: RUF012 # pydantic copies it


class Explained(Result):
    """Why a fact is current, or what became of an episode.

    Attributes:
        id: The fact or the episode.
        kind: What it is.
        explanation: As `slumberd why --json` and `slumberd why-not --json` print it.
    """

    id: str
    kind: Kind
    explanation: dict[str, Any]


class Explanation(NamedTuple):
    """Why a fact is current, or what became of an episode; interfaces get it as `Explained`.

    Attributes:
        id: The fact or the episode.
        kind: What it is.
        about: The explanation.
    """

    id: str
    kind: Kind
    about: ExplainedFact | EpisodeOutcome

    def document(self) -> Answer:
        """Return the JSON form."""
        explanation = as_json(self.about.document())
        return {"id": self.id, "kind": self.kind, "explanation": explanation}


class Outcomes:
    """Runs requests for what became of episodes, and why facts are current.

    Args:
        stores: The open stores.
        rules: Returns the rules that may fire.
        tolerance: How far ahead of the clock a timestamp may be.
        commits: Tells when something was committed.
        paused: Returns the ids of the paused rules.
    """

    def __init__(
        self,
        stores: Stores | StoresThere,
        *,
        rules: Callable[[], RuleSet],
        clock: Clock,
        tolerance: timedelta,
        commits: CommitSignal,
        paused: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._memory, self._facts = stores.memory, stores.facts
        self._rules = rules
        self._clock = clock
        self._tolerance = tolerance
        self._commits = commits
        self._paused = paused

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1"}, {"id": "e1", "kind": "fact", "explanation": {"id": "e1", "current": True}}
        ),
    )
    async def explain(
        self, request: ExplainForm, caller: Caller
    ) -> Annotated[Explanation, Explained]:
        """Explain why a fact is current, or what became of an episode.

        An operator who names no user may ask about every user.

        Raises:
            NoInputError: The scope has neither a fact nor an episode of that id.
        """
        scope, kind = reading_scope(request, caller), request.kind
        if kind is None:
            kind = "fact" if await self._is_current(request.id, scope) else "episode"
        if kind == "fact":
            fact = await self._explain_fact(request.id, scope, content=request.content)
            return Explanation(request.id, kind, fact)
        return Explanation(request.id, kind, await self._explain_episode(request.id, scope))

    async def _is_current(self, id: str, scope: ScopeFilter | None) -> bool:
        """Return whether a scope, or any user without a scope, has a current fact of an id."""
        owner = {} if scope is None else {"user": scope.user, "agent": scope.agent}
        facts = self._facts
        return facts is not None and bool(await facts.query(FactPattern(id=id, **owner)))

    async def _explain_fact(
        self, id: str, scope: ScopeFilter | None, *, content: bool
    ) -> ExplainedFact:
        """Explain a fact; one that is not current any more must always have been of the scope."""
        if self._facts is None:
            raise NoInputError(id, "there are no facts yet")
        current = scope is not None and await self._is_current(id, scope)
        with _one_text(id, scope):
            found = await explain_fact(self._facts, self._memory, id, content=content, scope=scope)
        if scope is not None and not current and not _was_of(found, scope):
            raise NoInputError(id, _NEITHER)
        return found

    async def _explain_episode(self, id: str, scope: ScopeFilter | None) -> EpisodeOutcome:
        rules, found = await self.read(id, scope)
        results = await read_results(self._memory, self._facts, rules, found, self._paused())
        remedies = found.remedies(rules, self._clock.now() + self._tolerance)
        pairs = [*zip(found.decisions, remedies, strict=True)]
        return EpisodeOutcome(id, found.version, pairs, results)

    async def read(
        self, id: str, scope: ScopeFilter | None
    ) -> tuple[list[ConsolidationRule], ExplainedEpisode]:
        """Return the rules in force, and the outcome of an episode of a scope under each of them.

        Args:
            scope: None for the scopes of all users.

        Raises:
            NoInputError: The scope has no such episode.
        """
        rules = [*self._rules().of_episodes().rules]
        with _one_text(id, scope):
            found = await read_outcome(self._memory, self._facts, rules, id)
        if scope is not None and not scope.holds(found.version):
            raise NoInputError(id, _NEITHER)
        return rules, found

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1", "seconds": 5.0},
            {"id": "e1", "settled": True, "rules": [OUTCOME], **RESULT},
        ),
    )
    async def outcome(self, request: OutcomeForm, caller: Caller) -> Outcome:
        """Wait until every enabled rule has evaluated an episode; return what became of it.

        Raises:
            NoInputError: The scope has no such episode.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        rules, found = await self.wait(request.id, scope, request.seconds)
        return await self.describe(request.id, rules, found)

    async def wait(
        self, id: str, scope: ScopeFilter, seconds: float, among: Collection[str] | None = None
    ) -> tuple[list[ConsolidationRule], ExplainedEpisode]:
        """Wait until enabled rules have evaluated an episode; return the rules and its outcome.

        Args:
            id: The episode.
            seconds: The longest wait.
            among: The ids of the rules that are waited for; None for all.
        """
        committed = self._commits.next
        rules, found = await self.read(id, scope)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while _is_pending(found, rules, among):
                    await committed.wait()
                    committed = self._commits.next
                    rules, found = await self.read(id, scope)
        return rules, found

    async def describe(
        self, id: str, rules: Sequence[ConsolidationRule], found: ExplainedEpisode
    ) -> Outcome:
        """Return what became of an episode, in words and by rule."""
        results = await read_results(self._memory, self._facts, rules, found, self._paused())
        remedies = found.remedies(rules, self._clock.now() + self._tolerance)
        best = best_of(results)
        return Outcome(
            id=id,
            settled=not _is_pending(found, rules),
            rules=[
                RuleOutcome(
                    rule_id=decision.rule_id,
                    channel=decision.channel,
                    outcome=decision.outcome,
                    reason=decision.reason,
                    fact_id=decision.fact_id,
                    current=decision.is_current,
                    would_change=remedy,
                )
                for decision, remedy in zip(found.decisions, remedies, strict=True)
            ],
            **({"became": best.became, "sentence": best.sentence} if best else {}),
            results=results,
        )


def _is_pending(
    found: ExplainedEpisode,
    rules: Sequence[ConsolidationRule],
    among: Collection[str] | None = None,
) -> bool:
    """Return whether an enabled rule has not evaluated the newest version of an episode.

    Args:
        found: The outcome of the episode.
        among: Only the rules of these ids count; None for all.
    """
    enabled = {rule.id for rule in rules if rule.enabled and (among is None or rule.id in among)}
    return any(one.outcome == "pending" and one.rule_id in enabled for one in found.decisions)


@contextmanager
def _one_text(id: str, scope: ScopeFilter | None) -> Iterator[None]:
    """Say of an id that nobody has what is said of another scope's."""
    try:
        yield
    except NoInputError:
        if scope is None:
            raise
        raise NoInputError(id, _NEITHER) from None


def _was_of(fact: ExplainedFact, scope: ScopeFilter) -> bool:
    """Return whether a fact was of a scope, and no other owner had its id or its key."""
    explanation = fact.explanation
    asserting = [found.row.record for found in explanation.assertions]
    others = [change.row.record for change in explanation.history]
    others += [row.record for row in explanation.replacing]
    # The owner of an erased row is not known; the row says nothing any more.
    named = [row for row in [*asserting, *others] if row.user]
    return any(is_of(row, scope) for row in asserting) and all(is_of(row, scope) for row in named)
