"""`slumberd clock accept`: say that the clock is right, after a wrong one recorded instants."""

from __future__ import annotations

from typing import Annotated

import typer

from slumberd.cli.client import perform_request, reason_field
from slumberd.cli.commands.fire import print_answer
from slumberd.cli.confirmation import require_confirmation
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, DryRun, Json, ReasonOrNone, StateDir
from slumberd.cli.registry import examples

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
