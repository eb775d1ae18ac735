"""`slumberd audit verify`: the ledger against itself, against the facts, and against a log.

Read the checkpoints of a ledger from a log, one line in memory at a time.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

import orjson
import structlog
import typer

from slumberd.cli.client import auditing
from slumberd.cli.context import logs, settings_of
from slumberd.cli.jsonl import opened
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.errors import InputError, UsageError
from slumberd.model.record import Break, Checkpoint
from slumberd.observability.line_format import CHECKPOINT, MOST_BYTES, printable

_MARK = CHECKPOINT.encode()
_MOST_ROWS = 2**63 - 1


def checkpoints_in(stream: BinaryIO, name: str) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a log, in its order; whatever else is in it is passed over.

    Args:
        stream: The log, uncompressed.
        name: Its name, for the error.

    Raises:
        InputError: The compressed data ends early, or is damaged.
    """
    try:
        while line := stream.readline(MOST_BYTES):
            found = _checkpoint(line) if _MARK in line else None
            if found is not None:
                yield found
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problem = "the compressed data ends early, or is damaged"
        raise InputError(f"{name!r}: {problem}: {error}") from error


def _checkpoint(line: bytes) -> Checkpoint | None:
    try:
        event = orjson.loads(line)
        if event["event"] != CHECKPOINT or not 0 <= event["rows"] <= _MOST_ROWS:
            return None
        head, told = bytes.fromhex(event["head"]), printable(event["ts"])
        return Checkpoint(event["rows"], head, told)
    except (ValueError, TypeError, KeyError):  # another program's line, or half of ours
        return None


BROKEN = 1

_log = structlog.get_logger("slumberd")


def verify(
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LOGFILE",
            help="Log lines of the daemon, plain or gzip, or - for standard input.",
        ),
    ] = None,
    chain_only: Annotated[
        bool,
        typer.Option("--chain-only", help="Look neither at what the rows hold nor at facts."),
    ] = False,
    log: Annotated[
        bool,
        typer.Option("--log", help="Tell the log, too: ledger.verified or ledger.broken."),
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Recompute the ledger's chain, and replay it against the facts; exit with 1 when it breaks.

    Prints the number of rows and the head of the chain, or the first row that is wrong. A ledger
    that was cut short or written anew, with facts to match, can only be told from what was known of
    it elsewhere: --against compares it with the ledger.checkpoint lines of a log in JSON.

    A timer runs it with --log, so that whoever watches the log hears of it.

    --chain-only is quick, and finds rows that are missing, inserted, out of order or relabelled,
    and a head that is another than --against knows. It does not find what was changed in a row,
    a fact, or anything else beside the chain.
    """
    if chain_only and log:
        raise UsageError("--log tells of whole verifications only; take --chain-only out")
    settings = settings_of(config, state_dir)
    verified = asyncio.run(_verified(settings, against, chain_only))
    if json:
        print_json(verified.document())
    else:
        print(verified.words())
    if log:
        with logs(settings, SystemClock()):
            _log_result(verified)
    if verified.broken:
        raise typer.Exit(BROKEN)


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
    chain_only: bool

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            "ok": self.broken is None,
            "rows": self.rows,
            "head": self.head,
            "checkpoints": self.checkpoints,
            "chain_only": self.chain_only,
            "broken": self.broken._asdict() if self.broken else None,
        }

    def words(self) -> str:
        """Return it for a person."""
        if self.broken is None:
            agree = "agrees" if self.checkpoints == 1 else "agree"
            checkpoints = plural(self.checkpoints, "checkpoint")
            agreeing = f", {checkpoints} {agree}" if self.checkpoints else ""
            what = "chain verified, and nothing else" if self.chain_only else "verified"
            return f"{what}: {plural(self.rows, 'row')}, head {self.head}{agreeing}"
        place = f" at row {self.broken.seq}" if self.broken.seq else ""
        return f"broken{place}: {printable(self.broken.problem)}"


def _log_result(verified: Verified) -> None:
    if broken := verified.broken:
        _log.error("ledger.broken", rows=verified.rows, seq=broken.seq, problem=broken.problem)
    else:
        _log.info("ledger.verified", rows=verified.rows, head=verified.head)


async def _verified(settings: Settings, against: str | None, chain_only: bool) -> Verified:
    if against is None:
        return await _compared(settings, Told(), chain_only)
    with opened(against) as source:
        told = Told(checkpoints_in(source.stream, against))
        verified = await _compared(settings, told, chain_only)
    if verified.broken is None and not told.count:
        raise InputError(f"{against!r} holds no checkpoint of the ledger; is it the daemon's log?")
    return verified


async def _compared(settings: Settings, told: Told, chain_only: bool) -> Verified:
    async with auditing(settings) as facts:
        rows, head, broken = await facts.verify(told, chain_only=chain_only)
    return Verified(rows, head, broken, told.count, chain_only)
