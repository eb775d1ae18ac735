"""Read the ledger for callers: its rows, its firings, and the batches that wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field

from slumberd.clock import CommitSignal
from slumberd.model.episode import microseconds
from slumberd.model.errors import MemoryScopeError, NoInputError
from slumberd.model.firing import Kind as RowKind
from slumberd.model.firing import Record
from slumberd.model.record import FiringPlace, RecordedFiring
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.change_report import is_of
from slumberd.operations.example_values import AT, FIRING
from slumberd.operations.forms import (
    Instant,
    Limit,
    Name,
    OperatorForm,
    Result,
    ScopedForm,
    reading_scope,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.storage.facts.store import EngineFactStore

_DIGITS = 18


_LARGEST = 10**_DIGITS - 1


Cursor = Annotated[str, Field(pattern=rf"^[0-9]{{1,{_DIGITS}}}\.[0-9]{{1,{_DIGITS}}}$")]
"""The text of a `FiringCursor`."""


CHANGE: dict[str, Any] = {
    "seq": 2,
    "at": AT,
    "kind": "add",
    "firing_id": FIRING,
    "rule_id": "home",
    "fact_id": "e1",
    "replaces": [],
    "episode_ids": ["e1"],
    "reason": "",
    "confidence": 1.0,
    "user": "ana",
    "agent": "desk",
}


class ChangesForm(ScopedForm, OperatorForm):
    """The request ``changes``: rows of the ledger, oldest first.

    Attributes:
        after: Only rows after this number.
        newest: Only among so many of the newest rows of the ledger; None for all.
        kinds: Only rows of these kinds; None for all.
        rule: Only rows of this rule; manual edits have the rule ``@manual``.
        fact: Only rows about this fact.
        run: Only rows of the firings of this run.
        limit: At most this many rows are looked at.
        seconds: How long to wait for a row, when there is none.
    """

    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    newest: Annotated[int, Field(ge=1, le=2**62)] | None = None
    kinds: list[RowKind] | None = None
    rule: Name | None = None
    fact: Name | None = None
    run: Name | None = None
    limit: Limit = 100
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0

    def selects(self, row: Record) -> bool:
        """Return whether a row is wanted, whoever's it is."""
        return (
            (self.kinds is None or row.kind in self.kinds)
            and self.rule in (None, row.rule_id)
            and self.fact in (None, row.fact_id)
            and self.run in (None, row.run)
        )


class HeldForm(OperatorForm):
    """The request ``held``: the batches that await approval."""


class Change(Result):
    """One row of the ledger.

    Attributes:
        seq: Its number.
        at: When.
        kind: What it did, or ``firing``.
        firing_id: The firing.
        rule_id: The rule.
        fact_id: The fact; empty for a firing.
        replaces: The facts that it removed.
        episode_ids: The episodes that it comes from.
        reason: Why it changed nothing, if so.
        confidence: 0 to 1.
        user: Whose it is; empty when it is not known any more.
        agent: Who knows it; empty as `user`.
    """

    seq: int
    at: datetime
    kind: str
    firing_id: str
    rule_id: str
    fact_id: str
    replaces: list[str]
    episode_ids: list[str]
    reason: str
    confidence: float
    user: str
    agent: str


class ChangePage(Result):
    """Rows of the ledger.

    Attributes:
        changes: The rows, oldest first.
        last: The number to go on after.
        more: Whether there are more rows after it now.
    """

    changes: list[Change]
    last: int
    more: bool


class RecordPage(NamedTuple):
    """Rows of the ledger, which interfaces get as a `ChangePage`.

    Attributes:
        rows: The rows, oldest first.
        last: The number to go on after.
        more: Whether there are more rows after it now.
    """

    rows: list[Record]
    last: int
    more: bool

    def document(self) -> Answer:
        """Return the JSON form."""
        changes = [_change_of(row) for row in self.rows]
        return ChangePage(changes=changes, last=self.last, more=self.more).document()


class Held(Result):
    """A batch that awaits approval."""

    firing_id: str
    rule_id: str
    problem: str
    approved: bool


class HeldList(Result):
    """The batches that await approval."""

    held: list[Held]


