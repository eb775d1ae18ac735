"""`slumberd audit export`: the whole ledger as JSON lines."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.client import reading_facts
from slumberd.cli.context import settings_of
from slumberd.cli.options import MOST, Channel, Config, StateDir
from slumberd.config.settings import Settings

PAGE = 2_000
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
    channel: Channel = None,
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
        asyncio.run(_export(settings, channel, write, after))


async def _export(settings: Settings, channel: str | None, write: Write, after: int) -> None:
    async with reading_facts(settings, channel) as store:
        while True:
            after, lines = await store.exported(after=after, limit=PAGE)
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
