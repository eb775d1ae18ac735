"""Change facts by hand: pin, unpin and undo."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from slumberd.consolidation.firing import DryRunBounds
from slumberd.consolidation.manual import Assert, Edit, ManualAssertion, ManualBatch, Retract
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.model.episode import EARLIEST, LATEST, instant
from slumberd.model.errors import MemoryScopeError, NoInputError, UsageError
from slumberd.model.firing import Record
from slumberd.model.scope import FACTS, Scope, channel_of, fact_id_of, validate_scope
from slumberd.operations import example_values as values
from slumberd.operations import forms
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import ChangeForm, ReasonedForm
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.responses import (
    DELTAS,
    Deltas,
    report_undo,
)
from slumberd.operations.writes.rule_runner import ChangeRunner, limit_of, new_run_id, reason_of
from slumberd.rules.validation import NAME
from slumberd.storage.ledger.undo import ByRun, BySince, Undoer, Wanted

Check = Callable[[], Awaitable[object]]
"""Raises an error when a change must not be made after all."""


CalendarInstant = Annotated[int, Field(ge=EARLIEST, le=LATEST)]
"""An instant of the calendar: from the year 1 to the year 9999."""


class UndoForm(ReasonedForm):
    """The request ``undo``: one firing, one run, or the firings of a rule since an instant.

    Attributes:
        firing: One firing.
        run: All firings of this run.
        rule: The firings of this rule since `since`.
        since: In microseconds since 1970 UTC.
    """

    firing: str | None = None
    run: str | None = None
    rule: str | None = None
    since: CalendarInstant | None = None


class PinForm(ChangeForm):
    """The request ``pin``: a fact, whose object is any JSON, and the reason."""

    user: str
    agent: str
    subject: str
    predicate: str
    object: Any = None
    reason: str
    id: str | None = None
    channel: str | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0


class UnpinForm(ChangeForm):
    """The request ``unpin``: the ids of facts, and the reason."""

    facts: Annotated[list[str], Field(min_length=1)]
    reason: str


class Undone(Deltas):
    """What was undone.

    Attributes:
        run: The run that undid it; None when nothing was.
        undone: The firings that are undone.
        firing_ids: The firings that undid them.
        firing_id: The same, when the request names one firing; else absent.
        counts: How many deltas of each kind.
    """

    run: str | None
    undone: list[str]
    firing_ids: list[str]
    firing_id: str | None = None
    counts: dict[str, int]


class Edited(Deltas):
    """What a manual edit changed.

    Attributes:
        firing_id: The firing that the ledger records; None when nothing changed, or for a dry run.
        counts: How many deltas of each kind.
    """

    firing_id: str | None
    counts: dict[str, int]


class Pinned(Edited):
    """What a pin changed: the id of the fact, too."""

    fact_id: str


class Unpinned(Edited):
    """What a retraction changed.

    Attributes:
        not_current: Those of the named facts that were not current.
    """

    not_current: list[str]


class Edits(ChangeRunner):
    """Runs requests of people that change facts."""

    @operation(
        right=Right.OPERATE,
        errors=(MemoryScopeError,),
        example=Example(
            {
                "user": "ana",
                "agent": "desk",
                "subject": "ana",
                "predicate": "lives_in",
                "object": "Porto",
                "reason": "ana said so",
            },
            {"firing_id": "@hand:3", "fact_id": "f1", "counts": {"add": 1}, **DELTAS},
        ),
    )
    async def pin(
        self,
        request: PinForm,
        caller: Caller,
        *,
        check: Check | None = None,
        only: bool = False,
    ) -> Annotated[Answer, Pinned]:
        """Assert a fact as a person, for any user.

        With `only`, it replaces every value of its subject and predicate.
        """
        assertion = assertion_of(request, lineage_entry(request.reason, caller, self._clock.now()))
        edit = Assert(assertion, only=only)
        answer, _ = await self._edit_manually(edit, request, caller, check)
        return {**answer, "fact_id": assertion.fact_id}

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(NoInputError,),
        example=Example(
            {"facts": ["e1"], "reason": "it is wrong"},
            {"firing_id": "@hand:5", "counts": {"add": 1}, "not_current": [], **DELTAS},
        ),
    )
    async def unpin(
        self, request: UnpinForm, caller: Caller, *, check: Check | None = None
    ) -> Annotated[Answer, Unpinned]:
        """Retract facts as a person, of any user."""
        fact_ids = fact_ids_of(request)
        lineage = (lineage_entry(request.reason, caller, self._clock.now()),)
        retract = Retract(fact_ids, lineage, known_only=True)
        answer, records = await self._edit_manually(retract, request, caller, check)
        removed = {fact_id for record in records for fact_id in record.replaces}
        not_current = [fact_id for fact_id in fact_ids if fact_id not in removed]
        return {**answer, "not_current": not_current}

    async def _edit_manually(
        self, edit: Edit, request: forms.ChangeForm, caller: Caller, check: Check | None
    ) -> tuple[Answer, Sequence[Record]]:
        dry_run = request.dry_run
        async with self.turn:
            if check is not None:
                await check()
            outcome = await self._facts.apply_deltas(
                ManualBatch([edit], str(caller)), dry_run=dry_run
            )
            answer = await self.report(outcome, dry_run=dry_run)
        return answer, outcome.records if outcome else ()

    @operation(
        right=Right.OPERATE,
        example=Example(
            {"run": values.RUN},
            {
                "run": "b2c4d6f8a0xy",
                "undone": [values.FIRING],
                "firing_ids": ["@undo:4"],
                "counts": {"delete": 1},
                **DELTAS,
            },
        ),
    )
    async def undo(self, request: UndoForm, caller: Caller) -> Annotated[Answer, Undone]:
        """Undo one firing, the firings of a run, or those of a rule since an instant.

        One transaction undoes all firings that are not undone already.
        """
        dry_run, run = request.dry_run, new_run_id()
        wanted = wanted_firings(request)

        async def undo(bounds: DryRunBounds) -> Answer:
            undoer = Undoer(self._clock.now(), str(caller), run, reason_of(request))
            if not isinstance(wanted, str):
                return await self._undo_each(wanted, undoer, request, bounds)
            outcome = await self._facts.ledger.undo(
                wanted, dry_run=dry_run, cancelled=bounds.cancelled, **undoer._asdict()
            )
            answer = await self.report(outcome, dry_run=dry_run, limit=limit_of(request))
            done = {} if dry_run else {"run": run, "firing_ids": [outcome.firing_id]}
            return {**answer, "run": None, "firing_ids": [], "undone": [wanted], **done}

        return await self.run_change(undo, request)

    async def _undo_each(
        self, wanted: Wanted, undoer: Undoer, request: UndoForm, bounds: DryRunBounds
    ) -> Answer:
        dry_run = request.dry_run
        if not await self._facts.reads.has_any(wanted):
            raise UsageError(describe_unknown(wanted))
        done = await self._facts.ledger.undo_each(
            wanted,
            undoer,
            dry_run=dry_run,
            limit=limit_of(request),
            cancelled=bounds.cancelled,
        )
        if not dry_run:
            await self._consolidator.log_pending_records()
        return report_undo(done, None if dry_run else undoer.run)


def lineage_entry(reason: str, caller: Caller, at: datetime) -> dict[str, Any]:
    """Return the lineage entry of a manual edit: who requests it, when, and the reason.

    The entry belongs to the fact, so an erasure of the fact erases it.

    Raises:
        UsageError: The reason is blank.
    """
    return {
        "kind": "manual",
        "rule_id": MANUAL_RULE_ID,
        "source_episode_ids": [],
        "promotion_ts": at.isoformat(),
        "by": str(caller),
        "pid": caller.pid,
        "reason": _nonblank("reason", reason),
    }


def wanted_firings(request: UndoForm) -> str | Wanted:
    """Return the id of the firing that a request to undo names, or which firings it selects.

    Raises:
        UsageError: It selects no firings, or selects them in several ways.
    """
    if [request.firing, request.run, request.rule].count(None) != 2:
        raise UsageError("name exactly one of: a firing, a run, a rule with --since")
    if request.firing is not None:
        return request.firing
    if request.run is not None:
        return ByRun(_nonblank("run", request.run))
    if request.since is None:
        raise UsageError("a rule is undone from an instant on; name it with --since")
    return BySince(_nonblank("rule", request.rule or ""), instant(request.since))


def describe_unknown(wanted: Wanted) -> str:
    """Return the message for firings that the ledger does not have."""
    match wanted:
        case ByRun(run):
            return f"no run {run!r}; `slumberd audit ls --kind firing` lists them"
        case BySince(rule_id, _):
            return f"rule {rule_id!r} has never fired; `slumberd audit ls --kind firing` lists all"


def assertion_of(request: PinForm, entry: dict[str, Any]) -> ManualAssertion:
    """Return what a request to pin asserts, with its lineage entry.

    Raises:
        UsageError: A text is blank, or the id belongs to another channel.
        MemoryScopeError: The user or the agent cannot be part of a scope.
    """
    user, agent = _nonblank("user", request.user), _nonblank("agent", request.agent)
    validate_scope(Scope(user, "-", agent), operation="pin")
    fact_id = _fact_id(request)
    payload = {
        "id": fact_id,
        "user": user,
        "agent": agent,
        "subject": _nonblank("subject", request.subject),
        "predicate": _nonblank("predicate", request.predicate),
        "object": request.object,
    }
    return ManualAssertion(fact_id, user, agent, payload, request.confidence, (entry,), {})


def fact_ids_of(request: UnpinForm) -> list[str]:
    """Return the ids of the facts that a request to unpin names, each once.

    Raises:
        UsageError: An id is blank.
    """
    return [_nonblank("fact id", fact_id) for fact_id in dict.fromkeys(request.facts)]


def _nonblank(name: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"{name!r} must be a text that is not empty")
    if "\0" in value:
        raise UsageError(f"{name!r} holds a NUL")
    return value


def _fact_id(request: PinForm) -> str:
    """Return the fact's id: the given one, in the given channel, or a new one."""
    channel = FACTS if request.channel is None else _channel(request.channel)
    if request.id is None:
        return fact_id_of(channel, str(uuid.uuid4()))
    given = _nonblank("id", request.id)
    if not given.startswith("@"):
        return fact_id_of(channel, given)
    # An id that `slumberd facts` shows for another channel names that channel itself.
    if request.channel not in (None, channel_of(given)):
        raise UsageError(f"the id {given!r} is not of the channel {channel!r}")
    return given


def _channel(channel: str) -> str:
    _nonblank("channel", channel)
    # A fact's id names its channel up to the first slash, so a slash would name another channel.
    if not re.fullmatch(NAME, channel):
        raise UsageError(f"channel {channel!r} is no name that a rule could emit into")
    return channel
