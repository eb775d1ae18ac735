"""The judge of precisionMemBench wants exact sets, and fills the tiers as its repository does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.recall import precision
from tests.recall.beliefs import Benchmark, benchmark_of
from tests.recall.figures import missed
from tests.recall.samples import TEA, belief, blind, case, plain

pytestmark = [pytest.mark.unit, pytest.mark.slow]


OVEN = belief("b2", "oven", pinned=True)
OLD = belief("b3", "gas_stove", superseded_by="b2")
ASKED = belief("b4", "new_fridge", type="open_question")
TIED = belief("b5", "tea_needs_kettle", type="relation", participants=["b1", "b6", "b4"])
KETTLE = belief("b6", "kettle")
AWAY = belief("b7", "tent", scope=["camp"])


def tier(
    found: list[str], *, budget: int = 20, seed: list[dict[str, Any]] | None = None
) -> list[str]:
    asked = case("tea", [], budget={"maxBeliefs": budget})
    made = benchmark_of(seed or [TEA, OVEN, OLD, ASKED, TIED, KETTLE, AWAY], [asked])
    return made.tier(made.cases[0], found)


def test_other_tiers_and_replaced_beliefs_are_left_out() -> None:
    assert tier(["b1", "b2", "b3", "b4"]) == ["b1"]


def test_a_relation_brings_its_participants_of_the_scope() -> None:
    assert tier(["b5"]) == ["b5", "b1", "b6"]


def test_a_participant_of_another_scope_stays_out() -> None:
    tied = belief("b5", "tent_needs_kettle", type="relation", participants=["b7"])

    assert tier(["b5"], seed=[tied, AWAY]) == ["b5"]


def test_pinned_beliefs_use_the_budget_first() -> None:
    assert tier(["b1", "b6"], budget=2) == ["b1"]
    assert tier(["b1"], budget=0) == []


def one_case(only: list[str] | None, **expected: Any) -> Benchmark:
    row = case("tea", only)
    row["expect"]["relevantBeliefs"].update(expected)
    return benchmark_of([TEA], [row])


def test_a_case_passes_with_the_exact_set_only() -> None:
    (one,) = one_case(["b1"]).cases

    assert one.passes(["b1"])
    assert not one.passes([])
    assert not one.passes(["b1", "b6"])


def test_an_excluded_belief_fails_a_case_without_a_set() -> None:
    (one,) = one_case(None, mustExclude=["b7"]).cases

    assert one.passes(["b1"])
    assert not one.passes(["b1", "b7"])


@pytest.mark.parametrize(
    ("only", "found", "share"),
    [
        pytest.param(["b1"], ["b1", "b6"], 0.5, id="half is right"),
        pytest.param(["b1"], [], 0.0, id="nothing found"),
        pytest.param([], ["b6"], 0.0, id="nothing was right"),
        pytest.param([], [], None, id="rightly empty"),
    ],
)
def test_precision_is_the_share_that_is_right(
    only: list[str], found: list[str], share: float | None
) -> None:
    (one,) = one_case(only).cases

    assert one.precision(found) == share


def test_a_case_without_an_expectation_of_the_tier_is_left_out() -> None:
    row = case("tea", [])
    row["expect"] = {"pinnedFacts": {"mustInclude": ["b2"]}}

    assert benchmark_of([TEA], [row]).cases == []


async def test_a_search_reads_the_names_of_one_user_and_scope() -> None:
    foreign = belief("b8", "sencha_tin", user_id="ben")
    cases = [case("sencha", ["b1"]), case("tent", []), case("  ", [])]

    figures = await precision.measure(benchmark_of([TEA, foreign, AWAY], cases), [plain])

    assert [(figure.name, figure.value) for figure in figures] == [
        ("cases passed of 3", 3),
        ("mean precision", 1.0),
    ]


async def test_an_engine_that_finds_nothing_misses_the_bar() -> None:
    cases = [case(f"sencha {number}", ["b1"]) for number in range(76)]

    figures = await precision.measure(benchmark_of([TEA], cases), [blind])

    assert [bar.name for bar in missed(figures)] == ["cases passed of 76"]
