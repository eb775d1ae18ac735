"""The clauses of parsed sentences, and what the extractor `conversation` reads in them.

The parses are recorded, so these tests need no parser. `test_english_parser.py` asks the real one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.consolidation.extraction.english_parser import (
    Parsed,
    Word,
    is_asserted,
    parsed_clauses,
)
from slumberd.model.extraction import Turn
from slumberd.rules.vocabulary_loader import shipped_vocabulary
from tests.consolidation.extraction.parses import (
    RecordedParser,
    clauses_of,
    parse_of,
    recorded,
    written,
)

pytestmark = pytest.mark.unit

CASES = recorded()


@st.composite
def _trees(draw: st.DrawFn) -> Parsed:
    """Return words with any heads: a parser promises a tree, and the code relies on nothing."""
    count = draw(st.integers(1, 12))
    tags = st.sampled_from(["VB", "VBD", "VBG", "NN", "NNP", "PRP", "IN", "WP", "MD", "CC"])
    roles = st.sampled_from(
        [
            "ROOT",
            "nsubj",
            "conj",
            "relcl",
            "xcomp",
            "ccomp",
            "advcl",
            "aux",
            "neg",
            "mark",
            "prep",
            "pobj",
            "cc",
            "punct",
            "pcomp",
        ]
    )
    return tuple(
        Word(
            draw(st.sampled_from(["I", "my", "move", "moving", "who", "where", "if", "and", "to"])),
            draw(tags), draw(roles), draw(st.integers(0, place)), before=True,
        )
        for place in range(count)
    )  # fmt: skip


def _find(says: str, *, parser: RecordedParser | None = None) -> list[str]:
    turn = Turn("e2", "s", "user", says, 1_790_000_000_000_000, "ada", "bot", True)
    [found] = ConversationExtractor(shipped_vocabulary(), {}, parser).extract([turn], [None])
    return [
        f"{one.subject} | {one.predicate}: {one.object}" for one in found if one.intent == "add"
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["says"])
def test_clauses_of_a_sentence_are_those_of_the_table(case: dict[str, Any]) -> None:
    assert clauses_of(parse_of(case["parse"])) == case["clauses"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["says"])
def test_recorded_parse_reads_as_it_was_written(case: dict[str, Any]) -> None:
    assert written(parse_of(case["parse"])).split() == case["parse"].split()


@pytest.mark.parametrize(
    ("says", "further"),
    [
        (
            "In tennis I like Rafael Nadal and in football I support Juventus",
            ["ada | likes: Rafael Nadal", "ada | supports: Juventus"],
        ),
        ("The company I work for is called Siemens", ["ada | works_at: Siemens"]),
        ("Since moving to Ghent I eat no meat", ["ada | lives_in: Ghent"]),
        ("After moving to Rome I sold my car", ["ada | lives_in: Rome"]),
        ("I ended up buying a Tesla", ["ada | owns: Tesla"]),
        ("They look delicious I really like fries", ["ada | likes: fries"]),
        ("My sister Ana, who lives in Rome, is a doctor", ["ada's sister | job: doctor"]),
        ("My sister's boyfriend works at Google", []),
        ("Porto, where I live, is lovely", ["ada | lives_in: Porto"]),
    ],
)
def test_parser_finds_what_the_expressions_miss(says: str, further: list[str]) -> None:
    without, found = _find(says), _find(says, parser=RecordedParser())

    assert [one for one in found if one not in without] == further
    assert [one for one in without if one not in found] == []


@pytest.mark.parametrize(
    "says",
    [
        "My boss figured I live in Porto",
        "I could quit my job and move to Rome",
        "It is great here unless I work at Acme",
        "I met her working at Google",
        "I want to make sure our company is compliant",
        "I miss living in Rome",
        "It is possible that I live in Rome",
        "I plan on moving to Rome after graduating from Oxford",
    ],
)
def test_parser_states_nothing_of_what_is_supposed(says: str) -> None:
    assert _find(says, parser=RecordedParser()) == []


def test_what_the_expressions_state_is_dropped_when_the_parser_calls_it_supposed() -> None:
    words = parse_of(next(one["parse"] for one in CASES if one["says"].startswith("My boss")))

    assert not is_asserted(words, "Porto")
    assert is_asserted(words, "boss")
    assert is_asserted(words, "nowhere in the sentence")


def test_turn_without_anybody_near_is_not_parsed() -> None:
    asked: list[str] = []

    class Parser(RecordedParser):
        def parse(self, sentences: Any) -> list[Parsed]:
            asked.extend(sentences)
            return []

    assert _find("The weather is fine. Rome is a city.", parser=Parser()) == []
    assert asked == []


@given(_trees())
def test_any_tree_of_words_is_read(words: Parsed) -> None:
    for clause in parsed_clauses(words):
        assert clause.text.strip() == clause.text != ""
