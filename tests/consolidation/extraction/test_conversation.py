"""The extractor `conversation`: what people say, and what states nothing."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.model.episode import microseconds
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Turn
from slumberd.rules.vocabulary_loader import shipped_vocabulary

pytestmark = pytest.mark.unit

AT = 1_790_000_000_000_000  # 21 September 2026
SENTENCES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "conversation_sentences.yaml").read_text(encoding="utf-8")
)
FRAGMENTS = [
    "I ", "I'm ", "my ", "we ", "she ", "live in ", "Kraków", "a nurse", "not ", "used to ", "and ",
    "my wife Ana ", "my dog Rex ", "died", ", ", ". ", "? ", "! ", "\n", '"', "'", "`", "> ", ": ",
    "love ", "tea", "don't ", "anymore", "moved to ", "from ", "is called ", "Sorry, I meant ",
    "scratch that", "my favourite food is ", "on 3 May", "planning a trip to ", "if ", "😀",
    "\ud800",
    "allergic to ", "two kids ", "no longer ", "the trip got cancelled", "who ", "Sam ", "have ",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=14).map("".join)


def find(
    says: str, *, before: str = "", own_last: str = "", is_person: bool = True
) -> list[Extracted]:
    """Return what a turn of ada states."""
    own = Turn("e1", "s", "user", own_last, AT - 2, "ada", "bot", True) if own_last else None
    turn = Turn("e2", "s", "user", says, AT, "ada", "bot", is_person, own_last=own)
    other = Turn("e0", "s", "assistant", before, AT - 1, "ada", "bot") if before else None
    [found] = ConversationExtractor(shipped_vocabulary(), {"user": "ada"}).extract([turn], [other])
    return found


def _line(one: Extracted) -> str:
    who = "" if one.subject == "ada" else one.subject.replace("ada", "{user}", 1) + " | "
    back = " ".join(one.replaces or one.object_words) or "*"
    return f"{who}{one.predicate}: {one.object if one.intent == 'add' else back}"


@pytest.mark.parametrize("group", SENTENCES)
def test_sentences_of_a_group_state_what_the_table_says(group: str) -> None:
    wrong = {}
    for case in SENTENCES[group]:
        context = {key: case[key] for key in ("before", "own_last") if key in case}
        found = find(case["says"], **context)
        stated = [_line(one) for one in found if one.intent == "add"]
        # A statement also takes back the same object of its opposite: those have an object.
        taken = [_line(one) for one in found if one.intent == "delete" and one.object is None]
        expected = (case.get("states", []), case.get("takes_back", []))
        if (stated, taken) != expected:
            wrong[case["says"]] = (stated, taken)

    assert wrong == {}


def test_statement_takes_back_the_same_object_of_its_opposite() -> None:
    found = find("I hate tea")

    assert [(one.intent, one.predicate, one.object) for one in found] == [
        ("add", "dislikes", "tea"), ("delete", "likes", "tea"),
    ]  # fmt: skip


def test_confidence_tells_a_statement_from_what_a_possessive_implies() -> None:
    found = find("My wife lives in Rome.")

    assert {one.predicate: one.confidence for one in found} == {
        "marital_status": 0.8, "lives_in": 0.9,
    }  # fmt: skip


def test_retraction_of_somebody_else_does_not_count() -> None:
    assert find("I don't live in Rome.", is_person=False) == []


def test_retraction_counts_when_the_rule_says_that_the_speaker_is_the_person() -> None:
    turn = Turn("e1", "s", "guest", "I don't live in Rome.", AT, "ada", "bot")
    extractor = ConversationExtractor(shipped_vocabulary(), {"guest": "{user}"})

    [[found]] = extractor.extract([turn], [None])

    assert (found.intent, found.subject, found.object_words) == ("delete", "ada", ("Rome",))


def test_speaker_whom_nobody_knows_states_nothing() -> None:
    turn = Turn("e1", "s", "", "I live in Rome.", AT)

    assert ConversationExtractor(shipped_vocabulary()).extract([turn], [None]) == [[]]


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_raises_and_spans_lie_in_the_text(says: str, before: str, own_last: str) -> None:
    found = find(says, before=before, own_last=own_last)

    assert len(found) <= MAX_EXTRACTED
    for one in found:
        start, end = one.span
        assert 0 <= start < end <= len(says)
        assert one.by.startswith("conversation/")
        assert 0 < one.confidence < 1.0


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_plan_is_read_at_the_ends_of_the_calendar(at: str) -> None:
    moment = microseconds(datetime.fromisoformat(at))
    for says in ("to Rome in January", "to Rome on 14 March", "to Rome tomorrow", "next week"):
        turn = Turn("e1", "s", "user", f"I'm flying {says}.", moment, "ada", "bot", True)

        [found] = ConversationExtractor(shipped_vocabulary()).extract([turn], [None])

        assert all(one.predicate == "plans" for one in found)


@given(st.sampled_from([case for group in SENTENCES.values() for case in group]))
def test_question_states_nothing(case: dict[str, Any]) -> None:
    says = case["says"].rstrip(".!?").replace("\n", " ").replace(".", ",").replace("!", ",")

    assert find(f"Is it true that {says}?") == []


@given(st.lists(TEXTS, max_size=5))
def test_triples_of_a_turn_do_not_depend_on_the_others(texts: list[str]) -> None:
    turns = [Turn(f"e{n}", "s", "user", text, AT, "ada") for n, text in enumerate(texts)]
    extractor = ConversationExtractor(shipped_vocabulary())

    together = extractor.extract(turns, [None] * len(turns))

    assert together == [extractor.extract([turn], [None])[0] for turn in turns]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    ["I moved to a ", "my dog ", '"', "'a", "`", "my my ", "mail ", "so so ", "Ab Ab ", "I... ",
     "and I ", "my favourite a a ", "I have a son named Leo and ", "Sorry, ", "I study at A A ",
     "I'm Ada, a nurse, ", "I have two kids, Tom, ", "I study a a a ", "in my free time, ",
     "I live in a a a flat ", "I am a a student "],
)  # fmt: skip
def test_hostile_text_takes_linear_time(part: str) -> None:
    def seconds(length: int) -> float:
        text = (part * length)[:length]
        begun = time.thread_time()
        find(text, before=text, own_last=text)
        return time.thread_time() - begun

    seconds(100)
    short, long = min(seconds(2_000) for _ in range(3)), seconds(16_000)

    assert long < max(0.2, 40 * short), (short, long)


def homes_in(text: str) -> list[tuple[str, object]]:
    turn = Turn("e1", "s", "user", text, 0, user="ada", is_person=True)
    [found] = ConversationExtractor(shipped_vocabulary(), {}).extract([turn], [None])
    return [(one.subject, one.object) for one in found if one.predicate == "lives_in"]


@pytest.mark.parametrize("who", ["My friend", "My friends", "Dude", "Man", "Guys", "Everyone"])
def test_who_moves_is_the_subject_unless_a_comma_addresses_them(who: str) -> None:
    assert ("ada", "Rome") not in homes_in(f"{who} moved to Rome.")
    assert homes_in(f"{who}, I moved to Rome.") == [("ada", "Rome")]
