"""Patterns state what a turn says, and no text makes them fail."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.patterns import (
    MAX_MATCHES,
    MAX_TEXT,
    Aliases,
    Pattern,
    PatternSet,
    Says,
    run_pattern_tests,
)
from slumberd.consolidation.extraction.turns import previous_turns
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Turn
from slumberd.rules.pattern_loader import load_pattern_tests, load_patterns
from slumberd.search.expressions import Match, compile_expression
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

EXAMPLE = ROOT / "docs" / "examples" / "booking.yaml"
BOOKING = load_patterns(EXAMPLE)
LIKES = Says("{speaker}", "likes", "{what}")
SUNDAY = 1_779_624_000_000_000  # 2026-05-24T12:00:00Z


def pattern(
    when: str | Sequence[str] = r"\blikes? (?P<what>\w+)", says: Says = LIKES, **keys: Any
) -> Pattern:
    """Return a pattern; `when`, `when_previous` and `unless` are texts."""
    texts = [when] if isinstance(when, str) else when
    for key in ("unless", "when_previous"):
        if key in keys:
            keys[key] = compile_expression(key, keys[key], ignore_case=True)
    if "unless" in keys:
        keys["unless"] = (keys["unless"],)
    compiled = tuple(compile_expression("when", text, ignore_case=True) for text in texts)
    return Pattern("p1", compiled, says, **keys)


def found_in(
    text: str, *patterns: Pattern, previous: str | None = None, at: int = SUNDAY, **keys: Any
) -> list[Extracted]:
    """Return what the patterns find in a turn of ada, after a turn of bob."""
    turn = Turn("e2", "s", "ada", text, at)
    before = None if previous is None else Turn("e1", "s", "bob", previous, at - 1)
    [found] = PatternSet(patterns, **keys).extract([turn], [before])
    return found


def triples(text: str, *patterns: Pattern, **keys: Any) -> list[tuple[str, str, Any]]:
    found = found_in(text, *patterns, **keys)
    return [(one.subject, one.predicate, one.object) for one in found]


def test_example_passes_its_tests() -> None:
    tests = load_pattern_tests(EXAMPLE.with_suffix(".test.yaml"))

    assert run_pattern_tests(BOOKING, tests) == []
    assert len(BOOKING.patterns) <= 15


@pytest.mark.parametrize("broken", BOOKING.patterns, ids=lambda pattern: pattern.id)
def test_tests_of_the_example_fail_without_any_one_pattern(broken: Pattern) -> None:
    others = tuple(pattern for pattern in BOOKING.patterns if pattern != broken)
    tests = load_pattern_tests(EXAMPLE.with_suffix(".test.yaml"))

    assert run_pattern_tests(PatternSet(others, BOOKING.aliases), tests)


ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates, too


@pytest.mark.slow
@given(ANY_TEXT, st.none() | ANY_TEXT, ANY_TEXT)
def test_no_text_raises_and_spans_lie_in_the_text(
    text: str, previous: str | None, speaker: str
) -> None:
    everything = pattern([r"(?P<what>.+)", r"(?P<what>\w)", ""], when_previous="(?P<what>.?)")
    listed = pattern(r"\b(?P<what>.+)", unless=r"\bno\b", unless_in="clause",
                     normalise={"what": ["list", "date"]}, keep_unknown={"what"})  # fmt: skip
    gone = pattern(r"(?P<what>.*)\b", Says("a", "b", None, "{what}"), intent="delete")
    turn = Turn("e2", "s", speaker, text, 0)
    before = None if previous is None else Turn("e1", "s", "bob", previous, 0)

    patterns = (everything, pattern(r"(?P<what>\S+)"), listed, gone)
    [found] = PatternSet(patterns, opposites={"likes": ["b"]}).extract([turn], [before])

    assert len(found) <= MAX_EXTRACTED
    assert [one.span for one in found] == sorted(one.span for one in found)
    assert all(0 <= start <= end <= len(text) for start, end in (one.span for one in found))
    assert all(one.subject.encode() for one in found)
    assert all(one.object.encode() if one.object else one.object_words for one in found)


WORDS = st.sampled_from(
    ["cheap", "Thai", "not", "north", "part", "any", "price", "food", "I don't care", ".", "?", ","]
)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("ab"), TEXTS)), st.randoms())
def test_turns_of_other_sessions_and_the_division_into_calls_do_not_matter(
    said: list[tuple[str, str, str]], chance: random.Random
) -> None:
    turns = [Turn(f"{n:03}", *parts, n) for n, parts in enumerate(said)]
    together = dict(zip(turns, BOOKING.extract(turns, previous_turns(turns)), strict=True))

    for session in "xyz":
        alone = [turn for turn in turns if turn.session == session]
        chance.shuffle(alone)
        pairs = zip(alone, previous_turns(alone), strict=True)
        assert [together[turn] for turn in alone] == [
            BOOKING.extract([turn], [before])[0] for turn, before in pairs
        ]


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_a_sentence_of_its_own_adds_only_its_own_triples(first: str, second: str) -> None:
    both = triples(f"{first}\n{second}", *BOOKING.patterns)

    assert set(both) == {*triples(first, *BOOKING.patterns), *triples(second, *BOOKING.patterns)}


def test_turns_and_their_previous_turns_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        BOOKING.extract([Turn("e1", "s", "ada", "", 0)], [])


def test_triple_has_the_pattern_the_place_and_the_confidence() -> None:
    [found] = found_in("Well. I like tea!", pattern(confidence=0.5))

    assert found == Extracted("ada", "likes", "tea", "add", (8, 16), "p1", 0.5)


def test_case_has_no_effect_on_a_match() -> None:
    assert triples("I LIKE Tea", pattern()) == [("ada", "likes", "Tea")]


def test_curly_apostrophe_is_the_plain_one() -> None:
    assert triples("I don\u2019t like tea", pattern()) == []


def test_match_does_not_cross_the_end_of_a_sentence() -> None:
    assert triples("I like. Tea", pattern(r"like\W+(?P<what>\w+)")) == []


def test_each_of_several_expressions_is_enough() -> None:
    one = pattern([r"like (?P<what>\w+)", r"love (?P<what>\w+)"])

    assert triples("I love milk and I like tea", one) == [
        ("ada", "likes", "milk"), ("ada", "likes", "tea"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("negated", "intents"),
    [("veto", []), ("allow", ["add"]), ("delete", ["delete"])],
)
def test_negation_guard_does_what_the_pattern_says(negated: Any, intents: list[str]) -> None:
    found = found_in("I do not like tea.", pattern(negated=negated))

    assert [one.intent for one in found] == intents


@pytest.mark.parametrize("what", ["tea", "Krak\u00f3w"])
@pytest.mark.parametrize("after", [", thanks", " but fine", "; why", ""])
def test_negation_counts_before_the_end_of_the_groups_too(what: str, after: str) -> None:
    one = pattern(r"\blike (?P<what>\w+)(?:,|;| but\b|$)")

    assert triples(f"I do not like {what}{after}", one) == []
    assert triples(f"I do like {what}{after}", one) == [("ada", "likes", what)]
    assert triples(f"Not now, I like {what}{after}", one) == [("ada", "likes", what)]


@pytest.mark.parametrize("negated", ["veto", "allow", "delete"])
def test_negation_guard_leaves_other_clauses_alone(negated: Any) -> None:
    [found] = found_in("I am not ill, I like tea.", pattern(negated=negated))

    assert found.intent == "add"


def test_pattern_may_take_a_triple_back() -> None:
    gone = pattern(r"tired of (?P<what>\w+)", intent="delete")

    [found] = found_in("I am tired of tea", gone)

    assert (found.object, found.intent) == ("tea", "delete")


def test_unless_vetoes_its_own_sentence_only() -> None:
    one = pattern(unless=r"\bif\b")

    assert triples("I like tea if it is hot. I like milk.", one) == [("ada", "likes", "milk")]


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        pytest.param("I like tea but maybe I like milk", ["tea"], id="but"),
        pytest.param("I like tea; I maybe like milk", ["tea"], id="semicolon"),
        pytest.param("I like tea \u2013 maybe I like milk", ["tea"], id="dash"),
        pytest.param("maybe I like tea and I like milk", ["milk"], id="new subject"),
        pytest.param("maybe, I like tea", [], id="a comma alone"),
        pytest.param("I like tea, maybe", [], id="after a comma"),
        pytest.param("I like tea and milk, maybe", [], id="no new subject"),
        pytest.param("I like tea", ["tea"], id="nothing to veto"),
    ],
)
def test_unless_may_veto_its_own_clause_only(text: str, objects: list[str]) -> None:
    one = pattern(unless=r"\bmaybe\b", unless_in="clause")

    assert [found[2] for found in triples(text, one)] == objects


@pytest.mark.parametrize("what", ["tea", "Krak\u00f3w"])
def test_what_follows_the_groups_of_a_match_is_of_the_next_clause(what: str) -> None:
    one = pattern(r"\bI like (?P<what>.+?)(?:, but\b|$)", unless="maybe", unless_in="clause")

    assert triples(f"I like {what}, but maybe not now", one) == [("ada", "likes", what)]
    assert triples(f"I like {what} maybe, but not now", one) == []


def test_match_over_several_clauses_is_vetoed_in_each_of_them() -> None:
    one = pattern(r"I like (?P<what>tea) but I (?P<then>go)", unless="if", unless_in="clause")

    assert triples("I like tea but I go if I can", one) == []
    assert len(triples("I like tea but I go", one)) == 1


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        pytest.param(
            "like peanuts, shellfish and eggs", ["peanuts", "shellfish", "eggs"], id="and"
        ),
        pytest.param("like Kr\u00f3w, and Jo\u0301zef", ["Kr\u00f3w", "Jo\u0301zef"], id="accents"),
        pytest.param("like tea", ["tea"], id="one"),
        pytest.param("like tea, not milk or cream", ["tea"], id="denied"),
        pytest.param("like tea, milk, etc.", ["tea", "milk"], id="etc"),
        pytest.param("like tea and tea", ["tea"], id="repeated"),
        pytest.param("like , and ", [], id="empty"),
        pytest.param("like both tea & milk", ["tea", "milk"], id="both"),
        pytest.param("like tea but milk is bad", ["tea"], id="but"),
    ],
)
def test_list_gives_a_triple_for_each_entry(text: str, objects: list[str]) -> None:
    one = pattern("like (?P<what>.*)", normalise={"what": ["list"]}, negated="allow")

    assert [found[2] for found in triples(text, one)] == objects


def test_entries_of_a_list_are_normalised_and_replaced_one_by_one() -> None:
    one = pattern("like (?P<what>.*)", normalise={"what": ["list", "number", "case"]},
                  keep_unknown={"what"})  # fmt: skip

    found = triples("like Chai, two and MILK", one, aliases=Aliases(objects={"chai": "tea"}))

    assert [each[2] for each in found] == ["tea", 2, "milk"]


def test_lists_of_two_groups_give_each_pair() -> None:
    one = pattern("(?P<who>.*) like (?P<what>.*)", Says("{who}", "likes", "{what}"),
                  normalise={"who": ["list"], "what": ["list"]})  # fmt: skip

    assert triples("Eve and Bob like tea and milk", one) == [
        (who, "likes", what) for what in ("tea", "milk") for who in ("Eve", "Bob")
    ]


def test_pronoun_in_a_list_is_the_speaker() -> None:
    one = pattern("(?P<who>.*) likes? (?P<what>tea)", Says("{who}", "likes", "{what}"),
                  normalise={"who": ["list", "case"]})  # fmt: skip

    assert {found[0] for found in triples("Bob and I like tea", one)} == {"bob", "ada"}
    assert triples("You and I like tea", one) == [("ada", "likes", "tea")]


def test_number_of_triples_of_a_list_is_bounded() -> None:
    one = pattern("(?P<who>.*) like (?P<what>.*)", Says("{who}", "likes", "{what}"),
                  normalise={"who": ["list"], "what": ["list"]})  # fmt: skip
    many = ", ".join(map(str, range(2_000)))

    assert len(triples(f"{many} like {many}", one)) == MAX_EXTRACTED


@pytest.mark.parametrize(
    "text",
    [
        "I don't live in Paris, France",
        "I have never lived in Paris, France",
        "I do not live in Łódź; Kraków",
    ],
)
def test_a_comma_in_the_last_group_ends_no_negation(text: str) -> None:
    home = pattern("lived? in (?P<place>.+)", Says("ada", "lives_in", "{place}"))

    assert found_in(text, home) == []
    assert found_in(text.replace("don't", "often").replace("never", "").replace("not", ""), home)


def test_negation_counts_for_every_entry_of_a_list() -> None:
    says, lists = Says("ada", "likes", "{what}"), {"what": ["list"]}
    vetoed, taken_back = (
        pattern("like (?P<what>.+)", says, normalise=lists, negated=negated)
        for negated in ("veto", "delete")
    )

    assert found_in("I don't like tea, milk and eggs", vetoed) == []
    found = found_in("I don't like tea, milk and eggs", taken_back)
    assert [(one.object, one.intent) for one in found] == [
        ("tea", "delete"), ("milk", "delete"), ("eggs", "delete"),
    ]  # fmt: skip
    assert len(found_in("It is not that, I like tea, milk and eggs", vetoed)) == 3


def test_retraction_may_take_back_the_whole_key() -> None:
    [found] = found_in("I got fired", pattern("fired", Says("ada", "works_at"), intent="delete"))

    assert (found.predicate, found.object, found.object_words) == ("works_at", None, ())


def test_retraction_may_name_words_of_the_object() -> None:
    gone = pattern("^(?P<what>.*) is off", Says("ada", "plans", None, "{what}"), intent="delete")

    [found] = found_in("The trip to Krak\u00f3w is off", gone)

    assert (found.object, found.object_words) == (None, ("trip", "krak\u00f3w"))
    assert found_in("That is off", gone) == []
    assert found_in(" is off", gone) == []
    assert found_in("\u2764\ufe0f is off", gone) == []
    [found] = found_in("हिन्दी is off", gone)
    assert found.object_words == ("हिन्दी",)


def test_triple_takes_back_the_same_object_of_its_opposites() -> None:
    found = found_in(
        "I like tea and milk",
        pattern(r"like (?P<what>.*)", normalise={"what": ["list"]}),
        opposites={"likes": ["dislikes", "avoids"]},
    )

    assert [(one.predicate, one.object, one.intent) for one in found] == [
        (predicate, what, intent)
        for what in ("tea", "milk")
        for predicate, intent in (("likes", "add"), ("dislikes", "delete"), ("avoids", "delete"))
    ]


def test_retraction_takes_back_nothing_of_its_opposites() -> None:
    gone = pattern("tired of (?P<what>\\w+)", intent="delete")

    assert len(found_in("tired of tea", gone, opposites={"likes": ["dislikes"]})) == 1


def test_group_with_a_name_of_another_script_is_filled() -> None:
    one = pattern("in (?P<\u0433\u043e\u0440\u043e\u0434>\\w+)",
                  Says("ada", "lives_in", "{\u0433\u043e\u0440\u043e\u0434}"))  # fmt: skip

    assert triples("in Krak\u00f3w", one) == [("ada", "lives_in", "Krak\u00f3w")]


def test_pattern_over_two_turns_needs_the_turn_before() -> None:
    one = pattern("^yes", when_previous=r"do you like (?P<what>\w+)\?")

    assert triples("Yes!", one, previous="Well, do you like tea?") == [("ada", "likes", "tea")]
    assert triples("Yes!", one, previous="Do you hear me?") == []
    assert triples("Yes!", one) == []


def test_group_of_the_turn_counts_before_the_same_group_of_the_turn_before() -> None:
    one = pattern(r"^(?P<what>\w+) please", when_previous=r"(?P<what>tea)\?")

    assert triples("milk please", one, previous="tea?") == [("ada", "likes", "milk")]


@pytest.mark.parametrize(
    ("word", "name"),
    [("I", "ada"), ("me", "ada"), ("MY", "ada"), ("you", "bob"), ("yours", "bob"), ("Eve", "Eve")],
)
def test_pronoun_becomes_a_speaker(word: str, name: str) -> None:
    one = pattern(r"^(?P<who>\w+)$", Says("{who}", "says", "{who}"), normalise={"who": ["number"]},
                  keep_unknown=frozenset({"who"}))  # fmt: skip

    assert triples(word, one, previous="hm") == [(name, "says", name)]


def test_pronouns_of_the_turn_before_are_those_of_its_speaker() -> None:
    one = pattern(
        "^yes",
        Says("{who}", "waits for", "{whom}"),
        when_previous=r"(?P<who>\w+) wait for (?P<whom>\w+)",
    )

    assert triples("yes", one, previous="You wait for me?") == [("ada", "waits for", "bob")]


def test_pattern_over_two_turns_needs_a_turn_before_even_for_the_empty_expression() -> None:
    one = pattern("tea", Says("ada", "likes", "tea"), when_previous="")

    assert triples("tea", one, previous="") == [("ada", "likes", "tea")]
    assert triples("tea", one) == []


def test_speaker_with_a_lone_surrogate_has_a_valid_name() -> None:
    found = found_in("I like tea", pattern(), speakers={"ada": "\ud800"})

    assert found[0].subject == "\ufffd"


@pytest.mark.parametrize("text", ["you", "yours"])
def test_second_person_without_a_turn_before_states_nothing(text: str) -> None:
    assert triples(text, pattern("(?P<who>.*)", Says("{who}", "is", "here"))) == []
    assert triples("x", pattern("x", Says("{other}", "is", "here"))) == []


def test_speakers_have_the_names_of_the_file() -> None:
    found = found_in("I like tea", pattern(), speakers={"ada": "Ada L."})

    assert found[0].subject == "Ada L."


def test_group_without_text_states_nothing() -> None:
    assert triples("like", pattern(r"like ?(?P<what>\w+)?")) == []
    assert triples("like ''", pattern(r"like '(?P<what>.*)'")) == []


@pytest.mark.parametrize(
    ("keys", "text", "objects"),
    [
        ({"normalise": {"what": ["case"]}}, "like TEA", ["tea"]),
        ({"normalise": {"what": ["number"]}}, "like two", [2]),
        ({"normalise": {"what": ["number"]}}, "like tea", []),
        ({"normalise": {"what": ["number"]}, "keep_unknown": {"what"}}, "like tea", ["tea"]),
        ({"normalise": {"what": ["date"]}}, "like tomorrow", ["2026-05-25"]),
        ({"normalise": {"what": ["date"]}}, "like tea", []),
        ({"normalise": {"what": ["number", "case"]}}, "like 7", [7]),
    ],
)
def test_group_is_normalised(keys: Mapping[str, Any], text: str, objects: list[Any]) -> None:
    assert [one.object for one in found_in(text, pattern(**keys))] == objects


def test_white_space_of_a_group_is_collapsed() -> None:
    assert triples("like  green \t tea", pattern("like(?P<what>.*)"))[0][2] == "green tea"


def test_template_combines_groups_and_text() -> None:
    one = pattern(r"(?P<n>\d+) (?P<what>\w+)", Says("{speaker}'s {what}", "is", "{n} in all"),
                  normalise={"n": ["number"]})  # fmt: skip

    assert triples("07 cups", one) == [("ada's cups", "is", "7 in all")]


@pytest.mark.parametrize("value", [True, 5, 2.5, "tea"])
def test_object_may_be_a_literal(value: Any) -> None:
    [found] = found_in("like tea", pattern(says=Says("ada", "likes", value)))

    assert found.object is value


def test_aliases_replace_each_part() -> None:
    aliases = Aliases({"ada": "Ada"}, {"likes": "enjoys"}, {"green tea": "tea"})

    found = triples("like Green  Tea", pattern("like (?P<what>.*)"), aliases=aliases)

    assert found == [("Ada", "enjoys", "tea")]


def test_text_beyond_the_bound_states_nothing() -> None:
    one = pattern(r"like (?P<what>.*)")

    assert len(triples("like " + "x" * MAX_TEXT, one)) == 1
    assert triples("like " + "x" * (MAX_TEXT + 1), one) == []


class Eager:
    """An expression that matches more often than the bound, and counts how often it was asked."""

    groupindex: Mapping[str, int] = {}  # never changed

    def __init__(self) -> None:
        self.asked = 0

    def finditer(self, text: str) -> Iterator[Match]:
        match = compile_expression("any", "").search(text)
        assert match
        for _ in range(2 * MAX_MATCHES):
            self.asked += 1
            yield match

    def search(self, text: str) -> Match | None:
        raise NotImplementedError

    fullmatch = search


@pytest.mark.parametrize("text", ["word", "not this", "a. b. c. d"])
def test_number_of_matches_that_are_read_is_bounded(text: str) -> None:
    eager = Eager()

    found_in(text, Pattern("p1", (eager,), Says("a", "b", "c")))

    assert eager.asked == MAX_MATCHES


HOSTILE = {
    "no sentence end": "a",
    "only sentence ends": "!",
    "short sentences": "a. ",
    "negations": "not ",
    "matches": "cheap Thai ",
    "vetoed matches": "not cheap not Thai ",
    "words of the patterns": "any part of ",
    "white space": " ",
    "abbreviations": "Mr. ",
    "surrogates": "\ud800",
    "wide characters": "\U0001f600",
    "letters of another script": "\u0436",
    "words of another script": "\u0436 \u0436\u0301, ",
    "lists": "a, and b, ",
    "clauses": "and i - but ",
}


LISTED = pattern(r"\b(?P<what>.+)", unless=r"\bzz\b", unless_in="clause",
                 normalise={"what": ["list"]}, negated="allow")  # fmt: skip


def seconds_of(text: str) -> float:
    """Return the processor time of the fastest of some extractions."""
    times = []
    for _ in range(3):
        begun = process_time()
        found_in(text, *BOOKING.patterns, pattern(r"(?P<what>(a*)*b|.)"), LISTED, previous=text)
        times.append(process_time() - begun)
    return min(times)


@pytest.mark.cases(3)
@pytest.mark.slow
@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE)
def test_a_million_characters_of_hostile_text_do_not_raise(part: str) -> None:
    text = part * (1_000_000 // len(part))

    assert len(found_in(text, *BOOKING.patterns, previous=text)) <= MAX_EXTRACTED


@pytest.mark.cases(5)
@pytest.mark.slow
@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE)
def test_time_grows_no_faster_than_the_text(part: str) -> None:
    short, long = (part * (size // len(part)) for size in (100_000, 800_000))

    assert seconds_of(long) < 8 * 2.5 * max(seconds_of(short), 0.002)
