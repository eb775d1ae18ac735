"""The figures of a run, the bars that they must reach, and the table that shows both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.bench.measuring import Bound, at_least, at_most

STARTED = "init"
"""The memory that `slumberd init` makes: its search, its rules and their facts."""

BASELINE = "bm25"
WITHOUT_LANGUAGE = "no-language"

ENGINES = (STARTED, BASELINE, WITHOUT_LANGUAGE, "lexical", "vectors")
"""The columns of the table. The baseline has no bars."""

WITHOUT_VECTORS = (WITHOUT_LANGUAGE, "lexical")
"""The ways to search by words among which a user of `STARTED` could have chosen."""

DEPTHS = (5, 10, 50)
"""So many hits count for a recall."""

BUDGETS = (1_000, 2_000, 4_096)
"""So many tokens may a context have."""

CORPORA = ("locomo", "beam", "beam-500k", "realtalk")
"""The sections with conversations."""

UNMARKED = "replaced sentences without a mark"
UNMARKED_HITS = "replaced hits without a mark"


_WHOLE = 1_000
"""From here on, more digits mean nothing."""


class Figure(NamedTuple):
    """One measured value.

    Attributes:
        section: The part of the run.
        name: What was measured.
        engine: One of `ENGINES`.
        value: The value.
        unit: Its unit; empty for a share.
    """

    section: str
    name: str
    engine: str
    value: float
    unit: str = ""


class Bar(NamedTuple):
    """A figure that must reach a bound, and may have a second bound as an aim."""

    section: str
    name: str
    engine: str
    bound: Bound
    aim: Bound | None = None

    def is_of(self, figure: Figure) -> bool:
        return figure[:3] == self[:3]

    def keeps(self, figure: Figure) -> bool:
        """Return whether a figure of this bar reaches the bound."""
        return self.bound.keeps(figure.value)

    def __str__(self) -> str:
        return (
            f"{self.section}: {self.name} of {self.engine}, {self.bound.side} {self.bound.number:g}"
        )


class Comparison(NamedTuple):
    """A figure that must be at least another one of the same run.

    Attributes:
        section: The part of the run.
        name: What was measured.
        engine: Of which engine.
        other: What it is compared with; often the same.
        others: Of which engines; the best of those that were measured counts.
        slack: So much less is allowed.
    """

    section: str
    name: str
    engine: str
    other: str
    others: tuple[str, ...]
    slack: float = 0.0

    def is_missed(self, figures: Sequence[Figure]) -> bool:
        """Return whether both were measured, and the figure is too low."""
        own = [figure.value for figure in figures if figure[:3] == self[:3]]
        return any(value < least for value in own for least in self._least(figures))

    def _least(self, figures: Sequence[Figure]) -> list[float]:
        measured = [
            figure.value
            for figure in figures
            if figure.section == self.section
            and figure.name == self.other
            and figure.engine in self.others
        ]
        return [max(measured) - self.slack] if measured else []

    def __str__(self) -> str:
        slack = f" less {self.slack:g}" if self.slack else ""
        others = " or ".join(self.others)
        return (
            f"{self.section}: {self.name} of {self.engine}, at least {self.other} of"
            f" {others}{slack}"
        )


def recall_at(depth: int) -> str:
    """Return the name of a recall."""
    return f"recall @{depth}"


def evidence_in(budget: int) -> str:
    """Return the name of the share of the evidence that a context holds."""
    return f"evidence in {budget:,} tokens"


def by_rank(budget: int) -> str:
    """Return the name of the share among the best hits that fit; a longer one is left out."""
    return f"{evidence_in(budget)}, by rank"


def leading_hits(budget: int) -> str:
    """Return the name of the share among the hits before the first that does not fit."""
    return f"{evidence_in(budget)}, leading hits"


def _recall_bars(
    section: str, engine: str, least: Sequence[float], aims: Sequence[float]
) -> Iterator[Bar]:
    for depth, number, aim in zip(DEPTHS, least, aims, strict=True):
        yield Bar(section, recall_at(depth), engine, at_least(number), at_least(aim))


def _context_bars(engine: str) -> Iterator[Bar]:
    yield Bar("gatemem", "recall of includes", engine, at_least(0.90))
    yield Bar("gatemem", "stale values", engine, at_most(0))
    yield Bar("gatemem", "leaks", engine, at_most(0))


BARS: tuple[Bar, ...] = (
    *_recall_bars("locomo", "lexical", (0.69, 0.77, 0.90), (0.74, 0.82, 0.92)),
    *_recall_bars("locomo", "vectors", (0.73, 0.81, 0.92), (0.76, 0.845, 0.945)),
    *_recall_bars("beam", "lexical", (0.42, 0.51, 0.70), (0.46, 0.55, 0.74)),
    *_recall_bars("beam", "vectors", (0.44, 0.53, 0.76), (0.50, 0.58, 0.80)),
    *_recall_bars("beam-500k", "lexical", (0.41, 0.52, 0.70), (0.418, 0.526, 0.709)),
    *_recall_bars("beam-500k", "vectors", (0.42, 0.53, 0.71), (0.429, 0.531, 0.718)),
    *_recall_bars("realtalk", "lexical", (0.46, 0.53, 0.70), (0.46, 0.547, 0.702)),
    *_recall_bars("realtalk", "vectors", (0.48, 0.57, 0.74), (0.48, 0.57, 0.74)),
    *_context_bars(STARTED),
    *_context_bars("lexical"),
    *_context_bars("vectors"),
    Bar("precision", "cases passed of 76", "lexical", at_least(72)),
    Bar("latency", "one user, p50", "lexical", at_most(20)),
    Bar("latency", "one user, p50", "vectors", at_most(40)),
    Bar("latency", "50 users, p50", "lexical", at_most(8)),
    Bar("latency", "50 users, p50", "vectors", at_most(12)),
    Bar("latency", "indexing", "lexical", at_least(20_000)),
    *(
        # The time must not grow with the other users; half of it is left to chance.
        Bar("latency", "a user among others, to alone", engine, at_most(1.5))
        for engine in ("lexical", "vectors")
    ),
    *(
        Bar(section, name, STARTED, at_most(0))
        for section in CORPORA
        for name in (UNMARKED, UNMARKED_HITS)
    ),
    *(
        Bar(section, f"stated updates: {UNMARKED}", STARTED, at_most(0))
        for section in ("beam", "beam-500k")
    ),
    Bar("statements", f"stories: {UNMARKED}", STARTED, at_most(0)),
)


def _comparisons(section: str) -> Iterator[Comparison]:
    for depth in DEPTHS:
        name = recall_at(depth)
        yield Comparison(section, name, STARTED, name, WITHOUT_VECTORS, slack=0.01)
    for engine in (STARTED, *WITHOUT_VECTORS, "vectors"):
        for budget in BUDGETS:
            name = evidence_in(budget)
            yield Comparison(section, name, engine, leading_hits(budget), (engine,))
            yield Comparison(section, name, engine, by_rank(budget), (engine,), slack=0.005)


COMPARISONS = tuple(one for section in CORPORA for one in _comparisons(section))


def worse(
    figures: Sequence[Figure], comparisons: Sequence[Comparison] = COMPARISONS
) -> list[Comparison]:
    """Return the comparisons that the figures of a run miss."""
    return [one for one in comparisons if one.is_missed(figures)]


def missed(figures: Sequence[Figure], bars: Sequence[Bar] = BARS) -> list[Bar]:
    """Return the bars of measured sections and engines that no figure reaches."""
    parts = {(figure.section, figure.engine) for figure in figures}
    return [
        bar
        for bar in bars
        if (bar.section, bar.engine) in parts
        and not any(bar.is_of(figure) and bar.keeps(figure) for figure in figures)
    ]


def table(figures: Sequence[Figure], bars: Sequence[Bar] = BARS) -> Iterator[str]:
    """Yield the lines of a table: a line for each thing measured, a column for each engine."""
    values: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        values.setdefault((figure.section, figure.name), {})[figure.engine] = figure
    yield f"{'':62}" + "".join(f"{engine:>12}" for engine in ENGINES) + "  bars"
    for (section, name), by_engine in values.items():
        cells = "".join(f"{_shown(by_engine.get(engine)):>12}" for engine in ENGINES)
        yield f"{section + ': ' + name:62}{cells}  {_results(by_engine, bars)}".rstrip()


def document(figures: Sequence[Figure], bars: Sequence[Bar] = BARS) -> list[dict[str, Any]]:
    """Return all figures as JSON, each with its bar."""
    return [
        {**figure._asdict(), **_bar_document(figure, bar)}
        for figure in figures
        for bar in [next((bar for bar in bars if bar.is_of(figure)), None)]
    ]


def _bar_document(figure: Figure, bar: Bar | None) -> dict[str, Any]:
    if bar is None:
        return {"bar": None, "aim": None, "kept": None}
    return {"bar": _words(bar.bound), "aim": _words(bar.aim), "kept": bar.keeps(figure)}


def _words(bound: Bound | None) -> str | None:
    return bound and f"{bound.side} {bound.number:g}"


def _results(by_engine: Mapping[str, Figure], bars: Sequence[Bar]) -> str:
    return ", ".join(
        f"{figure.engine} {_words(bar.bound)}: {'kept' if bar.keeps(figure) else 'MISSED'}"
        for figure in by_engine.values()
        for bar in bars
        if bar.is_of(figure)
    )


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    value = figure.value
    if value >= _WHOLE or value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}" if figure.unit else f"{value:.3f}"
    return f"{text} {figure.unit}".strip()
