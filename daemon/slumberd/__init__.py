"""slumberd: sleep for agents' memory. Episodes become facts, on a cadence, with a trail."""

from slumberd.core.delta import AddDelta, DeleteDelta, MemoryDelta, NoopDelta, UpdateDelta
from slumberd.core.episode import Episode
from slumberd.core.fact import Fact, FactPattern
from slumberd.core.health import MigrationPlan, StoreHealth
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import (
    ConfigurationError,
    ConsolidationRuleError,
    FactConflictError,
    FilterError,
    InputError,
    MemoryScopeError,
    MigrationNotSupported,
    MigrationNotSupportedError,
    Mistake,
    NoInputError,
    NotRunningError,
    PermissionDeniedError,
    SchemaError,
    SlumberdError,
    StaleWriterError,
    StateDirectoryLockedError,
    StoppedError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from slumberd.ports import FactStore, MemoryStore
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.memory import SQLiteMemoryStore

__version__ = "0.1.0"

__all__ = [
    "AddDelta",
    "ConfigurationError",
    "ConsolidationRule",
    "ConsolidationRuleError",
    "DeleteDelta",
    "Episode",
    "Fact",
    "FactConflictError",
    "FactPattern",
    "FactStore",
    "FilterError",
    "InputError",
    "MemoryDelta",
    "MemoryScopeError",
    "MemoryStore",
    "MigrationNotSupported",
    "MigrationNotSupportedError",
    "MigrationPlan",
    "Mistake",
    "NoInputError",
    "NoopDelta",
    "NotRunningError",
    "PermissionDeniedError",
    "SQLiteFactStore",
    "SQLiteMemoryStore",
    "SchemaError",
    "SlumberdError",
    "StaleWriterError",
    "StateDirectoryLockedError",
    "StoppedError",
    "StoreBusyError",
    "StoreError",
    "StoreHealth",
    "UpdateDelta",
    "UsageError",
]
