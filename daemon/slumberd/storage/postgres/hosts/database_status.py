"""Read the state of a database that several hosts use, for reports."""

from __future__ import annotations

from typing import Any

import orjson

from slumberd.model.store_status import (
    DatabaseStatus,
    HostStatus,
    OldestTransaction,
    ShardHolder,
)
from slumberd.storage.engine import Session
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession


def read_database_status(address: str, *, most_xids: int, few_dead_rows: int) -> DatabaseStatus:
    """Return the state of a database.

    Args:
        address: Its address.
        most_xids: A transaction is reported first when more transactions began after it.
        few_dead_rows: Tables with at most so many old versions of rows are not reported.

    Raises:
        StoreError: The database cannot be read.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        installation.check(connection, place=place)
        session = PostgresSession(connection, place, 0)
        return _read(session, most_xids, few_dead_rows)


def _read(session: Session, most_xids: int, few_dead_rows: int) -> DatabaseStatus:
    server, age, is_durable, is_read_only, size = session.rows("hosts.server")[0]
    unnumbered, unnumbered_seconds = session.rows("hosts.inbox")[0]
    oldest = session.one("hosts.oldest_transaction", {"xids": most_xids})
    dead = session.rows("hosts.dead_rows", {"rows": few_dead_rows})
    return DatabaseStatus(
        where=session.where,
        server=server,
        bytes=size,
        shards=[ShardHolder(*row) for row in session.rows("hosts.shards")],
        hosts=[
            _host_of(name, seen, orjson.loads(state))
            for name, seen, state in session.rows("hosts.hosts")
        ],
        unnumbered=unnumbered,
        unnumbered_seconds=unnumbered_seconds,
        requests=session.value("hosts.open_requests"),
        oldest_transaction=OldestTransaction(*oldest) if oldest else None,
        dead_rows={name: (rows, count) for name, rows, count in dead},
        transaction_age=age,
        is_durable=is_durable,
        is_read_only=is_read_only,
    )


def _host_of(name: str, seen_seconds: float, state: dict[str, Any]) -> HostStatus:
    return HostStatus(
        name,
        seen_seconds,
        str(state.get("role", "")),
        str(state.get("version", "")),
        str(state.get("rules_hash", "")),
        state.get("rules_version"),
        float(state.get("clock_offset_seconds", 0.0)),
    )
