"""slumberd consolidates the episodes of AI agents into facts, by rules, with an audited ledger."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slumberd.client.memory import Memory, Triple
    from slumberd.client.sync_memory import SyncMemory
    from slumberd.consolidation.incoming import DeltaBatch
    from slumberd.model.delta import AddDelta, DeleteDelta, MemoryDelta, NoopDelta, UpdateDelta
    from slumberd.model.episode import Episode
    from slumberd.model.errors import (
        AgentSettingsError,
        BackupBusyError,
        BackupError,
        BudgetSpentError,
        BytesPendingError,
        ChangedRowsError,
        ConfigurationError,
        ConsolidationRuleError,
        DamagedStoreError,
        DatabaseHeldError,
        DatabaseUnreachableError,
        ExtraMissingError,
        FactConflictError,
        FilterError,
        FiringTimeoutError,
        ForgottenError,
        FutureInstantError,
        GraphStoreError,
        HostStoreError,
        IdTakenInTargetError,
        InputError,
        InstantRangeError,
        InvalidAnswerError,
        KeyReusedError,
        LanguageModelError,
        LeaseLostError,
        LedgerKeyError,
        ListenError,
        LogRestoredError,
        MemoryScopeError,
        MigrationNotSupported,
        MigrationNotSupportedError,
        Mistake,
        ModelNotCheckedError,
        ModelRequestError,
        ModelUnavailableError,
        NoInputError,
        NotAllowedError,
        NotAuthenticatedError,
        NotConfirmedError,
        NothingKeptError,
        NotQuarantinedError,
        NotRunningError,
        OldPrimaryError,
        OtherRulesPublishedError,
        OtherSettingsError,
        OutputExistsError,
        PatternError,
        PermissionDeniedError,
        PoolerError,
        PromotionError,
        ProvenanceError,
        RecordRefusedError,
        ReloadFailedError,
        RequestTimeoutError,
        RequestTooLargeError,
        RowsNotCopiedError,
        SchemaError,
        SecretRefusedError,
        ShardNotNamedError,
        ShardSettingsDifferError,
        SkippedEpisodesError,
        SlumberdError,
        SourceChangedError,
        StageNotesError,
        StaleWriterError,
        StateDirectoryLockedError,
        StoppedError,
        StoreBusyError,
        StoreClosedError,
        StoreError,
        StoreReplacedError,
        SupersededError,
        TailLostError,
        TooManyRequestsError,
        UnknownHostError,
        UnportableCypherError,
        UnreadableEpisodeError,
        UnreadableTracesError,
        UnsupportedByStoreError,
        UsageError,
        UserElsewhereError,
        UserMovingError,
        VersionConflictError,
        WrongFormatError,
        WrongShardError,
    )
    from slumberd.model.extraction import Extracted, Turn
    from slumberd.model.fact import Fact, FactPattern
    from slumberd.model.firing import Window
    from slumberd.model.graph import GraphPath, NodeRef, ResultSet
    from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
    from slumberd.model.provenance import ProvenanceBundle
    from slumberd.model.rule import ConsolidationRule
    from slumberd.model.salience import SalienceContext
    from slumberd.model.store_status import MigrationPlan, StoreHealth
    from slumberd.search.context import Context, EstimatedTokens, TokenCounter
    from slumberd.search.hits import Hit
    from slumberd.search.scorers import EmbeddingScorer, RuleBasedScorer, SalienceScorer
    from slumberd.search.searcher import Searcher
    from slumberd.storage.postgres.fact_store import PostgresFactStore
    from slumberd.storage.postgres.memory_store import PostgresMemoryStore
    from slumberd.storage.protocols import FactStore, MemoryStore
    from slumberd.storage.sqlite.fact_store import SQLiteFactStore
    from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
    from slumberd.workers.graph.cypher_linter import Linter
    from slumberd.workers.graph.ladybug_store import LadybugGraphStore
    from slumberd.workers.graph.promotion import GraphStore, PromoteTriplesToFacts
    from slumberd.workers.provenance.publisher import ProvenanceSink

__version__ = "0.2.0"

__all__ = [
    "AddDelta",
    "AgentSettingsError",
    "BackupBusyError",
    "BackupError",
    "BudgetSpentError",
    "BytesPendingError",
    "ChangedRowsError",
    "ConfigurationError",
    "ConsolidationRule",
    "ConsolidationRuleError",
    "Context",
    "DamagedStoreError",
    "DatabaseHeldError",
    "DatabaseUnreachableError",
    "DeleteDelta",
    "DeltaBatch",
    "EmbeddingScorer",
    "Episode",
    "Equals",
    "EstimatedTokens",
    "ExtraMissingError",
    "Extracted",
    "Fact",
    "FactConflictError",
    "FactPattern",
    "FactStore",
    "FilterError",
    "FiringTimeoutError",
    "ForgottenError",
    "FutureInstantError",
    "Glob",
    "GraphPath",
    "GraphStore",
    "GraphStoreError",
    "Hit",
    "HostStoreError",
    "IdTakenInTargetError",
    "InputError",
    "InstantRangeError",
    "InvalidAnswerError",
    "KeyReusedError",
    "LadybugGraphStore",
    "LanguageModelError",
    "LeaseLostError",
    "LedgerKeyError",
    "Linter",
    "ListenError",
    "LogRestoredError",
    "Matches",
    "Memory",
    "MemoryDelta",
    "MemoryScopeError",
    "MemoryStore",
    "MigrationNotSupported",
    "MigrationNotSupportedError",
    "MigrationPlan",
    "Mistake",
    "ModelNotCheckedError",
    "ModelRequestError",
    "ModelUnavailableError",
    "NoInputError",
    "NodeRef",
    "NoopDelta",
    "NotAllowedError",
    "NotAuthenticatedError",
    "NotConfirmedError",
    "NotQuarantinedError",
    "NotRunningError",
    "NothingKeptError",
    "OldPrimaryError",
    "OneOf",
    "OtherRulesPublishedError",
    "OtherSettingsError",
    "OutputExistsError",
    "PatternError",
    "PermissionDeniedError",
    "PoolerError",
    "PostgresFactStore",
    "PostgresMemoryStore",
    "Prefix",
    "PromoteTriplesToFacts",
    "PromotionError",
    "ProvenanceBundle",
    "ProvenanceError",
    "ProvenanceSink",
    "RecordRefusedError",
    "ReloadFailedError",
    "RequestTimeoutError",
    "RequestTooLargeError",
    "ResultSet",
    "RowRefusedError",
    "RowsNotCopiedError",
    "RuleBasedScorer",
    "SQLiteFactStore",
    "SQLiteMemoryStore",
    "SalienceContext",
    "SalienceScorer",
    "SchemaError",
    "Searcher",
    "SecretRefusedError",
    "ShardNotNamedError",
    "ShardSettingsDifferError",
    "SkippedEpisodesError",
    "SlumberdError",
    "SourceChangedError",
    "StageNotesError",
    "StaleWriterError",
    "StateDirectoryLockedError",
    "StoppedError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreError",
    "StoreHealth",
    "StoreReplacedError",
    "SupersededError",
    "SyncMemory",
    "TailLostError",
    "TokenCounter",
    "TooManyRequestsError",
    "Triple",
    "Turn",
    "UnknownHostError",
    "UnportableCypherError",
    "UnreadableEpisodeError",
    "UnreadableTracesError",
    "UnsupportedByStoreError",
    "UpdateDelta",
    "UsageError",
    "UserElsewhereError",
    "UserMovingError",
    "VersionConflictError",
    "Window",
    "WrongFormatError",
    "WrongShardError",
]

# A name's module is imported when the name is first used: importing all of them would take longer
# than `slumberd --help` may take.
_HOMES = {
    "client.memory": ("Memory", "Triple"),
    "client.sync_memory": ("SyncMemory",),
    "model.delta": ("AddDelta", "DeleteDelta", "MemoryDelta", "NoopDelta", "UpdateDelta"),
    "model.episode": ("Episode",),
    "model.extraction": ("Extracted", "Turn"),
    "consolidation.incoming": ("DeltaBatch",),
    "model.fact": ("Fact", "FactPattern"),
    "model.firing": ("Window",),
    "model.graph": ("GraphPath", "NodeRef", "ResultSet"),
    "model.store_status": ("MigrationPlan", "StoreHealth"),
    "model.pattern": ("Equals", "Glob", "Matches", "OneOf", "Prefix"),
    "model.provenance": ("ProvenanceBundle",),
    "model.rule": ("ConsolidationRule",),
    "model.salience": ("SalienceContext",),
    "workers.graph.ladybug_store": ("LadybugGraphStore",),
    "workers.graph.cypher_linter": ("Linter",),
    "workers.graph.promotion": ("GraphStore", "PromoteTriplesToFacts"),
    "workers.provenance.publisher": ("ProvenanceSink",),
    "search.context": ("Context", "EstimatedTokens", "TokenCounter"),
    "search.hits": ("Hit",),
    "search.searcher": ("Searcher",),
    "storage.protocols": ("FactStore", "MemoryStore"),
    "search.scorers": ("EmbeddingScorer", "RuleBasedScorer", "SalienceScorer"),
    "storage.postgres.fact_store": ("PostgresFactStore",),
    "storage.postgres.memory_store": ("PostgresMemoryStore",),
    "storage.sqlite.fact_store": ("SQLiteFactStore",),
    "storage.sqlite.memory_store": ("SQLiteMemoryStore",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker reads the imports above
    _PUBLIC = frozenset(__all__)
    if find_spec("psycopg") is None:  # `import *` imports the module of each name in `__all__`
        __all__ = [name for name in __all__ if not name.startswith("Postgres")]

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME.get(name, 'model.errors')}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
