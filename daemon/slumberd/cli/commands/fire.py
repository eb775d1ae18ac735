"""`slumberd fire` and `slumberd undo`: fire rules now, and undo firings."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from slumberd.cli.client import perform_request
from slumberd.cli.commands.delta_output import limit_of, print_firings, print_undo
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, DryRun, Json, Listed, StateDir, Verbose, instant_of
from slumberd.errors import UsageError
from slumberd.model.episode import microseconds


def fire(
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Ids of rules.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fire every enabled rule.")] = False,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Fire rules now, whatever their cadence, and show what became of what they read.

    The daemon fires them when it runs; else this process does, under the same lock. The log lines
    of the deltas go where those of the daemon go.

    A dry run reads at most 100,000 pending versions of episodes for each rule, and reports how many
    it did not read. It takes each rule as if that rule fired alone.

    A batch that exceeds a deletion limit awaits approval: nothing of it is applied, and the command
    ends with exit code 1.
    """
    if every == bool(rules):
        raise UsageError("name the rules to fire, or give --all; not both")
    answer = perform_request(
        settings_of(config, state_dir),
        "fire",
        verbose=verbose,
        rules=None if every else rules,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    print_firings(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def undo(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FIRING|RULE]",
            help="The id of a firing, as preferences@120; with --since the id of a rule.",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Undo all firings of this run.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=instant_of, metavar="T", help="Undo all firings of the rule from T on."
        ),
    ] = None,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo firings: withdraw the versions of episodes that each evaluated first for its rule.

    Each episode is again what it was for that rule before. What other firings promoted stays, and
    its keys are resolved again. The rule does not evaluate the same versions again by itself:
    `slumberd backfill RULE` does, and so does an edit.

    A run is all firings of one command, or of one due cadence. `slumberd fire` prints its id, and
    `slumberd audit ls` shows it.

    All firings are undone in one transaction. A firing that is undone already stays undone. An undo
    has a run id of its own, so another undo reverses it.
    """
    if (target is None) == (run is None) or (since is not None and target is None):
        raise UsageError("name a firing, or --run ID, or a rule with --since T; one of the three")
    answer = perform_request(
        settings_of(config, state_dir),
        "undo",
        verbose=verbose,
        firing=None if since else target,
        run=run,
        rule=target if since else None,
        since=microseconds(since) if since else None,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    print_undo(answer, dry_run=dry_run, json=json)
