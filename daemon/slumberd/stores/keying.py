"""The key of a ledger: it is keyed from its first row on, or never."""

from __future__ import annotations

import hmac
import sqlite3
from pathlib import Path

from slumberd.errors import LedgerKeyError
from slumberd.storage.sqlite.connection import KeyedConnection
from slumberd.storage.sqlite.statements import statements

_SQL = statements("ledger")
_FILE = statements("migrations")["file"]

_UNKEYED = 0
_MISSING = "the ledger is keyed: name the file of its key in facts.key_file"
_WRONG = "the ledger was begun with another key: put the right one back into facts.key_file"
_SURPLUS = (
    "the ledger was begun without a key, and stays so: take facts.key_file out, "
    "or begin another ledger at another facts.path"
)


def adopt_key(connection: sqlite3.Connection) -> bytes | None:
    """Begin a ledger with the key that the connection carries, if any; inside a transaction."""
    key = _carried(connection)
    connection.execute(_SQL["set_number"], {"name": "key", "value": _check_value(key)})
    return key


def checked_key(connection: sqlite3.Connection) -> bytes | None:
    """Return the key that the connection carries, if any, once it is known to be the ledger's.

    Raises:
        LedgerKeyError: It is another, or the ledger has one and the connection has none, or the
            other way round.
    """
    key = _carried(connection)
    begun_with = connection.execute(_SQL["number"], ("key",)).fetchone()[0]
    if begun_with != _check_value(key) and connection.execute(_SQL["last_row"]).fetchone():
        problem = _MISSING if key is None else _WRONG if begun_with else _SURPLUS
        raise LedgerKeyError(Path(connection.execute(_FILE).fetchone()[0]), problem)
    return key


def _carried(connection: sqlite3.Connection) -> bytes | None:
    return connection.key if isinstance(connection, KeyedConnection) else None


def _check_value(key: bytes | None) -> int:
    """Return what tells a key from others and does not tell the key."""
    if key is None:
        return _UNKEYED
    return int.from_bytes(hmac.digest(key, b"slumberd ledger", "sha256")[:8]) >> 1 | 1
