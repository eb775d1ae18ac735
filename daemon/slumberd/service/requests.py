"""What a request asks a hand to do, checked: what it says, of what, who asks, and why.

The forms of requests: what each operation takes; anything else is refused before it runs.
"""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from slumberd.config.validation import NAME, Form, problems
from slumberd.config.yaml_reader import dotted
from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import HANDS
from slumberd.errors import UsageError
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of, fact_id_of
from slumberd.model.rule import FACTS
from slumberd.model.scope import Scope, checked_scope
from slumberd.service.control_socket import Answer, Operation, Peer
from slumberd.storage.ledger.undo import ByRun, BySince, Wanted

Request = dict[str, Any]


def entry_of(request: Request, peer: Peer, at: datetime) -> dict[str, Any]:
    """Return the lineage entry of a hand: who asks, when, and for what ``reason``.

    It is a part of what the hand says, so it goes when that is forgotten.

    Raises:
        UsageError: No reason is given.
    """
    return {
        "kind": "hand",
        "rule_id": HANDS,
        "source_episode_ids": [],
        "promotion_ts": at.isoformat(),
        "by": str(peer),
        "pid": peer.pid,
        "reason": _text(request, "reason"),
    }


def wanted_of(request: Request) -> Wanted | None:
    """Return which firings a request to undo wants; None when it names one ``firing``.

    Raises:
        UsageError: It names none, or wants them in more than one way.
    """
    given = {name for name in ("firing", "run", "rule") if request.get(name) is not None}
    if len(given) != 1:
        raise UsageError("name a firing, or a run, or a rule with --since; one of the three")
    if "firing" in given:
        return None
    if "run" in given:
        return ByRun(_text(request, "run"))
    since = request.get("since")
    if not isinstance(since, int):
        raise UsageError("a rule is undone from an instant on; name it with --since")
    return BySince(_text(request, "rule"), instant(since))


def unknown(wanted: Wanted) -> str:
    """Say that a ledger has none of the firings that a request wants."""
    match wanted:
        case ByRun(run):
            return f"no run {run!r}; `slumberd audit ls --kind firing` lists them"
        case BySince(rule_id, _):
            return f"rule {rule_id!r} has never fired; `slumberd audit ls --kind firing` lists all"


def said_of(request: Request, entry: dict[str, Any]) -> ManualAssertion:
    """Return what a request to pin says.

    It names ``user agent subject predicate object``, the last being any JSON, and perhaps ``id``,
    ``channel`` and ``confidence``.

    Raises:
        UsageError: Something is missing, or is not what it must be.
        MemoryScopeError: The user or the agent is none that can be.
    """
    user, agent = _text(request, "user"), _text(request, "agent")
    checked_scope(Scope(user, "-", agent), operation="pin")
    fact_id = _fact_id(request)
    payload = {
        "id": fact_id,
        "user": user,
        "agent": agent,
        "subject": _text(request, "subject"),
        "predicate": _text(request, "predicate"),
        "object": request.get("object"),
    }
    return ManualAssertion(fact_id, user, agent, payload, _confidence(request), (entry,), {})


def fact_ids_of(request: Request) -> list[str]:
    """Return the ``facts`` that a request to unpin names, each once.

    Raises:
        UsageError: It names none.
    """
    found = request.get("facts")
    if not isinstance(found, list) or not found:
        raise UsageError("'facts' must be a list of fact ids")
    return [_text({"fact id": fact_id}, "fact id") for fact_id in dict.fromkeys(map(str, found))]


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name!r} must be a text that is not empty")
    if "\0" in value:
        raise UsageError(f"{name!r} holds a NUL")
    return value


def _fact_id(request: Request) -> str:
    """Return the fact's id: the given one, in the given channel, or a new one."""
    channel = FACTS if request.get("channel") is None else _channel(request)
    if request.get("id") is None:
        return fact_id_of(channel, str(uuid.uuid4()))
    given = _text(request, "id")
    if not given.startswith("@"):
        return fact_id_of(channel, given)
    # As `slumberd facts` shows those of other channels: it says its channel itself.
    if request.get("channel") not in (None, channel_of(given)):
        raise UsageError(f"the id {given!r} is not of the channel {channel!r}")
    return given


def _channel(request: Request) -> str:
    channel = _text(request, "channel")
    # A slash would make it another channel: the id of a fact names its channel up to the first.
    if not re.fullmatch(NAME, channel):
        raise UsageError(f"channel {channel!r} is no name that a rule could emit into")
    return channel


def _confidence(request: Request) -> float:
    value = request.get("confidence", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError("'confidence' must be a number")
    if not 0 <= value <= 1:
        raise UsageError("'confidence' must lie in 0..1")
    return float(value)


_INSTANTS = 2**62
"""Microseconds around 1970; more is no instant of the calendar."""

Texts = list[str] | None
Instant = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]


class RequestForm(Form):
    """What every request may say.

    Attributes:
        version: Of the protocol; checked before.
        operation: The operation's name.
        dry_run: Whether nothing is written.
        limit: How many deltas the answer lists at most.
    """

    version: int | None = None
    operation: str | None = None
    dry_run: bool = False
    limit: Annotated[int, Field(ge=0)] | None = None


class FireForm(RequestForm):
    """Of ``fire``: the ids of rules."""

    rules: Texts = None


class BackfillForm(RequestForm):
    """Of ``backfill``: the id of a rule, and two instants in microseconds since 1970 UTC."""

    rule: str
    between: Annotated[list[Instant], Field(min_length=2, max_length=2)] | None = None


class QuarantineForm(RequestForm):
    """Of ``retry``: the ids of rules and of episodes."""

    rules: Texts = None
    episodes: Texts = None


class DropForm(QuarantineForm):
    """Of ``drop``: the ids of episodes, or all of them."""

    all: bool = False


class UndoForm(RequestForm):
    """Of ``undo``: a firing, a run, or a rule from an instant on."""

    firing: str | None = None
    run: str | None = None
    rule: str | None = None
    since: Instant | None = None


class DecideForm(RequestForm):
    """Of ``decide``: a batch that was held, and whether it goes on."""

    firing: str
    approve: bool = False


class ForgetForm(RequestForm):
    """Of ``forget``: a scope."""

    user: str
    session: str | None = None
    agent: str | None = None


class PinForm(RequestForm):
    """Of ``pin``: a fact, and why."""

    user: str
    agent: str
    subject: str
    predicate: str
    object: Any = None
    reason: str
    id: str | None = None
    channel: str | None = None
    confidence: float = 1.0


class UnpinForm(RequestForm):
    """Of ``unpin``: the ids of facts, and why."""

    facts: list[str]
    reason: str


class RulesForm(RequestForm):
    """Of ``pause`` and ``resume``: the ids of rules."""

    rules: list[str]


def checked(name: str, form: type[BaseModel], operation: Operation) -> Operation:
    """Return an operation that refuses a request which is not of its form.

    An unknown key is refused, too: a misspelled ``dry_run`` must not erase anything.

    Raises:
        UsageError: By the operation; with everything that is wrong.
    """

    async def run(request: dict[str, Any], peer: Peer) -> Answer:
        if found := problems(form, request, strict=True):
            told = (f"{dotted(one.trail)}: {one.text}".removeprefix(": ") for one in found)
            raise UsageError(f"{name}: {'; '.join(told)}")
        return await operation(request, peer)

    return run