class FiringCursor(NamedTuple):
    """A place between two firings, which are in the order of these fields.

    Attributes:
        at: The instant of a firing, microseconds since 1970 UTC.
        number: Its number in the ledger.
    """

    at: int
    number: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor that a text of the form `Cursor` says."""
        return cls(*map(int, text.split(".")))

    @classmethod
    def after(cls, at: datetime, number: int) -> Self:
        """Return the place after a firing, when the newest comes first."""
        return cls(microseconds(at), number)

    def __str__(self) -> str:
        """Return the text of the form `Cursor`."""
        return ".".join(map(str, self))

    @property
    def place(self) -> FiringPlace:
        """The place in the ledger."""
        return FiringPlace(self.number, self.at)


NEWEST = FiringPlace(_LARGEST, _LARGEST)
"""The place before the newest firing."""


class FiringsForm(OperatorForm):
    """The request ``firings``: a page of firings, newest first.

    Attributes:
        firing: Only this firing.
        rule: Only firings of this rule.
        run: Only firings of this run.
        before: The place where the page before ended.
        since: Only firings from this instant on.
        limit: At most this many.
    """

    firing: Name | None = None
    rule: Name | None = None
    run: Name | None = None
    before: Cursor | None = None
    since: Instant | None = None
    limit: Limit = 50

    @property
    def place(self) -> FiringPlace:
        """The place to begin at; that of an id of no firing is before all firings."""
        if self.firing is not None:
            number = self.firing.rpartition("@")[2]
            is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
            return FiringPlace(int(number) + 1 if is_number else 0, _LARGEST)
        return NEWEST if self.before is None else FiringCursor.read(self.before).place


class DeltasForm(ScopedForm, OperatorForm):
    """The request ``deltas``: the rows of the ledger that one firing wrote.

    Attributes:
        firing: The firing.
        after: Only rows after this number.
        limit: At most this many rows are read.
    """

    firing: Name
    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Limit = 100


class FiringCounts(Result):
    """What became of the episode versions that a firing read, in all channels together.

    Attributes:
        read: Versions of episodes.
        filtered: Versions that the rule does not select.
        added: New facts.
        updated: Facts that replaced others.
        deleted: Facts that were removed.
        noop: Versions that changed nothing.
        quarantined: Versions that could not be read.
        restored: Facts that are current again, because another was withdrawn.
    """

    read: int
    filtered: int
    added: int
    updated: int
    deleted: int
    noop: int
    quarantined: int
    restored: int


class KnownFiring(Result):
    """A firing.

    Attributes:
        seq: The number of its own row in the ledger.
        firing_id: Its id.
        rule_id: The rule; edits, undos and erasures have ids that begin with ``@``.
        at: When.
        trigger: What started it, such as ``cron`` or ``manual``.
        by: Who requested it; empty for a cadence.
        reason: Why it was requested; empty when no reason was given.
        counts: What it did.
        run: The run that it belongs to; None without one.
        undone_by: The firing that undid it; None when it is not undone now.
        undoes: The firing that it undoes; None when it is no undo.
    """

    seq: int
    firing_id: str
    rule_id: str
    at: datetime
    trigger: str
    by: str
    reason: str
    counts: FiringCounts
    run: str | None
    undone_by: str | None
    undoes: str | None


class FiringPage(Result):
    """A page of firings.

    Attributes:
        firings: The firings, newest first.
        next: The cursor of the next page; None at the end.
    """

    firings: list[KnownFiring]
    next: str | None


class LedgerReads:
    """Runs requests that read the ledger.

    Args:
        commits: Tells when something was committed.
    """

    def __init__(self, facts: EngineFactStore, commits: CommitSignal) -> None:
        self._facts = facts
        self._commits = commits

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"after": 0, "limit": 1},
            {
                "changes": [CHANGE],
                "last": 2,
                "more": False,
            },
        ),
    )
    async def changes(
        self, request: ChangesForm, caller: Caller
    ) -> Annotated[RecordPage, ChangePage]:
        """Return rows of the ledger after a number; wait for one when there is none.

        A caller that may name one user only gets no rows of others, and no firings.
        """
        scope = reading_scope(request, caller)
        committed = self._commits.next
        page = await self._page(request, scope)
        with suppress(TimeoutError):
            async with asyncio.timeout(request.seconds):
                while not (page.rows or page.more):
                    await committed.wait()
                    committed = self._commits.next
                    page = await self._page(request, scope)
        return page

    async def _page(self, request: ChangesForm, scope: ScopeFilter | None) -> RecordPage:
        reads, after = self._facts.reads, request.after
        if request.newest is not None:
            after = max(after, await reads.ledger_rows() - request.newest)
        rows = await reads.records(after=after, limit=request.limit)
        return RecordPage(
            [row for row in rows if request.selects(row) and (scope is None or is_of(row, scope))],
            last=rows[-1].seq if rows else after,
            more=len(rows) == request.limit,
        )

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"rule": "home", "limit": 1},
            {
                "firings": [
                    {
                        "seq": 1,
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "at": values.AT,
                        "trigger": "manual",
                        "by": "uid 1000",
                        "reason": "after the import",
                        "counts": values.COUNTS,
                        "run": values.RUN,
                        "undone_by": "@undo@4",
                        "undoes": None,
                    }
                ],
                "next": "1772366400000000.0.1",
            },
        ),
    )
    async def firings(self, request: FiringsForm, _: Caller) -> FiringPage:
        """Return a page of firings, newest first, with what each did and what undid it."""
        found = await self._facts.reads.firings(
            request.place,
            rule_id=request.rule,
            run=request.run,
            since=request.since,
            limit=request.limit + 1,
        )
        if request.firing is not None:
            found = [each for each in found[:1] if each.firing_id == request.firing]
        page = found[: request.limit]
        last = page[-1] if len(found) > len(page) else None
        return FiringPage(
            firings=[_known_firing(each) for each in page],
            next=None if last is None else str(FiringCursor.after(last.at, last.number)),
        )

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"firing": values.FIRING, "limit": 1},
            {"changes": [CHANGE], "last": 2, "more": True},
        ),
    )
    async def deltas(self, request: DeltasForm, caller: Caller) -> ChangePage:
        """Return the rows of the ledger that one firing wrote.

        A caller that may name one user only gets no rows of others.

        Raises:
            NoInputError: The ledger does not have the firing.
        """
        scope = reading_scope(request, caller)
        rows = await self._facts.reads.records_of_firing(
            request.firing, after=request.after, limit=request.limit
        )
        if rows is None:
            raise NoInputError(request.firing, "the ledger has no firing of that id")
        return ChangePage(
            changes=[_change_of(row) for row in rows if scope is None or is_of(row, scope)],
            last=rows[-1].seq if rows else request.after,
            more=len(rows) == request.limit,
        )


class HeldReads:
    """Runs requests for the batches that await approval.

    Args:
        facts: The facts; None when there are none yet.
    """

    def __init__(self, facts: EngineFactStore | None) -> None:
        self._facts = facts

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {},
            {
                "held": [
                    {
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "problem": "this batch would delete 399 of 516 facts",
                        "approved": False,
                    }
                ]
            },
        ),
    )
    async def held(self, request: HeldForm, caller: Caller) -> HeldList:
        """Return the batches that await approval."""
        held = {} if self._facts is None else await self._facts.watermarks.held()
        return HeldList(
            held=[
                Held(
                    firing_id=one.firing_id,
                    rule_id=one.rule_id,
                    problem=one.problem,
                    approved=one.approved,
                )
                for one in held.values()
            ]
        )


def _known_firing(firing: RecordedFiring) -> KnownFiring:
    return KnownFiring(
        seq=firing.number,
        firing_id=firing.firing_id,
        rule_id=firing.rule_id,
        at=firing.at,
        trigger=firing.trigger,
        by=firing.by,
        reason=firing.reason,
        counts=FiringCounts(**firing.counts._asdict()),
        run=firing.run or None,
        undone_by=firing.undone_by or None,
        undoes=firing.undoes or None,
    )


def _change_of(row: Record) -> Change:
    return Change(
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        firing_id=row.firing_id,
        rule_id=row.rule_id,
        fact_id=row.fact_id,
        replaces=[*row.replaces],
        episode_ids=[*row.source_episode_ids],
        reason=row.reason,
        confidence=row.confidence,
        user=row.user,
        agent=row.agent,
    )
