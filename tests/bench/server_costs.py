"""The processor time and the write-ahead log of a PostgreSQL server that a bench has started."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.support.postgres_server import OwnServer

_TICKS = os.sysconf("SC_CLK_TCK")
_WRITTEN = b"SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"


_SIZES = b"""
SELECT tables.relname, pg_total_relation_size(tables.oid)::bigint
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
WHERE schemas.nspname = 'slumberd_0'
  AND tables.relkind = 'r'
  AND pg_total_relation_size(tables.oid) > 1000000
ORDER BY 2 DESC
"""


class SharedCost(NamedTuple):
    """The cost of some work that a client and a server do together.

    Attributes:
        wall: Seconds of wall time.
        client: Seconds of processor time of this process.
        server: Seconds of processor time of the server: its backends, and what works for them.
        log_bytes: Bytes of write-ahead log; 0 for work without a server.
    """

    wall: float
    client: float
    server: float = 0.0
    log_bytes: float = 0.0


class Meter:
    """Measures the cost of work on a server; without one, only the client's.

    Args:
        server: The server; None for work that needs none.
        database: The database whose tables `sizes` measures.
    """

    def __init__(self, server: OwnServer | None = None, database: str = "postgres") -> None:
        self._server = server
        self._database = database

    async def measure(self, work: Callable[[], Awaitable[object]]) -> SharedCost:
        """Do some work and return its cost."""
        log, served = self._log_bytes(), self._server_seconds()
        wall, client = time.perf_counter(), time.process_time()
        await work()
        wall, client = time.perf_counter() - wall, time.process_time() - client
        served = self._server_seconds() - served
        return SharedCost(wall, client, served, self._log_bytes() - log)

    def _server_seconds(self) -> float:
        return 0.0 if self._server is None else seconds_of(self._server.pid)

    def _log_bytes(self) -> float:
        if self._server is None:
            return 0.0
        row = self._connection.execute(_WRITTEN).fetchone()
        return float(row[0]) if row else 0.0

    @cached_property
    def _connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        # One for all measurements: a backend that starts costs more than a short firing.
        assert self._server is not None
        return psycopg.connect(self._server.address_of(self._database), autocommit=True)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each table with its indexes, the largest first."""
        return dict(self._connection.execute(_SIZES).fetchall())

    def checkpoint(self) -> None:
        """Let the server write all changed pages to its files."""
        self._connection.execute(b"CHECKPOINT")

    def close(self) -> None:
        """Close the connection that asks for the size of the log."""
        if self._server is not None:
            self._connection.close()


def seconds_of(pid: int) -> float:
    """Return the processor seconds of a process, its children, and those that have ended."""
    own = sum(_times_of(pid))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(sum(_times_of(int(child))[:2]) for child in children)


def _times_of(pid: int) -> tuple[float, ...]:
    """Return the seconds in user mode and in the kernel, and those of children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return (0.0,) * 4
    fields = text.rpartition(")")[2].split()
    return tuple(int(ticks) / _TICKS for ticks in fields[11:15])
