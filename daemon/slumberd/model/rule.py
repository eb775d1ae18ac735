"""Consolidation rules: which episodes become facts, where, and how often."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    field_serializer,
    field_validator,
)

from slumberd.model.cadence import Cadence, Duration, cadence_of
from slumberd.model.extraction import Extraction, ModelSummariser
from slumberd.model.firing import NO_LIMITS, Limits
from slumberd.model.functions import RuleFunction
from slumberd.model.salience import Gate
from slumberd.model.stages import MARKS, SUMMARIES, WEIGHTS, Stage

FACTS = "facts"
"""The channel whose fact ids are the episode ids themselves."""

_LATER_KEYS = (
    "limits", "on_missed", "catchup_window", "timeout", "similarity", "salience", "kind",
    "filter_cypher", "user", "agent", "extract", "stages", "summariser",
)  # fmt: skip
"""Keys that the first version lacked; `content_hash` ignores those that a rule does not use."""


class Similarity(BaseModel):
    """How near a new fact must be to a current fact to be linked with it.

    Attributes:
        min: Two facts are linked from this cosine of their texts on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: float = Field(default=0.85, ge=0.0, le=1.0, allow_inf_nan=False)


Kind = Literal["episodes", "graph"]
"""The source that a rule promotes."""

NO_EPISODE = "0"
"""The ``when_filter`` that selects nothing."""


class ConsolidationRule(BaseModel):
    """One rule; the keys up to ``then_emits`` are the specification's, the others slumberd's.

    A rule of kind ``graph`` promotes triples of a graph. Its ``when_filter`` selects no episode.

    Attributes:
        id: The ``rule_id`` of all of its deltas.
        cadence: ``{"every": N}``, ``{"cron": "0 3 * * *", "timezone": "Europe/Berlin"}`` or
            ``{"interval": "1h"}``.
        when_filter: A SQL WHERE fragment over the columns of an episode; empty matches all.
        then_emits: The channels it promotes into.
        enabled: Whether the daemon fires it.
        start: ``beginning`` reads the episodes that are older than the rule; ``now`` does not.
        limits: ``max_deletes`` and ``max_delete_fraction`` of one batch; those of the
            configuration where they are not given.
        on_missed: What follows cron instants that passed while no daemon ran: ``run_once`` fires
            once for all of them, ``skip`` leaves their episodes to the next instant.
        catchup_window: The greatest age of the newest missed instant, in seconds; an older one is
            skipped.
        timeout: How many seconds a firing may take; a longer one is stopped, and fails.
        similarity: Links its new facts with similar current facts; None compares nothing.
        salience: The least salience of an episode that the rule promotes; None promotes all.
        extract: Finds triples in the text of episodes that state none themselves; None finds none.
        summariser: Writes the summaries of the stage ``summarise``; None takes sentences.
        stages: What marks episodes after the rule has promoted what was pending, in order.
        kind: Whether it promotes ``episodes``, or triples of a ``graph``.
        filter_cypher: For a graph, the query that finds the triples.
        user: For a graph, the user of the promoted facts.
        agent: For a graph, the agent of the promoted facts.
        description: Its purpose, in words; nothing depends on it.
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
    extract: InstanceOf[Extraction] | None = None
    summariser: InstanceOf[RuleFunction] | InstanceOf[ModelSummariser] | None = None
    stages: tuple[Stage, ...] = ()
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

    @field_serializer("extract")
    def _extraction_by_name(self, extract: Extraction | None) -> dict[str, Any] | None:
        return None if extract is None else {"with": extract.name, "digest": extract.digest}

    @field_serializer("summariser")
    def _summariser_by_name(
        self, summariser: RuleFunction | ModelSummariser | None
    ) -> dict[str, Any] | None:
        found = summariser
        return None if found is None else {"with": found.name, "digest": found.digest}

    @property
    def reads_episodes(self) -> bool:
        """Whether it promotes episodes rather than a graph's triples."""
        return self.kind == "episodes"

    @property
    def asks_model(self) -> bool:
        """Whether a language model finds triples or writes summaries for it."""
        extracts = self.extract is not None and self.extract.asks_model
        return extracts or isinstance(self.summariser, ModelSummariser)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of its batches: those that it promotes into, and those of its stages."""
        stages = (SUMMARIES, MARKS, WEIGHTS) if self.stages else ()
        return (*dict.fromkeys(self.then_emits), *stages)

    @property
    def due(self) -> Cadence:
        """The cadence, parsed."""
        return cadence_of(self.cadence)

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with every key that the rule's effect depends on."""
        # A new key that a rule does not use must not change the rule's hash.
        document = self.model_dump(exclude={"description", *filter(self._is_unused, _LATER_KEYS)})
        canonical = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]

    def _is_unused(self, key: str) -> bool:
        return bool(getattr(self, key) == type(self).model_fields[key].default)


OnMissed = Literal["run_once", "skip"]
"""What follows cron instants that passed while no daemon ran."""
