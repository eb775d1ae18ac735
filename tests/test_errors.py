"""Every error has a message and its fields, as hosts of Stargraph read them."""

from __future__ import annotations

import inspect
from difflib import unified_diff
from operator import attrgetter

import pytest
from pydantic import ValidationError

from slumberd.model.errors import (
    ConsolidationRuleError,
    FactConflictError,
    MemoryScopeError,
    NoInputError,
    NotQuarantinedError,
    SlumberdError,
    UnportableCypherError,
)
from tests.support.error_messages import TABLE, VALUES, all_messages, classes, construct
from tests.support.lists import of_each

pytestmark = pytest.mark.unit


def test_messages_and_fields_equal_the_table() -> None:
    found, table = all_messages(), TABLE.read_text().splitlines()

    changes = list(unified_diff(table, found, "table", "code", lineterm="", n=0))
    assert not changes, "\n".join(changes)


@of_each(classes, attrgetter("__name__"))
def test_every_error_has_its_message_and_its_fields(kind: type[SlumberdError]) -> None:
    error, given = construct(kind)

    assert error.message == str(error) != ""
    assert {name: error.context[name] for name in given if name in vars(error)} == {
        name: getattr(error, name) for name in given if hasattr(error, name)
    }
    assert error.hint is None or error.hint in error.message
    assert error.see is None


def classes_of_stores() -> list[type[SlumberdError]]:
    return [kind for kind in classes() if "where" in inspect.signature(kind.__init__).parameters]


@of_each(classes_of_stores, attrgetter("__name__"))
def test_every_error_of_a_store_names_a_store_without_a_file(kind: type[SlumberdError]) -> None:
    error, given = construct(kind)

    assert error.context["where"] == given["where"]
    assert repr(given["where"]) in error.message


def test_sample_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "episode_ids", "<episode_ids>")

    with pytest.raises(ValidationError, match="episode_ids"):
        construct(NotQuarantinedError)


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
