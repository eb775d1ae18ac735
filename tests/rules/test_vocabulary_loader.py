"""The vocabulary of the extractor `conversation`, and what a user's file adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.consolidation.extraction.statements_in_english import (
    ATTRIBUTES,
    clause_expressions,
    expressions,
)
from slumberd.consolidation.extraction.turn_reader import ALL_READERS
from slumberd.consolidation.extraction.vocabulary import Vocabulary
from slumberd.model.errors import ConfigurationError
from slumberd.model.extraction import Turn
from slumberd.rules.vocabulary_loader import (
    conversation_extraction,
    shipped_vocabulary,
    vocabulary_of,
)
from slumberd.rules.yaml_reader import read_document_text
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit


def vocabulary(text: str) -> Vocabulary:
    return vocabulary_of(read_document_text(text, "words.yaml"))


def stated(words: Vocabulary, text: str) -> list[tuple[str, object]]:
    turn = Turn("e1", "s", "user", text, 0, "ada", "bot", True)
    [found] = ConversationExtractor(words).extract([turn], [None])
    return [(one.predicate, one.object) for one in found if one.intent == "add"]


def test_every_expression_states_predicates_of_the_vocabulary_by_known_readers() -> None:
    words = shipped_vocabulary()
    effects = [
        effect
        for one in (*expressions(), *clause_expressions())
        for effect in one.effects
        if effect.predicate not in ("activity", "pet")
    ]
    negated = [one.negated.removeprefix("-") for one in expressions() if one.negated]

    assert [one for one in effects if not words.knows(one.predicate)] == []
    assert [name for name in negated if name and not words.knows(name)] == []
    assert {one.reader for one in effects if one.reader} <= ALL_READERS.keys()
    assert {reader for *_, reader in ATTRIBUTES} <= ALL_READERS.keys()
    assert len({one.id for one in expressions()}) == len(expressions())


def test_extraction_says_how_many_objects_its_predicates_hold() -> None:
    extraction = conversation_extraction({})

    assert {"lives_in", "diet", "favourite_*"} <= extraction.single_valued
    assert {"allergic_to", "speaks", "has_pet"} <= extraction.multi_valued
    assert not extraction.single_valued & extraction.multi_valued


def test_page_lists_every_predicate_under_its_number_of_values_and_every_list() -> None:
    page = (ROOT / "docs/reference/vocabulary.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ") and "`" in line]
    cells = [row for row in rows if len(row) == 5]
    words = shipped_vocabulary()

    single, many = (
        {name for row in cells for name in row[place].replace("`", " ").split()} for place in (2, 3)
    )
    assert single == words.single_valued
    assert many == words.multi_valued
    assert [name for name in words.words if f"`{name}`" not in page] == []


def test_file_adds_words_aliases_and_predicates_and_removes_some() -> None:
    words = vocabulary(
        """
        predicates: {speaks: one, shoe_size: one}
        remove: [trait]
        opposites: [[supports, dislikes]]
        people: {godmother: {gender: female, named: friend}}
        aliases: {mam: mother}
        words: {jobs: [sommelier], animals: [capybara]}
        """
    )

    assert {"speaks", "shoe_size"} <= words.single_valued
    assert stated(words, "I'm a sommelier.") == [("job", "sommelier")]
    assert stated(words, "I'm a night owl.") == []
    assert stated(words, "My capybara Kim is asleep.") == [
        ("has_pet", "capybara"),
        ("pet_name", "Kim"),
    ]
    assert stated(words, "My godmother Zoe called.") == [("friend", "Zoe")]
    assert stated(words, "My mam Rosa called.") == [("mother", "Rosa")]
    assert words.opposites["supports"] == {"dislikes"}
    assert stated(shipped_vocabulary(), "I'm a sommelier.") == []


def test_digest_changes_with_the_words_and_the_speakers() -> None:
    digests = {
        conversation_extraction({}).digest,
        conversation_extraction({"chat": "ada"}).digest,
        conversation_extraction({}, vocabulary("words: {jobs: [sommelier]}")).digest,
        conversation_extraction({}, vocabulary("predicates: {speaks: one}")).digest,
    }

    assert len(digests) == 4
    assert conversation_extraction({}).digest == conversation_extraction({}).digest


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("words: {job: [x]}", "1:9", "there is no list 'job'; did you mean 'jobs'?"),
        (
            "remove: [traits]",
            "1:10",
            "there is no predicate or pattern 'traits'; did you mean 'trait'?",
        ),
        ("opposites: [[likes, hate]]", "1:21", "there is no predicate 'hate'"),
        ("predicates: {age: two}", "1:19", "one"),
        ("lists: {}", "1:1", "lists"),
    ],
)
def test_mistake_in_a_file_names_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        vocabulary(text)

    [mistake] = caught.value.mistakes
    assert f"{mistake.line}:{mistake.column}" == place
    assert problem in mistake.problem


def test_file_of_the_package_is_read_as_any_other(tmp_path: Path) -> None:
    words = shipped_vocabulary()

    assert vocabulary("{}") == words
    assert all(entry == entry.casefold() for entries in words.words.values() for entry in entries)
