"""The claim of a version: its key, what it asserts and retracts, or its fault."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.consolidation.claim import (
    ALL,
    EPISODE,
    REFERRING,
    Claim,
    Fault,
    Precedence,
    claim_of,
    has_subject,
)
from slumberd.model.episode import microseconds
from slumberd.model.scope import (
    canonical,
    channel_of,
    episode_id_of,
    fact_id_of,
    key_of,
    owner_of,
)
from tests.support.builders import START, version

pytestmark = pytest.mark.unit

OWNER = "alice/rag/facts/"
TRIPLE = {"subject": "alice", "predicate": "drinks", "object": "tea"}


def claim_from(channel: str = "facts", **metadata: Any) -> Claim:
    """Return the claim of a readable episode with this triple and metadata."""
    found = claim_of(version("e1", metadata=TRIPLE | metadata), channel)
    assert isinstance(found, Claim)
    payload = {key: value for key, value in found.payload.items() if key != "timestamp"}
    return found._replace(payload=payload)


@pytest.mark.parametrize("intent", [{}, {"intent": None}, {"intent": "add"}], ids=str)
def test_episode_without_intent_or_with_add_asserts_its_triple(intent: dict[str, Any]) -> None:
    claim = claim_from(**intent, replaces=["e0"], confidence=0.5)

    assert claim == Claim(
        fact_id="e1",
        owner=OWNER,
        key=f"{OWNER}alice/drinks",
        precedence=claim.precedence,
        asserts=True,
        object='"tea"',
        names=(),
        clears_key=False,
        confidence=0.5,
        payload={
            "id": "e1",
            "user": "alice",
            "agent": "rag",
            "content": "content of e1",
            "source_node": "chat",
            **TRIPLE,
        },
    )
    assert claim.precedence == Precedence(microseconds(START), EPISODE, "e1")


def test_update_asserts_and_names_each_id_once_in_order() -> None:
    claim = claim_from(intent="update", replaces=["e0", "x", "e0"])

    assert (claim.asserts, claim.names, claim.clears_key) == (True, ("e0", "x"), False)
    assert claim.precedence.rank == REFERRING


@pytest.mark.parametrize("replaces", [None, []], ids=str)
def test_update_that_names_no_id_has_the_rank_of_an_episode(replaces: Any) -> None:
    claim = claim_from(intent="update", replaces=replaces)

    assert (claim.asserts, claim.names, claim.precedence.rank) == (True, (), EPISODE)


def test_delete_that_names_ids_retracts_only_those() -> None:
    claim = claim_from(intent="delete", replaces="e0")

    assert (claim.asserts, claim.names, claim.clears_key) == (False, ("e0",), False)
    assert claim.precedence == Precedence(microseconds(START), REFERRING, "e1")
    assert claim.payload == {"id": "e1", "user": "alice", "agent": "rag", **TRIPLE}


def test_delete_that_names_no_id_clears_the_object_of_its_key() -> None:
    claim = claim_from(intent="delete")

    assert (claim.asserts, claim.names, claim.clears_key) == (False, (), True)
    assert (claim.key, claim.object, claim.precedence.rank) == (
        f"{OWNER}alice/drinks",
        '"tea"',
        EPISODE,
    )


@pytest.mark.parametrize("metadata", [{"object": None}, {}], ids=["null", "absent"])
def test_delete_without_an_object_clears_its_whole_key(metadata: dict[str, Any]) -> None:
    key = {"subject": "alice", "predicate": "drinks"}
    claim = claim_of(version("e1", metadata=key | {"intent": "delete"} | metadata), "facts")

    assert isinstance(claim, Claim)
    assert (claim.clears_key, claim.object) == (True, ALL)


def test_noop_with_names_asserts_and_retracts_nothing() -> None:
    claim = claim_from(intent="noop", replaces=["e0"])

    assert (claim.asserts, claim.names, claim.clears_key) == (False, (), False)


@pytest.mark.parametrize(
    ("metadata", "reason", "detail"),
    [
        pytest.param({"intent": "shout"}, "intent_unknown", "'shout'", id="unknown intent"),
        pytest.param({"intent": 5}, "intent_unknown", "add, update, delete, noop", id="number"),
        pytest.param({"intent": ""}, "intent_unknown", "''", id="empty intent"),
        pytest.param({"intent": "ADD"}, "intent_unknown", "'ADD'", id="upper case"),
        pytest.param({"intent": "update", "replaces": 5}, "replaces_malformed", "5", id="5"),
        pytest.param(
            {"intent": "delete", "replaces": ["e0", 5]}, "replaces_malformed", "e0", id="mixed"
        ),
        pytest.param(
            {"intent": "update", "replaces": {"id": "e0"}}, "replaces_malformed", "id", id="object"
        ),
        pytest.param(
            {"intent": "delete", "subject": None}, "delete_of_nothing", "subject", id="no subject"
        ),
        pytest.param(
            {"intent": "delete", "predicate": ""},
            "delete_of_nothing",
            "names no",
            id="no predicate",
        ),
    ],
)
def test_unreadable_episode_has_a_fault_with_its_reason(
    metadata: dict[str, Any], reason: str, detail: str
) -> None:
    found = claim_of(version("e1", metadata=TRIPLE | metadata), "facts")

    assert isinstance(found, Fault)
    assert found.reason == reason
    assert detail in found.detail


def test_detail_of_malformed_replaces_is_short() -> None:
    found = claim_of(version("e1", metadata={"intent": "update", "replaces": [7] * 500}), "facts")

    assert isinstance(found, Fault)
    assert len(found.detail) == 200


NO_TEXTS = [None, "", 5, 1.5, True, ["x"], {"a": 1}]


@pytest.mark.parametrize("part", ["subject", "predicate"])
@pytest.mark.parametrize("value", NO_TEXTS, ids=str)
def test_fact_without_two_texts_has_a_key_of_its_own(part: str, value: Any) -> None:
    claim = claim_from(**{part: value})

    assert claim.key == f"{OWNER}//e1"
    assert not has_subject(claim)


def test_fact_with_two_texts_has_the_key_of_its_subject() -> None:
    assert has_subject(claim_from())


def test_parts_of_a_key_are_escaped() -> None:
    assert owner_of("a/b", "c%d", "e/f") == "a%2Fb/c%25d/e%2Ff/"
    payload = {"subject": "x/y", "predicate": "50%"}
    assert key_of(OWNER, payload, "e1") == f"{OWNER}x%2Fy/50%25"
    assert key_of(OWNER, {}, "n/1") == f"{OWNER}//n%2F1"


@pytest.mark.parametrize(
    ("channel", "episode_id", "fact_id"),
    [
        ("facts", "e1", "e1"),
        ("notes", "e1", "@notes/e1"),
        ("facts", "@e1", "@facts/@e1"),
        ("notes", "a/b", "@notes/a/b"),
    ],
)
def test_fact_id_names_channel_and_episode(channel: str, episode_id: str, fact_id: str) -> None:
    assert fact_id_of(channel, episode_id) == fact_id
    assert (channel_of(fact_id), episode_id_of(fact_id)) == (channel, episode_id)


@pytest.mark.parametrize(
    ("fact_id", "channel", "episode_id"),
    [("@e1", "facts", "@e1"), ("a/b", "facts", "a/b"), ("@/7", "facts", "7")],
)
def test_other_ids_belong_to_the_channel_facts(fact_id: str, channel: str, episode_id: str) -> None:
    assert (channel_of(fact_id), episode_id_of(fact_id)) == (channel, episode_id)


def test_names_of_another_channel_are_ids_of_that_channel() -> None:
    claim = claim_from("notes", intent="update", replaces=["e0", "@x"])

    assert claim.names == ("@notes/e0", "@notes/@x")
    assert (claim.fact_id, claim.owner, claim.key) == (
        "@notes/e1",
        "alice/rag/notes/",
        "alice/rag/notes/alice/drinks",
    )


def test_objects_are_equal_when_their_sorted_json_is() -> None:
    assert canonical({"b": 1, "a": [1, None]}) == '{"a":[1,null],"b":1}'


@pytest.mark.parametrize(("value", "confidence"), [(0, 0.0), (1, 1.0), (0.25, 0.25), (None, 1.0)])
def test_confidence_is_a_number_from_0_to_1_and_1_without_one(
    value: Any, confidence: float
) -> None:
    claim = claim_from(confidence=value)

    assert claim.confidence == confidence
    assert isinstance(claim.confidence, float)


@pytest.mark.parametrize(
    "value",
    ["high", "0.3", "", True, False, -0.01, 1.01, 10**400, float("nan"), float("inf"), [], {}],
    ids=lambda value: str(value)[:8],
)
def test_other_confidence_is_a_fault_whatever_the_intent(value: Any) -> None:
    for intent in (None, "add", "noop", "delete", "set", "?"):
        metadata = {"confidence": value, "intent": intent}

        found = claim_of(version(metadata=metadata), "facts")

        assert isinstance(found, Fault)
        assert found.reason == "confidence_malformed"
        assert found.detail.startswith("confidence is ")
        assert len(found.detail) <= 200
