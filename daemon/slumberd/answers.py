"""What was done, or would be, as JSON takes it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from slumberd.consolidator import Report
from slumberd.control import Answer
from slumberd.core.episode import instant
from slumberd.core.record import Record
from slumberd.core.rule import ConsolidationRule
from slumberd.core.scope import Reach
from slumberd.lines import timestamp
from slumberd.stores.fact_erasure import Erasure

PLAN_DIGITS = 16

OUT_OF_REACH = [
    "backups and exports of the state directory, made before",
    "log lines, here and wherever they were shipped: they hold ids of episodes and facts, and, as"
    " logging.scope says, user and agent, hashes of them, or neither",
    "what other programs keep of the same episodes",
    "what a sink of provenance was told: with `provenance.sink: file` the file keeps user, agent, "
    "subject, predicate and object",
    "this certificate, which names the scope",
]
"""What a forget cannot erase."""

LISTED = 10_000
"""Deltas that an answer lists at most; all are counted."""

Rehearsed = Sequence[tuple[ConsolidationRule, Report]]
"""What firings would do: of each rule, a report for each of its stores."""


def reported(reports: Iterable[Report]) -> Answer:
    """Return what firings did."""
    return {"reports": [as_document(report) for report in reports]}


def counted(records: Sequence[Record]) -> dict[str, int]:
    """Return how many deltas there are of each kind."""
    kinds = Counter(record.kind for record in records)
    del kinds["firing"]
    return dict(sorted(kinds.items()))


def as_document(report: Report) -> dict[str, Any]:
    """Return a report as JSON takes it; with the deltas of a rehearsal."""
    document: dict[str, Any] = {
        "rule_id": report.rule_id,
        "store": report.store,
        "firing_ids": report.firing_ids,
        "channels": {channel: counts._asdict() for channel, counts in report.channels.items()},
    }
    if report.held is not None:
        document["held"] = {"firing_id": report.held.firing_id, "problem": report.held.problem}
    if report.rehearsed:
        document["deltas"] = deltas_of(report.records)
    return document


def certificate(
    reach: Reach,
    moment: int,
    erasures: Mapping[str, Erasure],
    memory: dict[str, int],
    *,
    naming: int,
) -> dict[str, Any]:
    """Return what was erased, and what cannot be, as JSON takes it; it names the scope itself.

    Args:
        reach: The scope.
        moment: Up to when, in microseconds.
        erasures: By fact store.
        memory: Rows that went from the episodes' database, by table.
        naming: How many episodes of other scopes name this one.
    """
    named = f"{naming} episodes of other scopes name this one in their content or scope key"
    at = next(iter(erasures.values())).outcome.firing.at
    return {
        "certificate": "slumberd.forget",
        "version": 1,
        "scope": {"user": reach.user, "session": reach.session, "agent": reach.agent},
        "at": timestamp(at),
        "forgotten_up_to": timestamp(instant(moment)),
        "rows": {name: one.counts for name, one in erasures.items()} | {"memory.db": memory},
        "stand_again": [
            record.fact_id
            for one in erasures.values()
            for record in one.outcome.records
            if record.kind == "add"
        ],
        "head_before": {name: one.head for name, one in erasures.items()},
        "out_of_reach": [*OUT_OF_REACH, *([named] if naming else [])],
    }


def planned(rehearsed: Rehearsed) -> Answer:
    """Return what a rehearsal found, and the hash by which the very same can be asked for."""
    told = [
        [
            rule.id,
            rule.content_hash,
            report.store,
            [tuple(position) for position in report.window],
            [list(record)[3:9] for record in report.records],
        ]
        for rule, report in rehearsed
    ]
    plan = hashlib.sha256(orjson.dumps(told)).hexdigest()[:PLAN_DIGITS]
    return reported(report for _, report in rehearsed) | {"plan": plan}


def scheduled(
    rules: Iterable[ConsolidationRule], paused: Mapping[str, str], timezone: str
) -> Answer:
    """Return when rules are due, with who paused them; what comes of that is for whoever asks.

    Args:
        rules: In force.
        paused: Who paused which, by id.
        timezone: Of those that name none.
    """
    told = [
        {
            "id": rule.id,
            "enabled": rule.enabled,
            "cadence": rule.cadence,
            "paused_by": paused.get(rule.id),
        }
        for rule in rules
    ]
    return {"timezone": timezone, "rules": told}


def deltas_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return what a rehearsal would do, at most `LISTED` deltas, as JSON takes it."""
    acts = [record for record in records if record.kind != "firing"]
    return [
        {
            "kind": record.kind,
            "rule_id": record.rule_id,
            "fact_id": record.fact_id,
            "replaces": record.replaces,
            "source_episode_ids": record.source_episode_ids,
            "reason": record.reason,
        }
        for record in acts[:LISTED]
    ]
