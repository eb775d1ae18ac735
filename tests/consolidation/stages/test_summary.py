"""Summaries: which entries go together, what a summary says, and functions that write one."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slumberd import Turn
from slumberd.consolidation.stages.duplicates import find_duplicates
from slumberd.consolidation.stages.entries import Entry, Summary, SummaryFailure
from slumberd.consolidation.stages.marking import decide_marks
from slumberd.consolidation.stages.summary import (
    NEAR,
    estimate,
    plan_groups,
    summarise,
    summarise_by_function,
)
from slumberd.model.rule import RuleFunction
from slumberd.model.stages import KnownMarks, Summarise
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.unit

DAY = 86_400 * 1_000_000

WORDS = "Ann Bob likes hates tea milk not cats dogs the in Lyon 2 3"
sentences = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=8).map(
    lambda words: " ".join(words) + "."
)
contents = st.lists(sentences, max_size=4).map(" ".join) | st.text(max_size=20)
fractions = st.floats(0, 1)


def entries_with(contents: st.SearchStrategy[str], *, least: int = 0) -> Any:
    return st.lists(
        st.builds(
            Entry,
            st.text("abcd", max_size=4),
            st.sampled_from(["s1", "s2"]),
            contents,
            st.integers(-2 * DAY, 2 * DAY),
            fractions,
            triple=st.none(),
        ),
        min_size=least,
        max_size=30,
        unique_by=lambda entry: entry.id,
    )


some_entries = entries_with(contents, least=1)
plans: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    group_by=st.sampled_from(["session", "day", "none"]),
    when_more_than=st.integers(1, 12),
    batch=st.integers(2, 6),
)


def turns(count: int, *, session: str = "s1", start: int = 0) -> list[Entry]:
    return [
        Entry(f"{session}-{n:04}", session, f"turn {n}", start + n) for n in range(count)
    ]  # fmt: skip


def test_session_is_divided_evenly_and_its_newest_entries_stay() -> None:
    groups = plan_groups(turns(101))

    assert [len(group) for group in groups] == [16, 16, 16, 16, 17]
    assert [entry for group in groups for entry in group] == turns(81)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 50, 100])
def test_newer_entries_change_no_whole_group(most: int) -> None:
    plans = [
        plan_groups(turns(count), when_more_than=most, division="whole")
        for count in range(most, most + 60)
    ]

    assert plans[0] == []
    assert [len(plan) for plan in plans[:2]] == [
        0,
        (most + 1 - min(20, most // 2)) // len(plans[1][0]),
    ]
    assert all(later[: len(plan)] == plan for plan, later in pairwise(plans))
    assert len({len(group) for plan in plans for group in plan}) == 1


def test_summary_of_the_oldest_whole_group_changes_no_other() -> None:
    first, *others = plan_groups(turns(150), division="whole")

    assert len(first) == 20
    assert plan_groups(turns(150)[20:], division="whole") == others


def test_session_of_exactly_the_limit_stays() -> None:
    assert plan_groups(turns(100)) == []


def test_sessions_days_and_all_are_different_groups() -> None:
    entries = turns(3, session="a") + turns(3, session="b", start=DAY - 1)

    def sizes(group_by: Any) -> list[int]:
        groups = plan_groups(entries, group_by, when_more_than=1, batch=9, keep_recent=0)
        return [len(group) for group in groups]

    assert sizes("session") == [3, 3]
    assert sizes("day") == [4, 2]
    assert sizes("none") == [6]


@pytest.mark.slow
@given(entries_with(st.just("text")), plans, st.integers(0, 11) | st.none())
def test_groups_follow_their_limits_and_leave_the_newest_entries(
    entries: list[Entry], plan: dict[str, Any], keep_recent: int | None
) -> None:
    assume(keep_recent is None or keep_recent < plan["when_more_than"])

    groups = plan_groups(entries, keep_recent=keep_recent, **plan)

    def key(entry: Entry) -> object:
        return {"session": entry.session, "day": entry.at // DAY, "none": 0}[plan["group_by"]]

    recent = min(20, plan["when_more_than"] // 2) if keep_recent is None else keep_recent
    gone = [entry for group in groups for entry in group]
    assert len(gone) == len(set(gone))
    assert all(2 <= len(group) <= plan["batch"] for group in groups)
    assert all(len({key(entry) for entry in group}) == 1 for group in groups)
    counts = Counter(key(entry) for entry in entries)
    assert {key(entry) for entry in gone} == {
        name
        for name, count in counts.items()
        if count > plan["when_more_than"]
    }  # fmt: skip
    left = Counter(key(entry) for entry in entries if entry not in gone)
    for name in {key(entry) for entry in gone}:
        assert recent <= left[name] <= recent + 1
        newest = max((e.at, e.id) for e in gone if key(e) == name)
        rest = [e for e in entries if e not in gone and key(e) == name]
        assert all((entry.at, entry.id) > newest for entry in rest)


@pytest.mark.slow
@given(
    entries_with(st.just("text")),
    plans,
    st.randoms(use_true_random=False),
)
def test_plan_does_not_depend_on_the_order_and_has_nothing_left_to_do(
    entries: list[Entry], plan: dict[str, Any], chance: random.Random
) -> None:
    groups = plan_groups(entries, **plan)

    assert plan_groups(chance.sample(entries, len(entries)), **plan) == groups
    gone = {entry for group in groups for entry in group}
    assert plan_groups([entry for entry in entries if entry not in gone], **plan) == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"group_by": "week"}, "group_by"),
        ({"when_more_than": 0}, "when_more_than"),
        ({"batch": 1}, "batch"),
        ({"keep_recent": -1}, "keep_recent"),
        ({"when_more_than": 5, "keep_recent": 5}, "keep_recent"),
    ],
)
def test_plan_out_of_bounds_is_an_error(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        plan_groups([], **wrong)


def one_for_a_word(text: str) -> int:
    return len(text.split())


def two_for_each_character(text: str) -> int:
    return 2 * len(text)


@pytest.mark.slow
@settings(max_examples=amount(150, full=3_000))
@given(
    some_entries,
    st.integers(0, 40),
    st.sampled_from([estimate, one_for_a_word, two_for_each_character]),
    st.randoms(use_true_random=False),
)
def test_summary_keeps_within_its_tokens_and_says_what_the_entries_say_in_order(
    entries: list[Entry], max_tokens: int, count_tokens: Any, chance: random.Random
) -> None:
    summary = summarise(entries, max_tokens=max_tokens, count_tokens=count_tokens)

    ordered = sorted(entries, key=lambda entry: (entry.at, entry.id))
    assert summary.ids == tuple(entry.id for entry in ordered)
    assert summary.tokens == (count_tokens(summary.text) if summary.text else 0) <= max_tokens
    assert 0 <= summary.importance <= 1
    assert summary.importance == pytest.approx(
        sum(entry.importance for entry in entries) / len(entries)
    )
    rest = "\n".join(entry.content for entry in ordered)
    for line in summary.text.split("\n"):
        assert line in rest
        rest = rest[rest.index(line) + len(line) :]
    shuffled = chance.sample(entries, len(entries))
    assert summarise(shuffled, max_tokens=max_tokens, count_tokens=count_tokens) == summary


@pytest.mark.slow
@settings(max_examples=amount(150, full=3_000))
@given(some_entries)
def test_summary_has_no_two_sentences_that_are_duplicates(entries: list[Entry]) -> None:
    lines = summarise(entries, max_tokens=10_000).text.split("\n")

    assert find_duplicates(
        [Entry(str(n), "s1", line, n) for n, line in enumerate(lines)], similarity=NEAR
    ) == []  # fmt: skip


def test_summary_prefers_the_common_topic_and_the_important() -> None:
    entries = [
        Entry("e1", "s1", "Ann plans a trip to Lyon. The weather was grey.", 1),
        Entry("e2", "s1", "The trip to Lyon starts in May. A dog barked.", 2),
        Entry("e3", "s1", "Ann booked a hotel in Lyon for the trip.", 3),
        Entry("e4", "s1", "Ann is allergic to nuts.", 4, importance=1.0),
    ]

    summary = summarise(entries, max_tokens=23)

    assert summary.text.split("\n") == [
        "Ann plans a trip to Lyon.",
        "Ann booked a hotel in Lyon for the trip.",
        "Ann is allergic to nuts.",
    ]
    assert summary.importance == 0.625


def test_importance_weighs_as_much_as_the_most_common_topic() -> None:
    entries = [
        Entry("e1", "s1", "Tea is green.", 1, importance=0.0),
        Entry("e2", "s1", "Tea is hot.", 2, importance=0.0),
        Entry("e3", "s1", "Green tea is hot tea.", 3, importance=0.0),
        Entry("e4", "s1", "Rain came.", 4, importance=0.9),
    ]

    assert summarise(entries, max_tokens=8).text == "Green tea is hot tea.\nRain came."


def test_opposites_are_both_in_a_summary() -> None:
    entries = [
        Entry("e1", "s1", "Ann likes dogs but not cats.", 1),
        Entry("e2", "s1", "Ann likes cats but not dogs.", 2),
    ]

    assert summarise(entries).text == "Ann likes dogs but not cats.\nAnn likes cats but not dogs."


@pytest.mark.parametrize(
    ("max_tokens", "text"),
    [
        (0, ""),
        (1, "Wonderf"),
        (3, "Wonderful tea"),
        (4, "Wonderful tea from"),
        (9, "Wonderful tea from a small shop."),
    ],
)
def test_sentence_that_does_not_fit_is_cut_between_words(max_tokens: int, text: str) -> None:
    entries = [Entry("e1", "s1", "Wonderful tea from a small shop.", 1)]

    assert summarise(entries, max_tokens=max_tokens).text == text


def test_word_that_just_fits_stays_in_a_cut_sentence() -> None:
    entries = [Entry("e1", "s1", "Wonderful thing from a small shop.", 1)]

    assert summarise(entries, max_tokens=3).text == "Wonderful thing"


@pytest.mark.parametrize("content", ["", " \n "])
def test_summary_of_entries_without_text_has_no_text(content: str) -> None:
    summary = summarise([Entry("e1", "s1", content, 1)])

    assert (summary.ids, summary.text, summary.tokens) == (("e1",), "", 0)


def test_abbreviation_and_decimal_point_end_no_sentence() -> None:
    content = "Dr. Weiss prescribed 2.5 mg. J. Bach died."

    assert summarise([Entry("e1", "s1", content, 1)]).text.count("\n") == 1


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("a" * 7, 1), ("a" * 8, 2)])
def test_estimate_is_a_quarter_of_the_characters(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def test_summary_out_of_bounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        summarise(turns(1), max_tokens=-1)
    with pytest.raises(ValueError, match="at least one entry"):
        summarise([])
    with pytest.raises(ValueError, match="importance"):
        summarise([Entry("e1", "s1", "text", 1, math.nan)])


def test_of_two_sentences_the_important_one_is_told() -> None:
    entries = [
        Entry("e1", "s1", "A dog barked.", 1, importance=0.2),
        Entry("e2", "s1", "Ann eats nuts.", 2, importance=0.9),
    ]

    assert summarise(entries, max_tokens=3).text == "Ann eats nuts."


NAME = "python:cafe:shorten"
ENTRIES = [
    Entry("e1", "s1", "Ann drinks tea.", 1, 0.5),
    Entry("e2", "s1", "Ann drinks more tea.", 2, 1.0),
]
TURNS = [Turn(entry.id, "s1", "ann", entry.content, entry.at) for entry in ENTRIES]


def summarise_with(call: Callable[..., Any], max_tokens: int = 5) -> Summary | SummaryFailure:
    function = RuleFunction(NAME, "digest", call)
    return summarise_by_function(function, ENTRIES, TURNS, max_tokens=max_tokens)


def _raise(error: BaseException) -> Any:
    raise error


def test_function_gets_the_turns_and_the_most_tokens() -> None:
    def shorten(turns: Sequence[Turn], max_tokens: int) -> str:
        return f"{max_tokens}: {', '.join(turn.id for turn in turns)}"

    summary = summarise_with(shorten)

    assert summary == Summary(("e1", "e2"), "5: e1, e2", 2, 0.75)


@pytest.mark.parametrize("text", ["a", "a" * 23])
def test_text_may_have_as_many_tokens_as_allowed(text: str) -> None:
    assert isinstance(summarise_with(lambda *_: text), Summary)


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
    assert summarise_with(call) == SummaryFailure(("e1", "e2"), reason)


def test_interrupt_is_not_a_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        summarise_with(lambda *_: _raise(KeyboardInterrupt()))


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
