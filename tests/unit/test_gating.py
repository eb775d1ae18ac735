"""What the gatekeeper asks, and of what."""

from __future__ import annotations

from slumberd.core.salience import Access
from slumberd.gating import Gatekeeper, no_embedder
from tests.builders import START, rule, version
from tests.fakes import FakeEpisodeLog

GATED = rule(salience={"min": 0.03})


async def test_only_what_matches_and_can_be_read_is_judged() -> None:
    episodes = FakeEpisodeLog()
    good, other = version("e1", seq=1), version("e2", seq=2)._replace(matched=False)
    bad = version("e3", seq=3)._replace(fault="unreadable: so")

    judged = await Gatekeeper(episodes, no_embedder).judged([good, other, bad], GATED, START)

    assert [one.gated is not None for one in judged] == [True, False, False]
    assert judged[1:] == [other, bad]


async def test_nobody_is_asked_about_nothing() -> None:
    episodes = FakeEpisodeLog()
    gatekeeper = Gatekeeper(episodes, no_embedder)
    some = [version("e1")._replace(matched=False)]

    assert await gatekeeper.judged(some, GATED, START) is some
    assert await gatekeeper.judged([version("e1")], rule(), START) == [version("e1")]
    assert episodes.queries == []


async def test_what_was_read_passes() -> None:
    episodes = FakeEpisodeLog()
    episodes.reads["e1"] = Access(1)

    [judged] = await Gatekeeper(episodes, no_embedder).judged([version("e1")], GATED, START)

    assert judged.gated is None
