"""The facts that a request shows, and what waiting turns assert."""

from __future__ import annotations

from slumberd.model.extraction import (
    Extracted,
    ModelSettings,
    Question,
    ShownFact,
    Stated,
    Turn,
)
from slumberd.operations.writes.model_worker import (
    MOST_FACTS,
    MOST_OWNERS,
    MOST_STATED,
    PendingFacts,
    known_facts,
)

SETTINGS = ModelSettings("tiny", ("likes", "favourite_*"))
TURN = Turn("e9", "s", "user", "Zoe and I agree", 100, "ann", "helper", is_person=True)
ASKED = [Question("k", TURN, None)]


def fact(name: str, at: int = 1, subject: str = "ann", predicate: str = "likes") -> ShownFact:
    return ShownFact(name, subject, predicate, name, at, (name,))


def test_newest_facts_about_people_of_the_turn_are_shown() -> None:
    found = known_facts(
        [],
        [
            fact("e1"),
            fact("e2", 2, subject="Zoe", predicate="favourite_tea"),
            fact("e3", 3, subject="Ann"),
            fact("e4", 4, predicate="owns"),
            fact("e5", 100),
            fact("e6", 6, subject="ann's sister"),
            fact("e7", 7, subject="anna"),
        ],
        SETTINGS,
        ASKED,
    )

    assert [one.name for one in found] == ["e6", "e2", "e1"]


def test_no_more_facts_are_shown_than_the_limit() -> None:
    given = [fact(f"e{n:03}", n) for n in range(99)]

    found = known_facts([], given, SETTINGS, ASKED)

    assert [one.at for one in found] == [*range(98, 98 - MOST_FACTS, -1)]


def test_last_statements_of_the_last_owners_are_kept() -> None:
    pending = PendingFacts()

    pending.add(Stated("ann", "a", fact(f"e{n}")) for n in range(MOST_STATED + 2))
    kept = [one.name for one in pending.of("ann", "a")]
    pending.add(Stated(f"u{n}", "a", fact("e")) for n in range(MOST_OWNERS))

    assert kept == [f"e{n}" for n in range(2, MOST_STATED + 2)]
    assert pending.of("ann", "a") == []
    assert len(pending.of("u0", "a")) == 1


def test_answer_asserts_what_it_adds() -> None:
    pending = PendingFacts()
    triples = [
        Extracted("", "", None, "delete", (0, 1), replaces=("e1",)),
        Extracted("ann", "likes", "tea", "add", (0, 1)),
    ]

    pending.add_answer(TURN, triples)

    assert pending.of("ann", "helper") == [ShownFact("e9#2", "ann", "likes", "tea", 100, ("e9",))]
