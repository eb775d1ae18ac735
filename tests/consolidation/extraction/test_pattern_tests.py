"""A test of patterns names what is missing and what is surplus."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slumberd.consolidation.extraction.patterns import Expected, PatternTest, run_pattern_tests
from slumberd.model.extraction import Extracted, Turn

pytestmark = pytest.mark.unit

TEA = Expected("ada", "likes", "tea")


class Repeating:
    """States that the speaker likes each word of a turn."""

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        return [
            [
                Extracted(turn.speaker, "likes", word, "add", (0, 1), "word")
                for word in turn.content.split()
            ]
            for turn in turns
        ]


def case(text: str, *expected: Expected) -> PatternTest:
    turns = [Turn(str(n), "s", "ada", part, n) for n, part in enumerate(text.split(","))]
    return PatternTest("taste", tuple(turns), expected)


def test_passing_tests_have_no_failures() -> None:
    milk = TEA._replace(object="milk")

    assert run_pattern_tests(Repeating(), [case("tea milk", milk, TEA), case("")]) == []


@pytest.mark.parametrize(
    ("test", "failure"),
    [
        pytest.param(case("", TEA), 'no pattern states add "ada" "likes" "tea"', id="missing"),
        pytest.param(
            case("tea"),
            "pattern 'word' states add \"ada\" \"likes\" \"tea\", which is not expected",
            id="surplus",
        ),
        pytest.param(
            case("tea, tea", TEA),
            "pattern 'word' states add \"ada\" \"likes\" \"tea\", which is not expected",
            id="stated in two turns",
        ),
        pytest.param(
            case("tea", TEA, TEA),
            "no pattern states add \"ada\" \"likes\" \"tea\"",
            id="expected twice",
        ),
    ],
)  # fmt: skip
def test_failure_is_described(test: PatternTest, failure: str) -> None:
    assert run_pattern_tests(Repeating(), [test]) == [f"{failure}"]


def test_other_intent_is_another_triple() -> None:
    failures = run_pattern_tests(Repeating(), [case("tea", TEA._replace(intent="delete"))])

    assert len(failures) == 2
