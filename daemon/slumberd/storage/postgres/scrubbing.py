"""Remove the old versions of erased rows from the tables of a shard."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import psycopg

from slumberd.sql_statements import statement
from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.session import PACKAGE

_TABLES = {
    "episodes": (
        "episodes", "slumberd_episode_log", "slumberd_accesses", "slumberd_extractions",
        "slumberd_model_summaries", "slumberd_model_requests", "inbox",
    ),
    "facts": (
        "facts", "slumberd_ledger", "slumberd_keys", "slumberd_references", "slumberd_quarantine",
        "slumberd_firings", "slumberd_watermark", "slumberd_held_batches",
        "slumberd_unfinished_erasures", "requests",
    ),
}  # fmt: skip


OUT_OF_REACH = (
    "the write-ahead log, the replicas and the backups of the PostgreSQL server, until they expire",
    "`transcripts.json` of the other hosts of the database, and `stages-N.db` of a host that was "
    "killed, until it starts again",
)
UNSCRUBBED = (
    *OUT_OF_REACH,
    "old versions of rows in the database, until VACUUM: the login could not rewrite the tables",
)


_NAMED = 3
"""How many transactions a message names."""

_WAIT_SECONDS = 2.0
"""How long to wait for the transactions that keep old versions of rows."""

_PAUSE_SECONDS = 0.1
_MOST_ATTEMPTS = 3
"""How often tables are rewritten while only short transactions keep old versions of their rows."""

_SNAPSHOTS = statement("hosts", "open_snapshots", PACKAGE).encode()
_NUMBER = re.compile(r"\d+")


class OpenSnapshot(NamedTuple):
    """A transaction that keeps old versions of rows, or may keep them.

    Attributes:
        key: A text that no other transaction has.
        name: Its process and its login.
        seconds: Its age; None when the server does not tell it to this login.
    """

    key: str
    name: str
    seconds: float | None

    def __str__(self) -> str:
        age = "" if self.seconds is None else f", open for {self.seconds:,.0f} s"
        return f"{self.name}{age}"


def scrub(
    connection: Connection,
    how: Scrubbing = Scrubbing(),  # noqa: B008 # immutable
    *,
    table: Literal["episodes", "facts"],
) -> Scrubbed:
    """Rewrite the tables of a store, outside of any transaction; return what was done.

    The server keeps old versions of rows that an open transaction may still read. The write-ahead
    log, replicas and backups of the server hold the old rows longer.
    """
    connection.rollback()
    connection.autocommit = True
    try:
        if how.holders and (same := _open_among(connection, how.holders)):
            return _left(same)
        if not how.rewrite:
            return Scrubbed(log_emptied=False, out_of_reach=OUT_OF_REACH)
        seconds = _WAIT_SECONDS if how.wait_seconds is None else how.wait_seconds
        return _rewrite_all(connection, _TABLES[table], seconds)
    except psycopg.errors.InsufficientPrivilege:
        problem = "the login may not rewrite the tables"
        return Scrubbed(log_emptied=False, out_of_reach=UNSCRUBBED, obstacle=problem)
    except psycopg.errors.LockNotAvailable:
        return _left(read_open_snapshots(connection))
    finally:
        if not connection.closed:
            connection.autocommit = False


def read_open_snapshots(connection: Connection) -> list[OpenSnapshot]:
    """Return the transactions that may keep old versions of rows, the oldest first."""
    return [OpenSnapshot(*row) for row in connection.execute(_SNAPSHOTS)]


def _rewrite_all(connection: Connection, names: Sequence[str], seconds: float) -> Scrubbed:
    """Rewrite tables, again while they keep old versions, until the time is over."""
    until = time.monotonic() + seconds
    kept = list(names)
    for _ in range(_MOST_ATTEMPTS):
        before = frozenset(one.key for one in read_open_snapshots(connection))
        kept = [name for name in kept if _keeps_old_versions(connection, name)]
        if not kept:
            reason = "PostgreSQL keeps old versions of rows"
            return Scrubbed(log_emptied=False, rewritten=reason, out_of_reach=OUT_OF_REACH)
        while (same := _open_among(connection, before)) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
        if same:
            return _left(same)
    return _left(read_open_snapshots(connection))


def _keeps_old_versions(connection: Connection, name: str) -> bool:
    """Rewrite a table; return whether it still has versions that a transaction may read."""
    kept: list[int] = []

    def read_notice(notice: psycopg.errors.Diagnostic) -> None:
        # The only number before the times: how many dead versions could not be removed.
        found = _NUMBER.search(notice.message_detail or "")
        kept.append(int(found.group()) if found else 0)

    # The owner sees less of other logins than the login may, so it does nothing else.
    connection.execute(b"SET ROLE slumberd_owner")
    connection.add_notice_handler(read_notice)
    try:
        connection.execute(f"VACUUM (FULL, VERBOSE) {name}".encode())
    finally:
        connection.remove_notice_handler(read_notice)
        if not connection.closed:
            connection.execute(b"RESET ROLE")
    return any(kept)


def _open_among(connection: Connection, keys: frozenset[str]) -> list[OpenSnapshot]:
    return [one for one in read_open_snapshots(connection) if one.key in keys]


def _left(holders: Sequence[OpenSnapshot]) -> Scrubbed:
    """Return that old versions are left, and who keeps them."""
    named = "; ".join(map(str, holders[:_NAMED])) or "a transaction that ended since"
    return Scrubbed(
        log_emptied=False,
        out_of_reach=OUT_OF_REACH,
        obstacle=f"old versions of rows are kept by {named}",
        holders=frozenset(one.key for one in holders),
    )
