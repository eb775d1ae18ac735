"""Commands that let rules meet episodes again, or go on: backfill, quarantine, approve, reject."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.changing import DryRun
from slumberd.cli.commands import examples
from slumberd.cli.configuration import settings_of
from slumberd.cli.fire import tell_reports
from slumberd.cli.instants import instant_of
from slumberd.cli.options import Channel, Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.cli.performing import performed
from slumberd.cli.reading import reading_all_facts
from slumberd.control import Answer
from slumberd.core.episode import microseconds
from slumberd.settings import Settings

QUARANTINED = ("rule", "channel", "episode", "reason", "detail", "row")
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
    answer = performed(
        settings_of(config, state_dir), "backfill", rule=rule, between=between, dry_run=dry_run
    )
    _tell(answer, dry_run=dry_run, json=json, nothing="the rule has passed no such episode")


def _tell(answer: Answer, *, dry_run: bool, json: bool, nothing: str) -> None:
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        tell_reports(answer, dry_run=dry_run, nothing=nothing)


def approve(
    firing: Held,
    channel: Channel = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Let a batch that is held go on, and its rule with it."""
    settings = settings_of(config, state_dir)
    answer = performed(
        settings, "decide", firing=firing, channel=channel, approve=True, dry_run=dry_run
    )
    _tell(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def reject(
    firing: Held,
    channel: Channel = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Pass over what a held batch met; its rule goes on after it.

    Nothing of it is promoted, unless its episodes change or `slumberd backfill` goes over them.
    """
    settings = settings_of(config, state_dir)
    answer = performed(
        settings, "decide", firing=firing, channel=channel, approve=False, dry_run=dry_run
    )
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
        print_table(QUARANTINED, (tuple(entry.values()) for entry in wanted))


async def _listed(settings: Settings) -> list[dict[str, Any]]:
    async with reading_all_facts(settings) as stores:
        return [entry for store in stores.values() for entry in await store.quarantine()]


@quarantine.command("retry", epilog=examples("slumberd quarantine retry --rule preferences e17"))
def retry(
    episodes: Episodes = None,
    rules: Rules = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Meet quarantined episodes again, after the configuration or a rule was repaired.

    They are settled as if they had come in order. An episode that is repaired itself is met again
    without this.
    """
    answer = performed(
        settings_of(config, state_dir),
        "retry",
        rules=rules or None,
        episodes=episodes or None,
        dry_run=dry_run,
    )
    _tell(answer, dry_run=dry_run, json=json, nothing="nothing was in quarantine")


@quarantine.command("drop", epilog=examples("slumberd quarantine drop e17"))
def drop(
    episodes: Episodes = None,
    rules: Rules = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Take episodes off the list; the ledger still says what became of them."""
    answer = performed(
        settings_of(config, state_dir),
        "drop",
        rules=rules or None,
        episodes=episodes or None,
        dry_run=dry_run,
    )
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        would = "would go: a dry run" if dry_run else "gone"
        print(f"{answer['dropped']} entries {would}")
