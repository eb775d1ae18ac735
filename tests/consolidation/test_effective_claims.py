"""The effective claims of a fact id."""

from __future__ import annotations

import pytest

from slumberd.consolidation.claim import EPISODE, MANUAL, Claim, Precedence
from slumberd.consolidation.precedence import MANUAL_RULE_ID, Evaluation, effective_claims

pytestmark = pytest.mark.unit


def claim(owner: str, precedence: Precedence) -> Claim:
    return Claim("e1", owner, f"{owner}s/p", precedence, True, '"x"', (), False, 1.0, {})


def test_a_manual_edit_keeps_an_id_that_an_episode_of_another_owner_also_claims() -> None:
    of_episode = Evaluation(1, "all", 1, claim("ann/rag/facts/", Precedence(1, EPISODE, "e1")), 0)
    of_person = Evaluation(
        2, MANUAL_RULE_ID, 0, claim("bob/rag/facts/", Precedence(2, MANUAL, "2")), 0
    )

    [found] = effective_claims([of_episode, of_person])

    assert found.claim.owner == "bob/rag/facts/"
