"""The event catalogue lists exactly the events that the code logs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from jsonschema import Draft202012Validator

import slumberd
from slumberd.cli import call
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.logs.event_schema import EventKind
from slumberd.logs.lines import json_line
from tests.support.catalogue_check import problems_of_line
from tests.support.lists import of_each

pytestmark = pytest.mark.unit

LEVELS = {"debug", "info", "warning", "error"}
TS = "2026-01-01T12:00:00.000000Z"


class LoggedEvent(NamedTuple):
    """A logging call in the code, with its event name, level and fields."""

    name: str
    level: str | None
    fields: set[str]
    whole: bool = False
    """Whether the call names all its fields as keywords."""


@cache
def logged() -> list[LoggedEvent]:
    """Return the logging calls of the code, but for the catalogue itself."""
    files = sorted(Path(slumberd.__file__).parent.rglob("*.py"))
    calls = [_logged_events(file) for file in files if file.stem != "event_catalogue"]
    return [event for found in calls for event in found]


def logged_whole() -> list[LoggedEvent]:
    """Return the calls that name their level and all their fields."""
    return [event for event in logged() if event.whole and event.level]


def _logged_events(file: Path) -> Iterator[LoggedEvent]:
    # A file without either word has no logging call, and needs no syntax tree.
    if "log" in (text := file.read_text()) or "level" in text:
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(logger), attr=level),
                    args=[*_, ast.Constant(value=str(name))],
                ) if logger == "log" or logger.endswith("_log"):
                    fields = {word.arg for word in node.keywords if word.arg}
                    whole = all(word.arg for word in node.keywords)
                    yield LoggedEvent(name, level if level in LEVELS else None, fields, whole)
                case ast.Dict(keys=keys, values=values):
                    yield from _event_of_mapping(
                        dict(zip(map(_word, keys), map(_word, values), strict=True))
                    )
                case _:
                    pass


def _event_of_mapping(words: dict[str | None, str | None]) -> Iterator[LoggedEvent]:
    if "level" in words and (name := words.get("event")):
        fields = {word for word in words if word} - {"ts", "level", "event"}
        yield LoggedEvent(name, words["level"], fields)


def _word(node: ast.expr | None) -> str | None:
    match node:
        case ast.Constant(value=str(word)):
            return word
        case ast.Name("CHECKPOINT"):
            return "ledger.checkpoint"
        case _:
            return None


@pytest.mark.slow
@of_each(logged, attrgetter("name"))
def test_every_logged_event_is_in_the_catalogue(event: LoggedEvent) -> None:
    kind = CATALOGUE[event.name]

    assert event.level is None or event.level in kind.levels
    assert event.fields - {"exc_info"} <= kind.fields.keys()


@pytest.mark.slow
@of_each(logged_whole, attrgetter("name"))
def test_every_logged_event_has_every_field_of_the_catalogue(event: LoggedEvent) -> None:
    always = CATALOGUE[event.name].fields.keys() - {"exception"}

    assert always <= event.fields


def test_every_event_of_the_catalogue_is_logged() -> None:
    assert {event.name for event in logged()} == CATALOGUE.keys()


@of_each(CATALOGUE.values, attrgetter("name"))
def test_levels_of_every_event_are_levels_of_lines(kind: EventKind) -> None:
    assert kind.levels
    assert set(kind.levels) <= LEVELS


def test_catalogue_is_sorted() -> None:
    assert [*CATALOGUE] == sorted(CATALOGUE)


@pytest.mark.slow
@of_each(lambda: CATALOGUE)
def test_schema_of_every_event_is_a_json_schema(name: str) -> None:
    Draft202012Validator.check_schema(CATALOGUE[name].schema)


BEGUN = {"ts": TS, "level": "info", "event": "rule.begun", "rule_id": "tea", "after": 5}


def test_line_with_the_documented_fields_is_valid() -> None:
    assert problems_of_line(json_line(BEGUN)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"event": "rule.began"}, id="no such event"),
        pytest.param({"level": "error"}, id="another level"),
        pytest.param({"after": "5"}, id="another type"),
        pytest.param({"before": 4}, id="a field too many"),
    ],
)
def test_line_that_differs_from_the_catalogue_is_reported(change: dict[str, Any]) -> None:
    assert problems_of_line(json_line(BEGUN | change))


def test_line_without_a_field_is_reported() -> None:
    lacking = {key: value for key, value in BEGUN.items() if key != "after"}

    assert problems_of_line(json_line(lacking))


def test_truncated_line_is_valid() -> None:
    cut = json_line(BEGUN | {"rule_id": "x" * 20_000})

    assert b'"truncated":true' in cut
    assert problems_of_line(cut) == []


def test_id_that_is_invalid_in_json_leaves_the_other_fields_unchanged() -> None:
    line = json_line(BEGUN | {"rule_id": "\ud800"})

    assert problems_of_line(line) == []
    assert orjson.loads(line)["after"] == 5


def test_events_command_lists_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["events"]) == 0

    out = capsys.readouterr().out
    assert all(kind.name in out and kind.meaning in out for kind in CATALOGUE.values())


def test_events_command_prints_the_schema_of_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["events", "delta.applied", "--json"]) == 0

    assert orjson.loads(capsys.readouterr().out) == CATALOGUE["delta.applied"].schema


def test_events_command_suggests_a_similar_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["events", "delta.aplied"]) == 64

    assert "did you mean 'delta.applied'" in capsys.readouterr().err
