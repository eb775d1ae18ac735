"""The public names of the package: complete, sorted and importable."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

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
"""The classes of `slumberd.model.errors`, and the specification's second name of one of them."""


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


WITHOUT_EXTRAS = """
import sys
extras = "psycopg numpy wordllama ladybug mcp starlette uvicorn redis re2 spacy rapidfuzz httpx"
sys.modules.update(dict.fromkeys(extras.split()))
from slumberd import *
print(Memory.__name__)
import slumberd
try:
    slumberd.PostgresFactStore
except slumberd.ExtraMissingError as error:
    print(error.extra)
"""


def test_all_names_are_imported_without_the_extras() -> None:
    words = [sys.executable, "-c", WITHOUT_EXTRAS]

    run = subprocess.run(words, capture_output=True, text=True)

    assert run.stdout.split() == ["Memory", "postgres"], run.stderr


@pytest.mark.parametrize("name", ["contract", "tiers"])
def test_public_module_lists_all_its_names(name: str) -> None:
    public = import_module(f"slumberd.{name}")

    assert public.__all__ == sorted(each for each in vars(public) if not each.startswith("_"))


@pytest.mark.parametrize(
    ("name", "extra", "public"),
    [
        ("claude_memory", "anthropic", "SlumberdMemoryTool"),
        ("langgraph", "langgraph", "SlumberdStore"),
        ("langgraph_messages", "langchain_core", "SlumberdMessages"),
        ("openai_agents", "agents", "SlumberdSession"),
    ],
)
def test_public_adapter_is_the_class_of_the_integration(name: str, extra: str, public: str) -> None:
    pytest.importorskip(extra)

    found = getattr(import_module(f"slumberd.adapters.{name}"), public)

    assert found is getattr(import_module(f"slumberd.integrations.{name}"), public)
