"""Read the state of a database that several hosts use, for reports."""

from __future__ import annotations

from typing import Any

import orjson

from slumberd.model.store_status import DatabaseStatus, HostStatus, ShardHolder
from slumberd.storage.engine import Session
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession


def read_database_status(address: str) -> DatabaseStatus:
    """Return the state of a database.

    Raises:
        StoreError: The database cannot be read.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        installation.check(connection, place=place)
        return _read(PostgresSession(connection, place, 0))


def _read(session: Session) -> DatabaseStatus:
    age, is_durable, is_replica = session.rows("hosts.server")[0]
    return DatabaseStatus(
        where=session.where,
        shards=[ShardHolder(*row) for row in session.rows("hosts.shards")],
        hosts=[
            _host_of(name, seen, orjson.loads(state))
            for name, seen, state in session.rows("hosts.hosts")
        ],
        unnumbered=session.value("hosts.unnumbered"),
        requests=session.value("hosts.open_requests"),
        oldest_transaction_seconds=session.value("hosts.oldest_transaction"),
        dead_rows={name: (rows, dead) for name, rows, dead in session.rows("hosts.dead_rows")},
        transaction_age=age,
        is_durable=is_durable,
        is_replica=is_replica,
    )


def _host_of(name: str, seen_seconds: float, state: dict[str, Any]) -> HostStatus:
    return HostStatus(
        name,
        seen_seconds,
        str(state.get("role", "")),
        str(state.get("version", "")),
        str(state.get("rules_hash", "")),
        float(state.get("clock_offset_seconds", 0.0)),
    )
