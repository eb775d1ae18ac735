"""Current facts in what a language model is asked, and the record of each request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.model.extraction import ModelSettings
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Report
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.operations.writes.model_worker import MOST_FACTS
from slumberd.rules.pattern_loader import model_extraction
from tests.daemon.test_erasure import CANARY, files_with_canary, operations
from tests.support.asked_models import Asked, asked_stores, asking, said
from tests.support.builders import START, at, rule, triple
from tests.support.model_server import Reply, completion, stated, turns_in
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

RULE = asking(may_retract=True)


async def fire(asked: Asked, fired: ConsolidationRule = RULE) -> Report:
    return await asked.home.consolidator.fire(FireRequest(fired, "manual", START))


async def ask_and_fire(asked: Asked, fired: ConsolidationRule = RULE) -> None:
    await asked.worker.turn()
    await fire(asked, fired)


async def forget(asked: Asked, **request: Any) -> dict[str, Any]:
    """Erase as a daemon does whose worker may be asking."""
    made = operations(asked.home)
    made.worker = asked.worker
    return await made.erasures.forget(ForgetForm(**request), Caller.of_user(7, 7))


def facts_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the facts that a request shows."""
    found: list[dict[str, Any]] = orjson.loads(request["messages"][1]["content"]).get("facts", [])
    return found


def ends(*objects: object, add: tuple[dict[str, Any], ...] = ()) -> Any:
    """Return an answer that ends the facts with some objects, and states triples."""

    def answer(request: dict[str, Any]) -> Reply:
        [turn, *_] = turns_in(request)
        ended = [
            {"turn": "t1", "fact": fact["id"], "quote": turn["text"]}
            for fact in facts_in(request)
            if fact["object"] in objects
        ]
        return completion(orjson.dumps({"triples": add, "ended": ended}).decode())

    return answer


async def recorded(place: Provider) -> list[dict[str, str]]:
    """Return the rows of the recorded requests."""
    engine = place.episode_engine()
    rows = await engine.read(lambda session: session.rows("whole_tables.read_model_requests"))
    return [
        dict(zip(("eid", "id", "scope_key", "key", "request"), row, strict=True)) for row in rows
    ]


async def test_model_ends_a_fact_whose_words_the_turn_does_not_hold(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"), said("e2", "I like ale", 1))
        await ask_and_fire(asked)
        asked.server.will(ends("tea"))
        await asked.home.put(said("e3", "I cannot stand hot drinks any more", 2))

        await ask_and_fire(asked)

        assert await asked.likes() == {"e2#1": "ale"}
        shown = facts_in(asked.server.requests[-1])
        assert [(fact["id"], fact["object"]) for fact in shown] == [("f1", "ale"), ("f2", "tea")]
        last = (await asked.home.facts.reads.records())[-1]
        assert (last.kind, last.replaces) == ("delete", ("e1#1",))


async def test_model_replaces_a_fact_by_another_predicate(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked)
        asked.server.will(ends("tea", add=(stated("t1", "ann", "lives_in", "Assam"),)))
        await asked.home.put(said("e2", "No cup left, but I moved to Assam", 1))

        await ask_and_fire(asked)

        assert await asked.likes() == {"e2#2": "Assam"}


async def test_facts_are_shown_only_where_they_may_be_taken_back(provider: Provider) -> None:
    plain = asking()
    async with asked_stores(provider, plain) as asked:
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked, plain)
        await asked.home.put(said("e2", "I like ale", 1))

        await ask_and_fire(asked, plain)

        assert [facts_in(request) for request in asked.server.requests] == [[], []]
        assert "ended" not in str(asked.server.requests)


