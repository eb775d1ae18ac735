"""A plugin of pytest that puts our classes under Stargraph's names, for Stargraph's own tests.

It runs in an environment of its own, by `tests.support.stargraph`. It changes names of modules and
no code: a test that asks for Stargraph's class gets our class.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import slumberd
from slumberd.model.delta import validate_delta
from slumberd.model.graph import ResultSet

HOMES: dict[str, tuple[str, ...]] = {
    "stargraph.errors": (
        "ConsolidationRuleError",
        "FactConflictError",
        "MemoryScopeError",
        "UnportableCypherError",
    ),
    "stargraph.stores._common": ("MigrationPlan", "StoreHealth"),
    "stargraph.stores.cypher": ("Linter",),
    "stargraph.stores.fact": ("Fact", "FactPattern", "FactStore"),
    "stargraph.stores.kg_promotion": ("PromoteTriplesToFacts",),
    "stargraph.stores.memory": (
        "AddDelta",
        "ConsolidationRule",
        "DeleteDelta",
        "Episode",
        "MemoryDelta",
        "MemoryStore",
        "NoopDelta",
        "UpdateDelta",
    ),
    "stargraph.stores.sqlite_fact": ("SQLiteFactStore",),
    "stargraph.stores.sqlite_memory": ("SQLiteMemoryStore",),
    "stargraph.skills.salience": ("RuleBasedScorer", "SalienceContext", "SalienceScorer"),
}
"""Where Stargraph keeps each name."""


class RyuGraphStore:
    """Stands in for Stargraph's graph where its database is not installed; keeps triples."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []

    async def bootstrap(self) -> None:
        """Do nothing."""

    async def add_triple(self, subject: Any, predicate: str, object_: Any) -> None:
        """Keep a triple."""
        self._rows.append({"subject": subject.id, "predicate": predicate, "object": object_.id})

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return every triple, whatever the query asks for."""
        return ResultSet(rows=self._rows, columns=["subject", "predicate", "object"])


def pytest_configure() -> None:
    """Put our classes in place, before any test is imported."""
    errors = import_module("stargraph.errors")
    # One test asks each store for this error, and their document store raises their own.
    either = slumberd.MigrationNotSupported, errors.MigrationNotSupported
    for home, names in HOMES.items():
        module = import_module(home)
        for name in names:
            setattr(module, name, getattr(slumberd, name))
    vars(errors)["MigrationNotSupported"] = either
    # The name is private there; their tests use it to check provenance.
    vars(import_module("stargraph.stores._delta"))["_validate_delta_provenance"] = validate_delta
    stores = import_module("stargraph.stores")
    for name in ("FactStore", "MemoryStore", "SQLiteFactStore", "SQLiteMemoryStore"):
        setattr(stores, name, getattr(slumberd, name))
    if find_spec("lancedb") is None:
        # Only its name must be there: no test of it is run.
        vars(stores)["LanceDBVectorStore"] = object
    if find_spec("ryugraph") is None:
        vars(import_module("stargraph.stores.ryugraph"))["RyuGraphStore"] = RyuGraphStore
        vars(stores)["RyuGraphStore"] = RyuGraphStore
