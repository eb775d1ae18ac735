"""Build the answers of operations as JSON."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from slumberd.logs.lines import timestamp
from slumberd.model.episode import instant
from slumberd.model.fact import Fact
from slumberd.model.firing import Record, Report
from slumberd.operations.forms import Result

if TYPE_CHECKING:
    from slumberd.model.rule import ConsolidationRule
    from slumberd.operations.handlers import Answer
    from slumberd.storage.ledger.erasure import Erasure, Unfinished
    from slumberd.storage.ledger.undo import UndoneFirings
    from slumberd.workers.language_models.recorder import Recording

OUT_OF_REACH = [
    "backups and exports of the state directory, made before",
    "log lines, here and wherever they were shipped: they hold ids of episodes and facts, and, as"
    " logging.scope says, user and agent, hashes of them, or neither",
    "what other programs keep of the same episodes",
    "what the provenance sink received: with `provenance.sink: file` the file keeps user, agent, "
    "subject, predicate and object",
    "this certificate, which names the scope",
]
"""What `slumberd forget` cannot erase."""

_PLAN_CHARACTERS = 32

LISTED = 10_000
"""How many deltas an answer lists at most, unless the request sets a limit; it counts all."""


DELTA: dict[str, Any] = {
    "kind": "add",
    "rule_id": "home",
    "fact_id": "e1",
    "replaces": [],
    "source_episode_ids": ["e1"],
    "reason": "",
    "user": "ana",
    "agent": "desk",
}


DELTAS: dict[str, Any] = {"deltas": [DELTA], "deltas_total": 1, "deltas_cut": False}


class Delta(Result):
    """One change of a fact.

    Attributes:
        kind: Such as ``add``, ``update`` or ``delete``.
        rule_id: The rule that made it.
        fact_id: The fact.
        replaces: The facts that it removed.
        source_episode_ids: The episodes that it comes from.
        reason: Why it changed nothing, if so.
        user: Whose the fact is; empty when it is not known.
        agent: Who knows it; empty as `user`.
    """

    kind: str
    rule_id: str
    fact_id: str
    replaces: list[str]
    source_episode_ids: list[str]
    reason: str
    user: str
    agent: str


class Deltas(Result):
    """The first deltas of an answer.

    Attributes:
        deltas: The first ones.
        deltas_total: How many there are.
        deltas_cut: Whether the list is cut.
    """

    deltas: list[Delta]
    deltas_total: int
    deltas_cut: bool


def report_firings(reports: Iterable[Report], *, limit: int = LISTED, run: str = "") -> Answer:
    """Return the firings of one run, with at most `limit` deltas of each dry run."""
    documents = [report_document(report, limit=limit) for report in reports]
    fired = any(document["firing_ids"] for document in documents)
    return {"run": run if fired else None, "reports": documents}


def report_undo(done: UndoneFirings, run: str | None) -> Answer:
    """Return the result of undoing several firings.

    Args:
        done: The result.
        run: The id of the run that undid them; None for a dry run, which has no firings.
    """
    firing_ids = done.firing_ids if run else []
    total = done.counts.total()
    return {
        "run": run if firing_ids else None,
        "undone": done.undone,
        "firing_ids": firing_ids,
        "counts": dict(sorted(done.counts.items())),
        **listed_deltas(done.records, limit=done.limit),
        "deltas_total": total,
        "deltas_cut": total > len(done.records),
    }


def count_by_kind(records: Sequence[Record]) -> dict[str, int]:
    """Return how many deltas there are of each kind."""
    kinds = Counter(record.kind for record in records)
    del kinds["firing"]
    return dict(sorted(kinds.items()))


def report_document(report: Report, *, limit: int = LISTED) -> dict[str, Any]:
    """Return a report as JSON, with at most `limit` deltas of a dry run."""
    document: dict[str, Any] = {
        "rule_id": report.rule_id,
        "firing_ids": report.firing_ids,
        "channels": {channel: counts._asdict() for channel, counts in report.channels.items()},
    }
    if report.purged:
        document["purged"] = len(report.purged)
    if report.unrecorded:
        document["unrecorded"] = True
    if report.rejected:
        document["rejected"] = report.rejected
    if report.held is not None:
        held = report.held
        document["held_batch"] = {"firing_id": held.firing_id, "problem": held.problem}
    if report.dry_run:
        document |= listed_deltas(report.records, limit=limit)
        document["unread"] = report.unread
    return document


def report_recording(done: Recording) -> dict[str, Any]:
    """Return what was asked of a language model as JSON."""
    return {
        "calls": done.calls,
        "ok": done.statuses["ok"],
        "refused": done.statuses["refused"],
        "invalid": done.statuses["invalid"],
        "triples": done.triples,
        "dropped": done.dropped,
        "tokens_in": done.tokens_in,
        "tokens_out": done.tokens_out,
    }


def certificate(
    unfinished: Unfinished,
    erasure: Erasure,
    memory: dict[str, int],
    *,
    naming: int,
) -> dict[str, Any]:
    """Return the certificate of an erasure; it names the scope.

    Args:
        unfinished: What was to be erased.
        erasure: What was erased from the facts, and which facts are current again.
        memory: The number of rows erased from the store of episodes, by table.
        naming: How many episodes of other scopes name this one.
    """
    named = f"{naming} episodes of other scopes name this one in their content or scope key"
    scope, moment = unfinished.reach, unfinished.moment
    # Ids that other episodes or the reason name stay, so the certificate names single episodes.
    episodes = {"episodes": sorted(unfinished.alone)} if unfinished.alone else {}
    facts = {"facts": [fact.id for fact in erasure.going]} if moment is None else {}
    return {
        "certificate": "slumberd.forget",
        "version": 2,
        "scope": {"user": scope.user, "session": scope.session, "agent": scope.agent},
        "at": timestamp(erasure.outcome.firing.at),
        "erased_up_to": None if moment is None else timestamp(instant(moment)),
        **episodes,
        **facts,
        "rows": {"facts": erasure.counts, "episodes": memory},
        "current_again": [
            record.fact_id for record in erasure.outcome.records if record.kind == "add"
        ],
        "foreign_blank": list(erasure.foreign[:LISTED]),
        "foreign_blank_total": erasure.foreign_rows,
        "head_before": erasure.head,
        "out_of_reach": [*OUT_OF_REACH, *([named] if naming else [])],
    }


def statement_of(payload: Mapping[str, Any]) -> str:
    """Return what a fact says, for a person who decides about it."""
    parts = (payload.get(name) for name in ("subject", "predicate", "object"))
    return " ".join(
        part if isinstance(part, str) else orjson.dumps(part).decode()
        for part in parts
        if part is not None
    )


def plan_hash(unfinished: Unfinished, newest: int | None, planned: Erasure) -> str:
    """Return a hash of what an erasure would erase; it changes when that changes.

    Args:
        unfinished: What would be erased.
        newest: The instant of its newest episode, in microseconds; None without one.
        planned: What a dry run would erase from the facts.
    """
    scope = unfinished.reach
    parts = (scope.user, scope.session, scope.agent, unfinished.moment is None)
    counts = sorted(planned.counts.items())
    # Not the head of the ledger: a commit for another user would make every plan stale.
    deltas = sorted((record.kind, record.fact_id) for record in planned.outcome.records)
    eids = sorted(unfinished.eids), sorted(unfinished.alone)
    document = orjson.dumps([parts, eids, newest, counts, deltas])
    return hashlib.sha256(document).hexdigest()[:_PLAN_CHARACTERS]


def fact_document(fact: Fact) -> dict[str, Any]:
    """Return the JSON form of a fact."""
    return {
        "id": fact.id,
        "user": fact.user,
        "agent": fact.agent,
        "payload": fact.payload,
        "lineage": fact.lineage,
        "confidence": fact.confidence,
        "said_at": timestamp(fact.said_at),
        "pinned_at": timestamp(fact.pinned_at),
        "metadata": fact.metadata,
    }


def list_cadences(
    rules: Iterable[ConsolidationRule],
    paused: Mapping[str, str],
    timezone: str,
    served: Mapping[str, datetime],
) -> Answer:
    """Return the cadence of each rule and who paused it; the command computes the instants.

    Args:
        rules: The rules in force.
        paused: Who paused each paused rule, by the rule's id.
        timezone: The time zone of rules without one.
        served: The last cron instant that each rule has served, by its id.
    """
    listed = [
        {
            "id": rule.id,
            "enabled": rule.enabled,
            "cadence": rule.cadence,
            "paused_by": paused.get(rule.id),
            "served": timestamp(served[rule.id]) if rule.id in served else None,
        }
        for rule in rules
    ]
    return {"timezone": timezone, "rules": listed}


def listed_deltas(records: Sequence[Record], *, limit: int = LISTED) -> dict[str, Any]:
    """Return the first deltas of some records, their number, and whether the list is cut.

    Args:
        records: Rows of a ledger; rows of kind ``firing`` are not deltas.
        limit: How many deltas are listed at most.
    """
    deltas = [record for record in records if record.kind != "firing"]
    return {
        "deltas_total": len(deltas),
        "deltas_cut": len(deltas) > limit,
        "deltas": [_delta_document(record) for record in deltas[:limit]],
    }


def _delta_document(record: Record) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "rule_id": record.rule_id,
        "fact_id": record.fact_id,
        "replaces": record.replaces,
        "source_episode_ids": record.source_episode_ids,
        "reason": record.reason,
        "user": record.user,
        "agent": record.agent,
    }


def as_json(document: dict[str, Any]) -> Any:  # noqa: ANN401 # any JSON
    """Return a document of values that `orjson` writes, as it reads them again."""
    return orjson.loads(orjson.dumps(document, default=str))
