"""Consolidation rules: which episodes become facts, where, and how often."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from slumberd.model.cadence import Cadence, Duration, cadence_of
from slumberd.model.firing import NO_LIMITS, Limits
from slumberd.model.salience import Gate

FACTS = "facts"
"""The channel whose fact ids are the episode ids themselves."""

_LATER_KEYS = (
    "limits", "on_missed", "catchup_window", "timeout", "similarity", "salience", "kind",
    "filter_cypher", "user", "agent",
)  # fmt: skip
"""What the first version did not know."""


class Similarity(BaseModel):
    """How near a new fact must be to a current fact to be linked with it.

    Attributes:
        min: Two facts are linked from this cosine of their texts on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: float = Field(default=0.85, ge=0.0, le=1.0, allow_inf_nan=False)


Kind = Literal["episodes", "graph"]
"""What a rule promotes."""

NO_EPISODE = "0"
"""The ``when_filter`` that selects nothing."""


class ConsolidationRule(BaseModel):
    """One rule, as the specification has it; what comes after ``then_emits`` is ours.

    A rule of kind ``graph`` promotes triples of a graph. Its ``when_filter`` selects no episode.

    Attributes:
        id: Stamped onto every delta as ``rule_id``.
        cadence: ``{"every": N}`` or ``{"cron": "0 3 * * *", "timezone": "Europe/Berlin"}``.
        when_filter: A SQL WHERE fragment over the columns of an episode; empty matches all.
        then_emits: The channels it promotes into.
        enabled: Whether the daemon fires it.
        start: ``beginning`` reads the episodes that were there before the rule; ``now`` does not.
        limits: ``max_deletes`` and ``max_delete_fraction`` of one batch; the general ones where
            they are not given.
        on_missed: Whether cron instants that passed while no daemon ran are worth one firing, or
            none: then their episodes wait for the next.
        catchup_window: How many seconds ago the newest of them may be; else it is as with ``skip``.
        timeout: How many seconds a firing may take; then it is stopped, and fails.
        similarity: Links its new facts with near current facts; None compares nothing.
        salience: What an episode must be worth before the rule takes it in; None takes in all.
        kind: Whether it promotes ``episodes``, or triples of a ``graph``.
        filter_cypher: Of a graph's rule, the query that finds the triples.
        user: Of a graph's rule, whose facts they become.
        agent: Of a graph's rule, which agent's.
        description: What it is for, in words; nothing depends on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    cadence: dict[str, Any]
    when_filter: str
    then_emits: list[str]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: Limits = NO_LIMITS
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    similarity: Similarity | None = None
    salience: Gate | None = None
    kind: Kind = "episodes"
    filter_cypher: str = ""
    user: str = ""
    agent: str = ""
    description: str = ""

    @field_validator("cadence")
    @classmethod
    def _has_one_cadence(cls, value: dict[str, Any]) -> dict[str, Any]:
        cadence_of(value)
        return value

    @field_serializer("limits")
    def _limits_by_name(self, limits: Limits) -> dict[str, Any]:
        return limits._asdict()

    @property
    def reads_episodes(self) -> bool:
        """Whether it promotes episodes, and not a graph's triples."""
        return self.kind == "episodes"

    @property
    def due(self) -> Cadence:
        """The cadence, parsed."""
        return cadence_of(self.cadence)

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with everything that the rule's work depends on."""
        # What a version does not know, and a rule does not use, leaves the hash as it was.
        told = self.model_dump(exclude={"description", *filter(self._is_unused, _LATER_KEYS)})
        canonical = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]

    def _is_unused(self, key: str) -> bool:
        return bool(getattr(self, key) == type(self).model_fields[key].default)


OnMissed = Literal["run_once", "skip"]
"""What becomes of cron instants that nobody was there for."""
