"""Rules whose triples or summaries come from a function of the operator, on real stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from slumberd import Extracted, Turn
from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.model.extraction import Extraction
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule, RuleFunction
from slumberd.model.stages import Dedup, Summarise
from tests.support.builders import at, episode, rule
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

NAME = "python:cafe:find"
TEXTS = {"e1": "Ada drinks tea", "e2": "Ada drinks lava", "e3": "Hello"}
EPISODES = [
    episode(id, content=text, timestamp=at(n)) for n, (id, text) in enumerate(TEXTS.items())
]


def find(turn: Turn, _: Turn | None) -> list[Extracted]:
    """Find what is drunk; nobody drinks lava."""
    if "lava" in turn.content:
        raise ValueError(f"{turn.content} is absurd")
    if "drinks" not in turn.content:
        return []
    who, _drinks, what = turn.content.split()
    return [Extracted(who, "drinks", what, "add", (0, len(turn.content)))]


def find_all(turn: Turn, before: Turn | None) -> list[Extracted]:
    """Find what is drunk; lava is milk."""
    return find(turn._replace(content=turn.content.replace("lava", "milk")), before)


def by_function(call: Callable[..., Any] = find, **overrides: Any) -> ConsolidationRule:
    function = RuleFunction(NAME, call.__name__, call)
    extractor = FunctionExtractor(function)
    extraction = Extraction(NAME, function.digest, extractor, reads_previous=True)
    return rule("all", extract=extraction, **overrides)


@pytest.mark.parametrize("batch", [1, 100])
async def test_failure_for_one_episode_quarantines_it_and_promotes_the_others(
    provider: Provider, tmp_path: Path, batch: int
) -> None:
    async with open_stores(provider, batch=batch) as home:
        await home.put(*EPISODES)

        report = await home.fire(by_function())

        assert await home.objects() == {"e1#1": "tea"}
        assert report.channels["facts"] == Counts(read=4, added=1, noop=2, quarantined=1)
        [held] = [row for row in home.log.lines if row.kind == "quarantine"]
        assert (held.source_episode_ids, held.reason) == (("e2",), "extraction_failed")
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_extracted_fact_names_the_function(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(EPISODES[0])

        await home.fire(by_function())

        [fact] = await home.facts.query(FactPattern())
        assert fact.payload["extracted"] == {"by": NAME, "span": [0, 14]}


async def test_retry_after_the_function_is_mended_promotes_the_episode(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*EPISODES)
        await home.fire(by_function())

        report = await home.consolidator.retry(by_function(find_all), at(9), by="ann")

        assert report.channels["facts"].quarantined == 0
        assert await home.objects() == {"e2#1": "milk"}
        assert await home.facts.ledger.quarantined_of("all") == []


async def test_edit_that_the_function_cannot_read_ends_the_fact_as_any_unreadable_edit(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(EPISODES[0])
        await home.fire(by_function())
        await home.put(EPISODES[0].model_copy(update={"content": TEXTS["e2"]}))

        await home.fire(by_function())

        assert await home.objects() == {}
        assert await home.facts.ledger.quarantined_of("all") == ["e1"]


async def test_stages_leave_an_episode_alone_that_the_function_cannot_read(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        same = [EPISODES[1].model_copy(update={"id": id}) for id in ("e5", "e6")]
        await home.put(*same)

        report = await home.fire(by_function(stages=(Dedup(),)))

        assert report.channels["marks"].added == 0


async def test_backfill_calls_the_function_and_a_replay_does_not(
    provider: Provider, tmp_path: Path
) -> None:
    called: list[str] = []

    def counted(turn: Turn, before: Turn | None) -> list[Extracted]:
        called.append(turn.id)
        return find_all(turn, before)

    async with open_stores(provider) as home:
        await home.put(*EPISODES)
        await home.fire(by_function())
        fired = by_function(counted)

        await home.facts.replay(tmp_path / "again.db")
        in_replay = [*called]
        await home.consolidator.backfill(fired, at(9), by="ann")

        assert in_replay == []
        assert called == ["e1", "e2", "e3"]
        assert await home.objects() == {"e2#1": "milk"}


async def test_consolidate_without_a_window_names_what_the_function_cannot_read(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(*EPISODES)

        with structlog.testing.capture_logs() as logged:
            deltas = await home.memory.consolidate(by_function())

        assert [delta.kind for delta in deltas] == ["noop", "add", "noop"]
        [left_out] = [event for event in logged if event["event"] == "episodes.left_out"]
        assert left_out["episode_ids"] == ["e2"]
        assert left_out["reasons"] == {"extraction_failed": 1}


SESSIONS = [
    episode(f"{session}{n}", content=f"{session} says {n}.", timestamp=at(n), session=session)
    for session in "ab"
    for n in range(6)
]


def summarising(call: Callable[..., Any]) -> ConsolidationRule:
    summariser = RuleFunction("python:cafe:shorten", call.__name__, call)
    return rule("all", summariser=summariser, stages=(Summarise(when_more_than=5, max_tokens=9),))


def join_speakers(turns: Sequence[Turn], max_tokens: int) -> str:
    """Return who speaks in the session, and the bound."""
    return f"{turns[0].speaker} speaks in {turns[0].session}, {max_tokens}"


def refuse_a(turns: Sequence[Turn], max_tokens: int) -> str:
    """Fail for session a."""
    if turns[0].session == "a":
        raise ValueError(turns[0].content)
    return join_speakers(turns, max_tokens)


async def _summaries(home: OpenStores) -> dict[str, str]:
    facts = await home.facts.query(FactPattern(channel="summaries"))
    return {fact.id: fact.payload["content"] for fact in facts}


async def test_function_writes_the_summaries(provider: Provider, tmp_path: Path) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSIONS)

        await home.fire(summarising(join_speakers))

        assert await _summaries(home) == {
            "@summaries/a0": "chat speaks in a, 9", "@summaries/b0": "chat speaks in b, 9",
        }  # fmt: skip
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_failing_summary_is_logged_once_and_the_firing_goes_on(provider: Provider) -> None:
    async with open_stores(provider, batch=2) as home:
        await home.put(*SESSIONS)

        with structlog.testing.capture_logs() as logged:
            report = await home.fire(summarising(refuse_a))

        assert await _summaries(home) == {"@summaries/b0": "chat speaks in b, 9"}
        assert report.channels["marks"].added == 4
        [warning] = [event for event in logged if event["event"] == "summary.failed"]
        assert warning == {
            "event": "summary.failed",
            "log_level": "warning",
            "rule_id": "all",
            "function": "python:cafe:shorten",
            "episode_ids": ["a0", "a1", "a2", "a3"],
            "reason": "raised ValueError",
        }


async def test_next_firing_summarises_what_the_function_failed_for(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSIONS)
        await home.fire(summarising(refuse_a))

        await home.fire(summarising(join_speakers))

        assert sorted(await _summaries(home)) == ["@summaries/a0", "@summaries/b0"]


async def test_preview_logs_no_failure_of_a_summary(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSIONS)

        with structlog.testing.capture_logs() as logged:
            await home.consolidator.preview(summarising(refuse_a), at(9))

        assert [event for event in logged if event["event"] == "summary.failed"] == []
