"""Every error has a message and its fields, as hosts of Stargraph read them."""

from __future__ import annotations

import inspect
from difflib import unified_diff

import pytest

from slumberd.errors import (
    ConsolidationRuleError,
    FactConflictError,
    MemoryScopeError,
    NoInputError,
    NotQuarantinedError,
    SlumberdError,
    UnportableCypherError,
)
from tests.support.error_messages import TABLE, VALUES, all_messages, classes, construct

pytestmark = pytest.mark.unit


def test_messages_and_fields_equal_the_table() -> None:
    found, table = all_messages(), TABLE.read_text().splitlines()

    changes = list(unified_diff(table, found, "table", "code", lineterm="", n=0))
    assert not changes, "\n".join(changes)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_error_has_its_message_and_its_fields(kind: type[SlumberdError]) -> None:
    error, given = construct(kind)

    assert error.message == str(error) != ""
    assert {name: error.context[name] for name in given if name in vars(error)} == {
        name: getattr(error, name) for name in given if hasattr(error, name)
    }
    assert error.hint is None or error.hint in error.message
    assert error.see is None


@pytest.mark.parametrize(
    "kind",
    [kind for kind in classes() if "where" in inspect.signature(kind.__init__).parameters],
    ids=lambda kind: kind.__name__,
)
def test_error_of_a_store_names_a_store_without_a_file(kind: type[SlumberdError]) -> None:
    error, given = construct(kind)

    assert error.context["where"] == given["where"] == VALUES["where"]
    assert repr(VALUES["where"]) in error.message


def test_context_of_an_error_is_a_copy() -> None:
    error = FactConflictError("f1", "is held by another user, agent or channel")

    error.context.clear()

    assert error.context == {
        "fact_id": "f1",
        "violation": "is held by another user, agent or channel",
    }


def test_note_on_an_error_is_not_in_its_context() -> None:
    error = MemoryScopeError(("", "s", "a"), "put", "user is empty")
    error.add_note("seen twice")

    assert sorted(error.context) == ["operation", "scope", "violation"]


def test_hint_of_an_error_is_its_remedy() -> None:
    assert NoInputError("rules.d", "create it").hint == "create it"


def test_refused_delta_names_its_kind_in_the_context() -> None:
    error = ConsolidationRuleError("r1", "add", "source_episode_ids must be non-empty")

    assert error.context == {
        "rule_id": "r1",
        "delta_type": "add",
        "violation": "source_episode_ids must be non-empty",
    }
    assert error.message == "add delta of rule 'r1': source_episode_ids must be non-empty"


def test_refused_query_names_its_rule_in_the_context() -> None:
    error = UnportableCypherError("RETURN x()", "unknown-function", "is not known", match="x()")

    assert error.context["rule"] == error.context["violation"] == "unknown-function"
    assert error.context["match"] == "x()"


@pytest.mark.parametrize(
    ("count", "listed"),
    [pytest.param(10, "'9'; nothing", id="ten"), pytest.param(11, "'9' and 1 more;", id="eleven")],
)
def test_error_lists_ten_episodes_at_most(count: int, listed: str) -> None:
    assert listed in NotQuarantinedError([str(number) for number in range(count)]).message
