"""The fields and limits that requests share, and the forms of requests that change something."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from slumberd.config.validation import Form, too_long
from slumberd.model.episode import EARLIEST, LATEST
from slumberd.model.graph import is_storable

_INSTANTS = 2**62
"""Microseconds around 1970; the calendar has no instant beyond them."""

MOST_SHARDS = 1_024
"""No database has more shards."""

MOST_REASON_CHARACTERS = 1_000
"""The longest reason of a request."""


Cursor = Annotated[str, Field(max_length=10_000)]


def singular_kind(value: object) -> object:
    """Return the kind that the command line calls by its plural; any other value as it is."""
    return value[:-1] if value in ("episodes", "facts") else value


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
Microseconds = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]
"""An instant of the calendar, or one before or after all of them."""
CalendarInstant = Annotated[int, Field(ge=EARLIEST, le=LATEST)]
"""An instant of the calendar: from the year 1 to the year 9999."""


class RequestForm(Form):
    """The fields that every request may have; ``status`` and its like have no others.

    Attributes:
        version: The version of the protocol; the control socket has checked it.
        operation: The operation's name.
    """

    # A program needs few of the forms, so each is built when it is first used.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
    between: Annotated[list[Microseconds], Field(min_length=2, max_length=2)] | None = None


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


MOST = 1_000
"""The most items of one page."""


MOST_NAME = 1_000
"""The longest name: of a user, an agent, a session, an episode, a key."""


MOST_CHARACTERS = 100_000
"""The longest text of an episode that an interface takes, and the longest question."""


def _read_instant(value: object) -> object:
    """Return the instant that a text names; any other value as it is, for the model to refuse."""
    if not isinstance(value, str):
        return value
    try:
        at = datetime.fromisoformat(value)
        at.astimezone(UTC)  # a year before 1 or after 9999 has no instant
    except (ValueError, OverflowError):
        return value
    return at if at.tzinfo else value


Limit = Annotated[int, Field(ge=1, le=MOST)]


Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]


LongText = Annotated[str, Field(max_length=MOST_CHARACTERS)]


Instant = Annotated[AwareDatetime, BeforeValidator(_read_instant)]
"""ISO 8601 with an offset; JSON has no instants, so a strict check takes their text."""


class ScopedForm(RequestForm):
    """The fields of every request about one user's memory.

    Attributes:
        user: The user; by default the caller's own.
        agent: The agent; by default the caller's own, else all.
    """

    user: Name | None = None
    agent: Name | None = None


class ReadForm(ScopedForm):
    """The fields of every request that reads one user's memory.

    Attributes:
        all_agents: Whether the memories of all agents of the user are read; give no agent then.
    """

    all_agents: bool = False


class Result(BaseModel):
    """The base of what operations return: frozen, with the JSON form as `model_dump` gives it."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.model_dump(mode="json")
