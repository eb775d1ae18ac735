"""A figure below its bar is named, and the table shows it."""

from __future__ import annotations

import pytest

from tests.bench.measuring import at_least, at_most
from tests.recall import evidence
from tests.recall.conversations import Conversations, Question
from tests.recall.engine import Line
from tests.recall.figures import (
    BARS,
    CORPORA,
    Bar,
    Comparison,
    Figure,
    document,
    missed,
    table,
    worse,
)
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

    assert lines[0].split() == ["init", "bm25", "no-language", "lexical", "vectors", "bars"]
    assert "-       0.449           -       0.690" in lines[1]
    assert lines[1].endswith("lexical at least 0.69: MISSED")


def test_the_document_has_each_figure_with_its_bar() -> None:
    assert document([BAD], [LEAST]) == [
        {
            "section": "locomo", "name": "recall @5", "engine": "lexical", "value": 0.6899,
            "unit": "", "bar": "at least 0.69", "aim": "at least 0.74", "kept": False,
        }
    ]  # fmt: skip


def recall(engine: str, value: float) -> Figure:
    return Figure("locomo", "recall @5", engine, value)


AS_GOOD = Comparison(
    "locomo", "recall @5", "init", "recall @5", ("no-language", "lexical"), slack=0.01
)


@pytest.mark.parametrize(
    ("own", "misses"),
    [
        pytest.param(0.69, False, id="within the slack"),
        pytest.param(0.6899, True, id="beyond it"),
        pytest.param(0.9, False, id="better"),
    ],
)
def test_a_figure_is_compared_with_the_best_of_the_others(own: float, misses: bool) -> None:
    figures = [recall("init", own), recall("no-language", 0.4), recall("lexical", 0.7)]

    assert worse(figures, [AS_GOOD]) == [AS_GOOD] * misses


@pytest.mark.parametrize(
    "figures",
    [
        pytest.param([recall("lexical", 0.7)], id="the figure"),
        pytest.param([recall("init", 0.1), recall("vectors", 0.7)], id="all others"),
        pytest.param(
            [recall("init", 0.1), Figure("beam", "recall @5", "lexical", 0.7)], id="its section"
        ),
    ],
)
def test_a_comparison_is_not_missed_when_a_side_was_not_measured(figures: list[Figure]) -> None:
    assert worse(figures, [AS_GOOD]) == []


def test_a_comparison_says_what_is_too_low() -> None:
    assert str(AS_GOOD) == (
        "locomo: recall @5 of init, at least recall @5 of no-language or lexical less 0.01"
    )


@pytest.mark.parametrize("section", CORPORA)
def test_each_corpus_compares_contexts_with_fill_by_rank(section: str) -> None:
    context = Figure(section, "evidence in 1,000 tokens", "init", 0.5)
    best = Figure(section, "evidence in 1,000 tokens, by rank", "init", 0.506)
    leading = Figure(section, "evidence in 1,000 tokens, leading hits", "init", 0.501)

    assert [str(one) for one in worse([context, best, leading])] == [
        f"{section}: evidence in 1,000 tokens of init,"
        " at least evidence in 1,000 tokens, leading hits of init",
        f"{section}: evidence in 1,000 tokens of init,"
        " at least evidence in 1,000 tokens, by rank of init less 0.005",
    ]


def test_no_two_bars_bound_the_same_figure() -> None:
    assert len({bar[:3] for bar in BARS}) == len(BARS)


@pytest.mark.parametrize(
    ("depth", "share"), [pytest.param(1, 0.5, id="one hit"), pytest.param(9, 1.0, id="all")]
)
def test_recall_is_the_share_of_the_evidence_among_the_first_hits(depth: int, share: float) -> None:
    assert evidence.recall(["a", "x", "b"][:depth], frozenset("ab")) == share


LINES = [Line("a", 30), Line("b", 90), Line("c", 20), Line("d", 60)]


@pytest.mark.parametrize(
    ("budget", "leading", "taken"),
    [
        pytest.param(100, True, "a", id="until the first that does not fit"),
        pytest.param(100, False, "ac", id="without those that do not fit"),
        pytest.param(110, False, "acd", id="exactly full"),
        pytest.param(29, False, "c", id="not even the first"),
        pytest.param(29, True, "", id="nothing"),
        pytest.param(200, True, "abcd", id="all"),
    ],
)
def test_lines_fill_a_budget_by_rank(budget: int, leading: bool, taken: str) -> None:
    assert evidence.fill(LINES, budget, leading=leading) == [*taken]


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
