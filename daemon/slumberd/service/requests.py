"""The requests of the control socket: a form for each operation, and the values of its fields."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import Field

from slumberd.config.rule_loader import RuleSet
from slumberd.config.validation import NAME, Form, problems
from slumberd.config.yaml_reader import dotted_path
from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.errors import UsageError
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of, fact_id_of
from slumberd.model.rule import FACTS, ConsolidationRule
from slumberd.model.scope import Scope, validate_scope
from slumberd.service.control_socket import Answer, Operation, Peer
from slumberd.storage.ledger.undo import ByRun, BySince, Wanted

_INSTANTS = 2**62
"""Microseconds around 1970; the calendar has no instant beyond them."""

Texts = list[str] | None
Instant = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]


class RequestForm(Form):
    """The fields that every request may have; ``status`` and its like have no others.

    Attributes:
        version: The version of the protocol; the control socket has checked it.
        operation: The operation's name.
    """

    version: int | None = None
    operation: str | None = None


class ChangeForm(RequestForm):
    """The fields of every request that changes facts or episodes.

    Attributes:
        dry_run: Whether nothing is written.
        limit: How many deltas the answer lists at most.
    """

    dry_run: bool = False
    limit: Annotated[int, Field(ge=0)] | None = None


class FireForm(ChangeForm):
    """The request ``fire``: the ids of rules; null fires every enabled one."""

    rules: Texts = None


class ExtractForm(RequestForm):
    """The request ``extract``: a rule, and whether to ask again where there was no answer."""

    rule: str
    again: bool = False


class BackfillForm(ChangeForm):
    """The request ``backfill``: a rule, and two instants in microseconds since 1970 UTC."""

    rule: str
    between: Annotated[list[Instant], Field(min_length=2, max_length=2)] | None = None


class QuarantineForm(ChangeForm):
    """The request ``retry``: the ids of rules and of episodes; null means all."""

    rules: Texts = None
    episodes: Texts = None


class DropForm(QuarantineForm):
    """The request ``drop``: the ids of episodes, or all of them."""

    all: bool = False


class UndoForm(ChangeForm):
    """The request ``undo``: one firing, one run, or the firings of a rule since an instant."""

    firing: str | None = None
    run: str | None = None
    rule: str | None = None
    since: Instant | None = None


class DecideForm(ChangeForm):
    """The request ``decide``: the firing of a held batch, and whether it is approved."""

    firing: str
    approve: bool = False


class ForgetForm(ChangeForm):
    """The request ``forget``: a scope; without session or agent, all of the user's."""

    user: str
    session: str | None = None
    agent: str | None = None


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


class RulesForm(RequestForm):
    """The requests ``pause`` and ``resume``: the ids of rules."""

    rules: list[str]


F = TypeVar("F", bound=RequestForm)


def typed_operation(
    name: str, form: type[F], operation: Callable[[F, Peer], Awaitable[Answer]]
) -> Operation:
    """Return an operation that reads a request by its form before it runs.

    The form refuses an unknown key: a misspelled ``dry_run`` must not erase anything.

    Raises:
        UsageError: By the operation; it lists every mistake of the request.
    """

    async def run(request: dict[str, Any], peer: Peer) -> Answer:
        if found := problems(form, request, strict=True):
            listed = (
                f"{dotted_path(each.trail)}: {each.text}".removeprefix(": ") for each in found
            )
            raise UsageError(f"{name}: {'; '.join(listed)}")
        return await operation(form.model_validate(request, strict=True), peer)

    return run


def lineage_entry(reason: str, peer: Peer, at: datetime) -> dict[str, Any]:
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
        "by": str(peer),
        "pid": peer.pid,
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
