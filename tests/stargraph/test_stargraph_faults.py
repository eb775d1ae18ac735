"""Faults of Stargraph 0.8.0 that slumberd does not have.

A fault of severity s1 loses data or crosses tenants; one of severity s2 is wrong or blocks. The
name of a test has the severity and the number of its fault. `SHOWN_BY` names tests of other
modules, and `NOT_OURS` gives reasons.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from slumberd.model.delta import UpdateDelta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.salience import NEVER, Gate, SalienceContext, salience
from slumberd.workers.scheduling.cron import missed_instants
from slumberd.workers.scheduling.due import due_cron, why_skipped
from tests.support.builders import START, at, episode, rule, triple
from tests.support.lists import of_each
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.repository import TESTS

pytestmark = pytest.mark.acceptance

S1 = """
A01 A02 A03 A05 A06 A09 B01 B02 B04 B05 B06 B09 B17 B18 C01 C02 D01 D02 D05 D06 D07 F01 G02
"""
S2 = """
A04 A07 A11 B03 B08 B11 B12 D09 D10 D11 D13 D14 E01 E02 E03 E04 E05 E07 F02 F03 F06 F08 F09 F10 G01
"""

NOT_OURS = {
    "D13": "promotions reach Fathom from the ledger, by the provenance publisher",
    "F06": "slumberd has no adapter for Fathom",
    "G02": "slumberd has no node of a graph",
}

SHOWN_BY = {
    "A01": "storage/episodes/test_memory_store_contract.py::"
    "test_other_spelling_of_a_user_reads_no_episode",
    "A02": "consolidation/test_tenants.py::test_a_tenant_reads_the_same_beside_a_hostile_tenant",
    "A03": "storage/episodes/test_memory_store_contract.py::"
    "test_a_slash_in_an_id_injects_nothing_into_another_scope",
    "A04": "storage/episodes/test_memory_store_contract.py::test_invalid_scope_is_refused",
    "A05": "storage/episodes/test_memory_store_contract.py::"
    "test_a_scope_that_contradicts_the_episode_is_refused",
    "A06": "storage/episodes/test_memory_store_contract.py::"
    "test_an_id_of_another_scope_is_refused_and_nothing_is_written",
    "A07": "daemon/test_growth.py::test_read_takes_the_same_steps_in_a_large_store",
    "C01": "rules/filters/test_sandbox.py::test_hostile_filter_is_refused_before_sqlite_reads_it",
    "C02": "rules/filters/test_sandbox.py::"
    "test_fragment_that_the_tokenizer_accepts_by_mistake_reads_only_its_rows",
    "D01": "daemon/test_kills.py::"
    "test_kills_lose_nothing_while_another_process_writes",
    "D05": "storage/facts/test_fact_store_contract.py::"
    "test_reader_never_misses_the_fact",
    "D07": "storage/facts/test_fact_store_contract.py::"
    "test_an_id_that_another_scope_holds_is_refused",
    "D10": "storage/facts/test_fact_store_contract.py::"
    "test_noop_delta_is_recorded_and_changes_no_fact",
    "D11": "storage/facts/test_fact_store_contract.py::"
    "test_payload_without_an_id_always_gets_the_same_id",
    "D14": "daemon/test_growth.py::test_read_takes_the_same_steps_in_a_large_store",
    "E01": "storage/sqlite/test_episode_log.py::"
    "test_health_reports_a_missing_file_and_creates_nothing",
    "E02": "storage/sqlite/test_fact_file.py::"
    "test_health_reports_that_another_program_holds_the_lock",
    "E03": "storage/sqlite/test_episode_log.py::test_health_reports_a_file_of_another_program",
    "E04": "storage/episodes/test_memory_store_contract.py::"
    "test_a_migration_adds_its_column_once_and_is_recorded",
    "E05": "storage/episodes/test_memory_store_contract.py::"
    "test_one_store_serves_several_event_loops",
    "F01": "workers/graph/test_promotion.py::"
    "test_provenance_names_a_source_that_every_sink_accepts_for_any_path",
    "F02": "workers/graph/test_promotion.py::"
    "test_second_promotion_changes_neither_facts_nor_ledger",
    "F03": "workers/graph/test_promotion.py::"
    "test_invalid_confidence_is_refused_with_its_row",
    "F10": "workers/scheduling/test_due.py::"
    "test_instant_at_or_before_the_last_one_served_never_fires_again",
    "G01": "storage/episodes/test_memory_store_contract.py::"
    "test_very_long_user_is_read_unchanged",
}  # fmt: skip


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[OpenStores]:
    async with open_stores(tmp_path) as stores:
        yield stores


async def put_and_fire(home: OpenStores, *episodes: Any) -> dict[str, object]:
    """Put episodes, fire, and return the object of each fact."""
    await home.put(*episodes)
    await home.fire()
    return await home.objects()


def write_row(path: Path, id: str, timestamp: str, metadata: str) -> None:
    """Write an episode of alice as another program does."""
    scope = {"user": "alice", "session": "s1", "agent": "rag"}
    content = orjson.dumps({"content": id, "source_node": "chat", **scope})
    row = (id, "/user/alice/session/s1/agent/rag/", content, timestamp, metadata.encode())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)


def metadata_with(object_: str) -> str:
    return orjson.dumps({"subject": "s", "predicate": "is", "object": object_}).decode()


async def test_s1_a09_later_instant_wins_in_any_offset(home: OpenStores, tmp_path: Path) -> None:
    await home.memory.bootstrap()
    write_row(tmp_path / "memory.db", "older", "2026-01-01T10:00:00+05:00", metadata_with("stale"))
    write_row(tmp_path / "memory.db", "newer", "2026-01-01T06:00:00+00:00", metadata_with("fresh"))

    assert await put_and_fire(home) == {"newer": "fresh"}
    assert [episode.id for episode in await home.memory.recent("alice", limit=1)] == ["newer"]


async def test_s2_a11_last_id_wins_of_equal_instants_however_often_each_is_put(
    home: OpenStores,
) -> None:
    first, last = triple("a", "s", "is", "x"), triple("b", "s", "is", "y")

    assert await put_and_fire(home, last, first) == {"b": "y"}
    assert await put_and_fire(home, first, last, first) == {"b": "y"}


async def test_s1_b01_b02_users_and_agents_do_not_share_keys(home: OpenStores) -> None:
    others = [{"user": "bob"}, {"agent": "planner"}]
    same = [triple(f"e{n}", "s", "is", n, **other) for n, other in enumerate(others)]

    objects = await put_and_fire(home, triple("e9", "s", "is", 9), *same)

    assert objects == {"e9": 9, "e0": 0, "e1": 1}


async def test_s2_b03_multi_valued_predicate_has_several_objects(home: OpenStores) -> None:
    await home.facts.ledger.set_channels({"facts": frozenset({"knows"})}, at=START)
    knows = [triple(name, "alice", "knows", name) for name in ("bob", "carol", "dave")]

    assert set(await put_and_fire(home, *knows)) == {"bob", "carol", "dave"}


@pytest.mark.parametrize("nothing", [None, "", 5])
async def test_s1_b04_episode_without_a_subject_replaces_nothing(
    home: OpenStores, nothing: Any
) -> None:
    unrelated = [triple(f"e{n}", nothing, nothing, n) for n in range(3)]

    assert set(await put_and_fire(home, *unrelated)) == {"e0", "e1", "e2"}


async def test_s1_b05_fact_that_a_person_retracted_stays_retracted(home: OpenStores) -> None:
    await put_and_fire(home, triple("e1", "s", "is", "a"))
    await home.facts.unpin("e1")

    assert await put_and_fire(home, triple("e2", "t", "is", "b", timestamp=at(1))) == {"e2": "b"}


async def test_s1_b06_fact_that_a_person_corrected_stays_corrected(home: OpenStores) -> None:
    await put_and_fire(home, triple("e1", "s", "is", "a"))
    body = {"subject": "s", "predicate": "is", "object": "corrected"}
    lineage = [{"by": "a person"}]
    await home.facts.pin(
        Fact(
            id="e1", user="alice", agent="rag", payload=body, lineage=lineage, confidence=1.0,
            pinned_at=START,
        )
    )  # fmt: skip

    await home.fire(rule("another"))

    assert await put_and_fire(home, triple("e2", "t", "is", "b")) == {"e1": "corrected", "e2": "b"}


async def test_s2_b08_superseded_fact_never_returns_during_a_firing(
    home: OpenStores,
) -> None:
    values = [triple(f"e{n}", "s", "is", n, timestamp=at(n)) for n in range(3)]
    await put_and_fire(home, *values)

    report = await home.fire(rule("another"))

    assert await home.objects() == {"e2": 2}
    again = {line.kind for line in home.log.lines if line.rule_id == "another"}
    assert again == {"noop", "update"}
    assert report.channels["facts"].added == 0


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"intent": "update"}, id="b09 update without replaces"),
        pytest.param({"intent": "delete"}, id="b09 delete without replaces"),
        pytest.param({"intent": "delete", "replaces": 5}, id="replaces is a number"),
    ],
)
async def test_s1_b09_bad_episode_blocks_no_other(
    home: OpenStores, metadata: dict[str, Any]
) -> None:
    bad = episode("bad", user="mallory", metadata=metadata)

    found = await put_and_fire(home, bad, triple("e1", "s", "is", "a"))

    assert found["e1"] == "a"
    assert await put_and_fire(home, triple("e2", "t", "is", "b")) == {**found, "e2": "b"}


@pytest.mark.parametrize("intent", ["DELETE", "Noop", "remove", "add ", 1, True])
async def test_s2_b11_intent_of_another_spelling_asserts_nothing(
    home: OpenStores, intent: Any
) -> None:
    odd = triple("e1", "s", "is", "a", metadata={"intent": intent})

    assert await put_and_fire(home, odd) == {}
    quarantined = await home.facts.reads.quarantine()
    assert [episode["reason"] for episode in quarantined] == ["intent_unknown"]


async def test_s2_b12_explicit_update_leaves_one_value_of_its_key(home: OpenStores) -> None:
    naming = {"intent": "update", "replaces": ["e1"]}
    values = [
        triple("e1", "s", "is", 1),
        triple("e2", "s", "is", 2, timestamp=at(1), metadata=naming),
        triple("e3", "s", "is", 3, timestamp=at(2)),
    ]

    assert await put_and_fire(home, *values) == {"e3": 3}


async def test_s1_b17_lineage_names_both_rules_that_evaluated_an_episode(
    home: OpenStores,
) -> None:
    await put_and_fire(home, triple("e1", "s", "is", "a"))

    await home.fire(rule("another"))

    [fact] = await home.facts.query(FactPattern())
    assert [entry["rule_id"] for entry in fact.lineage] == ["all", "another"]


async def test_s1_b18_undecodable_row_blocks_no_other(home: OpenStores, tmp_path: Path) -> None:
    await home.put(triple("e1", "s", "is", "a"))
    write_row(tmp_path / "memory.db", "broken", START.isoformat(), '{"subject": ')

    assert await put_and_fire(home) == {"e1": "a"}


async def test_s1_d02_delta_that_cannot_be_written_removes_nothing(home: OpenStores) -> None:
    await put_and_fire(home, triple("e1", "s", "is", "a"))
    body = {"id": "e2", "user": "alice", "agent": "rag", "object": 2**70}
    delta = UpdateDelta(
        kind="update", fact_payload=body, replaces=["e1"], source_episode_ids=["e2"],
        promotion_ts=START, rule_id="r", confidence=1.0,
    )  # fmt: skip

    with pytest.raises((TypeError, ValueError)):
        await home.facts.apply_delta(delta)

    assert await home.objects() == {"e1": "a"}


@pytest.mark.parametrize("intent", ["delete", "update"])
@pytest.mark.parametrize("selected", [True, False], ids=["of the rule", "of another rule"])
async def test_s1_d06_delta_of_an_episode_removes_no_fact_of_another_user(
    home: OpenStores, intent: str, selected: bool
) -> None:
    """A host of Stargraph consolidates, and applies each delta itself."""
    await put_and_fire(home, triple("e1", "s", "is", "a"))
    naming = {"intent": intent, "replaces": ["e1"]}
    await home.put(triple("m1", "s", "is", "b", user="mallory", metadata=naming))

    own = rule("r", when_filter="" if selected else "user = 'mallory'")
    for delta in await home.memory.consolidate(own):
        await home.facts.apply_delta(delta)

    assert (await home.objects())["e1"] == "a"


async def test_s2_d09_lineage_and_ledger_keep_every_step(home: OpenStores) -> None:
    for n in range(3):
        await put_and_fire(home, triple(f"e{n}", "s", "is", n, timestamp=at(n)))

    [fact] = await home.facts.query(FactPattern())
    assert [entry.get("replaces") for entry in fact.lineage] == [None, "e1", "e0"]
    assert (await home.facts.why("e0")).taken_out is not None


async def test_s2_e07_event_loop_turns_while_a_large_batch_is_resolved(home: OpenStores) -> None:
    await home.put(*stream(1_500))
    firing = asyncio.create_task(home.fire())  # noqa: TID251 # awaited below
    turns = 0

    while not firing.done():
        await asyncio.sleep(0)
        turns += 1

    assert (await firing).channels["facts"].added == 1_500
    assert turns > 20


def test_s2_f08_salience_is_a_positive_number_with_any_last_access() -> None:
    said_at = microseconds(START)
    naive = START.replace(tzinfo=None)
    ahead = START + timedelta(days=3_653)

    assert Gate(min=0.019).judge(said_at, NEVER, at=START) is None
    for last in (naive, ahead):
        known = SalienceContext(last_access_ts=last, access_count=1, rule_match_count=1)
        assert 0 < salience(known, at=START) < 1
    partly = SalienceContext(
        last_access_ts=START, access_count=1, rule_match_count=1, weights={"importance": 0.5}
    )
    assert 0 < salience(partly, at=START, importance=1.0) < 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"decay_tau_seconds": 0},
        {"decay_tau_seconds": -1},
        {"weights": {"recency": float("nan")}},
        {"access_count": -1, "rule_match_count": -1},
    ],
    ids=str,
)
def test_s2_f08_salience_context_refuses_invalid_values(wrong: dict[str, Any]) -> None:
    known = {"last_access_ts": START, "access_count": 1, "rule_match_count": 1}

    with pytest.raises(ValidationError):
        SalienceContext.model_validate(known | wrong)


def test_s2_f09_monthly_instant_missed_days_ago_is_caught_up() -> None:
    monthly, begun, now = "0 3 1 * *", at(0), at(0) + timedelta(days=33)
    due = due_cron(
        "r1", missed_instants(monthly, "UTC", after=begun, until=now), served=begun, now=now
    )

    assert due is not None
    assert due.trigger == "catchup"
    assert why_skipped(due, "run_once", timedelta(days=7), now=now, since=now) == ""


def numbers(listed: str) -> set[str]:
    return set(listed.split())


def faults_shown_in_this_module() -> set[tuple[str, str]]:
    """Return severity and number of each fault in the names of this module's tests."""
    found = re.findall(
        r"^(?:async )?def test_(s[12])((?:_[a-g]\d\d)+)_", Path(__file__).read_text(), re.MULTILINE
    )
    return {
        (severity, number.upper()) for severity, joined in found for number in joined[1:].split("_")
    }


def test_every_fault_has_a_test_or_a_reason() -> None:
    every = {("s1", number) for number in numbers(S1)} | {("s2", number) for number in numbers(S2)}
    here = faults_shown_in_this_module()
    numbers_here = {number for _, number in here}
    listed = SHOWN_BY.keys() | NOT_OURS.keys()

    assert here <= every
    assert numbers_here | listed == numbers(S1) | numbers(S2)
    assert not numbers_here & listed and not SHOWN_BY.keys() & NOT_OURS.keys()


@of_each(SHOWN_BY.values)
def test_every_listed_test_of_a_fault_exists(shown: str) -> None:
    file, name = shown.split("::")

    module = (TESTS / file).read_text()

    assert re.search(rf"^(async )?def {name}\(", module, re.MULTILINE)
