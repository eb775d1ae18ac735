"""Read the fields of requests: rules, firings, assertions and ids of facts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from slumberd.config.rule_loader import RuleSet
from slumberd.config.validation import NAME
from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.errors import UsageError
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of, fact_id_of
from slumberd.model.rule import FACTS, ConsolidationRule
from slumberd.model.scope import Scope, validate_scope
from slumberd.operations.caller import Caller
from slumberd.operations.forms import PinForm, UndoForm, UnpinForm
from slumberd.storage.ledger.undo import ByRun, BySince, Wanted


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
