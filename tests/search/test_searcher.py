"""Search over real stores: it follows every writer, and knows one scope only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.clock import SystemClock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.errors import MemoryScopeError, StoreError, UsageError
from slumberd.model.fact import Fact
from slumberd.model.scope import ScopeFilter
from slumberd.search.followed_scopes import FEW_TEXTS
from slumberd.search.hits import Hit
from slumberd.search.searcher import Searcher
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.providers import ON_FILES, AnyFactStore, AnyMemoryStore, Provider, path_of
from tests.support.reachable_texts import reachable_texts

pytestmark = pytest.mark.integration


class Stores(NamedTuple):
    """Open stores, and their searcher."""

    memory: AnyMemoryStore
    facts: AnyFactStore
    searcher: Searcher

    async def put(self, *episodes: Episode) -> None:
        await self.memory.put_many(episodes)

    async def ids(self, query: str, user: str = "alice", **options: object) -> list[str]:
        return ids(await self.searcher.search(query, user=user, **options))  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def stores(provider: Provider) -> AsyncIterator[Stores]:
    async with provider.memory() as memory, provider.facts() as facts:
        await memory.bootstrap()
        await facts.bootstrap()
        yield Stores(memory, facts, Searcher(memory, facts, language="english"))


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def fact(id: str, subject: str, predicate: str, object: Any, **more: Any) -> Fact:
    fields: dict[str, Any] = {
        "user": "alice",
        "agent": "rag",
        "payload": {"subject": subject, "predicate": predicate, "object": object},
        "lineage": [{"rule_id": "host", "source_episode_ids": [], "promotion_ts": "2026"}],
        "confidence": 0.9,
        "pinned_at": START,
    }
    return Fact.model_validate({"id": id, **fields, **more})


@ON_FILES
async def test_put_edit_and_deletion_show_in_the_next_search(stores: Stores) -> None:
    await stores.put(episode("e1", content="I adopted a dog"))
    assert await stores.ids("dog") == ["e1"]

    await stores.put(episode("e2", content="The dog sleeps", timestamp=at(1)))
    assert await stores.ids("dog") == ["e2", "e1"]

    await stores.put(episode("e1", content="I adopted a cat"))
    assert await stores.ids("cat") == ["e1", "e2"]
    assert await stores.ids("dog") == ["e2", "e1"], "e1 comes before e2"

    execute(path_of(stores.memory), "DELETE FROM episodes WHERE id = 'e2'")
    assert await stores.ids("dog") == []


@ON_FILES
async def test_changed_id_and_owner_show_in_the_next_search(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"))
    assert await stores.ids("dog") == ["e1"]

    execute(path_of(stores.memory), "UPDATE episodes SET id = 'e9' WHERE id = 'e1'")

    assert await stores.ids("dog") == ["e9"]


@ON_FILES
async def test_reused_row_of_a_deleted_episode_is_the_new_one(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"))
    assert await stores.ids("dog") == ["e1"]

    execute(path_of(stores.memory), "DELETE FROM episodes")
    await stores.put(episode("e2", content="dog", user="bob"), episode("e3", content="cat"))

    assert await stores.ids("dog") == []
    assert await stores.ids("cat") == ["e3"]


@ON_FILES
async def test_replaced_row_does_not_take_its_successor_along(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"))
    assert await stores.ids("dog") == ["e1"]
    path = path_of(stores.memory)

    # SQLite fires no trigger for the row that goes; the episode gets another row.
    execute(path, "INSERT OR REPLACE INTO episodes SELECT * FROM episodes WHERE id = 'e1'")
    assert await stores.ids("dog") == ["e1"]
    execute(path, "UPDATE episodes SET rowid = 1 WHERE id = 'e1'")

    assert await stores.ids("dog") == ["e1"]


@pytest.mark.slow
async def test_cancelled_search_leaves_the_index_whole(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"))
    await stores.ids("dog")
    await stores.put(*(episode(f"n{number}", content="dog house") for number in range(300)))

    search = asyncio.ensure_future(stores.searcher.search("dog", user="alice", limit=400))
    for _ in range(5):
        await asyncio.sleep(0)
    search.cancel()
    with suppress(asyncio.CancelledError):
        await search

    assert len(await stores.ids("dog", limit=400)) == 301


@ON_FILES
async def test_deletion_while_the_trigger_was_missing_is_noticed(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"), episode("e2", content="dog"))
    assert sorted(await stores.ids("dog")) == ["e1", "e2"]

    execute(
        path_of(stores.memory),
        "DROP TRIGGER slumberd_episode_deleted",
        "DELETE FROM episodes WHERE id = 'e1'",
    )

    assert await stores.ids("dog") == ["e2"]


async def test_erased_scope_is_gone_at_once(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"), episode("b1", content="dog", user="bob"))
    assert await stores.ids("dog") == ["e1"]
    assert await stores.ids("dog", "bob") == ["b1"]

    scope = ScopeFilter("alice", None, None)
    await stores.memory.forget(scope, [], moment=2**60, key=b"k" * 32)

    assert await stores.ids("dog") == []
    assert await stores.ids("dog", "bob") == ["b1"]


async def test_forgotten_user_leaves_no_text_in_memory_and_others_stay(stores: Stores) -> None:
    await stores.put(
        episode("e1", content="zeppelinism"), episode("b1", content="zeppelins", user="bob")
    )
    await stores.facts.pin(fact("f1", "zeppelinism", "is", "fun"))
    assert await stores.ids("zeppelinism", agent="rag") == ["e1", "f1"]
    assert await stores.ids("zeppelins", "bob") == ["b1"]

    await stores.searcher.forget("alice")

    assert reachable_texts(stores.searcher, holding="zeppelinism") == []
    assert reachable_texts(stores.searcher, holding="zeppelins") != []


class FailingFeed:
    """A feed of facts that cannot be read."""

    async def place(self) -> None:
        raise StoreError("the facts cannot be read")


class SlowFeed:
    """A feed of episodes whose reading takes some rounds of the loop."""

    is_reading = False

    async def place(self) -> None:
        self.is_reading = True
        for _ in range(20):
            await asyncio.sleep(0)
        self.is_reading = False


async def test_search_that_fails_leaves_no_reading_behind(stores: Stores) -> None:
    searcher = Searcher(stores.memory, stores.facts)
    slow = searcher._episodes._feed = SlowFeed()  # type: ignore[assignment]
    assert searcher._followed_facts is not None
    searcher._followed_facts._feed = FailingFeed()  # type: ignore[assignment]

    with pytest.raises(StoreError, match="cannot be read"):
        await searcher.search("dog", user="alice")

    assert not slow.is_reading


def execute(path: Path, *statements: str) -> None:
    """Write as another program does."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_indexes_of_both_kinds_take_no_more_memory_than_they_may(stores: Stores) -> None:
    for user in ("alice", "bob", "cleo"):
        await stores.put(episode(f"{user}1", content="I adopted a dog", user=user))
        await stores.facts.pin(fact(f"{user}2", user, "has_a", "dog", user=user))
    searcher = Searcher(stores.memory, stores.facts, most_bytes=60_000)

    for user in ("alice", "bob", "cleo", "alice"):
        found = await searcher.search("dog", user=user)
        assert sorted(ids(found)) == [f"{user}1", f"{user}2"]
        assert 0 < searcher.memory.size_bytes <= searcher.memory.most_bytes

    assert 2 <= len(searcher.memory) < 6


