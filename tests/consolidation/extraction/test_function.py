"""A function of the operator finds triples, or fails for one turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from slumberd import Extracted, Turn
from slumberd.consolidation.extraction.function import MOST_DEPTH, FunctionExtractor
from slumberd.model.extraction import MAX_EXTRACTED, Failed
from slumberd.model.rule import MOST_MESSAGE, RuleFunction

pytestmark = pytest.mark.unit

NAME = "python:cafe:find"
TURN = Turn("e1", "s1", "guest", "Ada drinks tea", 0, "ada", "waiter")
TEA = Extracted("ada", "drinks", "tea", "add", (11, 14), "test", 0.5)


def extract(call: Callable[[Turn, Turn | None], Any], *turns: Turn) -> list[Any]:
    extractor = FunctionExtractor(RuleFunction(NAME, "digest", call))
    turns = turns or (TURN,)
    return [*extractor.extract(turns, [None] * len(turns))]


def test_results_are_in_the_order_of_the_text_and_without_repetition() -> None:
    ada = TEA._replace(subject="cafe", span=(0, 3))

    assert extract(lambda *_: [TEA, ada, TEA]) == [[ada, TEA]]


def test_result_may_retract() -> None:
    no_tea = TEA._replace(intent="delete")

    assert extract(lambda *_: [no_tea]) == [[no_tea]]


@pytest.mark.parametrize(
    "fields",
    [{}, {"object_words": ["tea", "Krak\u00f3w"]}, {"replaces": ["e0"]}],
    ids=["whole key", "words", "episodes"],
)
def test_retraction_may_have_no_object(fields: dict[str, Any]) -> None:
    gone = TEA._replace(object=None, intent="delete", **fields)

    [[found]] = extract(lambda *_: [gone])

    assert (found.object, found.intent) == (None, "delete")
    assert found.object_words == tuple(fields.get("object_words", ()))
    assert found.replaces == tuple(fields.get("replaces", ()))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"object_words": "tea"}, "object_words of type str, not a tuple of texts"),
        ({"object_words": None}, "object_words of type NoneType, not a tuple of texts"),
        ({"object_words": [5]}, "object_words that are not all texts of valid Unicode"),
        ({"replaces": ["\ud800"]}, "replaces that are not all texts of valid Unicode"),
        ({"object_words": ["-"]}, "an empty text in object_words"),
        ({"replaces": [" "]}, "an empty text in replaces"),
        ({"replaces": ["e0"], "intent": "add"}, "replaces in an add; only a delete has them"),
        ({"object_words": ["a"], "object": 5}, "object_words beside an object; give one of them"),
        (
            {"object_words": ["a"], "replaces": ["e0"]},
            "object_words and replaces; give one of them",
        ),
    ],
)
def test_wrong_retraction_is_a_failure(fields: dict[str, Any], problem: str) -> None:
    wrong = TEA._replace(**{"object": None, "intent": "delete", **fields})

    assert extract(lambda *_: [wrong]) == [Failed(f"{NAME} returned result 1 with {problem}")]


def test_function_gets_the_turn_and_the_turn_before() -> None:
    asked = TURN._replace(id="e0", speaker="waiter")
    seen: list[tuple[Turn, Turn | None]] = []

    def look(turn: Turn, before: Turn | None) -> list[Extracted]:
        seen.append((turn, before))
        return []

    extractor = FunctionExtractor(RuleFunction(NAME, "", look))

    extractor.extract([asked, TURN], [None, asked])

    assert seen == [(asked, None), (TURN, asked)]


def test_result_without_the_name_of_its_finder_gets_that_of_the_function() -> None:
    [[found]] = extract(lambda *_: (TEA._replace(by=""),))

    assert found == TEA._replace(by=NAME)


def test_results_beyond_the_bound_are_left_out_and_not_asked_for_without_end() -> None:
    def endless(turn: Turn, _: Turn | None) -> Iterator[Extracted]:
        return (TEA._replace(object=number) for number in count())

    [found] = extract(endless)

    assert [one.object for one in found] == [*range(MAX_EXTRACTED)]


def test_object_is_a_copy() -> None:
    drinks = ["tea"]

    [[found]] = extract(lambda *_: [TEA._replace(object=drinks)])
    drinks.append("milk")

    assert found.object == ["tea"]


def _nested(levels: int) -> object:
    return [_nested(levels - 1)] if levels else "tea"


@pytest.mark.parametrize(
    "value",
    [None, "", "tea", 2, 0.5, True, ["tea", None], {"cups": 2}, _nested(MOST_DEPTH)],
    ids=lambda value: repr(value)[:12],
)
def test_any_json_may_be_an_object(value: object) -> None:
    assert extract(lambda *_: [TEA._replace(object=value)]) == [[TEA._replace(object=value)]]


def _raise(error: BaseException) -> Any:
    raise error


def _raise_later(*_: object) -> Iterator[Extracted]:
    yield TEA
    raise KeyError("cups")


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


CASES = [
    pytest.param(
        lambda *_: _raise(ValueError("no\n drink")), "raised ValueError: no drink", id="exception"
    ),
    pytest.param(lambda *_: _raise(ValueError()), "raised ValueError", id="no message"),
    pytest.param(lambda *_: _raise(SystemExit(2)), "raised SystemExit: 2", id="exit"),
    pytest.param(_raise_later, "raised KeyError: 'cups'", id="exception after a result"),
    pytest.param(lambda *_: _raise(_UnspeakableError()), "raised _UnspeakableError", id="no str"),
    pytest.param(
        lambda *_: _raise(ValueError("x" * 999)),
        f"raised ValueError: {'x' * MOST_MESSAGE}...",
        id="long message",
    ),
    pytest.param(
        lambda *_: None, "returned None; return a list of slumberd.Extracted", id="nothing"
    ),
    pytest.param(
        lambda *_: 5, "returned a value of type int; return a list of slumberd.Extracted", id="int"
    ),
    pytest.param(
        lambda *_: [TEA, ("ada", "drinks", "tea")],
        "returned a value of type tuple as result 2, not slumberd.Extracted",
        id="a tuple",
    ),
]
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"subject": 5}, "subject of type int, not text"),
    ({"subject": " "}, "an empty subject"),
    ({"predicate": None}, "predicate of type NoneType, not text"),
    ({"predicate": ""}, "an empty predicate"),
    ({"predicate": "\ud800"}, "a predicate that is not valid Unicode"),
    ({"by": 1}, "by of type int, not text"),
    ({"object": (1, 2)}, "an object that is not JSON"),
    ({"object": {1}}, "an object that is not JSON"),
    ({"object": float("nan")}, "an object that is not JSON"),
    ({"object": {1: "tea"}}, "an object that is not JSON"),
    ({"object": "\ud800"}, "an object that is not JSON"),
    ({"object": 2**64}, "an object that is not JSON"),
    ({"object": _nested(MOST_DEPTH + 1)}, "an object of more than 50 levels of JSON"),
    ({"object": _nested(300)}, "an object that is not JSON"),
    ({"intent": "update"}, "another intent than 'add' or 'delete'"),
    *[
        ({"span": span}, "a span that is not start and end within the 14 characters of the content")
        for span in [(0, 15), (-1, 3), (3, 2), (0,), None, (0.0, 1.0), (False, True), "ab"]
    ],
    *[
        ({"confidence": value}, "a confidence that is not 0 to 1")
        for value in [-0.1, 1.1, float("nan"), "1", True, None]
    ],
]


@pytest.mark.parametrize(("call", "problem"), CASES)
def test_failure_of_the_function_names_it_and_the_problem(call: Any, problem: str) -> None:
    assert extract(call) == [Failed(f"{NAME} {problem}")]


@pytest.mark.parametrize(("fields", "problem"), FIELDS)
def test_wrong_result_is_a_failure(fields: dict[str, Any], problem: str) -> None:
    wrong = TEA._replace(**fields)

    assert extract(lambda *_: [TEA, wrong]) == [Failed(f"{NAME} returned result 2 with {problem}")]


def test_failure_for_one_turn_leaves_the_others_alone() -> None:
    other = TURN._replace(id="e2", content="Nothing to drink")

    found = extract(
        lambda turn, _: [TEA] if "tea" in turn.content else None, TURN, other, TURN
    )  # fmt: skip

    assert found[0] == found[2] == [TEA]
    assert isinstance(found[1], Failed)


def test_interrupt_is_not_a_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        extract(lambda *_: _raise(KeyboardInterrupt()))
