"""A primary and a standby of PostgreSQL in streaming replication, for tests of a failover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from slumberd.storage.postgres.installation import install
from tests.support.postgres_server import (
    OwnServer,
    programs,
    running_server,
    skip_without_server,
)
from tests.support.waiting import wait_until

_REPLICATES = {
    "wal_level": "replica",
    "max_wal_senders": "4",
    "max_replication_slots": "4",
    "wal_retrieve_retry_interval": "100ms",  # a promotion waits for the end of this pause
}


class ServerPair:
    """Two servers, of which the second one follows the first one.

    Attributes:
        primary: The server that takes writes at first.
        standby: The server that follows it.
    """

    def __init__(self, primary: OwnServer, standby: OwnServer) -> None:
        self.primary = primary
        self.standby = standby

    def address_of(self, database: str) -> str:
        """Return the address of a database on whichever of the servers takes writes."""
        hosts = [quote(str(one.folder), safe="") for one in (self.primary, self.standby)]
        return f"postgresql://postgres@{','.join(hosts)}/{database}?target_session_attrs=read-write"

    def create_database(self, name: str, *, shards: int = 1) -> str:
        """Create a database; return its address on both servers.

        Args:
            name: Of the database.
            shards: How many shards it has; 0 for a database without slumberd's schema.
        """
        self.primary.run(
            f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0"
        )
        if shards:
            install(self.primary.address_of(name), shards=shards)
        return self.address_of(name)

    def wait_until_replayed(self) -> None:
        """Return when the standby has replayed all that the primary has written."""
        [(end,)] = self.primary.rows("SELECT pg_current_wal_flush_lsn()::text", "postgres")
        wait_until(
            lambda: (
                self.standby.rows(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn", "postgres")
                == [(True,)]
            )
        )

    def cut(self) -> None:
        """End the replication: the standby gets nothing more."""
        self.standby.run(
            "ALTER SYSTEM SET primary_conninfo = ''",
            "SELECT pg_reload_conf()",
        )
        wait_until(lambda: not self.primary.rows("SELECT 1 FROM pg_stat_replication", "postgres"))

    def fail_over(self) -> None:
        """Kill the primary, and promote the standby."""
        self.primary.kill()
        self.standby.promote()


@contextmanager
def running_pair(*, is_synchronous: bool) -> Iterator[ServerPair]:
    """Yield a new pair of servers; they end with the block.

    Args:
        is_synchronous: Whether a commit waits until the standby has it.
    """
    if programs() is None:
        skip_without_server()
    with running_server(**_REPLICATES) as primary, primary.replica() as standby:
        if is_synchronous:
            primary.run(
                "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
            )
            wait_until(
                lambda: (
                    primary.rows("SELECT sync_state FROM pg_stat_replication", "postgres")
                    == [("sync",)]
                )
            )
        yield ServerPair(primary, standby)
