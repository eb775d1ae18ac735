"""The public names of the package: complete, sorted and importable."""

from __future__ import annotations

import subprocess
import sys

import pytest

import slumberd
from slumberd.model import errors
from tests.support.lists import of_each

pytestmark = pytest.mark.unit

SPECIFIED = {
    "AddDelta", "ConsolidationRule", "DeleteDelta", "Episode", "Fact", "FactPattern",
    "FactStore", "GraphPath", "GraphStore", "LadybugGraphStore", "Linter",
    "MemoryDelta", "MemoryStore", "MigrationNotSupported", "MigrationPlan", "NodeRef",
    "NoopDelta", "PromoteTriplesToFacts", "ProvenanceBundle", "ProvenanceSink", "ResultSet",
    "RuleBasedScorer", "SQLiteFactStore", "SQLiteMemoryStore", "SalienceContext",
    "SalienceScorer", "StoreHealth", "UpdateDelta",
}  # fmt: skip
FORMS = {"Equals", "Glob", "Matches", "OneOf", "Prefix"}
"""Values of a pattern's slots, besides texts."""

OURS = {
    "Context", "DeltaBatch", "EmbeddingScorer", "EstimatedTokens", "Extracted", "Hit", "Memory",
    "PostgresFactStore", "PostgresMemoryStore", "Searcher", "SyncMemory", "TokenCounter", "Triple",
    "Turn", "Window",
}  # fmt: skip
"""Names that the specification does not have."""

ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and value.__module__ == errors.__name__
}
"""The classes of `slumberd.errors`, and the specification's second name of one of them."""


def test_public_names_are_sorted_and_unique() -> None:
    assert slumberd.__all__ == sorted(set(slumberd.__all__))


def test_public_names_are_the_specified_ones_and_every_error() -> None:
    assert set(slumberd.__all__) == SPECIFIED | FORMS | OURS | ERRORS


@of_each(lambda: slumberd.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(slumberd, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Episodes'"):
        _ = slumberd.Episodes  # type: ignore[attr-defined] # the test needs it


def test_public_names_can_be_listed() -> None:
    assert set(slumberd.__all__) <= set(dir(slumberd))


def test_import_of_the_package_imports_no_slow_module() -> None:
    program = "import sys; b = {*sys.modules}; import slumberd; print(*{*sys.modules} - b)"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "slumberd" in run.stdout.split()
    assert {"pydantic", "sqlite3", "asyncio"}.isdisjoint(run.stdout.split())
