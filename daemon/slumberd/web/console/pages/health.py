"""The pages of the daemon's health and of all shards: what needs a person, and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slumberd.logs.prometheus import ALIVE_SECONDS
from slumberd.model.errors import ConfigurationError
from slumberd.model.health import DaemonHealth, RuleHealth, Severity
from slumberd.operations.caller import Right
from slumberd.operations.handlers import Answer
from slumberd.tools.diagnostics.database_checks import check_status
from slumberd.web.console.rendering import link
from slumberd.web.console.visit import Shown, View, Visit


async def show_health(visit: Visit) -> Shown:
    """Show the figures of the heartbeat as of now, and what to do about them."""
    visit.caller.require(Right.OPERATE)
    health, status = await visit.served.health(), await visit.ask("status")
    problem = ""
    outdated: Answer = {"reload": [], "restart": []}
    try:
        outdated = await visit.ask("outdated")
    except ConfigurationError as error:
        problem = str(error)
    settings = visit.served.settings
    values = {
        "health": health,
        "status": status,
        "advice": advise(health, status, outdated, settings.postgres.lease),
        "unreadable": problem,
        "failures": {each["rule_id"]: each for each in status["failing"]},
        "sink": settings.provenance.sink,
        "alive_seconds": ALIVE_SECONDS,
    }
    return View("health.html", "Health", values)


async def show_shards(visit: Visit) -> Shown:
    """Show what each shard holds, and what waits there."""
    visit.caller.require(Right.OPERATE)
    counted = await visit.ask("shards")
    return View("shards.html", "Shards", {"counted": counted["shards"]})


LATE_SECONDS = 600.0
"""How long a rule may be due, and a provenance sink behind, before a person must look."""

WAL_BYTES = 512 * 1024 * 1024
"""How large the write-ahead logs of the stores may be."""

LAG_SECONDS = 1.0
"""How long the event loop may be delayed."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that needs a person.

    Attributes:
        severity: ``error`` when something does not work, else ``warning``.
        problem: What is wrong, in a sentence without its full stop.
        remedy: What to do.
        to: The page about it; empty when there is none.
    """

    severity: Severity
    problem: str
    remedy: str
    to: str = ""


def advise(
    health: DaemonHealth, status: Answer, outdated: Mapping[str, Sequence[str]], lease: float
) -> list[Advice]:
    """Return what a person must do, errors first.

    Args:
        health: The figures of the daemon.
        status: The answer of the operation ``status``.
        outdated: The answer of the operation ``outdated``.
        lease: The lease of the shards of a database, in seconds.
    """
    found = [
        *_on_failures(status["failing"]),
        *(advice for rule in health.rules for advice in _on_rule(rule)),
        *_on_counts(health),
        *_on_process(health),
        *_on_provenance(health),
        *_on_model(status["language_model"]),
        *_on_outdated(outdated),
        *_on_database(health, lease),
    ]
    return sorted(found, key=lambda advice: advice.severity != "error")


def _on_failures(failing: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    for rule in failing:
        times = "once" if rule["failures"] == 1 else f"{rule['failures']:,} times in a row"
        yield Advice(
            "error" if rule["degraded"] else "warning",
            f"The rule {rule['rule_id']} failed {times} since {rule['since'][:19]}Z:"
            f" {rule['error']}",
            "The daemon tries again, and no episode is lost. The line firing.failed of the log has"
            " the message; correct what it names. Until then `slumberd pause` stops the rule.",
            link("rule", rule=rule["rule_id"]),
        )


def _on_rule(rule: RuleHealth) -> Iterator[Advice]:
    status = rule.status
    if status.late_seconds >= LATE_SECONDS and not rule.failures:
        yield Advice(
            "warning",
            f"The rule {status.rule_id} has been due for {status.late_seconds / 60:,.0f} minutes",
            "If its pending episodes become fewer, do nothing. Else find the firing that delays all"
            " others, and give its rule a `timeout`.",
            link("rule", rule=status.rule_id),
        )
    if status.paused:
        yield Advice(
            "warning",
            f"The rule {status.rule_id} is paused",
            f"`slumberd resume {status.rule_id}` resumes it; it catches up on what it missed.",
            link("rule", rule=status.rule_id),
        )


def _on_counts(health: DaemonHealth) -> Iterator[Advice]:
    if health.held:
        yield Advice(
            "error",
            _count(health.held, "batch awaits approval", "batches await approval"),
            "Approve each batch if its deletions are intended, else reject it. Its rule waits until"
            " then.",
            link("approvals"),
        )
    if health.quarantined:
        yield Advice(
            "warning",
            _count(health.quarantined, "episode is in quarantine", "episodes are in quarantine"),
            "Correct the program that wrote them. Then read them again, or drop them.",
            link("quarantine"),
        )


def _on_process(health: DaemonHealth) -> Iterator[Advice]:
    if health.dropped:
        yield Advice(
            "warning",
            _count(health.dropped, "log line was dropped", "log lines were dropped"),
            "The reader of the log was too slow, or its disk is full. Raise RateLimitBurst= of"
            " journald, or free space. Lines of deltas are written later; other lines are lost.",
        )
    if health.wal_bytes > WAL_BYTES:
        yield Advice(
            "warning",
            f"The write-ahead logs take {health.wal_bytes / 2**20:,.0f} MiB",
            "A program keeps a read transaction open. `fuser -v` on the databases shows it. End it;"
            " the logs shrink with the next writes.",
        )
    if health.loop_lag_seconds > LAG_SECONDS:
        yield Advice(
            "warning",
            f"The event loop was delayed by {health.loop_lag_seconds:,.1f} s",
            "The host has too little processor time or memory, or its disk hangs.",
        )


def _on_provenance(health: DaemonHealth) -> Iterator[Advice]:
    sink = health.provenance
    if sink is None:
        return
    if sink.rows and sink.seconds > LATE_SECONDS:
        yield Advice(
            "warning",
            f"The provenance sink is {sink.rows:,} rows and {sink.seconds / 60:,.0f} minutes"
            " behind",
            "Nothing is lost: the daemon publishes them once the sink answers. The line"
            " provenance.failed of the log says why it does not.",
        )
    if sink.refused:
        yield Advice(
            "warning",
            _count(sink.refused, "row is", "rows are")
            + " never published: the provenance sink accepts no form of them",
            "The lines provenance.refused of the log name them.",
        )


def _on_model(model: Answer | None) -> Iterator[Advice]:
    if model is None:
        return
    spent = [name for name, limit in model["budget"].items() if _is_spent(model[name], limit)]
    if spent:
        yield Advice(
            "warning",
            f"The budget of the language model for today is spent: {', '.join(spent)}",
            "Wait until tomorrow UTC, or raise `language_model.budget`. Rules that need the model"
            " wait; other rules continue.",
        )
    elif model["problem"]:
        yield Advice(
            "warning",
            f"The language model does not answer: {model['problem']}",
            "Check the server of the model, and `language_model` in the configuration. The daemon"
            " asks again. Rules that need the model wait; other rules continue.",
        )


def _is_spent(amount: float, limit: float | None) -> bool:
    return limit is not None and amount >= limit


def _on_outdated(outdated: Mapping[str, Sequence[str]]) -> Iterator[Advice]:
    remedies: Mapping[str, str] = {
        "reload": "`slumberd reload` applies them.",
        "restart": "Only a restart applies them: `systemctl restart slumberd`.",
    }
    for how, remedy in remedies.items():
        if keys := outdated[how]:
            yield Advice(
                "warning",
                f"The configuration file has other values for {', '.join(keys)}",
                remedy,
            )


def _on_database(health: DaemonHealth, lease: float) -> Iterator[Advice]:
    if health.database is not None:
        for finding in check_status(health.database, lease):
            yield Advice(finding.severity, finding.problem, finding.remedy)


def _count(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"
