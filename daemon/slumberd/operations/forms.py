"""What forms and answers of operations share: fields, limits, scopes, rules, cursors of pages."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from slumberd.model.errors import UsageError
from slumberd.model.scope import ScopeFilter
from slumberd.model.texts import is_storable
from slumberd.operations.caller import Caller, Right
from slumberd.rules.validation import Form, too_long

if TYPE_CHECKING:
    from slumberd.model.rule import ConsolidationRule
    from slumberd.rules.rule_loader import RuleSet

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


def reading_scope(request: ScopedForm, caller: Caller) -> ScopeFilter | None:
    """Return the scope of a request; None when an operator names no user.

    Raises:
        MemoryScopeError: A part is malformed.
        NotAllowedError: The request names another user or agent than the caller's.
        UsageError: Neither the request nor a caller who is no operator names a user.
    """
    is_open = caller.user is caller.agent is request.user is request.agent is None
    if is_open and Right.OPERATE in caller.rights:
        return None
    every = isinstance(request, ReadForm) and request.all_agents
    return caller.scope(request.user, request.agent, all_agents=every)


def write_cursor(*parts: str) -> str:
    """Return the cursor of a place: letters, digits, ``-`` and ``_``."""
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def read_cursor(operation: str, cursor: str, parts: int) -> tuple[str, ...]:
    """Return the parts of the place that a cursor names.

    Args:
        operation: The operation that is asked for a page.
        parts: How many parts a place has.

    Raises:
        UsageError: The operation has not made the cursor.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = orjson.loads(base64.b64decode(padded, b"-_", validate=True))
    except ValueError:
        found = None
    is_place = isinstance(found, list) and all(isinstance(part, str) for part in found)
    if not is_place or len(found) != parts:
        raise UsageError(f"{operation}: {cursor!r} is not a cursor of one of its pages")
    return tuple(found)


def choose_rules(rules: RuleSet, ids: Sequence[str] | None) -> list[ConsolidationRule]:
    """Return the named rules in order of id; all enabled rules for None.

    Raises:
        UsageError: A rule is unknown.
    """
    if ids is None:
        return [rule for rule in rules.rules if rule.enabled]
    known = {rule.id: rule for rule in rules.rules}
    if unknown := [name for name in ids if name not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return [known[name] for name in sorted(set(ids))]


def require_episode_rules(rules: list[ConsolidationRule], command: str) -> list[ConsolidationRule]:
    """Return the rules unchanged when all of them read episodes, as a command needs.

    Raises:
        UsageError: A rule promotes a graph.
    """
    for rule in rules:
        if not rule.reads_episodes:
            raise UsageError(
                f"rule {rule.id!r} is of kind graph and reads no episodes, so `slumberd {command}`"
                f" does not apply; `slumberd fire {rule.id}` promotes what the graph says now"
            )
    return rules
