"""Faults of Stargraph 0.8.0 that lose data, cross tenants, are wrong or block: ours are right.

Each fault has its severity (s1 loses data or crosses tenants, s2 is wrong or blocks) and its number
in the name of the test that shows how it is here, or stands in `SHOWN_BY` or `NOT_OURS`.
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
from slumberd.scheduling.cron import missed_instants
from slumberd.scheduling.due import due_cron, why_skipped
from tests.support.builders import START, at, episode, rule, triple
from tests.support.open_stores import OpenStores, open_stores, stream

pytestmark = pytest.mark.acceptance

S1 = """
A01 A02 A03 A05 A06 A09 B01 B02 B04 B05 B06 B09 B17 B18 C01 C02 D01 D02 D05 D06 D07 F01 G02
"""
S2 = """
A04 A07 A11 B03 B08 B11 B12 D09 D10 D11 D13 D14 E01 E02 E03 E04 E05 E07 F02 F03 F06 F08 F09 F10 G01
"""

NOT_OURS = {
    "D13": "nothing is told to Fathom: provenance is the ledger's",
    "F06": "there is no adapter of Fathom",
    "G02": "no node of a graph writes episodes",
}

SHOWN_BY = {
    "A01": "storage/episodes/test_memory_store_contract.py::"
    "test_other_spelling_of_a_user_reads_no_episode",
    "A02": "consolidation/test_tenants.py::test_a_tenant_sees_the_same_beside_a_hostile_other",
    "A03": "storage/episodes/test_memory_store_contract.py::"
    "test_a_slash_in_an_id_injects_nothing_into_another_scope",
    "A04": "storage/episodes/test_memory_store_contract.py::test_invalid_scope_is_refused",
    "A05": "storage/episodes/test_memory_store_contract.py::"
    "test_a_scope_that_contradicts_the_episode_is_refused",
    "A06": "storage/episodes/test_memory_store_contract.py::"
    "test_an_id_of_another_scope_is_refused_and_nothing_is_written",
    "A07": "service/test_growth.py::test_a_read_takes_as_many_steps_of_much_as_of_little",
    "C01": "filters/test_sandbox.py::test_a_hostile_filter_is_refused_before_sqlite_sees_it",
    "C02": "filters/test_sandbox.py::"
    "test_what_slips_past_the_lexer_touches_nothing_that_is_not_a_filters",
    "D01": "service/test_kills.py::"
    "test_kills_while_another_process_writes_leave_the_gold",
    "D05": "storage/facts/test_fact_store_contract.py::"
    "test_reader_never_misses_the_fact",
    "D07": "storage/facts/test_fact_store_contract.py::"
    "test_an_id_that_another_scope_holds_is_refused",
    "D10": "storage/facts/test_fact_store_contract.py::"
    "test_noop_delta_is_recorded_and_changes_no_fact",
    "D11": "storage/facts/test_fact_store_contract.py::"
    "test_payload_without_an_id_always_gets_the_same_id",
    "D14": "service/test_growth.py::test_a_read_takes_as_many_steps_of_much_as_of_little",
    "E01": "storage/episodes/test_log.py::test_health_reports_a_missing_file_and_creates_nothing",
    "E02": "storage/facts/test_fact_store_contract.py::"
    "test_health_reports_that_another_program_holds_the_lock",
    "E03": "storage/episodes/test_log.py::test_health_reports_a_file_of_another_program",
    "E04": "storage/episodes/test_memory_store_contract.py::"
    "test_a_migration_adds_its_column_once_and_is_recorded",
    "E05": "storage/episodes/test_memory_store_contract.py::"
    "test_one_store_serves_several_event_loops",
    "F01": "graph/test_promotion.py::"
    "test_provenance_names_a_source_that_every_sink_takes_whatever_the_path_is",
    "F02": "graph/test_promotion.py::"
    "test_promoting_twice_changes_nothing_not_even_the_ledger",
    "F03": "graph/test_promotion.py::"
    "test_a_confidence_that_is_none_is_refused_with_its_row",
    "F10": "scheduling/test_due.py::"
    "test_instant_at_or_before_the_last_one_served_never_fires_again",
    "G01": "storage/episodes/test_memory_store_contract.py::"
    "test_very_long_user_is_read_unchanged",
}  # fmt: skip


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[OpenStores]:
    async with open_stores(tmp_path) as there:
        yield there


async def settled(home: OpenStores, *episodes: Any) -> dict[str, object]:
    """Put episodes, fire, and return the object of each fact."""
    await home.put(*episodes)
    await home.fire()
    return await home.objects()


def write_row(path: Path, id: str, timestamp: str, metadata: str) -> None:
    """Write an episode of alice's as another program does."""
    scope = {"user": "alice", "session": "s1", "agent": "rag"}
    content = orjson.dumps({"content": id, "source_node": "chat", **scope})
    row = (id, "/user/alice/session/s1/agent/rag/", content, timestamp, metadata.encode())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)


