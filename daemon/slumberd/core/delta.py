"""Deltas: the four typed changes that a rule may ask of a fact store, each with provenance."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slumberd.errors import ConsolidationRuleError


class _Provenance(BaseModel):
    """Where a delta comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_episode_ids: list[str]
    promotion_ts: datetime
    rule_id: str
    confidence: float


class AddDelta(_Provenance):
    """A fact that nothing stands against yet."""

    kind: Literal["add"]
    fact_payload: dict[str, Any]


class UpdateDelta(_Provenance):
    """A fact that takes the place of others."""

    kind: Literal["update"]
    replaces: list[str]
    fact_payload: dict[str, Any]


class DeleteDelta(_Provenance):
    """Facts that no longer hold."""

    kind: Literal["delete"]
    replaces: list[str]


class NoopDelta(_Provenance):
    """An episode that was seen and changes nothing."""

    kind: Literal["noop"]


MemoryDelta = Annotated[
    AddDelta | UpdateDelta | DeleteDelta | NoopDelta, Field(discriminator="kind")
]
"""Any delta; validate untyped input with ``pydantic.TypeAdapter(MemoryDelta)``."""


def checked_delta(delta: AddDelta | UpdateDelta | DeleteDelta | NoopDelta) -> None:
    """Let a delta pass whose provenance is whole.

    Raises:
        ConsolidationRuleError: A provenance field is empty or out of bounds, or ``replaces``
            of an update or delete is empty.
    """
    if violation := _violation(delta):
        raise ConsolidationRuleError(delta.rule_id, type(delta).__name__, violation)


def _violation(delta: AddDelta | UpdateDelta | DeleteDelta | NoopDelta) -> str:
    if not delta.rule_id:
        return "rule_id must be non-empty"
    if not delta.source_episode_ids or not all(delta.source_episode_ids):
        return "source_episode_ids must be non-empty"
    if not math.isfinite(delta.confidence):
        return "confidence must be finite"
    if not 0 <= delta.confidence <= 1:
        return f"confidence must lie in 0..1, not {delta.confidence!r}"
    if isinstance(delta, UpdateDelta | DeleteDelta) and not (
        delta.replaces and all(delta.replaces)
    ):
        return "replaces must be non-empty"
    return ""
