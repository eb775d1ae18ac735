"""Compare a store's list of erased scopes with the ledger."""

from __future__ import annotations

import pytest

from slumberd.model.erasures import ErasedList, RecordedErasures, name_of

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
