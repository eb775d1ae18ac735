"""The finding about content of erased scopes: it counts all, and names three users."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from slumberd.daemon.erased_content import (
    HURRIED_SECONDS,
    ROUTINE_SECONDS,
    find_at_start,
    find_resurfaced,
)
from slumberd.model.errors import StoreError
from slumberd.model.record import ErasedList, ErasedRows
from slumberd.storage.inspections import StoreInspections

pytestmark = pytest.mark.unit

SCOPES = (b"key", {b"digest": 1})


@dataclass
class FakeInspection:
    """A store that records erased scopes, and holds content of some users."""

    where: str
    scopes: Any = None
    users: tuple[str, ...] = ()
    asked: Any = None
    moments: Any = None
    compared: float | None = None

    def erased_scopes(self) -> Any:
        if isinstance(self.scopes, Exception):
            raise self.scopes
        return self.scopes

    def erased_list(self) -> ErasedList:
        return ErasedList(b"key", self.moments or {})

    def erased_rows(self, seconds: float | None) -> ErasedRows:
        self.compared = seconds
        return ErasedRows()

    def count_erased_content(self, pasts: Any, seconds: float | None) -> Counter[str]:
        self.asked = (pasts, seconds)
        return Counter(self.users)


def stores(episodes: FakeInspection, facts: FakeInspection) -> StoreInspections:
    both: Any = (episodes, facts)
    return StoreInspections(*both)


def test_finding_counts_all_content_and_names_three_users() -> None:
    episodes = FakeInspection("memory.db", users=("dora", "ada", "bob", "carl", "ada"))
    facts = FakeInspection("facts.db", scopes=SCOPES)

    (found,) = find_resurfaced(stores(episodes, facts), 1.5)

    assert (found.id, found.subject) == ("erasure.contradicted", "memory.db")
    assert found.problem == "holds 5 episodes that were erased, of 'ada', 'bob', 'carl'"
    assert episodes.asked == ([SCOPES], 1.5)


def test_finding_about_facts_names_their_store() -> None:
    facts = FakeInspection("facts.db", scopes=SCOPES, users=("ada",))

    (found,) = find_resurfaced(stores(FakeInspection("memory.db"), facts), None)

    assert (found.subject, found.problem) == (
        "facts.db",
        "holds 1 facts that were erased, of 'ada'",
    )


def test_stores_without_an_erasure_are_not_searched() -> None:
    episodes = FakeInspection("memory.db", users=("ada",))

    assert list(find_resurfaced(stores(episodes, FakeInspection("facts.db")), None)) == []
    assert episodes.asked is None


def test_store_that_cannot_be_read_records_no_erasure() -> None:
    episodes = FakeInspection("memory.db", scopes=StoreError("damaged"))
    facts = FakeInspection("facts.db", scopes=SCOPES, users=("ada",))

    assert len(list(find_resurfaced(stores(episodes, facts), None))) == 1


@pytest.mark.parametrize(
    ("moments", "seconds"),
    [
        pytest.param({b"digest": 1}, ROUTINE_SECONDS, id="both record the same erasures"),
        pytest.param({}, HURRIED_SECONDS, id="one lacks an erasure"),
        pytest.param({b"digest": 0}, HURRIED_SECONDS, id="one has an earlier moment"),
    ],
)
def test_start_searches_longer_only_when_a_store_lacks_an_erasure(
    moments: Any, seconds: float
) -> None:
    episodes = FakeInspection("memory.db", moments=moments, users=("ada",))
    facts = FakeInspection("facts.db", scopes=SCOPES, moments=SCOPES[1])

    (found,) = find_at_start(stores(episodes, facts))

    assert found.id == "erasure.contradicted"
    assert (episodes.asked[1], facts.asked[1], facts.compared) == (seconds,) * 3
