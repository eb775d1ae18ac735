"""Commands that let rules meet episodes again, or go on: backfill, quarantine, approve, reject."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.client import perform_request, reading_facts
from slumberd.cli.commands.fire import DryRun, limit_of, tell_fired
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, Listed, StateDir, Verbose, instant_of
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.cli.registry import examples
from slumberd.cli.wording import listed, number, plural
from slumberd.config.settings import Settings
from slumberd.model.episode import microseconds
from slumberd.service.control_socket import Answer

QUARANTINED = ("episode", "rule", "channel", "reason", "detail", "row")
EARLIEST, LATEST = -(2**62), 2**62

Since = Annotated[
    datetime | None,
    typer.Option("--from", parser=instant_of, metavar="T", help="Only episodes from T on."),
]
Until = Annotated[
    datetime | None,
    typer.Option("--to", parser=instant_of, metavar="T", help="Only episodes before T."),
]
Held = Annotated[str, typer.Argument(help="The id that the hold was reported with.")]
Rules = Annotated[list[str] | None, typer.Option("--rule", help="Only of this rule; repeatable.")]
Episodes = Annotated[
    list[str] | None, typer.Argument(metavar="[EPISODE]...", help="Only these; else all.")
]
Named = Annotated[list[str] | None, typer.Argument(metavar="[EPISODE]...", help="Ids of episodes.")]

quarantine = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Episodes that could not be read: list them, meet them again, or forget about them.",
)


def backfill(
    rule: Annotated[str, typer.Argument(help="The id of a rule.")],
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Make what a rule has promoted equal to what it says today.

    Goes over the episodes that the rule has passed: new matches are added, what no longer matches
    is withdrawn, what was undone comes back. Its watermark stays. What is as it was leaves no row
    in the ledger, and is counted as noop.
    """
    between = None
    if since or until:
        between = [
            microseconds(since) if since else EARLIEST,
            microseconds(until) if until else LATEST,
        ]
    answer = perform_request(
        settings_of(config, state_dir),
        "backfill",
        verbose=verbose,
        rule=rule,
        between=between,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    tell_fired(answer, dry_run=dry_run, json=json, nothing="the rule has passed no such episode")


def approve(
    firing: Held,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Let a batch that is held go on, and its rule with it."""
    settings = settings_of(config, state_dir)
    answer = perform_request(
        settings,
        "decide",
        verbose=verbose,
        firing=firing,
        approve=True,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    tell_fired(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def reject(
    firing: Held,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Pass over what a held batch met; its rule goes on after it.

    Nothing of it is promoted, unless its episodes change or `slumberd backfill` goes over them.
    """
    settings = settings_of(config, state_dir)
    answer = perform_request(settings, "decide", firing=firing, approve=False, dry_run=dry_run)
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        would = "would be passed over: a dry run" if dry_run else "passed over"
        print(f"{firing}: {would}; `slumberd backfill` would take it up again")


@quarantine.command("ls", epilog=examples("slumberd quarantine ls"))
def ls(
    rules: Rules = None, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Show the episodes that could not be read, and why."""
    found = asyncio.run(_listed(settings_of(config, state_dir)))
    wanted = [entry for entry in found if not rules or entry["rule_id"] in rules]
    if json:
        print_json_lines(wanted)
    else:
        print_table(QUARANTINED, map(_row, wanted), empty=_nothing_listed(found))


def _nothing_listed(found: Sequence[dict[str, Any]]) -> str:
    """Say that a list is empty, and of which rules there are entries."""
    rules = sorted({entry["rule_id"] for entry in found})
    others = f" of these rules; there is something of {listed(rules)}" if rules else ""
    return f"nothing is in quarantine{others}"


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    names = ("episode_id", "rule_id", "channel", "reason", "detail", "seq")
    return tuple(entry[name] for name in names)


async def _listed(settings: Settings) -> list[dict[str, Any]]:
    async with reading_facts(settings) as facts:
        return await facts.quarantine()


@quarantine.command("retry", epilog=examples("slumberd quarantine retry --rule preferences e17"))
def retry(
    episodes: Episodes = None,
    rules: Rules = None,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Meet quarantined episodes again, after the configuration or a rule was repaired.

    They are settled as if they had come in order. An episode that is repaired itself is met again
    without this. What still cannot be read stays in quarantine, and is listed with the reason.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "retry",
        verbose=verbose,
        rules=rules or None,
        episodes=episodes or None,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    if not json:
        _tell_still_quarantined(answer)
    tell_fired(answer, dry_run=dry_run, json=json, nothing=_nothing_retried(answer, episodes))


def _tell_still_quarantined(answer: Answer) -> None:
    """Print which episodes still cannot be read, and why."""
    still, total = answer["still_quarantined"], answer["still_quarantined_total"]
    if not total:
        return
    print_table(QUARANTINED, map(_row, still))
    are = "is" if total == 1 else "are"
    shown = (
        "" if total == len(still) else f", {number(len(still))} listed; --limit {total} lists all"
    )
    print(f"{plural(total, 'episode')} {are} still in quarantine{shown}")


def _nothing_retried(answer: Answer, episodes: list[str] | None) -> str:
    if answer["still_quarantined_total"]:
        return "nothing of it can be read again: its episodes changed since, or are gone"
    return "none of these is in quarantine" if episodes else "nothing was in quarantine"


@quarantine.command("drop", epilog=examples("slumberd quarantine drop e17"))
def drop(
    episodes: Named = None,
    every: Annotated[bool, typer.Option("--all", help="Drop all that is listed.")] = False,
    rules: Rules = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Take episodes off the list; the ledger still says what became of them.

    Name the episodes, or give --all. An id that is not listed ends it with exit code 66, before
    anything is done.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "drop",
        rules=rules or None,
        episodes=episodes or None,
        all=every,
        dry_run=dry_run,
    )
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        entries = plural(answer["dropped"], "entry", "entries")
        would = "would go: a dry run" if dry_run else "gone"
        print(f"{entries} {would}")