@pytest.mark.slow
async def test_only_facts_of_the_turn_s_people_are_shown(provider: Provider) -> None:
    others = rule("all", when_filter="predicate IS NOT NULL")
    asked_rule = RULE.model_copy(update={"when_filter": "speaker = 'ann'"})
    async with asked_stores(provider, asked_rule) as asked:
        await asked.home.put(
            triple("e1", "ann", "likes", "tea", user="alice"),
            triple("e2", "ann", "likes", "gin", user="bob"),
            triple("e3", "ann", "likes", "rum", agent="web"),
            triple("e4", "ann", "owns", "a car"),
            triple("e5", "carol", "likes", "jazz"),
            triple("e6", "dan", "likes", "chess"),
            triple("e7", "ann's sister", "lives_in", "Oslo"),
            triple("e8", "ann", "likes", "later", timestamp=at(99)),
        )
        await fire(asked, others)
        await asked.home.put(said("e9", "Carol and I like soup", 50))

        await asked.worker.turn()

        shown = {fact["object"] for fact in facts_in(asked.server.requests[-1])}
        assert shown == {"tea", "jazz", "Oslo"}


async def test_what_no_firing_has_promoted_yet_is_shown_and_taken_back(provider: Provider) -> None:
    fired = asking(may_retract=True, turns_per_call=1)
    async with asked_stores(provider, fired) as asked:
        asked.server.will(
            lambda request: asked.server.otherwise(request), ends("tea"), ends("gin", "rum")
        )
        await asked.home.put(
            triple("e0", "ann", "likes", "gin"),
            said("e1", "I like tea", 1),
            said("e2", "No more of that", 2, session="s0"),
            said("e3", "Nor of the other", 3),
        )

        await ask_and_fire(asked, fired)

        shown = [[fact["object"] for fact in facts_in(one)] for one in asked.server.requests]
        assert shown == [["gin"], ["tea", "gin"], ["tea", "gin"]]
        assert await asked.likes() == {}


@pytest.mark.slow
async def test_batches_and_firings_in_between_change_no_fact(tmp_path: Path) -> None:
    fired = asking(may_retract=True, turns_per_call=1)
    told = [
        said("e1", "I like tea", 1),
        said("e2", "None of it any more", 2),
        said("e3", "I like ale", 3),
    ]
    found = []
    for number, at_once in enumerate((True, False)):
        async with asked_stores(tmp_path / str(number), fired, batch=number + 1) as asked:
            asked.server.will(lambda request: asked.server.otherwise(request), ends("tea"))
            for some in [told] if at_once else [[one] for one in told]:
                await asked.home.put(*some)
                await ask_and_fire(asked, fired)
            found.append(await asked.home.facts.query(FactPattern()))

    assert found[0] == found[1]
    assert [fact.payload["object"] for fact in found[0]] == ["ale"]


async def test_facts_that_a_person_stated_by_hand_are_not_sent(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked)
        [fact] = await asked.home.facts.query(FactPattern())
        by_hand = [{"kind": "manual", "source_id": "me"}, *fact.lineage]
        corrected = fact.model_copy(
            update={"payload": {**fact.payload, "object": CANARY}, "lineage": by_hand}
        )
        await asked.home.facts.correct(corrected, by="me", reason="secret")
        await asked.home.put(said("e2", "I like ale", 1))

        await asked.worker.turn()

        [first, second] = asked.server.requests
        assert (facts_in(first), facts_in(second)) == ([], [])


async def test_later_facts_change_no_question(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked)
        await asked.home.put(said("e2", "I like ale", 1))
        await ask_and_fire(asked)
        before = await asked.home.facts.query(FactPattern())

        done = await asked.worker.ask_all(RULE)
        again = await asked.home.consolidator.backfill(RULE, START, by="test")

        assert (done.calls, again.unrecorded) == (0, False)
        assert len(asked.server.requests) == 2
        assert await asked.home.facts.query(FactPattern()) == before


