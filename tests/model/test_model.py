"""Models that are constructed without validation equal those that pydantic constructs."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import BaseModel, ValidationError

import slumberd
from slumberd.model.construct import construct
from slumberd.model.delta import AddDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.graph import GraphPath, NodeRef, ResultSet
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import SalienceContext
from tests.support.builders import START, episode, rule

pytestmark = pytest.mark.unit

FACT = Fact(
    id="f1",
    user="alice",
    agent="rag",
    payload={"subject": "tea"},
    lineage=[{"rule_id": "all"}],
    confidence=0.5,
    pinned_at=START,
)
PROVENANCE = {
    "source_episode_ids": ["e1"],
    "promotion_ts": START,
    "rule_id": "all",
    "confidence": 1.0,
}


@pytest.mark.parametrize("told", [episode(), FACT], ids=["an episode", "a fact"])
def test_a_constructed_model_equals_the_one_that_pydantic_constructs(told: BaseModel) -> None:
    fields = dict(told)

    value = construct(type(told), fields)

    constructed = type(told).model_construct(**fields)
    assert value == constructed == told
    assert repr(value) == repr(constructed)
    assert value.model_fields_set == constructed.model_fields_set
    assert value.model_dump_json() == constructed.model_dump_json()
    assert value.__getstate__() == constructed.__getstate__()


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda one: pickle.loads(pickle.dumps(one)), id="pickle"),  # noqa: S301 # our own
        pytest.param(lambda one: one.model_copy(), id="model_copy"),
        pytest.param(lambda one: Episode.model_validate(one.model_dump()), id="validated anew"),
    ],
)
def test_a_constructed_model_can_be_copied(copied: object) -> None:
    value = construct(Episode, dict(episode()))

    assert copied(value) == episode()  # type: ignore[operator] # it is called with what it takes


def test_a_constructed_model_is_frozen() -> None:
    value = construct(Episode, dict(episode()))

    with pytest.raises(ValidationError, match="frozen"):
        value.content = "another"  # type: ignore[misc] # that is the point


def test_a_copy_with_other_fields_leaves_the_others_as_they_were() -> None:
    first, second = construct(Episode, dict(episode("e1"))), construct(Episode, dict(episode("e2")))

    first.model_copy(update={"content": "another", "more": 1})

    assert second.model_fields_set == set(Episode.model_fields)


PUBLIC_MODELS: dict[type[BaseModel], dict[str, object]] = {
    Episode: dict(episode()),
    Fact: dict(FACT),
    FactPattern: {},
    AddDelta: {**PROVENANCE, "kind": "add", "fact_payload": {}},
    UpdateDelta: {**PROVENANCE, "kind": "update", "replaces": ["e0"], "fact_payload": {}},
    DeleteDelta: {**PROVENANCE, "kind": "delete", "replaces": ["e0"]},
    NoopDelta: {**PROVENANCE, "kind": "noop"},
    ConsolidationRule: dict(rule()),
    SalienceContext: {"last_access_ts": START, "access_count": 0, "rule_match_count": 0},
    StoreHealth: {"ok": True, "version": 1, "fs_type": "ext4", "lock_state": "free"},
    MigrationPlan: {"target_version": 2, "operations": []},
    NodeRef: {"id": "n", "kind": "Entity"},
    GraphPath: {"nodes": []},
    ResultSet: {},
}


def test_every_public_model_is_tried() -> None:
    public = {getattr(slumberd, name) for name in slumberd.__all__}
    models = {one for one in public if isinstance(one, type) and issubclass(one, BaseModel)}

    assert models - {Equals, Glob, Matches, OneOf, Prefix} == set(PUBLIC_MODELS)


@pytest.mark.parametrize("kind", [*PUBLIC_MODELS, Equals, Glob, Matches, OneOf, Prefix])
def test_a_public_model_refuses_a_key_that_it_does_not_know(kind: type[BaseModel]) -> None:
    fields = PUBLIC_MODELS.get(kind, {})

    with pytest.raises(ValidationError, match=r"usr\n  Extra inputs are not permitted"):
        kind.model_validate({**fields, "usr": "alice"})
