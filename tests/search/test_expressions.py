r"""Expressions read the letters and digits of all scripts, as Python's own expressions do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.errors import PatternError
from slumberd.search.expressions import Expression, compile_expression

pytestmark = pytest.mark.unit

WORDS = "aZs_19\u00e9\u0301\u00df\u0416\u03c3\u4e2d\u0663\u00b2\u200c"
"""Letters, a combining mark, digits and a joiner; both engines are asked about these only."""
SPACES = " \n\u00a0\u2003"
OTHERS = ".-'\u2014\U0001f600"
TEXTS = st.text(st.sampled_from(WORDS + SPACES + OTHERS), max_size=8)

_IN_WORD = f"[{WORDS}]"
_BESIDE = rf"(?:(?<={_IN_WORD})(?!{_IN_WORD})|(?<!{_IN_WORD})(?={_IN_WORD}))"
_INSIDE = rf"(?:(?<={_IN_WORD})(?={_IN_WORD})|(?<!{_IN_WORD})(?!{_IN_WORD}))"
_DIGITS = "19\u0663"
_PYTHON = {
    "[]a]": r"[\]a]",
    r"\w": _IN_WORD,
    r"\W": f"[^{WORDS}]",
    r"\b": _BESIDE,
    r"\B": _INSIDE,
    r"[\w-]": f"[{WORDS}-]",
    r"[^\w.]": f"[^{WORDS}.]",
    r"[\W_]": f"[^{WORDS.replace('_', '')}]",
    r"[^\W\d_]": f"[{''.join(set(WORDS) - set(_DIGITS) - {'_'})}]",
    r"[[:alpha:]]": "[aZs\u00e9\u0301\u00df\u0416\u03c3\u4e2d]",
    r"[^[:^digit:]]": f"[{_DIGITS}]",
    r"[[:^space:]a]": r"\S",
    r"\Q.\E": r"\.",
    r"$": r"\Z",
    r"(?m:$)": r"(?=\n|\Z)",
}
"""What Python writes for a part of an expression; other parts are the same."""

CHARACTERS = st.sampled_from(
    [*WORDS.replace("_", ""), "_", r"\.", "-", " ", r"\n", r"\x{e9}", r"\w", r"\W", r"\d", r"\D",
     r"\s", r"\S", ".", r"[\w-]", r"[^\w.]", r"[\W_]", r"[^\W\d_]", r"[a\d]", r"[\s\d]", r"[^\s]",
     r"\Q.\E", "[]a]", "[^]a]", "[a-z\u00e9]", "[^a\u0416]",
     r"[[:alpha:]]", r"[^[:^digit:]]", r"[[:^space:]a]"]
)  # fmt: skip
PLACES = st.sampled_from([r"\b", r"\B", "^", "$", r"(?m:^)", r"(?m:$)", r"\b", r"\b"])


def _joined(parts: tuple[Sequence[str], ...]) -> tuple[str, ...]:
    return tuple(one for part in parts for one in part)


def _larger(inner: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[tuple[str, ...]]:
    repeated = st.tuples(CHARACTERS, st.sampled_from(["*", "+", "?", "*?", "+?", "{1,2}"]))
    optional = inner.map(lambda one: ("(?:", *one, ")?"))
    either = st.tuples(inner, inner).map(lambda two: ("(?:", *two[0], "|", *two[1], ")"))
    both = st.tuples(inner, inner).map(_joined)
    return st.one_of(repeated, optional, either, both)


EXPRESSIONS = st.recursive(
    st.one_of(CHARACTERS.map(lambda one: (one,)), PLACES.map(lambda one: (one,))),
    _larger,
    max_leaves=7,
)
"""The parts of valid expressions."""


def _python(parts: Sequence[str]) -> str:
    return "".join(_PYTHON.get(part, part).replace(r"\x{e9}", "\u00e9") for part in parts)


@pytest.mark.slow
@given(EXPRESSIONS, EXPRESSIONS, TEXTS)
def test_expression_finds_what_python_finds(
    first: tuple[str, ...], second: tuple[str, ...], text: str
) -> None:
    parts = (*first, "(?P<one>", *second, ")")
    expected = re.search(_python(parts), text)

    found = compile_expression("slot", "".join(parts)).search(text)

    assert (None if found is None else (found.start(), found.end(), found.groupdict())) == (
        None if expected is None else (*expected.span(), expected.groupdict())
    )


@pytest.mark.slow
@given(EXPRESSIONS, TEXTS)
def test_whole_text_matches_when_it_matches_in_python(parts: tuple[str, ...], text: str) -> None:
    expression = compile_expression("slot", "".join(parts))

    assert (expression.fullmatch(text) is None) == (
        re.fullmatch(f"(?:{_python(parts)})", text) is None
    )


LATIN = "aZs_19\u00e9\u00df\u0416\u03c3\u4e2d\u0663\u00b2"
"""Python's ``\\w`` knows all of these, too; it knows no combining mark."""


