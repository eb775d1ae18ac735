"""The shipped patterns find what real guests of restaurants say, and little else.

A turn counts once, however many episodes it became. The turns of the desk are not in the set. The
patterns were written with the even dialogues in view; nobody read the odd ones for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import pytest

from slumberd.consolidation.extraction.turns import previous_turns
from slumberd.model.extraction import Turn
from slumberd.rules.pattern_loader import load_patterns
from tests.support.corpora import lines, needs_corpora
from tests.support.repository import ROOT

pytestmark = [pytest.mark.acceptance, needs_corpora, pytest.mark.slow]

BOOKING = ROOT / "docs" / "examples" / "booking.yaml"

Triple = tuple[str, str, Any]


class Annotated(NamedTuple):
    """A turn with its annotation."""

    turn: Turn
    triples: set[Triple]

    @property
    def is_held_out(self) -> bool:
        return int(self.turn.session.rpartition("/")[2]) % 2 == 1


class Counts(NamedTuple):
    """How many triples were right, found and annotated."""

    right: int
    found: int
    annotated: int

    @property
    def precision(self) -> float:
        return self.right / self.found

    @property
    def recall(self) -> float:
        return self.right / self.annotated

    @property
    def f(self) -> float:
        return 2 * self.right / (self.found + self.annotated)

    def __str__(self) -> str:
        return (
            f"{self.right}/{self.found}/{self.annotated} right/found/annotated: "
            f"P {self.precision:.3f} R {self.recall:.3f} F {self.f:.3f}"
        )


def annotated_turns() -> list[Annotated]:
    """Return each turn once, without the metadata of its episodes."""
    turns: dict[str, Annotated] = {}
    for row in lines("woz2", "episodes"):
        id = row["id"].rsplit(":", 2)[0]
        turn = Turn(id, row["session"], row["source_node"], row["content"], len(turns))
        triples = turns.setdefault(id, Annotated(turn, set())).triples
        said = row["metadata"]
        if said.get("intent") != "noop":
            triples.add((said["subject"], said["predicate"], said["object"]))
    return list(turns.values())


def found_in(turns: list[Turn]) -> Iterator[set[Triple]]:
    """Yield the triples that the shipped patterns find in each turn."""
    for found in load_patterns(BOOKING).extract(turns, previous_turns(turns)):
        yield {(one.subject, one.predicate, one.object) for one in found if one.intent == "add"}


def count(annotated: list[Annotated]) -> Counts:
    pairs = list(zip(annotated, found_in([one.turn for one in annotated]), strict=True))
    return Counts(
        sum(len(one.triples & found) for one, found in pairs),
        sum(len(found) for _, found in pairs),
        sum(len(one.triples) for one, _ in pairs),
    )


@pytest.mark.parametrize("held_out", [False, True], ids=["even dialogues", "odd dialogues"])
def test_patterns_for_bookings_find_what_guests_of_a_half_say(held_out: bool) -> None:
    counts = count([one for one in annotated_turns() if one.is_held_out == held_out])

    print(f"\n{'held-out' if held_out else 'development'} half: {counts}")
    assert counts.precision >= 0.93
    assert counts.f >= 0.90


def test_patterns_for_bookings_find_what_guests_say() -> None:
    annotated = annotated_turns()

    counts = count(annotated)

    print(f"\n{len(annotated)} turns: {counts}")
    assert counts.annotated == 553
    assert counts.precision >= 0.93
    assert counts.f >= 0.90


@pytest.mark.timing
def test_patterns_for_bookings_read_hundreds_of_turns_a_second() -> None:
    patterns = load_patterns(BOOKING)
    turns = [one.turn for one in annotated_turns()]
    before = previous_turns(turns)
    patterns.extract(turns, before)  # the engine builds its tables when it first needs them

    begun = perf_counter()
    patterns.extract(turns, before)
    rate = len(turns) / (perf_counter() - begun)

    print(f"\n{rate:,.0f} turns a second")
    assert rate > 200
