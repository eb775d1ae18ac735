"""The catalogue of events: every name in the log, its level, its meaning, and what it tells."""

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
        levels: That it may have.
        meaning: One line.
        fields: What a line tells, beyond when, how grave and which; by name, its JSON Schema.
            A traceback may be missing, the others not.
    """

    name: str
    levels: tuple[str, ...]
    meaning: str
    fields: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its lines; one that was cut keeps when, how grave and which."""
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
        "The next instants of a cron rule cannot be worked out; it does not fire.",
        rule_id=_TEXT,
        **_FAILURE,
    ),
    _kind(
        "info",
        "channels.changed",
        "Facts were settled again, because the multi-valued predicates changed.",
        firing_id=_TEXT,
        rows=_COUNT,
    ),
    _kind(
        "warning",
        "clock.jumped",
        "The wall clock was set; alarms were set anew.",
        delta_seconds=_NUMBER,
    ),
    _kind(
        "error",
        "config.reload_failed",
        "A reload found mistakes; the old rules stay. Many mistakes take several lines.",
        by=_TEXT,
        mistakes=_COUNT,
        errors=_TEXTS,
    ),
    _kind(
        "info",
        "config.reloaded",
        "Other rules are in force.",
        by=_TEXT,
        **_NAMED,
        added=_COUNT,
        removed=_COUNT,
        changed=_COUNT,
    ),
    _kind(
        "warning",
        "config.restart_needed",
        "Keys of the configuration changed that count from the next start only.",
        keys=_TEXTS,
    ),
    _kind(
        "error",
        "control.failed",
        "What was asked for over the socket failed, which is a bug.",
        operation=_TEXT,
        error=_TEXT,
    ),
    _kind(
        "error",
        "daemon.failed",
        "The daemon ends, and why.",
        **_FAILURE,
        exception=_TEXT,
    ),
    _kind("info", "daemon.heartbeat", "How the daemon is, each minute.", **_HEARTBEAT),
    _kind(
        "info",
        "daemon.ready",
        "The daemon has recovered, and fires and answers from now on.",
        pid=_COUNT,
        state_dir=_TEXT,
        rules=_COUNT,
        rules_hash=_TEXT,
    ),
    _kind("info", "daemon.stopped", "Everything is done.", uptime_seconds=_NUMBER),
    _kind(
        "info",
        "daemon.stopping",
        "The daemon was told to stop; what is under way has this long to end.",
        deadline_seconds=_NUMBER,
    ),
    Kind(
        "delta.applied",
        ("info", "warning"),
        "A row of the ledger, committed; a warning where an episode went into quarantine.",
        _DELTA,
    ),
    _kind(
        "warning",
        "episode.future",
        "Episodes are dated in the future: until then they own their subject and predicate.",
        count=_COUNT,
        episode_ids=_TEXTS,
        latest=_INSTANT,
        tolerance_seconds=_NUMBER,
    ),
    _kind(
        "warning",
        "episodes.left_out",
        "A call of `consolidate` made no delta of malformed episodes; the first of them are named.",
        rule_id=_TEXT,
        reasons={"type": "object", "additionalProperties": _COUNT},
        episode_ids=_TEXTS,
    ),
    _kind(
        "warning",
        "erasure.contradicted",
        "A database holds what one of them remembers as erased: it is an older copy.",
        path=_TEXT,
        problem=_TEXT,
    ),
    _kind(
        "info",
        "erasure.finished",
        "The daemon finished what an earlier `slumberd forget` had done by half.",
        erasures=_COUNT,
    ),
    _kind(
        "warning",
        "erasure.unfinished",
        "A half-done erasure cannot be finished: memory.db still holds what facts.db erased.",
        **_FAILURE,
    ),
    _kind(
        "error",
        "external.failed",
        "The facts cannot be looked at for edits of other programs; told once until they can.",
        **_FAILURE,
    ),
    _kind(
        "info", "external.noticed", "Edits of other programs were put on the record.", rows=_COUNT
    ),
    _kind(
        "info",
        "facts.adopted",
        "The first start found facts of other programs; it recorded them and changed no row.",
        found=_COUNT,
        unreadable=_COUNT,
    ),
    _kind("info", "firing.completed", "A batch was consolidated.", **_FIRING),
    _kind(
        "error",
        "firing.failed",
        "A firing failed; what it had committed stays, and it is tried again later.",
        rule_id=_TEXT,
        failures=_COUNT,
        retry_seconds=_or_null(_NUMBER),
        **_FAILURE,
    ),
    _kind(
        "warning",
        "firing.held",
        "A batch would take out more than its limit, and waits for a person.",
        firing_id=_TEXT,
        rule_id=_TEXT,
        problem=_TEXT,
        remedy=_TEXT,
    ),
    _kind(
        "info",
        "firing.served",
        "The cron instants of a rule up to one are served, with or without episodes.",
        rule_id=_TEXT,
        trigger=_TEXT,
        **_SERVED,
    ),
    _kind(
        "warning",
        "firing.skipped",
        "Cron instants that passed while nobody watched are left out; their episodes wait.",
        rule_id=_TEXT,
        reason=_TEXT,
        **_SERVED,
    ),
    _kind(
        "info",
        "firing.stopped",
        "A firing ended early, the batch under way taken back; it goes on later.",
        rule_id=_TEXT,
    ),
    _kind(
        "debug",
        "firing.traced",
        "Where in the code a firing failed.",
        rule_id=_TEXT,
        exception=_TEXT,
    ),
    _kind(
        "warning",
        "graph.evidence_failed",
        "A sink of provenance was not told of promoted triples; the facts are stored.",
        rule_id=_TEXT,
        facts=_COUNT,
        **_FAILURE,
    ),
    _kind(
        "info",
        "graph.promoted",
        "A rule has promoted what a graph says; its firing is null where nothing was new.",
        rule_id=_TEXT,
        firing_id=_or_null(_TEXT),
        rows=_COUNT,
        added=_COUNT,
        updated=_COUNT,
        unchanged=_COUNT,
        withheld={"type": "object", "additionalProperties": _COUNT},
        seconds=_NUMBER,
    ),
    _kind("warning", "heartbeat.failed", "A store cannot say how it is.", **_FAILURE),
    _kind(
        "error",
        "ledger.broken",
        "The ledger does not verify: `slumberd audit verify --log` says so.",
        rows=_COUNT,
        seq=_COUNT,
        problem=_TEXT,
    ),
    _kind(
        "info",
        "ledger.checkpoint",
        "How far the ledger reaches, and its head there.",
        rows=_COUNT,
        head=_TEXT,
    ),
    _kind(
        "info",
        "ledger.verified",
        "The ledger is as it was written: `slumberd audit verify --log` says so.",
        rows=_COUNT,
        head=_TEXT,
    ),
    Kind(
        "library.logged",
        _ANY_LEVEL,
        "What a library had to say.",
        {"logger": _TEXT, "message": _TEXT, "exception": _TEXT},
    ),
    _kind(
        "info",
        "lineage.redrawn",
        "Lineages were written anew, because their configured depth changed.",
        keys=_COUNT,
    ),
    _kind(
        "warning",
        "logs.dropped",
        "So many lines before this one were lost, because nobody read; those of deltas never are.",
        lines=_COUNT,
    ),
    _kind(
        "error",
        "logs.reopen_failed",
        "The log file cannot be opened anew; lines go on into the old one.",
        message=_TEXT,
    ),
    _kind(
        "info",
        "logs.repeated",
        "Rows of the ledger have their lines now that could not be written before.",
        rows=_COUNT,
    ),
    _kind(
        "error",
        "look.failed",
        "A store cannot say what is due; asked again later.",
        retry_seconds=_NUMBER,
        **_FAILURE,
    ),
    _kind(
        "warning",
        "metadata.misspelled",
        "Metadata has a key that is probably misspelled; slumberd does not read that key.",
        key=_TEXT,
        meant=_TEXT,
        episode_id=_TEXT,
        episodes=_COUNT,
    ),
    _kind(
        "warning",
        "metrics.failed",
        "The textfile for Prometheus cannot be written; told once until it can.",
        **_FAILURE,
    ),
    _kind("warning", "notify.failed", "The service manager cannot be told.", error=_TEXT),
    _kind(
        "info",
        "provenance.concluded",
        "Rules of the Fathom engine fired on what it was told.",
        template=_TEXT,
        rules=_TEXTS,
        decision=_or_null(_TEXT),
    ),
    _kind(
        "warning",
        "provenance.failed",
        "The sink of provenance cannot be told; told once until it can. The ledger waits for it.",
        rows=_or_null(_COUNT),
        seconds=_or_null(_NUMBER),
        **_FAILURE,
    ),
    _kind(
        "warning",
        "provenance.refused",
        "A row of the ledger has no form that the sink of provenance takes; it is passed over.",
        seq=_COUNT,
        slot=_TEXT,
        message=_TEXT,
    ),
    _kind(
        "info",
        "provenance.resumed",
        "The sink of provenance can be told again.",
    ),
    _kind(
        "info", "rule.added", "A reload brought a rule.", rule_id=_TEXT, rule_hash=_TEXT, file=_TEXT
    ),
    _kind(
        "info",
        "rule.begun",
        "A rule was seen for the first time, and reads what comes after this row of the log.",
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
        "A rule has failed several times in a row; its watermark is where it was.",
        rule_id=_TEXT,
        failures=_COUNT,
        since=_INSTANT,
        **_FAILURE,
    ),
    _kind(
        "warning",
        "rule.ineffective",
        "So many firings in a row read episodes, and changed nothing; told once until one does.",
        rule_id=_TEXT,
        firings=_COUNT,
        read=_COUNT,
    ),
    _kind("info", "rule.paused", "A person let a rule rest.", rule_id=_TEXT, by=_TEXT),
    _kind(
        "info",
        "rule.recovered",
        "A rule that was degraded has fired well.",
        rule_id=_TEXT,
        failures=_COUNT,
    ),
    _kind("info", "rule.removed", "A reload took a rule away.", rule_id=_TEXT, rule_hash=_TEXT),
    _kind("info", "rule.resumed", "A person let a rule go on.", rule_id=_TEXT, by=_TEXT),
    _kind(
        "warning",
        "watchdog.withheld",
        "The service manager was not told that all is well, for something does not get on.",
        reason=_TEXT,
    ),
)

CATALOGUE: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""Every event that slumberd logs, by name; in order."""
