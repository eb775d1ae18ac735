"""The C parser returns the same values and places as the Python parser."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from slumberd.model.errors import FilterError
from slumberd.rules.filters.sandbox import check_filter, filter_checker
from slumberd.rules.yaml_reader import read_document
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

SHIPPED = [
    path.read_text() for place in ("rules", "config") for path in (ROOT / place).glob("*.yaml")
]
SMALL = [
    "rules:\n  - {id: a, cadence: {every: 1}}\n"
    "  - id: b\n    when_filter: \"x\\n 'y'\"\n    k: a b\n      c\n",
    '{"rules":[{"id":"a","then_emits":["x",1,null],"when_filter":"confidence >= 0.5"}]}\n',
    "a: [b, {c: d}]\n\"q\": 's'\nlist:\n- no\n- 1.5\n-\n",
]
ODD = [
    "!", "a: ! b\n", "{ob? ject: queues}\n", "{predicat:: x, b: c}\n", "{subje:ct: bob}\n",
    "># x\n", "a: | # x\n  b\n", '{cron: ,"0 3"}\n', "[1: ,2]\n", "{a: \n\n, b: c}\n",
    "--- #\n", "a:\tb\n", "a: b\u2028c: d\n",
]  # fmt: skip
"""Texts for which the two parsers differ in type or in place."""

PIECES = [
    *"[]{}:,-?'\"|>#&*!%@` \n~",
    ": ",
    "- ",
    "\n  ",
    "--- ",
    "...\n",
    "<<: ",
    "\\x",
    "é",
    "1:30",
]
EDITS = 100


def mutants(chance: random.Random) -> list[str]:
    """Return sections of real files with a few changed characters."""
    texts = []
    for _ in range(EDITS):
        text = chance.choice(SMALL + SHIPPED)
        start = text.rfind("\n", 0, chance.randrange(len(text))) + 1
        text = text[start : start + chance.randrange(50, 300)]
        for _ in range(chance.randrange(4)):
            place = chance.randrange(len(text) + 1)
            text = text[:place] + chance.choice(PIECES) + text[place + chance.randrange(3) :]
        texts.append(text)
    return texts


@pytest.mark.slow
def test_both_parsers_return_equal_documents(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    for text in [*SMALL, *ODD, *SHIPPED, *mutants(random.Random(7))]:
        file.write_text(text)

        quick, thorough = read_document(file), read_document(file, quick=False)

        assert quick == thorough, text


def test_quick_parser_reads_ordinary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(SMALL[1])
    monkeypatch.setattr(yaml, "SafeLoader", None)

    assert read_document(file).readable


def test_shared_filter_checker_reports_the_same_as_a_single_check() -> None:
    fragments = [
        "predicate = 'x'",
        "nonsense(",
        "1 = 1; SELECT",
        "confidence > 0.5",
        "sqlite_version()",
    ]

    def refusal(check: object, fragment: str) -> str:
        try:
            check("r", fragment)  # type: ignore[operator] # one of two functions of this type
        except FilterError as error:
            return str(error)
        return ""

    with filter_checker() as shared:
        together = [refusal(shared, fragment) for fragment in fragments * 2]

    assert together == [refusal(check_filter, fragment) for fragment in fragments] * 2
