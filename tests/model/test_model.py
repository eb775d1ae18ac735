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
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import SalienceContext
from slumberd.model.store_status import MigrationPlan, StoreHealth
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


@pytest.mark.parametrize("model", [episode(), FACT], ids=["an episode", "a fact"])
def test_a_constructed_model_equals_the_one_that_pydantic_constructs(model: BaseModel) -> None:
    fields = dict(model)

    value = construct(type(model), fields)

    constructed = type(model).model_construct(**fields)
    assert value == constructed == model
    assert repr(value) == repr(constructed)
    assert value.model_fields_set == constructed.model_fields_set
    assert value.model_dump_json() == constructed.model_dump_json()
    assert value.__getstate__() == constructed.__getstate__()


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda original: pickle.loads(pickle.dumps(original)), id="pickle"),  # noqa: S301 # our own
        pytest.param(lambda original: original.model_copy(), id="model_copy"),
        pytest.param(
            lambda original: Episode.model_validate(original.model_dump()), id="validated anew"
        ),
    ],
)
def test_a_constructed_model_can_be_copied(copied: object) -> None:
    value = construct(Episode, dict(episode()))

    assert copied(value) == episode()  # type: ignore[operator] # each copies an episode


def test_a_constructed_model_is_frozen() -> None:
    value = construct(Episode, dict(episode()))

    with pytest.raises(ValidationError, match="frozen"):
        value.content = "another"  # type: ignore[misc] # that is the point


def test_a_copy_with_other_fields_changes_no_other_model() -> None:
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


def test_these_tests_cover_every_public_model() -> None:
    public = {getattr(slumberd, name) for name in slumberd.__all__}
    models = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseModel)}

    assert models - {Equals, Glob, Matches, OneOf, Prefix} == set(PUBLIC_MODELS)


@pytest.mark.parametrize("kind", [*PUBLIC_MODELS, Equals, Glob, Matches, OneOf, Prefix])
def test_a_public_model_refuses_an_unknown_key(kind: type[BaseModel]) -> None:
    fields = PUBLIC_MODELS.get(kind, {})

    with pytest.raises(ValidationError, match=r"usr\n  Extra inputs are not permitted"):
        kind.model_validate({**fields, "usr": "alice"})
