"""The catalogue of events: what the code logs is in it, and nothing else is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from jsonschema import Draft202012Validator

import slumberd
from slumberd.cli import call
from slumberd.observability.event_catalogue import CATALOGUE
from slumberd.observability.line_format import json_line
from tests.support.catalogue import complaints_on

pytestmark = pytest.mark.unit

SOURCES = sorted(Path(slumberd.__file__).parent.rglob("*.py"))
LEVELS = {"debug", "info", "warning", "error"}
TS = "2026-01-01T12:00:00.000000Z"


class ManualAssertion(NamedTuple):
    """One place in the code that logs, and what it names there."""

    name: str
    level: str | None
    fields: set[str]
    whole: bool = False
    """Whether all of its fields are named there, and none comes from a mapping."""


def _said() -> Iterator[ManualAssertion]:
    for file in SOURCES:
        if file.stem == "events":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("_log" | "log"), attr=level),
                    args=[*_, ast.Constant(value=str(name))],
                ):
                    fields = {word.arg for word in node.keywords if word.arg}
                    whole = all(word.arg for word in node.keywords)
                    yield ManualAssertion(name, level if level in LEVELS else None, fields, whole)
                case ast.Dict(keys=keys, values=values):
                    yield from _drawn(dict(zip(map(_word, keys), map(_word, values), strict=True)))
                case _:
                    pass


def _drawn(words: dict[str | None, str | None]) -> Iterator[ManualAssertion]:
    if "level" in words and (name := words.get("event")):
        fields = {word for word in words if word} - {"ts", "level", "event"}
        yield ManualAssertion(name, words["level"], fields)


def _word(node: ast.expr | None) -> str | None:
    match node:
        case ast.Constant(value=str(word)):
            return word
        case ast.Name("CHECKPOINT"):
            return "ledger.checkpoint"
        case _:
            return None


@pytest.mark.parametrize("said", list(_said()), ids=lambda said: said.name)
def test_event_that_the_code_logs_is_in_the_catalogue(said: ManualAssertion) -> None:
    kind = CATALOGUE[said.name]

    assert said.level is None or said.level in kind.levels
    assert said.fields - {"exc_info"} <= kind.fields.keys()


WHOLE = [said for said in _said() if said.whole and said.level]


@pytest.mark.parametrize("said", WHOLE, ids=lambda said: said.name)
def test_event_is_logged_with_every_field_that_the_catalogue_lists(said: ManualAssertion) -> None:
    always = CATALOGUE[said.name].fields.keys() - {"exception"}

    assert always <= said.fields


def test_catalogue_has_no_event_that_the_code_does_not_log() -> None:
    assert {said.name for said in _said()} == CATALOGUE.keys()


def test_catalogue_is_in_order() -> None:
    assert [*CATALOGUE] == sorted(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_schema_of_an_event_is_one(name: str) -> None:
    Draft202012Validator.check_schema(CATALOGUE[name].schema)


BEGUN = {"ts": TS, "level": "info", "event": "rule.begun", "rule_id": "tea", "after": 5}


def test_line_as_the_catalogue_has_it_is_valid() -> None:
    assert complaints_on(json_line(BEGUN)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"event": "rule.began"}, id="no such event"),
        pytest.param({"level": "error"}, id="another level"),
        pytest.param({"after": "5"}, id="another type"),
        pytest.param({"before": 4}, id="a field too many"),
    ],
)
def test_line_that_is_not_as_the_catalogue_has_it_is_told(change: dict[str, Any]) -> None:
    assert complaints_on(json_line(BEGUN | change))


def test_line_without_a_field_is_told() -> None:
    lacking = {key: value for key, value in BEGUN.items() if key != "after"}

    assert complaints_on(json_line(lacking))


def test_line_that_was_cut_is_valid() -> None:
    cut = json_line(BEGUN | {"rule_id": "x" * 20_000})

    assert b'"truncated":true' in cut
    assert complaints_on(cut) == []


def test_ids_that_no_json_can_hold_leave_the_other_fields_as_they_are() -> None:
    line = json_line(BEGUN | {"rule_id": "\ud800"})

    assert complaints_on(line) == []
    assert orjson.loads(line)["after"] == 5


def test_events_are_listed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["events"]) == 0

    out = capsys.readouterr().out
    assert all(kind.name in out and kind.meaning in out for kind in CATALOGUE.values())


def test_events_are_schemas_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["events", "delta.applied", "--json"]) == 0

    assert orjson.loads(capsys.readouterr().out) == CATALOGUE["delta.applied"].schema


def test_event_that_does_not_exist_is_told_with_one_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["events", "delta.aplied"]) == 64

    assert "did you mean 'delta.applied'" in capsys.readouterr().err
