"""A memory that must lose a turn is forgotten, and filled again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from slumberd.model.episode import Episode
from tests.recall import prompts
from tests.recall.access import load_mappings
from tests.recall.engine import Engine, Prompt
from tests.recall.figures import missed
from tests.recall.plain_bm25 import PlainBM25
from tests.recall.samples import blind, office_story, plain

pytestmark = [pytest.mark.unit, pytest.mark.slow]


class Hoarder(PlainBM25):
    """An engine that returns a whole memory, and may keep what it is to forget."""

    name = "lexical"

    def __init__(self, *, forgets: bool) -> None:
        super().__init__()
        self._forgets = forgets
        self._episodes: list[Episode] = []

    async def put(self, episodes: Sequence[Episode]) -> None:
        self._episodes += episodes

    async def forget(self, user: str, session: str) -> None:
        if self._forgets:
            self._episodes = [
                episode
                for episode in self._episodes
                if (episode.user, episode.session) != (user, session)
            ]

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        own = [episode for episode in self._episodes if episode.user == user]
        return Prompt("\n".join(one.content for one in own), [one.id for one in own])


@asynccontextmanager
async def forgetful() -> AsyncIterator[Engine]:
    yield Hoarder(forgets=True)


@asynccontextmanager
async def hoarding() -> AsyncIterator[Engine]:
    yield Hoarder(forgets=False)


async def test_an_engine_that_forgets_keeps_all_bars() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [forgetful])

    assert missed(figures) == []
    found = {figure.name: figure.value for figure in figures}
    assert found["recall of includes"] == 1.0
    assert found["questions with a leak"] == 0.0


async def test_an_engine_that_does_not_forget_leaks_and_holds_stale_values() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [hoarding])

    assert [bar.name for bar in missed(figures)] == ["stale values", "leaks"]


async def test_an_engine_that_returns_nothing_misses_the_recall() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [blind])

    assert [bar.name for bar in missed(figures)] == ["recall of includes"]


async def test_the_baseline_searches_all_turns_without_rights() -> None:
    figures = await prompts.measure([office_story()], load_mappings(), [plain])

    found = {figure.name: figure.value for figure in figures}
    assert found["leaks"] == 2
    assert found["includes in the memory"] == 1.0
