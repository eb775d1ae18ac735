"""`slumberd audit`: look at the ledger, verify it, replay it, and export it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from slumberd.cli.client import reading_facts
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rows
from slumberd.cli.exporting import export
from slumberd.cli.options import MOST, Channel, Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.cli.registry import examples
from slumberd.cli.replaying import replay
from slumberd.cli.verifying import verify
from slumberd.config.settings import Settings
from slumberd.model.record import Record
from slumberd.observability.line_format import timestamp
from slumberd.storage.facts.store import SQLiteFactStore

COLUMNS = ("seq", "at", "firing", "kind", "fact", "replaces", "reason", "run")
PAGE = 1_000

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Look at the ledger, verify or export it."
)
app.command("replay", epilog=examples("slumberd audit replay /tmp/again.db"))(replay)
app.command(
    "export",
    epilog=examples("slumberd audit export ledger.jsonl.gz", "slumberd audit export --after 9000"),
)(export)


class Kind(StrEnum):
    """What a row of the ledger did."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    NOOP = "noop"
    QUARANTINE = "quarantine"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows to show; None lets everything through."""

    rule: str | None
    kind: Kind | None
    fact: str | None
    run: str | None = None

    def fits(self, record: Record) -> bool:
        """Say whether a row is wanted."""
        return (
            self.rule in (None, record.rule_id)
            and self.kind in (None, record.kind)
            and self.fact in (None, record.fact_id)
            and self.run in (None, record.run)
        )


EVERYTHING = Wanted(None, None, None)


@app.command(
    "ls", epilog=examples("slumberd audit ls --rule preferences --kind quarantine --limit 10")
)
def ls(
    rule: Annotated[str | None, typer.Option(help="Only of this rule; @hand for hands.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    fact: Annotated[str | None, typer.Option(help="Only about this fact id.")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of the firings of this run.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many.")] = 50,
    after: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, metavar="SEQ", help="The first rows above this number."),
    ] = None,
    channel: Channel = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show rows of the ledger, oldest first: the last ones, or the first above --after.

    With --json, each row on a line of its own.
    """
    settings = settings_of(config, state_dir)
    wanted = Wanted(rule, kind, fact, run)
    found, rows = asyncio.run(_listed(settings, wanted, channel, after=after, limit=limit))
    if json:
        print_json_lines(_document(record) for record in found)
    else:
        empty = no_rows(rows, narrowed=wanted != EVERYTHING)
        print_table(COLUMNS, (_row(record) for record in found), empty=empty)


async def _listed(
    settings: Settings, wanted: Wanted, channel: str | None, *, after: int | None, limit: int
) -> tuple[list[Record], int]:
    """Return the wanted rows, and how many rows there are."""
    async with reading_facts(settings, channel) as store:
        rows = await store.ledger_rows()
        if after is None:
            return await _last(store, wanted, limit), rows
        return await _first(store, wanted, after, limit), rows


async def _last(store: SQLiteFactStore, wanted: Wanted, limit: int) -> list[Record]:
    after = await store.ledger_rows() - limit if wanted == EVERYTHING else 0
    found: deque[Record] = deque(maxlen=limit)
    async for record in _rows(store, wanted, max(0, after)):
        found.append(record)
    return list(found)


async def _first(store: SQLiteFactStore, wanted: Wanted, after: int, limit: int) -> list[Record]:
    found: list[Record] = []
    async for record in _rows(store, wanted, after):
        found.append(record)
        if len(found) == limit:
            break
    return found


async def _rows(store: SQLiteFactStore, wanted: Wanted, after: int) -> AsyncIterator[Record]:
    """Yield the wanted rows above a number, a page at a time."""
    while page := await store.records(after=after, limit=PAGE):
        for record in page:
            if wanted.fits(record):
                yield record
        after = page[-1].seq


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
