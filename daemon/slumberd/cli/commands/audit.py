"""`slumberd audit`: look at the ledger, verify it, replay it, and export it.

`slumberd audit export`: the whole ledger as JSON lines.

`slumberd audit replay`: the facts again, from the ledger alone.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.client import auditing, reading_facts
from slumberd.cli.commands.verify import verify
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rows
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.cli.registry import examples
from slumberd.cli.wording import plural
from slumberd.config.settings import Settings
from slumberd.model.record import Record
from slumberd.observability.line_format import printable, timestamp
from slumberd.storage.audit.replay import Replay
from slumberd.storage.facts.store import SQLiteFactStore

EXPORTING_PAGE = 2_000
MODE = 0o640
STANDARD_OUTPUT = "-"

Write = Callable[[Sequence[bytes]], None]


def export(
    file: Annotated[
        str, typer.Argument(help="Compressed when it ends in .gz; - is standard output.")
    ] = STANDARD_OUTPUT,
    after: Annotated[
        int, typer.Option(min=0, max=MOST, metavar="SEQ", help="Only rows above this number.")
    ] = 0,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Write every row of the ledger whole, a line of JSON each, with the firing it belongs to.

    The lines hold what people said: what is in a row's payload, and the salts and hashes by which
    it can be checked. What was forgotten is null. A file is written beside its place, for owner and
    group only, and put there when it is complete.
    """
    settings = settings_of(config, state_dir)
    with _written(file) as write:
        asyncio.run(_export(settings, write, after))


async def _export(settings: Settings, write: Write, after: int) -> None:
    async with reading_facts(settings) as store:
        while True:
            after, lines = await store.exported(after=after, limit=EXPORTING_PAGE)
            if not lines:
                break
            write(lines)


@contextmanager
def _written(name: str) -> Iterator[Write]:
    if name == STANDARD_OUTPUT:
        yield _print
        return
    path = Path(name)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with io.FileIO(os.open(beside, flags, MODE), "wb") as raw:
            with _packed(raw, path) as stream:
                yield stream.writelines
            os.fsync(raw.fileno())
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)


def _print(lines: Sequence[bytes]) -> None:
    sys.stdout.write(b"".join(lines).decode())


@contextmanager
def _packed(raw: io.FileIO, path: Path) -> Iterator[io.BufferedIOBase]:
    if path.suffix == ".gz":
        # Neither name nor time: the same rows make the same file.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
            yield stream
        return
    buffer = io.BufferedWriter(raw)
    yield buffer
    buffer.flush()


COLUMNS = ("seq", "at", "firing", "kind", "fact", "replaces", "reason", "run")
PAGE = 1_000


app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Look at the ledger, verify or export it."
)


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
    rule: Annotated[
        str | None, typer.Option(help="Only of this rule; @manual for manual edits.")
    ] = None,
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
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show rows of the ledger, oldest first: the last ones, or the first above --after.

    With --json, each row on a line of its own.
    """
    settings = settings_of(config, state_dir)
    wanted = Wanted(rule, kind, fact, run)
    found, rows = asyncio.run(_listed(settings, wanted, after=after, limit=limit))
    if json:
        print_json_lines(_document(record) for record in found)
    else:
        empty = no_rows(rows, narrowed=wanted != EVERYTHING)
        print_table(COLUMNS, (_row(record) for record in found), empty=empty)


async def _listed(
    settings: Settings, wanted: Wanted, *, after: int | None, limit: int
) -> tuple[list[Record], int]:
    """Return the wanted rows, and how many rows there are."""
    async with reading_facts(settings) as store:
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


DIFFERS = 1


def replay(
    file: Annotated[Path, typer.Argument(help="A new file, for the facts that come out.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Build the facts again in a new file, from the ledger alone; exit with 1 when they differ.

    Every firing is settled again. Its deltas are compared with those recorded, and the facts that
    come out, byte by byte, with those that stand. The file is a whole database of facts, and can
    take the place of the one it was made from. Of a ledger whose chain is broken none is made.
    """
    replayed = asyncio.run(_replayed(settings_of(config, state_dir), file))
    if json:
        first = replayed.first._asdict() if replayed.first else None
        print_json({"ok": not replayed.differing, **replayed._asdict(), "first": first})
    else:
        print(_told(replayed))
    if replayed.differing:
        raise typer.Exit(DIFFERS)


async def _replayed(settings: Settings, file: Path) -> Replay:
    async with auditing(settings) as store:
        return await store.replay(file)


def _told(replay: Replay) -> str:
    rows, firings = plural(replay.rows, "row"), plural(replay.firings, "firing")
    lines = [f"replayed: {rows} of {firings}, {plural(replay.facts, 'fact')}"]
    if replay.erased:
        lines.append(
            f"forgotten: {plural(replay.erased, 'row')};"
            f" {plural(replay.unclear, 'difference')} of deltas that this may explain"
        )
    if replay.first is None:
        lines.append("nothing differs")
    else:
        place = f"row {replay.first.seq}: " if replay.first.seq else ""
        problem = printable(replay.first.problem)
        differences = plural(replay.differing, "difference")
        lines.append(f"{differences}, the first: {place}{problem}")
    return "\n".join(lines)


app.command("replay", epilog=examples("slumberd audit replay /tmp/again.db"))(replay)
app.command(
    "export",
    epilog=examples("slumberd audit export ledger.jsonl.gz", "slumberd audit export --after 9000"),
)(export)
