"""What a store says about itself, and what may be asked of its tables."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class StoreHealth(BaseModel):
    """The state of one store.

    Attributes:
        ok: Whether it can be used.
        version: Of the specified tables.
        fragment_count: Episodes, or facts.
        node_count: Of graph stores.
        embedding_hash: Of vector stores.
        fs_type: The file system's type, as ``ext4``; ``unknown`` where it cannot be told.
        lock_state: Whether somebody holds the write lock now.
        warnings: One sentence for each thing that is not as it should be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ok: bool
    version: int
    fragment_count: int | None = None
    node_count: int | None = None
    embedding_hash: str | None = None
    fs_type: str
    lock_state: Literal["free", "held"]
    warnings: list[str] = Field(default_factory=list)


class MigrationPlan(BaseModel):
    """Changes to a specified table; only nullable columns can be added.

    Attributes:
        target_version: Recorded in ``_migrations`` once all operations are done.
        operations: ``{"op": "add_column", "table": ..., "column": ..., "type": "TEXT",
            "nullable": True}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target_version: int
    operations: list[dict[str, Any]]
