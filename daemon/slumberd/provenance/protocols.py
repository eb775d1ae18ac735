"""The contracts between the ledger, the provenance publisher and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from slumberd.model.provenance import Lag, Page, ProvenanceBundle


class Promotions(Protocol):
    """The side of a ledger that a sink of provenance is told from."""

    async def promotions(self, after: int, *, limit: int, standing: bool) -> Page:
        """Return what made facts stand in at most `limit` rows above a number.

        Args:
            after: The number.
            limit: How many rows are read, of any kind.
            standing: Whether facts are left out that no longer stand.
        """
        ...

    async def is_told(self, seq: int) -> bool:
        """Say whether a row still says what it said, and was not erased."""
        ...

    async def asserted(self, reader: str) -> tuple[int, int]:
        """Return up to which row a sink was told, and how many rows it refused."""
        ...

    async def mark_asserted(self, reader: str, seq: int, refused: int) -> None:
        """Remember what `asserted` returns."""
        ...

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        ...

    async def lag(self, reader: str) -> Lag:
        """Return how far the ledger reaches above what a sink was told."""
        ...


@runtime_checkable
class ProvenanceSink(Protocol):
    """Where an assertion goes together with where it comes from.

    It is told of each at least once, so it may be told of the same again, after a crash or when
    it did not answer in time: slots, bundle and all are then equal to those of the first time.
    """

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Take an assertion; it is kept, as far as this sink keeps anything, when this returns.

        Args:
            template: What kind of assertion it is.
            slots: What is asserted; no name begins with ``_``.
            provenance: Where it comes from.

        Raises:
            ProvenanceError: It has no form that could be stored; it never will.
            Exception: Anything else, and it may go better later.
        """
        ...


class SyncProvenanceSink(Protocol):
    """A `ProvenanceSink` that returns when it is done, as Stargraph's ``FathomAdapter``."""

    def assert_with_provenance(
        self, template: str, slots: dict[str, Any], provenance: ProvenanceBundle
    ) -> None:
        """Take an assertion; it is kept when this returns."""
        ...
