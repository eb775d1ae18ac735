"""Filters, extraction and recorded answers know who spoke, on real stores of each engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode, microseconds
from slumberd.model.extraction import (
    Extracted,
    Extraction,
    ModelSettings,
    RecordedAnswer,
    RecordedSummary,
    Turn,
    answer_key,
    answer_key_by_node,
    summary_key,
    summary_key_by_node,
)
from slumberd.model.fact import FactPattern
from slumberd.model.firing import START as FIRST
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.pattern_loader import model_extraction
from slumberd.rules.vocabulary_loader import conversation_extraction
from tests.consolidation.test_model_summaries_on_stores import MODEL, session, summaries
from tests.consolidation.test_model_summaries_on_stores import RULE as SUMMARISING
from tests.support import speakers
from tests.support.asked_models import Asked, asked_stores, asking
from tests.support.builders import START, at, episode, rule
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import NewStores, Provider
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

SAYINGS = st.lists(
    st.tuples(
        st.sampled_from([*speakers.NO_SPEAKERS, *speakers.BLANKS]) | speakers.NAMES,
        speakers.METADATA,
    ),
    min_size=1,
    max_size=12,
)


async def selected(home: OpenStores, condition: str) -> set[str]:
    """Return the readable episodes that a filter selects."""
    read = await home.memory.select(rule("all", when_filter=condition), after=FIRST, limit=100)
    return {version.id for version in read.versions if version.matched and not version.fault}


@pytest.mark.sampled
@pytest.mark.parametrize("person", [("user", "human"), ("ann", "{user}")])
@settings(
    max_examples=amount(10, full=200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(said=SAYINGS)
async def test_filter_columns_are_those_of_the_law(
    new_stores: NewStores, person: tuple[str, ...], said: list[tuple[str, dict[str, Any]]]
) -> None:
    by_id = {f"e{n}": one for n, one in enumerate(said)}
    with new_stores() as provider:
        async with open_stores(provider, person=person) as home:
            await home.put(
                *(
                    episode(id, source_node=node, metadata=metadata)
                    for id, (node, metadata) in by_id.items()
                )
            )

            persons = await selected(home, "is_person")
            others = await selected(home, "is_person = 0")
            nobody = await selected(home, "speaker IS NULL")

    expected = {id for id, one in by_id.items() if speakers.is_person(*one, person)}
    assert persons == expected
    assert others == by_id.keys() - expected
    assert nobody == {id for id, one in by_id.items() if speakers.speaker(*one) is None}


async def test_filter_compares_the_speaker(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            episode("e1", source_node="remember", metadata={"speaker": "ann"}),
            episode("e2", source_node="ann"),
            episode("e3", source_node="ann", metadata={"role": "user"}),
            episode("e4", source_node="remember"),
        )

        assert await selected(home, "speaker = 'ann'") == {"e1", "e2"}
        assert await selected(home, "speaker IS NULL") == {"e4"}
        assert await selected(home, "SPEAKER LIKE 'US%' OR \"is_person\"") == {"e3"}


async def test_filter_fails_on_a_speaker_of_which_it_would_read_a_part(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(episode("e1", source_node="x", metadata={"speaker": "user\0"}))

        read = await home.memory.select(
            rule("all", when_filter="speaker = 'user'"), after=FIRST, limit=9
        )

    [version] = read.versions
    assert version.fault == "filter_failed: speaker holds U+0000, where SQLite ends a text"


def spoken(id: str, content: str, minute: int = 0, **overrides: Any) -> Episode:
    fields = {"user": "ada", "source_node": "remember", "timestamp": at(60 * minute)}
    return episode(id, content=content, **(fields | overrides))


async def subjects(home: OpenStores) -> dict[str, object]:
    facts = await home.facts.query(FactPattern())
    return {fact.id: fact.payload["subject"] for fact in facts}


async def test_words_belong_to_who_spoke_them(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            spoken("e1", "My mother is a nurse.", metadata={"speaker": "user"}),
            spoken("e2", "My uncle is a cook.", metadata={"speaker": "assistant"}),
            spoken("e3", "My aunt is a judge."),
            spoken("e4", "My father is a smith.", source_node="human"),
        )

        await home.fire(rule("all", extract=conversation_extraction({})))

        assert await subjects(home) == {
            "e1#1": "ada's mother", "e2#1": "assistant's uncle", "e4#1": "ada's father",
        }  # fmt: skip


async def test_nodes_of_a_host_are_the_person_if_listed(provider: Provider) -> None:
    async with open_stores(provider, person=["chat_node"]) as home:
        await home.put(
            spoken("e1", "My mother is a nurse.", source_node="chat_node"),
            spoken("e2", "My uncle is a cook.", source_node="user"),
        )

        await home.fire(rule("all", extract=conversation_extraction({})))

        assert await subjects(home) == {"e1#1": "ada's mother", "e2#1": "user's uncle"}


class Before:
    """States what was said before, by whom."""

    def extract(self, turns: Any, before: Any) -> list[list[Extracted]]:
        return [
            [Extracted(turn.id, "follows", f"{other.speaker}: {other.content}", "add", (0, 1))]
            if other
            else []
            for turn, other in zip(turns, before, strict=True)
        ]


async def test_turn_before_is_that_of_another_speaker(provider: Provider) -> None:
    said = {"user": {"speaker": "user"}, "assistant": {"speaker": "assistant"}}
    async with open_stores(provider) as home:
        await home.put(
            spoken("e1", "Which table?", 1, metadata=said["assistant"]),
            spoken("e2", "By the window", 2, metadata=said["user"]),
            spoken("e3", "Nobody known", 3),
            spoken("e4", "And tea", 4, metadata=said["user"]),
        )

        await home.fire(
            rule("all", extract=Extraction("test", "before", Before(), reads_previous=True))
        )

        facts = await home.facts.query(FactPattern())
        assert {fact.payload["subject"]: fact.payload["object"] for fact in facts} == {
            "e2": "assistant: Which table?", "e4": "assistant: Which table?",
        }  # fmt: skip


async def fire(asked: Asked, fired: ConsolidationRule) -> bool:
    report = await asked.home.consolidator.fire(FireRequest(fired, "manual", START))
    return report.unrecorded


async def record_by_node(
    asked: Asked, fired: ConsolidationRule, given: Episode, subject: str, before: Episode | None
) -> None:
    """Record an answer as slumberd 0.2.0 did."""
    assert fired.extract is not None
    turns = [
        Turn(
            one.id, one.session, "", one.content, microseconds(one.timestamp), one.user, one.agent,
            source_node=one.source_node,
        )
        for one in (given, *([before] if before else []))
    ]  # fmt: skip
    key = answer_key_by_node(fired.extract.digest_of_0_2_0, turns[0], turns[1] if before else None)
    word = given.content.split()[-1]
    triple = Extracted(subject, "likes", word, "add", (0, 1), "tiny")
    await asked.home.memory.answers.record([RecordedAnswer(key, given.id, "tiny", "ok", [triple])])


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        pytest.param({}, "remember", id="without names"),
        pytest.param({"remember": "{user}"}, "ada", id="with the name of the interface"),
    ],
)
async def test_answers_of_the_older_key_are_found_with_the_speaker_s_name(
    provider: Provider, names: dict[str, str], subject: str
) -> None:
    fired = asking(speakers=names)
    mine = spoken("e1", "I like tea", metadata={"speaker": "user"})
    its = spoken("e2", "I like cake", 1, metadata={"speaker": "assistant"})
    other = spoken("e3", "I like rum", 2, source_node="user")
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(mine, its, other)
        await record_by_node(asked, fired, mine, subject, None)
        await record_by_node(asked, fired, its, subject, None)
        await record_by_node(asked, fired, other, "user", its)

        waits = await fire(asked, fired)

        facts = await asked.home.facts.query(FactPattern())
        says = {(fact.payload["subject"], fact.payload["object"]) for fact in facts}
        assert not waits
        assert asked.server.requests == []
        assert says == {("ada", "tea"), ("assistant", "cake"), ("ada", "rum")}


async def test_older_answer_about_nobody_known_states_nothing(provider: Provider) -> None:
    fired = asking()
    said = spoken("e1", "I like tea", source_node="mem0")
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(said)
        await record_by_node(asked, fired, said, "mem0", None)

        assert not await fire(asked, fired)
        assert await asked.likes() == {}


async def test_new_answer_comes_before_the_older_one(provider: Provider) -> None:
    fired = asking()
    said = spoken("e1", "I like tea", metadata={"speaker": "user"})
    async with asked_stores(provider, fired) as asked:
        await asked.home.put(said)
        await asked.worker.turn()
        await record_by_node(asked, fired, said, "remember", None)

        assert not await fire(asked, fired)
        assert await asked.likes() == {"e1#1": "tea"}
        assert len(asked.server.requests) == 1


async def test_another_person_is_another_question() -> None:
    one = Turn("e1", "s1", "chat", "I like tea", 0, "ada", "desk", source_node="chat")
    digest = model_extraction(ModelSettings("tiny", ("likes",))).digest

    assert answer_key(digest, one, None) != answer_key(digest, one._replace(is_person=True), None)
    assert answer_key(digest, one, one) != answer_key(digest, one, one._replace(speaker="x"))
    assert summary_key("d", [one], 9) != summary_key("d", [one._replace(speaker="x")], 9)


async def test_summaries_of_the_older_key_are_found(provider: Provider) -> None:
    said = session()
    async with asked_stores(provider, SUMMARISING) as asked:
        await asked.home.put(*said)
        await asked.home.consolidator.fire(FireRequest(SUMMARISING, "cron", START))
        [question, *_] = asked.worker._summaries["nightly"][1]
        key = summary_key_by_node(MODEL.digest, question.turns, question.max_tokens)
        first = question.turns[0].id
        await asked.home.memory.answers.record_summary(
            RecordedSummary(key, first, "tiny", "ok", "Guests came.")
        )

        await asked.home.consolidator.fire(FireRequest(SUMMARISING, "cron", START))

        assert "Guests came." in (await summaries(asked)).values()
        assert asked.server.requests == []
