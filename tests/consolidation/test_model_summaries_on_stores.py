"""Summaries by a language model: a firing reads recorded ones only, on real stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Report
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import Summarise
from slumberd.operations.caller import Caller
from slumberd.operations.firing import ExtractForm
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.rules.pattern_loader import model_summariser
from slumberd.workers.language_models.budget import Budget
from tests.daemon.test_erasure import CANARY, files_with_canary, forget
from tests.support.asked_models import Asked, asked_stores, said
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.model_server import Reply, completion
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

MODEL = model_summariser("tiny", "Be kind.", {"temperature": 0})


def summarising(**overrides: Any) -> ConsolidationRule:
    stages = (Summarise(when_more_than=5, max_tokens=20),)
    return rule("nightly", stages=stages, summariser=MODEL, **overrides)


RULE = summarising()


def written(text: str) -> Reply:
    return completion(orjson.dumps({"summary": text}).decode())


def session(count: int = 25, **overrides: Any) -> list[Episode]:
    user = overrides.get("user", "alice")
    return [
        said(f"{user[0]}{n:02}", f"Guest {n} came to town.", n, **overrides) for n in range(count)
    ]


async def fire(asked: Asked, fired: ConsolidationRule = RULE) -> Report:
    return await asked.home.consolidator.fire(FireRequest(fired, "cron", START))


async def summaries(asked: Asked) -> dict[str, str]:
    facts = await asked.home.facts.query(FactPattern(channel="summaries"))
    return {fact.id: fact.payload["content"] for fact in facts}


async def hidden(asked: Asked) -> list[str]:
    facts = await asked.home.facts.query(FactPattern(channel="marks"))
    return [fact.payload["subject"] for fact in facts]


def is_asked(request: dict[str, Any]) -> list[str]:
    user = next(one for one in request["messages"] if one["role"] == "user")
    return [turn["text"] for turn in orjson.loads(user["content"])["turns"]]


@pytest.mark.slow
async def test_recorded_summary_is_written_at_the_next_firing(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session())

        waiting = await fire(asked)
        before = (await summaries(asked), await hidden(asked), len(asked.server.requests))
        await asked.worker.turn()
        done = await fire(asked)
        idle = await fire(asked)

        assert (waiting.unrecorded, before) == (True, ({}, [], 0))
        assert not done.unrecorded
        assert {*(await summaries(asked)).values()} == {"Guests came."}
        assert len(await hidden(asked)) == sum(map(len, map(is_asked, asked.server.requests)))
        assert idle.firing_ids == []
        [system, user] = asked.server.requests[0]["messages"]
        assert system["content"].endswith("Be kind.")
        assert "80 characters" in system["content"]
        assert orjson.loads(user["content"])["turns"][0]["text"] == "Guest 0 came to town."
        assert (await asked.home.facts.verify())[2] is None


@pytest.mark.slow
async def test_replay_and_backfill_ask_nobody(provider: Provider, tmp_path: Path) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session())
        await fire(asked)
        await asked.worker.turn()
        await fire(asked)
        told, calls = await summaries(asked), len(asked.server.requests)

        replay = await asked.home.facts.replay(tmp_path / "again.db")
        await asked.home.consolidator.backfill(RULE, START, by="test")
        await asked.home.consolidator.preview(RULE, START)
        await asked.worker.turn()

        assert replay.differing == 0
        assert (await summaries(asked), len(asked.server.requests)) == (told, calls)


@pytest.mark.slow
async def test_groups_of_two_users_are_asked_apart(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda request: written(is_asked(request)[0])
        bob = [
            episode.model_copy(update={"content": f"Bob: {episode.content}"})
            for episode in session(user="bob")
        ]
        await asked.home.put(*session(), *bob)
        await fire(asked)
        await asked.worker.turn()
        await fire(asked)

        texts = [text for request in asked.server.requests for text in [is_asked(request)]]
        assert all(len({text.startswith("Bob") for text in group}) == 1 for group in texts)
        facts = await asked.home.facts.query(FactPattern(channel="summaries"))
        assert {(fact.user, fact.payload["content"].startswith("Bob")) for fact in facts} == {
            ("alice", False), ("bob", True),
        }  # fmt: skip


@pytest.mark.slow
async def test_edit_of_a_group_is_asked_about_anew(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session())
        await fire(asked)
        await asked.worker.turn()
        await fire(asked)
        asked.server.otherwise = lambda _: written("A king came.")
        calls = len(asked.server.requests)
        await asked.home.put(said("a01", "The king came to town.", 1))

        await fire(asked)
        await asked.worker.turn()
        await fire(asked)

        assert len(asked.server.requests) == calls + 1
        assert "A king came." in (await summaries(asked)).values()


@pytest.mark.parametrize(
    ("reply", "problem", "calls"),
    [
        pytest.param(completion("", refusal="no"), "the model refuses to answer", 1, id="refused"),
        pytest.param(written("x" * 200), "tokens; 20 are allowed", 2, id="too long"),
        pytest.param(written("  "), "the summary is empty", 2, id="empty"),
        pytest.param(completion("text"), "Invalid JSON", 2, id="no JSON"),
        pytest.param(completion("{", finish="length"), "it was cut", 2, id="cut"),
    ],
)
async def test_answer_that_is_no_summary_hides_nothing(
    provider: Provider, reply: Reply, problem: str, calls: int
) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: reply
        await asked.home.put(*session(6))
        await fire(asked)
        await asked.worker.turn()
        asked_once = len(asked.server.requests)

        with capture_logs() as logs:
            done = await fire(asked)

        [failed] = [line for line in logs if line["event"] == "summary.failed"]
        assert problem in failed["reason"]
        assert failed["function"] == "openai"
        assert (asked_once, done.unrecorded) == (calls, False)
        assert (await summaries(asked), await hidden(asked)) == ({}, [])


async def test_repaired_summary_counts(provider: Provider) -> None:
    async with asked_stores(provider, RULE, script=(written("x" * 999),)) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session(6))
        await fire(asked)

        await asked.worker.turn()
        await fire(asked)

        assert {*(await summaries(asked)).values()} == {"Guests came."}
        assert len(asked.server.requests[1]["messages"]) == 4


@pytest.mark.slow
async def test_summaries_wait_for_the_budget_and_for_the_server(provider: Provider) -> None:
    script = (Reply(500, b"down"),)
    async with asked_stores(provider, RULE, script=script, budget=Budget(calls=1)) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session(6))
        await fire(asked)

        pauses = [await asked.worker.turn() for _ in range(3)]
        asked.clock.advance(86_400)
        rested = await asked.worker.turn()
        await fire(asked)

        assert pauses[0] == 1.0
        assert pauses[1] == 60.0
        assert rested == 1.0
        assert {*(await summaries(asked)).values()} == {"Guests came."}


@pytest.mark.slow
async def test_next_firing_lists_the_summaries_again_after_a_restart(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(*session(6))
        await fire(asked)
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.worker.turn()
        nothing = len(asked.server.requests)

        await fire(asked)
        await asked.worker.turn()
        await fire(asked)

        assert nothing == 0
        assert {*(await summaries(asked)).values()} == {"Guests came."}


async def test_command_asks_for_the_summaries_that_wait(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session(6))
        await fire(asked)
        operations = asked.home.operations(RULE, clock=FakeClock())
        operations.worker = asked.worker

        answer = await operations.extract(ExtractForm(rule="nightly"), Caller.of_user(7, 7))
        again = await operations.extract(ExtractForm(rule="nightly"), Caller.of_user(7, 7))
        await fire(asked)

        assert (answer["calls"], answer["ok"], again["calls"]) == (1, 1, 0)
        assert {*(await summaries(asked)).values()} == {"Guests came."}


@pytest.mark.slow
async def test_erasure_takes_the_recorded_summaries_with_it(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        asked.server.otherwise = lambda _: written(f"{CANARY} came.")
        await asked.home.put(*session(6))
        await fire(asked)
        await asked.worker.turn()

        certificate = await forget(asked.home, user="alice")

        assert certificate["rows"]["episodes"]["slumberd_extractions"] == 1
    assert files_with_canary(tmp_path) == []


async def test_newer_episodes_change_no_question_that_waits(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: written("Guests came.")
        await asked.home.put(*session(14))
        await fire(asked)
        await asked.home.put(*session(20)[14:])
        await asked.worker.turn()
        calls = len(asked.server.requests)

        await fire(asked)
        await asked.worker.turn()
        await fire(asked)

        groups = [is_asked(request) for request in asked.server.requests]
        assert len({tuple(group) for group in groups}) == len(groups) > calls
        assert len(await summaries(asked)) == len(groups)


async def test_backfill_keeps_the_old_summaries_until_all_new_ones_are_there(
    provider: Provider,
) -> None:
    other = summarising().model_copy(update={"summariser": model_summariser("large", "", {})})
    async with asked_stores(provider, RULE, other) as asked:
        asked.server.otherwise = lambda request: written(f"By {request['model']}.")
        await asked.home.put(*session(6))
        await fire(asked)
        await asked.worker.turn()
        await fire(asked)
        marks = await hidden(asked)

        waiting = await asked.home.consolidator.backfill(other, START, by="test")
        kept = ({*(await summaries(asked)).values()}, await hidden(asked))
        await asked.worker.turn()
        done = await asked.home.consolidator.backfill(other, START, by="test")

        assert (waiting.unrecorded, done.unrecorded) == (True, False)
        assert kept == ({"By tiny."}, marks)
        assert {*(await summaries(asked)).values()} == {"By large."}
        assert await hidden(asked) == marks


@pytest.mark.slow
async def test_erasure_drops_the_texts_that_wait(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(*session(14))
        await fire(asked)
        operations = asked.home.operations(RULE, clock=FakeClock())
        operations.worker = asked.worker

        await operations.erasures.forget(ForgetForm(user="alice"), Caller.of_user(7, 7))
        await asked.worker.turn()

        assert asked.server.requests == []


async def test_changed_rule_asks_no_old_question(provider: Provider) -> None:
    other = summarising().model_copy(update={"summariser": model_summariser("large", "", {})})
    async with asked_stores(provider, other) as asked:
        await asked.home.put(*session(6))
        await fire(asked)

        await asked.worker.turn()

        assert asked.server.requests == []


async def test_problem_of_a_summary_holds_no_word_of_the_answer(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: completion('{"summary": "x", "the PIN is 4711": 1}')
        await asked.home.put(*session(6))
        await fire(asked)
        await asked.worker.turn()

        with capture_logs() as logs:
            await fire(asked)

        assert "4711" not in str(logs)
        assert "it has a key that the form lacks" in str(logs)
