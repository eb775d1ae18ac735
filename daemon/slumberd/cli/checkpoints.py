"""Read the checkpoints of a ledger from a log, one line in memory at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import orjson

from slumberd.errors import InputError
from slumberd.model.record import Checkpoint
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
        return Checkpoint(event["rows"], head, told, printable(event.get("store", "")))
    except (ValueError, TypeError, KeyError):  # another program's line, or half of ours
        return None
