"""`slumberd audit`: look at the ledger, verify it, replay it, and export it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import structlog
import typer

from slumberd.cli.checkpoints import checkpoints_in
from slumberd.cli.commands import examples
from slumberd.cli.configuration import logs, settings_of
from slumberd.cli.exporting import export
from slumberd.cli.jsonl import STANDARD_INPUT, opened
from slumberd.cli.options import MOST, Channel, Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.cli.reading import auditing, has_ledger, reading_facts
from slumberd.cli.replaying import replay
from slumberd.clock import SystemClock
from slumberd.core.record import Break, Checkpoint, Record
from slumberd.errors import InputError, UsageError
from slumberd.lines import printable, timestamp
from slumberd.settings import Settings
from slumberd.stores.facts import SQLiteFactStore

COLUMNS = ("seq", "at", "firing", "kind", "fact", "replaces", "reason")
PAGE = 1_000
BROKEN = 1

_log = structlog.get_logger("slumberd")

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

    def fits(self, record: Record) -> bool:
        """Say whether a row is wanted."""
        return (
            self.rule in (None, record.rule_id)
            and self.kind in (None, record.kind)
            and self.fact in (None, record.fact_id)
        )


EVERYTHING = Wanted(None, None, None)


@app.command(
    "ls", epilog=examples("slumberd audit ls --rule preferences --kind quarantine --limit 10")
)
def ls(
    rule: Annotated[str | None, typer.Option(help="Only of this rule; @hand for hands.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    fact: Annotated[str | None, typer.Option(help="Only about this fact id.")] = None,
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
    wanted = Wanted(rule, kind, fact)
    found = asyncio.run(_listed(settings, wanted, channel, after=after, limit=limit))
    if json:
        print_json_lines(_document(record) for record in found)
    else:
        print_table(COLUMNS, (_row(record) for record in found))


async def _listed(
    settings: Settings, wanted: Wanted, channel: str | None, *, after: int | None, limit: int
) -> list[Record]:
    async with reading_facts(settings, channel) as store:
        if after is None:
            return await _last(store, wanted, limit)
        return await _first(store, wanted, after, limit)


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
    )


def _document(record: Record) -> dict[str, Any]:
    return {**record._asdict(), "at": timestamp(record.at)}


@app.command(
    "verify",
    epilog=examples(
        "slumberd audit verify", "slumberd audit verify --against /var/log/slumberd.log.1.gz"
    ),
)
def verify(
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LOGFILE",
            help="Log lines of the daemon, plain or gzip, or - for standard input.",
        ),
    ] = None,
    log: Annotated[
        bool,
        typer.Option("--log", help="Tell the log, too: ledger.verified or ledger.broken."),
    ] = False,
    channel: Channel = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Recompute the ledger's chain, and replay it against the facts; exit with 1 when it breaks.

    Prints the number of rows and the head of the chain, or the first row that is wrong. A ledger
    that was cut short or written anew, with facts to match, can only be told from what was known of
    it elsewhere: --against compares it with the ledger.checkpoint lines of a log in JSON.

    Where channels have fact stores of their own, each store has its ledger; all are verified, or
    with --channel one. With --json, each ledger on a line of its own. A timer runs it with --log,
    so that whoever watches the log hears of it.
    """
    settings = settings_of(config, state_dir)
    stores = _stores(settings, channel)
    if against == STANDARD_INPUT and len(stores) > 1:
        raise UsageError("standard input can be read for one ledger only; name a --channel")
    found = {name: asyncio.run(_verified(settings, name, against)) for name in stores}
    for name, verified in found.items():
        if json:
            print_json(verified.document(name))
        else:
            print(f"{printable(name)}: " * (len(found) > 1) + verified.words())
    if log:
        with logs(settings, SystemClock()):
            _tell(found)
    if any(verified.broken for verified in found.values()):
        raise typer.Exit(BROKEN)


def _stores(settings: Settings, channel: str | None) -> list[str]:
    """Return the stores that a channel means, or all that are there; the first always is."""
    if channel is not None:
        return [settings.store_of(channel)]
    first, *others = settings.facts_paths.items()
    return [first[0], *(name for name, path in others if has_ledger(path))]


class Told:
    """Checkpoints, which may be read again though their source may not."""

    def __init__(self, found: Iterable[Checkpoint] = ()) -> None:
        self._found = iter(found)
        self._kept: list[Checkpoint] = []

    @property
    def count(self) -> int:
        """How many were read so far."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Checkpoint]:
        yield from tuple(self._kept)
        for one in self._found:
            self._kept.append(one)
            yield one


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of verifying; `checkpoints` counts those that were compared."""

    rows: int
    head: str
    broken: Break | None
    checkpoints: int

    def document(self, store: str) -> dict[str, Any]:
        """Return it as JSON takes it, with the name of the store."""
        return {
            "ok": self.broken is None,
            "store": printable(store),
            "rows": self.rows,
            "head": self.head,
            "checkpoints": self.checkpoints,
            "broken": self.broken._asdict() if self.broken else None,
        }

    def words(self) -> str:
        """Return it for a person."""
        if self.broken is None:
            agreeing = f", {self.checkpoints} checkpoints agree" if self.checkpoints else ""
            return f"verified: {self.rows} rows, head {self.head}{agreeing}"
        place = f" at row {self.broken.seq}" if self.broken.seq else ""
        return f"broken{place}: {printable(self.broken.problem)}"


def _tell(found: Mapping[str, Verified]) -> None:
    for store, verified in found.items():
        if broken := verified.broken:
            told = {"rows": verified.rows, "seq": broken.seq, "problem": broken.problem}
            _log.error("ledger.broken", store=store, **told)
        else:
            _log.info("ledger.verified", store=store, rows=verified.rows, head=verified.head)


async def _verified(settings: Settings, store: str, against: str | None) -> Verified:
    if against is None:
        return await _compared(settings, store, Told())
    with opened(against) as source:
        told = Told(_of_store(settings, store, checkpoints_in(source.stream, against)))
        verified = await _compared(settings, store, told)
    if verified.broken is None and not told.count:
        problem = f"holds no checkpoint of the ledger of {store!r}; is it the daemon's log?"
        raise InputError(f"{against!r} {problem}")
    return verified


def _of_store(settings: Settings, store: str, found: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
    """Yield the checkpoints of one store; one without a name is of the first."""
    first = next(iter(settings.facts_paths))
    return (one for one in found if (one.store or first) == store)


async def _compared(settings: Settings, store: str, told: Told) -> Verified:
    async with auditing(settings, store) as facts:
        rows, head, broken = await facts.verify(told)
    return Verified(rows, head, broken, told.count)
