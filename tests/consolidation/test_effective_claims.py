"""Which claims of one fact id count."""

from __future__ import annotations

import pytest

from slumberd.consolidation.claim import EPISODE, HAND, Act, Stamp
from slumberd.consolidation.precedence import HANDS, Meeting, counting

pytestmark = pytest.mark.unit


def claim(owner: str, stamp: Stamp) -> Act:
    return Act("e1", owner, f"{owner}s/p", stamp, True, '"x"', (), False, 1.0, {})


def test_a_person_keeps_an_id_that_another_owners_episode_claims_too() -> None:
    episodes = Meeting(1, "all", 1, claim("ann/rag/facts/", Stamp(1, EPISODE, "e1")), 0)
    persons = Meeting(2, HANDS, 0, claim("bob/rag/facts/", Stamp(2, HAND, "2")), 0)

    [found] = counting([episodes, persons])

    assert found.act.owner == "bob/rag/facts/"