def said(what: str) -> str:
    return orjson.dumps({"subject": "s", "predicate": "is", "object": what}).decode()


async def test_s1_a09_the_later_instant_wins_whatever_its_offset(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.memory.bootstrap()
    write_row(tmp_path / "memory.db", "older", "2026-01-01T10:00:00+05:00", said("stale"))
    write_row(tmp_path / "memory.db", "newer", "2026-01-01T06:00:00+00:00", said("fresh"))

    assert await settled(home) == {"newer": "fresh"}
    assert [found_episode.id for found_episode in await home.memory.recent("alice", limit=1)] == [
        "newer"
    ]


async def test_s2_a11_of_equal_instants_the_last_id_wins_however_often_one_is_put(
    home: OpenStores,
) -> None:
    first, last = triple("a", "s", "is", "x"), triple("b", "s", "is", "y")

    assert await settled(home, last, first) == {"b": "y"}
    assert await settled(home, first, last, first) == {"b": "y"}


async def test_s1_b01_b02_a_key_is_one_users_with_one_agent(home: OpenStores) -> None:
    others = [{"user": "bob"}, {"agent": "planner"}]
    same = [triple(f"e{n}", "s", "is", n, **other) for n, other in enumerate(others)]

    assert await settled(home, triple("e9", "s", "is", 9), *same) == {"e9": 9, "e0": 0, "e1": 1}


async def test_s2_b03_a_predicate_may_hold_several_objects(home: OpenStores) -> None:
    await home.facts.ledger.set_channels({"facts": frozenset({"knows"})}, at=START)
    knows = [triple(name, "alice", "knows", name) for name in ("bob", "carol", "dave")]

    assert set(await settled(home, *knows)) == {"bob", "carol", "dave"}


@pytest.mark.parametrize("nothing", [None, "", 5])
async def test_s1_b04_what_has_no_subject_replaces_nothing(home: OpenStores, nothing: Any) -> None:
    unrelated = [triple(f"e{n}", nothing, nothing, n) for n in range(3)]

    assert set(await settled(home, *unrelated)) == {"e0", "e1", "e2"}


async def test_s1_b05_what_a_person_took_out_does_not_come_back(home: OpenStores) -> None:
    await settled(home, triple("e1", "s", "is", "a"))
    await home.facts.unpin("e1")

    assert await settled(home, triple("e2", "t", "is", "b", timestamp=at(1))) == {"e2": "b"}


async def test_s1_b06_what_a_person_corrected_stays_corrected(home: OpenStores) -> None:
    await settled(home, triple("e1", "s", "is", "a"))
    body = {"subject": "s", "predicate": "is", "object": "corrected"}
    lineage = [{"by": "a person"}]
    await home.facts.pin(
        Fact(
            id="e1", user="alice", agent="rag", payload=body, lineage=lineage, confidence=1.0,
            pinned_at=START,
        )
    )  # fmt: skip

    await home.fire(rule("another"))

    assert await settled(home, triple("e2", "t", "is", "b")) == {"e1": "corrected", "e2": "b"}


async def test_s2_b08_what_is_superseded_never_shows_again_while_a_firing_applies(
    home: OpenStores,
) -> None:
    values = [triple(f"e{n}", "s", "is", n, timestamp=at(n)) for n in range(3)]
    await settled(home, *values)

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
async def test_s1_b09_a_bad_episode_blocks_nobody(
    home: OpenStores, metadata: dict[str, Any]
) -> None:
    bad = episode("bad", user="mallory", metadata=metadata)

    found = await settled(home, bad, triple("e1", "s", "is", "a"))

    assert found["e1"] == "a"
    assert await settled(home, triple("e2", "t", "is", "b")) == {**found, "e2": "b"}


@pytest.mark.parametrize("intent", ["DELETE", "Noop", "remove", "add ", 1, True])
async def test_s2_b11_an_intent_of_another_spelling_asserts_nothing(
    home: OpenStores, intent: Any
) -> None:
    odd = triple("e1", "s", "is", "a", metadata={"intent": intent})

    assert await settled(home, odd) == {}
    assert [one["reason"] for one in await home.facts.reads.quarantine()] == ["intent_unknown"]


async def test_s2_b12_an_explicit_update_leaves_one_value_of_its_key(home: OpenStores) -> None:
    naming = {"intent": "update", "replaces": ["e1"]}
    values = [
        triple("e1", "s", "is", 1),
        triple("e2", "s", "is", 2, timestamp=at(1), metadata=naming),
        triple("e3", "s", "is", 3, timestamp=at(2)),
    ]

    assert await settled(home, *values) == {"e3": 3}


async def test_s1_b17_two_rules_over_one_episode_both_stand_in_its_lineage(
    home: OpenStores,
) -> None:
    await settled(home, triple("e1", "s", "is", "a"))

    await home.fire(rule("another"))

    [fact] = await home.facts.query(FactPattern())
    assert [entry["rule_id"] for entry in fact.lineage] == ["all", "another"]


async def test_s1_b18_a_row_that_cannot_be_decoded_blocks_nobody(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(triple("e1", "s", "is", "a"))
    write_row(tmp_path / "memory.db", "broken", START.isoformat(), '{"subject": ')

    assert await settled(home) == {"e1": "a"}


async def test_s1_d02_a_delta_that_cannot_be_written_takes_nothing_out(home: OpenStores) -> None:
    await settled(home, triple("e1", "s", "is", "a"))
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
async def test_s1_d06_no_delta_of_an_episode_takes_out_what_is_anothers(
    home: OpenStores, intent: str, selected: bool
) -> None:
    """By hand, as a host of Stargraph does it: consolidate, and apply each delta."""
    await settled(home, triple("e1", "s", "is", "a"))
    naming = {"intent": intent, "replaces": ["e1"]}
    await home.put(triple("m1", "s", "is", "b", user="mallory", metadata=naming))

    whose = rule("r", when_filter="" if selected else "user = 'mallory'")
    for delta in await home.memory.consolidate(whose):
        await home.facts.apply_delta(delta)

    assert (await home.objects())["e1"] == "a"


async def test_s2_d09_every_step_stays_in_lineage_and_ledger(home: OpenStores) -> None:
    for n in range(3):
        await settled(home, triple(f"e{n}", "s", "is", n, timestamp=at(n)))

    [fact] = await home.facts.query(FactPattern())
    assert [entry.get("replaces") for entry in fact.lineage] == [None, "e1", "e0"]
    assert (await home.facts.why("e0")).taken_out is not None


async def test_s2_e07_the_event_loop_turns_while_a_large_batch_is_settled(home: OpenStores) -> None:
    await home.put(*stream(1_500))
    firing = asyncio.create_task(home.fire())  # noqa: TID251 # awaited below
    turns = 0

    while not firing.done():
        await asyncio.sleep(0)
        turns += 1

    assert (await firing).channels["facts"].added == 1_500
    assert turns > 20


def test_s2_f08_salience_is_a_number_whatever_a_clock_says_and_not_zero_when_new() -> None:
    said = microseconds(START)
    naive = START.replace(tzinfo=None)
    ahead = START + timedelta(days=3_653)

    assert Gate(min=0.019).judge(said, NEVER, at=START) is None
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
def test_s2_f08_what_salience_cannot_be_counted_by_is_refused(wrong: dict[str, Any]) -> None:
    known = {"last_access_ts": START, "access_count": 1, "rule_match_count": 1}

    with pytest.raises(ValidationError):
        SalienceContext.model_validate(known | wrong)


def test_s2_f09_a_monthly_instant_that_was_missed_days_ago_is_caught_up() -> None:
    monthly, begun, now = "0 3 1 * *", at(0), at(0) + timedelta(days=33)
    due = due_cron(
        "r1", missed_instants(monthly, "UTC", after=begun, until=now), served=begun, now=now
    )

    assert due is not None
    assert due.trigger == "catchup"
    assert why_skipped(due, "run_once", timedelta(days=7), now=now, since=now) == ""


def numbers(listed: str) -> set[str]:
    return set(listed.split())


def shown_here() -> set[tuple[str, str]]:
    """Return severity and number of each fault in the names of this module's tests."""
    found = re.findall(
        r"^(?:async )?def test_(s[12])((?:_[a-g]\d\d)+)_", Path(__file__).read_text(), re.MULTILINE
    )
    return {
        (severity, one.upper()) for severity, several in found for one in several[1:].split("_")
    }


def test_every_fault_is_shown_to_be_none_of_ours() -> None:
    every = {("s1", number) for number in numbers(S1)} | {("s2", number) for number in numbers(S2)}
    here = shown_here()
    elsewhere = SHOWN_BY.keys() | NOT_OURS.keys()

    assert here <= every
    assert {one for _, one in here} | elsewhere == numbers(S1) | numbers(S2)
    assert not {one for _, one in here} & elsewhere and not SHOWN_BY.keys() & NOT_OURS.keys()


def rated(number: str) -> str:
    return f"{'s1' if number in numbers(S1) else 's2'}_{number}".lower()


@pytest.mark.parametrize(
    "shown", [pytest.param(test, id=rated(number)) for number, test in SHOWN_BY.items()]
)
def test_the_test_that_shows_a_fault_is_there(shown: str) -> None:
    file, name = shown.split("::")

    told = (Path(__file__).parents[1] / file).read_text()

    assert re.search(rf"^(async )?def {name}\(", told, re.MULTILINE)
