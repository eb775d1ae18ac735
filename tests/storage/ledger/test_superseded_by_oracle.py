"""What is superseded in random histories: the oracle says which sentences nothing says any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.model.fact import FactPattern, QuotedEpisode, SupersededByEpisode
from tests.support.builders import at
from tests.support.oracle import OracleClaim, current_claims, slot
from tests.support.providers import NewStores
from tests.support.random_histories import ACTS, MOMENTS, PAIRS, USERS, Step, Story, play

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS, st.sampled_from([None, *MOMENTS]))
def test_sentence_is_superseded_exactly_when_nothing_says_it_any_more(
    new_stores: NewStores, steps: Sequence[Step], moment: int | None
) -> None:
    valid_at = None if moment is None else at(moment)

    async def check(story: Story) -> None:
        claims = story.claims(story.clock.now(), valid_at or at(1_000))
        claims = [claim for claim in claims if claim.channel == "facts"]
        current = current_claims(claims, PAIRS)

        gone = await superseded_in(story, valid_at)

        assert shown(gone) == gone_beliefs(claims, current)
        assert {id for id, claims_gone in gone.items() if claims_gone.is_whole} == wholly_gone(
            claims, current
        )
        for claims_gone in gone.values():
            for one in claims_gone.superseded:
                if one.kind == "replaced":
                    assert current[one.fact_id].object == one.by
        for claim in claims:
            rivals = [one for one in current.values() if slot(one, PAIRS) == slot(claim, PAIRS)]
            if claim.episode in gone and claim.asserts and rivals and not held(claim, current):
                ways = {
                    (one.kind, one.fact_id)
                    for one in gone[claim.episode].superseded
                    if one.object == claim.object and one.predicate == claim.predicate
                }
                assert ways == {("replaced", rival.fact_id) for rival in rivals}

    play(steps, check, new_stores)


async def superseded_in(story: Story, valid_at: datetime | None) -> SupersededByEpisode:
    """Return what is said of the texts that were evaluated last."""
    newest: dict[str, int] = {}
    for one in story.remaining(story.clock.now()):
        newest[one.eid] = max(one.seq, newest.get(one.eid, 0))
    quoted = [QuotedEpisode(id, USERS[id], "rag", f"text {n}") for id, n in newest.items()]
    found = await story.store.find_superseded(quoted, valid_at=valid_at)
    facts = await story.store.query(FactPattern(), valid_at=valid_at)
    held_now = {fact.id for fact in facts}
    for claims_gone in found.values():
        assert {one.fact_id for one in claims_gone.superseded if one.kind == "replaced"} <= held_now
    return found


def shown(gone: SupersededByEpisode) -> set[tuple[str, str, str]]:
    return {
        (id, str(one.predicate), repr(one.object))
        for id, claims_gone in gone.items()
        for one in claims_gone.superseded
    }


def held(claim: OracleClaim, current: dict[str, OracleClaim]) -> bool:
    return any((one.key, one.belief) == (claim.key, claim.belief) for one in current.values())


def gone_beliefs(
    claims: Sequence[OracleClaim], current: dict[str, OracleClaim]
) -> set[tuple[str, str, str]]:
    return {
        (claim.episode, str(claim.predicate), repr(claim.object))
        for claim in claims
        if claim.asserts and not held(claim, current)
    }


def wholly_gone(claims: Sequence[OracleClaim], current: dict[str, OracleClaim]) -> set[str]:
    asserted = [claim for claim in claims if claim.asserts]
    kept = {claim.episode for claim in asserted if held(claim, current)}
    return {claim.episode for claim in asserted} - kept
