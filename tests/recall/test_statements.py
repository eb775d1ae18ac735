"""Facts are compared with what people stated."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
import yaml

from tests.recall import statements
from tests.recall.conversations import read_locomo
from tests.recall.samples import episode, known, plain
from tests.recall.started import open_started
from tests.recall.statements import (
    Statement,
    Story,
    judge,
    of_each_speaker,
    read_chat,
    read_stories,
    says,
)

pytestmark = [pytest.mark.unit, pytest.mark.slow]

HOME = Statement("ann", "lives_in", frozenset({"são paulo", "sampa"}))


@pytest.mark.parametrize(
    ("object", "right"),
    [
        pytest.param("São Paulo", True, id="the object"),
        pytest.param("SAMPA", True, id="an accepted word"),
        pytest.param("the city São Paulo", True, id="two further words"),
        pytest.param("somewhere in beautiful São Paulo", False, id="three further words"),
        pytest.param("Paulo São", False, id="another order"),
        pytest.param("Paulo", False, id="a part"),
        pytest.param("Sampaio", False, id="a longer word"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_an_object_may_have_two_further_words(object: str, right: bool) -> None:
    assert says(known("a", "Ann", "lives_in", object).payload, HOME) is right


@pytest.mark.parametrize(
    ("subject", "predicate"),
    [
        pytest.param("ann's sister", "lives_in", id="another subject"),
        pytest.param("ann", "lived_in", id="another predicate"),
    ],
)
def test_a_fact_of_another_key_is_another_statement(subject: str, predicate: str) -> None:
    assert not says(known("a", subject, predicate, "Sampa").payload, HOME)


def test_a_story_is_right_when_all_is_expected_and_nothing_is_stale() -> None:
    story = Story("ann", [], [HOME], [Statement("ann", "lives_in", frozenset({"porto"}))])
    right, stale = known("a", "ann", "lives_in", "Sampa"), known("b", "ann", "lives_in", "Porto")

    assert judge([right], story)["right"] == 1
    both = judge([right, stale], story)
    assert (both["found"], both["held"], both["right"]) == (1, 1, 0)
    assert judge([], story)["right"] == 0


TURNS = [
    {"day": "2026-03-01", "speaker": "user", "text": "Hello, how are you?"},
    {"day": "2026-03-01", "speaker": "assistant", "text": "Fine, thank you."},
    {"day": "2026-03-02", "speaker": "user", "text": "It rains."},
]


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    expected = {"subject": "{user}'s sister", "predicate": "job", "object": 33, "accept": ["Cook"]}
    gone = {"subject": "{user}", "predicate": "lives_in", "object": "Porto"}
    stories = [
        {"name": "one", "turns": TURNS, "expect": [expected], "gone": [gone]},
        {"name": "two", "turns": TURNS, "gone": [gone]},
    ]
    question = {"ask": "What is she?", "predicate": "job", "answer": "cook", "accept": []}
    chat = {"name": "chat", "turns": TURNS, "questions": [question], "not": [gone]}
    (tmp_path / "stories.yaml").write_text(yaml.safe_dump(stories))
    (tmp_path / "assistant_chat.yaml").write_text(yaml.safe_dump(chat))
    return tmp_path


def test_each_story_is_the_memory_of_a_user_of_its_own(held_out: Path) -> None:
    first, second = read_stories(held_out / "stories.yaml")

    assert first.expected == [Statement("story-0's sister", "job", frozenset({"33", "cook"}))]
    assert first.wrong == [Statement("story-0", "lives_in", frozenset({"porto"}))]
    assert (second.user, second.expected) == ("story-1", [])
    times = [one.timestamp for one in first.episodes]
    assert times == sorted(set(times))
    assert [one.metadata["speaker"] for one in first.episodes] == ["user", "assistant", "user"]


def test_the_questions_of_the_chat_are_its_statements(held_out: Path) -> None:
    (chat,) = read_chat(held_out)

    assert chat.expected == [Statement("chat", "job", frozenset({"cook"}), "What is she?")]


async def test_the_memory_of_init_is_measured_on_stories_and_observations(held_out: Path) -> None:
    write_locomo(held_out)

    figures = await statements.measure([plain, open_started], held_out, held_out)

    assert {figure.engine for figure in figures} == {"init"}  # the baseline has no facts
    found = {figure.name: figure.value for figure in figures}
    assert found["stories: facts"] == 0  # the turns state nothing
    assert found["stories: expected facts"] == 0.0
    assert found["stories: right at the end"] == 1
    assert found["observations with a fact"] == 0.5


def test_each_speaker_is_the_person_of_a_memory_of_their_own(held_out: Path) -> None:
    write_locomo(held_out)

    copies = of_each_speaker(read_locomo(held_out)).episodes

    assert [(one.id, one.user, one.metadata["speaker"]) for one in copies] == [
        ("Ann:a", "ann-Ann", "user"),
        ("Ann:b", "ann-Ann", "Ben"),
        ("Ben:a", "ann-Ben", "Ann"),
        ("Ben:b", "ann-Ben", "user"),
    ]


def write_locomo(folder: Path) -> None:
    """Write two turns, of which a host states one, with an observation of each."""
    said = [{"subject": "Ann", "predicate": "owns", "object": "a red kayak"}]
    turns = [
        episode("a", "I bought it.").model_copy(
            update={"metadata": {"speaker": "Ann", "triples": said}}
        ),
        episode("b", "It rains.").model_copy(update={"metadata": {"speaker": "Ben"}}),
    ]
    files = {
        "episodes": [turn.model_dump(mode="json") for turn in turns],
        "questions": [],
        "observations": [
            {"subject": "Ann", "text": "Ann owns a kayak.", "evidence": ["a"]},
            {"subject": "Ben", "text": "Ben hates the rain.", "evidence": ["b"]},
        ],
    }
    for name, rows in files.items():
        lines = b"\n".join(map(orjson.dumps, rows))
        (folder / f"locomo.{name}.jsonl.gz").write_bytes(gzip.compress(lines))
