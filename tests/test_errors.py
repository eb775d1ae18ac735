"""Every error has a message and its fields, as hosts of Stargraph read them."""

from __future__ import annotations

import inspect

import pytest

from slumberd import errors
from slumberd.errors import (
    ConsolidationRuleError,
    FactConflictError,
    MemoryScopeError,
    Mistake,
    NoInputError,
    SlumberdError,
    UnportableCypherError,
)

pytestmark = pytest.mark.unit

VALUES = {
    "at": 3,
    "cause": OSError("no"),
    "ours": 1,
    "current": 2,
    "seconds": 1.5,
    "waited_seconds": 1.5,
    "scope": ("alice", None, None),
    "where": "postgresql://db.example.org:5432/slumberd",
    "limit": 2.5,
    "spent": 3.0,
    "mistakes": [Mistake("a.yaml", 1, 2, "rules[0]", "is wrong")],
}


def classes() -> list[type[SlumberdError]]:
    found = {kind for kind in vars(errors).values() if inspect.isclass(kind)}
    return sorted(
        (kind for kind in found if issubclass(kind, SlumberdError)), key=lambda kind: kind.__name__
    )


def construct(kind: type[SlumberdError]) -> tuple[SlumberdError, dict[str, object]]:
    """Return an error of a class, and its constructor's arguments."""
    if kind.__init__ in (Exception.__init__, SlumberdError.__init__):
        return kind("it failed"), {}
    parameters = [*inspect.signature(kind.__init__).parameters.values()][1:]
    given = {
        parameter.name: VALUES.get(parameter.name, "x")
        for parameter in parameters
        if parameter.default is parameter.empty
    }
    return kind(**given), given


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
