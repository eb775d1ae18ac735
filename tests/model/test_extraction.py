"""Each turn meets the turn before it of another speaker; the keys of answers to questions stay."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.turns import arrange, previous_turns
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Turn, answer_key, summary_key

pytestmark = pytest.mark.unit

TURNS = st.lists(
    st.builds(
        Turn,
        id=st.sampled_from("abcdefgh"),
        session=st.sampled_from(["s1", "s2"]),
        speaker=st.sampled_from(["ada", "bob", "cy"]),
        content=st.just(""),
        at=st.integers(0, 5),
    ),
    max_size=10,
    unique_by=lambda turn: turn.id,
)


def previous_by_search(turn: Turn, turns: Sequence[Turn]) -> Turn | None:
    """Return what `previous_turns` must find, from its definition."""
    earlier = [
        other
        for other in turns
        if other.session == turn.session
        and other.speaker != turn.speaker
        and (other.at, other.id) < (turn.at, turn.id)
    ]
    return max(earlier, key=lambda other: (other.at, other.id), default=None)


def extracted(span: tuple[int, int] = (0, 1), object: Any = "tea", **parts: Any) -> Extracted:
    return Extracted(**{
        "subject": "ada", "predicate": "likes", "object": object, "intent": "add", "span": span,
        "by": "taste", **parts,
    })  # fmt: skip


@pytest.mark.slow
@given(TURNS)
def test_previous_turn_is_the_last_earlier_one_of_another_speaker_in_the_session(
    turns: list[Turn],
) -> None:
    assert previous_turns(turns) == [previous_by_search(turn, turns) for turn in turns]


@pytest.mark.slow
@given(TURNS, st.randoms())
def test_order_of_the_turns_does_not_matter(turns: list[Turn], chance: random.Random) -> None:
    shuffled = turns.copy()
    chance.shuffle(shuffled)

    previous = dict(zip(shuffled, previous_turns(shuffled), strict=True))

    assert [previous[turn] for turn in turns] == previous_turns(turns)


def test_triples_are_in_the_order_of_the_text() -> None:
    last, first = extracted((9, 12), "tea"), extracted((0, 5), "milk")

    assert arrange([last, first]) == [first, last]


@pytest.mark.parametrize(
    ("again", "count"),
    [
        pytest.param(extracted((5, 6), by="other"), 1, id="equal"),
        pytest.param(extracted((5, 6), intent="delete"), 2, id="other intent"),
        pytest.param(extracted((5, 6), subject="bob"), 2, id="other subject"),
        pytest.param(extracted((5, 6), predicate="hates"), 2, id="other predicate"),
        pytest.param(extracted((5, 6), object=True), 2, id="other object"),
    ],
)
def test_equal_triple_is_kept_once_where_it_is_first(again: Extracted, count: int) -> None:
    first = extracted((0, 3))

    arranged = arrange([again, first])

    assert arranged[0] == first
    assert len(arranged) == count


def test_equal_looking_objects_of_different_types_are_different() -> None:
    assert len(arrange([extracted(object=one) for one in (1, True, "1", "true")])) == 4


def test_triples_beyond_the_bound_are_left_out() -> None:
    many = [extracted((n, n + 1), n) for n in range(MAX_EXTRACTED + 5)]

    assert arrange(reversed(many)) == many[:MAX_EXTRACTED]


TURN = Turn("e2", "s1", "user", "I live in Rome", 7, "ada", "desk", True, "chat")


def test_key_depends_on_what_a_model_reads_and_not_on_the_own_last_turn() -> None:
    with_last = TURN._replace(own_last=TURN._replace(id="e1", content="Hi"))

    keys = {answer_key("digest", turn, None) for turn in (TURN, with_last)}

    assert keys == {"6bd579b8f05c5310f9689d3c961d5645e953dd2f4b0999551538cefcab0ed5d2"}
    assert summary_key("digest", [TURN], 9) == summary_key("digest", [with_last], 9)
    assert answer_key("digest", TURN._replace(content="Hm"), None) not in keys
