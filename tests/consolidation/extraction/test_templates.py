"""Templates and word lists write names in braces, and everything else is literal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.patterns import fill, insert_words, placeholders, word_lists
from slumberd.search.expressions import compile_expression

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("template", "names", "filled"),
    [
        ("{who}", ["who"], 2), ("{who} and {what}", ["who", "what"], "2 and tea"),
        ("who", [], "who"),
        ("{2}", [], "{2}"), ("{}", [], "{}"), ("{who", [], "{who"), (" {what}", ["what"], " tea"),
    ],
)  # fmt: skip
def test_template_is_filled(template: str, names: list[str], filled: str | int) -> None:
    assert placeholders(template) == names
    assert fill(template, {"who": 2, "what": "tea"}) == filled


def test_template_without_the_value_of_a_name_is_nothing() -> None:
    assert fill("{who} {what}", {"who": "ada"}) is None
    assert fill("{who}", {"who": None}) is None


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("{tea}s?", ["tea"]), (r"\p{Greek}", []), (r"\P{L}", []), (r"\x{41}", []), ("a{2,3}", []),
        ("(?P<a>{tea}|{milk})", ["tea", "milk"]),
    ],
)  # fmt: skip
def test_names_of_word_lists_are_found(expression: str, names: list[str]) -> None:
    assert word_lists(expression) == names


def test_words_are_inserted_longest_first() -> None:
    found = insert_words("{drink}!", {"drink": ["tea", "tea with milk"]})

    assert found == r"(?:tea\s+with\s+milk|tea)!"
    assert insert_words("{drink}", {}) == "{drink}"


@pytest.mark.slow
@given(st.lists(st.text(min_size=1).filter(lambda word: bool(word.split())), min_size=1))
def test_list_matches_exactly_its_words(words: list[str]) -> None:
    one = compile_expression("list", insert_words("{any}", {"any": words}))

    for word in words:
        plain = " ".join(word.split())
        assert one.fullmatch(plain)
        assert not one.fullmatch(f"{plain}{max(''.join(words))}x")
