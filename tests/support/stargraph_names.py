"""A plugin of pytest that puts our classes under Stargraph's names, for Stargraph's own tests.

It runs in an environment of its own, by `tests.support.stargraph`. It changes names of modules and
no code: a test that asks for Stargraph's class gets our class.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec

import slumberd
from slumberd.model.delta import validate_delta

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


class Scorer(slumberd.RuleBasedScorer):
    """Our scorer, which reads the clock by the name that a test of Stargraph replaces."""

    def __init__(self) -> None:
        super().__init__(clock=self)

    def now(self) -> datetime:
        """Return the time."""
        now: datetime = vars(import_module("stargraph.skills.salience"))["datetime"].now(UTC)
        return now

    def monotonic(self) -> float:
        """Return the time as seconds."""
        return self.now().timestamp()


def pytest_configure() -> None:
    """Put our classes in place, before any test is imported."""
    if find_spec("ryugraph") is None:
        # Both are the graph database Kuzu, under the names of two successors.
        sys.modules["ryugraph"] = import_module("ladybug")
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
    vars(import_module("stargraph.skills.salience"))["RuleBasedScorer"] = Scorer
