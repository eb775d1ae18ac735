"""Consolidation rules: which episodes become facts, where, and how often."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from slumberd.core.brake import NO_LIMITS, Limits
from slumberd.core.cadence import Cadence, cadence_of

FACTS = "facts"
"""The channel whose fact ids are the episode ids themselves."""


class ConsolidationRule(BaseModel):
    """One rule, as the specification has it; what comes after ``then_emits`` is ours.

    Attributes:
        id: Stamped onto every delta as ``rule_id``.
        cadence: ``{"every": N}`` or ``{"cron": "0 3 * * *", "timezone": "Europe/Berlin"}``.
        when_filter: A SQL WHERE fragment over the columns of the README; empty matches all.
        then_emits: The channels it promotes into.
        enabled: Whether the daemon fires it.
        start: ``beginning`` reads the episodes that were there before the rule; ``now`` does not.
        limits: ``max_deletes`` and ``max_delete_fraction`` of one batch; the general ones where
            they are not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    cadence: dict[str, Any]
    when_filter: str
    then_emits: list[str]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: Limits = NO_LIMITS

    @field_validator("cadence")
    @classmethod
    def _has_one_cadence(cls, value: dict[str, Any]) -> dict[str, Any]:
        cadence_of(value)
        return value

    @field_serializer("limits")
    def _limits_by_name(self, limits: Limits) -> dict[str, Any]:
        return limits._asdict()

    @property
    def due(self) -> Cadence:
        """The cadence, parsed."""
        return cadence_of(self.cadence)

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change whenever anything in the rule does."""
        # What a version does not know, and a rule does not use, leaves the hash as it was.
        left_out = {"limits"} if self.limits == NO_LIMITS else None
        told = self.model_dump(exclude=left_out)
        canonical = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]
