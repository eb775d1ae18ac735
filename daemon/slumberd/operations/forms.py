"""The forms of requests: one for each operation that changes facts, rules or firings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from slumberd.config.validation import Form, too_long
from slumberd.model.episode import EARLIEST, LATEST
from slumberd.model.graph import is_storable

_INSTANTS = 2**62
"""Microseconds around 1970; the calendar has no instant beyond them."""

MOST_SHARDS = 1_024
"""No database has more shards."""

MOST_REASON_CHARACTERS = 1_000
"""The longest reason of a request."""


def _check_reason(text: str) -> str:
    if not text.strip():
        raise ValueError(f"1 to {MOST_REASON_CHARACTERS:,} characters are needed, not all blank")
    if len(text) > MOST_REASON_CHARACTERS:
        raise ValueError(too_long(len(text), MOST_REASON_CHARACTERS))
    if not is_storable(text):
        raise ValueError("it holds NUL or invalid Unicode")
    return text


Texts = list[str] | None
Reason = Annotated[
    str,
    AfterValidator(_check_reason),
    Field(json_schema_extra={"minLength": 1, "maxLength": MOST_REASON_CHARACTERS}),
]
"""Why a person requests a change: a text without personal data, since no erasure removes it."""
Instant = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]
"""An instant of the calendar, or one before or after all of them."""
CalendarInstant = Annotated[int, Field(ge=EARLIEST, le=LATEST)]
"""An instant of the calendar: from the year 1 to the year 9999."""


class RequestForm(Form):
    """The fields that every request may have; ``status`` and its like have no others.

    Attributes:
        version: The version of the protocol; the control socket has checked it.
        operation: The operation's name.
    """

    version: int | None = Field(default=None, repr=False)
    operation: str | None = Field(default=None, repr=False)


class OperatorForm(RequestForm):
    """The fields of every request that concerns all users of one shard.

    Attributes:
        shard: The shard of a database that has several; not needed where the request or its caller
            names a user, and where there is one shard only.
    """

    shard: Annotated[int, Field(ge=0, le=MOST_SHARDS - 1)] | None = None


class ChangeForm(OperatorForm):
    """The fields of every request that changes facts or episodes.

    Attributes:
        dry_run: Whether nothing is written.
        limit: How many deltas the answer lists at most.
    """

    dry_run: bool = False
    limit: Annotated[int, Field(ge=0)] | None = None


class ReasonedForm(ChangeForm):
    """The fields of a change whose firings may have a reason in the ledger.

    Attributes:
        reason: Why; the ledger keeps it with the firings. It must not hold personal data: no
            erasure removes it.
    """

    reason: Reason | None = None


class FireForm(ReasonedForm):
    """The request ``fire``: rules.

    Attributes:
        rules: The ids of the rules; by default every enabled one.
    """

    rules: Texts = None


class ExtractForm(OperatorForm):
    """The request ``extract``: a rule, and whether to ask again where there was no answer."""

    rule: str
    again: bool = False


class BackfillForm(ReasonedForm):
    """The request ``backfill``: a rule, and two instants in microseconds since 1970 UTC."""

    rule: str
    between: Annotated[list[Instant], Field(min_length=2, max_length=2)] | None = None


class QuarantineForm(ReasonedForm):
    """The request ``retry``: the ids of rules and of episodes; null means all."""

    rules: Texts = None
    episodes: Texts = None


class DropForm(QuarantineForm):
    """The request ``drop``: the ids of episodes, or all of them."""

    all: bool = False


class WithdrawFutureForm(ReasonedForm):
    """The request ``withdraw_future``; it concerns all facts."""


class AcceptClockForm(ReasonedForm):
    """The request ``accept_clock``; it concerns all recorded instants."""


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


class DecideForm(ReasonedForm):
    """The request ``decide``: the firing of a held batch, and whether it is approved.

    Attributes:
        firing: The firing of the batch.
        approve: Whether the batch is applied; else it is skipped.
    """

    firing: str
    approve: bool = False


class MoveForm(OperatorForm):
    """The request ``move``: a user, and the shard that gets the user.

    Attributes:
        user: The user.
        to: The number of the shard.
        dry_run: Whether nothing is written.
    """

    user: str
    to: Annotated[int, Field(ge=0, le=MOST_SHARDS - 1)]
    dry_run: bool = False


class ForgetForm(ReasonedForm):
    """The request ``forget``: a scope, one episode, or one fact.

    Without session, agent, episode and fact, all of the user's is erased.

    Attributes:
        user: The user; by default the caller's own. With an episode or a fact, its owner.
        session: Only this session.
        agent: Only this agent; by default the caller's own, else all.
        episode: Only this episode, with all that came from it.
        fact: Only this fact: the episodes that say it, with all that came from them, and the manual
            edits that say it.
        plan: The hash in the answer of a dry run. If the scope has changed since, nothing is
            erased. A caller that may name one user only must give it.
    """

    user: str | None = None
    session: str | None = None
    agent: str | None = None
    episode: str | None = None
    fact: str | None = None
    plan: str | None = None


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


class RulesForm(OperatorForm):
    """The requests ``pause`` and ``resume``: the ids of rules."""

    rules: list[str]
