"""Commands on episodes that a rule has passed, on batches that await approval, and on the clock.

They are `slumberd backfill`, `quarantine`, `approve`, `reject` and `clock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.client import perform_request, reason_field
from slumberd.cli.commands.fire import limit_of, print_answer, print_firings
from slumberd.cli.confirmation import require_confirmation
from slumberd.cli.context import settings_of
from slumberd.cli.instants import instant_of
from slumberd.cli.options import MOST, Config, DryRun, Json, Listed, ReasonOrNone, StateDir, Verbose
from slumberd.cli.output import join_names, number, plural, print_json_lines, print_table
from slumberd.cli.registry import examples
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.model.episode import microseconds
from slumberd.operations.handlers import Answer
from slumberd.operations.quarantine import QuarantinedForm, QuarantineReads

QUARANTINE_COLUMNS = ("episode", "rule", "channel", "reason", "detail", "row")
EARLIEST, LATEST = -(2**62), 2**62

Since = Annotated[
    datetime | None,
    typer.Option("--from", parser=instant_of, metavar="T", help="Only episodes from T on."),
]
Until = Annotated[
    datetime | None,
    typer.Option("--to", parser=instant_of, metavar="T", help="Only episodes before T."),
]
HeldFiring = Annotated[str, typer.Argument(help="The id of the held batch, as `fire` reports it.")]
Rules = Annotated[list[str] | None, typer.Option("--rule", help="Take only this rule; repeatable.")]
EpisodesOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EPISODE]...", help="Ids of episodes. [default: all]"),
]
Episodes = Annotated[
    list[str] | None, typer.Argument(metavar="[EPISODE]...", help="Ids of episodes.")
]

quarantine = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, retry or drop episodes that a rule has not read.",
)


def backfill(
    rule: Annotated[str, typer.Argument(help="The id of a rule.")],
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Make what a rule has promoted equal to what the rule says today.

    The rule evaluates the episodes that it has passed. It adds new matches, withdraws what no
    longer matches, and restores what was undone. Its watermark stays. An episode that does not
    change anything leaves no row in the ledger, and is counted as noop.

    The command plans first. A backfill over a deletion limit awaits approval: nothing of it is
    applied, firings go on, and the exit code is 1. Episodes that a person rejected for the rule as
    it is now are left out, also with exit code 1.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "backfill",
        verbose=verbose,
        rule=rule,
        between=_range_of(since, until),
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
        **reason_field(reason),
    )
    print_firings(answer, dry_run=dry_run, json=json, nothing="the rule has passed no such episode")


def _range_of(since: datetime | None, until: datetime | None) -> list[int] | None:
    """Return the instants that a backfill begins and ends at; None without either."""
    if since is None and until is None:
        return None
    return [microseconds(since) if since else EARLIEST, microseconds(until) if until else LATEST]


def approve(
    firing: HeldFiring,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Apply a batch, a backfill or a retry that awaits approval.

    The command plans again. When the rule changed since, or more facts would go, nothing is
    applied, and the exit code is 1: what would be done now awaits an approval of its own.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "decide",
        verbose=verbose,
        firing=firing,
        approve=True,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
        **reason_field(reason),
    )
    print_firings(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def reject(
    firing: HeldFiring,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Skip a batch, a backfill or a retry that awaits approval; its rule continues.

    No command evaluates its episodes for this rule, until they change or the rule does.
    """
    settings = settings_of(config, state_dir)
    answer = perform_request(
        settings,
        "decide",
        firing=firing,
        approve=False,
        dry_run=dry_run,
        **reason_field(reason),
    )
    if json:
        print_answer(answer, dry_run=dry_run)
    else:
        result = "would be skipped: a dry run" if dry_run else "skipped"
        print(f"{firing}: {result}; no command evaluates it until the rule changes")


