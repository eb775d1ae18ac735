"""Keep the hashes of erased scopes in a database."""

from __future__ import annotations

import secrets
import sqlite3
from functools import partial

from slumberd.model.scope import ErasedScopes, ScopeFilter, digest_of
from slumberd.sql_statements import statements

_SQL = statements("erased_scopes")


def load_erased_scopes(connection: sqlite3.Connection) -> ErasedScopes | None:
    """Return all erased scopes, loaded for many look-ups; None when nothing was ever erased."""
    key = _key(connection)
    if key is None:
        return None
    return ErasedScopes(key, dict(connection.execute(_SQL["moments"]).fetchall()).get)


def erased_scope_lookup(connection: sqlite3.Connection) -> ErasedScopes | None:
    """Return the erased scopes, each looked up in the file; None when nothing was ever erased."""
    key = _key(connection)
    return None if key is None else ErasedScopes(key, partial(_moment_of, connection))


def _key(connection: sqlite3.Connection) -> bytes | None:
    if not connection.execute(_SQL["exists"]).fetchone():
        return None
    key: bytes = connection.execute(_SQL["key"]).fetchone()[0]
    return key


def _moment_of(connection: sqlite3.Connection, digest: bytes) -> int | None:
    found = connection.execute(_SQL["moment"], (digest,)).fetchone()
    return found[0] if found else None


def key_of(connection: sqlite3.Connection) -> bytes | None:
    """Return the key of the hashes; None when nothing was ever erased here."""
    return _key(connection)


def record_erased_scope(
    connection: sqlite3.Connection, scope: ScopeFilter, moment: int, key: bytes | None = None
) -> bytes:
    """Record that a scope is erased up to a moment; return its hash.

    Args:
        connection: In a transaction.
        scope: The scope.
        moment: The last erased instant, microseconds.
        key: The key of the hashes if this database has none yet; None draws one. All databases of
            a state directory share it, so that each can take over the hashes of another.
    """
    key = _begin(connection, key or secrets.token_bytes(32))
    digest = digest_of(key, scope.user, scope.session, scope.agent)
    connection.execute(_SQL["add_moment"], (digest, moment))
    return digest


def record_erased_hash(
    connection: sqlite3.Connection, key: bytes, digest: bytes, moment: int
) -> None:
    """Record an erased scope by its hash in another database that has the same key."""
    if _begin(connection, key) == key:
        connection.execute(_SQL["add_moment"], (digest, moment))


def _begin(connection: sqlite3.Connection, key: bytes) -> bytes:
    connection.execute(_SQL["create_erasure_key"])
    connection.execute(_SQL["create_erased_scopes"])
    connection.execute(_SQL["add_key"], (key,))
    stored: bytes = connection.execute(_SQL["key"]).fetchone()[0]
    return stored
