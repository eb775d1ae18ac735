"""`slumberd audit`: list the ledger's rows, verify the ledger, replay it, and export it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.commands.verify import verify
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rows
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import plural, print_json, print_json_lines, print_table
from slumberd.cli.output_file import STANDARD_OUTPUT, Write, open_output
from slumberd.cli.registry import examples
from slumberd.daemon.one_read import read_operation, read_pages, unbounded
from slumberd.daemon.stores import open_facts, open_facts_for_audit
from slumberd.logs.lines import printable, timestamp
from slumberd.model.firing import Record
from slumberd.operations.ledger import ChangesForm, LedgerReads, RecordPage
from slumberd.rules.settings import Settings
from slumberd.storage.audit.results import Replay

COLUMNS = ("seq", "at", "firing", "kind", "fact", "replaces", "reason", "run")
PAGE = 1_000
EXPORT_PAGE = 2_000

DIFFERS = 1
"""The exit code when a replay differs from the facts or deltas."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, verify, replay or export the ledger.",
)


class Kind(StrEnum):
    """The kind of a ledger row."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    NOOP = "noop"
    QUARANTINE = "quarantine"
    FIRING = "firing"


@app.command(
    "ls", epilog=examples("slumberd audit ls --rule preferences --kind quarantine --limit 10")
)
def ls(
    rule: Annotated[
        str | None, typer.Option(help="Only rows of this rule; @manual for manual edits.")
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only rows of this kind.")] = None,
    fact: Annotated[str | None, typer.Option(help="Only rows about this fact id.")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Only rows of the firings of this run.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N rows.")
    ] = 50,
    after: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, metavar="SEQ", help="Show the first rows above this number."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the last rows of the ledger, or the first rows above --after; oldest first.

    With --json, each row is printed on a line.
    """
    settings = settings_of(config, state_dir)
    narrowed = {"kinds": kind and [kind], "rule": rule, "fact": fact, "run": run}
    is_narrow = any(value is not None for value in narrowed.values())
    newest = None if is_narrow or after is not None else limit
    request = unbounded(ChangesForm, **narrowed, newest=newest, after=after or 0, limit=PAGE)
    found = asyncio.run(_read_rows(settings, request, limit, first=after is not None))
    if json:
        print_json_lines(_document(record) for record in found)
    else:
        empty = "" if found else no_rows(_count_rows(settings), narrowed=is_narrow)
        print_table(COLUMNS, (_row(record) for record in found), empty=empty)


async def _read_rows(
    settings: Settings, request: ChangesForm, limit: int, *, first: bool
) -> Sequence[Record]:
    """Return the first or the last rows that a request selects, with one page in memory.

    A row that is committed meanwhile may be among the last.
    """

    def following(page: RecordPage) -> ChangesForm | None:
        full = not page.more or (first and len(found) == limit)
        return None if full else request.model_copy(update={"after": page.last, "newest": None})

    found: deque[Record] = deque(maxlen=limit)
    async for page in read_pages(settings, LedgerReads.changes, request, following):
        found.extend(page.rows[: limit - len(found)] if first else page.rows)
    return found


def _count_rows(settings: Settings) -> int:
    """Return the number of the last row of the ledger."""
    request = unbounded(ChangesForm, newest=1)
    return read_operation(settings, LedgerReads.changes, request).last


def _row(record: Record) -> tuple[object, ...]:
    return (
        record.seq,
        record.at,
        record.firing_id,
        record.kind,
        record.fact_id or ", ".join(record.source_episode_ids),
        ", ".join(record.replaces),
        record.reason,
        record.run,
    )


def _document(record: Record) -> dict[str, Any]:
    return {**record._asdict(), "at": timestamp(record.at)}


app.command(
    "verify",
    epilog=examples(
        "slumberd audit verify",
        "slumberd audit verify --chain-only",
        "slumberd audit verify --against /var/log/slumberd.log.1.gz",
    ),
)(verify)


@app.command("replay", epilog=examples("slumberd audit replay /tmp/again.db"))
def replay(
    file: Annotated[Path, typer.Argument(help="The new file of the rebuilt facts.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Rebuild the facts in a new file from the ledger alone; exit with 1 when they differ.

    The command resolves the claims of every firing again. It compares the deltas with the recorded
    ones, and the rebuilt facts with the current facts, byte by byte. The file is a complete
    database of facts, and can replace the original. If the ledger's chain is broken, the command
    makes no file.
    """
    result = asyncio.run(_replay(settings_of(config, state_dir), file))
    if json:
        first = result.first._asdict() if result.first else None
        print_json({"ok": not result.differing, **result._asdict(), "first": first})
    else:
        print("\n".join(_result_lines(result)))
    if result.differing:
        raise typer.Exit(DIFFERS)


async def _replay(settings: Settings, file: Path) -> Replay:
    async with open_facts_for_audit(settings, alone=True) as store:
        return await store.replay(file)


def _result_lines(result: Replay) -> Iterator[str]:
    rows, firings = plural(result.rows, "row"), plural(result.firings, "firing")
    yield f"replayed: {rows} of {firings}, {plural(result.facts, 'fact')}"
    if result.erased:
        differences = plural(result.unclear, "difference")
        yield f"erased: {plural(result.erased, 'row')}; this may explain {differences} of deltas"
    if result.first is None:
        yield "nothing differs"
        return
    place = f"row {result.first.seq}: " if result.first.seq else ""
    problem = printable(result.first.problem)
    yield f"{plural(result.differing, 'difference')}, the first: {place}{problem}"


@app.command(
    "export",
    epilog=examples("slumberd audit export ledger.jsonl.gz", "slumberd audit export --after 9000"),
)
def export(
    file: Annotated[
        str,
        typer.Argument(help="The new file: gzip if it ends in .gz; - is standard output."),
    ] = STANDARD_OUTPUT,
    after: Annotated[
        int,
        typer.Option(min=0, max=MOST, metavar="SEQ", help="Export only rows above this number."),
    ] = 0,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Export every row of the ledger, each as a line of JSON with its firing.

    The lines hold personal data: the payload of each row, and the salts and hashes that verify it.
    Erased values are null. The command writes a temporary file beside FILE, for owner and group
    only, and renames it when it is complete.
    """
    settings = settings_of(config, state_dir)
    with open_output(file) as write:
        asyncio.run(_export(settings, write, after))


async def _export(settings: Settings, write: Write, after: int) -> None:
    async with open_facts(settings) as store:
        while True:
            after, lines = await store.reads.export(after=after, limit=EXPORT_PAGE)
            if not lines:
                break
            write(lines)
