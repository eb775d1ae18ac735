"""Values that are made without a check, against those that pydantic constructs."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import BaseModel, ValidationError

from slumberd.core.episode import Episode
from slumberd.core.fact import Fact
from slumberd.core.model import made
from tests.builders import START, episode

FACT = Fact(
    id="f1",
    user="alice",
    agent="rag",
    payload={"subject": "tea"},
    lineage=[{"rule_id": "all"}],
    confidence=0.5,
    pinned_at=START,
)


@pytest.mark.parametrize("told", [episode(), FACT], ids=["an episode", "a fact"])
def test_a_value_that_is_made_is_what_pydantic_constructs(told: BaseModel) -> None:
    fields = dict(told)

    value = made(type(told), fields)

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
def test_a_value_that_is_made_can_be_copied(copied: object) -> None:
    value = made(Episode, dict(episode()))

    assert copied(value) == episode()  # type: ignore[operator] # it is called with what it takes


def test_a_value_that_is_made_is_frozen() -> None:
    value = made(Episode, dict(episode()))

    with pytest.raises(ValidationError, match="frozen"):
        value.content = "another"  # type: ignore[misc] # that is the point


def test_a_copy_with_other_fields_leaves_the_others_as_they_were() -> None:
    first, second = made(Episode, dict(episode("e1"))), made(Episode, dict(episode("e2")))

    first.model_copy(update={"content": "another", "more": 1})

    assert second.model_fields_set == set(Episode.model_fields)
