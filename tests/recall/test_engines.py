"""The engines search real stores through the public classes."""

from __future__ import annotations

import pytest

from tests.recall import latency, precision, prompts
from tests.recall.access import load_mappings
from tests.recall.beliefs import benchmark_of
from tests.recall.engine import Named
from tests.recall.engines import OPENERS
from tests.recall.samples import TEA, case, episode, office_story

pytestmark = [pytest.mark.integration, pytest.mark.slow]


async def test_slumberd_searches_one_user_and_forgets_one_session() -> None:
    async with OPENERS["lexical"]() as engine:
        await engine.put(
            [
                episode("a", "Ann drinks green tea."),
                episode("b", "Ann bought tea.", session="s2"),
                episode("c", "Ben drinks green tea.", user="ben"),
            ]
        )
        assert sorted(await engine.search("ann", "green tea", 10)) == ["a", "b"]

        await engine.forget("ann", "s1")

        assert await engine.search("ann", "green tea", 10) == ["b"]
        prompt = await engine.context("ben", "green tea", 4_096)
        assert prompt.ids == ["c"]
        assert "Ben drinks green tea." in prompt.text


@pytest.mark.parametrize("engine", ["bm25", "lexical"])
async def test_an_engine_finds_what_is_named_in_one_scope_of_a_user(engine: str) -> None:
    async with OPENERS[engine]() as opened:
        await opened.declare(
            [
                Named("b1", "ann", "home", ("green tea", "sencha")),
                Named("b2", "ann", "camp", ("tea tin", "sencha tin")),
                Named("b3", "ben", "home", ("sencha",)),
            ]
        )

        assert await opened.search_names("ann", "home", "how long does sencha draw") == ["b1"]


async def test_slumberd_keeps_all_bars_of_a_story() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [OPENERS["lexical"]])

    found = {figure.name: figure.value for figure in figures}
    assert found["recall of includes"] == 1.0
    assert found["leaks"] == found["stale values"] == 0


async def test_slumberd_passes_a_case_about_an_alias() -> None:
    benchmark = benchmark_of([TEA], [case("sencha", ["b1"]), case("bread", [])])

    figures = await precision.measure(benchmark, [OPENERS["lexical"]])

    assert [figure.value for figure in figures] == [2, 1.0]


@pytest.mark.slow
async def test_the_first_search_shows_how_fast_the_index_is_built() -> None:
    size = latency.Size(records=40, users=2, questions=4)

    figures = await latency.measure([OPENERS["lexical"]], size)

    found = {figure.name: figure.value for figure in figures}
    assert found["indexing"] > 0
    assert found["indexing, processor"] > 0