async def test_record_is_exactly_what_was_sent(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"), said("e2", "I like ale", 1))
        await ask_and_fire(asked)
        question = said("e3", "What now?", 2).model_copy(update={"source_node": "bot"})
        await asked.home.put(question, said("e4", "I like gin", 3, session="s1"))
        await asked.worker.turn()

        rows = await recorded(provider)

        sent = [request["messages"] for request in asked.server.requests]
        texts = {row["id"]: row["request"] for row in rows if row["request"]}
        assert sorted(str(orjson.loads(text)["messages"]) for text in texts.values()) == sorted(
            map(str, sent)
        )
        assert all(row["scope_key"] == "/user/alice/session/s1/agent/rag/" for row in rows)
        [of_gin] = [id for id, text in texts.items() if "I like gin" in text]
        assert sorted(row["eid"] for row in rows if row["id"] == of_gin) == ["e1", "e2", "e3", "e4"]


@pytest.mark.slow
async def test_request_of_an_invalid_answer_is_recorded_too(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        asked.server.otherwise = lambda _: completion("nonsense")
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked)

        [row] = await recorded(provider)

        assert "not valid" in row["request"]
        assert row["key"]


async def test_erasure_of_a_fact_s_episode_leaves_nothing_of_it_in_requests(
    provider: Provider,
) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", f"I like {CANARY}"), said("e2", "I like ale", 1))
        await ask_and_fire(asked)
        asked.server.will(ends(CANARY, "ale"))
        await asked.home.put(said("e3", "None of that any more", 2))
        await ask_and_fire(asked)

        certificate = await forget(asked, user="alice", episode="e1")
        rows = await recorded(provider)
        answered = await asked.home.consolidator.backfill(RULE, START, by="test")

        assert certificate["rows"]["episodes"]["slumberd_model_requests"] == 2
        assert CANARY not in str(rows)
        assert "e1" not in {row["eid"] for row in rows}
        assert not answered.unrecorded
        assert await asked.likes() == {}
        assert len(asked.server.requests) == 2


async def test_erasure_of_an_asked_episode_takes_its_request_with_it(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        await asked.home.put(said("e1", f"I like {CANARY}"), said("e2", "I like ale", 1))
        await ask_and_fire(asked)

        await forget(asked, user="alice", episode="e1")

        rows = await recorded(provider)
        assert [(row["eid"], row["request"]) for row in rows] == [("e2", "")]
        assert not (await fire(asked)).unrecorded


@pytest.mark.slow
async def test_erased_words_are_in_no_file(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(said("e1", f"I like {CANARY}"), said("e2", "I like ale", 1))
        await ask_and_fire(asked)
        asked.server.will(ends(CANARY))
        await asked.home.put(said("e3", "Not that one any more", 2))
        await ask_and_fire(asked)

        await forget(asked, user="alice", episode="e1")
    assert files_with_canary(tmp_path) == []


@pytest.mark.slow
async def test_answer_that_saw_erased_facts_is_not_recorded(tmp_path: Path) -> None:
    arrived = asyncio.Event()
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(said("e1", f"I like {CANARY}"))
        await ask_and_fire(asked)
        late = completion(f'{{"triples": "{CANARY}"}}').body
        asked.server.will(Reply(body=late, until=arrived))
        await asked.home.put(said("e2", "I like ale", 1))
        asked.server.arrived.clear()
        turn = asyncio.ensure_future(asked.worker.turn())
        await asked.server.arrived.wait()

        await forget(asked, user="alice", episode="e1")
        arrived.set()
        await turn
        await asked.worker.turn()
        await fire(asked)

        assert await asked.likes() == {"e2#1": "ale"}
    assert files_with_canary(tmp_path) == []


async def test_request_shows_the_newest_facts_up_to_a_limit(provider: Provider) -> None:
    async with asked_stores(provider, RULE) as asked:
        count = MOST_FACTS + 5
        await asked.home.put(*(said(f"e{n}", f"I like w{n}", n) for n in range(count)))
        await ask_and_fire(asked)
        await asked.home.put(said("last", "I like tea", count))

        await asked.worker.turn()

        shown = [fact["object"] for fact in facts_in(asked.server.requests[-1])]
        assert shown == [f"w{n}" for n in range(count - 1, count - 1 - MOST_FACTS, -1)]


@pytest.mark.slow
async def test_facts_of_every_channel_of_the_rule_are_shown_and_taken_back(
    provider: Provider,
) -> None:
    settings = ModelSettings("tiny", ("likes", "lives_in"), may_retract=True)
    both = rule("chat", extract=model_extraction(settings), then_emits=["facts", "notes"])
    async with asked_stores(provider, both) as asked:
        await asked.home.put(said("e1", "I like tea"))
        await ask_and_fire(asked, both)
        asked.server.will(ends("tea"))
        await asked.home.put(said("e2", "None of it", 1))

        await ask_and_fire(asked, both)

        assert len(facts_in(asked.server.requests[-1])) == 1
        assert await asked.likes() == {}
