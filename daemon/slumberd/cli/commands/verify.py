"""`slumberd audit verify`: verify the ledger against itself, the facts, and a log's checkpoints."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, BinaryIO

import orjson
import structlog
import typer

from slumberd.cli.context import settings_of
from slumberd.cli.jsonl import open_input
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import plural, print_json
from slumberd.cli.setup import logs
from slumberd.clock import SystemClock
from slumberd.daemon.stores import inspections_of, open_facts_for_audit
from slumberd.logs.lines import CHECKPOINT, MOST_BYTES, printable
from slumberd.model.errors import InputError, UsageError
from slumberd.model.record import Break, Checkpoint
from slumberd.rules.settings import Settings

BROKEN = 1
"""The exit code when the ledger or the facts are wrong."""

_MARK = CHECKPOINT.encode()
_LOSS = b"store.tail_lost"
_MOST_ROWS = 2**63 - 1

_log = structlog.get_logger("slumberd")


def checkpoints_in(
    stream: BinaryIO, name: str, shard: int | None = None, losses: list[str] | None = None
) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a log, in its order, and skip all other lines.

    Args:
        stream: The log, uncompressed.
        name: Its name, for the error.
        shard: The shard of the ledger, if any: the lines of other shards are skipped.
        losses: Gets the losses of rows that the log tells of, in words.

    Raises:
        InputError: The compressed data ends early, or is damaged.
    """
    try:
        while line := stream.readline(MOST_BYTES):
            checkpoint = _parse_checkpoint(line, shard) if _MARK in line else None
            if checkpoint is not None:
                yield checkpoint
            elif losses is not None and _LOSS in line:
                losses += _describe_loss(line, shard)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problem = "the compressed data ends early, or is damaged"
        raise InputError(f"{name!r}: {problem}: {error}") from error


def _parse_checkpoint(line: bytes, shard: int | None) -> Checkpoint | None:
    """Return the checkpoint of a line; None for a line of another ledger or program, or a part."""
    try:
        event = orjson.loads(line)
        if event["event"] != CHECKPOINT or not 0 <= event["rows"] <= _MOST_ROWS:
            return None
        if event.get("shard", shard) != shard:
            return None
        return Checkpoint(event["rows"], bytes.fromhex(event["head"]), printable(event["ts"]))
    except (ValueError, TypeError, KeyError):
        return None


def _describe_loss(line: bytes, shard: int | None) -> list[str]:
    """Return what a line says of lost rows; nothing for a line of another ledger or program."""
    try:
        event = orjson.loads(line)
        if event["event"] != "store.tail_lost" or event.get("shard", shard) != shard:
            return []
        return [
            f"the log of {printable(event['ts'])} has store.tail_lost: rows {event['last'] + 1} to "
            f"{event['written']} went in a failover, in a restore, or by somebody's hand; if you "
            "know which, compare with the lines after it"
        ]
    except (ValueError, TypeError, KeyError):
        return []


def verify(
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LOGFILE",
            help="Compare the ledger with the checkpoints of this log of the daemon: plain or gzip,"
            " or - for standard input.",
        ),
    ] = None,
    chain_only: Annotated[
        bool,
        typer.Option("--chain-only", help="Verify neither the contents of the rows nor the facts."),
    ] = False,
    log: Annotated[
        bool,
        typer.Option("--log", help="Log the result, too: ledger.verified or ledger.broken."),
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Recompute the ledger's chain, and replay it against the facts; exit with 1 when it breaks.

    The command prints the number of rows and the head of the chain, or the first wrong row. Someone
    may cut the ledger short, or rewrite it with facts to match. Only a record elsewhere can reveal
    that: --against compares the ledger with the ledger.checkpoint lines of a log in JSON.

    A systemd timer runs the command with --log, so that the monitoring of the log sees the result.

    --chain-only is quick. It finds rows that are missing, inserted, out of order or relabelled, and
    a head that contradicts --against. It does not find changes within a row, of a fact, or of
    anything else outside the chain.
    """
    if chain_only and log:
        raise UsageError("--log reports whole verifications only; leave out --chain-only")
    settings = settings_of(config, state_dir)
    verification = asyncio.run(_verify(settings, against, chain_only))
    if json:
        print_json(verification.document())
    else:
        print(verification.words())
    if log:
        with logs(settings, SystemClock()):
            _log_result(verification)
    if verification.broken:
        raise typer.Exit(BROKEN)


class Checkpoints:
    """Checkpoints that can be read again, though their source can be read only once."""

    def __init__(self, found: Iterable[Checkpoint] = ()) -> None:
        self._found = iter(found)
        self._kept: list[Checkpoint] = []

    @property
    def count(self) -> int:
        """How many checkpoints were read so far."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Checkpoint]:
        yield from tuple(self._kept)
        for checkpoint in self._found:
            self._kept.append(checkpoint)
            yield checkpoint


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a ledger.

    Attributes:
        rows: How many rows the ledger has.
        head: The head of its chain, in hexadecimal.
        broken: What is wrong; None when nothing is.
        checkpoints: How many checkpoints were compared.
        chain_only: Whether only the chain was verified.
    """

    rows: int
    head: str
    broken: Break | None
    checkpoints: int
    chain_only: bool

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "ok": self.broken is None,
            "rows": self.rows,
            "head": self.head,
            "checkpoints": self.checkpoints,
            "chain_only": self.chain_only,
            "broken": self.broken._asdict() if self.broken else None,
        }

    def words(self) -> str:
        """Return the result in words."""
        if self.broken is None:
            agree = "agrees" if self.checkpoints == 1 else "agree"
            checkpoints = plural(self.checkpoints, "checkpoint")
            agreeing = f", {checkpoints} {agree}" if self.checkpoints else ""
            verified = "chain verified, and nothing else" if self.chain_only else "verified"
            return f"{verified}: {plural(self.rows, 'row')}, head {self.head}{agreeing}"
        place = f" at row {self.broken.seq}" if self.broken.seq else ""
        return f"broken{place}: {printable(self.broken.problem)}"


def _log_result(verification: Verification) -> None:
    rows = verification.rows
    if broken := verification.broken:
        _log.error("ledger.broken", rows=rows, seq=broken.seq, problem=broken.problem)
    else:
        _log.info("ledger.verified", rows=rows, head=verification.head)


async def _verify(settings: Settings, against: str | None, chain_only: bool) -> Verification:
    if against is None:
        return await _verify_against(settings, Checkpoints(), chain_only)
    with open_input(against) as source:
        losses: list[str] = []
        found = checkpoints_in(source.stream, against, settings.postgres.shard, losses)
        checkpoints = Checkpoints(found)
        verification = await _verify_against(settings, checkpoints, chain_only)
        if verification.broken is not None:
            list(checkpoints)  # the line of a loss comes after the checkpoints of the lost rows
            problem = "; ".join([verification.broken.problem, *losses])
            broken = verification.broken._replace(problem=problem)
            verification = replace(verification, broken=broken)
    if verification.broken is None and not checkpoints.count:
        raise InputError(f"{against!r} holds no checkpoint of the ledger; is it the daemon's log?")
    return verification


async def _verify_against(
    settings: Settings, checkpoints: Checkpoints, chain_only: bool
) -> Verification:
    episodes = inspections_of(settings).episodes
    async with open_facts_for_audit(settings) as facts:
        kept = episodes.erased_list() if episodes.exists() else None
        rows, head, broken = await facts.verify(checkpoints, chain_only=chain_only, episodes=kept)
    return Verification(rows, head, broken, checkpoints.count, chain_only)
