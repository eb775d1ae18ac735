"""Each kind of candidate, resolved against what the known state already holds."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.consolidation.incoming import (
    Candidate,
    ClaimCandidate,
    HeldBack,
    Unmatched,
    Unreadable,
    evaluate,
)
from slumberd.consolidation.precedence import MultiValued
from slumberd.consolidation.resolution import Resolution, ResolvedEffect
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import EpisodeVersion, SalienceShortfall
from tests.support.builders import rule

pytestmark = pytest.mark.unit

SHORTFALL = SalienceShortfall(0.1, 0.5)


def candidate(seq: int, *, user: str = "u", **fields: Any) -> Candidate:
    """Return the candidate of a version of the episode ``e1`` in the channel ``facts``."""
    metadata = {"subject": "Ada", "predicate": "likes", "object": seq}
    version = EpisodeVersion(seq, "e1", user, "s", "a", seq, "text", "node", metadata)
    [found] = evaluate([version._replace(**fields)], rule())["facts"]
    return found


def resolve(*candidates: Candidate) -> list[ResolvedEffect]:
    """Return the rows of a batch whose known state was empty."""
    state = KnownState(MultiValued(), depth=8)
    state.complete_keys = {found.claim.key: set() for found in candidates if found.claim}
    resolution = Resolution(state, firing=1, at=9)
    for found in candidates:
        resolution.apply(found)
    return resolution.entries


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        pytest.param({}, ClaimCandidate, "id_taken", id="a claim"),
        pytest.param({"gated": SHORTFALL}, HeldBack, "id_taken", id="held back"),
        pytest.param({"matched": False}, Unmatched, "id_taken", id="unmatched"),
        pytest.param({"fault": "broken: text"}, Unreadable, "broken", id="unreadable"),
    ],
)
def test_the_resolution_quarantines_a_candidate_whose_id_is_another_users(
    fields: dict[str, Any], kind: type[Candidate], reason: str
) -> None:
    second = candidate(2, user="other", **fields)

    _, row = resolve(candidate(1), second)

    assert isinstance(second, kind)
    assert (row.event, row.effect, row.reason) == ("quarantine", "quarantine", reason)
    assert (row.fact_id, row.key, row.replaces) == ("", "", ())


def test_a_held_back_candidate_takes_effect_while_an_earlier_claim_is_in_force() -> None:
    _, row = resolve(candidate(1), candidate(2, gated=SHORTFALL))

    assert (row.event, row.effect, row.replaces) == ("claim", "update", ("e1",))


def test_a_held_back_candidate_without_a_claim_withdraws_an_earlier_claim() -> None:
    held_back = candidate(2, gated=SHORTFALL)
    assert isinstance(held_back, HeldBack)

    _, row = resolve(candidate(1), held_back._replace(claim=None))

    assert (row.event, row.effect, row.replaces) == ("withdrawal", "delete", ("e1",))
