"""Read promotions for provenance sinks, and keep the position up to which they are published."""

from __future__ import annotations

from slumberd.model.provenance import Lag, Page
from slumberd.storage.facts.lifecycle import FactFile, head_of
from slumberd.storage.ledger import promotion_feed as feed


class PromotionFeed:
    """The promotions of the ledger, and each reader's position; implements ``Promotions``."""

    def __init__(self, file: FactFile) -> None:
        self._file = file

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> Page:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        return await self._file.read(
            lambda connection: feed.page(connection, after, limit, current_only=current_only)
        )

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        return await self._file.read(lambda connection: feed.has_content(connection, seq))

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        return await self._file.read(lambda connection: feed.read_position(connection, reader))

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position, which `published_position` returns."""
        await self._file.write(
            lambda connection: feed.save_position(connection, reader, seq, refused)
        )

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        return (await self._file.read(head_of)).rows

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        return await self._file.read(lambda connection: feed.lag(connection, reader))
