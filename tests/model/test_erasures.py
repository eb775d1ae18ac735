"""Stores remember what was erased by digests, and compare a store's list with the ledger."""

from __future__ import annotations

import pytest

from slumberd.model.record import ErasedList, RecordedErasures, name_of
from slumberd.model.scope import ErasedScopes, digest_of

pytestmark = pytest.mark.unit

KEY = b"k" * 32


@pytest.mark.parametrize(
    ("begun", "fault"),
    [
        pytest.param(set(), "lacks 1 entry", id="finished"),
        pytest.param({b"scope"}, "", id="not finished"),
    ],
)
def test_unfinished_erasure_asks_nothing_of_the_list_of_episodes(
    begun: set[bytes], fault: str
) -> None:
    recorded = RecordedErasures({b"scope": 7}, {b"scope": name_of(KEY)}, begun)

    found = recorded.finished().describe_fault(ErasedList(None, {}))

    assert fault in found
    assert bool(found) is bool(fault)


SALT = b"salt"
MOMENT = 1_000


def erase(*scopes: tuple[str, str | None, str | None], at: int = MOMENT) -> ErasedScopes:
    return ErasedScopes(SALT, {digest_of(SALT, *scope): at for scope in scopes}.get)


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(("alice", None, None), id="user"),
        pytest.param(("alice", "s1", None), id="session"),
        pytest.param(("alice", None, "rag"), id="agent"),
        pytest.param(("alice", "s1", "rag"), id="all three"),
    ],
)
def test_an_erasure_covers_a_scope_up_to_its_moment_in_any_order_of_queries(
    scope: tuple[str, str | None, str | None],
) -> None:
    found = erase(scope)

    covered = [found.covers("alice", "s1", "rag", at) for at in (MOMENT, MOMENT + 1, MOMENT - 1)]

    assert covered == [True, False, True]


def test_scope_beside_an_erased_scope_is_not_covered() -> None:
    found = erase(("alice", "s1", None), ("bob", None, "rag"))

    assert not found.covers("alice", "s2", "rag", 0)
    assert not found.covers("bob", "s1", "chat", 0)
    assert not found.covers("carol", "s1", "rag", 0)


def test_the_latest_of_several_erasures_decides() -> None:
    narrow, wide = digest_of(SALT, "alice", "s1", None), digest_of(SALT, "alice", None, None)

    found = ErasedScopes(SALT, {narrow: 5, wide: 9}.get)

    assert (found.covers("alice", "s1", "rag", 9), found.covers("alice", "s1", "rag", 10)) == (
        True,
        False,
    )