CAPITALS = "A\u00c9\u0416\u03a3\u03c2\u1e9eS"
SCRIPTS = st.text(st.sampled_from(LATIN + CAPITALS + SPACES + OTHERS), min_size=1, max_size=8)
"""Python finds no ``\\B`` in an empty text."""


@pytest.mark.slow
@given(EXPRESSIONS, SCRIPTS, st.booleans())
def test_unchanged_expression_finds_what_python_finds(
    parts: tuple[str, ...], text: str, ignore_case: bool
) -> None:
    kept = (
        "a" if "$" in one or "Q" in one or "[:" in one else one.replace(r"\x{e9}", "\u00e9")
        for one in parts
    )
    same = "".join(kept)
    expected = re.search(same, text, re.IGNORECASE if ignore_case else 0)

    found = compile_expression("slot", same, ignore_case=ignore_case).search(text)

    assert (None if found is None else (found.start(), found.end())) == (
        None if expected is None else expected.span()
    )


def _all(expression: str, text: str, **keys: Any) -> list[str]:
    matches = compile_expression("slot", expression, **keys).finditer(text)
    return [text[match.start() : match.end()] for match in matches]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I live in Krak\u00f3w.", ["I", "live", "in", "Krak\u00f3w"]),
        ("Krako\u0301w, S\u0303ao", ["Krako\u0301w", "S\u0303ao"]),
        ("\u0416\u0438\u0432\u0443 \u0432 \u041c\u043e\u0441\u043a\u0432\u0435",
         ["\u0416\u0438\u0432\u0443", "\u0432", "\u041c\u043e\u0441\u043a\u0432\u0435"]),
        ("\u0396\u03c9 \u03c3\u03c4\u03b7\u03bd \u0391\u03b8\u03ae\u03bd\u03b1",
         ["\u0396\u03c9", "\u03c3\u03c4\u03b7\u03bd", "\u0391\u03b8\u03ae\u03bd\u03b1"]),
        ("\u6211\u4f4f\u5728\u5317\u4eac\u3002", ["\u6211\u4f4f\u5728\u5317\u4eac"]),
        ("\u0645\u06cc\u200c\u0631\u0648\u0645", ["\u0645\u06cc\u200c\u0631\u0648\u0645"]),
    ],
    ids=["accent", "combining mark", "Cyrillic", "Greek", "Chinese", "Persian joiner"],
)  # fmt: skip
def test_word_is_whole_in_every_script(text: str, words: list[str]) -> None:
    assert _all(r"\w+", text) == _all(r"\b\w+\b", text) == _all(r"[\w]+", text) == words


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("\\b\u00e9t\u00e9\\b", "\u00c9T\u00c9"),
        ("\\b\u0436\\w*", "\u0416\u0418\u0417\u041d\u042c"),
        ("[\u03b1-\u03c9]+", "\u0391\u03a3"),
    ],
    ids=["accent", "Cyrillic", "range of Greek"],
)  # fmt: skip
def test_case_has_no_effect_in_any_script(expression: str, text: str) -> None:
    assert _all(expression, text, ignore_case=True) == [text]
    assert _all(expression, text) == []


def test_matches_do_not_overlap_and_empty_ones_end() -> None:
    assert _all(r"\b", "\u00e9a b") == ["", "", "", ""]
    assert _all(r"\b\w|\B\w", "\u00e9a b") == ["\u00e9", "a", "b"]


def test_one_byte_is_refused_with_the_remedy() -> None:
    with pytest.raises(PatternError, match=r"write \(\?s:\.\) for any character") as failure:
        compile_expression("slot", r"a\Cb")

    assert failure.value.position == 1


def test_expression_that_is_too_large_is_refused_with_the_remedy() -> None:
    with pytest.raises(PatternError, match=r"repeat \\w and other classes fewer times"):
        compile_expression("slot", r"\b\w{1,1000}")


@pytest.mark.parametrize("expression", [r"[a-\w]", r"[[:none:]]\w", r"(\w", r"\w\1"])
def test_error_names_the_expression_as_it_was_written(expression: str) -> None:
    with pytest.raises(PatternError) as failure:
        compile_expression("slot", expression)

    assert r"\p" not in str(failure.value)


def _seconds(expression: Expression, text: str) -> float:
    times = []
    for _ in range(3):
        begun = process_time()
        expression.search(text)
        times.append(process_time() - begun)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["\u00e9", "\u00e9 ", "a\u0301", "\u4e2d", "\u2014", "\u00e9a"])
def test_time_grows_no_faster_than_a_text_of_other_scripts(part: str) -> None:
    hostile = compile_expression("slot", r"\b(?P<a>(?:\w+\b\W?)*)\bzz|\b\B")
    short, long = (part * (size // len(part)) for size in (20_000, 160_000))

    assert _seconds(hostile, long) < 8 * 2.5 * max(_seconds(hostile, short), 0.002)
