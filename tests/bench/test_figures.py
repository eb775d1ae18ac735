"""The bench repeats what is quick, and its figures are those of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.bench.databases import Workshop
from tests.bench.figures import FIGURES, PAGE, joined, page

pytestmark = pytest.mark.integration


def test_the_page_shows_the_figures_of_the_last_run() -> None:
    document = orjson.loads(FIGURES.read_bytes())

    text = page(document)

    assert text == PAGE.read_text("utf-8"), "python -m tests.bench.figures writes the page"
    missed = sum(not line["kept"] for line in document["lines"])
    assert text.count(" | missed |\n") == missed
    assert f"{missed} of " in text


def run_of(commit: str, **figures: float) -> dict[str, Any]:
    """Return the file of a run that measured a figure of each section."""
    machine = {
        "commit": commit, "python": "3", "sqlite": "3", "processors": 2, "load": [1.0],
        "load_after": [2.0],
    }  # fmt: skip
    line = {
        "name": "a figure", "unit": "s", "processor_seconds": 0, "bound": None, "kept": True,
        "lowest": 1, "highest": 1, "times": 1,
    }  # fmt: skip
    lines = [{"section": name, **line, "median": value} for name, value in figures.items()]
    return {"machine": machine, "lines": lines}


def test_a_section_that_was_measured_again_joins_the_figures_that_are_there() -> None:
    first, more = run_of("old", put=1, year=2), run_of("old", start=3)

    text = page(joined([joined([first, more]), run_of("new", year=4)]))

    assert "Runs, one after the other: 2." in text
    assert "Commit `old`, where" in text
    assert "`python -m tests.bench put`\n" in text
    assert "`python -m tests.bench start`\n" in text
    assert "`python -m tests.bench year`, commit `new`\n" in text
    assert "| A figure |  | 4 s |" in text
    assert "| A figure |  | 2 s |" not in text


def test_a_measurement_is_not_repeated_when_it_takes_long(tmp_path: Path) -> None:
    patient, hurried = Workshop(tmp_path, times=3), Workshop(tmp_path, times=3, patience=0)

    assert [*patient.turns()] == [0, 1, 2]
    assert [*hurried.turns()] == [0]
