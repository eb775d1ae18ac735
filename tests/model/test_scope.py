"""Scope keys: no two scopes share a key, and invalid parts are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.model.errors import MemoryScopeError
from slumberd.model.scope import Scope, ScopeFilter, escape, scope_of, unescape, validate_scope

pytestmark = pytest.mark.unit

PARTS = st.text(
    alphabet=st.one_of(
        st.sampled_from("%/2F5_aA\u0430"), st.characters(exclude_categories=("Cc", "Cs"))
    ),
    min_size=1,
    max_size=12,
)
SCOPES = st.builds(Scope, PARTS, PARTS, PARTS)


def test_the_key_of_an_ordinary_scope_is_as_specified() -> None:
    assert Scope("Alice", "S1", "rag").key == "/user/Alice/session/S1/agent/rag/"


@pytest.mark.slow
@given(SCOPES, SCOPES)
@example(Scope("u", "b/agent/c", "d"), Scope("u", "b", "c/agent/d"))
@example(Scope("a/b", "s", "r"), Scope("a%2Fb", "s", "r"))
@example(Scope("%", "s", "r"), Scope("%25", "s", "r"))
def test_two_scopes_never_share_a_key(left: Scope, right: Scope) -> None:
    assert (left.key == right.key) == (left == right)


@pytest.mark.slow
@given(SCOPES)
def test_a_key_has_the_scope_that_it_was_built_from(scope: Scope) -> None:
    assert scope_of(scope.key) == scope


@pytest.mark.slow
@given(PARTS)
def test_an_escaped_part_has_no_slash_and_unescapes_to_the_part(part: str) -> None:
    assert "/" not in escape(part)
    assert unescape(escape(part)) == part


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("", id="nothing"),
        pytest.param("/user/alice/", id="too short"),
        pytest.param("/user/a/b/session/s/agent/r/", id="a slash within a part"),
        pytest.param("/user/alice/session/s1/agent/rag", id="no slash at the end"),
        pytest.param("user/alice/session/s1/agent/rag/", id="no slash at the beginning"),
        pytest.param("/agent/alice/session/s1/user/rag/", id="axes in another order"),
    ],
)
def test_invalid_key_has_no_scope(key: str) -> None:
    assert scope_of(key) is None


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("", id="empty"),
        pytest.param("a\nb", id="newline"),
        pytest.param("\0", id="nul"),
        pytest.param("\x7f", id="delete"),
        pytest.param("\x85", id="next line"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param(7, id="a number"),
    ],
)
@pytest.mark.parametrize("axis", Scope._fields)
def test_invalid_part_is_refused_with_its_axis(axis: str, part: Any) -> None:
    scope = Scope("alice", "s1", "rag")._replace(**{axis: part})

    with pytest.raises(MemoryScopeError, match=axis) as caught:
        validate_scope(scope, operation="put")

    assert caught.value.scope == scope
    assert caught.value.operation == "put"


def test_unprintable_character_other_than_a_control_character_is_valid_in_a_scope() -> None:
    joined = Scope("zero\u200dwidth", "s", "a")

    assert validate_scope(joined, operation="put") == joined


@pytest.mark.parametrize("axis", Scope._fields)
@pytest.mark.parametrize(("part", "problem"), [("", "is empty"), ("a\n", "holds the control")])
def test_filter_with_an_invalid_part_names_its_axis(axis: str, part: str, problem: str) -> None:
    parts = Scope("alice", "s1", "rag")._replace(**{axis: part})

    with pytest.raises(MemoryScopeError, match=f"{axis} {problem}"):
        ScopeFilter.of(*parts)
