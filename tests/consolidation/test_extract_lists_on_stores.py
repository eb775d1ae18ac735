"""Lists of extractions on real stores: which entry reads a text, and what waits for which."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.consolidation.firing import FireRequest
from slumberd.model.extraction import Extracted, Extraction, ModelSettings, Turn
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Report
from slumberd.model.rule import ConsolidationRule, RuleFunction
from slumberd.rules.pattern_loader import combined_extraction, model_extraction
from tests.support.asked_models import Asked, asked_stores, said
from tests.support.builders import START, rule
from tests.support.model_server import Reply, completion, stated, triples
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

DOWN = Reply(500, b"down")


def words_after(word: str, predicate: str, name: str) -> Extraction:
    """Return an extraction that finds what follows a word, and fails where a text says so."""

    def find(turn: Turn, _: Turn | None) -> Iterator[Extracted]:
        if f"break {name}" in turn.content:
            raise ValueError("broken")
        start = turn.content.find(f"{word} ")
        if start >= 0:
            begin = start + len(word) + 1
            end = (turn.content.find(" ", begin) + 1 or len(turn.content) + 1) - 1
            yield Extracted(turn.user, predicate, turn.content[begin:end], "add", (begin, end))

    function = RuleFunction(f"python:tests:{name}", "d", find)
    return Extraction(function.name, name, FunctionExtractor(function))


HOMES = words_after("in", "lives_in", "homes")
TASTES = words_after("love", "likes", "tastes")
MODEL = model_extraction(ModelSettings("tiny", ("likes", "lives_in")))


def listing(*parts: Extraction, unites: bool = False) -> ConsolidationRule:
    return rule("chat", extract=combined_extraction(parts, unites=unites))


async def fire(asked: Asked, fired: ConsolidationRule) -> Report:
    return await asked.home.consolidator.fire(FireRequest(fired, "manual", START))


async def found_by(asked: Asked) -> dict[str, tuple[object, str]]:
    """Return the object and the finder of each current fact, by fact id."""
    facts = await asked.home.facts.query(FactPattern())
    return {
        fact.id: (fact.payload["object"], fact.payload["extracted"]["by"].split(":")[-1])
        for fact in facts
    }


async def test_first_entry_that_finds_a_triple_decides(provider: Provider) -> None:
    fired = listing(HOMES, TASTES)
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(
            said("e1", "I live in Oslo and love tea"), said("e2", "I love ale", 1), said("e3", "hm")
        )

        await fire(asked, fired)

        assert await found_by(asked) == {"e1#1": ("Oslo", "homes"), "e2#1": ("ale", "tastes")}


async def test_united_entries_give_all_triples_once(provider: Provider) -> None:
    fired = listing(HOMES, TASTES, words_after("in", "lives_in", "again"), unites=True)
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(said("e1", "I love tea in Oslo"), said("e2", "I love ale", 1))

        await fire(asked, fired)

        assert await found_by(asked) == {
            "e1#1": ("tea", "tastes"),
            "e1#2": ("Oslo", "homes"),
            "e2#1": ("ale", "tastes"),
        }


async def test_model_is_asked_only_where_the_entries_before_found_nothing(
    provider: Provider,
) -> None:
    fired = listing(HOMES, TASTES, MODEL)
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(
            said("e1", "I live in Oslo"), said("e2", "I drink tea", 1), said("e3", "I love ale", 2)
        )

        waiting = await fire(asked, fired)
        early = await found_by(asked)
        await asked.worker.turn()
        done = await fire(asked, fired)

        assert asked.server.asked() == [["I drink tea"]]
        assert (waiting.unrecorded, early) == (True, {"e1#1": ("Oslo", "homes")})
        assert not done.unrecorded
        assert await found_by(asked) == {
            "e1#1": ("Oslo", "homes"),
            "e2#1": ("tea", "tiny"),
            "e3#1": ("ale", "tastes"),
        }


async def test_entry_after_the_model_reads_where_the_model_found_nothing(
    provider: Provider,
) -> None:
    fired = listing(MODEL, TASTES)
    async with asked_stores(provider, fired, script=(triples(),)) as asked:
        await asked.home.put(said("e1", "I love ale"))

        before = await fire(asked, fired)
        await asked.worker.turn()
        await fire(asked, fired)

        assert before.unrecorded
        assert await found_by(asked) == {"e1#1": ("ale", "tastes")}


async def test_united_list_waits_for_the_model_with_every_text(provider: Provider) -> None:
    fired = listing(TASTES, MODEL, unites=True)
    async with asked_stores(provider, fired, script=(triples(),)) as asked:
        await asked.home.put(said("e1", "I love ale"))

        waiting = await fire(asked, fired)
        early = await found_by(asked)
        await asked.worker.turn()
        await fire(asked, fired)

        assert (waiting.unrecorded, early) == (True, {})
        assert await found_by(asked) == {"e1#1": ("ale", "tastes")}


@pytest.mark.slow
async def test_unavailable_model_loses_no_triple_of_the_others(provider: Provider) -> None:
    fired = listing(TASTES, MODEL)
    async with asked_stores(provider, fired, script=(DOWN, DOWN)) as asked:
        await asked.home.put(said("e1", "I drink tea"), said("e2", "I love ale", 1))

        for _ in range(3):
            await asked.worker.turn()
        await fire(asked, fired)

        assert await found_by(asked) == {"e1#1": ("tea", "tiny"), "e2#1": ("ale", "tastes")}


@pytest.mark.parametrize("unites", [False, True])
async def test_entry_that_fails_puts_the_whole_episode_into_quarantine(
    provider: Provider, unites: bool
) -> None:
    fired = listing(HOMES, TASTES, unites=unites)
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(said("e1", "break homes, I love ale"), said("e2", "I love tea", 1))

        await fire(asked, fired)

        [found] = await asked.home.facts.reads.quarantine()
        assert (found["episode_id"], found["reason"]) == ("e1", "extraction_failed")
        assert "python:tests:homes raised ValueError: broken" in found["detail"]
        assert await found_by(asked) == {"e2#1": ("tea", "tastes")}


async def test_entry_that_is_not_needed_cannot_fail(provider: Provider) -> None:
    fired = listing(HOMES, TASTES)
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(said("e1", "break tastes in Oslo"))

        await fire(asked, fired)

        assert await found_by(asked) == {"e1#1": ("Oslo", "homes")}
        assert await asked.home.facts.reads.quarantine() == []


async def test_refusal_counts_only_where_the_model_is_needed(provider: Provider) -> None:
    fired = listing(TASTES, MODEL)
    refusal = completion("", refusal="I cannot help")
    async with asked_stores(provider, fired, script=(refusal,)) as asked:
        await asked.home.put(said("e1", "I drink tea"), said("e2", "I love ale", 1))

        await asked.worker.turn()
        await fire(asked, fired)

        [found] = await asked.home.facts.reads.quarantine()
        assert (found["episode_id"], found["reason"]) == ("e1", "answer_refused")
        assert await found_by(asked) == {"e2#1": ("ale", "tastes")}


@pytest.mark.slow
async def test_number_of_a_triple_counts_over_the_entries(provider: Provider) -> None:
    fired = listing(TASTES, MODEL, unites=True)
    answer = triples(stated("t1", "ann", "lives_in", "Oslo"))
    async with asked_stores(provider, fired, script=(answer,)) as asked:
        await asked.home.put(said("e1", "I love ale in Oslo"))

        await asked.worker.turn()
        await fire(asked, fired)

        assert await found_by(asked) == {"e1#1": ("ale", "tastes"), "e1#2": ("Oslo", "tiny")}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 50])
async def test_facts_do_not_depend_on_batches_or_order(tmp_path: Path, batch: int) -> None:
    episodes = [
        said("e1", "I live in Oslo"),
        said("e2", "I drink tea", 1),
        said("e3", "I love ale", 2),
    ]
    fired = listing(HOMES, TASTES, MODEL)
    results = []
    for number, order in enumerate(permutations(episodes)):
        async with asked_stores(tmp_path / str(number), fired, batch=batch) as asked:
            for one in order:
                await asked.home.put(one)
                await asked.worker.turn()
                await fire(asked, fired)
            results.append(await asked.home.facts.query(FactPattern()))

    assert all(found == results[0] for found in results)
    assert len(results[0]) == 3


async def test_worker_reads_each_pending_text_once(provider: Provider) -> None:
    read: list[str] = []

    def find(turn: Turn, _: Turn | None) -> list[Extracted]:
        read.append(turn.content)
        return []

    function = RuleFunction("python:tests:reading", "d", find)
    fired = listing(Extraction(function.name, "reading", FunctionExtractor(function)), MODEL)
    async with asked_stores(provider, fired) as asked:
        for number in range(3):
            await asked.home.put(said(f"e{number}", f"I drink w{number}", number))
            await asked.worker.turn()
        once = [*read]

        asked.worker.look_again("chat")
        await asked.worker.turn()

        assert once == ["I drink w0", "I drink w1", "I drink w2"]
        assert read[3:] == once
        assert not (await fire(asked, fired)).unrecorded
