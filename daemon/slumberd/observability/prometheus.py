"""Figures as Prometheus reads them: names, help and types, in its text format. Writes nothing.

The file that Prometheus' node_exporter reads: whole at every moment.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from slumberd.model.health import RuleVitals, Vitals

Of = TypeVar("Of")

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple, Generic[Of]):
    """One metric, of the daemon or of each rule.

    Attributes:
        name: Without what all begin with.
        meaning: One line.
        value: Returns it; None where there is none.
        kind: What may become of it.
    """

    name: str
    meaning: str
    value: Callable[[Of], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


def _epoch(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


OF_DAEMON: Sequence[Family[Vitals]] = (
    Family("heartbeat_timestamp_seconds", "When this was written.", lambda v: _epoch(v.at)),
    Family("uptime_seconds", "Since the start of the daemon.", lambda v: v.uptime_seconds),
    Family(
        "loop_lag_seconds",
        "How late the event loop was, at worst, since the heartbeat before.",
        lambda v: v.loop_lag_seconds,
    ),
    Family("wal_bytes", "Size of the write-ahead logs.", lambda v: v.wal_bytes),
    Family("resident_memory_bytes", "Memory of the daemon.", lambda v: v.rss_bytes),
    Family(
        "log_lines_dropped_total", "Log lines that nobody read.", lambda v: v.dropped, "counter"
    ),
    Family("rules", "Rules in force, disabled ones included.", lambda v: v.loaded),
    Family("late_seconds", "For how long any rule has been due.", lambda v: v.late_seconds),
    Family("held_batches", "Batches that wait for a person.", lambda v: v.held),
    Family("quarantined_episodes", "Episodes that a rule could not read.", lambda v: v.quarantined),
    Family(
        "provenance_lag_rows",
        "Rows of the ledger that the sink of provenance was not told of yet.",
        lambda v: v.provenance.rows if v.provenance else None,
    ),
    Family(
        "provenance_lag_seconds",
        "How old the first of them is; 0 without any.",
        lambda v: v.provenance.seconds if v.provenance else None,
    ),
    Family(
        "provenance_refused_total",
        "Rows that have no form that the sink of provenance takes.",
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
        "Versions of episodes that were put.",
        lambda v: v.tallies.versions if v.tallies else None,
        "counter",
    ),
    Family(
        "batches_total",
        "Batches that the ledger holds, of all rules and commands.",
        lambda v: v.tallies.whole.batches if v.tallies else None,
        "counter",
    ),
    Family(
        "facts_changed_total",
        "Facts that were added, replaced, taken out or brought back.",
        lambda v: v.tallies.whole.changed if v.tallies else None,
        "counter",
    ),
    Family(
        "last_success_timestamp_seconds",
        "When the last firing of any rule began that went well.",
        lambda v: _epoch(v.succeeded_at),
    ),
    Family(
        "next_firing_timestamp_seconds",
        "The next instant of any cron rule.",
        lambda v: _epoch(v.next_at),
    ),
)
"""What there is once."""

OF_RULE: Sequence[Family[RuleVitals]] = (
    Family(
        "rule_pending_episodes",
        "Versions of episodes that wait, up to 10,000.",
        lambda rule: rule.pending,
    ),
    Family(
        "rule_oldest_pending_seconds",
        "How old the first episode is that waits; 0 when none does.",
        lambda rule: rule.oldest_seconds or 0,
    ),
    Family(
        "rule_late_seconds",
        "For how long the rule has been due; 0 when it is not.",
        lambda rule: rule.late_seconds,
    ),
    Family(
        "rule_last_success_timestamp_seconds",
        "When its last firing began that went well.",
        lambda rule: _epoch(rule.succeeded_at),
    ),
    Family(
        "rule_consecutive_failures", "Firings that failed in a row.", lambda rule: rule.failures
    ),
    Family(
        "rule_quarantined_episodes",
        "Episodes that the rule could not read.",
        lambda rule: rule.quarantined,
    ),
    Family(
        "rule_batches_total",
        "Batches of the rule that the ledger holds.",
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
        "Facts that the rule has added, replaced, taken out or brought back.",
        lambda rule: rule.tally.changed if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_versions_quarantined_total",
        "Versions of episodes that the rule could not read.",
        lambda rule: rule.tally.quarantined if rule.tally else None,
        "counter",
    ),
    Family(
        "rule_failures_total",
        "Firings of the rule that failed since the daemon started.",
        lambda rule: rule.failed,
        "counter",
    ),
    Family("rule_held_batches", "Its batches that wait for a person.", lambda rule: rule.held),
)
"""What there is once for each rule that is enabled, with a label ``rule``."""


def exposition(vitals: Vitals) -> bytes:
    """Return the figures in the text format of Prometheus, version 0.0.4."""
    lines = [
        *_lines(OF_DAEMON, [("", vitals)]),
        *_lines(OF_RULE, [(f'{{rule="{escaped(one.rule_id)}"}}', one) for one in vitals.rules]),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def escaped(text: str) -> str:
    """Return a label's value as it stands between quotes."""
    return text.translate(_ESCAPED)


def _lines(families: Iterable[Family[Of]], of: Sequence[tuple[str, Of]]) -> Iterator[str]:
    for family in families:
        values = [(labels, family.value(one)) for labels, one in of]
        samples = [(labels, value) for labels, value in values if value is not None]
        if samples:
            yield f"# HELP slumberd_{family.name} {family.meaning}"
            yield f"# TYPE slumberd_{family.name} {family.kind}"
        yield from (f"slumberd_{family.name}{labels} {value!r}" for labels, value in samples)


MODE = 0o644
"""Everybody may read it, node_exporter above all; there is nothing personal in it."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_textfile(path: Path, text: bytes) -> None:
    """Put a text in the place of the one before.

    Others may write in the directory of the collector. So the new file has a name that nobody can
    guess, is never one that is there already, and gets its mode by its descriptor: a link that
    somebody planted leads nowhere.

    Raises:
        OSError: It cannot be written; the one before is still there.
    """
    # node_exporter reads *.prom only, and not what is beside it for a moment.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(fresh, _FLAGS, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(descriptor, MODE)  # whatever the umask of the daemon
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
