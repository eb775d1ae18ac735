"""The protocols between the ledger, the provenance publisher and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from slumberd.model.provenance import Lag, PromotionPage, ProvenanceBundle


class Promotions(Protocol):
    """The promotions of a ledger, and the position up to which each reader has published them."""

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> PromotionPage:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        ...

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        ...

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        ...

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position, which `published_position` returns."""
        ...

    async def ledger_rows(self) -> int:
        """Return the number of rows of the ledger."""
        ...

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        ...


@runtime_checkable
class ProvenanceSink(Protocol):
    """A destination of assertions and their provenance.

    A sink gets each assertion at least once. After a crash or a timeout it may get one again, with
    equal template, slots and provenance.
    """

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Store an assertion; it is as durable as the sink makes it when this returns.

        Args:
            template: The kind of assertion.
            slots: The asserted values; no name begins with ``_``.
            provenance: The origin of the assertion.

        Raises:
            ProvenanceError: The assertion cannot be stored in any form; a retry is useless.
            Exception: Any other failure; the publisher retries.
        """
        ...


class SyncProvenanceSink(Protocol):
    """A synchronous `ProvenanceSink`, such as Stargraph's ``FathomAdapter``."""

    def assert_with_provenance(
        self, template: str, slots: dict[str, Any], provenance: ProvenanceBundle
    ) -> None:
        """Store an assertion; it is as durable as the sink makes it when this returns."""
        ...
