"""`slumberd report`: what the rules changed in a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.instants import moment_of
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import cell, plural, print_json, print_table
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.logs.lines import printable, timestamp
from slumberd.model.errors import ExtraMissingError, UsageError
from slumberd.operations.change_report import Changes
from slumberd.operations.ledger import Held, HeldForm, HeldReads
from slumberd.operations.report import Report, ReportForm, Reports
from slumberd.rules.settings import Settings

_COLUMNS = ("learned", "changed", "retracted", "quarantined", "marked", "unmarked")


def report(
    since: Annotated[
        datetime,
        typer.Option(
            parser=moment_of,
            metavar="T",
            help="From this instant on: a duration before now, as 24h or 7d, or an instant.",
        ),
    ] = "24h",  # type: ignore[assignment] # typer parses the default, too
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="List at most N users and batches.")
    ] = 10,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a new HTML file; - is standard output."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Report what was learned, changed and retracted, for each rule and user.

    Learned counts new facts, changed counts facts that replaced others, and retracted counts facts
    that are not current any more. Marked counts the marks and weights that stages of rules gave to
    episodes, and unmarked counts those that ended. The largest changes are those of single batches;
    `slumberd undo` takes one back. The report also lists the batches that await approval.

    With --html, the command writes one file that a browser shows without a daemon and without a
    network. It has pictures and tables of the days, the largest changes, the rules that are late,
    and the quarantine. The option needs the extra
    `serve`.
    """
    settings = settings_of(config, state_dir)
    if html is not None:
        if json:
            raise UsageError("--html and --json: choose one of them")
        _write_html(settings, partial(_read, settings, since, limit), html)
        return
    found, held = _read(settings, since, limit)
    if json:
        awaiting = [batch.model_dump(exclude={"approved"}) for batch in held]
        print_json({"since": timestamp(since), **found.found.document(limit), "held": awaiting})
    else:
        _print(found, held)


def _read(settings: Settings, since: datetime, limit: int) -> tuple[Report, list[Held]]:
    """Return the report of a time, and the batches that await approval."""
    request = unbounded(ReportForm, since=since, limit=limit)
    found = read_operation(settings, Reports.report, request)
    held = read_operation(settings, HeldReads.held, HeldForm()).held
    return found, [batch for batch in held if not batch.approved]


def _write_html(
    settings: Settings, read: Callable[[], tuple[Report, list[Held]]], name: str
) -> None:
    try:
        from slumberd.cli.report_file import write_report
    except ImportError as error:
        raise ExtraMissingError("serve", "the report cannot be written as HTML") from error
    write_report(settings, read, name)


def _print(report: Report, held: Sequence[Held]) -> None:
    found = report.found
    all_ = found.changes
    print(
        f"since {cell(report.since)}: {plural(found.batches, 'batch', 'batches')};"
        f" learned {all_.learned:,}, changed {all_.changed:,}, retracted {all_.retracted:,},"
        f" quarantined {all_.quarantined:,}, marked {all_.marked:,}, unmarked {all_.unmarked:,}"
    )
    if found.batches:
        print()
        print_table(("rule", *_COLUMNS), _rows(sorted(found.rules.items())))
    users = found.top_users(report.limit)
    if users:
        print()
        print_table(("user", *_COLUMNS), _rows(users))
        if others := len(found.users) - len(users):
            print(f"and {plural(others, 'other user')}; --limit shows more")
    if found.largest:
        print("\nlargest changes")
        largest = ((batch.firing_id, batch.at, *_numbers(batch.changes)) for batch in found.largest)
        print_table(("firing", "at", *_COLUMNS), largest)
    for batch in held:
        print(f"\n{batch.firing_id} awaits approval: {printable(batch.problem)}")


def _rows(found: list[tuple[str, Changes]]) -> Iterator[tuple[object, ...]]:
    return ((name, *_numbers(changes)) for name, changes in found)


def _numbers(changes: Changes) -> tuple[int, ...]:
    return tuple(changes.document().values())
