"""The audit finds duplicates, contradictions, rows across scopes, and unreadable records."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.interchange.audit import Auditor, RecordFinding, document_of
from slumberd.integrations.interchange.records import ImportedRecord
from slumberd.model.episode import Episode
from tests.support.builders import at, episode, triple

pytestmark = pytest.mark.unit

FOREVER = 10**6
"""Seconds after the start, behind everything else."""


def findings(records: Iterable[ImportedRecord], **options: Any) -> list[RecordFinding]:
    auditor = Auditor(**options)
    return [finding for record in records for finding in auditor.check(record)]


def kinds(*episodes: Episode, **options: Any) -> list[tuple[str, int, int | None]]:
    """Return the kind, the line and the earlier line of each finding."""
    records = (ImportedRecord(line, (one,)) for line, one in enumerate(episodes, 1))
    return [
        (found.kind, found.place[0], found.earlier and found.earlier[0])
        for found in findings(records, **options)
    ]


def lives(id: str, place: Any, seconds: float = 0, **overrides: Any) -> Episode:
    return triple(id, "mira", "lives_in", place, timestamp=at(seconds), **overrides)


def test_different_records_have_no_finding() -> None:
    assert kinds(lives("e1", "Porto"), lives("e2", "Faro", 1), episode("e3")) == []


def test_unreadable_record_is_a_finding() -> None:
    (found,) = findings([ImportedRecord(3, problem="no id", path="results[2]")])

    assert found == RecordFinding("unreadable", (3, "results[2]"), None, "", "", "no id")
    assert document_of(found) == {
        "finding": "unreadable",
        "line": 3,
        "path": "results[2]",
        "earlier_line": None,
        "earlier_path": "",
        "user": "",
        "agent": "",
        "detail": "no id",
    }


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param({}, [("duplicate_text", 2, 1)], id="one scope"),
        pytest.param({"session": "s2"}, [("duplicate_text", 2, 1)], id="another session"),
        pytest.param({"content": " same \n"}, [("duplicate_text", 2, 1)], id="other space"),
        pytest.param({"agent": "other"}, [], id="another agent"),
        pytest.param({"user": "bob"}, [("text_of_two_users", 2, 1)], id="another user"),
        pytest.param({"metadata": {"intent": "delete"}}, [], id="a retraction"),
    ],
)
def test_equal_texts_are_found(second: dict[str, Any], expected: list[Any]) -> None:
    found = kinds(episode("e1", content="same"), episode("e2", **{"content": "same"} | second))

    assert found == expected


def test_one_id_in_two_scopes_is_found() -> None:
    found = kinds(
        episode("e1"), episode("e1", content="x"), episode("e1", session="s2", content="y")
    )

    assert found == [("id_in_two_scopes", 3, 1)]


def test_equal_triples_are_found_also_in_lists() -> None:
    listed = {"triples": [{"subject": "mira", "predicate": "lives_in", "object": "Porto"}]}

    found = kinds(lives("e1", "Porto"), episode("e2", metadata=listed, timestamp=at(9)))

    assert found == [("duplicate_triple", 2, 1)]


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 2), ("1", 1), (True, 1), ({"a": 1}, {"a": 2})],
    ids=["numbers", "text and number", "true and one", "objects"],
)
def test_two_objects_of_one_instant_contradict_each_other(first: Any, second: Any) -> None:
    assert kinds(lives("e1", first), lives("e2", second)) == [("contradiction", 2, 1)]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"seconds": 1}, id="later"),
        pytest.param({"user": "bob"}, id="another user"),
        pytest.param({"agent": "other"}, id="another agent"),
        pytest.param({"metadata": {"intent": "delete"}}, id="retraction"),
        pytest.param({"metadata": {"intent": "noop"}}, id="no claim"),
        pytest.param({"metadata": {"predicate": "likes"}}, id="multi-valued predicate"),
    ],
)
def test_other_claims_do_not_contradict(second: dict[str, Any]) -> None:
    likes = lives("e0", "tea", metadata={"predicate": "likes"})

    found = kinds(
        likes, lives("e1", "Porto"), lives("e2", "Faro", **second), multi_valued={"likes"}
    )

    assert found == []


INTERVALS = st.tuples(st.integers(0, 6), st.integers(1, 4) | st.none(), st.sampled_from("ABC"))


@given(drawn=st.lists(INTERVALS, max_size=8))
def test_lasting_facts_contradict_each_other_where_they_overlap(
    drawn: list[tuple[int, int | None, str]],
) -> None:
    spans = [
        (start, FOREVER if length is None else start + length, o) for start, length, o in drawn
    ]
    records = [
        ImportedRecord(
            line,
            (lives(f"e{line}", stated, start),),
            until=None if end == FOREVER else at(end),
        )
        for line, (start, end, stated) in enumerate(spans)
    ]

    found = findings(records, lasting=True)

    def beside(kind: str) -> set[int]:
        return {finding.place[0] for finding in found if finding.kind == kind}

    def overlapping(*, same: bool) -> set[int]:
        return {
            line
            for line, (start, end, stated) in enumerate(spans)
            if any(
                start < until and since < end and (stated == other) is same
                for since, until, other in spans[:line]
            )
        }

    assert beside("contradiction") == overlapping(same=False)
    assert beside("duplicate_triple") == overlapping(same=True)


def test_instants_without_an_offset_are_compared_as_utc() -> None:
    naive = lives("e2", "Faro").model_copy(update={"timestamp": datetime(2026, 1, 1, 12)})  # noqa: DTZ001 # on purpose

    assert kinds(lives("e1", "Porto"), naive) == [("contradiction", 2, 1)]


@pytest.mark.nightly
def test_memory_grows_by_hashes_and_not_by_texts() -> None:
    auditor = Auditor()
    tracemalloc.start()
    for line in range(4_000):
        text = f"{line} " + "x" * 4_000
        said = triple(f"e{line}", f"s{line}", "says", text, content=text, timestamp=at(line))
        assert [*auditor.check(ImportedRecord(line, (said,)))] == []

    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used / 4_000 < 1_600


def test_episode_of_the_future_is_found() -> None:
    told = [lives("e1", "Porto", 9), lives("e2", "Faro", 10), lives("e3", "Oslo", 11)]

    assert kinds(*told) == []
    assert kinds(*told, latest=at(10)) == [("future", 3, None)]
