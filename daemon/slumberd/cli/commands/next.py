"""`slumberd next`: show when rules fire, in words and as instants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from slumberd.cli.client import ask_daemon
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json_lines
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.config.validation import suggestion
from slumberd.errors import StoreError, UsageError
from slumberd.model.cadence import Cadence, Cron, cadence_of
from slumberd.observability.line_format import printable
from slumberd.operations.handlers import Answer
from slumberd.operations.responses import list_cadences
from slumberd.scheduling.cron_text import Note, Timetable, in_words, timetable
from slumberd.service.composition import paused_rules_of, rules_of

MOST_SHOWN = 100

Scheduled = Mapping[str, Any]
"""A rule in the form that `list_cadences` returns."""

_NO_RULE: Scheduled = {"id": None, "enabled": True, "paused_by": None}


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a rule fires next.

    Attributes:
        rule: Its id; None for an expression of no rule.
        enabled: Whether the daemon fires it.
        paused_by: Who paused it; None when it is not paused.
        cadence: How often it fires.
        timezone: The time zone of its expression; None without an expression.
        table: Its next instants; empty without an expression.
    """

    rule: str | None
    enabled: bool
    paused_by: str | None
    cadence: Cadence
    timezone: str | None
    table: Timetable

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        cron = self.cadence if isinstance(self.cadence, Cron) else None
        return {
            "rule": self.rule,
            "enabled": self.enabled,
            "paused": self.paused_by is not None,
            "paused_by": self.paused_by and printable(self.paused_by),
            "every": None if isinstance(self.cadence, Cron) else self.cadence.count,
            "cron": cron.expression if cron else None,
            "timezone": self.timezone,
            "words": in_words(self.cadence),
            "next": [_instant(at) for at in self.table.instants] if cron else [],
            "notes": [_note(note) for note in self.table.notes],
        }

    def print(self) -> None:
        """Print it for people."""
        name = [cell(self.rule)] if self.rule else []
        print(" ".join([*name, *self._cron(), *self._pause()]) + f": {in_words(self.cadence)}")
        for at in self.table.instants:
            print(f"  {at:%a %Y-%m-%d %H:%M} {_offset(at)}  {cell(at)}")
        for note in self.table.notes:
            print(f"  note: {note.words()}")

    def _pause(self) -> list[str]:
        """Return why the daemon does not fire it; empty when the daemon fires it."""
        disabled = [] if self.enabled else ["(disabled)"]
        if self.paused_by is None:
            return disabled
        resume = f"`slumberd resume {self.rule}`"
        return [*disabled, f"(paused by {cell(self.paused_by)} until {resume})"]

    def _cron(self) -> list[str]:
        if isinstance(self.cadence, Cron):
            return [f"{cell(self.cadence.expression)!r} in {self.timezone}"]
        return []


def upcoming(
    rules: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RULE]...", help="Ids of rules. [default: every enabled rule]"),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "-n", "--count", min=1, max=MOST_SHOWN, metavar="N", help="Show N instants of each."
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
    shows who paused it. If the daemon runs, the command shows the daemon's rules: they differ from
    the files until `slumberd reload`. With --json, each rule is printed on a line.
    """
    if (rules and cron) or (timezone and not cron):
        raise UsageError("name rules, or give --cron and perhaps --timezone, not both")
    settings, now = settings_of(config, state_dir), SystemClock().now()
    if cron:
        found = [_outlook_of_expression(cron, timezone or settings.timezone, now, count)]
    else:
        answer = _load_rules(settings)
        selected = _select_rules(answer["rules"], rules or [])
        found = list(outlooks(selected, answer["timezone"], now, count))
    if json:
        print_json_lines(outlook.document() for outlook in found)
    else:
        for outlook in found:
            outlook.print()


def _outlook_of_expression(expression: str, timezone: str, now: datetime, count: int) -> Outlook:
    try:
        return _outlook(_NO_RULE, Cron(expression, timezone), timezone, now, count)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _load_rules(settings: Settings) -> Answer:
    """Return the rules of the running daemon, or those of the files when no daemon runs.

    Raises:
        StoreError: A daemon runs, but does not answer.
    """
    answer, silent = ask_daemon(settings, "next")
    if silent:
        raise StoreError(silent[0].problem)
    if answer is None:
        paused = paused_rules_of(settings).read()
        answer = list_cadences(rules_of(settings).rules, paused, settings.timezone)
    found: Answer = answer
    return found


def _select_rules(rules: Sequence[Scheduled], ids: Sequence[str]) -> list[Scheduled]:
    """Return the rules of these ids, in their order; without ids, the enabled rules."""
    known = {rule["id"]: rule for rule in rules}
    if unknown := [id for id in ids if id not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; {suggestion(unknown[0], known)}")
    return [known[id] for id in ids] or [rule for rule in known.values() if rule["enabled"]]


def outlooks(
    rules: Iterable[Scheduled], timezone: str, now: datetime, count: int
) -> Iterator[Outlook]:
    """Yield when each rule fires next.

    Args:
        rules: The rules, in the form that `list_cadences` returns.
        timezone: The time zone of expressions that name none.
        now: The instant to start from, with an offset.
        count: How many instants of each rule to compute.
    """
    for rule in rules:
        yield _outlook(rule, cadence_of(rule["cadence"]), timezone, now, count)


def _outlook(
    rule: Scheduled, cadence: Cadence, timezone: str, now: datetime, count: int
) -> Outlook:
    of_rule = rule["id"], rule["enabled"], rule["paused_by"], cadence
    if not isinstance(cadence, Cron):
        return Outlook(*of_rule, None, Timetable([], []))
    zone = cadence.timezone or timezone
    return Outlook(*of_rule, zone, timetable(cadence.expression, zone, after=now, most=count))


def _instant(at: datetime) -> dict[str, Any]:
    return {"local": at.isoformat(), "utc": at.astimezone(UTC)}


def _note(note: Note) -> dict[str, Any]:
    return {
        "at": note.change.at,
        "skipped": note.change.skipped,
        "times": [f"{time:%H:%M}" for time in note.times],
        "fired": note.fired,
        "words": note.words(),
    }


def _offset(at: datetime) -> str:
    text = f"{at:%z}"
    return f"{text[:3]}:{text[3:]}"
