"""Values of facts as text, and the values that people write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.web.console.fact_words import read_value, show_value, write_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(JSON)
def test_value_that_is_written_is_read_again(value: Any) -> None:
    text = write_value(value)

    assert read_value(text) == value
    assert type(read_value(text)) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("Lisbon", "Lisbon", id="text"),
        pytest.param("42", '"42"', id="text that looks like a number"),
        pytest.param(42, "42", id="number"),
        pytest.param("two\nlines", '"two\\nlines"', id="lines, which a field would lose"),
        pytest.param(None, "null", id="nothing"),
    ],
)
def test_text_is_written_as_it_is_where_it_can_be_read_so(value: Any, text: str) -> None:
    assert write_value(value) == text


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        pytest.param({"subject": "ana", "object": "Lisbon"}, "Lisbon", id="text"),
        pytest.param({"subject": "ana", "object": [1, "a"]}, '[1,"a"]', id="list"),
        pytest.param({"content": "a summary"}, "a summary", id="no triple"),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_value_of_a_fact_is_its_object_or_its_content(payload: Any, shown: str) -> None:
    assert show_value(payload) == shown
