"""The catalogue of events: the name, level, meaning and fields of every log line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ANY_LEVEL = ("debug", "info", "warning", "error")
_OPTIONAL = {"exception"}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


@dataclass(frozen=True, slots=True)
class Kind:
    """One event of the catalogue.

    Attributes:
        name: As in the ``event`` of a line.
        levels: The levels that its lines may have.
        meaning: What happened, in one or two sentences.
        fields: The JSON Schema of each field besides ``ts``, ``level`` and ``event``. Only a
            traceback may be missing.
    """

    name: str
    levels: tuple[str, ...]
    meaning: str
    fields: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its lines; a shortened line keeps ``ts``, ``level`` and ``event``."""
        always = {"ts": _INSTANT, "level": {"enum": [*self.levels]}, "event": {"const": self.name}}
        cut: Schema = {key: {} for key in self.fields} | {"truncated": {"const": True}}
        return {
            "$schema": DIALECT,
            "title": self.name,
            "description": self.meaning,
            "if": {"required": ["truncated"]},
            "then": _of_exactly(always | cut, [*always, "truncated"]),
            "else": _of_exactly(
                {**always, **self.fields}, [*always, *(self.fields.keys() - _OPTIONAL)]
            ),
        }


def _of_exactly(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(required),
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _of(properties: Schema) -> Schema:
    return _of_exactly(properties, [*properties])


def _kind(level: str, name: str, meaning: str, **fields: Schema) -> Kind:
    return Kind(name, (level,), meaning, fields)


_COUNTS = _of(
    dict.fromkeys(
        ["read", "filtered", "added", "updated", "deleted", "noop", "quarantined", "restored"],
        _COUNT,
    )
)
_DELTA = {
    "seq": _COUNT,
    "firing_id": _TEXT,
    "rule_id": _TEXT,
    "kind": {"enum": ["add", "update", "delete", "noop", "quarantine"]},
    "fact_id": _TEXT,
    "replaces": _TEXTS,
    "source_episode_ids": _TEXTS,
    "reason": _TEXT,
    "confidence": _NUMBER,
    "user": _or_null(_TEXT),
    "agent": _or_null(_TEXT),
    "promotion_ts": _INSTANT,
}
_FIRING = {
    "firing_id": _TEXT,
    "run_id": _TEXT,
    "rule_id": _TEXT,
    "rule_hash": _TEXT,
    "trigger": _TEXT,
    "at": _INSTANT,
    "window": _of({"after": _COUNT, "upto": _COUNT}),
    "channels": {"type": "object", "additionalProperties": _COUNTS},
    "missed_count": _COUNT,
    "lateness_ms": _or_null(_COUNT),
    "seconds": _NUMBER,
}
_SERVED = {
    "first": _INSTANT,
    "upto": _INSTANT,
    "missed_count": _COUNT,
    "lateness_ms": _COUNT,
}
_HEARTBEAT = {
    "uptime_seconds": _NUMBER,
    "loop_lag_seconds": _NUMBER,
    "wal_bytes": _COUNT,
    "rss_bytes": _or_null(_COUNT),
    "dropped": _COUNT,
    "rules": _COUNT,
    "pending": _COUNT,
    "oldest_pending_seconds": _or_null(_NUMBER),
    "late_seconds": _NUMBER,
    "behind": {
        "type": "array",
        "items": _of(
            {"rule_id": _TEXT, "pending": _COUNT, "oldest_seconds": _or_null(_NUMBER)},
        ),
    },
    "failing": _COUNT,
    "degraded": _COUNT,
    "next_at": _or_null(_INSTANT),
    "last_success_seconds": _or_null(_NUMBER),
    "held": _COUNT,
    "quarantined": _COUNT,
    "provenance": _or_null(_of({"rows": _COUNT, "seconds": _NUMBER, "refused": _COUNT})),
}
_FAILURE = {"error": _TEXT, "message": _TEXT}
_NAMED = {"generation": _COUNT, "rules_hash": _TEXT, "rules": _COUNT}

_ALL = (
    _kind(
        "error",
        "alarm.failed",
        "The scheduler cannot compute the next instants of a cron rule. The rule does not fire.",
        rule_id=_TEXT,
        **_FAILURE,
    ),
    _kind(
        "info",
        "channels.changed",
        "The set of multi-valued predicates changed, and their facts were resolved again.",
        firing_id=_TEXT,
        rows=_COUNT,
    ),
    _kind(
        "warning",
        "clock.jumped",
        "The wall clock was set. The scheduler computed its alarms again.",
        delta_seconds=_NUMBER,
    ),
    _kind(
        "error",
        "config.reload_failed",
        "A reload found mistakes and keeps the old rules. Many mistakes take several lines.",
        by=_TEXT,
        mistakes=_COUNT,
        errors=_TEXTS,
    ),
    _kind(
        "info",
        "config.reloaded",
        "A reload put a new set of rules into force.",
        by=_TEXT,
        **_NAMED,
        added=_COUNT,
        removed=_COUNT,
        changed=_COUNT,
    ),
    _kind(
        "warning",
        "config.restart_needed",
        "Some changed keys of the configuration take effect at the next start only.",
        keys=_TEXTS,
    ),
    _kind(
        "error",
        "control.failed",
        "A request over the control socket failed because of a bug in slumberd.",
        operation=_TEXT,
        error=_TEXT,
    ),
    _kind(
        "error",
        "daemon.failed",
        "The daemon ends because of an error.",
        **_FAILURE,
        exception=_TEXT,
    ),
    _kind("info", "daemon.heartbeat", "The state of the daemon, once a minute.", **_HEARTBEAT),
    _kind(
        "info",
        "daemon.ready",
        "The daemon has finished its recovery. It now fires rules and answers requests.",
        pid=_COUNT,
        state_dir=_TEXT,
        rules=_COUNT,
        rules_hash=_TEXT,
    ),
    _kind(
        "info",
        "daemon.stopped",
        "The daemon has stopped, and no work is under way.",
        uptime_seconds=_NUMBER,
    ),
    _kind(
        "info",
        "daemon.stopping",
        "The daemon received a request to stop. Work under way must end before the deadline.",
        deadline_seconds=_NUMBER,
    ),
    Kind(
        "delta.applied",
        ("info", "warning"),
        "A firing committed a row of the ledger. The level is warning for a quarantined episode.",
        _DELTA,
    ),
    _kind(
        "warning",
        "episode.future",
        "Episodes have timestamps in the future. Until then no other episode replaces their facts.",
        count=_COUNT,
        episode_ids=_TEXTS,
        latest=_INSTANT,
        tolerance_seconds=_NUMBER,
    ),
    _kind(
        "warning",
        "episodes.left_out",
        "A call of `consolidate` skipped malformed episodes. The line names the first of them.",
        rule_id=_TEXT,
        reasons={"type": "object", "additionalProperties": _COUNT},
        episode_ids=_TEXTS,
    ),
    _kind(
        "warning",
        "erasure.contradicted",
        "One database holds episodes that another one recorded as erased: it is an older copy.",
        path=_TEXT,
        problem=_TEXT,
    ),
    _kind(
        "info",
        "erasure.finished",
        "The daemon finished an erasure that an earlier `slumberd forget` left unfinished.",
        erasures=_COUNT,
    ),
    _kind(
        "warning",
        "erasure.unfinished",
        "An erasure cannot be finished: memory.db still holds what facts.db has erased.",
        **_FAILURE,
    ),
    _kind(
        "error",
        "external.failed",
        "The daemon cannot check the facts for edits of other programs. Logged once per outage.",
        **_FAILURE,
    ),
    _kind("info", "external.noticed", "The ledger recorded edits of other programs.", rows=_COUNT),
    _kind(
        "info",
        "facts.adopted",
        "The first start found facts of other programs, recorded them, and changed no row.",
        found=_COUNT,
        unreadable=_COUNT,
    ),
    _kind("info", "firing.completed", "A firing consolidated one batch of episodes.", **_FIRING),
    _kind(
        "error",
        "firing.failed",
        "A firing failed. Its committed batches stay, and the scheduler retries it later.",
        rule_id=_TEXT,
        failures=_COUNT,
        retry_seconds=_or_null(_NUMBER),
        **_FAILURE,
    ),
    _kind(
        "warning",
        "firing.held",
        "A batch would delete more facts than its limit. It waits for a person to approve it.",
        firing_id=_TEXT,
        rule_id=_TEXT,
        problem=_TEXT,
        remedy=_TEXT,
    ),
    _kind(
        "info",
        "firing.served",
        "The cron instants of a rule are served up to an instant, with or without episodes.",
        rule_id=_TEXT,
        trigger=_TEXT,
        **_SERVED,
    ),
    _kind(
        "warning",
        "firing.skipped",
        "Missed cron instants of a rule are skipped. Their episodes wait for the next instant.",
        rule_id=_TEXT,
        reason=_TEXT,
        **_SERVED,
    ),
    _kind(
        "info",
        "firing.stopped",
        "A firing was stopped, and its unfinished batch was rolled back. It continues later.",
        rule_id=_TEXT,
    ),
    _kind(
        "debug",
        "firing.traced",
        "The traceback of a failed firing.",
        rule_id=_TEXT,
        exception=_TEXT,
    ),
    _kind(
        "warning",
        "graph.evidence_failed",
        "A provenance sink did not take the evidence of promoted triples. The facts are stored.",
        rule_id=_TEXT,
        facts=_COUNT,
        **_FAILURE,
    ),
    _kind(
        "info",
        "graph.promoted",
        "A graph rule promoted triples of a graph. `firing_id` is null when no triple was new.",
        rule_id=_TEXT,
        firing_id=_or_null(_TEXT),
        rows=_COUNT,
        added=_COUNT,
        updated=_COUNT,
        unchanged=_COUNT,
        withheld={"type": "object", "additionalProperties": _COUNT},
        seconds=_NUMBER,
    ),
    _kind("warning", "heartbeat.failed", "A store does not report its health.", **_FAILURE),
    _kind(
        "error",
        "ledger.broken",
        "`slumberd audit verify --log` found that the ledger does not verify.",
        rows=_COUNT,
        seq=_COUNT,
        problem=_TEXT,
    ),
    _kind(
        "info",
        "ledger.checkpoint",
        "The number of rows of the ledger, and the hash of its last row.",
        rows=_COUNT,
        head=_TEXT,
    ),
    _kind(
        "info",
        "ledger.verified",
        "`slumberd audit verify --log` found that the ledger is intact.",
        rows=_COUNT,
        head=_TEXT,
    ),
    Kind(
        "library.logged",
        _ANY_LEVEL,
        "A library logged a message.",
        {"logger": _TEXT, "message": _TEXT, "exception": _TEXT},
    ),
    _kind(
        "info",
        "lineage.redrawn",
        "The configured depth of lineages changed, and the daemon wrote all lineages again.",
        keys=_COUNT,
    ),
    _kind(
        "warning",
        "logs.dropped",
        "Lines were dropped because the reader of the log is slow. Delta lines are never dropped.",
        lines=_COUNT,
    ),
    _kind(
        "error",
        "logs.reopen_failed",
        "The log file cannot be reopened. The daemon continues to write to the old one.",
        message=_TEXT,
    ),
    _kind(
        "info",
        "logs.repeated",
        "The daemon wrote delta lines that could not be written before.",
        rows=_COUNT,
    ),
    _kind(
        "error",
        "look.failed",
        "A store does not report which rules are due. The scheduler retries later.",
        retry_seconds=_NUMBER,
        **_FAILURE,
    ),
    _kind(
        "warning",
        "metadata.misspelled",
        "The metadata has a key that is probably misspelled. slumberd does not read that key.",
        key=_TEXT,
        meant=_TEXT,
        episode_id=_TEXT,
        episodes=_COUNT,
    ),
    _kind(
        "warning",
        "metrics.failed",
        "The textfile for Prometheus cannot be written. Logged once per outage.",
        **_FAILURE,
    ),
    _kind(
        "warning",
        "notify.failed",
        "The service manager does not accept a notification.",
        error=_TEXT,
    ),
    _kind(
        "info",
        "provenance.concluded",
        "Rules of the Fathom engine fired on an assertion.",
        template=_TEXT,
        rules=_TEXTS,
        decision=_or_null(_TEXT),
    ),
    _kind(
        "warning",
        "provenance.failed",
        "The provenance sink does not accept assertions. They wait. Logged once per outage.",
        rows=_or_null(_COUNT),
        seconds=_or_null(_NUMBER),
        **_FAILURE,
    ),
    _kind(
        "warning",
        "provenance.refused",
        "The provenance sink cannot store a row of the ledger. The publisher skips the row.",
        seq=_COUNT,
        slot=_TEXT,
        message=_TEXT,
    ),
    _kind(
        "info",
        "provenance.resumed",
        "The provenance sink accepts assertions again.",
    ),
    _kind(
        "info", "rule.added", "A reload added a rule.", rule_id=_TEXT, rule_hash=_TEXT, file=_TEXT
    ),
    _kind(
        "info",
        "rule.begun",
        "A rule was loaded for the first time. It reads the episode log after the row `after`.",
        rule_id=_TEXT,
        after=_COUNT,
    ),
    _kind(
        "info",
        "rule.changed",
        "A reload changed a rule.",
        rule_id=_TEXT,
        rule_hash=_TEXT,
        before=_TEXT,
    ),
    _kind(
        "warning",
        "rule.degraded",
        "A rule has failed several times in a row. Its watermark has not moved.",
        rule_id=_TEXT,
        failures=_COUNT,
        since=_INSTANT,
        **_FAILURE,
    ),
    _kind(
        "warning",
        "rule.ineffective",
        "Several firings in a row read episodes and changed no fact. Logged once until one does.",
        rule_id=_TEXT,
        firings=_COUNT,
        read=_COUNT,
    ),
    _kind("info", "rule.paused", "A person paused a rule.", rule_id=_TEXT, by=_TEXT),
    _kind(
        "info",
        "rule.recovered",
        "A degraded rule has fired successfully.",
        rule_id=_TEXT,
        failures=_COUNT,
    ),
    _kind("info", "rule.removed", "A reload removed a rule.", rule_id=_TEXT, rule_hash=_TEXT),
    _kind("info", "rule.resumed", "A person resumed a rule.", rule_id=_TEXT, by=_TEXT),
    _kind(
        "warning",
        "watchdog.withheld",
        "The daemon withheld the watchdog notification, because a component makes no progress.",
        reason=_TEXT,
    ),
)

CATALOGUE: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""Every event that slumberd logs, by name; in order."""
