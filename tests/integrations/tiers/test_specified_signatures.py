"""The public classes have the signatures of the specification, but for those that a page lists.

This repository has no copy of the specification: the folder ``spec`` beside $SLUMBERD_TEST_DATA has
its two texts. The page docs/how-to/coming-from-the-tiered-api.md gives the reason of each
difference.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from slumberd import contract, tiers
from slumberd.search.context import EstimatedTokens
from tests.support.corpora import FOLDER
from tests.support.repository import ROOT

# CI has the texts only where it runs the slow tests.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

SPECIFICATION = FOLDER.parent / "spec"
PAGE = ROOT / "docs/how-to/coming-from-the-tiered-api.md"

CLASSES = {
    "ConsolidationStrategyProtocol": "consolidate",
    "MemoryIndexProtocol": "index search",
    "RelevanceScorerProtocol": "score",
    "AccessFrequencyStrategy": "__init__ should_prune filter",
    "BufferMemoryStore": "__init__ store retrieve get_recent delete clear",
    "CacheMemoryBackend": "__init__ store retrieve get_recent delete clear health_check",
    "ConsolidationScheduler": "__init__ start stop run_once",
    "ConversationBuffer": "__init__ add get_context clear size total_tokens",
    "ConversationMemoryStore": (
        "__init__ store retrieve get_recent delete clear get_session_entries"
    ),
    "DatabaseMemoryBackend": "__init__ store retrieve get_recent delete clear health_check",
    "DeduplicationStrategy": "__init__ deduplicate",
    "DynamicContextPruner": "__init__ prune",
    "EntityExtractor": "__init__ extract",
    "EntityMemoryStore": "__init__ store retrieve get_recent delete clear get_by_entity",
    "EpisodicCompressor": "__init__ compress",
    "EpisodicMemoryStore": "__init__ record recall forget health_check",
    "FactStore": ("__init__ add query_by_subject get_entity_facts update_confidence delete clear"),
    "HybridScorerImpl": "__init__ score_batch score",
    "InMemoryMemoryBackend": "__init__ store retrieve get_recent delete clear health_check",
    "MemoryConsolidator": "__init__ consolidate health_check",
    "MemoryModule": "configure stub",
    "MemoryProvider": "__init__ register boot shutdown health_check",
    "MemoryRetriever": (
        "__init__ retrieve add_source get_retrieval_count get_retrieval_stats reset_stats"
    ),
    "RecencyDecayStrategy": "__init__ should_prune filter",
    "RecencyScorerImpl": "score",
    "RelevanceRanker": "rank top_k",
    "SemanticMemoryStore": (
        "__init__ store_fact query_facts get_entity_facts update_fact ingest health_check"
    ),
    "SummaryMemoryStore": "__init__ store retrieve get_recent delete clear",
    "TokenBudgetAllocator": "__init__ allocate budget_for",
    "VectorMemoryBackend": "__init__ store retrieve get_recent delete clear health_check",
    "WorkingMemoryManager": "__init__ assemble add get_context_entries flush health_check",
    "MemoryCapacityError": "__init__",
    "MemoryStoreError": "__init__",
}
"""The methods of each class, in the order of the text, which does not name the classes."""

ATTRIBUTES: Sequence[object] = (
    tiers.ConsolidationConfig(),
    tiers.DynamicContextPruner(EstimatedTokens()),
    tiers.EpisodicMemoryConfig(),
    tiers.HybridScorerImpl(),
    tiers.MemoryConfig(),
    tiers.MemoryConsolidatedHook(strategy=""),
    tiers.MemoryRetrievedHook(tier="", result_count=0),
    tiers.MemoryWrittenHook(tier="", backend=""),
    tiers.PruningResult([], 0, 0, 0, tiers.PruningStrategy.HYBRID),
    tiers.PruningStrategy,
    tiers.SemanticMemoryConfig(),
    tiers.WorkingMemoryConfig(),
)
"""What has attributes in the text, in its order."""

_BEGIN = re.compile(r"^(async def|def|property) ", re.MULTILINE)

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Mult: operator.mul}


def text_of(name: str) -> str:
    """Return a text of the specification; skip the test when this machine has none."""
    path = SPECIFICATION / name
    if not path.exists():
        pytest.skip("the texts of the specification are not in 'spec' beside the corpora")
    return path.read_text(encoding="utf-8")


def functions_in(text: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield each function of a text, in order, and whether it is a property."""
    for begin in _BEGIN.finditer(text):
        block = text[begin.start() :]
        is_property = block.startswith("property ")
        block = re.sub("^property ", "def ", block)
        lines = block.splitlines()
        opened = itertools.accumulate(line.count("(") - line.count(")") for line in lines)
        last = next(place for place, depth in enumerate(opened) if depth == 0)
        [function] = ast.parse("\n".join(lines[: last + 1]).rstrip(":") + ": ...").body
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        yield function, is_property


