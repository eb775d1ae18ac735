"""The indexes of a scope's episodes and facts: what is newest or short, and what finds facts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import EpisodeVersion, are_near
from slumberd.model.fact import Fact
from slumberd.model.feed import NumberedFact, NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.rules.vocabulary_loader import shipped_vocabulary
from slumberd.search.episode_index import EpisodeIndex
from slumberd.search.fact_index import FactIndex
from slumberd.search.names import Names
from slumberd.search.question_words import words_of_questions
from slumberd.search.searcher import RELEVANT
from slumberd.search.terms import Analyser
from tests.support.builders import START

ALICE = ScopeFilter.of("alice", None, None)


def index() -> EpisodeIndex:
    return EpisodeIndex(ALICE, language=None, vectors=False)


def version(
    id: str, at: int = 1, *, row: int = 1, session: str = "s", content: str = "tea"
) -> NumberedVersion:
    one = EpisodeVersion(row, id, "alice", session, "rag", at, content, "chat", {})
    return NumberedVersion(row, one)


@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 20),
            st.none() | st.tuples(st.integers(1, 5), st.sampled_from("st")),
            max_size=20,
        ),
        max_size=5,
    ),
    st.frozensets(st.integers(1, 20).map("e{}".format), max_size=5),
)
def test_newest_episodes_are_those_of_all_rows_in_the_order_of_time(
    steps: list[dict[int, tuple[int, str] | None]], hidden: frozenset[str]
) -> None:
    episodes, rows = index(), dict[int, tuple[int, str]]()
    episodes.hide(hidden)
    for changes in steps:
        rows = {row: said for row, said in {**rows, **changes}.items() if said is not None}
        found = [
            version(f"e{row}", said[0], row=row, session=said[1])
            for row, said in changes.items()
            if said is not None
        ]
        episodes.replace(changes, found)

    for session in (None, "s"):
        expected = sorted(
            (
                (at, f"e{row}")
                for row, (at, own) in rows.items()
                if session in (None, own) and f"e{row}" not in hidden
            ),
            reverse=True,
        )
        newest = [(one.at, one.id) for one in episodes.newest(session, 10)]
        assert newest == expected[:10]


def test_episode_in_another_row_has_its_new_place_in_time() -> None:
    episodes = index()
    episodes.replace([1, 2], [version("a", 1), version("b", 2, row=2)])

    episodes.replace([3], [version("a", 3, row=3)])

    assert [(one.id, one.at) for one in episodes.newest(None, 10)] == [("a", 3), ("b", 2)]


def test_edited_episode_is_short_by_its_new_text() -> None:
    episodes = index()
    episodes.replace([1], [version("a", content="tea " * 41)])
    before = episodes.is_short("a")

    episodes.replace([1], [version("a", content="tea " * 40)])

    assert (before, episodes.is_short("a")) == (False, True)


def test_newest_of_many_episodes_that_came_at_once_are_in_the_order_of_time() -> None:
    episodes = index()

    episodes.replace(
        range(100), [version(f"e{at}", at, row=at) for at in sorted(range(100), key=str)]
    )

    assert [one.at for one in episodes.newest(None, 3)] == [99, 98, 97]


def facts_of(*triples: tuple[Any, Any, Any]) -> list[Fact]:
    """Return facts with the ids f0, f1 and so on."""
    return [
        Fact(
            id=f"f{place}",
            user="alice",
            agent="rag",
            payload=dict(zip(("subject", "predicate", "object"), triple, strict=True)),
            lineage=[],
            confidence=0.9,
            pinned_at=START,
        )
        for place, triple in enumerate(triples)
    ]


def index_of(*triples: tuple[Any, Any, Any]) -> FactIndex:
    index = FactIndex(ALICE, language="auto", vectors=False)
    index.replace((), numbered(*triples))
    return index


def numbered(*triples: tuple[Any, Any, Any]) -> list[NumberedFact]:
    return [NumberedFact(fact.id, fact) for fact in facts_of(*triples)]


def named_in(index: FactIndex, text: str) -> set[str]:
    return {*index.named_in(text, index.kept)}


@pytest.mark.parametrize(
    ("name", "other"),
    [("will", "ada"), ("May", "ada"), ("Al", "ada"), ("US", "Oslo"), ("IT", "sales")],
)
def test_name_that_is_a_stop_word_is_found(name: str, other: str) -> None:
    index = index_of((other, "is known for", "tea"), (name, "is known for", "tea"))

    found = index.search(f"What is {name} known for?", limit=2)

    assert (found[0].id, found[0].score) == ("f1", 0.9)
    assert found[1].score < 0.9
    assert named_in(index, f"What is {name} known for?") == {"f1"}


def test_name_that_is_a_stop_word_of_another_language_is_found() -> None:
    index = index_of(("ben", "is", "in de stad van zijn vader"))

    assert index.index.languages == ("dutch", "english")
    assert [match.id for match in index.search("Where is Ben?", limit=1)] == ["f0"]
    assert named_in(index, "Where is Ben?") == {"f0"}


@pytest.mark.parametrize(
    ("subject", "object"),
    [("mia", "Rome"), ("ben", "Bergen"), ("ada", "Den Haag"), ("ada", "la casa de la playa")],
)
@pytest.mark.parametrize("question", ["Where does she live?", "Who was living there?"])
def test_forms_of_an_english_predicate_are_found_beside_words_of_other_languages(
    subject: str, object: str, question: str
) -> None:
    index = index_of((subject, "lives_in", object))

    assert [match.id for match in index.search(question, limit=1)] == ["f0"]


def test_name_does_not_tell_the_language_of_facts() -> None:
    index = index_of(("mia", "lives_in", "Rome"), ("mia", "works_in", "Milan"))

    assert index.index.languages == ("english",)


def test_forms_of_the_own_language_are_found_beside_an_english_predicate() -> None:
    index = index_of(("mia", "lives_in", "una casa con il giardino"), ("mia", "likes", "arachidi"))

    assert [match.id for match in index.search("Chi ha delle case?", limit=1)] == ["f0"]
    assert [match.id for match in index.search("arachide", limit=1)] == ["f1"]


def test_name_without_facts_is_a_stop_word_again() -> None:
    index = index_of(("will", "likes", "tea"))

    index.replace(["f0"], numbered(("ada", "likes", "tea")))

    assert index.search("will", limit=1) == []
    [found] = index.search("Will ada have tea?", limit=1)
    assert found == index_of(("ada", "likes", "tea")).search("Will ada have tea?", limit=1)[0]


def test_exact_words_of_a_fact_have_the_score_1_beside_a_similar_name() -> None:
    index = index_of(("ada", "favourite_colour", "red"), ("favourites", "contain", "tea"))

    [first, *_] = index.search("ada favourite colour red", limit=2)

    assert (first.id, first.score) == ("f0", 1.0)


LETTERS = st.sampled_from("abcdé")
WORD = st.text(LETTERS, min_size=4, max_size=9)
NAME = st.lists(WORD | st.sampled_from(["will", "Us", "ﬁnally", "Straße", "o'Connor", "東京"]),
                min_size=1, max_size=2).map(" ".join)  # fmt: skip


@given(
    st.lists(st.tuples(NAME, NAME), max_size=6),
    st.sets(st.integers(0, 5)),
    st.lists(WORD, max_size=6),
    st.data(),
)
def test_words_with_one_typing_error_are_those_that_a_comparison_of_all_finds(
    facts: list[tuple[str, str]], gone: set[int], words: list[str], data: st.DataObject
) -> None:
    names = Names()
    for fact in facts:
        names.add(fact)
    left = [fact for number, fact in enumerate(facts) if number not in gone]
    for number in gone & {*range(len(facts))}:
        names.remove(facts[number])
    known = {word for fact in facts for name in fact for word in Analyser().terms(name)}
    misspelled = [
        data.draw(st.sampled_from([word[:at] + word[at + 1 :], f"{word[:at]}x{word[at:]}"]))
        for word in sorted(known)
        if (at := data.draw(st.integers(0, len(word))))
    ]
    question = " ".join([*words, *misspelled])

    found = names.misspelled_in(question)

    kept = {word for fact in left for name in fact for word in Analyser().terms(name)}
    asked = {*Analyser().terms(question)} - kept
    assert found == sorted(
        word
        for word in kept
        if len(word) >= 6
        if any(other[:1] == word[:1] and are_near(other, word) for other in asked)
    )
    stop_words = {word for fact in left for name in fact if name.lower() in ("will", "us")
                  for word in [name.lower()]}  # fmt: skip
    assert names.stop_words == stop_words


PERSON = (
    ("mia", "allergic_to", "peanuts"), ("mia", "diet", "vegetarian"), ("mia", "lives_in", "York"),
    ("mia", "works_at", "Acme"), ("mia", "partner", "Tom"), ("mia", "age", 34),
    ("mia", "medication", "metformin"), ("mia", "has_pet", "cat"), ("mia", "speaks", "French"),
    ("mia", "favourite_colour", "green"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "objects"),
    [
        ("Does she have any allergies?", ["peanuts"]),
        ("What should I not cook for her?", ["peanuts", "vegetarian"]),
        ("Which city is her home?", ["York"]),
        ("Where is she employed?", ["Acme"]),
        ("Who is her spouse?", ["Tom"]),
        ("How old is she?", ["34"]),
        ("What drugs does she take?", ["metformin"]),
        ("Does she keep animals?", ["cat"]),
        ("Which languages does she know?", ["French"]),
        ("What is her favorite colour?", ["green"]),
        ("When does the train leave?", []),
    ],
)
def test_question_finds_a_fact_by_words_that_ask_for_its_predicate(
    question: str, objects: list[str]
) -> None:
    index = index_of(*PERSON)

    found = [hit for hit in index.find(question, limit=5) if hit.score >= RELEVANT]

    assert sorted(hit.text.split()[-1] for hit in found) == sorted(objects)


def test_fact_whose_own_words_are_asked_for_comes_first() -> None:
    index = index_of(*PERSON, ("mia", "food", "pizza"))

    first, *others = index.find("Which food?", limit=5)

    assert first.id == f"f{len(PERSON)}"
    assert all(hit.score < first.score for hit in others)


def test_each_predicate_of_the_vocabulary_has_words_of_questions() -> None:
    vocabulary = shipped_vocabulary()
    predicates = {*vocabulary.single_valued, *vocabulary.multi_valued} - {"favourite_*"}

    assert sorted(one for one in predicates if not words_of_questions(one)) == []
    assert words_of_questions("zeppelin") == ""
