"""The memory that `slumberd init` makes is measured with its own rules, search and ledger."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.episode import Episode
from tests.recall import prompts
from tests.recall.access import load_mappings
from tests.recall.samples import episode, known, office_story
from tests.recall.started import open_started, removed_facts
from tests.support.builders import START

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def stating(id: str, text: str, object: str, **rest: Any) -> Episode:
    """Return an episode whose host states where Ann lives."""
    said = {"subject": "Ann", "predicate": "lives_in", "object": object, **rest}
    return episode(id, text).model_copy(
        update={"metadata": {"speaker": "Ann", "triples": [said]}, "timestamp": START}
    )


async def test_the_memory_searches_and_has_the_facts_of_its_rules() -> None:
    async with open_started() as memory:
        await memory.put(
            [
                stating("a", "My home is in Porto.", "Porto"),
                stating("b", "My home is in Braga now.", "Braga", intent="set"),
                episode("c", "Porto is far away."),
            ]
        )

        assert {*(await memory.search("ann", "Porto", 10))[:2]} == {"a", "c"}
        ledger = await memory.ledger("ann")
        assert ledger is not None
        assert [one.payload["object"] for one in ledger.facts] == ["Braga"]
        assert ledger.replaced == {"a"}
        context = await memory.context("ann", "Where is the home of Ann?", 1_000)
        assert {"a", "b"} <= context.episodes
        assert "b" in context.sources
        ranked = await memory.ranked("ann", "Where is the home of Ann?", 10)
        assert {"a", "b"} <= {line.id for line in ranked}


async def test_a_value_that_was_said_again_is_not_replaced() -> None:
    async with open_started() as memory:
        await memory.put(
            [
                stating("a", "My home is in Porto.", "Porto"),
                stating("b", "Porto is still my home.", "porto", intent="set"),
            ]
        )

        ledger = await memory.ledger("ann")
        assert ledger is not None
        assert len(ledger.facts) == 1
        assert ledger.replaced == frozenset()


async def test_the_memory_of_another_user_is_empty() -> None:
    async with open_started() as memory:
        await memory.put([stating("a", "My home is in Porto.", "Porto")])

        assert await memory.search("ben", "Porto", 10) == []
        assert await memory.ledger("ben") == ([], frozenset())


async def test_a_text_that_is_too_long_is_cut_as_a_host_cuts_it() -> None:
    async with open_started() as memory:
        await memory.put([episode("a", "tea " * 30_000)])

        assert await memory.search("ann", "tea", 10) == ["a"]


async def test_the_memory_forgets_one_session() -> None:
    async with open_started() as memory:
        await memory.put([episode("a", "I like tea."), episode("b", "I like tea.", session="s2")])

        await memory.forget("ann", "s1")

        assert await memory.search("ann", "tea", 10) == ["b"]


async def test_the_memory_keeps_all_bars_of_a_story() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [open_started])

    found = {figure.name: figure.value for figure in figures}
    assert found["recall of includes"] == 1.0
    assert found["leaks"] == found["stale values"] == 0


def row(kind: str, fact_id: str, *replaces: str, of: str) -> dict[str, Any]:
    return {"kind": kind, "fact_id": fact_id, "replaces": [*replaces], "episode_ids": [of]}


@pytest.mark.parametrize(
    ("rows", "current", "removed"),
    [
        pytest.param([row("add", "a", of="a")], "a", "", id="current"),
        pytest.param(
            [row("add", "a", of="a"), row("update", "b", "a", of="b")], "b", "a", id="replaced"
        ),
        pytest.param(
            [row("add", "a", of="a"), row("delete", "d", "a", of="d")], "", "a", id="retracted"
        ),
        pytest.param(
            [row("add", "a", of="a"), row("add", "x", of="a"), row("update", "b", "a", of="b")],
            "bx",
            "",
            id="one claim of two",
        ),
        pytest.param([row("noop", "a", of="a")], "", "", id="said nothing new"),
        pytest.param([row("add", "a", of="a")], "", "", id="taken back by an undo"),
    ],
)
def test_later_rows_remove_the_facts_of_an_episode(
    rows: list[dict[str, Any]], current: str, removed: str
) -> None:
    facts = [known(id) for id in current]

    assert removed_facts(rows, facts) == {id: {id} for id in removed}
