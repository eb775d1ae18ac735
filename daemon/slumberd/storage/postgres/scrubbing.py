"""Remove the old versions of erased rows from the tables of a shard."""

from __future__ import annotations

from typing import Literal

import psycopg

from slumberd.storage.engine import Scrubbed
from slumberd.storage.postgres.connection import Connection

_TABLES = {
    "episodes": (
        "episodes_{shard}", "episode_log_{shard}", "episode_ids", "accesses", "extractions",
        "model_summaries", "inbox",
    ),
    "facts": (
        "facts_{shard}", "ledger_{shard}", "keys_{shard}", "claim_references", "quarantine",
        "firings", "watermark", "held_batches", "unfinished_erasures", "requests",
    ),
}  # fmt: skip


OUT_OF_REACH = (
    "the write-ahead log, the replicas and the backups of the PostgreSQL server, until they expire",
)
UNSCRUBBED = (
    *OUT_OF_REACH,
    "old versions of rows in the database, until VACUUM: the login could not rewrite the tables",
)


def scrub(connection: Connection, *, shard: int, table: Literal["episodes", "facts"]) -> Scrubbed:
    """Rewrite the tables of a store, outside of any transaction; return what was done.

    The write-ahead log, replicas and backups of the server still hold the old rows.
    """
    connection.rollback()
    connection.autocommit = True
    try:
        connection.execute(b"SET ROLE slumberd_owner")
        for name in _TABLES[table]:
            connection.execute(f"VACUUM (FULL) slumberd.{name.format(shard=shard)}".encode())
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.LockNotAvailable):
        return Scrubbed(log_emptied=False, out_of_reach=UNSCRUBBED)
    finally:
        if not connection.closed:
            connection.execute(b"RESET ROLE")
            connection.autocommit = False
    reason = "PostgreSQL keeps old versions of rows"
    return Scrubbed(log_emptied=False, rewritten=reason, out_of_reach=OUT_OF_REACH)
