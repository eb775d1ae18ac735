"""Rules whose stages mark episodes, on real stores."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.manual import ManualBatch, Retract
from slumberd.model.episode import Episode
from slumberd.model.errors import ExtraMissingError
from slumberd.model.fact import FactPattern
from slumberd.model.rule import ConsolidationRule, Similarity
from slumberd.model.stages import Decay, Dedup, Importance, Stage, Summarise
from slumberd.search.embeddings import WordEmbedder
from tests.daemon.test_erasure import CANARY, files_with_canary, forget
from tests.support.builders import START, at, episode, rule
from tests.support.fakes import FakeComparer
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

DAY = 86_400.0


def staged(*stages: Stage, **overrides: Any) -> ConsolidationRule:
    return rule("nightly", stages=stages, **overrides)


def said(id: str, content: str, day: float = 0.0, **overrides: Any) -> Episode:
    return episode(id, content=content, timestamp=at(day * DAY), **overrides)


async def marks(home: OpenStores) -> dict[str, tuple[str, str]]:
    facts = await home.facts.query(FactPattern(channel="marks"))
    return {
        fact.payload["subject"]: (fact.payload["predicate"], fact.payload["object"])
        for fact in facts
    }


async def fire(home: OpenStores, fired: ConsolidationRule, day: float = 0.0) -> Any:
    request = FireRequest(fired, "cron", START + timedelta(days=day))
    return await home.consolidator.fire(request)


TEA = "Ann likes green tea very much indeed"


async def test_dedup_marks_the_older_of_two_equal_episodes(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1), said("e3", "Bob likes tea", 2))

        report = await fire(home, staged(Dedup()))

        assert await marks(home) == {"e1": ("duplicate_of", "e2")}
        assert await home.objects() == {"e1": None, "e2": None, "e3": None}
        assert report.channels["marks"].added == 1
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_rule_without_a_channel_only_marks_episodes(
    provider: Provider, tmp_path: Path
) -> None:
    only = staged(Dedup(), then_emits=[])
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1), said("e3", "Bob likes tea", 2))

        first = await fire(home, only, 3)
        again = await fire(home, only, 4)
        await home.put(said("e1", "Ann likes coffee"))
        edited = await fire(home, only, 5)
        await home.put(said("e3", TEA, 9))
        other = await fire(home, only, 9)
        anew = await home.consolidator.backfill(only, at(9 * DAY), by="ann")

        assert anew.channels["marks"].deleted == 0
        counts = [report.channels["marks"] for report in (first, again, edited, other)]
        assert [(one.added, one.deleted) for one in counts] == [(1, 0), (0, 0), (0, 1), (1, 0)]
        assert {*first.channels} == {"marks", "summaries", "weights"}
        assert await marks(home) == {"e2": ("duplicate_of", "e3")}
        assert await home.objects() == {}
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


@pytest.mark.slow
async def test_dedup_by_vectors_marks_paraphrases_of_one_user_and_agent(provider: Provider) -> None:
    bought, purchased = "He bought a new car in Oslo", "He purchased a new car in Oslo"
    car = {"subject": "he", "predicate": "bought", "object": "car"}
    async with open_stores(provider, embedding=WordEmbedder) as home:
        await home.put(
            said("e1", bought),
            said("e2", purchased, 1),
            said("e3", "He sold a new car in Oslo", 2),
            said("e4", bought, 3, user="bob"),
            said("e5", purchased, 4, agent="web"),
            said("e6", bought, 5, metadata=car),
        )
        nightly = staged(Dedup(method="vectors"))

        await fire(home, nightly)
        again = await fire(home, nightly, 1)

        [mark] = await home.facts.query(FactPattern(channel="marks"))
        assert (mark.id, mark.payload["object"]) == ("@marks/e1", "e2")
        assert 0.85 <= mark.confidence < 1
        assert again.firing_ids == []
        assert (await home.facts.verify())[2] is None


async def test_dedup_by_vectors_without_its_extra_reports_what_to_install(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))

        with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]"):
            await fire(home, staged(Dedup(method="vectors")))


async def test_second_firing_changes_nothing(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1), said("e3", "old", -9))
        nightly = staged(Dedup(), Decay())
        first = await fire(home, nightly, 2)

        again = await fire(home, nightly, 3)

        assert first.channels["marks"].added == 2
        assert again.firing_ids == []


async def test_edit_takes_the_mark_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        nightly = staged(Dedup())
        await fire(home, nightly)
        await home.put(said("e1", "Ann likes black coffee only"))

        report = await fire(home, nightly)

        assert await marks(home) == {}
        assert report.channels["marks"].deleted == 1
        [line] = [row for row in home.log.lines if row.fact_id == "@marks/e1"][-1:]
        assert (line.kind, line.rule_id) == ("delete", "nightly")


async def test_edit_of_the_kept_episode_takes_the_mark_of_its_duplicate_back(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        nightly = staged(Dedup())
        await fire(home, nightly)
        await home.put(said("e2", "Ann likes black coffee only", 1))

        await fire(home, nightly)

        assert await marks(home) == {}


async def test_duplicate_keeps_its_mark_when_the_kept_episode_is_repeated(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        nightly = staged(Dedup())
        await fire(home, nightly)
        await home.put(said("e3", TEA, 2))

        await fire(home, nightly)

        assert await marks(home) == {"e1": ("duplicate_of", "e2"), "e2": ("duplicate_of", "e3")}


async def test_different_triples_are_no_duplicates(provider: Provider) -> None:
    async with open_stores(provider) as home:
        tea = {"subject": "ann", "predicate": "likes", "object": "tea"}
        await home.put(
            said("e1", "noted", metadata=tea),
            said("e2", "noted", 1, metadata={**tea, "object": "coffee"}),
            said("e3", "noted", 2, metadata=tea),
            said("e4", "noted", 3, metadata={"triples": [tea]}),
        )

        await fire(home, staged(Dedup()))

        assert await marks(home) == {"e1": ("duplicate_of", "e3")}


async def test_other_users_and_agents_are_never_compared(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", TEA), said("e2", TEA, 1, user="bob"), said("e3", TEA, 2, agent="web")
        )

        await fire(home, staged(Dedup(), Summarise(when_more_than=1)))

        assert await marks(home) == {}


async def test_old_episodes_are_archived_when_they_become_old(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", "first"),
            said("e2", "second", 1),
            said("e3", "third", 0, metadata={"importance": 0.9}),
            said("e4", "fourth", 9),
        )
        nightly = staged(Decay(half_life=DAY, threshold=0.5))

        await fire(home, nightly, 1.5)
        first = await marks(home)
        await fire(home, nightly, 2.5)

        assert first == {"e1": ("archived", "decayed")}
        assert await marks(home) == {"e1": ("archived", "decayed"), "e2": ("archived", "decayed")}


async def test_archived_episode_stays_archived_until_a_backfill(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "first"))
        await fire(home, staged(Decay(half_life=DAY)), 9)
        slower = staged(Decay(half_life=9 * DAY))

        await fire(home, slower, 9)
        kept = await marks(home)
        at_nine = START + timedelta(days=9)
        dry = await home.consolidator.backfill(slower, at_nine, by="me", dry_run=True)
        still = await marks(home)
        report = await home.consolidator.backfill(slower, at_nine, by="me")

        assert kept == still == {"e1": ("archived", "decayed")}
        assert await marks(home) == {}
        assert dry.channels == report.channels
        assert report.channels["marks"].deleted == 1


async def test_unimportant_episodes_are_archived(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", "first", metadata={"importance": 0.05}),
            said("e2", "second", metadata={"importance": 0.1}),
            said("e3", "third", metadata={"importance": "none"}),
            said("e4", "fourth"),
        )

        await fire(home, staged(Importance()))

        assert await marks(home) == {"e1": ("archived", "unimportant")}


async def test_kept_episode_has_the_importance_of_its_duplicates(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", TEA, metadata={"importance": 0.9}),
            said("e2", TEA, 1, metadata={"importance": 0.01}),
        )

        await fire(home, staged(Dedup(), Decay(), Importance()), 99)

        assert await marks(home) == {"e1": ("duplicate_of", "e2")}


SESSION = [said(f"e{n}", f"Ann met person{n} in town{n}.", n / 100) for n in range(6)]
SUMMARISED = {f"e{n}": ("summarised_into", "@summaries/e0") for n in range(4)}


async def test_long_session_is_summarised(provider: Provider, tmp_path: Path) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSION, said("f1", "Other session", session="s2"))

        report = await fire(home, staged(Summarise(when_more_than=5, max_tokens=8)))

        [summary] = await home.facts.query(FactPattern(channel="summaries"))
        assert summary.id == "@summaries/e0"
        assert summary.payload["content"] == "Ann met person0 in town0."
        assert summary.payload["summarises"] == ["e0", "e1", "e2", "e3"]
        assert summary.lineage[0]["source_episode_ids"] == ["e0", "e1", "e2", "e3"]
        assert await marks(home) == SUMMARISED
        assert (report.channels["summaries"].added, report.channels["marks"].added) == (1, 4)
        [line] = [row for row in home.log.lines if row.fact_id == "@summaries/e0"]
        assert line.source_episode_ids == ("e0", "e1", "e2", "e3")
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_similar_summaries_are_not_linked_as_similar_statements(provider: Provider) -> None:
    other = [one.model_copy(update={"id": f"f{one.id}", "session": "s2"}) for one in SESSION]
    async with open_stores(provider, comparer=FakeComparer) as home:
        await home.put(*SESSION, *other)

        await fire(home, staged(Summarise(when_more_than=5), similarity=Similarity(min=0.1)))

        summaries = await home.facts.query(FactPattern(channel="summaries"))
        assert len(summaries) == 2
        assert all("possible_duplicate" not in summary.metadata for summary in summaries)


async def test_summarised_episodes_are_not_archived_later(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSION)
        nightly = staged(Summarise(when_more_than=5), Decay())
        await fire(home, nightly, 1)

        await fire(home, nightly, 99)

        archived = {f"e{n}": ("archived", "decayed") for n in range(4, 6)}
        assert await marks(home) == SUMMARISED | archived


async def test_edit_of_a_summarised_episode_takes_the_summary_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSION)
        nightly = staged(Summarise(when_more_than=5))
        await fire(home, nightly)
        await home.put(said("e1", "Ann met nobody at all.", 9))

        await fire(home, nightly)

        # The edited episode is the newest now.
        [summary] = await home.facts.query(FactPattern(channel="summaries"))
        assert summary.payload["summarises"] == ["e0", "e2", "e3", "e4"]
        assert "person1" not in summary.payload["content"]
        assert sorted(await marks(home)) == ["e0", "e2", "e3", "e4"]


async def test_summary_ends_when_its_session_is_short_again(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSION)
        nightly = staged(Summarise(when_more_than=5), when_filter="content NOT LIKE '%gone%'")
        await fire(home, nightly)
        await home.put(said("e0", "gone"), said("e5", "gone too", 1))

        await fire(home, nightly)

        assert await home.facts.query(FactPattern(channel="summaries")) == []
        assert await marks(home) == {}


async def test_mark_of_another_rule_hides_an_episode(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA, metadata={"importance": 0}), said("e2", "second"))
        await fire(home, rule("first", stages=(Importance(),)))

        await fire(home, rule("second", stages=(Decay(),)), 99)

        found = await home.facts.query(FactPattern(channel="marks"))
        assert [(fact.id, fact.lineage[0]["rule_id"]) for fact in found] == [
            ("@marks/e1", "first"), ("@marks/e2", "second"),
        ]  # fmt: skip


async def test_filter_that_leaves_an_episode_takes_its_mark_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second"))
        await fire(home, staged(Decay()), 99)

        await fire(home, staged(Decay(), when_filter="id = 'e2'"), 99)

        assert await marks(home) == {"e2": ("archived", "decayed")}


async def test_rule_without_stages_takes_its_marks_back_by_backfill(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second"))
        await fire(home, staged(Decay()), 99)
        await home.put(said("e1", "edited"))

        await fire(home, staged(), 99)
        after_edit = await marks(home)
        await home.consolidator.backfill(staged(), START, by="me")

        assert after_edit == {"e2": ("archived", "decayed")}
        assert await marks(home) == {}
        assert sorted(await home.objects()) == ["e1", "e2"]


async def test_firing_of_new_episodes_keeps_the_marks(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second"))
        await fire(home, staged(Decay()), 99)
        await home.put(said("e1", TEA, metadata={"seen": True}), said("e3", "third", 98.9))

        await fire(home, staged(Decay()), 99)

        assert sorted(await marks(home)) == ["e1", "e2"]
        assert sorted(await home.objects()) == ["e1", "e2", "e3"]


@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_batches_of_any_size_make_the_same_marks(provider: Provider, batch: int) -> None:
    async with open_stores(provider, batch=batch) as home:
        await home.put(*SESSION, said("d1", TEA, 8), said("d2", TEA, 9))

        await fire(home, staged(Dedup(), Summarise(when_more_than=5)), 1)

        again = await fire(home, staged(Dedup(), Summarise(when_more_than=5)), 1)

        assert again.firing_ids == []
        # The two later episodes count for the session, too.
        assert (await marks(home))["d1"] == ("duplicate_of", "d2")
        assert len(await marks(home)) == 6
        assert len(await home.facts.query(FactPattern(channel="summaries"))) == 1


async def test_preview_shows_the_marks_and_writes_none(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        nightly = staged(Dedup())
        before = await home.facts.ledger.head()

        preview = await home.consolidator.preview(nightly, START)

        assert await home.facts.ledger.head() == before
        report = await fire(home, nightly)
        assert preview.channels == report.channels
        assert "@marks/e1" in [record.fact_id for record in preview.records]


async def test_undo_takes_marks_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        report = await fire(home, staged(Dedup()))

        await home.facts.ledger.undo(report.firing_ids[-1], at=START, by="me", dry_run=False)

        assert await marks(home) == {}
        assert sorted(await home.objects()) == ["e1", "e2"]


async def test_marks_of_the_past_can_be_asked_for(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(Decay()), 99)

        pattern = FactPattern(channel="marks")
        before = await home.facts.query(pattern, believed_at=START + timedelta(days=98))
        after = await home.facts.query(pattern, believed_at=START + timedelta(days=100))

        assert (before, [fact.id for fact in after]) == ([], ["@marks/e1"])


async def test_person_ends_a_mark_for_good(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(Decay()), 99)
        await home.facts.retract("@marks/e1", by="me", reason="still of use")

        again = await fire(home, staged(Decay()), 101)

        assert await marks(home) == {}
        assert again.firing_ids == []


async def test_summary_of_another_rule_stays(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*SESSION)
        await fire(home, rule("first", stages=(Summarise(when_more_than=5),)))
        await home.put(said("e1", "Ann met nobody at all.", 9))

        await fire(home, staged(Summarise(when_more_than=5)))

        [summary] = await home.facts.query(FactPattern(channel="summaries"))
        assert summary.payload["summarises"] == ["e0", "e1", "e2", "e3"]
        assert await marks(home) == SUMMARISED


@pytest.mark.cases(15)
@pytest.mark.slow
@pytest.mark.parametrize("slots", [{}, {"user": "alice"}, {"user": "alice", "agent": "rag"}])
@pytest.mark.parametrize("order", ["id", "said_at"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 2, 9])
async def test_search_without_a_channel_finds_no_marks_and_no_weights(
    provider: Provider, slots: dict[str, Any], order: Any, descending: bool, limit: int | None
) -> None:
    ids = [" first", "@marks", "e1", "~last"]
    async with open_stores(provider) as home:
        await home.put(*(said(id, f"text {id}", n) for n, id in enumerate(ids)))
        weighing = staged(WEEKLY, then_emits=["facts", "ants", "notes", "zoo"])
        await fire(home, weighing, 98)
        await fire(home, rule("other", stages=(Decay(),)), 99)
        assert len(await marks(home)) == len(await weights(home)) == len(ids)
        pattern = FactPattern(**slots, order=order, descending=descending, limit=limit)

        found = page = await home.facts.query(pattern)
        while page and limit is not None:
            page = await home.facts.query(pattern.following(page[-1]))
            found = [*found, *page]

        kept = {" first", "@facts/@marks", "e1", "~last"}
        kept |= {f"@{channel}/{id}" for id in ids for channel in ("ants", "notes", "zoo")}
        assert {fact.id for fact in found} == kept
        assert len(found) == len(kept)


async def test_specified_search_and_search_as_of_find_no_marks(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(Decay()), 99)
        late = START + timedelta(days=100)

        for slots in ({}, {"user": "alice"}, {"user": "alice", "limit": 5}):
            pattern = FactPattern.model_validate(slots)
            assert [fact.id for fact in await home.facts.query(pattern)] == ["e1"]
            as_of = await home.facts.query(pattern, believed_at=late)
            assert [fact.id for fact in as_of] == ["e1"]
        assert await home.facts.query(FactPattern(subject="e1")) == []
        [mark] = await home.facts.query(FactPattern(id="@marks/e1"))
        assert mark.payload["predicate"] == "archived"


@pytest.mark.slow
@pytest.mark.parametrize("session", [None, f"{CANARY}-session"])
async def test_erasing_a_scope_erases_its_marks_and_summaries(
    tmp_path: Path, session: str | None
) -> None:
    async with open_stores(tmp_path) as home:
        user = "alice" if session else f"{CANARY}-user"
        inside = {"user": user, "agent": "rag", "session": f"{CANARY}-session"}
        await home.put(
            *(said(f"{CANARY}-{n}", f"{CANARY} met {n}.", n / 9, **inside) for n in range(4)),
            said("kept", "Ann met Bob.", user="alice", agent="rag", session="s2"),
        )
        await fire(home, staged(Summarise(when_more_than=1), Decay()), 99)
        before = await home.facts.query(FactPattern(channel="summaries"))

        await forget(home, user=user, session=session)

        assert len(before) == 1
        assert files_with_canary(tmp_path) == []
        assert await marks(home) == {"kept": ("archived", "decayed")}
        assert await home.facts.query(FactPattern(channel="summaries")) == []
        assert (await fire(home, staged(Summarise(when_more_than=1), Decay()), 99)).firing_ids == []


WEEKLY = Decay(action="reweight", half_life=7 * DAY)


async def weights(home: OpenStores, **instants: Any) -> dict[str, float]:
    facts = await home.facts.query(FactPattern(channel="weights"), **instants)
    assert {fact.payload["predicate"] for fact in facts} <= {"reweighted"}
    return {fact.payload["subject"]: fact.payload["object"] for fact in facts}


@pytest.mark.slow
async def test_nights_of_weeks_change_a_weight_at_most_five_times(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", "first"),
            said("e2", "second", 10),
            said("e3", "important", metadata={"importance": 0.8}),
        )
        nightly = staged(WEEKLY)
        seen: list[float] = []

        for night in range(70):
            await fire(home, nightly, night)
            seen.append((await weights(home)).get("e1", 1.0))

        assert seen == [2.0 ** -min(night // 7, 5) for night in range(70)]
        assert await weights(home) == {"e1": 2**-5, "e2": 2**-5}
        lines = [row.kind for row in home.log.lines if row.fact_id == "@weights/e1"]
        assert lines == ["add", *["update"] * 4]
        assert await marks(home) == {}
        as_of = START + timedelta(days=15)
        assert await weights(home, believed_at=as_of) == {"e1": 0.25}
        assert await home.facts.reads.find_multi_valued_hints() == []
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_weighted_episode_is_found_by_searches_and_its_weight_is_not(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(WEEKLY), 99)

        assert await home.objects() == {"e1": None}
        assert [fact.id for fact in await home.facts.query(FactPattern(user="alice"))] == ["e1"]
        assert await home.facts.query(FactPattern(subject="e1")) == []
        [weight] = await home.facts.query(FactPattern(id="@weights/e1"))
        assert weight.lineage[0]["source_episode_ids"] == ["e1"]


async def test_mark_of_any_rule_ends_the_weight_of_its_episode(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        weighing, hourly = staged(WEEKLY), rule("hourly", stages=(Dedup(),))
        await fire(home, weighing, 20)
        both = await weights(home)

        await fire(home, hourly, 21)
        report = await fire(home, weighing, 21)
        again = await fire(home, weighing, 21)

        assert both == {"e1": 0.25, "e2": 0.25}
        assert await marks(home) == {"e1": ("duplicate_of", "e2")}
        assert await weights(home) == {"e2": 0.25}
        assert report.channels["weights"].deleted == 1
        assert again.firing_ids == []
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_episode_has_the_weight_of_one_rule(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second", 20))
        other = rule("other", stages=(Decay(action="reweight", half_life=DAY),))
        await fire(home, staged(WEEKLY), 21)

        await fire(home, other, 21)

        assert await weights(home) == {"e1": 0.125, "e2": 0.5}
        assert (await fire(home, staged(WEEKLY), 21)).firing_ids == []
        assert (await fire(home, other, 21)).firing_ids == []


async def test_weight_ends_with_the_filter_and_with_the_stage(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second"))
        await fire(home, staged(WEEKLY), 8)
        both = await weights(home)

        await fire(home, staged(WEEKLY, when_filter="id = 'e2'"), 8)
        filtered = await weights(home)
        await fire(home, staged(Importance()), 8)

        assert (both, filtered) == ({"e1": 0.5, "e2": 0.5}, {"e2": 0.5})
        assert await weights(home) == {}


async def test_edited_episode_has_the_weight_of_its_new_instant(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "second"))
        await fire(home, staged(WEEKLY), 15)
        await home.put(said("e1", "edited", 14), said("e2", "edited", 7.5))

        await fire(home, staged(WEEKLY), 15)

        assert await weights(home) == {"e2": 0.5}


async def test_rule_without_stages_takes_its_weights_back_by_backfill(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(WEEKLY), 15)

        await home.consolidator.backfill(staged(), START, by="me")

        assert await weights(home) == {}
        assert sorted(await home.objects()) == ["e1"]


async def test_undo_of_a_night_restores_the_weight_before(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(WEEKLY), 8)
        report = await fire(home, staged(WEEKLY), 15)

        await home.facts.ledger.undo(report.firing_ids[-1], at=START, by="me", dry_run=False)

        assert await weights(home) == {"e1": 0.5}


@pytest.mark.slow
async def test_person_ends_a_weight_for_good_and_the_episode_can_still_be_marked(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        await fire(home, staged(WEEKLY), 15)
        await home.facts.retract("@weights/e1", by="me", reason="still of use")

        for night in range(16, 100):
            await fire(home, staged(WEEKLY), night)
        left = await weights(home)
        await fire(home, staged(WEEKLY, Dedup()), 99)

        kinds = [record.kind for record in await home.facts.reads.records_of("@weights/e1")]
        assert kinds == ["add"]
        assert left == {"e2": 2**-5}
        assert await marks(home) == {"e1": ("duplicate_of", "e2")}


async def test_weight_of_an_episode_is_explained(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA))
        await fire(home, staged(WEEKLY), 8)

        told = await home.facts.why("@weights/e1")

        assert told.fact is not None
        [asserting] = told.assertions
        assert asserting.row.record.rule_id == "nightly"
        assert [source.id for source in told.sources] == ["e1"]


@pytest.mark.slow
async def test_erasing_a_user_erases_the_weights(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(said(f"{CANARY}-1", TEA, user=f"{CANARY}-user"), said("e1", TEA))
        await fire(home, staged(WEEKLY), 99)

        await forget(home, user=f"{CANARY}-user", session=None)

        assert files_with_canary(tmp_path) == []
        assert await weights(home) == {"e1": 2**-5}


async def end(home: OpenStores, *fact_ids: str) -> None:
    edit = Retract(fact_ids, ({"by": "ann", "reason": "no"},), known_only=True)
    await home.facts.apply_deltas(ManualBatch([edit], "ann"))


async def test_mark_that_a_person_ended_is_never_made_again(provider: Provider) -> None:
    nightly = staged(Dedup())
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        await fire(home, nightly)
        await end(home, "@marks/e1")
        rows = await home.facts.reads.ledger_rows()

        idle = await fire(home, nightly, 2)
        unchanged = await home.facts.reads.ledger_rows()
        await home.consolidator.backfill(nightly, START, by="ann")

        assert (idle.firing_ids, unchanged) == ([], rows)
        assert await marks(home) == {}


async def test_weight_that_a_person_ended_is_never_made_again(provider: Provider) -> None:
    nightly = staged(Decay(action="reweight", half_life=DAY))
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", "Bob likes tea"))
        await fire(home, nightly, 1)
        await end(home, "@weights/e1")

        await fire(home, nightly, 2)

        [fact] = await home.facts.query(FactPattern(channel="weights"))
        assert (fact.id, fact.payload["object"]) == ("@weights/e2", 0.25)


async def test_undo_of_the_end_of_a_mark_brings_the_mark_back(provider: Provider) -> None:
    nightly = staged(Dedup())
    async with open_stores(provider) as home:
        await home.put(said("e1", TEA), said("e2", TEA, 1))
        await fire(home, nightly)
        await end(home, "@marks/e1")
        records = await home.facts.reads.records()
        ended = next(one.firing_id for one in records if one.rule_id == "@manual")
        await home.facts.ledger.undo(ended, at=START, by="ann", dry_run=False)

        idle = await fire(home, nightly, 2)

        assert await marks(home) == {"e1": ("duplicate_of", "e2")}
        assert idle.firing_ids == []


async def test_member_of_a_summary_whose_mark_a_person_ended_leaves_the_summary(
    provider: Provider,
) -> None:
    nightly = staged(Summarise(when_more_than=2))
    async with open_stores(provider) as home:
        await home.put(*(said(f"e{n:02}", f"Ann met guest {n} in town.", n) for n in range(25)))
        await fire(home, nightly)
        before = await marks(home)
        await end(home, "@marks/e01")

        await fire(home, nightly, 2)
        after = await marks(home)
        idle = await fire(home, nightly, 3)
        await home.consolidator.backfill(nightly, START, by="ann")
        settled = await fire(home, nightly, 3)

        assert before.keys() - after.keys() == {"e01"}
        assert (idle.firing_ids, settled.firing_ids) == ([], [])
        summaries = await home.facts.query(FactPattern(channel="summaries"))
        members = [id for summary in summaries for id in summary.payload["summarises"]]
        assert sorted(members) == sorted(await marks(home))
        assert "e01" not in members


async def test_summary_that_a_person_ended_hides_nothing(provider: Provider) -> None:
    nightly = staged(Summarise(when_more_than=2))
    async with open_stores(provider) as home:
        await home.put(*(said(f"e{n:02}", f"Ann met guest {n} in town.", n) for n in range(25)))
        await fire(home, nightly)
        before = await marks(home)
        await end(home, "@summaries/e00")

        await fire(home, nightly, 2)
        idle = await fire(home, nightly, 3)

        after = await marks(home)
        summaries = await home.facts.query(FactPattern(channel="summaries"))
        assert {fact.id for fact in summaries} == {of for _, of in after.values()}
        assert {of for _, of in before.values()} - {of for _, of in after.values()} == {
            "@summaries/e00"
        }
        assert idle.firing_ids == []
