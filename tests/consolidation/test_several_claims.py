"""Several triples in one episode: each is a claim of its own, and goes with its episode."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.consolidation.claim import MOST_TRIPLES, Claim, Precedence, claim_of, statements_of
from slumberd.consolidation.deltas import classify
from slumberd.consolidation.incoming import ClaimCandidate, Unsaid, evaluate
from slumberd.consolidation.precedence import Evaluation, MultiValued
from slumberd.consolidation.resolution import Resolution
from slumberd.consolidation.state import KnownState
from slumberd.consolidation.withdrawal import withdraw_parts
from slumberd.model.episode import Episode, SalienceShortfall, is_part_of, microseconds
from slumberd.model.errors import UnreadableEpisodeError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Counts
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, at, episode, rule, triple, version
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

OSLO = {"subject": "ada", "predicate": "lives_in", "object": "Oslo"}
TEA = {"subject": "ada", "predicate": "likes", "object": "tea"}
ROME = OSLO | {"object": "Rome"}


def saying(*triples: Any, id: str = "e1", minute: int = 0, own: Any = None) -> Episode:
    return episode(id, timestamp=at(minute), metadata={"triples": [*triples], **(own or {})})


async def undo(home: OpenStores, firing_id: str) -> str:
    """Undo a firing; return the id of the firing that undid it."""
    outcome = await home.facts.ledger.undo(firing_id, at=START, by="me", dry_run=False)
    return outcome.firing_id


async def quarantined(home: OpenStores) -> list[tuple[str, str, str]]:
    found = await home.facts.reads.quarantine()
    return [(entry["episode_id"], entry["reason"], entry["detail"]) for entry in found]


async def test_each_triple_becomes_a_fact_of_its_own(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))

        report = await home.fire()

        assert await home.objects() == {"e1#1": "Oslo", "e1#2": "tea"}
        assert report.channels == {"facts": Counts(read=3, added=2, noop=1)}
        explanation = await home.facts.why("e1#2")
        assert [source.id for source in explanation.sources] == ["e1"]
        assert explanation.fact is not None
        assert explanation.fact.lineage[0]["source_episode_ids"] == ["e1"]
        assert explanation.fact.payload["content"] == "content of e1"


async def test_triple_of_the_metadata_itself_keeps_the_id_of_the_episode(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(TEA, own=OSLO))

        await home.fire()

        assert await home.objects() == {"e1": "Oslo", "e1#1": "tea"}


async def test_edit_withdraws_what_is_no_longer_said_and_an_undo_restores_it(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        await home.fire()
        await home.put(saying(ROME))
        edited = await home.fire()

        assert await home.objects() == {"e1#1": "Rome"}

        await undo(home, edited.firing_ids[0])

        assert await home.objects() == {"e1#1": "Oslo", "e1#2": "tea"}


async def test_edit_of_an_undone_version_withdraws_its_claims_when_the_undo_is_undone(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        undone_by = await undo(home, (await home.fire()).firing_ids[0])
        await home.put(saying(ROME))
        await home.fire()

        await undo(home, undone_by)

        assert await home.objects() == {"e1#1": "Rome"}


async def test_edit_leaves_the_undone_claim_of_an_episode_whose_id_looks_like_its_triple(
    provider: Provider,
) -> None:
    beer = triple("e1#2", "bob", "likes", "beer").model_copy(update={"user": "bob"})
    async with open_stores(provider) as home:
        await home.put(beer)
        undone_by = await undo(home, (await home.fire()).firing_ids[0])
        await home.put(saying(OSLO))
        await home.fire()
        await home.put(saying(ROME))
        await home.fire()

        await undo(home, undone_by)

        assert await home.objects() == {"e1#1": "Rome", "@facts/e1#2": "beer"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "left"),
    [
        pytest.param("e1", {"e2": "Bergen"}, id="the whole episode"),
        pytest.param("e1#1", {"e1#2": "tea", "e2": "Bergen"}, id="one of its claims"),
        pytest.param("e1#9", {"e1#1": "Oslo", "e1#2": "tea", "e2": "Bergen"}, id="no claim"),
    ],
)
@pytest.mark.parametrize("first", ["e1", "e2"])
async def test_replaces_names_a_whole_episode_or_one_claim(
    provider: Provider, named: str, left: dict[str, str], first: str
) -> None:
    update = {"intent": "update", "replaces": named}
    by_id = {
        "e1": saying(OSLO, TEA),
        "e2": triple("e2", "bob", "lives_in", "Bergen", timestamp=at(1), metadata=update),
    }
    async with open_stores(provider) as home:
        for id in sorted(by_id, reverse=first == "e2"):
            await home.put(by_id[id])
            await home.fire()

        assert await home.objects() == left


async def test_later_triple_of_the_same_key_replaces_the_earlier(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA), saying(ROME, id="e2", minute=1))

        await home.fire()

        assert await home.objects() == {"e1#2": "tea", "e2#1": "Rome"}
        [rome] = await home.facts.query(FactPattern(object="Rome"))
        assert rome.lineage[1] == {"replaces": "e1#1", "source_episode_ids": ["e1"]}


async def test_malformed_triple_is_quarantined_and_the_others_count(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, {"intent": "?"}, TEA))

        await home.fire()

        assert await home.objects() == {"e1#1": "Oslo", "e1#3": "tea"}
        [(eid, reason, detail)] = await quarantined(home)
        assert (eid, reason) == ("e1", "intent_unknown")
        assert detail.startswith("triple 2: intent is '?'")

        await home.put(saying(OSLO, TEA))
        await home.fire()

        assert await quarantined(home) == []


async def test_two_malformed_triples_of_an_episode_are_quarantined_once(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying({"intent": "?"}, OSLO, {"intent": "!"}))

        await home.fire()

        assert await home.objects() == {"e1#2": "Oslo"}
        [(eid, reason, detail)] = await quarantined(home)
        assert (eid, reason) == ("e1", "intent_unknown")
        assert detail.startswith("triple 3: intent is '!'")


@pytest.mark.parametrize(
    ("triples", "problem"),
    [
        pytest.param("tea", "triples is 'tea'; write a list of objects", id="text"),
        pytest.param({"subject": "ada"}, "write a list of objects", id="object"),
        pytest.param([OSLO, 7], "triples holds 7; each element is an object", id="number in it"),
        pytest.param(
            [OSLO, None], "triples holds None; each element is an object", id="null in it"
        ),
        pytest.param(
            [OSLO] * (MOST_TRIPLES + 1),
            f"triples has {MOST_TRIPLES + 1} elements; write {MOST_TRIPLES} at most",
            id="too many",
        ),
    ],
)
async def test_malformed_list_is_quarantined_whole_and_withdraws_the_earlier_claims(
    provider: Provider, triples: Any, problem: str
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        await home.fire()
        await home.put(episode("e1", metadata={"triples": triples}))

        await home.fire()

        assert await home.objects() == {}
        [(eid, reason, detail)] = await quarantined(home)
        assert (eid, reason) == ("e1", "triples_malformed")
        assert problem in detail


@pytest.mark.parametrize("metadata", [{"triples": 7}, {"triples": [{"intent": "delete"}]}], ids=str)
async def test_strict_put_refuses_a_malformed_triple(
    provider: Provider, metadata: dict[str, Any]
) -> None:
    async with open_stores(provider) as home:
        with pytest.raises(UnreadableEpisodeError):
            await home.memory.put_many([episode("e1", metadata=metadata)], strict=True)


async def test_episode_whose_id_looks_like_a_triple_of_another_has_an_id_of_its_own(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO), triple("e1#1", "bob", "likes", "beer"))

        await home.fire()

        assert await home.objects() == {"e1#1": "Oslo", "@facts/e1#1": "beer"}
        assert await quarantined(home) == []


async def test_edit_leaves_an_episode_whose_id_looks_like_its_triple(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(triple("e1#2", "bob", "likes", "beer"), saying(OSLO))
        await home.fire()
        await home.put(saying(ROME))

        await home.fire()

        assert await home.objects() == {"e1#1": "Rome", "@facts/e1#2": "beer"}


async def test_episode_that_leaves_the_filter_loses_all_its_facts(provider: Provider) -> None:
    fired = rule("all", when_filter="content <> 'no'", then_emits=["facts", "notes"])
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        await home.fire(fired)
        await home.put(saying(OSLO, TEA).model_copy(update={"content": "no"}))

        await home.fire(fired)

        assert await home.objects() == {}


async def test_rule_that_leaves_a_channel_withdraws_all_claims_of_an_edited_episode(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        await home.fire(rule("all", then_emits=["facts", "notes"]))
        await home.put(saying(OSLO, TEA, ROME))

        await home.fire(rule("all"))

        assert await home.objects() == {"e1#1": "Oslo", "e1#2": "tea", "e1#3": "Rome"}


async def test_another_rule_that_reads_the_newer_version_withdraws_the_older_claims(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA))
        await home.fire(rule("first"))
        await home.put(saying(OSLO))

        await home.fire(rule("second"))

        assert await home.objects() == {"e1#1": "Oslo"}


async def test_why_not_lists_each_claim_of_the_episode(provider: Provider) -> None:
    fired = rule("all")
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, {"intent": "?"}, TEA))
        await home.fire(fired)

        decisions = await home.facts.reads.decisions_of("e1", [fired], {})

    assert [(decision.fact_id, decision.outcome) for decision in decisions] == [
        ("e1", "noop"), ("e1#1", "add"), ("e1#2", "quarantined"), ("e1#3", "add"),
    ]  # fmt: skip


async def test_erasure_removes_all_claims_of_an_episode(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(saying(OSLO, TEA), saying(TEA, id="b1").model_copy(update={"user": "bob"}))
        await home.fire()

        certificate = await home.facts.erasures.forget(
            ScopeFilter("alice", None, None),
            ["e1"],
            moment=microseconds(START),
            at=START,
            by="me",
            dry_run=False,
        )

        assert await home.objects() == {"b1#1": "tea"}
        assert certificate.eids == {"e1"}
        assert (await home.facts.verify())[2] is None


def test_consolidate_returns_a_delta_for_each_triple() -> None:
    versions = [
        version("e1", metadata={"triples": [OSLO, TEA]}),
        version(
            "e2", seq=2, timestamp=at(1), metadata=ROME | {"intent": "update", "replaces": "e1"}
        ),
    ]

    found = classify(versions, "all", ["facts"], at=START)

    assert [(delta.kind, delta.source_episode_ids) for delta in found.deltas] == [
        ("noop", ["e1"]), ("add", ["e1"]), ("add", ["e1"]), ("update", ["e2"]),
    ]  # fmt: skip
    update = found.deltas[-1]
    assert update.kind == "update"
    assert update.replaces == ["e1", "e1#1", "e1#2"]


def test_statement_without_triples_is_the_version_itself() -> None:
    plain = version("e1", metadata=OSLO | {"triples": None})

    assert statements_of(plain) == [plain]


@pytest.mark.parametrize(
    ("fact_id", "is_part"),
    [("e1#1", True), ("e1#10", True), ("e1", False), ("e1#0", False), ("e1#01", False),
     ("e1#x", False), ("e1#", False), ("e10#1", False), ("e1#1#1", False), ("e1#²", False)],
)  # fmt: skip
def test_part_has_a_number_after_the_id(fact_id: str, is_part: bool) -> None:
    assert is_part_of(fact_id, "e1") is is_part


def test_triple_with_triples_of_its_own_has_no_more_of_them() -> None:
    nested = OSLO | {"intent": "delete", "triples": [TEA]}

    own, part = statements_of(version("e1", metadata={"triples": [nested]}))

    assert own.metadata == {"intent": "noop", "triples": 1}
    claim = claim_of(part, "facts")
    assert isinstance(claim, Claim)
    assert claim.payload == {"id": "e1#1", "user": "alice", "agent": "rag", **OSLO}


def test_consolidate_reports_a_malformed_list_as_a_fault() -> None:
    found = classify([version("e1", metadata={"triples": 7})], "all", ["facts"], at=START)

    assert found.deltas == []
    assert found.faults["e1"].reason == "triples_malformed"


def known_parts(*, in_force: bool) -> KnownState:
    """Return the state after a rule evaluated e1, with one triple, once."""
    [own, part] = evaluate([version("e1", metadata={"triples": [OSLO]})], rule("all"))["facts"]
    known = KnownState(MultiValued({}), 8, parts={"e1": {"e1#1"}})
    for seq, candidate in enumerate((own, part), 1):
        claim = candidate.claim if in_force else None
        evaluation = Evaluation(seq, "all", 1, claim, 0, 0, "alice/rag/facts/")
        known.evaluations[candidate.fact_id] = [evaluation]
    return known


@pytest.mark.parametrize("in_force", [True, False])
def test_gate_withdraws_a_triple_only_of_an_episode_that_passes_it(in_force: bool) -> None:
    gated = version("e1", seq=2, metadata=TEA)._replace(gated=SalienceShortfall(0.1, 0.2))

    candidates = evaluate([gated], rule("all"))["facts"]
    withdrawn = withdraw_parts(candidates, known_parts(in_force=in_force), {})

    assert [candidate.fact_id for candidate in withdrawn] == (["e1#1"] if in_force else [])


def test_withdrawal_under_an_id_of_another_owner_is_quarantined() -> None:
    resolution = Resolution(known_parts(in_force=True), firing=10, at=0)

    resolution.apply(Unsaid("e1#1", "bob/rag/facts/", "all", 0, "e1", 2))

    [row] = resolution.entries
    assert (row.effect, row.reason) == ("quarantine", "id_taken")


@pytest.mark.parametrize(
    ("change", "withdrawn"),
    [
        pytest.param({}, ["e1#1"], id="of the episode"),
        pytest.param({"owner": "bob/rag/facts/"}, [], id="of another user"),
        pytest.param({"precedence": Precedence(0, 0, "e1#1")}, [], id="of another episode"),
    ],
)
def test_undone_claim_is_withdrawn_only_if_it_is_of_the_episode(
    change: dict[str, Any], withdrawn: list[str]
) -> None:
    part = evaluate([version("e1", metadata={"triples": [OSLO]})], rule("all"))["facts"][1]
    assert isinstance(part, ClaimCandidate)
    edit = evaluate([version("e1", seq=2, metadata=TEA)], rule("all"))["facts"]
    known = KnownState(MultiValued({}), 8, parts={"e1": {"e1#1"}})

    found = withdraw_parts(edit, known, {"e1#1": [part.claim._replace(**change)]})

    assert [candidate.fact_id for candidate in found] == withdrawn
