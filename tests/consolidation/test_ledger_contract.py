"""The contract of every ledger: watermarks, batches, and the rows whose lines are not written."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.consolidation.protocols import FactTarget, Ledger, Watermarks
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import SkippedEpisodesError, StoppedError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Counts, Firing, HeldBatch, Limits, Outcome, Position
from slumberd.storage.facts.apply import WatermarkTable
from slumberd.storage.facts.ledger import FactLedger
from slumberd.storage.facts.store import EngineFactStore
from tests.support.builders import START, at, rule, version
from tests.support.fakes import FakeLedger
from tests.support.providers import maker_of
from tests.support.selection import ENGINES

pytestmark = pytest.mark.integration

ALL = rule("all")
OTHER = rule("other", then_emits=["notes"])
EVERYTHING = 1_000
READABLE = {"subject": "alice", "predicate": "likes", "object": "tea"}
UNREADABLE = {"intent": "remember"}


class Approval(Protocol):
    """A ledger, and a way to hold a batch until a person approves it."""

    @property
    def store(self) -> FactTarget: ...
    async def hold(self, upto: Position) -> None: ...


class FakeApproval:
    """The fake: `hold` sets the batch that awaits approval."""

    def __init__(self) -> None:
        self.store = FakeLedger()

    async def hold(self, upto: Position) -> None:
        self.store.holds[ALL.id] = HeldBatch(ALL.id, "all@1", upto, "too many", approved=False)


class StoreApproval:
    """A store: it holds a batch that deletes too many facts."""

    def __init__(self, store: EngineFactStore) -> None:
        self.store = store

    async def hold(self, upto: Position) -> None:
        first = statement(1, **READABLE)
        await self.store.apply_deltas(DeltaBatch(firing([first]), evaluate([first], ALL)))
        retraction = statement(upto.seq, intent="delete", replaces=["e1"])
        held = replace(firing([retraction]), upto=upto, limits=Limits(max_deletes=0))
        assert (
            await self.store.apply_deltas(DeltaBatch(held, evaluate([retraction], ALL)))
        ).held is not None


@pytest.fixture(params=["fake", *ENGINES])
async def approval(request: pytest.FixtureRequest) -> AsyncIterator[Approval]:
    if request.param == "fake":
        yield FakeApproval()
        return
    with maker_of(request.param, request)() as provider:
        async with provider.facts() as store:
            await store.bootstrap()
            yield StoreApproval(store)


@pytest.fixture
def store(approval: Approval) -> FactTarget:
    return approval.store


def statement(number: int, **metadata: object) -> EpisodeVersion:
    """Return the version in this row of the log; each row has another episode."""
    return version(f"e{number}", seq=number, timestamp=at(number), metadata=metadata)


def firing(versions: Sequence[EpisodeVersion], fired: str = ALL.id, seconds: float = 0) -> Firing:
    upto = Position(versions[-1].seq, versions[-1].id)
    return Firing(fired, "", "every", at(seconds), BEGINNING, upto)


async def fire(store: FactTarget, *versions: EpisodeVersion, seconds: float = 0) -> Outcome:
    return await store.apply_deltas(
        DeltaBatch(firing(versions, seconds=seconds), evaluate(versions, ALL))
    )


@pytest.mark.parametrize(
    ("implementation", "port"),
    [
        (FakeLedger, FactTarget),
        (EngineFactStore, FactTarget),
        (FakeLedger, Ledger),
        (FactLedger, Ledger),
        (FakeLedger, Watermarks),
        (WatermarkTable, Watermarks),
    ],
)
def test_methods_of_a_ledger_have_the_signatures_of_the_protocol(
    implementation: type, port: type
) -> None:
    for name, method in inspect.getmembers(port, inspect.isfunction):
        if name.startswith("_"):
            continue
        implemented = getattr(implementation, name)
        assert inspect.iscoroutinefunction(implemented) == inspect.iscoroutinefunction(method), name
        assert list(inspect.signature(implemented).parameters) == list(
            inspect.signature(method).parameters
        ), name


async def test_new_ledger_knows_no_rule(store: FactTarget) -> None:
    assert await store.watermarks.position("all") is None
    assert await store.watermarks.positions() == {}
    assert await store.watermarks.served("all") is None
    assert await store.watermarks.batch_ends("all") == []
    assert await store.watermarks.held() == {}
    assert await store.watermarks.unlogged(limit=EVERYTHING) == []
    assert (await store.ledger.head()).rows == 0


async def test_rule_begins_at_its_first_watermark_only(store: FactTarget) -> None:
    await store.watermarks.begin("all", Position(3, "e3"), served=at(5))
    await store.watermarks.begin("all", Position(9, "e9"), served=at(9))

    assert await store.watermarks.position("all") == Position(3, "e3")
    assert await store.watermarks.served("all") == at(5)
    assert await store.watermarks.positions() == {"all": (Position(3, "e3"), at(5))}


async def test_first_watermark_is_not_the_end_of_a_batch(store: FactTarget) -> None:
    await store.watermarks.begin("all", Position(3, "e3"), served=START)

    assert await store.watermarks.batch_ends("all") == []


async def test_batch_moves_the_watermark_of_its_rule_only(store: FactTarget) -> None:
    await store.watermarks.begin("other", BEGINNING, served=START)

    await fire(store, statement(1), statement(2))

    assert await store.watermarks.position("all") == Position(2, "e2")
    assert await store.watermarks.position("other") == BEGINNING


async def test_batch_ends_are_listed_newest_first(store: FactTarget) -> None:
    await fire(store, statement(1))
    await fire(store, statement(2), statement(3))

    assert await store.watermarks.batch_ends("all") == [Position(3, "e3"), Position(1, "e1")]


async def test_rewound_watermark_leaves_the_batch_ends_unchanged(store: FactTarget) -> None:
    await fire(store, statement(1))
    await fire(store, statement(2))

    await store.watermarks.rewind("all", Position(1, "e1"))

    assert await store.watermarks.position("all") == Position(1, "e1")
    assert await store.watermarks.batch_ends("all") == [Position(2, "e2"), Position(1, "e1")]


async def test_served_instant_never_moves_back(store: FactTarget) -> None:
    await store.watermarks.begin("all", BEGINNING, served=at(5))

    await store.watermarks.serve("all", at(9), succeeded_at=at(10))
    await store.watermarks.serve("all", at(7))

    assert await store.watermarks.served("all") == at(9)


async def test_served_instant_of_a_wrong_clock_is_set_to_now(store: FactTarget) -> None:
    await store.watermarks.begin("all", BEGINNING, served=at(500))

    await store.watermarks.correct_served("all", at(9))
    await store.watermarks.correct_served("all", at(10))

    assert await store.watermarks.served("all") == at(9)


async def test_rule_that_never_began_has_no_served_instant(store: FactTarget) -> None:
    await store.watermarks.serve("all", at(9))

    assert await store.watermarks.served("all") is None
    assert await store.watermarks.position("all") is None


async def test_rule_that_began_with_a_batch_is_served_later_instants(store: FactTarget) -> None:
    await fire(store, statement(1))
    await store.watermarks.serve("all", at(9))

    assert await store.watermarks.served("all") == at(9)


async def test_batch_adds_its_own_row_first_and_is_named_after_it(store: FactTarget) -> None:
    first = await fire(store, statement(1, **READABLE))
    second = await fire(store, statement(2), statement(3, **UNREADABLE))

    assert (first.firing_id, second.firing_id) == ("all@1", "all@3")
    assert [(row.seq, row.kind, row.fact_id) for row in first.records] == [
        (1, "firing", ""),
        (2, "add", "e1"),
    ]
    assert [row.kind for row in second.records] == ["firing", "add", "quarantine"]
    assert {row.firing_id for row in second.records} == {"all@3"}
    assert first.held is None


async def test_batch_accounts_for_each_version_in_each_channel(store: FactTarget) -> None:
    unmatched = statement(3)._replace(matched=False)
    versions = [statement(1), statement(2, **UNREADABLE), unmatched]

    outcome = await fire(store, *versions)

    assert outcome.channels == {"facts": Counts(read=3, filtered=1, added=1, quarantined=1)}


async def test_claim_that_is_known_has_no_effect(store: FactTarget) -> None:
    await fire(store, statement(1))

    outcome = await fire(store, statement(1))

    assert outcome.channels == {"facts": Counts(read=1, noop=1)}


async def test_recorded_instants_never_decrease(store: FactTarget) -> None:
    await fire(store, statement(1), seconds=9)

    outcome = await fire(store, statement(2), seconds=4)

    assert outcome.firing.at == at(9)
    assert {row.at for row in outcome.records} == {at(9)}


async def test_batch_that_is_stopped_writes_nothing(store: FactTarget) -> None:
    versions = [statement(1)]

    with pytest.raises(StoppedError):
        await store.apply_deltas(
            DeltaBatch(firing(versions), evaluate(versions, ALL)), cancelled=lambda: True
        )

    assert (await store.ledger.head()).rows == 0
    assert await store.watermarks.position("all") is None


async def test_batch_calls_on_decided_before_it_writes(store: FactTarget) -> None:
    decided = []
    versions = [statement(1)]

    await store.apply_deltas(
        DeltaBatch(firing(versions), evaluate(versions, ALL)),
        on_decided=lambda: decided.append(1),
        cancelled=lambda: False,
    )

    assert decided == [1]


async def test_rehearsal_returns_the_outcome_and_writes_nothing(store: FactTarget) -> None:
    versions = [statement(1), statement(2, **UNREADABLE)]

    rehearsed = await store.apply_deltas(
        DeltaBatch(firing(versions), evaluate(versions, ALL)), dry_run=True
    )

    assert (await store.ledger.head()).rows == 0
    assert await store.watermarks.position("all") is None
    committed = await fire(store, *versions)
    assert rehearsed.channels == committed.channels
    assert [row.kind for row in rehearsed.records] == [row.kind for row in committed.records]


async def test_episode_is_quarantined_for_its_rule_until_a_version_is_readable(
    store: FactTarget,
) -> None:
    await fire(store, statement(2, **UNREADABLE), statement(1, **UNREADABLE))
    assert await store.ledger.quarantined_of("all") == ["e1", "e2"]
    assert await store.ledger.quarantined_of("other") == []

    await fire(store, statement(1)._replace(seq=3))

    assert await store.ledger.quarantined_of("all") == ["e2"]


async def test_batch_awaits_approval_until_the_watermark_passes_it(approval: Approval) -> None:
    await approval.hold(Position(5, "e5"))
    held = (await approval.store.watermarks.held())["all"]
    assert (held.rule_id, held.upto, held.approved) == ("all", (5, "e5"), False)

    await fire(approval.store, statement(4))
    assert "all" in await approval.store.watermarks.held()
    await fire(approval.store, statement(5))

    assert await approval.store.watermarks.held() == {}


async def test_rewound_rule_has_no_batch_that_awaits_approval(approval: Approval) -> None:
    await approval.hold(Position(5, "e5"))

    await approval.store.watermarks.rewind("all", Position(1, "e1"))

    assert await approval.store.watermarks.held() == {}


async def test_rows_are_unlogged_until_they_are_marked_as_logged(store: FactTarget) -> None:
    await fire(store, statement(1), statement(2))
    await fire(store, statement(3))
    assert [row.seq for row in await store.watermarks.unlogged(limit=2)] == [1, 2]

    await store.watermarks.mark_logged(4)
    await store.watermarks.mark_logged(2)

    assert [row.seq for row in await store.watermarks.unlogged(limit=EVERYTHING)] == [5]


async def test_only_a_batch_changes_the_head(store: FactTarget) -> None:
    empty = await store.ledger.head()
    await fire(store, statement(1))
    first = await store.ledger.head()
    await store.watermarks.begin("other", BEGINNING, served=START)
    await store.watermarks.mark_logged(1)
    await store.checkpoint_after_backlog()
    assert await store.ledger.head() == first
    await fire(store, statement(2))
    second = await store.ledger.head()

    assert (empty.rows, first.rows, second.rows) == (0, 2, 4)
    assert len({empty.head, first.head, second.head}) == 3
    assert {len(empty.head), len(first.head)} == {32}


async def test_ledger_without_a_checkpoint_on_close_still_commits_a_batch(
    store: FactTarget,
) -> None:
    await fire(store, statement(1))

    store.skip_checkpoint_on_close()

    assert (await fire(store, statement(2))).firing_id == "all@3"


async def test_batch_that_would_pass_over_unread_rows_is_refused(store: FactTarget) -> None:
    gap = replace(firing([statement(5)]), after=Position(4, "e4"))
    batch = DeltaBatch(gap, evaluate([statement(5)], ALL))

    with pytest.raises(SkippedEpisodesError, match="has read up to log row 0"):
        await store.apply_deltas(batch)

    assert await store.watermarks.position("all") is None
    assert (await store.apply_deltas(batch, dry_run=True)).channels["facts"].added == 1


async def test_current_facts_are_found_by_channel_page_by_page(store: FactTarget) -> None:
    await fire(store, *map(statement, (1, 2, 3)))
    pattern = FactPattern(channel="facts", limit=2)

    first = await store.query(pattern)
    second = await store.query(pattern.following(first[-1]))

    assert [fact.id for fact in (*first, *second)] == ["e1", "e2", "e3"]
    assert {entry["rule_id"] for fact in first for entry in fact.lineage} == {"all"}
    assert await store.query(FactPattern(channel="marks")) == []


async def test_withdrawn_fact_is_found_no_more(store: FactTarget) -> None:
    await fire(store, statement(1))
    await fire(store, statement(2)._replace(id="e1", matched=False))

    assert await store.query(FactPattern(channel="facts")) == []


async def test_episodes_that_facts_cite_are_told_from_others(store: FactTarget) -> None:
    await fire(store, statement(1), statement(2))
    await fire(store, statement(3)._replace(id="e2", matched=False))

    assert await store.cited_episodes(["e1", "e2", "e9"]) == {"e1"}
    assert await store.cited_episodes([]) == set()


async def test_mark_does_not_count_as_a_fact_that_cites(store: FactTarget) -> None:
    versions = [statement(1)]
    marks = evaluate(versions, rule("all", then_emits=["marks"]))

    await store.apply_deltas(DeltaBatch(firing(versions), marks))

    assert await store.cited_episodes(["e1"]) == set()