@quarantine.command("ls", epilog=examples("slumberd quarantine ls"))
def ls(
    rules: Rules = None, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Show the episodes that a rule could not read, and why."""
    request = unbounded(QuarantinedForm, limit=MOST)
    page = read_operation(settings_of(config, state_dir), QuarantineReads.quarantined, request)
    wanted = [
        entry.model_dump(exclude={"user", "agent"})
        for entry in page.entries
        if not rules or entry.rule_id in rules
    ]
    if json:
        print_json_lines(wanted)
    else:
        print_table(QUARANTINE_COLUMNS, map(_row, wanted), empty=_describe_empty_list(page.totals))


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    names = ("episode_id", "rule_id", "channel", "reason", "detail", "seq")
    return tuple(entry[name] for name in names)


def _describe_empty_list(totals: Mapping[str, int]) -> str:
    """Return the message for an empty list, with the rules that have entries."""
    others = f" for these rules; rules with entries: {join_names(sorted(totals))}" if totals else ""
    return f"nothing is in quarantine{others}"


@quarantine.command("retry", epilog=examples("slumberd quarantine retry --rule preferences e17"))
def retry(
    episodes: EpisodesOrAll = None,
    rules: Rules = None,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Evaluate quarantined episodes again, after the configuration or a rule was repaired.

    Their claims are resolved as if they had come in order. An episode that is itself repaired needs
    no retry: its rule evaluates the new version. An episode that still cannot be read stays in
    quarantine, and is listed with the reason.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "retry",
        verbose=verbose,
        rules=rules or None,
        episodes=episodes or None,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
        **reason_field(reason),
    )
    if not json:
        _print_still_quarantined(answer)
    print_firings(answer, dry_run=dry_run, json=json, nothing=_explain_no_retry(answer, episodes))


def _print_still_quarantined(answer: Answer) -> None:
    """Print which episodes still cannot be read, and why."""
    entries, total = answer["still_quarantined"], answer["still_quarantined_total"]
    if not total:
        return
    print_table(QUARANTINE_COLUMNS, map(_row, entries))
    verb = "is" if total == 1 else "are"
    left = f", {number(len(entries))} listed; --limit {total} lists all"
    shown = "" if total == len(entries) else left
    print(f"{plural(total, 'episode')} {verb} still in quarantine{shown}")


def _explain_no_retry(answer: Answer, episodes: list[str] | None) -> str:
    if answer["still_quarantined_total"]:
        return "no episode can be read again: each has changed since, or no longer exists"
    return "none of these is in quarantine" if episodes else "nothing was in quarantine"


@quarantine.command("future", epilog=examples("slumberd quarantine future --dry-run"))
def future(
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Withdraw claims whose instant is still to come into the quarantine, until it comes.

    slumberd 0.2.0 made them current at once, so nothing newer replaced them. An older version of
    the episode is current again. A correction that took such an instant gets that of this moment.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "withdraw_future",
        dry_run=dry_run,
        **reason_field(reason),
    )
    if json:
        print_answer(answer, dry_run=dry_run)
    else:
        claims = plural(answer["withdrawn"], "claim")
        print(f"{claims} would be withdrawn: a dry run" if dry_run else f"{claims} withdrawn")


@quarantine.command("drop", epilog=examples("slumberd quarantine drop e17"))
def drop(
    episodes: Episodes = None,
    every: Annotated[bool, typer.Option("--all", help="Drop all that is listed.")] = False,
    rules: Rules = None,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Remove episodes from the quarantine; the ledger keeps what became of them.

    Name the episodes, or give --all. If an id is not in quarantine, nothing is removed, and the
    command ends with exit code 66.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "drop",
        rules=rules or None,
        episodes=episodes or None,
        all=every,
        dry_run=dry_run,
        **reason_field(reason),
    )
    if json:
        print_answer(answer, dry_run=dry_run)
    else:
        entries = plural(answer["dropped"], "entry", "entries")
        print(f"{entries} would be dropped: a dry run" if dry_run else f"{entries} dropped")


clock = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Say that the clock is right, after a wrong clock.",
)


@clock.callback()
def _clock() -> None:
    """Say that the clock is right, after a wrong clock."""


@clock.command("accept", epilog=examples("slumberd clock accept --yes"))
def accept(
    yes: Annotated[bool, typer.Option("--yes", help="Accept it without asking.")] = False,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Record that the clock is right: later recorded instants come from a wrong one.

    When the clock is earlier than the last recorded instant, one of both is wrong. If the clock is
    behind, set it instead. After this command, what was recorded later counts as recorded now, for
    `--believed-at`, reports and later firings. The ledger gets a row `@clock`, and changes no other
    row. The running daemon does this by itself once the kernel reports a synchronised clock.
    """
    settings = settings_of(config, state_dir)
    if not (yes or dry_run):
        question = "Is the clock of this host right now, and was it ahead before? [y/N]: "
        require_confirmation(question, "accepted")
    answer = perform_request(settings, "accept_clock", dry_run=dry_run, **reason_field(reason))
    if json:
        print_answer(answer, dry_run=dry_run)
        return
    recorded, now = answer["recorded"], answer["at"]
    if recorded is None or recorded <= now:
        print("no recorded instant is later than the clock; nothing to accept")
    else:
        done = "would count" if dry_run else "count"
        print(f"instants recorded up to {recorded} {done} as {now}")
