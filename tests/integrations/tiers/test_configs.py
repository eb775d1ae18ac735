"""The configurations: bounds, defaults and unknown keys. Other tests show what fields do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from slumberd.tiers import (
    ConsolidationConfig,
    EpisodicMemoryConfig,
    MemoryConfig,
    MemoryEntry,
    MemoryQuery,
    SemanticMemoryConfig,
    WorkingMemoryConfig,
)
from tests.support.builders import START
from tests.support.memory_entries import entry

pytestmark = pytest.mark.unit

ALL = [
    ConsolidationConfig,
    EpisodicMemoryConfig,
    MemoryConfig,
    SemanticMemoryConfig,
    WorkingMemoryConfig,
]


@pytest.mark.parametrize("kind", ALL)
def test_unknown_key_is_an_error(kind: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="colour"):
        kind.model_validate({"colour": "green"})


@pytest.mark.parametrize("kind", ALL)
def test_configuration_cannot_change(kind: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(kind(), next(iter(kind.model_fields)), 1)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (WorkingMemoryConfig, "system_prompt_tokens", -1),
        (WorkingMemoryConfig, "recent_turns_fraction", 1.1),
        (WorkingMemoryConfig, "episodic_fraction", -0.1),
        (WorkingMemoryConfig, "semantic_fraction", float("nan")),
        (WorkingMemoryConfig, "tool_descriptions_fraction", 2),
        (WorkingMemoryConfig, "max_recent_turns", 0),
        (EpisodicMemoryConfig, "default_top_k", 0),
        (EpisodicMemoryConfig, "recency_weight", -1),
        (EpisodicMemoryConfig, "importance_weight", 2),
        (EpisodicMemoryConfig, "relevance_weight", float("inf")),
        (EpisodicMemoryConfig, "ttl_seconds", -1),
        (SemanticMemoryConfig, "min_confidence", 1.5),
        (SemanticMemoryConfig, "max_facts_per_entity", 0),
        (ConsolidationConfig, "interval_seconds", 0),
        (ConsolidationConfig, "age_threshold_hours", 0),
        (ConsolidationConfig, "importance_prune_threshold", 2),
        (ConsolidationConfig, "batch_size", 0),
        (MemoryConfig, "default_backend", "floppy"),
        (MemoryConfig, "ttl_seconds", -1),
        (MemoryConfig, "name", ""),
        (MemoryConfig, "name", "a@b"),
        (MemoryConfig, "env", ""),
        (MemoryConfig, "language", "klingon"),
    ],
)
def test_value_out_of_bounds_is_an_error(kind: type[BaseModel], field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        kind.model_validate({field: value})


def test_fractions_sum_to_at_most_one() -> None:
    with pytest.raises(ValueError, match=r"sum to 1\.1"):
        WorkingMemoryConfig(recent_turns_fraction=0.5)


def test_environment_divides_a_name() -> None:
    assert MemoryConfig().agent == "ai_memory"
    assert MemoryConfig(name="shop", env="test").agent == "shop@test"


def test_query_of_the_episodic_tier_has_its_configured_weights() -> None:
    config = EpisodicMemoryConfig(
        default_top_k=3, recency_weight=0.1, importance_weight=0.2, relevance_weight=0.7
    )

    assert config.query("tea", owner_id="ada") == MemoryQuery(
        "tea",
        top_k=3,
        recency_weight=0.1,
        importance_weight=0.2,
        relevance_weight=0.7,
        owner_id="ada",
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"top_k": -1}, id="negative number"),
        pytest.param({"min_relevance": 1.1}, id="relevance above one"),
        pytest.param({"recency_weight": -0.1}, id="negative weight"),
        pytest.param({"relevance_weight": float("nan")}, id="weight that is no number"),
        pytest.param({"time_range": (START, datetime(2026, 1, 1))}, id="naive instant"),  # noqa: DTZ001
    ],
)
def test_query_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        MemoryQuery("tea", **fields)


def test_entry_with_a_naive_instant_is_refused() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 # the test needs it

    with pytest.raises(ValueError, match="naive"):
        MemoryEntry("e1", "tea", "user", naive)
    with pytest.raises(ValueError, match="expires_at"):
        entry("e1", expires_at=naive)
