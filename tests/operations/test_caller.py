"""A caller's rights, and the scopes that it may name."""

from __future__ import annotations

import pytest

from slumberd.model.errors import MemoryScopeError, NotAllowedError, UsageError
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import ALL_RIGHTS, Caller, Right

pytestmark = pytest.mark.unit

ANN = Caller(name="token ann", user="ann", agent="desk", rights=frozenset([Right.READ]))


def test_operator_of_this_machine_has_every_right_in_every_scope() -> None:
    here = Caller.here()

    assert here.rights == ALL_RIGHTS
    assert here.scope("bob", "car", "s1") == ScopeFilter("bob", "s1", "car")
    assert str(here) == f"uid {here.uid}"


@pytest.mark.parametrize("right", Right)
def test_caller_is_refused_a_right_that_it_has_not(right: Right) -> None:
    if right is Right.READ:
        ANN.require(right)
    else:
        with pytest.raises(NotAllowedError, match=f"token ann has no right to {right}"):
            ANN.require(right)


@pytest.mark.parametrize(
    ("user", "agent"),
    [(None, None), ("ann", None), (None, "desk"), ("ann", "desk")],
)
def test_bound_caller_reads_its_own_scope(user: str | None, agent: str | None) -> None:
    assert ANN.scope(user, agent) == ScopeFilter("ann", None, "desk")


@pytest.mark.parametrize(("user", "agent"), [("bob", None), (None, "car"), ("bob", "desk")])
def test_bound_caller_may_name_no_other_scope(user: str | None, agent: str | None) -> None:
    with pytest.raises(NotAllowedError, match="may not name another"):
        ANN.scope(user, agent)


def test_operator_must_name_a_user() -> None:
    with pytest.raises(UsageError, match="name a user"):
        Caller.here().scope(None)


def test_scope_with_a_control_character_is_refused() -> None:
    with pytest.raises(MemoryScopeError):
        Caller.here().scope("a\nb")
