"""The configurations of the tiered memory API: strict, bounded, with the usual defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slumberd.integrations.tiers.entries import MemoryQuery
from slumberd.model.texts import LANGUAGES

Backend = Literal["in_memory", "cache", "database", "vector"]
"""Where entries are kept: in the process, in Redis, in SQLite, or in SQLite with vectors."""

_ROUNDING = 1e-9


class _Config(BaseModel):
    """A configuration that cannot change; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkingMemoryConfig(_Config):
    """How a budget of tokens is divided.

    The fractions are of what is left after the system prompt. Their sum is at most 1.

    Attributes:
        system_prompt_tokens: Kept free for the system prompt, 0 or more.
        recent_turns_fraction: For the latest turns, 0 to 1.
        episodic_fraction: For recalled entries, 0 to 1.
        semantic_fraction: For facts, 0 to 1.
        tool_descriptions_fraction: Kept free for descriptions of tools, 0 to 1.
        max_recent_turns: The most of the latest turns, whatever the budget; 1 or more.
    """

    system_prompt_tokens: int = Field(default=512, ge=0)
    recent_turns_fraction: float = Field(default=0.40, ge=0, le=1, allow_inf_nan=False)
    episodic_fraction: float = Field(default=0.30, ge=0, le=1, allow_inf_nan=False)
    semantic_fraction: float = Field(default=0.20, ge=0, le=1, allow_inf_nan=False)
    tool_descriptions_fraction: float = Field(default=0.10, ge=0, le=1, allow_inf_nan=False)
    max_recent_turns: int = Field(default=20, ge=1)

    @property
    def fractions(self) -> dict[str, float]:
        """The fraction of each section."""
        return {
            "recent": self.recent_turns_fraction,
            "episodic": self.episodic_fraction,
            "semantic": self.semantic_fraction,
            "tools": self.tool_descriptions_fraction,
        }

    @model_validator(mode="after")
    def _fits(self) -> Self:
        total = sum(self.fractions.values())
        if total > 1 + _ROUNDING:
            raise ValueError(f"the fractions sum to {total:g}, which is more than 1")
        return self


class EpisodicMemoryConfig(_Config):
    """How entries are recalled.

    Attributes:
        default_top_k: The most results of a recall that states none, 1 or more.
        recency_weight: The weight of the recency, 0 to 1.
        importance_weight: The weight of the importance, 0 to 1.
        relevance_weight: The weight of the relevance to the text, 0 to 1.
        ttl_seconds: How long a recorded entry is kept; 0 leaves that to the store.
    """

    default_top_k: int = Field(default=10, ge=1)
    recency_weight: float = Field(default=0.3, ge=0, le=1, allow_inf_nan=False)
    importance_weight: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)
    relevance_weight: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    ttl_seconds: int = Field(default=0, ge=0)

    def query(self, text: str, *, owner_id: str = "") -> MemoryQuery:
        """Return a search with the configured weights and number of results."""
        return MemoryQuery(
            text,
            top_k=self.default_top_k,
            recency_weight=self.recency_weight,
            importance_weight=self.importance_weight,
            relevance_weight=self.relevance_weight,
            owner_id=owner_id,
        )


class SemanticMemoryConfig(_Config):
    """Which facts are kept.

    Attributes:
        min_confidence: Facts of a lower confidence are neither stored nor returned, 0 to 1.
        max_facts_per_entity: The most facts of one subject, 1 or more.
    """

    min_confidence: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    max_facts_per_entity: int = Field(default=100, ge=1)


class ConsolidationConfig(_Config):
    """When entries are consolidated, and what is left of them.

    Attributes:
        enabled: Whether the scheduler runs.
        interval_seconds: The time from the start to the first pass, and from the begin of one to
            that of the next; above 0.
        age_threshold_hours: Younger entries are left alone, and this is the half-life of the
            recency of the others; above 0.
        recency_threshold: Entries with a lower recency are pruned, 0 to 1.
        protect_importance: Entries of at least this importance do not become too old, 0 to 1.
        importance_prune_threshold: Entries of a lower importance are pruned, 0 to 1.
        similarity_threshold: Entries that are this similar are duplicates, above 0, at most 1.
        batch_size: The most entries that one pass looks at, 1 or more.
        summary_size: How many entries of a session become one summary: 2 or more, at most
            `batch_size`.
        max_summary_tokens: The most tokens of a summary, for a function that takes `max_tokens`;
            1 or more.
    """

    enabled: bool = True
    interval_seconds: float = Field(default=3_600, gt=0, allow_inf_nan=False)
    age_threshold_hours: float = Field(default=24, gt=0, allow_inf_nan=False)
    recency_threshold: float = Field(default=0.05, ge=0, le=1, allow_inf_nan=False)
    protect_importance: float = Field(default=0.8, ge=0, le=1, allow_inf_nan=False)
    importance_prune_threshold: float = Field(default=0.1, ge=0, le=1, allow_inf_nan=False)
    similarity_threshold: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    batch_size: int = Field(default=100, ge=1)
    summary_size: int = Field(default=10, ge=2)
    max_summary_tokens: int = Field(default=200, ge=1)


class MemoryConfig(_Config):
    """The configuration of all tiers.

    Attributes:
        enabled: Whether the memory is in use; else it keeps nothing.
        name: Divides the memories of one store: entries and facts belong to one name.
        env: Divides the memories of one name further, as ``test`` and ``production``.
        working: How a budget of tokens is divided.
        episodic: How entries are recalled.
        semantic: Which facts are kept.
        consolidation: When entries are consolidated.
        default_backend: Where entries are kept: in the process, unless there is a `directory`.
        max_entries: The most entries of all owners in the process; None for any number. With any
            other back end it is an error.
        ttl_seconds: How long entries are kept; 0 for ever.
        language: The language of the texts, such as ``english``, to stem their words; None stems
            none.
        directory: The directory of ``memory.db`` and ``facts.db``. None is ``memory``; but with the
            back end ``in_memory``, facts are then in the process, too.
        cache_url: The address of Redis, for the back end ``cache``.
    """

    enabled: bool = True
    name: str = Field(default="ai_memory", pattern="^[^@]+$")
    env: str | None = Field(default=None, min_length=1)
    working: WorkingMemoryConfig = WorkingMemoryConfig()
    episodic: EpisodicMemoryConfig = EpisodicMemoryConfig()
    semantic: SemanticMemoryConfig = SemanticMemoryConfig()
    consolidation: ConsolidationConfig = ConsolidationConfig()
    default_backend: Backend = "in_memory"
    max_entries: int | None = Field(default=None, ge=1)
    ttl_seconds: int = Field(default=2_592_000, ge=0)
    language: str | None = None
    directory: Path | None = None
    cache_url: str = "redis://localhost:6379/0"

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None) -> str | None:
        if language not in (None, *LANGUAGES):
            raise ValueError(f"is not one of {', '.join(LANGUAGES)}")
        return language

    @model_validator(mode="before")
    @classmethod
    def _takes_the_directory(cls, values: Any) -> Any:  # noqa: ANN401 # as the caller gives them
        """Keep entries in the directory that a caller names, when it names no back end."""
        if isinstance(values, dict) and values.get("directory") is not None:
            return {"default_backend": "database", **values}
        return values

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.max_entries is not None and self.default_backend != "in_memory":
            raise ValueError(f"max_entries does not hold for {self.default_backend}")
        return self

    @property
    def agent(self) -> str:
        """The agent of the scopes of entries and facts: the name, with the environment."""
        return self.name if self.env is None else f"{self.name}@{self.env}"
