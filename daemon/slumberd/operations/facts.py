"""Read the facts of one user, their history, and correct them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import orjson
from pydantic import Field, JsonValue

from slumberd.consolidation.key_history import ValuePeriod
from slumberd.model.errors import MemoryScopeError, NoInputError, UsageError, VersionConflictError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.pattern import Prefix
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.changes import Operations
from slumberd.operations.edits import PinForm, UnpinForm
from slumberd.operations.example_values import AT, HASH
from slumberd.operations.forms import Instant, Limit, Name, ReadForm, Result, ScopedForm
from slumberd.operations.handlers import Answer
from slumberd.operations.new_episodes import (
    DEFAULT,
)
from slumberd.operations.operation import Example, operation
from slumberd.operations.responses import as_json, fact_document
from slumberd.storage.facts.store import EngineFactStore

_VERSION_CHARACTERS = 16
_UNKNOWN = "nothing of that id is stored in this scope"


FACT: dict[str, Any] = {
    "id": "e1",
    "user": "ana",
    "agent": "desk",
    "payload": {"subject": "ana", "predicate": "lives_in", "object": "Lisbon"},
    "lineage": [{"kind": "episode", "rule_id": "home", "source_episode_ids": ["e1"]}],
    "confidence": 1.0,
    "said_at": AT,
    "pinned_at": AT,
    "metadata": {},
    "version": HASH,
}


PERIOD: dict[str, Any] = {
    "fact_id": "e1",
    "payload": FACT["payload"],
    "begins_at": AT,
    "ends_at": None,
}


class HistoryForm(ReadForm):
    """The request ``history``: the id of a fact, which need not be current.

    Attributes:
        id: The fact.
        limit: At most this many periods of each clock, the latest ones.
    """

    id: Name
    limit: Limit = 100


class Period(Result):
    """A period in which a fact was current.

    Attributes:
        fact_id: The fact.
        payload: ``subject``, ``predicate``, ``object``, and the other fields of the fact.
        begins_at: When it became current.
        ends_at: When it ceased to be current; None when it is current now.
    """

    fact_id: str
    payload: dict[str, Any]
    begins_at: datetime
    ends_at: datetime | None


class FactHistory(Result):
    """Which facts of the same subject and predicate were current, and when.

    Attributes:
        id: The fact.
        user: Whose it is.
        agent: Who knows it.
        payload: What the fact says, or said last.
        valid: What was true, as slumberd knows now; the earliest period first.
        believed: What was known, as the ledger recorded it; the earliest period first.
        cut: Whether there are earlier periods.
    """

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    valid: list[Period]
    believed: list[Period]
    cut: bool


class FactsForm(ReadForm):
    """The request ``facts``: a page of the facts that match.

    Attributes:
        id: Only this fact.
        subject: Only with this subject.
        subject_prefix: Only with a subject that begins with this text.
        predicate: Only with this predicate.
        valid_at: What was true at this instant; by default now.
        believed_at: What was known at this instant; by default now.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    id: Name | None = None
    subject: Name | None = None
    subject_prefix: Name | None = None
    predicate: Name | None = None
    valid_at: Instant | None = None
    believed_at: Instant | None = None
    limit: Limit = 100
    cursor: Annotated[str, Field(max_length=10_000)] | None = None


class CorrectForm(ScopedForm):
    """The request ``correct``: a fact, by its id or by subject and predicate.

    It has either ``object``, the right value, or ``retract``. By subject and predicate it concerns
    every value: the right one replaces them all.

    Attributes:
        fact: The id of a fact.
        subject: What it is about, when no id is given.
        predicate: What it says of it, when no id is given.
        object: The right value; any JSON.
        retract: Whether the fact is wrong, and there is no right value.
        reason: Why; the ledger keeps it.
        if_version: The version of the fact that the author of the correction saw.
        dry_run: Whether nothing is written.
    """

    fact: Name | None = None
    subject: Name | None = None
    predicate: Name | None = None
    object: JsonValue = None
    retract: bool = False
    reason: Name
    if_version: Name | None = None
    dry_run: bool = False


class KnownFact(Result):
    """A current fact.

    Attributes:
        id: Its id.
        user: Whose it is.
        agent: Who knows it.
        payload: ``subject``, ``predicate``, ``object``, and what else the fact holds.
        lineage: Where it comes from.
        confidence: 0 to 1.
        said_at: When it was said.
        pinned_at: When it was promoted.
        metadata: Free form.
        version: Changes whenever the fact changes.
    """

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    lineage: list[dict[str, Any]]
    confidence: float
    said_at: datetime
    pinned_at: datetime
    metadata: dict[str, Any]
    version: str


class FactPage(Result):
    """A page of facts.

    Attributes:
        facts: The facts.
        next: The cursor of the next page; None at the end.
    """

    facts: list[KnownFact]
    next: str | None


class Correction(Result):
    """What a correction changed.

    Attributes:
        fact_ids: The facts that are asserted or retracted.
        firing_id: The firing that the ledger records, which `slumberd undo` takes back; None when
            nothing changed, or for a dry run.
        counts: How many deltas of each kind.
    """

    fact_ids: list[str]
    firing_id: str | None
    counts: dict[str, int]


