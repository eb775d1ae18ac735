"""A process that writes to a database by plain SQL, as a program without slumberd does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.support.waiting import PATIENCE_SECONDS

_PROGRAM = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=600)
blobs = json.loads(sys.argv[2])
for line in sys.stdin:
    sql, values = json.loads(line)
    with connection:
        connection.execute(sql, [v.encode() if i in blobs else v for i, v in enumerate(values)])
    print("written", flush=True)
"""


class SqlWriter:
    """A process of its own that writes to a database and imports nothing of slumberd.

    Args:
        path: The database.
        blobs: The places of the parameters that are blobs.
    """

    def __init__(self, path: Path, *, blobs: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(path), orjson.dumps(blobs).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        """Execute one statement; it is committed when this returns."""
        assert self._process.stdin and self._process.stdout
        plain = [value.decode() if isinstance(value, bytes) else value for value in values]
        self._process.stdin.write(orjson.dumps([sql, plain]) + b"\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"written\n"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE_SECONDS)
        self._process.stdout.close()
