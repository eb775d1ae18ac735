"""The tiered memory API: so far its consolidation."""

from slumberd.tiers.consolidation import (
    ConsolidationPlan,
    ConsolidationScheduler,
    MemoryConsolidator,
    MemoryStoreProtocol,
)
from slumberd.tiers.entries import (
    ConsolidationConfig,
    ConsolidationResult,
    HealthCheckResult,
    HealthStatus,
    MemoryConsolidatedHook,
    MemoryEntry,
    Triple,
)
from slumberd.tiers.errors import ConsolidationError, FactExtractionError, MemorySystemError
from slumberd.tiers.extraction import EntityExtractor, EpisodicCompressor
from slumberd.tiers.strategies import (
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    RecencyDecayStrategy,
    TimeDecayStrategy,
)

__all__ = [
    "AccessFrequencyStrategy",
    "ConsolidationConfig",
    "ConsolidationError",
    "ConsolidationPlan",
    "ConsolidationResult",
    "ConsolidationScheduler",
    "DeduplicationStrategy",
    "EntityExtractor",
    "EpisodicCompressor",
    "FactExtractionError",
    "HealthCheckResult",
    "HealthStatus",
    "MemoryConsolidatedHook",
    "MemoryConsolidator",
    "MemoryEntry",
    "MemoryStoreProtocol",
    "MemorySystemError",
    "RecencyDecayStrategy",
    "TimeDecayStrategy",
    "Triple",
]