class FactOperations:
    """Runs requests on the facts of one user.

    Args:
        changes: Runs what changes the facts.
    """

    def __init__(self, facts: EngineFactStore, changes: Operations) -> None:
        self._facts = facts
        self._changes = changes

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example({"predicate": "lives_in", "limit": 10}, {"facts": [FACT], "next": None}),
    )
    async def facts(self, request: FactsForm, caller: Caller) -> FactPage:
        """Return a page of current facts, by id.

        Raises:
            UsageError: The request names both a subject and a prefix of subjects.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        subject, prefix = request.subject, request.subject_prefix
        if subject is not None and prefix is not None:
            raise UsageError("facts: give a subject or a prefix of subjects; not both")
        pattern = FactPattern(
            user=scope.user,
            agent=scope.agent,
            id=request.id,
            subject=subject if prefix is None else Prefix(prefix),
            predicate=request.predicate,
            limit=request.limit,
            after=request.cursor,
        )
        found = await self._facts.query(
            pattern, valid_at=request.valid_at, believed_at=request.believed_at
        )
        full = len(found) == request.limit
        following = pattern.following(found[-1]).after if full else None
        return FactPage(facts=[*map(_known, found)], next=following)

    @operation(
        right=Right.WRITE,
        errors=(MemoryScopeError, NoInputError, VersionConflictError),
        example=Example(
            {"fact": "e1", "object": "Porto", "reason": "it was Porto", "if_version": values.HASH},
            {"fact_ids": ["e1"], "firing_id": "@hand:3", "counts": {"update": 1}},
        ),
    )
    async def correct(self, request: CorrectForm, caller: Caller) -> Correction:
        """Assert the right value of a fact, or retract the fact.

        Raises:
            NoInputError: The scope has no such fact.
            UsageError: The request names no fact, or neither a value nor ``retract``.
            VersionConflictError: The fact is not what the author of the request saw.
        """
        scope = caller.scope(request.user, request.agent)
        if ("object" in request.model_fields_set) == request.retract:
            raise UsageError("correct: give the right object, or retract the fact; not both")
        facts = await self._facts_of(request, scope)
        if request.retract:
            return await self._retract(request, facts, scope, caller)
        return await self._assert(request, facts, scope, caller)

    async def _facts_of(self, request: CorrectForm, scope: ScopeFilter) -> list[Fact]:
        """Return the current facts that a correction names."""
        named = request.subject is not None and request.predicate is not None
        if (request.fact is not None) == named:
            raise UsageError("correct: name a fact by its id, or by subject and predicate")
        pattern = FactPattern(
            user=scope.user,
            agent=scope.agent,
            id=request.fact,
            subject=request.subject,
            predicate=request.predicate,
        )
        found = await self._facts.query(pattern)
        if not found and (request.fact is not None or request.retract):
            raise NoInputError(request.fact or f"{request.subject} {request.predicate}", _UNKNOWN)
        versions = [version_of(fact) for fact in found]
        if request.if_version is not None and versions != [request.if_version]:
            raise VersionConflictError(request.fact or "the fact")
        return found

    async def _retract(
        self, request: CorrectForm, facts: list[Fact], scope: ScopeFilter, caller: Caller
    ) -> Correction:
        ids = [fact.id for fact in facts]
        form = UnpinForm(facts=ids, reason=request.reason, dry_run=request.dry_run)
        check = partial(self._facts_of, request, scope)
        answer = await self._changes.unpin(form, caller, check=check)
        return _correction(ids, answer)

    async def _assert(
        self, request: CorrectForm, facts: list[Fact], scope: ScopeFilter, caller: Caller
    ) -> Correction:
        known = facts[0] if request.fact is not None else None
        payload = known.payload if known else {}
        form = PinForm(
            user=scope.user,
            agent=known.agent if known else scope.agent or DEFAULT,
            subject=request.subject or str(payload.get("subject", "")),
            predicate=request.predicate or str(payload.get("predicate", "")),
            object=request.object,
            reason=request.reason,
            id=known.id if known else None,
            dry_run=request.dry_run,
        )
        # A firing, or another correction, may come first.
        check = partial(self._facts_of, request, scope)
        answer = await self._changes.pin(form, caller, check=check, only=known is None)
        return _correction([answer["fact_id"]], answer)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1"},
            {
                "id": "e1",
                "user": "ana",
                "agent": "desk",
                "payload": FACT["payload"],
                "valid": [PERIOD],
                "believed": [PERIOD],
                "cut": False,
            },
        ),
    )
    async def history(self, request: HistoryForm, caller: Caller) -> FactHistory:
        """Return which facts of the same subject and predicate were current, and when.

        Raises:
            NoInputError: The scope has never had such a fact.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._facts.history(request.id, scope, most=request.limit)
        return FactHistory(
            id=request.id,
            user=found.user,
            agent=found.agent,
            payload={**found.payload},
            valid=_periods(found.valid),
            believed=_periods(found.believed),
            cut=found.cut,
        )


def version_of(fact: Fact) -> str:
    """Return a text that changes whenever a fact changes."""
    document = orjson.dumps(as_json(fact_document(fact)), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(document).hexdigest()[:_VERSION_CHARACTERS]


def _known(fact: Fact) -> KnownFact:
    return KnownFact(**fact_document(fact), version=version_of(fact))


def _correction(ids: list[str], answer: Answer) -> Correction:
    return Correction(fact_ids=ids, firing_id=answer["firing_id"], counts=answer["counts"])


def _periods(periods: Iterable[ValuePeriod]) -> list[Period]:
    return [
        Period(
            fact_id=period.fact_id,
            payload={**period.payload},
            begins_at=period.begins_at,
            ends_at=period.ends_at,
        )
        for period in periods
    ]
