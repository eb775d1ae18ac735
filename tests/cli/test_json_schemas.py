"""The JSON schemas for editors: they are current and agree with the loader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from slumberd.cli import call, demo_data
from slumberd.cli.json_schemas import SHIPPED, schema_of, schema_text
from slumberd.model.errors import ConfigurationError
from slumberd.rules.docstrings import describe_attributes
from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.rule_loader import load_rule_files
from slumberd.rules.settings import load_settings
from slumberd.rules.yaml_reader import read_document
from slumberd.workers.scheduling import cron
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

SAMPLES = sorted(
    file
    for home in ("rules", "config", "daemon/slumberd/cli/demo_data")
    for file in ROOT.glob(f"{home}/*.yaml")
)
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)")


def _name_of(sample: Path) -> str:
    if sample.name.endswith(".test.yaml"):
        return "tests"
    return "config" if sample.stem == "slumberd" else "rules"


def _accepted_by_schema(name: str, file: Path) -> bool:
    document = read_document(file)
    validator = Draft202012Validator(schema_of(SHIPPED[name].form))
    return not document.mistakes and validator.is_valid(document.value)


def _accepted_by_loader(name: str, file: Path) -> bool:
    try:
        if name == "config":
            load_settings(file, overrides={}, environ={"HOME": "/home/alice"})
        else:
            load_rule_files(
                [file], check_filter=check_filter, check_cron=cron.check, timezone="UTC"
            )
    except ConfigurationError:
        return False
    return True


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema within it."""
    if isinstance(schema, list):
        for part in schema:
            yield from _parts(part)
    if isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            inner = value.values() if key == "properties" else [value]
            for part in inner:
                yield from _parts(part)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_schema_equals_the_printed_schema(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["schema", name]) == 0

    printed = capsys.readouterr().out
    assert printed == schema_text(name)
    assert (ROOT / "config" / SHIPPED[name].file).read_text() == printed, (
        f"run `slumberd schema {name} > config/{SHIPPED[name].file}`"
    )


def test_unknown_schema_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["schema", "rule"]) == 64
    assert "did you mean 'rules'?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_schema_is_valid_and_describes_every_key(name: str) -> None:
    schema = schema_of(SHIPPED[name].form)

    Draft202012Validator.check_schema(schema)
    for part in _parts(schema):
        assert not part.keys() & {"title", "$ref", "$defs", "$id"}
        if "description" in part and "properties" in part:
            assert part["additionalProperties"] is False
            assert all(value["description"] for value in part["properties"].values())


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample.relative_to(ROOT)))
def test_sample_names_its_schema_and_fits_it(sample: Path) -> None:
    first = sample.read_text().splitlines()[0]
    named = MODELINE.fullmatch(first)

    assert named
    schema = (sample.parent / named[1]).resolve()
    assert schema == ROOT / "config" / SHIPPED[_name_of(sample)].file
    assert _accepted_by_schema(_name_of(sample), sample)


@pytest.mark.slow
def test_files_of_the_demo_name_schemas_that_exist(tmp_path: Path) -> None:
    config = demo_data.write_files(tmp_path / "demo")

    for file in (config, config.parent / "rules.d" / "profile.yaml"):
        named = MODELINE.match(file.read_text())
        assert named
        assert (file.parent / named[1]).read_text() == schema_text(_name_of(file))


def test_docstring_yields_its_first_line_and_its_attributes() -> None:
    class Tea:
        """A drink.

        More of it.

        Attributes:
            leaf: Green, or
                black.
            cups: How many.
        """

    assert describe_attributes(Tea) == (
        "A drink.",
        {"leaf": "Green, or black.", "cups": "How many."},
    )
    assert describe_attributes(int)[1] == {}


def _rule(**keys: str | None) -> str:
    known = {
        "id": "tea", "cadence": "{every: 5}", "when_filter": '""', "then_emits": "[facts]",
    }  # fmt: skip
    lines = [f"{key}: {value}" for key, value in {**known, **keys}.items() if value is not None]
    return "rules:\n  - " + "\n    ".join(lines) + "\n"


