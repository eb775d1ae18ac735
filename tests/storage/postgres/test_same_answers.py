"""The same history gives the same answers on files and in a database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.explanation import Explanation
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.errors import NoInputError
from slumberd.model.fact import FactPattern
from slumberd.model.rule import Similarity
from slumberd.model.scope import ScopeFilter
from slumberd.operations.ledger import NEWEST
from slumberd.search.searcher import Searcher
from tests.support.builders import START, at, episode, rule
from tests.support.fakes import FakeClock, FakeComparer, FakeDeltaLog
from tests.support.providers import AnyFactStore, NewStores, Provider, new_files
from tests.support.random_histories import EVERYTHING, USERS, Step, Story, play
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled, pytest.mark.path]

QUIET = settings(
    max_examples=amount(4, full=40), deadline=None, suppress_health_check=list(HealthCheck)
)
IDS = (*USERS, "p1", *(f"{name}#{part}" for name in USERS for part in (1, 2)))


async def explanation(store: AnyFactStore, fact_id: str) -> Explanation | None:
    try:
        return await store.why(fact_id)
    except NoInputError:
        return None


async def everything_of(story: Story) -> list[tuple[str, Any]]:
    """Return what a store of facts answers about itself."""
    store = story.store
    names = [*IDS, *(f"@notes/{id}" for id in IDS)]
    rows, _, broken = await store.verify()
    page = await store.promotion_feed.promotions(0, limit=1_000, current_only=False)
    return [
        ("verified", (rows, broken)),
        ("records", await store.reads.records(limit=10_000)),
        ("explanations", [await explanation(store, id) for id in names]),
        ("rows of each fact", [await store.reads.records_of(id) for id in names]),
        ("promotions", page),
        ("quarantine", await store.reads.quarantine()),
        ("counts", await store.reads.counts(0, limit=1_000)),
        ("firings", await store.reads.firings(NEWEST, limit=1_000)),
        ("groups", await store.reads.group_changes(after=0, limit=1_000)),
        ("last firings", await store.reads.last_firings()),
        ("watermarks", await store.watermarks.positions()),
        ("hints", await store.reads.find_multi_valued_hints()),
        ("cited", sorted(await store.cited_episodes([*USERS]))),
        ("retracted", sorted(await store.retracted_by_people(names))),
    ]


@pytest.mark.nightly
@QUIET
@given(EVERYTHING)
@example(
    [
        ("put", {"id": "e1", "user": "alice", "agent": "rag", "at": 1_767_268_800_000_000, "tag": 1,
                 "metadata": {"subject": "s", "predicate": "is"}}),
        ("fire", "tagged", 1), ("undo", 0), ("undo", 0),
    ]
)  # fmt: skip
def test_history_of_facts_is_told_alike(new_databases: NewStores, steps: list[Step]) -> None:
    told: list[list[tuple[str, Any]]] = []

    async def remember(story: Story) -> None:
        told.append(await everything_of(story))

    for new_stores in (new_files, new_databases):
        play(steps, remember, new_stores)

    for on_files, in_database in zip(*told, strict=True):
        assert on_files == in_database


WORDS = ("tea", "teas", "Tee", "dog", "running", "10:00", "naïve", "日本", "%", "the")
FILTERS = (
    "TRUE",
    "content LIKE '%tea%'",
    "json_extract(metadata, '$.n') > 1",
    "timestamp >= '2026-01-01T00:00:02'",
    "predicate = 'is' AND object IS NOT NULL",
)
SCOPES = [
    (user, session, agent)
    for user in ("alice", "Zoë/%", "nobody")
    for session in (None, "s1", "s/2")
    for agent in (None, "rag", "b%")
]


@st.composite
def some_episodes(draw: st.DrawFn) -> Episode:
    number = draw(st.integers(1, 9))
    metadata: dict[str, Any] = {"n": draw(st.sampled_from([0, 1.5, 2, "2", None]))}
    if draw(st.booleans()):
        metadata |= {"subject": "s", "predicate": draw(st.sampled_from(["is", "likes"]))}
        metadata["object"] = draw(st.sampled_from(["a", 1, 1.0, None, {"x": [True]}]))
    return episode(
        f"e{number}",
        user=("alice", "Zoë/%")[number % 2],
        session=("s1", "s/2")[number // 2 % 2],
        agent=("rag", "b%")[number // 4 % 2],
        content=" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))),
        timestamp=at(draw(st.integers(0, 4))),
        metadata=metadata,
    )


BATCHES = st.lists(st.lists(some_episodes(), min_size=1, max_size=6), min_size=1, max_size=4)


async def answers_of(
    provider: Provider, batches: Sequence[Sequence[Episode]], erased: str | None
) -> list[tuple[str, Any]]:
    """Put and consolidate episodes, erase a session, and return what both stores answer."""
    clock = FakeClock(at(100))
    rules = [
        rule(f"r{number}", when_filter=when, similarity=Similarity(min=0.5))
        for number, when in enumerate(FILTERS)
    ]
    found: list[tuple[str, Any]] = []
    async with (
        provider.memory(clock=clock) as memory,
        provider.facts(clock=clock, comparer=FakeComparer) as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        consolidator = Consolidator(memory, facts, FakeDeltaLog(), clock, batch=3)
        for batch in batches:
            found.append(("put", await memory.put_many(batch)))
            reports = [
                await consolidator.fire(FireRequest(each, "manual", START)) for each in rules
            ]
            found.append(("firings", [report.firing_ids for report in reports]))
        if erased is not None:
            scope = ScopeFilter("alice", erased, None)
            await facts.erasures.forget(scope, moment=2**51, at=at(200), by="p", dry_run=False)
        found.append(("end of the log", await memory.newest()))
        found.append(("deltas", [await memory.consolidate(each) for each in rules]))
        found += [
            (f"recent {scope} {limit}", await memory.recent(*scope, limit=limit))
            for scope in SCOPES
            for limit in (1, 50)
        ]
        found.append(("facts", await facts.query(FactPattern())))
        found.append(("why", [await explanation(facts, f"e{number}") for number in range(1, 10)]))
        searcher = Searcher(memory, facts, language="english")
        for user, session, agent in SCOPES:
            for query in ("tea", "naïve dog", "running at 10:00", "日本 %"):
                hits = await searcher.search(
                    query, user=user, session=session, agent=agent, limit=20
                )
                found.append((f"search {query} {user} {session} {agent}", hits))
        found.append(("context", await searcher.context("who likes tea?", user="alice")))
    return found


@pytest.mark.nightly
@QUIET
@given(BATCHES, st.sampled_from([None, "s1", "s/2"]))
def test_episodes_are_read_filtered_and_found_alike(
    new_databases: NewStores, batches: list[list[Episode]], erased: str | None
) -> None:
    answers = []
    for new_stores in (new_files, new_databases):
        with new_stores() as provider:
            answers.append(asyncio.run(answers_of(provider, batches, erased)))

    for on_files, in_database in zip(*answers, strict=True):
        assert on_files == in_database
