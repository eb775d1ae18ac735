"""A character of a value is found in its source, in every style of YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slumberd.rules.yaml_scalars import SourceSpan, source_of

pytestmark = pytest.mark.unit


def _scalar(text: str) -> tuple[str, SourceSpan]:
    """Return the last scalar of a text."""
    *_, event = (e for e in yaml.parse(text) if isinstance(e, yaml.ScalarEvent))
    assert event.start_mark
    assert event.end_mark
    return event.value, SourceSpan(event.start_mark.index, event.end_mark.index, event.style or "")


WORDS = st.lists(
    st.text("ab'\"\\#:(é\u00a0\U0001f600", min_size=1, max_size=4), min_size=1, max_size=6
)


@pytest.mark.parametrize("style", ["", "'", '"', "|", ">"])
@given(words=WORDS, width=st.integers(1, 30), unicode=st.booleans())
def test_source_of_finds_every_visible_character(
    style: str, words: list[str], width: int, unicode: bool
) -> None:
    written = " ".join(words) + "\nx "
    text = yaml.dump(
        {"key": written}, default_style=style or None, width=width, allow_unicode=unicode
    )
    value, span = _scalar(text)
    assert value == written

    for offset, character in enumerate(value):
        if not character.isspace():
            source = source_of(text, span, value, offset)
            assert source is not None
            assert text[source] in (character, "\\")


@pytest.mark.parametrize(
    "written",
    [
        r'"\x20\u00a0\U00002003b"',
        r'"\t\n\_\N\L\P\ \rb"',
        '"  \\\n  \\  b"',
        '"\n\n  b"',
        "'\n\n  b'",
    ],
)
def test_source_of_skips_white_space_and_its_escapes(written: str) -> None:
    text = f"- {written}\n"
    value, span = _scalar(text)

    source = source_of(text, span, value, value.index("b"))

    assert source == text.index("b")


def test_end_of_a_value_is_after_its_last_visible_character() -> None:
    text = "a: >-  # why\n  b =\n\n"
    value, span = _scalar(text)

    source = source_of(text, span, value, len(value))

    assert source is not None
    assert text[:source].endswith("b =")


def test_empty_value_has_no_source_position() -> None:
    value, span = _scalar("a: ''")

    assert source_of("a: ''", span, value, 0) is None
