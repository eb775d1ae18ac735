"""Values in the output of `slumberd test`, printed as a file of tests would hold them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.cli.commands.test import flow
from slumberd.rules.yaml_reader import read_document

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("a boat", "a boat", id="plain text"),
        pytest.param("lives_in", "lives_in", id="name"),
        pytest.param("", '""', id="no text"),
        pytest.param("true", '"true"', id="text that is a word of YAML"),
        pytest.param("12", '"12"', id="text that is a number"),
        pytest.param("no", '"no"', id="text that YAML reads as false"),
        pytest.param("@notes/e1", '"@notes/e1"', id="text with a special character"),
        pytest.param("-", '"-"', id="text like an entry"),
        pytest.param("e1 ", '"e1 "', id="blank at the end"),
        pytest.param("a\x1b[2J", r'"a\u001b[2J"', id="cursor movement"),
        pytest.param("a\u202e", r'"a\u202e"', id="change of direction"),
        pytest.param(1.0, "1.0", id="fraction"),
        pytest.param(1, "1", id="number"),
        pytest.param(None, "null", id="nothing"),
        pytest.param(["e1", "@a/b"], '[e1, "@a/b"]', id="list"),
        pytest.param({"a": 1}, '{"a":1}', id="object"),
    ],
)
def test_value_is_printed_in_its_shortest_yaml_form(value: object, text: str) -> None:
    assert flow(value) == text


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | texts
    | st.text("ab1 .:,?!#&*-_~=%@|<>'\"\\[]{}`", max_size=5)
    | st.sampled_from(["-1", "null", "? a", "a: b", "0x1", "2026-01-01", "1:30", "---", "<<", "é"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(values)
def test_printed_value_is_read_back_unchanged(value: Any) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "a.yaml"
        file.write_text(f"{{value: {flow(value)}}}\n")

        document = read_document(file)

    assert document.mistakes == ()
    assert document.value == {"value": value}
