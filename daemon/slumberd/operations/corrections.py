"""Correct the facts of one user, as a person."""

from __future__ import annotations

from functools import partial

from pydantic import JsonValue

from slumberd.model.errors import MemoryScopeError, NoInputError, UsageError, VersionConflictError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.changes import Operations
from slumberd.operations.edits import PinForm, UnpinForm
from slumberd.operations.facts import version_of
from slumberd.operations.forms import Name, Result, ScopedForm
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.new_episodes import DEFAULT
from slumberd.storage.facts.store import EngineFactStore

_UNKNOWN = "nothing of that id is stored in this scope"


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


class Corrections:
    """Runs requests that correct the facts of one user.

    Args:
        changes: Runs what changes the facts.
    """

    def __init__(self, facts: EngineFactStore, changes: Operations) -> None:
        self._facts = facts
        self._changes = changes

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


def _correction(ids: list[str], answer: Answer) -> Correction:
    return Correction(fact_ids=ids, firing_id=answer["firing_id"], counts=answer["counts"])
