"""Promotion makes facts of all triples of a graph or of none, once, and respects manual edits."""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd import PromoteTriplesToFacts
from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.errors import PromotionError, ProvenanceError, UnportableCypherError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.model.graph import MOST_ROWS, GraphTriple, Owner, fact_id_for, triples_in
from slumberd.model.provenance import ProvenanceBundle, encode_bundle
from slumberd.model.scope import ScopeFilter
from slumberd.model.store_status import MigrationPlan, StoreHealth
from tests.support.builders import START, at, rule, version
from tests.support.fakes import FakeClock
from tests.support.graph_stores import BARE, QUERY, FakeGraphStore, graph_in_memory, row
from tests.support.jumping_time import run_without_waiting
from tests.support.providers import ON_FILES, AnyFactStore, NewStores, Provider, new_files
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

ANYTHING = FactPattern()
TEA = row("alice", "likes", "tea", triple_id="t1")
WORK = row("alice", "works_at", "Acme", triple_id="t2")


class RecordingSink:
    """Records the assertions that it gets; implements `ProvenanceSink`."""

    def __init__(self, *failures: Exception | None) -> None:
        self.assertions: list[tuple[str, Mapping[str, object], ProvenanceBundle]] = []
        self._failures = [*failures]

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        self.assertions.append((template, slots, provenance))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(provider: Provider, clock: FakeClock) -> AsyncIterator[AnyFactStore]:
    async with provider.facts(clock=clock) as facts:
        await facts.bootstrap()
        yield facts


async def promote(store: AnyFactStore, *rows: Mapping[str, Any], **named: Any) -> list[Fact]:
    given: dict[str, Any] = {
        "rule_id": "team",
        "agent_id": "rag",
        "user": "alice",
        "clock": FakeClock(at(9)),
    }
    graph, sink = named.pop("graph", None), named.pop("sink", None)
    return await PromoteTriplesToFacts(
        graph or FakeGraphStore(*rows), store, sink, filter_cypher=QUERY, **(given | named)
    )


async def objects(store: AnyFactStore) -> set[object]:
    return {fact.payload["object"] for fact in await store.query(ANYTHING)}


async def rows_in(store: AnyFactStore) -> int:
    return await store.reads.ledger_rows()


async def last_firing(store: AnyFactStore) -> str:
    records = await store.reads.records(limit=10_000)
    return records[-1].firing_id


async def verify_and_replay(store: AnyFactStore) -> None:
    """Check the ledger against the facts, and against its own replay."""
    _, _, broken = await store.verify()
    assert broken is None
    with tempfile.TemporaryDirectory() as name:
        replay = await store.replay(Path(name) / "replayed.db")
    assert (replay.differing, replay.first) == (0, None)


async def fire_episode(
    store: AnyFactStore, id: str, seconds: int, *, user: str = "alice", **metadata: str
) -> None:
    """Consolidate one episode of the same agent."""
    read = version(
        id, seq=seconds, user=user, agent="rag", timestamp=at(seconds), metadata=metadata
    )
    firing = Firing("all", "", "manual", START, Position(), Position(seconds, id))
    await store.apply_deltas(DeltaBatch(firing, evaluate([read], rule("all"))))


async def test_fact_of_a_row_names_its_triple_and_its_rule(
    store: AnyFactStore,
) -> None:
    (fact,) = await promote(store, TEA)

    assert await store.query(FactPattern(user="alice", subject="alice")) == [fact]
    assert fact.payload == {
        "subject": "alice", "predicate": "likes", "object": "tea",
        "source": "fakegraph:/var/graphs/team (1).db",
    }  # fmt: skip
    assert (fact.user, fact.agent, fact.confidence, fact.pinned_at) == ("alice", "rag", 1.0, at(9))
    assert fact.lineage == [
        {
            "triple_id": "t1", "rule_id": "team", "agent_id": "rag",
            "promotion_ts": at(9).isoformat(),
        }
    ]  # fmt: skip
    await verify_and_replay(store)


