"""Erase scopes from the facts and the ledger, and remember which scopes were erased."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from datetime import datetime

from slumberd.model.scope import ScopeFilter
from slumberd.storage.episodes.erased_content import Moments, learn_moments, remembered
from slumberd.storage.facts.lifecycle import FactFile
from slumberd.storage.ledger import erasure
from slumberd.storage.ledger.erasure import Erasure, ErasureRequest, Unfinished, erase, find_scope
from slumberd.storage.sqlite.connection import snapshot
from slumberd.storage.sqlite.erased_scopes import erased_scope_lookup
from slumberd.storage.sqlite.scrubbing import Scrubbed, scrub

_EARLIEST = -(2**62)
"""An instant before every other one, microseconds."""


class ErasureTable:
    """Erases scopes, and keeps the keyed hashes of erased scopes."""

    def __init__(self, file: FactFile) -> None:
        self._file = file

    async def forget(  # noqa: PLR0913 # the fields of one request
        self,
        scope: ScopeFilter,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        key: bytes | None = None,
        moment: int,
        at: datetime,
        by: str,
        dry_run: bool,
    ) -> Erasure:
        """Erase a scope, and resolve what it leaves; `scrub` then removes the bytes.

        Args:
            scope: The scope.
            eids: Ids of its episodes; the ledger need not know them.
            kept: Those of them that now belong to an episode of another scope.
            key: The key of the hashes of scopes, if this database has none yet.
            moment: The last erased instant, microseconds; not before the scope's newest instant.
            at: The moment of the request.
            by: The person.
            dry_run: Return the outcome, and write nothing.
        """
        file = self._file

        def work(connection: sqlite3.Connection) -> Erasure:
            with file.append_transaction(connection, keep=not dry_run):
                ids = frozenset(eids), frozenset(kept)
                request = ErasureRequest(scope, *ids, moment, at, by, key)
                return erase(connection, request, depth=file.lineage_depth)

        return await file.database.write(work)

    async def end(self, scopes: Collection[ScopeFilter]) -> None:
        """Record that some erasures are complete in memory.db, too."""

        def work(connection: sqlite3.Connection) -> None:
            with self._file.transaction(connection):
                erasure.end(connection, scopes)

        await self._file.database.write(work)

    async def learn(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Store the erased scopes of other databases that have the same key."""
        await self._file.write(lambda connection: learn_moments(connection, key, moments))

    async def scrub(self) -> Scrubbed:
        """Remove the erased bytes from the file and from its log; return what was done."""
        return await self._file.database.write(scrub)

    async def episodes_in(self, scope: ScopeFilter) -> tuple[set[str], int]:
        """Return the ids of a scope's episodes that the ledger knows, and their latest instant.

        The instant is in microseconds, and 0 without episodes.
        """

        def work(connection: sqlite3.Connection) -> tuple[set[str], int]:
            with snapshot(connection):
                found = find_scope(connection, scope)
            return found.eids, found.newest

        return await self._file.read(work)

    async def find_unfinished(self) -> list[Unfinished]:
        """Return the erasures that may be incomplete in memory.db."""
        return await self._file.read(erasure.read_unfinished)

    async def scopes(self) -> tuple[bytes | None, dict[bytes, int]]:
        """Return the key of the hashes of erased scopes, and the last erased instant of each."""
        return await self._file.read(remembered)

    async def covers(self, scope: ScopeFilter) -> bool:
        """Return whether the scope, or a wider one, was erased before."""
        names = scope.user, scope.session or "", scope.agent or ""

        def work(connection: sqlite3.Connection) -> bool:
            past = erased_scope_lookup(connection)
            return past is not None and past.covers(*names, _EARLIEST)

        return await self._file.read(work)
