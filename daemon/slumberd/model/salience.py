"""Compute salience: how much an episode is worth keeping, 0 to 1. Reads no clock.

The weighted sum is that of Park et al. 2023, "Generative Agents", section 4.1: recency, which
decays with the time since the last access, relevance and importance. As in Stargraph, the number
of reads and the number of matching rules increase it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from slumberd.model.duration import Duration
from slumberd.model.episode import SalienceShortfall, instant

USUAL_WEIGHTS = {"recency": 1.0, "relevance": 0.0, "importance": 0.0}
"""The default weights: recency alone."""

TAU_SECONDS = 86_400.0
"""The default time after which recency is worth 1/e: a day."""

_ACCESSES, _MATCHES = 10, 5
"""Above these numbers a further access or match hardly counts."""

_MANY = 1_000
"""From this number on the factors of accesses and matches are exactly 1."""


def _whole_weights(given: dict[str, float]) -> dict[str, float]:
    if unknown := given.keys() - USUAL_WEIGHTS.keys():
        known = ", ".join(USUAL_WEIGHTS)
        raise ValueError(f"weight {min(unknown)!r} is not known; known are {known}")
    return USUAL_WEIGHTS | given


def _aware(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.utcoffset() is None else at


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Weights = Annotated[dict[str, Weight], AfterValidator(_whole_weights)]
"""Of recency, relevance and importance, 0 or more each; a missing one has its default."""


class SalienceContext(BaseModel):
    """The inputs of salience beside the content, as specified.

    Attributes:
        query_embedding: The vector that relevance is measured against; None without relevance.
        last_access_ts: When the episode was last read; UTC when it has no time zone.
        access_count: How often the episode was read, from 0.
        rule_match_count: How many rules match the episode, from 0.
        weights: Of ``recency``, ``relevance`` and ``importance``, 0 or more each.
        decay_tau_seconds: The time after which recency is worth 1/e; finite, above 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    query_embedding: list[Annotated[float, Field(allow_inf_nan=False)]] | None = None
    last_access_ts: Annotated[datetime, AfterValidator(_aware)]
    access_count: int = Field(ge=0)
    rule_match_count: int = Field(ge=0)
    weights: Weights = Field(default=USUAL_WEIGHTS, validate_default=True)
    decay_tau_seconds: float = Field(default=TAU_SECONDS, gt=0, allow_inf_nan=False)


def salience(
    context: SalienceContext, *, at: datetime, relevance: float = 0.0, importance: float = 0.0
) -> float:
    """Return the salience of an episode, 0 to 1; never NaN.

    Args:
        context: The other inputs.
        at: Now; aware. An access after it counts as one at this instant.
        relevance: A cosine, -1 to 1.
        importance: 0 to 1.
    """
    weights = context.weights
    age = max(0.0, (at - context.last_access_ts).total_seconds())
    worth = (
        weights["recency"] * math.exp(-age / context.decay_tau_seconds)
        + weights["relevance"] * relevance
        + weights["importance"] * importance
    )
    accesses = math.tanh(min(context.access_count, _MANY) / _ACCESSES)
    matches = math.tanh(min(context.rule_match_count, _MANY) / _MATCHES)
    return min(1.0, max(0.0, worth * accesses * matches))


def importance_of(metadata: Mapping[str, Any], default: float = 0.0) -> float:
    """Return ``metadata.importance`` when it is a number in 0..1, else the default."""
    value = metadata.get("importance")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return float(value) if 0 <= value <= 1 else default


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors, -1 to 1; 0 when they cannot be compared."""
    lengths = math.hypot(*left), math.hypot(*right)
    if len(left) != len(right) or not all(0 < length < math.inf for length in lengths):
        return 0.0
    parts = (a / lengths[0] * (b / lengths[1]) for a, b in zip(left, right, strict=True))
    return min(1.0, max(-1.0, math.fsum(parts)))


class Access(NamedTuple):
    """The reads of an episode.

    Attributes:
        reads: How often it was read.
        last: The last read, microseconds since 1970 UTC; None when it was never read.
    """

    reads: int = 0
    last: int | None = None


NEVER = Access()
"""The access of an episode that was never read."""


class Gate(BaseModel):
    """A rule's salience gate: the rule promotes only episodes with at least this salience.

    Attributes:
        min: The least salience that passes.
        tau: The number of seconds after which recency is worth 1/e.
        weights: Of recency, relevance and importance, 0 or more each.
        about: The text that relevance is measured against; empty when relevance weighs 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    min: float = Field(gt=0, le=1)
    tau: Duration = TAU_SECONDS
    weights: Weights = Field(default=USUAL_WEIGHTS, validate_default=True)
    about: str = ""

    @model_validator(mode="after")
    def _can_be_passed(self) -> Self:
        check_gate(self.min, self.weights, self.about)
        return self

    @property
    def embeds(self) -> bool:
        """Whether the gate measures relevance, so it needs an embedder."""
        return self.weights["relevance"] > 0

    def judge(
        self,
        episode_at: int,
        access: Access,
        *,
        at: datetime,
        relevance: float = 0.0,
        importance: float = 0.0,
    ) -> SalienceShortfall | None:
        """Return why an episode is held back; None when it passes.

        Writing an episode counts as its first access, and this rule as its only match. Other rules
        do not count, because the result must not depend on the order of the rules.

        Args:
            episode_at: The episode's own instant, microseconds since 1970 UTC.
            access: The episode's reads.
            at: The firing's instant.
            relevance: A cosine, -1 to 1.
            importance: 0 to 1.
        """
        context = SalienceContext(
            last_access_ts=instant(
                episode_at if access.last is None else max(episode_at, access.last)
            ),
            access_count=1 + access.reads,
            rule_match_count=1,
            weights=self.weights,
            decay_tau_seconds=self.tau,
        )
        score = salience(context, at=at, relevance=relevance, importance=importance)
        return None if score >= self.min else SalienceShortfall(score, self.min, access.reads)


def check_gate(least: float, weights: Mapping[str, float], about: str) -> None:
    """Check that an episode can pass a gate, and that `about` is given if relevance counts.

    Raises:
        ValueError: No episode can pass, or only one of `about` and the weight is given.
    """
    most = min(1.0, math.tanh(1 / _MATCHES) * sum(weights.values()))
    if least >= most:
        raise ValueError(
            f"no episode reaches {least:g}: with these weights all are below {most:.3f}"
        )
    if (weights["relevance"] > 0) != bool(about.strip()):
        raise ValueError(
            "'about' and a weight of relevance above 0 go together: give both, or none"
        )