class CounterThatWaits:
    """Counts the tokens of a context; of a line about bob only when it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = Event(), Event()

    def count_tokens(self, text: str) -> int:
        if "bob" in text:
            self.has_begun.set()
            assert self.may_end.wait(60)
        return 1


async def test_search_of_one_user_does_not_wait_for_the_work_for_another(stores: Stores) -> None:
    many = [episode(f"e{n}", content=f"dog {n}", timestamp=at(n)) for n in range(FEW_TEXTS + 1)]
    await stores.put(*many, episode("b1", content="bob has a dog", user="bob"))
    counter = CounterThatWaits()
    searcher = Searcher(stores.memory, stores.facts, tokens=counter)
    of_bob = asyncio.ensure_future(searcher.context("dog", user="bob"))
    assert await asyncio.to_thread(counter.has_begun.wait, 60)

    assert ids(await searcher.search("7", user="alice", limit=1)) == ["e7"]
    assert not of_bob.done()
    counter.may_end.set()
    assert [item.id for item in (await of_bob).items] == ["b1"]


async def test_scope_is_exact(stores: Stores) -> None:
    await stores.put(
        episode("e1", content="dog"),
        episode("e2", content="dog", agent="other"),
        episode("e3", content="dog", session="s2"),
        episode("b1", content="dog", user="bob"),
    )

    assert sorted(await stores.ids("dog")) == ["e1", "e2", "e3"]
    assert await stores.ids("dog", agent="other") == ["e2"]
    assert await stores.ids("dog", session="s2") == ["e3"]


async def test_current_fact_is_found_and_a_superseded_one_only_as_of_its_time(
    stores: Stores,
) -> None:
    old, new = fact("f1", "alice", "lives_in", "Paris"), fact("f2", "alice", "lives_in", "Rome")
    await stores.facts.correct(old, by="ann", reason="told")
    between = SystemClock().now()
    await stores.facts.correct(new, by="ann", reason="moved")

    [hit] = await stores.searcher.search("Where does alice live? Rome?", user="alice")
    assert hit.kind == "fact"
    assert hit.text == "alice lives in Rome"
    assert hit.trust == "corrected"
    assert hit.confidence == 0.9
    assert await stores.ids("Paris") == []
    assert await stores.ids("Paris", as_of=between) == ["f1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "trust", "sources"),
    [
        pytest.param({"rule_id": "r", "source_episode_ids": ["e9"]}, "derived", ("e9",), id="rule"),
        pytest.param({"rule_id": "host", "source_episode_ids": []}, "declared", (), id="program"),
        pytest.param(
            {"rule_id": "@manual", "source_episode_ids": []}, "corrected", (), id="person"
        ),
    ],
)
async def test_replaced_fact_is_no_source_of_its_successor(
    stores: Stores, own: dict[str, Any], trust: str, sources: tuple[str, ...]
) -> None:
    replaced = {"replaces": "f0", "source_episode_ids": ["e1"]}
    await stores.facts.pin(fact("f1", "alice", "likes", "tea", lineage=[own, replaced]))

    [hit] = await stores.searcher.search("tea", user="alice")

    assert (hit.trust, hit.sources) == (trust, sources)


@ON_FILES
async def test_episodes_of_a_later_instant_have_no_effect_on_an_earlier_one(
    stores: Stores,
) -> None:
    await stores.put(
        episode("e1", content="dog", timestamp=at(1)), episode("e2", content="dog", timestamp=at(9))
    )

    then = await stores.searcher.search("dog", user="alice", as_of=at(5))

    assert ids(then) == ["e1"]
    assert then == await before_the_second(stores)


async def before_the_second(stores: Stores) -> list[Hit]:
    execute(path_of(stores.memory), "DELETE FROM episodes WHERE id = 'e2'")
    return await stores.searcher.search("dog", user="alice")


async def test_marked_episode_is_hidden(stores: Stores) -> None:
    await stores.put(episode("e1", content="dog"), episode("e2", content="dog dog", session="t"))
    assert sorted(await stores.ids("dog")) == ["e1", "e2"]

    await stores.facts.pin(fact("@marks/e2", "e2", "archived", "decayed"))

    assert await stores.ids("dog") == ["e1"]


@ON_FILES
async def test_marked_episode_counts_as_if_it_were_not_stored(stores: Stores) -> None:
    question = episode("e1", content="Where is the bicycle?", timestamp=at(1))
    reply = episode("e2", content="At home", timestamp=at(2))
    await stores.put(question, reply, episode("e3", content="home", session="t"))
    assert await stores.ids("bicycle") == ["e1", "e2"]

    await stores.facts.pin(fact("@marks/e1", "e1", "archived", "decayed"))
    assert await stores.ids("bicycle") == [], "not even the reply, which has no such word"
    await stores.put(episode("e1", content="Where is the new bicycle?", timestamp=at(1)))
    assert await stores.ids("bicycle") == []
    marked = await stores.searcher.search("home", user="alice")

    await stores.facts.unpin("@marks/e1")
    assert await stores.ids("bicycle") == ["e1", "e2"]
    execute(path_of(stores.memory), "DELETE FROM episodes WHERE id = 'e1'")
    assert await stores.searcher.search("home", user="alice") == marked


async def test_context_takes_the_latest_turns_that_are_not_marked(stores: Stores) -> None:
    await stores.put(*(episode(f"e{n}", content=f"turn {n}", timestamp=at(n)) for n in range(30)))
    for number in range(5, 30):
        await stores.facts.pin(fact(f"@marks/e{number}", f"e{number}", "archived", "decayed"))

    context = await stores.searcher.context("", user="alice")

    assert [item.id for item in context.items] == ["e0", "e1", "e2", "e3", "e4"]


async def test_alias_that_a_fact_states_is_understood(stores: Stores) -> None:
    await stores.put(episode("e1", content="We deploy on Kubernetes"))
    assert await stores.ids("k8s", kinds=["episode"]) == []

    await stores.facts.pin(fact("f1", "Kubernetes", "alias", "k8s"))

    assert await stores.ids("k8s", kinds=["episode"]) == ["e1"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param("How do we deploy on k8s?", ["f1", "f2"], id="alias"),
        pytest.param("How do we deploy on Kubernets?", ["f1", "f2"], id="typing error"),
        pytest.param("What is our error budget?", [], id="part of a name"),
        pytest.param("What is our error handling?", ["f3"], id="whole name"),
        pytest.param("", [], id="no question"),
    ],
)
async def test_facts_about_what_the_question_names_in_full(
    stores: Stores, question: str, expected: list[str]
) -> None:
    await stores.facts.pin(fact("f1", "Kubernetes", "alias", ["k8s", "kube"]))
    await stores.facts.pin(fact("f2", "Kubernetes", "runs_in", "Frankfurt"))
    await stores.facts.pin(fact("f3", "error handling", "uses", "result types"))

    found = await stores.searcher.facts_about(question, user="alice")

    assert sorted(ids(found)) == expected


async def test_kinds_choose_what_is_searched(stores: Stores) -> None:
    await stores.put(episode("e1", content="tea"))
    await stores.facts.pin(fact("f1", "alice", "likes", "tea"))

    assert {hit.kind for hit in await stores.searcher.search("tea", user="alice")} == {
        "episode", "fact",
    }  # fmt: skip
    assert await stores.ids("tea", kinds=["fact"]) == ["f1"]
    assert await stores.ids("tea", session="s1") == ["e1"], "a fact belongs to no session"


async def test_what_was_recalled_is_not_found_again(stores: Stores) -> None:
    await stores.put(episode("e1", content="I adopted a dog"))
    recalled = await stores.searcher.context("Which dog?", user="alice")
    await stores.put(episode("e2", content=f"{recalled.text}\nWhat shall we eat?", session="t"))

    assert await stores.ids("dog") == ["e1"]
    assert await stores.ids("eat") == ["e2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"limit": 0}, "limit is 0; it must be at least 1", id="limit"),
        pytest.param({"kinds": ["dream"]}, "kind 'dream' is unknown", id="kind"),
    ],
)
async def test_mistake_of_the_caller_is_refused(
    stores: Stores, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await stores.searcher.search("dog", user="alice", **options)  # type: ignore[arg-type]


async def test_malformed_scope_is_refused(stores: Stores) -> None:
    with pytest.raises(MemoryScopeError):
        await stores.searcher.search("dog", user="")


WORDS = ["dog", "cat", "tea", "rain"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), max_size=8)


def said(user: str, texts: list[list[str]]) -> list[Episode]:
    return [
        episode(f"{user}{number}", content=" ".join(words), user=user)
        for number, words in enumerate(texts)
    ]


@pytest.mark.cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("vectors", [False, True])
@given(own=TEXTS, others=TEXTS)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
async def test_other_user_changes_neither_result_nor_score(
    tmp_path_factory: pytest.TempPathFactory,
    own: list[list[str]],
    others: list[list[str]],
    *,
    vectors: bool,
) -> None:
    found = []
    for strangers in ([], others):
        folder = tmp_path_factory.mktemp("stores")
        async with (
            SQLiteMemoryStore(folder / "memory.db") as memory,
            SQLiteFactStore(folder / "facts.db") as facts,
        ):
            await memory.bootstrap()
            await facts.bootstrap()
            await memory.put_many(said("alice", own))
            await facts.pin(fact("f1", "alice", "likes", "tea"))
            searcher = Searcher(memory, facts, vectors=vectors)
            await searcher.search("dog tea", user="alice", limit=50)
            await memory.put_many(said("bob", strangers))
            if strangers:
                await facts.pin(fact("f2", "dog", "alias", "tea", user="bob"))
            await searcher.search("dog tea", user="bob", limit=50)
            hits = await searcher.search("dog tea", user="alice", limit=50)
            context = await searcher.context("dog or tea?", user="alice")
            found.append((hits, context))

    assert found[0] == found[1]


async def test_profile_takes_the_surest_then_the_latest_facts_within_its_budget(
    stores: Stores,
) -> None:
    for id, confidence, said in (("low", 0.2, 3), ("old", 0.9, 1), ("new", 0.9, 2)):
        payload = {"subject": "ada", "predicate": "likes", "object": id, "timestamp": at(said)}
        await stores.facts.pin(fact(id, "", "", "", confidence=confidence, payload=payload))

    whole = await stores.searcher.profile(user="alice", budget=1_000)
    one_less = await stores.searcher.profile(user="alice", budget=whole.tokens - 1)
    other = await stores.searcher.profile(user="bob", budget=1_000)

    assert [(item.id, item.score) for item in whole.items] == [
        ("new", 0.9), ("old", 0.9), ("low", 0.2),
    ]  # fmt: skip
    assert [item.id for item in one_less.items] == ["new", "old"]
    assert (other.text, other.items) == ("", ())


async def test_search_and_context_name_the_speaker_of_the_law(stores: Stores) -> None:
    await stores.put(
        episode("e1", content="I live in Rome", source_node="ann"),
        episode("e2", content="I live in Oslo", source_node="ann", metadata={"speaker": "bob"}),
        episode("e3", content="I live in Bonn", source_node="remember", timestamp=at(9)),
        episode("e4", content="I live in Lima", source_node="x", metadata={"role": " "}),
    )

    hits = await stores.searcher.search("Who lives where: I live in?", user="alice")
    context = await stores.searcher.context("I live in", user="alice", budget=500)

    named = {"e1": "ann", "e2": "bob", "e3": "", "e4": "x"}
    assert {hit.id: hit.speaker for hit in hits} == named
    assert {item.id: item.speaker for item in context.items} == named
    assert 'said by "ann"' in context.text


def searcher_at(stores: Stores, clock: FakeClock) -> Searcher:
    return Searcher(
        stores.memory,
        stores.facts,
        clock=clock,
        recorded_at=stores.facts.watermarks.last_recorded_at,
    )


async def test_episodes_of_the_future_are_found_when_their_instant_comes(stores: Stores) -> None:
    clock = FakeClock(at(0))
    searcher = searcher_at(stores, clock)
    await stores.put(
        episode("e1", content="coffee", timestamp=at(-60)),
        episode("soon", content="coffee soon", timestamp=at(299)),
        episode("later", content="coffee later", timestamp=at(1_000)),
    )

    async def found() -> tuple[set[str], set[str]]:
        hits = await searcher.search("coffee", user="alice")
        context = await searcher.context("coffee", user="alice")
        return {hit.id for hit in hits}, {hit.id for hit in context.items}

    assert await found() == ({"e1", "soon"},) * 2
    clock.advance(701)
    assert await found() == ({"e1", "soon", "later"},) * 2
    clock.advance(-701)
    assert await found() == ({"e1", "soon"},) * 2


async def test_an_instant_that_is_asked_for_shows_what_lies_before_it(stores: Stores) -> None:
    searcher = searcher_at(stores, FakeClock(at(0)))
    await stores.put(episode("later", content="coffee", timestamp=at(1_000)))

    assert ids(await searcher.search("coffee", user="alice", as_of=at(1_001))) == ["later"]
    assert ids(await searcher.search("coffee", user="alice", as_of=at(999))) == []


async def test_clock_that_is_behind_the_ledger_hides_no_episode(stores: Stores) -> None:
    await stores.facts.correct(
        fact("f1", "a", "b", "c"), by="me", reason="the ledger now has a row of this year"
    )
    searcher = searcher_at(stores, FakeClock(START - timedelta(days=365 * 50)))
    await stores.put(episode("e1", content="coffee"))

    assert ids(await searcher.search("coffee", user="alice")) == ["e1"]


async def consolidate(stores: Stores, *episodes: Episode) -> None:
    await stores.put(*episodes)
    consolidator = Consolidator(
        stores.memory, stores.facts, FakeDeltaLog(), SystemClock(), batch=1_000
    )
    await consolidator.fire(FireRequest(rule(), "cron", START))


OSLO = triple("e1", "mira", "lives_in", "Oslo", content="I live in Oslo.")
BRAGA = triple("e2", "mira", "lives_in", "Braga", content="I moved to Braga.", timestamp=at(60))


async def test_quoted_sentence_says_what_took_the_place_of_its_claims(stores: Stores) -> None:
    await consolidate(stores, OSLO, BRAGA)

    hits = {
        hit.id: hit
        for hit in await stores.searcher.search("Oslo Braga", user="alice", kinds=["episode"])
    }
    before = await stores.searcher.search("Oslo", user="alice", as_of=at(1), kinds=["episode"])
    alone = await Searcher(stores.memory).search("Oslo", user="alice")

    [gone] = hits["e1"].superseded
    assert (gone.kind, gone.by, gone.fact_id, gone.at) == ("replaced", "Braga", "e2", at(60))
    assert hits["e2"].superseded == ()
    assert [(hit.id, hit.superseded) for hit in before] == [("e1", ())]
    assert [hit.superseded for hit in alone] == [(), ()], "without facts nothing is known"


async def test_context_answers_first_and_marks_the_replaced_sentence(stores: Stores) -> None:
    await consolidate(stores, OSLO, BRAGA)

    context = await stores.searcher.context("Where does mira live?", user="alice")

    assert [(item.kind, item.id) for item in context.items] == [
        ("fact", "e2"), ("episode", "e1"), ("episode", "e2"),
    ]  # fmt: skip
    assert "mira lives in Braga" in context.text.split("\n")[2]
    note = '"replaced on 1 January 2026: mira lives in Braga": "I live in Oslo."'
    assert note in context.text.split("\n")[3]
    assert "replaced" not in context.text.split("\n")[4]


async def test_context_omits_sentences_none_of_whose_claims_is_current(stores: Stores) -> None:
    works = [{"subject": "mira", "predicate": "works_at", "object": "Acme"}]
    half = triple(
        "e0", "mira", "lives_in", "Rome", content="Rome, at Acme", timestamp=at(-60),
        metadata={"triples": works},
    )  # fmt: skip
    await consolidate(stores, half, OSLO, BRAGA)

    async def quoted(**options: Any) -> list[str]:
        context = await stores.searcher.context("Rome, Oslo or Braga?", user="alice", **options)
        return [item.id for item in context.items if item.kind == "episode"]

    assert await quoted() == ["e0", "e1", "e2"]
    assert await quoted(superseded="omit") == ["e0", "e2"]
    assert await quoted(superseded="omit", as_of=at(1)) == ["e0", "e1"]
    with pytest.raises(UsageError, match="superseded is 'hide'; the choices are mark and omit"):
        await quoted(superseded="hide")


@pytest.mark.slow
@ON_FILES
async def test_larger_budget_never_holds_fewer_of_the_first_hits(stores: Stores) -> None:
    await stores.put(
        *(
            episode(f"e{n}", content=f"turn {n} about tea " + "word " * (n % 13), timestamp=at(n))
            for n in range(60)
        )
    )
    await stores.facts.pin(fact("f1", "tea", "likes", "milk"))
    await stores.facts.pin(fact("f2", "tea", "comes_from", "Assam, Darjeeling or Ceylon"))
    ranked = await stores.ids("tea", kinds=["episode"], limit=200)
    runs = []

    for budget in range(0, 4_500, 67):
        context = await stores.searcher.context("tea", user="alice", budget=budget)
        held = {item.id for item in context.items}
        runs.append(next((n for n, id in enumerate(ranked) if id not in held), len(ranked)))

    assert runs == sorted(runs)
    assert (runs[0], runs[-1]) == (0, 60)


async def test_larger_budget_changes_no_line_of_the_first_hits(stores: Stores) -> None:
    said = "green matcha tea, green matcha tea from Assam, Ceylon, Darjeeling, Nepal, Java"
    await stores.put(
        *(
            episode(f"e{n:02}", content=f"green matcha tea {n}", timestamp=at(n), session=f"t{n}")
            for n in range(30)
        ),
        episode("e30", content=said, timestamp=at(30)),
        *(episode(f"x{n}", content="cup", timestamp=at(n)) for n in (40, 41)),
        episode("e99", content=said.replace("green matcha", "black"), timestamp=at(99)),
    )

    async def recalled(budget: int) -> dict[str, Hit]:
        context = await stores.searcher.context("green matcha tea", user="alice", budget=budget)
        return {item.id: item for item in context.items if item.score}

    most = await recalled(20_000)
    assert [one.id for one in most["e30"].similar_later] == ["e99"]
    for budget in (100, 200, 400, 800, 1_600):
        found = await recalled(budget)
        assert found
        assert found == {id: most[id] for id in found}


async def test_exact_text_of_an_episode_and_of_a_fact_has_the_score_1(stores: Stores) -> None:
    await stores.put(
        episode("e1", content="I moved to Bergen in May", timestamp=at(1)),
        episode("e2", content="I moved to Bergen", timestamp=at(2)),
    )
    await stores.facts.pin(fact("f1", "alice", "lives_in", "Bergen"))

    said = await stores.searcher.search("i moved to Bergen!", user="alice")
    known = await stores.searcher.search("Alice lives in Bergen?", user="alice")

    assert [(said[0].id, said[0].score), (known[0].id, known[0].score)] == [("e2", 1), ("f1", 1)]
    for hits in (said, known):
        assert all(0 < hit.lexical <= hit.score < 1 for hit in hits[1:])
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_least_score_keeps_the_exact_text_only(stores: Stores) -> None:
    await stores.put(episode("e1", content="green tea"), episode("e2", content="green tea again"))

    assert await stores.ids("Green tea", min_score=1.0) == ["e1"]


async def test_each_user_of_a_searcher_has_the_forms_of_the_own_language(stores: Stores) -> None:
    searcher = Searcher(stores.memory, stores.facts)
    await stores.put(
        episode("e1", content="We have been running in the park with them"),
        episode("g1", content="Wir haben im Park die Bäume gezählt", user="bob"),
    )

    assert ids(await searcher.search("Who runs?", user="alice")) == ["e1"]
    assert ids(await searcher.search("Welcher Baum war das?", user="bob")) == ["g1"]
    assert ids(await searcher.search("Who runs?", user="bob")) == []