def value_of(node: ast.expr | None) -> Any:
    """Return the value of a default; the empty marker of `inspect` when there is none."""
    match node:
        case None:
            return inspect.Parameter.empty
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](value_of(left), value_of(right))
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return getattr(getattr(tiers, name), attribute)
        case _:
            raise AssertionError(ast.dump(node))


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[inspect.Parameter]:
    """Return the parameters of a function of the text, without its object and its class."""
    given = function.args
    places = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(places) - len(given.defaults)) + [*given.defaults]
    usual, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(one.arg, usual, default=value_of(default))
        for one, default in zip(places, defaults, strict=True)
        if one.arg not in ("self", "cls")
    ]
    found += [
        inspect.Parameter(one.arg, keyword, default=value_of(default))
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg is not None:
        found.append(inspect.Parameter(given.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return found


def differences(
    owner: type, function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_property: bool
) -> list[str]:
    """Return how a method differs from the text."""
    found = inspect.getattr_static(owner, function.name, None)
    if found is None:
        return ["is missing"]
    if is_property != isinstance(found, property):
        return ["is no property" if is_property else "is a property"]
    if is_property:
        return []
    method = getattr(owner, function.name)
    is_async = inspect.iscoroutinefunction(method)
    problems = []
    if is_async != isinstance(function, ast.AsyncFunctionDef):
        problems.append("is async" if is_async else "is not async")
    ours = [one for one in inspect.signature(method).parameters.values() if one.name != "self"]
    return [*problems, *_parameter_differences(ours, parameters_of(function))]


def _parameter_differences(
    ours: Sequence[inspect.Parameter], wanted: Sequence[inspect.Parameter]
) -> list[str]:
    by_name = {one.name: one for one in ours}
    problems = [problem for one in wanted for problem in _difference(by_name.get(one.name), one)]
    names = [one.name for one in wanted]
    if not problems and [one.name for one in ours if one.name in names] != names:
        problems.append("has another order")
    # A host of the specification never gives a keyword that has a default.
    others = [one for one in ours if one.name not in names]
    return problems + [f"has `{one.name}`" for one in others if not _is_option(one)]


def _difference(own: inspect.Parameter | None, wanted: inspect.Parameter) -> list[str]:
    if own is None:
        return [f"has no `{wanted.name}`"]
    if own.kind != wanted.kind:
        return [f"`{own.name}` is {own.kind.description}"]
    if own.default != wanted.default:
        return [f"`{own.name}` is {own.default!r} by default"]
    return []


def _is_option(own: inspect.Parameter) -> bool:
    return own.kind == inspect.Parameter.KEYWORD_ONLY and own.default is not own.empty


def test_signatures_are_those_of_the_specification_but_for_the_listed_ones() -> None:
    functions = [*functions_in(text_of("tiered-memory-api.txt"))]
    methods = [(owner, name) for owner, names in CLASSES.items() for name in names.split()]
    assert [name for _, name in methods] == [function.name for function, _ in functions]

    found = {
        (f"{owner}.{name}", problem)
        for (owner, name), (function, is_property) in zip(methods, functions, strict=True)
        for problem in differences(getattr(tiers, owner), function, is_property=is_property)
    }

    assert found == set(table("Signatures"))


def test_names_of_the_specification_are_there_but_for_the_listed_ones() -> None:
    text = text_of("tiered-memory-api.txt")
    used = {
        node.id
        for function, _ in functions_in(text)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id[0].isupper()
    }
    called = set(
        # The text joins a name to the word before it.
        re.findall(
            r"\b(?:None)?([A-Z]\w+?(?:Protocol|Error|Config|Event|Hook|Strategy|Store))\b", text
        )
    )

    missing = {name for name in used | called if not hasattr(tiers, name)}

    assert missing - {"Any", "Awaitable", "Callable"} == {name for name, _ in table("Names")}
    assert len(used | called) >= 30


def test_attributes_are_those_of_the_specification() -> None:
    lines = re.findall(r"^Attributes: (.+)$", text_of("tiered-memory-api.txt"), re.MULTILINE)
    listed = [re.findall(r"(?:^|[.)] )(\w+):", line) for line in lines]

    assert len(listed) == len(ATTRIBUTES)
    missing = [
        (type(one).__name__, name)
        for one, names in zip(ATTRIBUTES, listed, strict=True)
        for name in names
        if not hasattr(one, name)
    ]
    assert missing == []
    assert sum(map(len, listed)) > 35


def test_contract_is_that_of_the_specification() -> None:
    text = text_of("memory-contract.txt")
    classes = re.split(r"^class (\w+)[(:]", text, flags=re.MULTILINE)[1:]
    parts = dict(zip(classes[::2], classes[1::2], strict=True))
    [names] = re.findall(r"__all__ = (\[.*?\])", text, flags=re.DOTALL)

    assert (
        set(ast.literal_eval(names)) == set(parts) == set(contract.__all__) - {"EpisodeMemoryStore"}
    )
    for name, part in parts.items():
        ours = getattr(contract, name)
        if dataclasses.is_dataclass(ours):
            wanted = re.findall(r"^(\w+): ([^=\n]+?)(?: = (.+))?$", part, flags=re.MULTILINE)
            own = [(field.name, field.type) for field in dataclasses.fields(ours)]
            assert own == [(field, kind) for field, kind, _ in wanted]
            for field, (_, _, default) in zip(dataclasses.fields(ours), wanted, strict=True):
                assert _default(field) == default
        functions = [function for function, _ in functions_in(part)]
        problems = [differences(ours, function, is_property=False) for function in functions]
        assert problems == [[]] * len(functions), name
        assert functions


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"field(default_factory={getattr(field.default_factory, '__name__', '')})"
    if field.default is dataclasses.MISSING:
        return ""
    return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)


def table(heading: str) -> list[tuple[str, str]]:
    """Return the first two cells of each row of the table below a heading of the page."""
    page = PAGE.read_text(encoding="utf-8")
    part = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [(row[0].strip().strip("`"), row[1].strip()) for row in rows[2:]]
