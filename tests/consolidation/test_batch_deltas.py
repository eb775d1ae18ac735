"""The specification's table makes one delta for each episode, and repeats are updates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.deltas import classify, names_of
from slumberd.model.delta import (
    AddDelta,
    AnyDelta,
    DeleteDelta,
    NoopDelta,
    UpdateDelta,
    validate_delta,
)
from slumberd.model.episode import EpisodeVersion
from slumberd.model.scope import FACTS
from tests.support.builders import START, at, rule, version

pytestmark = pytest.mark.unit


def statement(
    id: str, predicate: Any = "drinks", *, seconds: float = 0, **overrides: Any
) -> EpisodeVersion:
    metadata = {"subject": "alice", "predicate": predicate} | overrides.pop("metadata", {})
    return version(id, timestamp=at(seconds), metadata=metadata, **overrides)


def deltas_of(*episodes: EpisodeVersion) -> list[AnyDelta]:
    deltas, faults = classify(episodes, "r1", [FACTS], at=START)
    assert faults == {}
    return deltas


def kinds(*episodes: EpisodeVersion) -> list[tuple[str, list[str]]]:
    return [(delta.kind, getattr(delta, "replaces", [])) for delta in deltas_of(*episodes)]


def test_an_episode_without_intent_is_an_add_with_its_whole_payload() -> None:
    [delta] = deltas_of(version("e1", metadata={"subject": "alice", "object": 5, "extra": 1}))

    assert delta == AddDelta(
        kind="add",
        fact_payload={
            "id": "e1",
            "user": "alice",
            "agent": "rag",
            "content": "content of e1",
            "source_node": "chat",
            "timestamp": START.isoformat(),
            "subject": "alice",
            "object": 5,
        },
        source_episode_ids=["e1"],
        promotion_ts=START,
        rule_id="r1",
        confidence=1.0,
    )


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"intent": "noop"}, NoopDelta, id="noop"),
        pytest.param({"intent": "delete", "replaces": ["e0"]}, DeleteDelta, id="delete"),
        pytest.param({"intent": "update", "replaces": ["e0"]}, UpdateDelta, id="update"),
        pytest.param({"intent": "add"}, AddDelta, id="add"),
        pytest.param({"intent": None}, AddDelta, id="null"),
    ],
)
def test_an_intent_decides_the_kind(metadata: dict[str, Any], expected: type) -> None:
    [delta] = deltas_of(version(metadata=metadata))

    assert type(delta) is expected
    validate_delta(delta)


OF_BOB = version("b1", user="bob", metadata={"triples": [{"object": 1}, {"object": 2}]})


@pytest.mark.parametrize("name", ["b1", "b1#1", "b1#2", "b1#3"])
def test_triple_names_no_claim_of_another_user(name: str) -> None:
    change = {"intent": "update", "replaces": [name, "mine#1"]}
    own = version("a1", metadata={"triples": [change]})

    found = classify([own], "r1", [FACTS], at=START, others=[OF_BOB])

    assert names_of([own]) == {name, "b1", "mine#1", "mine"}
    assert [getattr(delta, "replaces", []) for delta in found.deltas] == [[], ["mine#1"]]


def test_replaces_may_be_a_single_text() -> None:
    assert kinds(version(metadata={"intent": "delete", "replaces": "e0"})) == [("delete", ["e0"])]


def test_a_repeated_subject_and_predicate_updates_the_earlier_episode() -> None:
    assert kinds(statement("e1"), statement("e2", seconds=1)) == [("add", []), ("update", ["e1"])]


def test_episodes_are_ordered_by_instant_and_then_by_id_in_any_order_given() -> None:
    assert kinds(statement("e3", seconds=1), statement("e2"), statement("e1")) == [
        ("add", []),
        ("update", ["e1"]),
        ("update", ["e2"]),
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"user": "bob"}, id="user"),
        pytest.param({"agent": "planner"}, id="agent"),
        pytest.param({"predicate": "eats"}, id="predicate"),
        pytest.param({"metadata": {"subject": "tea"}}, id="subject"),
    ],
)
def test_a_repeat_is_no_update_when_a_part_of_the_key_differs(other: dict[str, Any]) -> None:
    assert kinds(statement("e1"), statement("e2", seconds=1, **other)) == [("add", []), ("add", [])]


def test_a_repeat_in_another_session_is_an_update() -> None:
    assert kinds(statement("e1"), statement("e2", seconds=1, session="s2"))[1] == ("update", ["e1"])


@pytest.mark.parametrize("part", ["subject", "predicate"])
@pytest.mark.parametrize("value", [None, "", 5, ["drinks"]], ids=str)
def test_episode_without_a_text_for_subject_or_predicate_is_never_a_repeat(
    part: str, value: Any
) -> None:
    odd = {"subject": "alice", "predicate": "drinks", "object": "tea"} | {part: value}

    first, second = version("e1", metadata=odd), version("e2", metadata=odd, timestamp=at(1))

    assert kinds(first, second) == [("add", []), ("add", [])]


def test_a_repeat_replaces_an_explicit_update() -> None:
    change = statement("e2", seconds=1, metadata={"intent": "update", "replaces": ["e1"]})

    assert kinds(statement("e1"), change, statement("e3", seconds=2))[2] == ("update", ["e2"])


def test_a_repeat_of_a_deleted_statement_is_an_add() -> None:
    gone = version("e2", timestamp=at(1), metadata={"intent": "delete", "replaces": ["e1"]})

    assert kinds(statement("e1"), gone, statement("e3", seconds=2))[2] == ("add", [])


def test_a_delete_by_another_user_leaves_a_repeat_an_update() -> None:
    metadata = {"intent": "delete", "replaces": ["e1"]}
    theirs = version("e2", timestamp=at(1), user="mallory", metadata=metadata)

    assert kinds(statement("e1"), theirs, statement("e3", seconds=2))[2] == ("update", ["e1"])


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(0.3, 0.3), (0, 0.0), (1, 1.0), (None, 1.0)],
)
def test_confidence_is_the_episodes_when_it_is_valid(confidence: Any, expected: float) -> None:
    [delta] = deltas_of(version(metadata={"confidence": confidence}))

    assert delta.confidence == expected


@pytest.mark.parametrize(
    ("metadata", "reason", "detail"),
    [
        *(
            pytest.param(
                {"confidence": value}, "confidence_malformed", "confidence is ", id=str(value)
            )
            for value in ("high", "0.3", True, 7, -0.1)
        ),
        pytest.param({"intent": "DELETE"}, "intent_unknown", "intent is 'DELETE'", id="upper"),
        pytest.param({"intent": True}, "intent_unknown", "intent is True", id="no text"),
        pytest.param({"intent": "delete"}, "delete_of_nothing", "names no id", id="delete"),
        pytest.param(
            {"intent": "delete", "replaces": []}, "delete_of_nothing", "names no id", id="empty"
        ),
        pytest.param(
            {"intent": "delete", "replaces": [1]}, "replaces_malformed", "list of", id="ints"
        ),
        pytest.param(
            {"intent": "update", "replaces": {}}, "replaces_malformed", "list of", id="object"
        ),
    ],
)
def test_classify_reports_a_malformed_episode_and_uses_the_others(
    metadata: dict[str, Any], reason: str, detail: str
) -> None:
    broken = version("e9", timestamp=at(1), metadata=metadata)

    deltas, faults = classify(
        [statement("e1"), broken, statement("e2", seconds=2)], "r1", [FACTS], at=START
    )

    assert [delta.source_episode_ids for delta in deltas] == [["e1"], ["e2"]]
    assert [(id, fault.reason) for id, fault in faults.items()] == [("e9", reason)]
    assert detail in faults["e9"].detail


@pytest.mark.parametrize("replaces", [{}, {"replaces": None}, {"replaces": []}, {"replaces": [""]}])
def test_an_update_that_names_no_id_equals_an_episode_without_intent(
    replaces: dict[str, Any],
) -> None:
    update = statement("e2", seconds=1, metadata={"intent": "update"} | replaces)

    assert kinds(update) == [("add", [])]
    assert kinds(statement("e1"), update) == [("add", []), ("update", ["e1"])]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, ("delete", ["e1"]), id="all objects"),
        pytest.param({"object": "tea"}, ("delete", ["e1"]), id="its object"),
        pytest.param({"object": "mate"}, ("noop", []), id="another object"),
        pytest.param({"predicate": "eats"}, ("noop", []), id="another key"),
    ],
)
def test_a_delete_that_names_no_id_deletes_the_facts_of_its_key(
    given: dict[str, Any], expected: tuple[str, list[str]]
) -> None:
    tea = statement("e1", metadata={"object": "tea"})

    assert (
        kinds(tea, statement("e2", seconds=1, metadata={"intent": "delete"} | given))[1] == expected
    )


def test_a_fact_of_another_channel_has_the_channel_in_its_id() -> None:
    gone = version("e3", timestamp=at(2), metadata={"intent": "delete", "replaces": ["e2"]})

    add, update, delete = classify(
        [statement("e1"), statement("e2", seconds=1), gone], "r1", ["notes"], at=START
    )[0]

    assert isinstance(add, AddDelta)
    assert add.fact_payload["id"] == "@notes/e1"
    assert isinstance(update, UpdateDelta)
    assert (update.fact_payload["id"], update.replaces) == ("@notes/e2", ["@notes/e1"])
    assert isinstance(delete, DeleteDelta)
    assert delete.replaces == ["@notes/e2"]


def test_an_episode_id_that_resembles_a_fact_id_of_another_channel_is_escaped() -> None:
    [delta] = deltas_of(statement("@notes/e1"))

    assert isinstance(delta, AddDelta)
    assert delta.fact_payload["id"] == "@facts/@notes/e1"


def test_a_rule_of_several_channels_yields_a_delta_for_each_channel_and_one_noop() -> None:
    both = rule("r1", then_emits=["facts", "notes", "facts"])
    noop = version("e2", timestamp=at(1), metadata={"intent": "noop"})

    deltas, _ = classify([statement("e1"), noop], both.id, both.then_emits, at=START)

    assert [getattr(delta, "fact_payload", {}).get("id") for delta in deltas] == [
        "e1",
        "@notes/e1",
        None,
    ]


def test_a_rule_without_channels_promotes_into_facts() -> None:
    [delta] = classify([statement("e1")], "r1", [], at=START)[0]

    assert isinstance(delta, AddDelta)
    assert delta.fact_payload["id"] == "e1"


@given(
    st.lists(
        st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from("pqr"), st.integers(0, 3)),
        max_size=12,
    )
)
def test_every_episode_has_one_delta_and_no_delta_crosses_users(
    statements: list[tuple[str, str, int]],
) -> None:
    episodes = [
        statement(f"e{n}", predicate, seconds=seconds, user=user)
        for n, (user, predicate, seconds) in enumerate(statements)
    ]

    deltas = deltas_of(*episodes)

    users = {episode.id: episode.user for episode in episodes}
    assert sorted(id for delta in deltas for id in delta.source_episode_ids) == sorted(users)
    for delta in deltas:
        for replaced in getattr(delta, "replaces", []):
            assert users[replaced] == users[delta.source_episode_ids[0]]


@pytest.mark.parametrize("other", [{"user": "bob"}, {"agent": "planner"}])
@pytest.mark.parametrize(
    ("intent", "replaces", "expected"),
    [
        pytest.param("delete", "e0", ("noop", []), id="delete of theirs"),
        pytest.param("delete", ["e0", "e9"], ("delete", ["e9"]), id="delete of theirs and another"),
        pytest.param("update", "e0", ("add", []), id="update of theirs"),
        pytest.param("update", ["e9", "e0"], ("update", ["e9"]), id="update of theirs and another"),
    ],
)
def test_id_of_another_users_episode_is_ignored(
    other: dict[str, Any], intent: str, replaces: object, expected: tuple[str, list[str]]
) -> None:
    naming = statement("e1", metadata={"intent": intent, "replaces": replaces})
    theirs = version("e0", **other)

    [delta] = classify([naming], "r1", [FACTS], at=START, others=[theirs])[0]

    assert (delta.kind, getattr(delta, "replaces", [])) == expected


def test_names_of_an_episode_include_those_in_a_malformed_list() -> None:
    given: list[object] = ["a", ["b", 5, "c"], {"d": 1}, None]

    assert names_of(statement("e1", metadata={"replaces": value}) for value in given) == {
        "a",
        "b",
        "c",
    }


def test_a_delta_has_the_given_promotion_instant() -> None:
    later = START + timedelta(days=1)

    assert {delta.promotion_ts for delta in classify([version()], "r1", [FACTS], at=later)[0]} == {
        later
    }


def test_a_delete_of_a_replaced_fact_leaves_the_repeat_that_replaced_it() -> None:
    triple = {"subject": "alice", "predicate": "drinks"}
    found = kinds(
        version("e1", timestamp=at(1), metadata=triple | {"object": "tea"}),
        version("e2", timestamp=at(2), metadata=triple | {"object": "milk"}),
        version("e3", timestamp=at(3), metadata={"intent": "delete", "replaces": "e1"}),
        version("e4", timestamp=at(4), metadata=triple | {"object": "rum"}),
    )

    assert found[-1] == ("update", ["e2"])


def triples(id: str, *objects: Any, seconds: float = 0, **each: Any) -> EpisodeVersion:
    key = {"subject": "ada", "predicate": "speaks"}
    said = [key | each | ({} if what is None else {"object": what}) for what in objects]
    return version(id, timestamp=at(seconds), metadata={"triples": said})


def test_the_claims_of_one_episode_hold_together() -> None:
    first = triples("e1", "Swedish", "English", "Swedish")
    second = triples("e2", "French", "English", seconds=1)

    assert kinds(first, second) == [
        ("noop", []), ("add", []), ("add", []), ("noop", []),
        ("noop", []), ("update", ["e1#1", "e1#2"]), ("add", []),
    ]  # fmt: skip


def test_a_set_replaces_all_older_episodes_of_its_key() -> None:
    first, second = triples("e1", "Swedish", "English"), triples("e2", "French", seconds=1)
    whole = triples("e3", "Latin", "Greek", "Latin", seconds=2, intent="set")

    assert kinds(first, second, whole)[-3:] == [
        ("update", ["e1#1", "e1#2", "e2#1"]), ("update", ["e1#1", "e1#2", "e2#1"]), ("noop", []),
    ]  # fmt: skip
    assert kinds(whole)[1:] == [("add", []), ("add", []), ("noop", [])]


def test_a_delete_by_words_names_the_facts_that_hold_them() -> None:
    plans = triples("e1", "a trip to Rome", "Rome", "a TRIP to Oslo")
    gone = triples("e2", None, seconds=1, intent="delete", object_words=["trip"])

    assert kinds(plans, gone)[-1] == ("delete", ["e1#1", "e1#3"])


def test_a_delete_leaves_the_other_claims_of_its_episode() -> None:
    key = {"subject": "ada", "predicate": "speaks"}
    said = {"triples": [key | {"object": "Latin"}, key | {"intent": "delete"}]}

    assert kinds(triples("e1", "Greek"), version("e2", timestamp=at(1), metadata=said))[-2:] == [
        ("update", ["e1#1"]), ("noop", []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"intent": "set", "replaces": "e0"}, "replaces_malformed"),
        ({"intent": "set", "subject": 7}, "delete_of_nothing"),
        ({"intent": "delete", "object_words": 7}, "object_words_malformed"),
    ],
)
def test_a_set_or_words_that_cannot_be_read_are_faults(
    metadata: dict[str, Any], reason: str
) -> None:
    deltas, faults = classify([statement("e1", metadata=metadata)], "r1", [FACTS], at=START)

    assert (deltas, faults["e1"].reason) == ([], reason)
