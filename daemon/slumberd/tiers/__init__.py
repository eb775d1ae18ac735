"""The tiered memory API: stores, back ends, search, working memory and consolidation.

It is thin: entries are episodes of slumberd's store, and facts are facts of its store.
"""

from slumberd.retrieval.context import TokenCounter as TokenCounterProtocol
from slumberd.tiers.backends.cache import CacheMemoryBackend
from slumberd.tiers.backends.database import DatabaseMemoryBackend
from slumberd.tiers.backends.in_memory import InMemoryMemoryBackend
from slumberd.tiers.backends.vector import VectorMemoryBackend
from slumberd.tiers.configs import (
    ConsolidationConfig,
    EpisodicMemoryConfig,
    MemoryConfig,
    SemanticMemoryConfig,
    WorkingMemoryConfig,
)
from slumberd.tiers.consolidation import (
    ConsolidationPlan,
    ConsolidationScheduler,
    MemoryConsolidator,
)
from slumberd.tiers.conversations import (
    BufferMemoryStore,
    ConversationBuffer,
    ConversationMemoryStore,
    EntityMemoryStore,
    SummaryMemoryStore,
)
from slumberd.tiers.entries import (
    ConsolidationResult,
    ConsolidationStrategyProtocol,
    HealthCheckResult,
    HealthStatus,
    MemoryEntry,
    MemoryIndexProtocol,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    RelevanceScorerProtocol,
    SearchableProtocol,
    StoredFact,
    Triple,
)
from slumberd.tiers.episodic import EpisodicMemoryStore
from slumberd.tiers.errors import (
    ConsolidationError,
    EmbeddingError,
    FactExtractionError,
    MemoryCapacityError,
    MemoryStoreError,
    MemorySystemError,
)
from slumberd.tiers.events import (
    MemoryConsolidatedHook,
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
)
from slumberd.tiers.extraction import EntityExtractor, EpisodicCompressor
from slumberd.tiers.module import (
    Memory,
    MemoryModule,
    MemoryParts,
    MemoryProvider,
    open_memory,
)
from slumberd.tiers.pruning import (
    DynamicContextPruner,
    HybridScorerImpl,
    PruningResult,
    PruningStrategy,
    RecencyScorerImpl,
    RelevanceScorerImpl,
    TokenBudgetAllocator,
)
from slumberd.tiers.search import MemoryRetriever, RelevanceRanker
from slumberd.tiers.semantic import FactStore, SemanticMemoryStore
from slumberd.tiers.strategies import (
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    RecencyDecayStrategy,
    TimeDecayStrategy,
)
from slumberd.tiers.working import WorkingMemoryManager

__all__ = [
    "AccessFrequencyStrategy",
    "BufferMemoryStore",
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
    "DeduplicationStrategy",
    "DynamicContextPruner",
    "EmbeddingError",
    "EntityExtractor",
    "EntityMemoryStore",
    "EpisodicCompressor",
    "EpisodicMemoryConfig",
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
    "PruningResult",
    "PruningStrategy",
    "RecencyDecayStrategy",
    "RecencyScorerImpl",
    "RelevanceRanker",
    "RelevanceScorerImpl",
    "RelevanceScorerProtocol",
    "SearchableProtocol",
    "SemanticMemoryConfig",
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
    "open_memory",
]
