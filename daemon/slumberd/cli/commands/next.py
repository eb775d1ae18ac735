"""`slumberd next`: show when rules fire, in words and as instants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from slumberd.cli.asking import ask_daemon
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json_lines
from slumberd.clock import SystemClock
from slumberd.daemon.one_read import read_operation
from slumberd.model.errors import StoreError, UsageError
from slumberd.model.rule import Cron
from slumberd.operations.forms import OperatorForm
from slumberd.operations.handlers import Answer
from slumberd.operations.reads.rule_states import Outlook, Scheduled, outlook, outlooks
from slumberd.operations.rules import MOST_INSTANTS, CadenceReads
from slumberd.rules.settings import Settings
from slumberd.rules.validation import suggestion
from slumberd.workers.scheduling.cron_text import in_words

_NO_RULE: Scheduled = {"id": None, "enabled": True, "paused_by": None}


def upcoming(
    rules: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RULE]...", help="Ids of rules. [default: every enabled rule]"),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "-n", "--count", min=1, max=MOST_INSTANTS, metavar="N", help="Show N instants of each."
        ),
    ] = 5,
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Explain this expression, in quotes, not a rule."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Read --cron in this time zone, an IANA name."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show when rules fire, in words, and the next instants in local time and in UTC.

    Notes describe clock changes: where a local time is skipped or comes twice, and what the rule
    does then. A paused rule does not fire at its instants until `slumberd resume`; the command
    shows who paused it. An instant that is served already is not shown. When a wrong clock recorded
    a served instant of the future, the command names it and counts from now. If the daemon runs,
    the command shows the daemon's rules: they differ from the files until `slumberd reload`. With
    --json, each rule is printed on a line.
    """
    if (rules and cron) or (timezone and not cron):
        raise UsageError("name rules, or give --cron and perhaps --timezone, not both")
    settings, now = settings_of(config, state_dir), SystemClock().now()
    if cron:
        found = [_outlook_of_expression(cron, timezone or settings.timezone, now, count)]
    else:
        answer = _load_rules(settings)
        selected = _select_rules(answer["rules"], rules or [])
        found = list(
            outlooks(
                selected,
                answer["timezone"],
                now,
                count,
                tolerance_seconds=settings.memory.future_tolerance,
            )
        )
    if json:
        print_json_lines(each.document() for each in found)
    else:
        for each in found:
            _print_outlook(each)


def _outlook_of_expression(expression: str, timezone: str, now: datetime, count: int) -> Outlook:
    try:
        return outlook(_NO_RULE, Cron(expression, timezone), timezone, now, count)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _load_rules(settings: Settings) -> Answer:
    """Return the rules of the running daemon, or those of the files when no daemon runs.

    Raises:
        StoreError: A daemon runs, but does not answer.
    """
    is_host = settings.host_store is not None  # its daemon answers only what needs no log
    answer, silent = (None, []) if is_host else ask_daemon(settings, "next")
    if silent:
        raise StoreError(silent[0].problem)
    if answer is None:
        answer = read_operation(settings, CadenceReads.next, OperatorForm())
    found: Answer = answer
    return found


def _select_rules(rules: Sequence[Scheduled], ids: Sequence[str]) -> list[Scheduled]:
    """Return the rules of these ids, in their order; without ids, the enabled rules."""
    known = {rule["id"]: rule for rule in rules}
    if unknown := [id for id in ids if id not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; {suggestion(unknown[0], known)}")
    return [known[id] for id in ids] or [rule for rule in known.values() if rule["enabled"]]


def _print_outlook(found: Outlook) -> None:
    name = [cell(found.rule)] if found.rule else []
    head = " ".join([*name, *_cron_of(found), *_pause_of(found)])
    print(f"{head}: {in_words(found.cadence)}")
    for at in found.table.instants:
        print(f"  {at:%a %Y-%m-%d %H:%M} {_offset(at)}  {cell(at)}")
    if found.ignored_served is not None:
        print(f"  note: {_ignored(found.ignored_served)}")
    for note in found.table.notes:
        print(f"  note: {note.words()}")


def _ignored(served: datetime) -> str:
    return (
        f"a wrong clock recorded that {served:%Y-%m-%d %H:%M:%S}Z is served; this is ignored, and "
        "the running daemon sets it to now"
    )


def _pause_of(found: Outlook) -> list[str]:
    """Return why the daemon does not fire a rule; empty when the daemon fires it."""
    disabled = [] if found.enabled else ["(disabled)"]
    if found.paused_by is None:
        return disabled
    resume = f"`slumberd resume {found.rule}`"
    return [*disabled, f"(paused by {cell(found.paused_by)} until {resume})"]


def _cron_of(found: Outlook) -> list[str]:
    if isinstance(found.cadence, Cron):
        return [f"{cell(found.cadence.expression)!r} in {found.timezone}"]
    return []


def _offset(at: datetime) -> str:
    text = f"{at:%z}"
    return f"{text[:3]}:{text[3:]}"
