"""Read promotions for provenance sinks, and keep the position up to which they are published."""

from __future__ import annotations

from slumberd.model.provenance import Lag, PromotionPage
from slumberd.storage.facts.transactions import FactTransactions, head_of
from slumberd.storage.ledger import promotion_feed as feed


class PromotionFeed:
    """The promotions of the ledger, and each reader's position; implements ``Promotions``."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> PromotionPage:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        return await self._transactions.read(
            lambda session: feed.page(session, after, limit, current_only=current_only)
        )

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        return await self._transactions.read(lambda session: feed.has_content(session, seq))

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        return await self._transactions.read(lambda session: feed.read_position(session, reader))

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position, which `published_position` returns."""
        await self._transactions.write(
            lambda session: feed.save_position(session, reader, seq, refused)
        )

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        return (await self._transactions.read(head_of)).rows

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        return await self._transactions.read(lambda session: feed.lag(session, reader))