async def test_every_triple_of_a_real_graph_is_promoted(store: AnyFactStore) -> None:
    graph = await graph_in_memory(("alice", "likes", "tea"), ("bob", "likes", "mate", "t2"))
    await graph.add_triple("bob", "is", "here", confidence=0.25)

    facts = await promote(store, graph=graph)
    await graph.close()

    found = {fact.payload["object"]: fact.confidence for fact in facts}
    assert found == {"tea": 1.0, "mate": 1.0, "here": 0.25}
    assert {fact.payload["source"] for fact in facts} == {"ladybug"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/a/b.db", "relative", "(", "with space\n", "naïve", ":memory:", ""]
)
async def test_provenance_names_a_source_that_every_sink_accepts_for_any_path(
    store: AnyFactStore, path: str
) -> None:
    sink = RecordingSink()

    (fact,) = await promote(store, graph=FakeGraphStore(TEA, path=path), sink=sink)

    ((template, slots, bundle),) = sink.assertions
    assert template == "stargraph.evidence"
    assert slots == {
        "subject": "alice", "predicate": "likes", "object": "tea",
        "source": f"fakegraph:{path}" if path else "fakegraph",
    }  # fmt: skip
    assert slots["source"] == fact.payload["source"]
    assert encode_bundle(bundle) == {
        "_origin": "graph_promotion", "_source": "fakegraph", "_run_id": "team", "_step": 0,
        "_confidence": "1.0", "_timestamp": "2026-01-01T12:00:09Z",
    }  # fmt: skip


async def test_graph_whose_source_is_no_identifier_gets_its_kind_as_source(
    store: AnyFactStore,
) -> None:
    graph = FakeGraphStore(TEA)
    graph.source = "ryugraph:/a/b\n"  # type: ignore[attr-defined]  # as other stores may
    sink = RecordingSink()

    await promote(store, graph=graph, sink=sink)

    assert [bundle["source"] for _, _, bundle in sink.assertions] == ["fakegraph"]


async def test_source_of_another_programs_graph_is_its_kind_and_its_path(
    store: AnyFactStore,
) -> None:
    class RyuGraphStore(FakeGraphStore):
        """Has its path in the attribute of Stargraph's store."""

    graph = RyuGraphStore(TEA, path="")
    graph._path = Path("/var/graphs/team")  # type: ignore[attr-defined]  # as in Stargraph

    (fact,) = await promote(store, graph=graph)

    assert fact.payload["source"] == "ryugraph:/var/graphs/team"


class SyncSink:
    """Records the assertions that it gets, synchronously; implements ``SyncProvenanceSink``."""

    def __init__(self, *failures: Exception | None) -> None:
        self.assertions: list[tuple[str, dict[str, Any], ProvenanceBundle]] = []
        self._failures = [*failures]

    def assert_with_provenance(
        self, template: str, slots: dict[str, Any], provenance: ProvenanceBundle
    ) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        self.assertions.append((template, slots, provenance))


async def test_synchronous_adapter_gets_every_fact(
    store: AnyFactStore,
) -> None:
    sink = SyncSink()

    with capture_logs() as lines:
        facts = await promote(store, TEA, WORK, sink=sink)

    assert [slots["object"] for _, slots, _ in sink.assertions] == [
        fact.payload["object"] for fact in facts
    ]
    assert {frozenset(slots) for _, slots, _ in sink.assertions} == {
        frozenset({"subject", "predicate", "object", "source"})
    }
    assert lines == []


async def test_synchronous_adapter_that_fails_loses_no_fact(
    store: AnyFactStore,
) -> None:
    with capture_logs() as lines:
        facts = await promote(store, TEA, WORK, sink=SyncSink(RuntimeError("down")))

    assert await store.query(ANYTHING) == facts
    assert [(line["event"], line["facts"]) for line in lines] == [("graph.evidence_failed", 2)]


class PlainFactStore:
    """A fact store in memory with the methods of the protocol only."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}

    async def bootstrap(self) -> None:
        """Do nothing."""

    async def health(self) -> StoreHealth:
        return StoreHealth(ok=True, version=1, fs_type="memory", lock_state="free")

    async def migrate(self, plan: MigrationPlan) -> None:
        """Do nothing."""

    async def pin(self, fact: Fact) -> None:
        self.facts[fact.id] = fact

    async def query(self, pattern: FactPattern) -> list[Fact]:
        return [self.facts[id] for id in sorted(self.facts)]

    async def unpin(self, fact_id: str) -> None:
        self.facts.pop(fact_id, None)


async def test_store_without_promote_gets_one_fact_at_a_time(
    store: AnyFactStore,
) -> None:
    plain: Any = PlainFactStore()

    facts = await promote(plain, TEA, WORK)
    again = await promote(plain, TEA, WORK)

    assert facts == again == await plain.query(ANYTHING)
    assert facts == await promote(store, TEA, WORK)


async def test_store_without_promote_gets_several_objects_of_one_predicate() -> None:
    plain: Any = PlainFactStore()

    await promote(plain, row("alice", "knows", "bob"), row("alice", "knows", "carol"))

    assert {fact.payload["object"] for fact in await plain.query(ANYTHING)} == {"bob", "carol"}


async def test_logged_failure_of_a_sink_has_the_first_500_characters_of_its_message() -> None:
    plain: Any = PlainFactStore()

    with capture_logs() as lines:
        await promote(plain, TEA, sink=RecordingSink(RuntimeError("m" * 501)))

    assert [line["message"] for line in lines] == ["m" * 500]


class PausingSink:
    """Takes some seconds for the first assertion; records which ones it has finished."""

    def __init__(self, seconds: float) -> None:
        self.done: list[object] = []
        self._pause = seconds

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        await asyncio.sleep(self._pause)
        self._pause = 0.0
        self.done.append(slots["object"])


@pytest.mark.parametrize(
    ("seconds", "done", "late"),
    [
        pytest.param(9.9, ["Acme", "tea"], [], id="less than ten seconds"),
        pytest.param(10.1, [], [("TimeoutError", 2)], id="more than ten seconds"),
    ],
)
def test_sink_may_take_ten_seconds_for_one_assertion(
    seconds: float, done: list[str], late: list[tuple[str, int]]
) -> None:
    plain: Any = PlainFactStore()
    sink = PausingSink(seconds)

    with capture_logs() as lines:
        facts = run_without_waiting(promote(plain, TEA, WORK, sink=sink))

    assert len(facts) == 2
    assert sorted(map(str, sink.done)) == done
    assert [(line["error"], line["facts"]) for line in lines] == late


async def test_incomplete_row_pins_nothing_in_a_store_without_promote() -> None:
    plain: Any = PlainFactStore()

    with pytest.raises(PromotionError, match="row 2"):
        await promote(plain, TEA, {"subject": "alice", "predicate": "likes"})

    assert plain.facts == {}


async def test_sink_that_fails_loses_no_fact_and_gets_all_at_the_next_call(
    store: AnyFactStore,
) -> None:
    sink = RecordingSink(RuntimeError("down"))

    first = await promote(store, TEA, WORK, sink=sink)
    assert sink.assertions == []
    assert len(await store.query(ANYTHING)) == len(first) == 2

    await promote(store, TEA, WORK, sink=sink)
    await promote(store, TEA, WORK, sink=sink)

    assert len(sink.assertions) == 4
    assert sink.assertions[:2] == sink.assertions[2:]


async def test_fact_that_the_sink_refuses_does_not_stop_the_others(
    store: AnyFactStore,
) -> None:
    sink = RecordingSink(ProvenanceError("_source", "odd"))

    await promote(store, TEA, WORK, sink=sink)

    assert len(sink.assertions) == 1


async def test_second_promotion_changes_neither_facts_nor_ledger(store: AnyFactStore) -> None:
    first = await promote(store, TEA, WORK)
    rows = await rows_in(store)

    again = await promote(store, WORK, TEA, clock=FakeClock(at(99)))

    assert again == first == await store.query(ANYTHING)
    assert await rows_in(store) == rows


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"rule_id": "two"}, {"agent_id": "two"}, {"user": "two"}])
async def test_id_of_a_fact_depends_on_rule_agent_and_user(
    store: AnyFactStore, other: dict[str, str]
) -> None:
    (first,) = await promote(store, TEA)
    (two,) = await promote(store, TEA, **other)

    assert first.id != two.id


async def test_different_triples_without_ids_get_different_ids(store: AnyFactStore) -> None:
    facts = await promote(store, row("a|b", "c", "d"), row("a", "b|c", "d"))

    assert len({fact.id for fact in facts}) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "confidence"),
    [
        (0.3, 0.3), (1, 1.0), (0, 0.0), (Decimal("0.25"), 0.25), ("0.5", 0.5), (" 1e-1 ", 0.1),
        (None, 1.0),
    ],
)  # fmt: skip
async def test_confidence_of_a_row_becomes_the_confidence_of_its_fact(
    store: AnyFactStore, given: object, confidence: float
) -> None:
    (fact,) = await promote(store, TEA | {"confidence": given})

    assert fact.confidence == confidence


@ON_FILES
@pytest.mark.parametrize(
    "given", [True, False, math.nan, math.inf, 7, -0.1, 1.0001, "NaN", "", "much", [0.5], {}, b"1"]
)
async def test_invalid_confidence_is_refused_with_its_row(
    store: AnyFactStore, given: object
) -> None:
    with pytest.raises(
        PromotionError, match="row 2 of the graph's answer: 'confidence' is"
    ) as raised:
        await promote(store, WORK, TEA | {"confidence": given})

    assert raised.value.row == 2
    assert await store.query(ANYTHING) == []


@ON_FILES
@pytest.mark.parametrize("part", ["subject", "predicate", "object"])
@pytest.mark.parametrize(
    "bad", [None, "", " ", "nul\0", "\ud800", {"name": "alice"}, ["alice"], math.nan, "missing"]
)
async def test_incomplete_row_is_refused_and_nothing_is_promoted(
    store: AnyFactStore, part: str, bad: object
) -> None:
    wrong = TEA | {part: bad}
    if bad == "missing":
        del wrong[part]

    with pytest.raises(PromotionError, match=f"row 2 of .*{part}"):
        await promote(store, WORK, wrong)

    assert await store.query(ANYTHING) == []
    assert await rows_in(store) == 0


async def test_numbers_and_booleans_become_texts(store: AnyFactStore) -> None:
    rows = [("is_aged", 42), ("weighs", Decimal("61.5")), ("sleeps", 7.5), ("is_here", True)]
    await promote(store, *(row("alice", predicate, value) for predicate, value in rows))

    assert await objects(store) == {"42", "61.5", "7.5", "True"}


@pytest.mark.slow
async def test_too_many_rows_are_refused(store: AnyFactStore) -> None:
    graph = FakeGraphStore(*[TEA] * (MOST_ROWS + 1))

    with pytest.raises(PromotionError, match="more than"):
        await promote(store, graph=graph)


@pytest.mark.slow
def test_hundred_thousand_rows_are_read() -> None:
    assert len(triples_in([TEA] * 100_000, "team")) == 1


def test_more_than_a_hundred_thousand_rows_are_refused() -> None:
    with pytest.raises(PromotionError, match="more than 100,000 rows"):
        triples_in([TEA] * 100_001, "team")


@pytest.mark.parametrize("part", ["subject", "predicate", "object"])
def test_part_of_a_triple_has_at_most_65536_characters(part: str) -> None:
    longest = "x" * 65_536

    assert len(triples_in([TEA | {part: longest}], "team")) == 1
    with pytest.raises(PromotionError, match="is longer than 65,536 characters"):
        triples_in([TEA | {part: f"{longest}x"}], "team")


async def test_triple_id_of_two_different_triples_is_refused(store: AnyFactStore) -> None:
    with pytest.raises(PromotionError, match=r"row 3 .*'t1' of row 1 and says something else"):
        await promote(store, TEA, WORK, TEA | {"object": "mate"})

    assert await rows_in(store) == 0


async def test_several_objects_of_one_predicate_are_all_promoted(store: AnyFactStore) -> None:
    rows = [row("alice", "knows", name) for name in ("bob", "carol", "dave")]

    await promote(store, *rows)
    before = await rows_in(store)
    await promote(store, *rows)

    assert await objects(store) == {"bob", "carol", "dave"}
    assert await rows_in(store) == before
    await verify_and_replay(store)


async def test_equal_triples_of_two_ids_are_two_facts(
    store: AnyFactStore,
) -> None:
    rows = [row("a", "b", "c", triple_id=id) for id in ("1", "2")]

    promoted = await promote(store, *rows)

    assert len({fact.id for fact in promoted}) == 2
    assert await store.query(ANYTHING) == promoted


async def test_triple_that_disappears_removes_no_fact(store: AnyFactStore) -> None:
    await promote(store, TEA, WORK)
    await promote(store, TEA)
    await promote(store)

    assert await objects(store) == {"tea", "Acme"}


@pytest.mark.parametrize("change", [{"object": "mate"}, {"confidence": 0.5}, {"subject": "bob"}])
async def test_changed_triple_changes_its_one_fact(
    store: AnyFactStore, change: dict[str, Any]
) -> None:
    (before,) = await promote(store, TEA)
    (after,) = await promote(store, TEA | change)

    assert after.id == before.id
    assert after.model_dump() != before.model_dump()
    assert await store.query(ANYTHING) == [after]
    records = await store.reads.records_of(after.id)
    assert [record.kind for record in records] == ["add", "update"]
    await verify_and_replay(store)


async def test_triple_that_changes_again_changes_its_one_fact(
    store: AnyFactStore,
) -> None:
    for city in ("Berlin", "Paris", "Berlin"):
        await promote(store, row("alice", "lives_in", city, triple_id="home"))
        assert await objects(store) == {city}


async def test_two_rules_that_disagree_are_both_promoted_once(store: AnyFactStore) -> None:
    berlin, paris = row("alice", "lives_in", "Berlin"), row("alice", "lives_in", "Paris")
    await promote(store, berlin, rule_id="one")
    await promote(store, paris, rule_id="two")
    rows = await rows_in(store)

    await promote(store, berlin, rule_id="one")
    await promote(store, paris, rule_id="two")

    assert await objects(store) == {"Berlin", "Paris"}
    assert await rows_in(store) == rows


@pytest.mark.parametrize("seconds", [1, 500])
async def test_episodes_and_triples_do_not_compete(store: AnyFactStore, seconds: int) -> None:
    await fire_episode(store, "e1", seconds, subject="alice", predicate="lives_in", object="Rome")

    await promote(store, row("alice", "lives_in", "Berlin"))

    assert await objects(store) == {"Berlin", "Rome"}
    await verify_and_replay(store)


async def test_episode_that_deletes_a_key_deletes_its_older_triples(
    store: AnyFactStore,
) -> None:
    await promote(store, row("alice", "lives_in", "Berlin"))

    await fire_episode(store, "e1", 500, subject="alice", predicate="lives_in", intent="delete")
    await promote(store, row("alice", "lives_in", "Berlin"), clock=FakeClock(at(600)))

    assert await objects(store) == set()
    await verify_and_replay(store)


async def test_triple_that_a_person_retracted_is_not_promoted_again(
    store: AnyFactStore,
) -> None:
    (fact,) = await promote(store, TEA)
    await store.retract(fact.id, by="me", reason="it is wrong")
    rows = await rows_in(store)

    for change in ({}, {"confidence": 0.5}):
        assert await promote(store, TEA | change, clock=FakeClock(at(99))) == []

    assert await store.query(ANYTHING) == []
    assert await rows_in(store) == rows
    await verify_and_replay(store)


async def test_retracted_triple_with_another_object_is_promoted(
    store: AnyFactStore,
) -> None:
    (fact,) = await promote(store, TEA)
    await store.retract(fact.id, by="me", reason="it is wrong")

    await promote(store, TEA | {"object": "mate"}, clock=FakeClock(at(99)))

    assert await objects(store) == {"mate"}


async def test_triple_that_a_program_unpinned_is_not_promoted_again(
    store: AnyFactStore,
) -> None:
    (fact,) = await promote(store, TEA)
    await store.unpin(fact.id)

    assert await promote(store, TEA, clock=FakeClock(at(99))) == []


@pytest.mark.parametrize("same_lineage", [True, False])
async def test_correction_of_a_promoted_fact_stays_current(
    store: AnyFactStore, same_lineage: bool
) -> None:
    (fact,) = await promote(store, TEA)
    own = fact.lineage if same_lineage else [{"kind": "manual"}]
    corrected = fact.model_copy(
        update={"payload": fact.payload | {"object": "water"}, "lineage": own}
    )
    await store.correct(corrected, by="me", reason="it is so")
    rows = await rows_in(store)

    for change in ({}, {"confidence": 0.5}, {"object": "mate"}):
        assert await promote(store, TEA | change, clock=FakeClock(at(99))) == []

    assert await objects(store) == {"water"}
    assert await rows_in(store) == rows


async def test_manual_fact_and_promoted_fact_are_both_current(store: AnyFactStore) -> None:
    (fact,) = await promote(store, TEA)
    corrected = fact.model_copy(
        update={"id": "mine", "payload": fact.payload | {"object": "water"}}
    )

    await store.correct(corrected, by="me", reason="it is so")

    assert await objects(store) == {"tea", "water"}


async def test_graph_promotes_a_triple_again_when_its_retraction_is_undone(
    store: AnyFactStore,
) -> None:
    (fact,) = await promote(store, TEA)
    await store.retract(fact.id, by="me", reason="it is wrong")
    await store.ledger.undo(await last_firing(store), at=at(20), by="me", dry_run=False)

    (again,) = await promote(store, TEA | {"confidence": 0.5})

    assert again.confidence == 0.5


async def test_undo_withdraws_a_whole_promotion_for_good(
    store: AnyFactStore,
) -> None:
    await promote(store, TEA, WORK)
    firing = await last_firing(store)
    assert firing == "@graph/team@1"

    await store.ledger.undo(firing, at=at(20), by="me", dry_run=False)
    rows = await rows_in(store)
    await promote(store, TEA, WORK)

    assert await store.query(ANYTHING) == []
    assert await rows_in(store) == rows
    (fact,) = await promote(store, TEA | {"confidence": 0.5})
    assert fact.confidence == 0.5
    await verify_and_replay(store)


async def test_undone_change_restores_the_fact_before_it(store: AnyFactStore) -> None:
    await promote(store, TEA)
    await promote(store, TEA | {"object": "mate"})
    await store.ledger.undo(await last_firing(store), at=at(20), by="me", dry_run=False)
    assert await objects(store) == {"tea"}
    rows = await rows_in(store)

    for drink in ("mate", "tea", "mate"):
        await promote(store, TEA | {"object": drink})

    assert await objects(store) == {"tea"}
    assert await rows_in(store) == rows


async def test_promotion_skips_an_id_that_another_users_fact_has(store: AnyFactStore) -> None:
    taken = fact_id_for(
        GraphTriple("t1", "alice", "likes", "tea", 1.0), Owner("team", "alice", "rag", "x")
    )
    await fire_episode(store, taken, 1, user="mallory", subject="a", predicate="b", object="theirs")

    (other,) = await promote(store, TEA, WORK)

    assert other.payload["object"] == "Acme"
    (theirs,) = await store.query(FactPattern(user="mallory"))
    assert (theirs.id, theirs.payload["object"]) == (taken, "theirs")
    await verify_and_replay(store)


async def test_erased_scope_gets_no_promoted_facts(store: AnyFactStore) -> None:
    await promote(store, TEA)
    scope = ScopeFilter.of("alice", None, None)
    await store.erasures.forget(scope, moment=10**15, at=at(20), by="me", dry_run=False)

    assert await promote(store, TEA, WORK, clock=FakeClock(at(10**7))) == []

    assert await store.query(ANYTHING) == []
    assert await promote(store, TEA, user="bob")
    _, _, broken = await store.verify()
    assert broken is None


async def test_query_that_writes_is_not_run(store: AnyFactStore) -> None:
    graph = FakeGraphStore(TEA)

    with pytest.raises(UnportableCypherError) as refused:
        await PromoteTriplesToFacts(
            graph, store, None, filter_cypher="MATCH (n) DELETE n", rule_id="r", agent_id="a"
        )

    assert (refused.value.rule, graph.queries) == ("write-in-promotion", [])


async def test_value_that_is_not_a_fact_store_is_refused_before_the_query() -> None:
    graph = FakeGraphStore(TEA)

    with pytest.raises(PromotionError, match="a FakeGraphStore is not a fact store"):
        await PromoteTriplesToFacts(
            graph, graph, None, filter_cypher=BARE, rule_id="r", agent_id="a"  # type: ignore[arg-type]  # the test needs it
        )  # fmt: skip

    assert graph.queries == []


async def test_fact_without_a_user_has_an_empty_user(store: AnyFactStore) -> None:
    (fact,) = await PromoteTriplesToFacts(
        FakeGraphStore(TEA), store, None, filter_cypher=QUERY, rule_id="r", agent_id="a"
    )

    assert (fact.user, fact.agent) == ("", "a")


@pytest.mark.parametrize("named", [{"rule_id": ""}, {"rule_id": "a\0"}, {"user": "\ud800"}])
async def test_id_that_the_ledger_cannot_store_is_refused(
    store: AnyFactStore, named: dict[str, str]
) -> None:
    with pytest.raises(PromotionError, match="rule_id must be non-empty"):
        await promote(store, TEA, **named)


async def test_dry_run_writes_nothing(store: AnyFactStore) -> None:
    fact = Fact(
        id="graph:1", user="u", agent="a",
        payload={"subject": "s", "predicate": "p", "object": "o"},
        lineage=[{"triple_id": "1"}], confidence=1.0, pinned_at=START,
    )  # fmt: skip

    promoted = await store.promote([fact], rule_id="team", dry_run=True)

    assert len(promoted.facts) == 1
    assert await store.query(ANYTHING) == []
    assert await rows_in(store) == 0


STATEMENTS = st.tuples(st.sampled_from("st"), st.sampled_from("xyz"), st.sampled_from("12"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("promote"), st.lists(STATEMENTS, max_size=3)),
        st.tuples(st.just("unpin"), STATEMENTS),
        st.tuples(st.just("pin"), STATEMENTS),
        st.tuples(st.just("undo"), st.integers(0, 9)),
        st.tuples(st.just("episode"), STATEMENTS),
    ),
    min_size=1,
    max_size=8,
)


def _consistent_rows(triples: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Return rows without contradictions: one object for each subject, one triple for each id."""
    by_subject = {subject: (subject, object_, id) for subject, object_, id in triples}
    by_id = {id: triple for triple in by_subject.values() for id in triple[2:]}
    return [
        row(subject, "is", object_, triple_id=id) for id, (subject, object_, _) in by_id.items()
    ]


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(20, full=120), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_promoting_twice_equals_promoting_once_and_keeps_manual_edits(
    steps: list[tuple[str, Any]],
) -> None:
    asyncio.run(_run_steps(steps, new_files))


@pytest.mark.sampled
@settings(max_examples=amount(4, full=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_promoting_twice_into_a_database_equals_promoting_once_and_keeps_manual_edits(
    new_databases: NewStores, steps: list[tuple[str, Any]]
) -> None:
    asyncio.run(_run_steps(steps, new_databases))


async def _run_steps(steps: list[tuple[str, Any]], new_stores: NewStores) -> None:
    clock = FakeClock()
    with new_stores() as provider:
        async with provider.facts(clock=clock) as store:
            await store.bootstrap()
            for number, (action, values) in enumerate(steps, 1):
                clock.advance(10)
                await _run_step(store, clock, number, action, values)
            await verify_and_replay(store)


async def _run_step(
    store: AnyFactStore, clock: FakeClock, number: int, action: str, values: Any
) -> None:
    facts = {fact.id: fact for fact in await store.query(ANYTHING)}
    match action:
        case "promote":
            pinned = {id for id in facts if id.startswith("mine")}
            await promote(store, *_consistent_rows(values), clock=clock)
            after = {fact.id for fact in await store.query(ANYTHING)}
            assert pinned <= after
            rows = await rows_in(store)
            await promote(store, *_consistent_rows(values), clock=clock)
            assert await rows_in(store) == rows
            assert {fact.id for fact in await store.query(ANYTHING)} == after
        case "unpin":
            for fact_id in itertools.islice(facts, 1):
                await store.unpin(fact_id)
        case "pin":
            payload = {"subject": values[0], "predicate": "is", "object": values[1]}
            await store.pin(
                Fact(
                    id=f"mine{number}", user="alice", agent="rag", payload=payload,
                    lineage=[{"kind": "manual"}], confidence=1.0, pinned_at=START,
                )
            )  # fmt: skip
        case "undo":
            firings = [
                record for record in await store.reads.records(limit=999) if record.kind == "firing"
            ]
            if firings:
                firing_id = firings[values % len(firings)].firing_id
                await store.ledger.undo(firing_id, at=clock.now(), by="me", dry_run=False)
        case _:
            seconds = int((clock.now() - START).total_seconds())
            await fire_episode(
                store, f"e{number}", seconds, subject=values[0], predicate="is", object=values[1]
            )
