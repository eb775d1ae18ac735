"""The specification's table makes one delta an episode, and repeats are updates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.batch_deltas import classify, names_of
from slumberd.model.delta import (
    AddDelta,
    AnyDelta,
    DeleteDelta,
    NoopDelta,
    UpdateDelta,
    validate_delta,
)
from slumberd.model.episode import EpisodeVersion
from tests.support.builders import START, at, rule, version

pytestmark = pytest.mark.unit


def said(
    id: str, predicate: Any = "drinks", *, seconds: float = 0, **overrides: Any
) -> EpisodeVersion:
    metadata = {"subject": "alice", "predicate": predicate} | overrides.pop("metadata", {})
    return version(id, timestamp=at(seconds), metadata=metadata, **overrides)


def told(*episodes: EpisodeVersion) -> list[AnyDelta]:
    deltas, faults = classify(episodes, rule("r1"), at=START)
    assert faults == {}
    return deltas


def kinds(*episodes: EpisodeVersion) -> list[tuple[str, list[str]]]:
    return [(delta.kind, getattr(delta, "replaces", [])) for delta in told(*episodes)]


def test_an_episode_without_intent_is_an_add_with_its_whole_payload() -> None:
    [delta] = told(version("e1", metadata={"subject": "alice", "object": 5, "extra": 1}))

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
    [delta] = told(version(metadata=metadata))

    assert type(delta) is expected
    validate_delta(delta)


def test_a_replaced_id_may_be_one_text() -> None:
    assert kinds(version(metadata={"intent": "delete", "replaces": "e0"})) == [("delete", ["e0"])]


def test_a_repeated_subject_and_predicate_updates_the_earlier_episode() -> None:
    assert kinds(said("e1"), said("e2", seconds=1)) == [("add", []), ("update", ["e1"])]


def test_episodes_are_ordered_by_instant_and_then_by_id_in_any_order_given() -> None:
    assert kinds(said("e3", seconds=1), said("e2"), said("e1")) == [
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
def test_a_repeat_is_no_update_when_anything_of_the_key_differs(other: dict[str, Any]) -> None:
    assert kinds(said("e1"), said("e2", seconds=1, **other)) == [("add", []), ("add", [])]


def test_a_repeat_in_another_session_is_an_update() -> None:
    assert kinds(said("e1"), said("e2", seconds=1, session="s2"))[1] == ("update", ["e1"])


@pytest.mark.parametrize("part", ["subject", "predicate"])
@pytest.mark.parametrize("value", [None, "", 5, ["drinks"]], ids=str)
def test_episode_without_a_text_for_subject_or_predicate_is_never_a_repeat(
    part: str, value: Any
) -> None:
    odd = {"subject": "alice", "predicate": "drinks", "object": "tea"} | {part: value}

    first, second = version("e1", metadata=odd), version("e2", metadata=odd, timestamp=at(1))

    assert kinds(first, second) == [("add", []), ("add", [])]


def test_a_repeat_of_an_explicit_update_replaces_that_one() -> None:
    change = said("e2", seconds=1, metadata={"intent": "update", "replaces": ["e1"]})

    assert kinds(said("e1"), change, said("e3", seconds=2))[2] == ("update", ["e2"])


def test_a_repeat_of_what_was_deleted_is_an_add() -> None:
    gone = version("e2", timestamp=at(1), metadata={"intent": "delete", "replaces": ["e1"]})

    assert kinds(said("e1"), gone, said("e3", seconds=2))[2] == ("add", [])


def test_a_delete_by_another_user_does_not_change_what_a_repeat_is() -> None:
    metadata = {"intent": "delete", "replaces": ["e1"]}
    foreign = version("e2", timestamp=at(1), user="mallory", metadata=metadata)

    assert kinds(said("e1"), foreign, said("e3", seconds=2))[2] == ("update", ["e1"])


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(0.3, 0.3), (0, 0.0), (1, 1.0), (True, 1.0), ("0.3", 1.0), (7, 1.0), (-0.1, 1.0), (None, 1.0)],
)
def test_confidence_is_the_episodes_when_it_is_one(confidence: Any, expected: float) -> None:
    [delta] = told(version(metadata={"confidence": confidence}))

    assert delta.confidence == expected


@pytest.mark.parametrize(
    ("metadata", "reason", "detail"),
    [
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
def test_a_malformed_episode_is_left_out_with_its_reason_and_the_others_are_not(
    metadata: dict[str, Any], reason: str, detail: str
) -> None:
    broken = version("e9", timestamp=at(1), metadata=metadata)

    deltas, faults = classify([said("e1"), broken, said("e2", seconds=2)], rule("r1"), at=START)

    assert [delta.source_episode_ids for delta in deltas] == [["e1"], ["e2"]]
    assert [(id, fault.reason) for id, fault in faults.items()] == [("e9", reason)]
    assert detail in faults["e9"].detail


@pytest.mark.parametrize("replaces", [{}, {"replaces": None}, {"replaces": []}, {"replaces": [""]}])
def test_an_update_that_names_nothing_is_as_without_intent(replaces: dict[str, Any]) -> None:
    update = said("e2", seconds=1, metadata={"intent": "update"} | replaces)

    assert kinds(update) == [("add", [])]
    assert kinds(said("e1"), update) == [("add", []), ("update", ["e1"])]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, ("delete", ["e1"]), id="all objects"),
        pytest.param({"object": "tea"}, ("delete", ["e1"]), id="its object"),
        pytest.param({"object": "mate"}, ("noop", []), id="another object"),
        pytest.param({"predicate": "eats"}, ("noop", []), id="another key"),
    ],
)
def test_a_delete_that_names_nothing_deletes_what_its_key_holds(
    given: dict[str, Any], expected: tuple[str, list[str]]
) -> None:
    tea = said("e1", metadata={"object": "tea"})

    assert kinds(tea, said("e2", seconds=1, metadata={"intent": "delete"} | given))[1] == expected


def test_a_fact_outside_of_facts_has_the_id_that_the_daemon_gives_it() -> None:
    gone = version("e3", timestamp=at(2), metadata={"intent": "delete", "replaces": ["e2"]})
    notes = rule("r1", then_emits=["notes"])

    add, update, delete = classify([said("e1"), said("e2", seconds=1), gone], notes, at=START)[0]

    assert isinstance(add, AddDelta)
    assert add.fact_payload["id"] == "@notes/e1"
    assert isinstance(update, UpdateDelta)
    assert (update.fact_payload["id"], update.replaces) == ("@notes/e2", ["@notes/e1"])
    assert isinstance(delete, DeleteDelta)
    assert delete.replaces == ["@notes/e2"]


def test_an_episode_id_that_looks_like_another_channels_stays_in_its_own() -> None:
    [delta] = told(said("@notes/e1"))

    assert isinstance(delta, AddDelta)
    assert delta.fact_payload["id"] == "@facts/@notes/e1"


def test_a_rule_of_several_channels_has_a_delta_for_each_and_one_noop() -> None:
    both = rule("r1", then_emits=["facts", "notes", "facts"])
    noop = version("e2", timestamp=at(1), metadata={"intent": "noop"})

    deltas, _ = classify([said("e1"), noop], both, at=START)

    assert [getattr(one, "fact_payload", {}).get("id") for one in deltas] == [
        "e1",
        "@notes/e1",
        None,
    ]


def test_a_rule_without_channels_promotes_into_facts() -> None:
    [delta] = classify([said("e1")], rule("r1", then_emits=[]), at=START)[0]

    assert isinstance(delta, AddDelta)
    assert delta.fact_payload["id"] == "e1"


@given(
    st.lists(
        st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from("pqr"), st.integers(0, 3)),
        max_size=12,
    )
)
def test_every_episode_has_one_delta_and_no_delta_crosses_users(
    spoken: list[tuple[str, str, int]],
) -> None:
    episodes = [
        said(f"e{n}", predicate, seconds=seconds, user=user)
        for n, (user, predicate, seconds) in enumerate(spoken)
    ]

    deltas = told(*episodes)

    users = {one.id: one.user for one in episodes}
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
    naming = said("e1", metadata={"intent": intent, "replaces": replaces})
    theirs = version("e0", **other)

    [delta] = classify([naming], rule("r1"), at=START, others=[theirs])[0]

    assert (delta.kind, getattr(delta, "replaces", [])) == expected


def test_names_are_those_that_an_episode_gives_well_formed_or_not() -> None:
    given: list[object] = ["a", ["b", 5, "c"], {"d": 1}, None]

    assert names_of(said("e1", metadata={"replaces": one}) for one in given) == {"a", "b", "c"}


def test_the_promotion_instant_is_the_one_given() -> None:
    later = START + timedelta(days=1)

    assert {delta.promotion_ts for delta in classify([version()], rule(), at=later)[0]} == {later}


def test_a_delete_of_what_a_repeat_has_replaced_leaves_the_repeat() -> None:
    triple = {"subject": "alice", "predicate": "drinks"}
    found = kinds(
        version("e1", timestamp=at(1), metadata=triple | {"object": "tea"}),
        version("e2", timestamp=at(2), metadata=triple | {"object": "milk"}),
        version("e3", timestamp=at(3), metadata={"intent": "delete", "replaces": "e1"}),
        version("e4", timestamp=at(4), metadata=triple | {"object": "rum"}),
    )

    assert found[-1] == ("update", ["e2"])