GOOD = {
    "every": ("rules", _rule()),
    "cron": ("rules", _rule(cadence="{cron: '0 3 * * *'}")),
    "cron and zone": ("rules", _rule(cadence="{cron: '@daily', timezone: Europe/Berlin}")),
    "all keys": ("rules", _rule(enabled="false", start="now", limits="{max_deletes: 5}")),
    "limit of nothing": ("rules", _rule(limits="{max_deletes: null}")),
    "no limits": ("rules", _rule(limits="{}")),
    "two channels": ("rules", _rule(then_emits="[facts, notes]")),
    "no rules": ("rules", "rules: []\n"),
    "channels": ("rules", "rules: []\nchannels: {facts: {multi_valued: [likes]}}\n"),
    "channel of none": ("rules", "rules: []\nchannels: {facts: {multi_valued: []}}\n"),
    "longest id": ("rules", _rule(id="a" * 64)),
    "one setting": ("config", "timezone: Europe/Berlin\n"),
    "whole number for seconds": ("config", "stop_seconds: 25\n"),
    "no key": ("config", "facts: {key_file: null}\n"),
    "no bound": ("config", "limits: {max_deletes: null, max_delete_fraction: null}\n"),
    "paths": ("config", "state_dir: state\nmemory: {path: /srv/memory.db}\n"),
}
BAD = {
    "nothing": ("rules", "{}\n"),
    "a list": ("rules", "[]\n"),
    "rules as a rule": ("rules", "rules: {id: tea}\n"),
    "unknown key of a file": ("rules", "rules: []\nrule: []\n"),
    "unknown key of a rule": ("rules", _rule(enabeld="true")),
    "no id": ("rules", _rule(id=None)),
    "no cadence": ("rules", _rule(cadence=None)),
    "no filter": ("rules", _rule(when_filter=None)),
    "no channels": ("rules", _rule(then_emits=None)),
    "capitals": ("rules", _rule(id="Tea")),
    "id too long": ("rules", _rule(id="a" * 65)),
    "neither every nor cron": ("rules", _rule(cadence="{}")),
    "only a zone": ("rules", _rule(cadence="{timezone: UTC}")),
    "every and cron": ("rules", _rule(cadence="{every: 5, cron: '0 3 * * *'}")),
    "every and zone": ("rules", _rule(cadence="{every: 5, timezone: UTC}")),
    "every nothing": ("rules", _rule(cadence="{every: 0}")),
    "every null": ("rules", _rule(cadence="{every: null}")),
    "every as text": ("rules", _rule(cadence="{every: '5'}")),
    "empty cron": ("rules", _rule(cadence="{cron: ' '}")),
    "cron as a number": ("rules", _rule(cadence="{cron: 5}")),
    "zone of null": ("rules", _rule(cadence="{cron: '0 3 * * *', timezone: null}")),
    "cadence as text": ("rules", _rule(cadence="'0 3 * * *'")),
    "filter of null": ("rules", _rule(when_filter="null")),
    "channel as text": ("rules", _rule(then_emits="facts")),
    "no channel": ("rules", _rule(then_emits="[]")),
    "channel twice": ("rules", _rule(then_emits="[facts, facts]")),
    "no such start": ("rules", _rule(start="later")),
    "number for a boolean": ("rules", _rule(enabled="1")),
    "limits of null": ("rules", _rule(limits="null")),
    "fraction above one": ("rules", _rule(limits="{max_delete_fraction: 2}")),
    "name of a channel": ("rules", "rules: []\nchannels: {Facts: {multi_valued: []}}\n"),
    "empty predicate": ("rules", "rules: []\nchannels: {a: {multi_valued: ['']}}\n"),
    "unknown setting": ("config", "rulesdir: x\n"),
    "unknown inner setting": ("config", "facts: {bacth: 5}\n"),
    "batch of nothing": ("config", "facts: {batch: 0}\n"),
    "level in capitals": ("config", "logging: {level: INFO}\n"),
    "home": ("config", "state_dir: ~/x\n"),
    "empty path": ("config", "rules_dir: ''\n"),
    "path of null": ("config", "state_dir: null\n"),
    "negative seconds": ("config", "stop_seconds: -1\n"),
    "group of null": ("config", "memory: null\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), GOOD.values(), ids=GOOD)
def test_good_document_is_accepted_by_schema_and_loader(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / "sheet.yaml"
    file.write_text(text)

    assert _accepted_by_schema(name, file)
    assert _accepted_by_loader(name, file)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), BAD.values(), ids=BAD)
def test_bad_document_is_refused_by_schema_and_loader(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / "sheet.yaml"
    file.write_text(text)

    assert not _accepted_by_schema(name, file)
    assert not _accepted_by_loader(name, file)
