"""Defaults, bounds and limits: none changes by accident, and twins are equal."""

from __future__ import annotations

from difflib import unified_diff

import pytest
from pydantic import BaseModel

from slumberd.model.firing import Limits
from slumberd.model.rule import ConsolidationRule, Similarity
from slumberd.model.salience import Gate, SalienceContext
from slumberd.rules.rule_schema import (
    GraphRuleForm,
    LimitsForm,
    RuleForm,
    SalienceForm,
    SimilarityForm,
)
from slumberd.rules.settings_schema import FactsSettings, MemorySettings, ProvenanceSettings
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.workers.provenance.publisher import DeliveryPolicy
from tests.support.defaults import TABLE, all_defaults, defaults_of, models

pytestmark = pytest.mark.unit


@pytest.mark.slow
def test_defaults_equal_the_table() -> None:
    found, table = all_defaults(), TABLE.read_text().splitlines()

    changes = list(unified_diff(table, found, "table", "code", lineterm="", n=0))
    assert not changes, "\n".join(changes)


@pytest.mark.slow
def test_every_model_refuses_unknown_keys() -> None:
    assert [kind for kind in models() if kind.model_config.get("extra") != "forbid"] == []


def plain(value: object) -> object:
    return value.model_dump() if isinstance(value, BaseModel) else value


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        pytest.param(ConsolidationRule, RuleForm, id="rule"),
        pytest.param(ConsolidationRule, GraphRuleForm, id="graph rule"),
        pytest.param(Limits, LimitsForm, id="limits"),
        pytest.param(Similarity, SimilarityForm, id="similarity"),
        pytest.param(Gate, SalienceForm, id="salience"),
    ],
)
def test_default_of_a_rule_equals_that_of_its_form(kind: type, form: type) -> None:
    of_kind, of_form = defaults_of(kind), defaults_of(form)

    common = of_kind.keys() & of_form.keys()
    assert common
    assert [name for name in common - {"limits"} if plain(of_form[name]) != of_kind[name]] == []


def test_every_optional_key_of_a_form_has_a_default_of_the_rule() -> None:
    assert defaults_of(RuleForm).keys() <= defaults_of(ConsolidationRule).keys()


def test_salience_of_the_library_has_the_defaults_of_a_gate() -> None:
    library, gate = defaults_of(SalienceContext), defaults_of(Gate)

    assert (library["weights"], library["decay_tau_seconds"]) == (gate["weights"], gate["tau"])


def test_default_of_a_store_equals_that_of_the_settings() -> None:
    memory, facts = defaults_of(SQLiteMemoryStore), defaults_of(SQLiteFactStore)
    of_memory, of_facts = defaults_of(MemorySettings), defaults_of(FactsSettings)

    assert memory["future_tolerance_seconds"] == of_memory["future_tolerance"]
    for name in ("synchronous", "scope_mismatch", "naive_timestamps"):
        assert memory[name] == of_memory[name]
    assert facts["lineage_depth"] == of_facts["lineage_depth"]


def test_default_of_a_delivery_equals_that_of_the_settings() -> None:
    policy, settings = defaults_of(DeliveryPolicy), defaults_of(ProvenanceSettings)

    for name in ("template", "timeout_seconds", "retry_seconds"):
        assert policy[name] == settings[name]
