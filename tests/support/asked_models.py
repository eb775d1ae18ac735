"""Rules that ask a language model, and the worker that asks a scripted server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slumberd.daemon.language_model import model_worker_of
from slumberd.model.episode import Episode
from slumberd.model.extraction import ModelSettings
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.stores import Stores
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.rules.pattern_loader import model_extraction
from slumberd.workers.language_models.budget import Budget, Spending
from slumberd.workers.language_models.openai_client import OpenAIClient
from slumberd.workers.language_models.recorder import AnswerRecorder
from tests.support.builders import START, at, episode, rule
from tests.support.fakes import FakeClock
from tests.support.model_server import Answer, ModelServer, Reply, model_server
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider


def asking(*, id: str = "chat", enabled: bool = True, **settings: Any) -> ConsolidationRule:
    """Return a rule that asks a language model."""
    found = ModelSettings(**{"model": "tiny", "predicates": ("likes", "lives_in"), **settings})
    return rule(id, extract=model_extraction(found), enabled=enabled)


def said(id: str, content: str, seconds: float = 0.0, **overrides: Any) -> Episode:
    """Return an episode that the speaker ``ann`` says."""
    return episode(id, content=content, timestamp=at(seconds), source_node="ann", **overrides)


@dataclass
class Asked:
    """Open stores, a scripted server, and the worker that asks it."""

    home: OpenStores
    server: ModelServer
    worker: ModelWorker
    clock: FakeClock
    freed: list[str]

    async def likes(self) -> dict[str, object]:
        """Return the object of each current fact that has one, by fact id."""
        return {id: value for id, value in (await self.home.objects()).items() if value}


@asynccontextmanager
async def worker_at(
    place: Path | Provider,
    url: str,
    *rules: ConsolidationRule,
    budget: Budget = Budget(),  # noqa: B008 # immutable
) -> AsyncIterator[ModelWorker]:
    """Open stores, with a worker that asks the server at an address."""
    clock = FakeClock()
    async with open_stores(place, clock=clock) as home, OpenAIClient(url) as client:
        answers = home.memory.answers
        recorder = AnswerRecorder(answers, client, Spending(answers, budget, clock), clock)
        stores = Stores(home.memory, home.facts)
        worker = model_worker_of(stores, recorder, rules=lambda: rules, clock=clock)
        assert worker is not None
        yield worker


@asynccontextmanager
async def asked_stores(
    place: Path | Provider,
    *rules: ConsolidationRule,
    script: tuple[Reply | Answer, ...] = (),
    budget: Budget = Budget(),  # noqa: B008 # immutable
    seconds: float = 5.0,
    **settings: Any,
) -> AsyncIterator[Asked]:
    """Open stores, with a worker for some rules."""
    clock = FakeClock()
    freed: list[str] = []
    async with (
        open_stores(place, clock=clock, **settings) as home,
        model_server(script) as server,
        OpenAIClient(server.url, timeout_seconds=seconds) as client,
    ):
        await home.memory.bootstrap()
        await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
        answers = home.memory.answers
        recorder = AnswerRecorder(answers, client, Spending(answers, budget, clock), clock)
        stores = Stores(home.memory, home.facts)
        worker = model_worker_of(
            stores, recorder, rules=lambda: rules, clock=clock, recorded=freed.append
        )
        assert worker is not None
        home.consolidator.ask_for_summaries = worker.ask_for_summaries
        yield Asked(home, server, worker, clock, freed)
