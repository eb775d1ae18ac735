"""A function of the operator summarises entries, or fails for one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from slumberd import Turn
from slumberd.hygiene.entries import Entry, Summary, SummaryFailure
from slumberd.hygiene.marking import decide_marks
from slumberd.hygiene.summary import summarise_by_function
from slumberd.model.functions import RuleFunction
from slumberd.model.stages import KnownMarks, Summarise

pytestmark = pytest.mark.unit

NAME = "python:cafe:shorten"
ENTRIES = [
    Entry("e1", "s1", "Ann drinks tea.", 1, 0.5),
    Entry("e2", "s1", "Ann drinks more tea.", 2, 1.0),
]
TURNS = [Turn(entry.id, "s1", "ann", entry.content, entry.at) for entry in ENTRIES]


def summarise(call: Callable[..., Any], max_tokens: int = 5) -> Summary | SummaryFailure:
    function = RuleFunction(NAME, "digest", call)
    return summarise_by_function(function, ENTRIES, TURNS, max_tokens=max_tokens)


def _raise(error: BaseException) -> Any:
    raise error


def test_function_gets_the_turns_and_the_most_tokens() -> None:
    def shorten(turns: Sequence[Turn], max_tokens: int) -> str:
        return f"{max_tokens}: {', '.join(turn.id for turn in turns)}"

    summary = summarise(shorten)

    assert summary == Summary(("e1", "e2"), "5: e1, e2", 2, 0.75)


@pytest.mark.parametrize("text", ["a", "a" * 23])
def test_text_may_have_as_many_tokens_as_allowed(text: str) -> None:
    assert isinstance(summarise(lambda *_: text), Summary)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        pytest.param(
            lambda turns, _: _raise(ValueError(turns[0].content)),
            "raised ValueError",
            id="exception",
        ),
        pytest.param(lambda *_: _raise(SystemExit(2)), "raised SystemExit", id="exit"),
        pytest.param(
            lambda *_: None, "returned a value of type NoneType, not text", id="no result"
        ),
        pytest.param(lambda *_: b"tea", "returned a value of type bytes, not text", id="bytes"),
        pytest.param(lambda *_: " \n", "returned an empty text", id="blank"),
        pytest.param(
            lambda *_: "\ud800", "returned a text that is not valid Unicode", id="surrogate"
        ),
        pytest.param(
            lambda *_: "a" * 24, "returned 6 tokens; max_tokens is 5", id="one token too many"
        ),
    ],
)
def test_failure_names_the_entries_and_the_problem_without_their_content(
    call: Any, reason: str
) -> None:
    assert summarise(call) == SummaryFailure(("e1", "e2"), reason)


def test_interrupt_is_not_a_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        summarise(lambda *_: _raise(KeyboardInterrupt()))


def test_group_that_cannot_be_summarised_has_no_marks_and_others_have() -> None:
    entries = [Entry(f"{s}{n}", s, "Ann drinks tea.", n) for s in "ab" for n in range(5)]

    def summariser(group: Sequence[Entry], max_tokens: int) -> Summary | SummaryFailure:
        ids = tuple(entry.id for entry in group)
        if group[0].session == "a":
            return SummaryFailure(ids, "no words")
        return Summary(ids, "short", max_tokens, 0.5)

    changes = decide_marks(
        entries,
        [Summarise(when_more_than=4)],
        KnownMarks(),
        datetime(1970, 1, 2, tzinfo=UTC),
        summariser=summariser,
    )

    assert changes.unsummarised == (SummaryFailure(("a0", "a1", "a2"), "no words"),)
    assert [mark.id for mark in changes.marks] == ["b0", "b1", "b2"]
    assert [*changes.summaries] == ["@summaries/b0"]
