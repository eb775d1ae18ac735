"""A figure below its bar is named, and the table shows it."""

from __future__ import annotations

import pytest

from tests.bench.measuring import at_least, at_most
from tests.recall import evidence
from tests.recall.conversations import Conversations, Question
from tests.recall.figures import BARS, Bar, Figure, document, missed, table
from tests.recall.samples import blind, episode, plain

pytestmark = [pytest.mark.unit, pytest.mark.slow]

LEAST = Bar("locomo", "recall @5", "lexical", at_least(0.69), at_least(0.74))
MOST = Bar("gatemem", "leaks", "lexical", at_most(0))

GOOD = Figure("locomo", "recall @5", "lexical", 0.69)
BAD = Figure("locomo", "recall @5", "lexical", 0.6899)


def test_a_figure_at_its_bar_keeps_it() -> None:
    assert missed([GOOD, Figure("gatemem", "leaks", "lexical", 0)], [LEAST, MOST]) == []


def test_a_figure_beyond_its_bar_misses_it() -> None:
    leak = Figure("gatemem", "leaks", "lexical", 1)

    assert missed([BAD, leak], [LEAST, MOST]) == [LEAST, MOST]
    assert str(LEAST) == "locomo: recall @5 of lexical, at least 0.69"


def test_the_baseline_misses_no_bar() -> None:
    assert missed([Figure("locomo", "recall @5", "bm25", 0.0)]) == []


def test_a_part_that_was_not_measured_misses_no_bar() -> None:
    assert missed([]) == []


def test_a_bar_whose_figure_is_missing_from_a_measured_part_is_missed() -> None:
    other = Figure("locomo", "recall @10", "lexical", 1.0)

    assert missed([other], [LEAST]) == [LEAST]


def test_the_table_has_a_column_for_each_engine() -> None:
    lines = list(table([Figure("locomo", "recall @5", "bm25", 0.449), BAD], [LEAST]))

    assert lines[0].split() == ["bm25", "lexical", "vectors", "bars"]
    assert "0.449       0.690" in lines[1]
    assert lines[1].endswith("lexical at least 0.69: MISSED")


def test_the_document_has_each_figure_with_its_bar() -> None:
    assert document([BAD], [LEAST]) == [
        {
            "section": "locomo", "name": "recall @5", "engine": "lexical", "value": 0.6899,
            "unit": "", "bar": "at least 0.69", "aim": "at least 0.74", "kept": False,
        }
    ]  # fmt: skip


def test_no_two_bars_bound_the_same_figure() -> None:
    assert len({bar[:3] for bar in BARS}) == len(BARS)


@pytest.mark.parametrize(
    ("depth", "share"), [pytest.param(1, 0.5, id="one hit"), pytest.param(9, 1.0, id="all")]
)
def test_recall_is_the_share_of_the_evidence_among_the_first_hits(depth: int, share: float) -> None:
    assert evidence.recall(["a", "x", "b"], frozenset("ab"), depth) == share


async def test_an_engine_that_finds_nothing_misses_every_bar_of_a_corpus() -> None:
    tea = Conversations(
        "locomo",
        [episode("a", "Ann drinks tea."), episode("b", "Ben drinks coffee.")],
        [Question("ann", "Who drinks tea?", "single-hop", frozenset({"a"}))],
    )

    figures = await evidence.measure(tea, [plain, blind])

    found = {(figure.engine, figure.name): figure.value for figure in figures}
    assert found["bm25", "recall @5"] == 1.0
    assert found["lexical", "recall @5"] == 0.0
    assert [bar.name for bar in missed(figures)] == ["recall @5", "recall @10", "recall @50"]
