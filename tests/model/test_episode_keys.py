"""Ids of keys never collide, and only their own user and agent may have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import id_of_key, may_have_id

pytestmark = pytest.mark.unit

PART = st.text(st.sampled_from("ab/%25F:\0 é"), min_size=1, max_size=6)
NAME = st.tuples(PART, PART, PART)


def test_id_of_plain_parts_is_easy_to_read() -> None:
    assert id_of_key("ana", "desk", "turn 1") == "key:ana/desk/turn 1"


@given(NAME, NAME)
def test_ids_are_equal_when_user_agent_and_key_are(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (id_of_key(*one) == id_of_key(*other)) is (one == other)


@given(NAME, PART, PART)
def test_only_the_owner_of_a_key_may_have_its_id(
    name: tuple[str, str, str], user: str, agent: str
) -> None:
    id = id_of_key(*name)

    assert may_have_id(user, agent, id) is ((user, agent) == name[:2])
    assert may_have_id(user, agent, "e1")
