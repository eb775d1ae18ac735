"""The salience gate on its own: what it measures, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slumberd.consolidation.incoming import Bounds
from slumberd.model.errors import StoppedError
from slumberd.model.salience import Access
from slumberd.storage.episodes.salience_gate import SalienceGate, no_embedder
from tests.support.builders import START, rule, version
from tests.support.embedders import FakeEmbedder
from tests.support.fakes import FakeEpisodeLog

pytestmark = pytest.mark.unit

GATED = rule(salience={"min": 0.03})


async def test_gate_holds_back_only_readable_versions_that_the_filter_selects() -> None:
    episodes = FakeEpisodeLog()
    good, other = version("e1", seq=1), version("e2", seq=2)._replace(matched=False)
    bad = version("e3", seq=3)._replace(fault="unreadable: so")

    gated_versions = await SalienceGate(episodes, no_embedder).apply(
        [good, other, bad], GATED, START
    )

    assert [each.gated is not None for each in gated_versions] == [True, False, False]
    assert gated_versions[1:] == [other, bad]


async def test_gate_reads_no_accesses_without_candidates() -> None:
    episodes = FakeEpisodeLog()
    gate = SalienceGate(episodes, no_embedder)
    versions = [version("e1")._replace(matched=False)]

    assert await gate.apply(versions, GATED, START) is versions
    assert await gate.apply([version("e1")], rule(), START) == [version("e1")]
    assert episodes.queries == []


async def test_episode_that_was_read_passes_the_gate() -> None:
    episodes = FakeEpisodeLog()
    episodes.reads["e1"] = Access(1)

    [passed] = await SalienceGate(episodes, no_embedder).apply([version("e1")], GATED, START)

    assert passed.gated is None


ABOUT_TEA = rule(salience={"min": 0.015, "weights": {"recency": 0, "relevance": 1}, "about": "tea"})
LONG = "tea " * 20_000


class Taster(FakeEmbedder):
    """An embedder that fails on a text with poison, and counts the others."""

    def __init__(self) -> None:
        self.tasted = 0

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        if any("poison" in text for text in texts):
            raise ValueError("the model broke")
        self.tasted += sum(text != "tea" for text in texts)
        return [(1.0, 0.0) if "tea" in text else (0.0, 1.0) for text in texts]


async def test_an_embedder_error_is_a_fault_of_one_episode_only() -> None:
    versions = [version("e1", content="tea"), version("e2", content="poison"), version("e3")]

    gated_versions = await SalienceGate(FakeEpisodeLog(), Taster).apply(versions, ABOUT_TEA, START)

    assert [each.fault for each in gated_versions] == [
        "", "relevance_failed: the content cannot be compared: ValueError", "",
    ]  # fmt: skip
    assert [each.gated is None for each in gated_versions] == [True, True, False]


async def test_gate_that_runs_out_of_time_returns_the_measured_versions() -> None:
    taster = Taster()
    versions = [version("e0")._replace(matched=False)]
    versions += [version(f"e{number}", content=LONG) for number in range(1, 6)]

    gated_versions = await SalienceGate(FakeEpisodeLog(), lambda: taster).apply(
        versions, ABOUT_TEA, START, bounds=Bounds(enough=lambda: taster.tasted >= 2)
    )

    assert [each.id for each in gated_versions] == ["e0", "e1", "e2"]


async def test_gate_measures_at_least_one_version() -> None:
    versions = [version("e1", content=LONG), version("e2", content=LONG)]

    gated_versions = await SalienceGate(FakeEpisodeLog(), Taster).apply(
        versions, ABOUT_TEA, START, bounds=Bounds(enough=lambda: True)
    )

    assert [each.id for each in gated_versions] == ["e1"]


async def test_cancelled_gate_ends_within_a_few_texts() -> None:
    taster = Taster()
    versions = [version(f"e{number}", content=LONG) for number in range(100)]

    with pytest.raises(StoppedError):
        await SalienceGate(FakeEpisodeLog(), lambda: taster).apply(
            versions, ABOUT_TEA, START, bounds=Bounds(cancelled=lambda: taster.tasted >= 3)
        )

    assert taster.tasted == 3
