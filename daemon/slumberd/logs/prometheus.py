"""Render metrics in the text format of Prometheus, and write the file of its node_exporter."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from slumberd.model.health import DaemonHealth, RuleHealth, StandbyHealth

Of = TypeVar("Of")

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple, Generic[Of]):
    """One metric, of the daemon or of each rule.

    Attributes:
        name: Its name without the prefix ``slumberd_``.
        meaning: The text of its ``HELP`` line.
        value: Returns its value; None without one.
    """

    name: str
    meaning: str
    value: Callable[[Of], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


def _epoch(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


_TIME: Sequence[Family[Any]] = (
    Family("heartbeat_timestamp_seconds", "The time of this heartbeat.", lambda v: _epoch(v.at)),
    Family("uptime_seconds", "The time since the start of the daemon.", lambda v: v.uptime_seconds),
    Family(
        "standby",
        "1 while this daemon waits for the holder of its database to end, else 0.",
        lambda v: 1 if isinstance(v, StandbyHealth) else 0,
    ),
)
"""The metrics of a daemon that is active, and of one that waits."""

ALIVE_SECONDS = 60.0
"""A daemon of another host counts when it said something so recently."""

OF_DAEMON: Sequence[Family[DaemonHealth]] = (
    *_TIME,
    Family(
        "loop_lag_seconds",
        "The longest delay of the event loop since the last heartbeat.",
        lambda v: v.loop_lag_seconds,
    ),
    Family("wal_bytes", "Size of the write-ahead logs.", lambda v: v.wal_bytes),
    Family("resident_memory_bytes", "Memory of the daemon.", lambda v: v.rss_bytes),
    Family(
        "search_index_bytes",
        "About how much memory the indexes of searches take.",
        lambda v: v.index_bytes,
    ),
    Family(
        "log_lines_dropped_total", "Log lines that were dropped.", lambda v: v.dropped, "counter"
    ),
    Family("rules", "Rules in force, with disabled rules.", lambda v: v.loaded),
    Family("late_seconds", "The longest time that a rule has been due.", lambda v: v.late_seconds),
    Family("held_batches", "Batches that wait for a person.", lambda v: v.held),
    Family("quarantined_episodes", "Episodes in quarantine.", lambda v: v.quarantined),
    Family(
        "provenance_lag_rows",
        "Ledger rows that are not published to the provenance sink yet.",
        lambda v: v.provenance.rows if v.provenance else None,
    ),
    Family(
        "provenance_lag_seconds",
        "The age of the oldest row that is not published; 0 without any.",
        lambda v: v.provenance.seconds if v.provenance else None,
    ),
    Family(
        "provenance_refused_total",
        "Ledger rows that the provenance sink cannot store.",
        lambda v: v.provenance.refused if v.provenance else None,
        "counter",
    ),
    Family(
        "ledger_rows_total",
        "Rows of the ledger.",
        lambda v: v.tallies.rows if v.tallies else None,
        "counter",
    ),
    Family(
        "episode_versions_total",
        "Versions of episodes that were written.",
        lambda v: v.tallies.versions if v.tallies else None,
        "counter",
    ),
    Family(
        "batches_total",
        "Batches in the ledger, of all rules and commands.",
        lambda v: v.tallies.whole.batches if v.tallies else None,
        "counter",
    ),
    Family(
        "facts_changed_total",
        "Facts that were added, replaced, removed or restored.",
        lambda v: v.tallies.whole.changed if v.tallies else None,
        "counter",
    ),
    Family(
        "last_success_timestamp_seconds",
        "The start of the last successful firing of any rule.",
        lambda v: _epoch(v.succeeded_at),
    ),
    Family(
        "clock_behind_seconds",
        "By how much the newest recorded instant lies ahead of the clock; 0 when it does not.",
        lambda v: v.clock_behind_seconds,
    ),
    Family(
        "next_firing_timestamp_seconds",
        "The next instant of any cron rule.",
        lambda v: _epoch(v.next_at),
    ),
    Family(
        "database_bytes",
        "Size of all tables and indexes of slumberd in its database.",
        lambda v: v.database.bytes if v.database else None,
    ),
    Family(
        "database_daemons",
        "Daemons that use the database, active and standby.",
        lambda v: len(v.database.hosts_seen_within(ALIVE_SECONDS)) if v.database else None,
    ),
    Family(
        "database_unheld_shards",
        "Shards of the database that no daemon holds.",
        lambda v: v.database.unheld_shards if v.database else None,
    ),
    Family(
        "database_unnumbered_versions",
        "Versions of episodes without a number in the log, up to 100,000.",
        lambda v: v.database.unnumbered if v.database else None,
    ),
    Family(
        "database_unnumbered_seconds",
        "The age of the oldest version without a number; 0 without any.",
        lambda v: v.database.unnumbered_seconds if v.database else None,
    ),
    Family(
        "database_open_requests",
        "Requests of commands that have no answer yet.",
        lambda v: v.database.requests if v.database else None,
    ),
    Family(
        "database_oldest_transaction_seconds",
        "The age of the oldest transaction in the database; 0 without any.",
        lambda v: v.database.oldest_transaction_seconds if v.database else None,
    ),
    Family(
        "database_frozen_transactions",
        "How many transactions ago the oldest database of the server was frozen.",
        lambda v: v.database.transaction_age if v.database else None,
    ),
)
"""The metrics of the daemon."""

OF_RULE: Sequence[Family[RuleHealth]] = (
    Family(
        "rule_pending_episodes",
        "Versions of episodes that are pending, up to 10,000.",
        lambda rule: rule.status.pending or 0,
    ),
    Family(
        "rule_oldest_pending_seconds",
        "The age of the oldest pending episode; 0 without any.",
        lambda rule: rule.status.oldest_seconds or 0,
    ),
    Family(
        "rule_late_seconds",
        "The time that the rule has been due; 0 when it is not due.",
        lambda rule: rule.status.late_seconds,
    ),
    Family(
        "rule_last_success_timestamp_seconds",
        "The start of the last successful firing of the rule.",
        lambda rule: _epoch(rule.status.succeeded_at),
    ),
    Family(
        "rule_consecutive_failures",
        "Firings of the rule that failed in a row.",
        lambda rule: rule.failures,
    ),
    Family(
        "rule_quarantined_episodes",
        "Episodes that are quarantined for the rule.",
        lambda rule: rule.status.quarantined,
    ),
    Family(
        "rule_batches_total",
        "Batches of the rule in the ledger.",
        lambda rule: rule.tally.batches if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_versions_read_total",
        "Versions of episodes that the rule has evaluated.",
        lambda rule: rule.tally.read if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_facts_changed_total",
        "Facts that the rule added, replaced, removed or restored.",
        lambda rule: rule.tally.changed if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_versions_quarantined_total",
        "Versions of episodes that were quarantined for the rule.",
        lambda rule: rule.tally.quarantined if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_failures_total",
        "Firings of the rule that failed since the daemon started.",
        lambda rule: rule.failed,
        "counter",
    ),
    Family(
        "rule_held_batches",
        "Batches of the rule that wait for a person.",
        lambda rule: int(rule.status.held_firing_id != ""),
    ),
)
"""The metrics of each enabled rule, with a label ``rule``."""


def render_metrics(vitals: DaemonHealth) -> bytes:
    """Return the metrics in the text format of Prometheus, version 0.0.4."""
    lines = [
        *_lines(OF_DAEMON, [("", vitals)]),
        *_lines(
            OF_RULE, [(f'{{rule="{escape(rule.status.rule_id)}"}}', rule) for rule in vitals.rules]
        ),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def render_standby_metrics(vitals: StandbyHealth) -> bytes:
    """Return the metrics of a daemon that waits, as `render_metrics` does."""
    return "".join(f"{line}\n" for line in _lines(_TIME, [("", vitals)])).encode()


_TOTAL = "_total"


def render_open_metrics(vitals: DaemonHealth) -> bytes:
    """Return the metrics in the text format of OpenMetrics, version 1.0.0.

    It differs from the format of Prometheus in the names of counters, and in its last line.
    """
    described = ("# HELP ", "# TYPE ")
    lines = [
        _without_total(line) if line.startswith(described) else line
        for line in render_metrics(vitals).decode().splitlines()
    ]
    return "".join(f"{line}\n" for line in [*lines, "# EOF"]).encode()


def _without_total(line: str) -> str:
    """Return a line about a metric, with the name of the metric as OpenMetrics has it."""
    sign, word, name, rest = line.split(" ", 3)
    return f"{sign} {word} {name.removesuffix(_TOTAL)} {rest}"


def escape(text: str) -> str:
    """Return the value of a label, escaped for its quotes."""
    return text.translate(_ESCAPED)


def _lines(families: Iterable[Family[Of]], of: Sequence[tuple[str, Of]]) -> Iterator[str]:
    for family in families:
        values = [(labels, family.value(subject)) for labels, subject in of]
        samples = [(labels, value) for labels, value in values if value is not None]
        if samples:
            yield f"# HELP slumberd_{family.name} {family.meaning}"
            yield f"# TYPE slumberd_{family.name} {family.kind}"
        yield from (f"slumberd_{family.name}{labels} {value!r}" for labels, value in samples)


MODE = 0o644
"""Every user may read the file, as node_exporter must; it holds nothing personal."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_textfile(path: Path, text: bytes) -> None:
    """Replace a file as a whole, so that a reader never sees a part of it.

    Other users may write in the directory of the collector. So the new file has a random name, must
    not exist yet, and gets its mode by its descriptor: a planted link has no effect.

    Raises:
        OSError: The file cannot be written; the old file is still there.
    """
    # node_exporter reads *.prom only, so not the new file.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(fresh, _FLAGS, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(descriptor, MODE)  # the umask of the daemon does not apply
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
