"""A context is of one class: it tells the current value from a replaced one, or does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slumberd.model.episode import Episode
from tests.recall import evidence, updates
from tests.recall.conversations import Conversations, Question, Update
from tests.recall.engine import Ledger, Prompt
from tests.recall.figures import UNMARKED, UNMARKED_HITS
from tests.recall.samples import episode, plain
from tests.recall.started import open_started
from tests.support.builders import START

pytestmark = [pytest.mark.unit, pytest.mark.slow]

UPDATE = Update("ann", "How many rows?", frozenset("ab"), frozenset("cd"), ("70 rows", "90 rows"))


@pytest.mark.parametrize(
    ("quoted", "sources", "marked", "expected"),
    [
        pytest.param("c", "", "", updates.NEWEST, id="the new sentence"),
        pytest.param("x", "d", "", updates.NEWEST, id="a fact of the new sentence"),
        pytest.param("ac", "", "a", updates.MARKED, id="both with a mark"),
        pytest.param("ab", "", "ab", updates.MARKED, id="old ones that name the new value"),
        pytest.param("abc", "", "a", updates.BOTH, id="one old one without a mark"),
        pytest.param("a", "c", "", updates.BOTH, id="the new one as a fact"),
        pytest.param("ax", "", "", updates.STALE, id="the old one only"),
        pytest.param("x", "a", "", updates.NEITHER, id="none"),
    ],
)
def test_a_context_has_one_class(quoted: str, sources: str, marked: str, expected: str) -> None:
    prompt = Prompt("", [*quoted], frozenset(sources), frozenset(marked))

    assert updates.class_of(prompt, UPDATE) == expected


def test_quoted_sentences_that_the_ledger_has_replaced_need_a_mark() -> None:
    prompt = Prompt("", [*"abx"], marked=frozenset("ax"))

    counts = updates.count_marks(prompt, Ledger([], frozenset("abc")))

    assert counts == {updates.QUOTED: 2, UNMARKED: 1}


def story() -> Conversations:
    """Return a made-up conversation in which a table grows, and a date moves."""
    texts = {
        "a": "Our table of birds has 70 rows.",
        "b": "I walk to the lake on Mondays.",
        "c": "Our table of birds has grown to 90 rows.",
        "d": "The walk to the lake moves to Fridays.",
        "e": "The soup was good.",
    }
    turns = [_later(episode(id, text), number) for number, (id, text) in enumerate(texts.items())]
    asked = [
        Update(
            "ann",
            "How many rows has the table of birds?",
            frozenset("a"),
            frozenset("c"),
            ("70 rows", "90 rows"),
        ),
        Update(
            "ann",
            "On which day is the walk to the lake?",
            frozenset("b"),
            frozenset("d"),
            ("Monday", "Friday"),
        ),
    ]
    questions = [Question(one.user, one.text, "update", one.new) for one in asked]
    return Conversations("beam", turns, questions, asked)


def _later(turn: Episode, number: int) -> Episode:
    return turn.model_copy(update={"timestamp": START + number * timedelta(minutes=1)})


def test_a_host_states_the_first_turn_of_each_value() -> None:
    turns = [episode(id, id) for id in "dcba"]
    conversations = Conversations("beam", turns, [], [UPDATE])

    said = updates.stated(conversations).episodes

    objects = {
        one.id: [triple["object"] for triple in one.metadata["triples"]]
        for one in said
        if "triples" in one.metadata
    }
    assert objects == {"b": ["70 rows"], "d": ["90 rows"]}
    assert [one.id for one in said] == [*"dcba"]


async def test_the_ledger_of_stated_updates_says_which_sentences_are_replaced() -> None:
    figures = await evidence.measure(story(), [open_started])

    found = {figure.name: figure.value for figure in figures}
    assert found["evidence in 1,000 tokens"] == 1.0
    assert sum(found[f"updates: {name}"] for name in updates.CLASSES) == 2
    assert sum(found[f"stated updates: {name}"] for name in updates.CLASSES) == 2
    assert found[f"stated updates: {updates.QUOTED}"] == 4  # both contexts hold all turns
    assert found["seconds"] > 0


async def test_an_engine_without_a_ledger_has_no_stated_updates() -> None:
    figures = await evidence.measure(story(), [plain])

    found = {figure.name: figure.value for figure in figures}
    assert found[f"updates: {updates.BOTH}"] == 2
    assert not [name for name in found if name.startswith("stated")]
    assert UNMARKED not in found


async def test_contexts_and_hits_are_asked_for_marks() -> None:
    figures = await evidence.measure(updates.stated(story()), [open_started])

    found = {figure.name: figure.value for figure in figures}
    assert found["facts"] >= 2
    assert found[updates.QUOTED] == 12  # two replaced sentences, two questions, three budgets
    assert found["replaced hits"] == 4
    assert found[UNMARKED_HITS] in range(5)
