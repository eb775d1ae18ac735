"""`slumberd report` counts what the ledger's rows changed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.fire_request import FireRequest
from slumberd.model.record import Kind, Record
from slumberd.operations.change_report import ChangeCounter, read_changes
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

KINDS: tuple[Kind, ...] = ("firing", "add", "update", "delete", "noop", "quarantine")
NAMES = {"learned": "add", "changed": "update", "forgotten": "delete", "quarantined": "quarantine"}


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
    return [
        Record(n, firing, firing[0], kind, f"{id}{n}", (), (), "", 1.0, START, user=user)
        for n, (firing, kind, user, id) in enumerate(rows)
    ]


@given(records())
def test_report_equals_the_counts_of_its_rows(rows: list[Record]) -> None:
    counter = ChangeCounter()
    for row in rows:
        counter.add([row])

    found = counter.finish(10).document(10)

    assert {name: found[name] for name in count(rows)} == count(rows)
    for rule_id, numbers in found["rules"].items():
        assert numbers == count([row for row in rows if row.rule_id == rule_id])
    for user, numbers in found["users"].items():
        assert numbers == count([row for row in rows if row.user == user])
    assert set(found["users"]) == {row.user for row in rows} - {""}
    assert set(found["rules"]) == {row.rule_id for row in rows}
    assert found["batches"] == len({row.firing_id for row in rows})
    sizes = {batch["firing_id"]: size(batch) for batch in found["largest"]}
    assert sizes == {
        firing: size(count([row for row in rows if row.firing_id == firing]))
        for firing in {row.firing_id for row in rows}
        if size(count([row for row in rows if row.firing_id == firing]))
    }
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)


def count(rows: list[Record]) -> dict[str, int]:
    marked = [row for row in rows if row.fact_id.startswith(("@marks/", "@weights/"))]
    facts = [row for row in rows if row not in marked or row.kind == "quarantine"]
    kinds, of_marks = Counter(row.kind for row in facts), Counter(row.kind for row in marked)
    return {
        **{name: kinds[kind] for name, kind in NAMES.items()},  # type: ignore[index]
        "marked": of_marks["add"] + of_marks["update"],
        "unmarked": of_marks["delete"],
    }


def size(numbers: dict[str, int]) -> int:
    return numbers["learned"] + numbers["changed"] + numbers["forgotten"]


def test_document_lists_the_users_and_batches_with_the_most_changes() -> None:
    counter = ChangeCounter()
    for n, user in enumerate(["ada", "bob", "bob", "cy"]):
        row = Record(n, f"a@{user}", "a", "add", "", (), (), "", 1.0, START, user=user)
        counter.add([row])

    found = counter.finish(1).document(1)

    assert [*found["users"]] == ["bob"]
    assert found["other_users"] == 2
    assert [batch["firing_id"] for batch in found["largest"]] == ["a@bob"]


async def test_report_begins_at_its_instant(provider: Provider) -> None:
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

    assert [(found.changes.learned, found.changes.changed) for found in (whole, later, last)] == [
        (1, 2), (0, 2), (0, 1),
    ]  # fmt: skip


async def test_report_reads_all_pages(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slumberd.operations.change_report.PAGE_ROWS", 2)
    async with open_stores(provider) as home:
        await home.put(*(triple(f"e{n}", f"s{n}", "is", n) for n in range(5)))
        await home.fire()

        found = await read_changes(home.facts.reads, START, most=5)

    assert found.changes.learned == 5


def test_setting_that_changed_no_fact_is_left_out() -> None:
    rows = [
        Record(1, "@channels@1", "@channels", "firing", "", (), (), "", 1.0, START),
        Record(2, "@undo@2", "@undo", "firing", "", (), (), "", 1.0, START),
        Record(3, "@undo@2", "@undo", "delete", "e1", ("e1",), (), "", 1.0, START),
        Record(4, "all@4", "all", "firing", "", (), (), "", 1.0, START),
    ]
    counter = ChangeCounter()
    counter.add(rows)

    found = counter.finish(5)

    assert [*found.rules] == ["@undo", "all"]
    assert found.batches == 2
