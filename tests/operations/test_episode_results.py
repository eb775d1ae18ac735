"""One word and one sentence say what became of an episode under each rule, on each engine."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings

from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.model.episode import Episode
from slumberd.model.extraction import Extracted, Extraction, Turn
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Limits, Position
from slumberd.model.rule import ConsolidationRule, RuleFunction
from slumberd.operations.reads.episode_results import (
    NO_RULE,
    Became,
    Circumstances,
    FactOfEpisode,
    ResultOfRule,
    best_of,
    results_of,
)
from slumberd.operations.reads.explainer import read_outcome, read_results
from slumberd.rules.pattern_loader import combined_extraction, extraction_of
from slumberd.rules.yaml_reader import read_document
from tests.support.asked_models import asking
from tests.support.builders import START, at, episode, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider
from tests.support.random_histories import EVERYTHING, USERS, Step, Story, play
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

STARTER = "(predicate IS NOT NULL AND confidence >= 0.5) OR intent IS NOT NULL"
HOST = rule("host", when_filter=STARTER)
PERSON = rule("person", when_filter="is_person AND predicate IS NULL")
ALL = rule("all")
PATTERNS = """
patterns:
  - {id: home, when: "I live in (?P<place>[A-Z][a-z]+)", \
says: {subject: "{speaker}", predicate: lives_in, object: "{place}"}}
"""
HOME = triple("e1", "ada", "lives_in", "Oslo")


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    async with open_stores(provider) as found:
        yield found


async def results(
    home: OpenStores, id: str, *rules: ConsolidationRule, paused: Sequence[str] = ()
) -> list[ResultOfRule]:
    found = await read_outcome(home.memory, home.facts, rules, id)
    return await read_results(home.memory, home.facts, rules, found, paused)


async def became(
    home: OpenStores, id: str, *rules: ConsolidationRule, paused: Sequence[str] = ()
) -> tuple[Became, str]:
    """Return the word and the sentence that say most about an episode."""
    best = best_of(await results(home, id, *rules, paused=paused))
    assert best is not None
    return best.became, best.sentence


async def after_firing(
    home: OpenStores, fired: ConsolidationRule, *episodes: Episode
) -> tuple[Became, str]:
    """Put episodes, fire a rule, and return what became of the first one."""
    await home.put(*episodes)
    await home.fire(fired)
    return await became(home, episodes[0].id, fired)


async def test_fact_is_learned_with_its_triple(home: OpenStores) -> None:
    await home.put(HOME)
    await home.fire(HOST)

    [found] = await results(home, "e1", HOST)

    assert (found.rule_id, found.channel, found.became) == ("host", "facts", "learned")
    assert found.sentence == "learned: ada lives_in Oslo"
    assert found.facts == [
        FactOfEpisode(
            id="e1", subject="ada", predicate="lives_in", object="Oslo", became="learned",
            current=True,
        )
    ]  # fmt: skip


async def test_episode_of_text_alone_is_learned_as_its_text(home: OpenStores) -> None:
    assert await after_firing(home, ALL, episode("e1")) == ("learned", "learned: its text")


async def test_several_triples_are_named_together_each_with_what_became_of_it(
    home: OpenStores,
) -> None:
    triples = [
        {"subject": "ada", "predicate": "has_pet", "object": {"kind": "dog"}},
        {"subject": "ada", "predicate": "lives_in", "object": "Oslo"},
    ]
    await home.put(episode("e1", metadata={"triples": triples}))
    await home.put(triple("e2", "ada", "lives_in", "Rome", timestamp=at(9)))
    await home.fire(ALL)

    [found] = await results(home, "e1", ALL)

    assert found.sentence == (
        'learned: ada has_pet {"kind":"dog"}; not current any more: ada lives_in Oslo'
    )
    assert [(fact.became, fact.current) for fact in found.facts] == [
        ("learned", True),
        ("replaced", False),
    ]


async def test_fact_that_arrives_after_a_newer_one_is_not_current(home: OpenStores) -> None:
    await home.put(triple("e2", "ada", "lives_in", "Rome", timestamp=at(9)))
    await home.fire(ALL)

    found = await after_firing(home, ALL, HOME)

    assert found == ("replaced", "not current any more: ada lives_in Oslo")


async def test_version_that_was_read_again_and_then_replaced_is_not_known(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(HOME)
        await home.fire(ALL)
        await home.facts.watermarks.rewind("all", Position())
        with closing(sqlite3.connect(tmp_path / "facts.db")) as connection, connection:
            connection.execute("DELETE FROM slumberd_generations")  # as if no row had been lost
        again = await after_firing(home, ALL, triple("e0", "bob", "is", "here"))
        first = (await became(home, "e1", ALL))[0]
        await home.put(triple("e2", "ada", "lives_in", "Rome", timestamp=at(9)))
        await home.fire(ALL)

        last = (await became(home, "e1", ALL))[0]

    assert (again[0], first, last) == ("learned", "known", "replaced")


async def test_retraction_names_what_it_retracted(home: OpenStores) -> None:
    await home.put(HOME)
    gone = {"intent": "delete"}

    found = await after_firing(
        home, ALL, triple("e2", "ada", "lives_in", None, timestamp=at(9), metadata=gone)
    )

    assert found == ("retracted", "retracted: ada lives_in")


async def test_two_equal_triples_of_one_episode_are_one_fact_and_known(home: OpenStores) -> None:
    said = {"subject": "ada", "predicate": "lives_in", "object": "Oslo"}
    await home.put(episode("e1", metadata={"triples": [said, said]}))
    await home.fire(ALL)

    [found] = await results(home, "e1", ALL)

    assert found.sentence == "learned: ada lives_in Oslo; known already: ada lives_in Oslo"


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        pytest.param({"intent": "noop"}, "nothing: its intent is noop", id="noop"),
        pytest.param(
            {"intent": "delete", "replaces": ["absent"]},
            "nothing retracted: it retracts nothing that is known yet",
            id="unresolved",
        ),
    ],
)
async def test_claim_without_effect_says_why(
    home: OpenStores, metadata: dict[str, Any], sentence: str
) -> None:
    found = await after_firing(home, ALL, episode("e1", metadata=metadata))

    assert found == ("no_effect", sentence)


@pytest.mark.parametrize(
    ("when_filter", "metadata", "words"),
    [
        pytest.param("predicate IS NOT NULL", {}, "a predicate", id="a predicate"),
        pytest.param(STARTER, {}, "a predicate, or an intent", id="the starter"),
        pytest.param(
            STARTER,
            {"subject": "a", "predicate": "b", "object": "c", "confidence": 0.1},
            "`confidence >= 0.5`, or an intent",
            id="a guess",
        ),
        pytest.param(
            "subject = 'ada' AND predicate = 'likes'",
            {"subject": "ada", "predicate": "owns", "object": "a pan"},
            "`predicate = 'likes'`",
            id="another predicate",
        ),
        pytest.param("0", {}, "`0`", id="no column"),
        pytest.param(
            "NOT is_person", {"speaker": "user"}, "`NOT is_person`", id="anybody but the person"
        ),
    ],
)
async def test_filter_says_what_it_needs(
    home: OpenStores, when_filter: str, metadata: dict[str, Any], words: str
) -> None:
    fired = rule("picky", when_filter=when_filter)

    found = await after_firing(home, fired, episode("e1", metadata=metadata))

    assert found == ("filtered", f"filtered: the rule's filter needs {words}")


async def test_rule_for_the_person_takes_nothing_from_nobody(home: OpenStores) -> None:
    found = await after_firing(home, PERSON, episode("e1", source_node="remember"))

    assert found == ("speaker_unknown", "taken from nobody: the speaker is not known")


async def test_rule_for_the_person_names_another_speaker(home: OpenStores) -> None:
    found = await after_firing(home, PERSON, episode("e1", source_node="assistant"))

    reason = "filtered: the rule takes only what the person says; 'assistant' said this"
    assert found == ("other_speaker", reason)


@pytest.fixture
def home_pattern(tmp_path: Path) -> Extraction:
    file = tmp_path / "patterns.yaml"
    file.write_text(PATTERNS)
    return extraction_of(read_document(file))


async def test_text_without_a_matching_pattern_says_nothing(
    home: OpenStores, home_pattern: Extraction
) -> None:
    said = episode("e1", content="It rains.", source_node="user")

    found = await after_firing(home, rule("talk", extract=home_pattern), said)

    assert found == ("said_nothing", "nothing said: no pattern matched")


async def test_facts_that_are_retracted_by_their_ids_are_named_so(home: OpenStores) -> None:
    gone = {"intent": "delete", "replaces": ["e1", "e2"]}
    await home.put(HOME, triple("e2", "ada", "likes", "tea", timestamp=at(1)))
    await home.put(episode("e3", metadata=gone, timestamp=at(2)))
    await home.fire(ALL)

    [found] = await results(home, "e3", ALL)

    assert (found.became, found.sentence) == ("retracted", "retracted: e2, e1")


class EndsTheFirst:
    """Takes a fact back as a language model does."""

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        ended = Extracted("", "", None, "delete", (0, 2), "tiny", replaces=("e1",))
        return [[ended] for _ in zip(turns, before, strict=True)]


async def test_fact_that_an_extractor_ends_by_its_id_is_named_so(home: OpenStores) -> None:
    await home.put(HOME)
    await home.fire(ALL)
    await home.put(episode("e2", content="It is over.", timestamp=at(1), source_node="user"))
    fired = rule(
        "talk", when_filter="predicate IS NULL", extract=Extraction("ends", "d", EndsTheFirst())
    )
    await home.fire(fired)

    [found] = [one for one in await results(home, "e2", fired) if one.rule_id == "talk"]

    assert (found.became, found.sentence) == ("retracted", "retracted: e1")
    assert [fact.subject for fact in found.facts] == [None]


async def test_triple_of_little_confidence_is_explained_by_the_rule_for_triples(
    home: OpenStores, home_pattern: Extraction
) -> None:
    texts = rule("a-texts", when_filter="coalesce(intent, predicate) IS NULL", extract=home_pattern)
    await home.put(triple("e1", "ada", "lives_in", "Oslo", metadata={"confidence": 0.2}))
    for each in (texts, HOST):
        await home.fire(each)

    found = {one.rule_id: one.sentence for one in await results(home, "e1", texts, HOST)}

    assert found == {
        "a-texts": "filtered: the rule reads only texts that state nothing themselves",
        "host": "filtered: the rule's filter needs `confidence >= 0.5`, or an intent",
    }
    assert await became(home, "e1", texts, HOST) == ("filtered", found["host"])


TASTE = """
opposites: [[likes, dislikes]]
patterns:
  - {id: taste, when: "I like (?P<what>[a-z]+)", \
says: {subject: "{speaker}", predicate: likes, object: "{what}"}}
"""


async def test_opposite_that_nobody_has_stated_is_not_named(
    home: OpenStores, tmp_path: Path
) -> None:
    file = tmp_path / "patterns.yaml"
    file.write_text(TASTE)
    fired = rule("talk", extract=extraction_of(read_document(file)))
    said = episode("e1", content="I like tea.", source_node="user")

    assert await after_firing(home, fired, said) == ("learned", "learned: alice likes tea")


def finds_nothing() -> Extraction:
    function = RuleFunction("python:tests:find", "d", lambda *_: [])
    return Extraction(function.name, "d", FunctionExtractor(function))


async def test_silence_names_everything_that_found_nothing(
    home: OpenStores, home_pattern: Extraction
) -> None:
    fired = [
        rule(f"r{number}", extract=combined_extraction(parts, unites=False))
        for number, parts in enumerate(([finds_nothing()], [finds_nothing(), home_pattern]))
    ]
    await home.put(episode("e1", content="It rains.", source_node="user"))
    for each in fired:
        await home.fire(each)

    assert [one.sentence for one in await results(home, "e1", *fired)] == [
        "nothing said: the function found no triple",
        "nothing said: the function found no triple, and no pattern matched",
    ]
    _, sentence = await became(home, "e1")  # no rule is loaded any more
    assert sentence == "nothing said: the rule found no triple"


async def test_extracted_triple_is_learned_and_not_the_episode_around_it(
    home: OpenStores, home_pattern: Extraction
) -> None:
    fired = rule("talk", extract=home_pattern)
    await home.put(episode("e1", content="I live in Oslo.", source_node="user"))
    await home.fire(fired)

    [found] = await results(home, "e1", fired)

    assert found.sentence == "learned: alice lives_in Oslo"
    assert [fact.id for fact in found.facts] == ["e1#1"]


async def test_model_that_has_not_answered_is_waited_for(home: OpenStores) -> None:
    fired = asking()
    await home.put(episode("e1", content="I live in Oslo."))
    await home.fire(fired)

    found = await became(home, "e1", fired)

    assert found == ("unanswered", "waiting: the language model has not answered yet")


async def test_unreadable_episode_is_quarantined_with_its_reason(home: OpenStores) -> None:
    word, sentence = await after_firing(home, ALL, episode("e1", metadata={"intent": "shout"}))

    assert word == "quarantined"
    assert sentence.startswith("quarantined: intent_unknown")


@pytest.mark.parametrize(
    ("changed", "paused", "found"),
    [
        pytest.param(
            {"cadence": {"every": 100}},
            [],
            ("waiting", "waiting: the rule fires every 100 episodes, 3 pending"),
            id="too few",
        ),
        pytest.param(
            {"cadence": {"every": 3}}, [], ("due", "due: the rule has enough episodes to fire"),
            id="enough",
        ),
        pytest.param(
            {"cadence": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}},
            [],
            ("waiting", "waiting: the rule fires by cron 0 3 * * * Europe/Berlin, 3 pending"),
            id="cron",
        ),
        pytest.param({}, ["all"], ("paused", "waiting: a person paused the rule"), id="paused"),
        pytest.param(
            {"enabled": False}, [], ("disabled", "not read: the rule is disabled"), id="disabled"
        ),
    ],
)  # fmt: skip
async def test_pending_episode_says_what_it_waits_for(
    home: OpenStores, changed: dict[str, Any], paused: list[str], found: tuple[Became, str]
) -> None:
    await home.put(*(episode(f"e{n}") for n in range(3)))

    assert await became(home, "e1", rule("all", **changed), paused=paused) == found


async def test_pending_episodes_are_counted_from_the_watermark(home: OpenStores) -> None:
    often = rule("all", cadence={"every": 100})
    await home.put(episode("e0"), episode("e1"))
    await home.fire(often)
    await home.put(episode("e2"))

    _, sentence = await became(home, "e2", often)

    assert sentence == "waiting: the rule fires every 100 episodes, 1 pending"


async def test_episode_that_a_rule_has_read_since_is_not_waited_for_less(home: OpenStores) -> None:
    third = rule("all", cadence={"every": 3})
    await home.put(*(episode(f"e{n}") for n in range(3)))
    found = await read_outcome(home.memory, home.facts, [third], "e1")
    await home.fire(third)
    await home.put(episode("e3"))

    [result] = await read_results(home.memory, home.facts, [third], found)

    assert result.became == "due"


async def test_batch_that_awaits_approval_is_named(home: OpenStores) -> None:
    careful = rule("all", limits=Limits(max_deletes=0))
    await home.put(HOME)
    await home.fire(careful)
    gone = triple("e2", "ada", "lives_in", "Oslo", timestamp=at(9), metadata={"intent": "delete"})

    found = await after_firing(home, careful, gone)

    assert found == ("held", "waiting: a batch of the rule awaits approval")


async def test_rewound_turn_says_that_its_speaker_took_it_back(home: OpenStores) -> None:
    rewound = HOME.model_copy(update={"metadata": {**HOME.metadata, "withdrawn": "rewound"}})
    await home.put(HOME)
    await home.put(rewound)
    await home.fire(ALL)

    assert await became(home, "e1", ALL) == ("withdrawn", "nothing: its speaker took it back")


async def test_undone_evaluation_is_named(home: OpenStores) -> None:
    await home.put(HOME)
    report = await home.fire(ALL)
    await home.facts.ledger.undo(
        report.firing_ids[0], at=START + timedelta(1), by="me", dry_run=False
    )

    found = await became(home, "e1", ALL)

    assert found == ("undone", "nothing: the firing that evaluated it was undone")


async def test_rule_that_began_later_has_not_read_it(home: OpenStores) -> None:
    await home.put(HOME)

    word, _ = await became(home, "e1", rule("late", start="now"))

    assert word == "skipped"


async def test_word_that_says_most_comes_from_the_rule_that_learned(
    home: OpenStores,
) -> None:
    silent = rule("silent", when_filter="0")
    await home.put(HOME)
    for each in (silent, HOST):
        await home.fire(each)

    assert (await became(home, "e1", silent, HOST))[0] == "learned"


async def test_disabled_rule_hides_no_reason_of_another_one(home: OpenStores) -> None:
    resting = rule("resting", enabled=False)
    await home.put(episode("e1"))
    await home.fire(HOST)

    assert (await became(home, "e1", resting, HOST))[0] == "filtered"


async def test_gate_holds_back_an_episode_of_low_salience(home: OpenStores) -> None:
    gated = rule("gated", salience={"min": 0.03})

    word, _ = await after_firing(home, gated, HOME)

    assert word == "below_salience"


async def check_results(story: Story) -> None:
    """Compare what results say of facts with the facts themselves."""
    current = {fact.id: fact for fact in await story.store.query(FactPattern())}
    for eid in USERS:
        decisions = await story.store.reads.decisions_of(eid, [], {})
        found = results_of(decisions, Circumstances({}))
        assert len({(one.rule_id, one.channel) for one in found}) == len(found)
        for said in (fact for one in found for fact in one.facts):
            assert said.current == (said.id in current)
            assert said.current or said.became in ("replaced", "retracted", "known")
            assert not (said.current and said.became == "replaced")
            if said.current:
                assert said.object == current[said.id].payload.get("object")


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(20, full=150), deadline=None, suppress_health_check=list(HealthCheck))
@given(EVERYTHING)
def test_results_agree_with_the_facts_in_every_story(steps: list[Step]) -> None:
    play(steps, check_results)


def test_no_rule_leaves_nothing_to_say() -> None:
    assert best_of([]) is None
    assert NO_RULE
    assert len(get_args(Became)) == len({*get_args(Became)})
