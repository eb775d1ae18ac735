"""Public names of the tiered memory; `slumberd.integrations.tiers` implements them."""

from slumberd.integrations.tiers.backends.cache import CacheBackendProtocol, CacheMemoryBackend
from slumberd.integrations.tiers.backends.database import (
    DatabaseMemoryBackend,
    DatabaseProviderProtocol,
)
from slumberd.integrations.tiers.backends.in_memory import InMemoryMemoryBackend
from slumberd.integrations.tiers.backends.vector import (
    DocumentVectorStoreProtocol,
    VectorMemoryBackend,
)
from slumberd.integrations.tiers.configs import (
    ConsolidationConfig,
    EpisodicMemoryConfig,
    MemoryConfig,
    SemanticMemoryConfig,
    WorkingMemoryConfig,
)
from slumberd.integrations.tiers.consolidation import (
    ConsolidationPlan,
    MemoryConsolidator,
)
from slumberd.integrations.tiers.conversations import (
    BufferMemoryStore,
    ConversationBuffer,
    ConversationMemoryStore,
    EntityMemoryStore,
    SummaryMemoryStore,
)
from slumberd.integrations.tiers.entries import (
    ConsolidationResult,
    ConsolidationStrategyProtocol,
    EpisodicMemoryProtocol,
    HealthCheckResult,
    HealthStatus,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    MemoryIndexProtocol,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    OwnedStoreProtocol,
    RelevanceScorerProtocol,
    SearchableProtocol,
    SemanticMemoryProtocol,
    StoredFact,
    Triple,
    WorkingMemoryProtocol,
)
from slumberd.integrations.tiers.episodic import EpisodicMemoryStore
from slumberd.integrations.tiers.errors import (
    ConsolidationError,
    EmbeddingError,
    FactExtractionError,
    MemoryCapacityError,
    MemoryStoreError,
    MemorySystemError,
)
from slumberd.integrations.tiers.events import (
    MemoryConsolidatedHook,
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
)
from slumberd.integrations.tiers.extraction import EntityExtractor, EpisodicCompressor
from slumberd.integrations.tiers.facts import DurableFactStore, FactStore
from slumberd.integrations.tiers.module import (
    Memory,
    MemoryModule,
    MemoryParts,
    MemoryProvider,
    open_memory,
)
from slumberd.integrations.tiers.pruning import (
    DynamicContextPruner,
    HybridScorerImpl,
    PruningResult,
    PruningStrategy,
    RecencyScorerImpl,
    RelevanceScorerImpl,
    TokenBudgetAllocator,
)
from slumberd.integrations.tiers.scheduling import ConsolidationScheduler
from slumberd.integrations.tiers.search import MemoryRetriever, RelevanceRanker
from slumberd.integrations.tiers.semantic import SemanticMemoryStore
from slumberd.integrations.tiers.stores import ReplacingStoreProtocol
from slumberd.integrations.tiers.strategies import (
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    RecencyDecayStrategy,
    TimeDecayStrategy,
)
from slumberd.integrations.tiers.working import WorkingMemoryManager
from slumberd.search.context import TokenCounter as TokenCounterProtocol

__all__ = [
    "AccessFrequencyStrategy",
    "BufferMemoryStore",
    "CacheBackendProtocol",
    "CacheMemoryBackend",
    "ConsolidationConfig",
    "ConsolidationError",
    "ConsolidationPlan",
    "ConsolidationResult",
    "ConsolidationScheduler",
    "ConsolidationStrategyProtocol",
    "ConversationBuffer",
    "ConversationMemoryStore",
    "DatabaseMemoryBackend",
    "DatabaseProviderProtocol",
    "DeduplicationStrategy",
    "DocumentVectorStoreProtocol",
    "DurableFactStore",
    "DynamicContextPruner",
    "EmbeddingError",
    "EntityExtractor",
    "EntityMemoryStore",
    "EpisodicCompressor",
    "EpisodicMemoryConfig",
    "EpisodicMemoryProtocol",
    "EpisodicMemoryStore",
    "FactExtractionError",
    "FactStore",
    "HealthCheckResult",
    "HealthStatus",
    "HybridScorerImpl",
    "InMemoryMemoryBackend",
    "Memory",
    "MemoryCapacityError",
    "MemoryConfig",
    "MemoryConsolidatedHook",
    "MemoryConsolidator",
    "MemoryConsolidatorProtocol",
    "MemoryEntry",
    "MemoryIndexProtocol",
    "MemoryModule",
    "MemoryParts",
    "MemoryProvider",
    "MemoryQuery",
    "MemoryRetrievedEvent",
    "MemoryRetrievedHook",
    "MemoryRetriever",
    "MemorySearchResult",
    "MemoryStoreError",
    "MemoryStoreProtocol",
    "MemoryStoredEvent",
    "MemorySystemError",
    "MemoryWrittenHook",
    "OwnedStoreProtocol",
    "PruningResult",
    "PruningStrategy",
    "RecencyDecayStrategy",
    "RecencyScorerImpl",
    "RelevanceRanker",
    "RelevanceScorerImpl",
    "RelevanceScorerProtocol",
    "ReplacingStoreProtocol",
    "SearchableProtocol",
    "SemanticMemoryConfig",
    "SemanticMemoryProtocol",
    "SemanticMemoryStore",
    "StoredFact",
    "SummaryMemoryStore",
    "TimeDecayStrategy",
    "TokenBudgetAllocator",
    "TokenCounterProtocol",
    "Triple",
    "VectorMemoryBackend",
    "WorkingMemoryConfig",
    "WorkingMemoryManager",
    "WorkingMemoryProtocol",
    "open_memory",
]
