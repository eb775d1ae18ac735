"""`slumberd report` counts what the ledger's rows changed."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.firing import FireRequest
from slumberd.model.firing import Kind, Record
from slumberd.model.record import ChangeGroup
from slumberd.operations.change_report import (
    BatchChanges,
    ChangeCounter,
    ChangeReport,
    Changes,
    LargestBatches,
    LargestBy,
    RecentChanges,
    read_changes,
)
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import NewStores, Provider
from tests.support.random_histories import EVERYTHING, Step, Story, play
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

LARGEST_BY: tuple[LargestBy, ...] = ("facts", "quarantined", "marked", "unmarked")
KINDS: tuple[Kind, ...] = ("firing", "add", "update", "delete", "noop", "quarantine")
NAMES = {"learned": "add", "changed": "update", "retracted": "delete", "quarantined": "quarantine"}


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["a@1", "a@2", "b@3"]),
                st.sampled_from(KINDS),
                st.sampled_from(["ada", "bob", ""]),
                st.sampled_from(["e", "@marks/e", "@summaries/e", "@weights/e"]),
            ),
            max_size=30,
        )
    )
    days = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    return [
        Record(
            n, firing, firing[0], kind, f"{id}{n}", (), (), "", 1.0,
            START + timedelta(days=days[int(firing[2])]), user=user,
        )
        for n, (firing, kind, user, id) in enumerate(rows)
    ]  # fmt: skip


@pytest.mark.slow
@given(records())
def test_report_equals_the_counts_of_its_rows(rows: list[Record]) -> None:
    counter = ChangeCounter(10)
    counter.add(groups_of(rows))

    assert_counts(counter.finish(10), rows)


@pytest.mark.nightly
@given(records(), records())
def test_report_without_what_has_left_equals_the_counts_of_the_rest(
    rows: list[Record], left: list[Record]
) -> None:
    early = [row._replace(firing_id=f"{row.firing_id}0") for row in left]
    counter = ChangeCounter(10)
    counter.add(groups_of(early))
    counter.add(groups_of(rows))

    counter.remove(groups_of(early))

    assert_counts(counter.finish(10), rows)


def groups_of(rows: list[Record]) -> list[ChangeGroup]:
    """Return the rows, each in a group of its own, by firing."""
    return [
        ChangeGroup(
            int(row.firing_id.rpartition("@")[2]), row.rule_id, row.at, row.kind,
            row.fact_id.startswith(("@marks/", "@weights/")), row.user, row.agent, 1,
        )
        for row in sorted(rows, key=lambda row: row.firing_id.rpartition("@")[2])
    ]  # fmt: skip


def assert_counts(report: ChangeReport, rows: list[Record]) -> None:
    """Compare a report with the counts of rows that hold no row of an edit or a setting."""
    found = report.document(10)
    assert {name: found[name] for name in count(rows)} == count(rows)
    for rule_id, numbers in found["rules"].items():
        assert numbers == count([row for row in rows if row.rule_id == rule_id])
    for user, numbers in found["users"].items():
        assert numbers == count([row for row in rows if row.user == user])
    assert set(found["users"]) == {row.user for row in rows} - {""}
    assert set(found["rules"]) == {row.rule_id for row in rows}
    assert found["batches"] == len({row.firing_id for row in rows})
    for largest_by in LARGEST_BY:
        assert_largest(report, rows, largest_by)
    days = {row.at.date() for row in rows}
    assert {day: one.document() for day, one in report.days.items() if day in days} == {
        day: count([row for row in rows if row.at.date() == day]) for day in days
    }
    assert not any(size(one.document()) for day, one in report.days.items() if day not in days)


def assert_largest(report: ChangeReport, rows: list[Record], largest_by: LargestBy) -> None:
    """Compare the largest batches by a number with the counts of the rows of each firing."""
    largest = report.largest_by[largest_by]
    assert largest == sorted(largest, key=lambda one: one.size_by(largest_by), reverse=True)
    wanted = {}
    for firing in {row.firing_id for row in rows}:
        numbers = count([row for row in rows if row.firing_id == firing])
        wanted[firing] = size(numbers) if largest_by == "facts" else numbers[largest_by]
    assert {one.firing_id: one.size_by(largest_by)[0] for one in largest} == {
        firing: number for firing, number in wanted.items() if number
    }


def count(rows: list[Record]) -> dict[str, int]:
    marked = [row for row in rows if row.fact_id.startswith(("@marks/", "@weights/"))]
    facts = [row for row in rows if row not in marked or row.kind == "quarantine"]
    kinds, of_marks = Counter(row.kind for row in facts), Counter(row.kind for row in marked)
    return {
        **{name: kinds[kind] for name, kind in NAMES.items()},  # type: ignore[index]
        "marked": of_marks["add"] + of_marks["update"],
        "unmarked": of_marks["delete"],
        "forgotten": kinds["delete"],  # the name of `retracted` in 0.2.0
    }


def size(numbers: dict[str, int]) -> int:
    return numbers["learned"] + numbers["changed"] + numbers["retracted"]


def test_document_lists_the_users_and_batches_with_the_most_changes() -> None:
    counter = ChangeCounter(1)
    counter.add(
        ChangeGroup(n, "a", START, "add", marks=False, user=user, agent="", rows=rows)
        for n, (user, rows) in enumerate([("ada", 1), ("bob", 2), ("cy", 1)])
    )

    found = counter.finish(1).document(1)

    assert [*found["users"]] == ["bob"]
    assert found["other_users"] == 2
    assert [batch["firing_id"] for batch in found["largest"]] == ["a@1"]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 4), st.integers(0, 30))
def test_largest_batches_are_right_or_known_to_be_incomplete(
    sizes: list[int], kept: int, left: int
) -> None:
    batches = [
        BatchChanges(number, "a", START, Changes(learned=size)) for number, size in enumerate(sizes)
    ]
    largest = LargestBatches(kept)
    for batch in batches:
        largest.add(batch)
    for batch in batches[:left]:
        largest.remove(batch.number)

    rest = sorted(batches[left:], key=lambda batch: batch.size_by("facts"), reverse=True)
    wanted = [batch for batch in rest if batch.changes.facts][:kept]
    assert not largest.covers(kept) or largest.top(kept) == wanted
    assert left or largest.covers(kept)


async def test_report_begins_at_its_instant_and_ends_before_its_last(provider: Provider) -> None:
    async with open_stores(provider) as home:
        for minute in range(3):
            await home.put(triple(f"e{minute}", "s", "is", minute, timestamp=at(minute)))
            moment = START + timedelta(minutes=minute)
            await home.consolidator.fire(FireRequest(rule("all"), "manual", moment))

        whole = await read_changes(home.facts.reads, START, most=5)
        later = await read_changes(home.facts.reads, START + timedelta(minutes=1), most=5)
        last = await read_changes(
            home.facts.reads, START + timedelta(minutes=1, microseconds=1), most=5
        )
        early = await read_changes(
            home.facts.reads, START, until=START + timedelta(minutes=1), most=5
        )
        none = await read_changes(
            home.facts.reads, START + timedelta(minutes=1), until=START, most=5
        )

    reports = (whole, later, last, early, none)
    assert [(found.changes.learned, found.changes.changed) for found in reports] == [
        (1, 2), (0, 2), (0, 1), (1, 0), (0, 0),
    ]  # fmt: skip


async def test_report_reads_all_pages(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slumberd.operations.change_report.PAGE_ROWS", 2)
    async with open_stores(provider) as home:
        await home.put(*(triple(f"e{n}", f"s{n}", "is", n) for n in range(5)))
        await home.fire()

        found = await read_changes(home.facts.reads, START, most=5)

    assert found.changes.learned == 5


def test_setting_that_changed_no_fact_is_left_out() -> None:
    kinds: list[tuple[int, str, Kind]] = [
        (1, "@channels", "firing"), (2, "@undo", "firing"), (2, "@undo", "delete"),
        (4, "all", "firing"),
    ]  # fmt: skip
    counter = ChangeCounter(5)
    counter.add(
        ChangeGroup(n, rule_id, START, kind, marks=False, user="", agent="", rows=1)
        for n, rule_id, kind in kinds
    )

    found = counter.finish(5)

    assert [*found.rules] == ["@undo", "all"]
    assert found.batches == 2


async def report_of_rows(story: Story, since: datetime) -> ChangeReport:
    """Return the report on rows from an instant on, from the rows themselves."""
    rows = await story.store.reads.records(limit=10_000)
    counter = ChangeCounter(9)
    found = groups_of([row for row in rows if row.at >= since])
    counter.add(sorted(found, key=lambda group: group.firing))
    return counter.finish(9)


async def compare_with_rows(story: Story) -> None:
    recent = RecentChanges(story.store.reads)
    instants = [START, *(at for at, _ in story.shots)]
    for since in (*instants, instants[0], instants[-1] + timedelta(days=1)):
        wanted = await report_of_rows(story, since)
        for found in (
            await read_changes(story.store.reads, since, most=9),
            await recent.report(since, days=1, most=9),
        ):
            assert found.document(9) == wanted.document(9)
            assert changed_days(found) == changed_days(wanted)


def changed_days(report: ChangeReport) -> dict[date, Changes]:
    return {day: changes for day, changes in report.days.items() if changes != Changes()}


@pytest.mark.parametrize("page", [2, 5_000])
def test_report_of_a_random_history_equals_the_counts_of_its_rows(
    new_stores: NewStores, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("slumberd.operations.change_report.PAGE_ROWS", page)

    @settings(max_examples=amount(5, full=30), deadline=None)
    @given(EVERYTHING)
    def compare(steps: list[Step]) -> None:
        play(steps, compare_with_rows, new_stores)

    compare()
