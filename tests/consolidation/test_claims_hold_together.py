"""The claims of one version hold together; a set, and words, say what a retraction covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.claim import Claim, Fault, claim_of, covers
from slumberd.consolidation.incoming import HeldBack, evaluate
from slumberd.consolidation.precedence import MultiValued
from slumberd.consolidation.resolution import decide
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import Episode, SalienceShortfall
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import canonical
from tests.support.builders import START, at, episode, rule, version
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

SWEDISH = {"subject": "ada", "predicate": "speaks", "object": "Swedish"}
ENGLISH = SWEDISH | {"object": "English"}
FRENCH = SWEDISH | {"object": "French"}
FORGETS = {"subject": "ada", "predicate": "speaks", "intent": "delete"}


def saying(*triples: Any, id: str = "e1", minute: int = 0) -> Episode:
    return episode(id, timestamp=at(minute), metadata={"triples": [*triples]})


async def effects(home: OpenStores, *episodes: Episode) -> list[tuple[str, str, list[str], str]]:
    """Fire for some episodes; return the deltas: kind, fact id, what went, and the reason."""
    await home.put(*episodes)
    home.log.lines.clear()
    await home.fire()
    found = [record for record in home.log.lines if record.fact_id]
    return [(one.kind, one.fact_id, [*one.replaces], one.reason) for one in found]


async def test_claims_of_one_version_stay_and_the_next_version_replaces_all(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        first = await effects(home, saying(SWEDISH, ENGLISH))
        assert await home.objects() == {"e1#1": "Swedish", "e1#2": "English"}
        second = await effects(home, saying(FRENCH, ENGLISH, id="e2", minute=1))

        assert first[1:] == [("add", "e1#1", [], ""), ("add", "e1#2", [], "")]
        assert second[1:] == [("update", "e2#1", ["e1#1", "e1#2"], ""), ("add", "e2#2", [], "")]
        assert await home.objects() == {"e2#1": "French", "e2#2": "English"}
        for fact in await home.facts.query(FactPattern()):
            assert [entry["replaces"] for entry in fact.lineage[1:]] == ["e1#2", "e1#1"]
        then = await home.facts.query(FactPattern(), valid_at=at(0))
        assert {fact.id for fact in then} == {"e1#1", "e1#2"}
        _, _, broken = await home.facts.verify()
        assert broken is None


async def test_equal_objects_of_one_version_are_one_fact(provider: Provider) -> None:
    async with open_stores(provider) as home:
        found = await effects(home, saying(SWEDISH, ENGLISH, SWEDISH))

        assert found[1:] == [
            ("add", "e1#1", [], ""), ("add", "e1#2", [], ""), ("noop", "e1#3", [], "known"),
        ]  # fmt: skip
        assert await home.objects() == {"e1#1": "Swedish", "e1#2": "English"}


@pytest.mark.parametrize("triples", [(FORGETS, ENGLISH, FRENCH), (ENGLISH, FRENCH, FORGETS)])
async def test_a_delete_covers_what_is_older_than_its_version(
    provider: Provider, triples: Any
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(SWEDISH, id="e0"))
        await home.put(saying(*triples, minute=1))

        await home.fire()

        assert sorted(map(str, (await home.objects()).values())) == ["English", "French"]


async def test_one_precedence_a_key_is_that_of_the_highest_rank(provider: Provider) -> None:
    naming = ENGLISH | {"intent": "update", "replaces": ["e9"]}
    async with open_stores(provider) as home:
        await home.put(saying(FRENCH, id="z"))
        await home.put(saying(SWEDISH, naming, id="a"))

        await home.fire()

        assert await home.objects() == {"a#1": "Swedish", "a#2": "English"}


async def test_a_claim_retracts_one_of_its_version_by_name_only(provider: Provider) -> None:
    naming = ENGLISH | {"intent": "update", "replaces": ["e1#1"]}
    async with open_stores(provider) as home:
        await home.put(saying(SWEDISH, naming, FRENCH))

        await home.fire()

        assert await home.objects() == {"e1#2": "English", "e1#3": "French"}


@pytest.mark.parametrize("several", [False, True])
async def test_a_set_covers_every_older_object_and_no_sibling(
    provider: Provider, several: bool
) -> None:
    async with open_stores(provider) as home:
        channels = {"facts": frozenset({"speaks"})} if several else {}
        await home.facts.ledger.set_channels(channels, at=START)
        payload = {"subject": "ada", "predicate": "speaks", "object": "Latin"}
        lineage = [{"kind": "manual", "source_id": "host"}]
        await home.facts.pin(
            Fact(id="declared", user="alice", agent="rag", payload=payload, lineage=lineage,
                 confidence=1.0, pinned_at=START)
        )  # fmt: skip
        await home.put(saying(SWEDISH, ENGLISH, id="e0"))
        await home.fire()
        assert sorted(map(str, (await home.objects()).values())) == ["English", "Latin", "Swedish"]

        found = await effects(home, saying(FRENCH | {"intent": "set"}, ENGLISH, minute=1))

        assert sorted(map(str, (await home.objects()).values())) == ["English", "French"]
        kind, fact_id, gone, _ = found[1]
        assert (kind, fact_id) == ("update", "e1#1")
        assert {"e0#1", "declared"} <= set(gone)
        await home.put(saying(SWEDISH, id="late", minute=0))
        await home.fire()
        assert sorted(map(str, (await home.objects()).values())) == ["English", "French"]
        _, _, broken = await home.facts.verify()
        assert broken is None


WORDS = FORGETS | {"object_words": ["tokyo", "TRIP"]}


@pytest.mark.parametrize("several", [False, True])
async def test_words_of_a_retraction_cover_older_objects_that_hold_all_of_them(
    provider: Provider, several: bool
) -> None:
    objects = ["a trip to Tokyo", "Tokyo", "trips to Tokyo", "TRIP: Tokyo!"]
    plans = [SWEDISH | {"object": text} for text in objects]
    async with open_stores(provider) as home:
        channels = {"facts": frozenset({"speaks"})} if several else {}
        await home.facts.ledger.set_channels(channels, at=START)
        await home.put(saying(*plans))
        await home.put(saying(WORDS, id="e2", minute=1))

        await home.fire()

        assert await home.objects() == {"e1#2": "Tokyo", "e1#3": "trips to Tokyo"}
        await home.put(saying({**SWEDISH, "object": "trip, Tokyo"}, id="e3", minute=2))
        await home.fire(rule("later"))
        assert "trip, Tokyo" in (await home.objects()).values()
        _, _, broken = await home.facts.verify()
        assert broken is None


@pytest.mark.parametrize(
    ("words", "object_", "covered"),
    [
        ("दिन", "हिन्दी", False),  # the letters of the one are in the other
        ("हिन्दी", "हिन्दी की किताब", True),
        ("Krako\u0301w", "a trip to Kraków", True),
        ("trip", "ein Trip nach Łódź", True),
    ],
)
def test_words_of_a_retraction_are_whole_words_of_every_script(
    words: str, object_: str, covered: bool
) -> None:
    found = claim_of(version("e1", metadata=FORGETS | {"object_words": [words]}), "facts")

    assert isinstance(found, Claim)
    assert covers(found.cleared, canonical(object_)) is covered


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"intent": "set", "replaces": ["e0"]}, "replaces_malformed"),
        ({"intent": "set", "replaces": 7}, "replaces_malformed"),
        ({"intent": "set", "subject": None}, "delete_of_nothing"),
        ({"intent": "delete", "object_words": 7}, "object_words_malformed"),
        ({"intent": "delete", "object_words": ["tea", 7]}, "object_words_malformed"),
        ({"intent": "delete", "object_words": ["..."]}, "object_words_malformed"),
        ({"intent": "delete", "object_words": ["tea"], "object": "tea"}, "object_words_malformed"),
        ({"intent": "delete", "object_words": "tea", "replaces": "e0"}, "object_words_malformed"),
    ],
)
def test_a_malformed_set_or_retraction_has_a_fault(metadata: dict[str, Any], reason: str) -> None:
    said = {"subject": "ada", "predicate": "drinks"} | metadata

    found = claim_of(version("e1", metadata=said), "facts")

    assert isinstance(found, Fault)
    assert found.reason == reason


@pytest.mark.parametrize("nothing", [None, []])
def test_a_set_that_names_nothing_and_a_delete_without_words_are_read(nothing: Any) -> None:
    said = {"subject": "ada", "predicate": "drinks", "object": "tea"}

    found = claim_of(version("e1", metadata=said | {"intent": "set", "replaces": nothing}), "facts")
    gone = claim_of(
        version("e1", metadata=said | {"intent": "delete", "object_words": nothing}), "facts"
    )

    assert isinstance(found, Claim)
    assert (found.asserts, found.object, found.cleared) == (True, '"tea"', "")
    assert isinstance(gone, Claim)
    assert gone.cleared == '"tea"'


async def test_an_evaluation_withdraws_what_older_versions_claim_whichever_rule_read_them(
    provider: Provider,
) -> None:
    """The own claim of the second version, which only the second rule read, goes as well."""
    tea = {"subject": "ada", "predicate": "drinks", "object": "tea"}
    first, second = rule("r1", when_filter="intent = '?'"), rule("r2", when_filter="object = 'tea'")
    async with open_stores(provider) as home:
        await home.put(episode("e", metadata={"intent": "?", "triples": [SWEDISH]}))
        await home.fire(first)
        await home.put(episode("e", metadata=tea))
        await home.fire(second)
        assert await home.objects() == {"e": "tea"}
        await home.put(episode("e", metadata={"intent": "noop"}))

        await home.fire(first)

        assert await home.objects() == {}
        _, _, broken = await home.facts.verify()
        assert broken is None


@pytest.mark.parametrize(("law", "passes"), [(1, False), (2, True)])
def test_gate_lets_an_edit_pass_when_the_rule_promoted_another_claim_of_the_episode(
    law: int, passes: bool
) -> None:
    first = evaluate([version("e1", metadata={"intent": "?", "triples": [SWEDISH]})], rule("all"))
    known = KnownState(MultiValued(), 8, law=law)
    decide(first, known, number=1, at=0)
    shortfall = SalienceShortfall(0.1, 0.5)
    held = version("e1", metadata=SWEDISH)._replace(seq=2, gated=shortfall)

    [candidate] = evaluate([held], rule("all"))["facts"]

    assert isinstance(candidate, HeldBack)
    assert known.passes_gate(candidate) is passes


@pytest.mark.parametrize(("what", "left"), [("English", ["Latin"]), ("Latin", ["English"])])
async def test_a_delete_of_one_object_leaves_the_declared_facts_of_others(
    tmp_path: Path, what: str, left: list[str]
) -> None:
    payload = {"subject": "ada", "predicate": "speaks", "object": "Latin"}
    lineage = [{"kind": "manual", "source_id": "host"}]
    async with open_stores(tmp_path) as home:
        await home.facts.pin(
            Fact(id="declared", user="alice", agent="rag", payload=payload, lineage=lineage,
                 confidence=1.0, pinned_at=START)
        )  # fmt: skip
        await home.put(saying(ENGLISH))
        await home.fire()

        await effects(home, saying(FORGETS | {"object": what}, id="e2", minute=1))

        assert [*(await home.objects()).values()] == left
