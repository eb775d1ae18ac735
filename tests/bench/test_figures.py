"""The bench repeats what is quick, and its figures are those of the documentation."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.bench.databases import Workshop
from tests.bench.figures import FIGURES, PAGE, page

pytestmark = pytest.mark.integration


def test_the_page_shows_the_figures_of_the_last_run() -> None:
    document = orjson.loads(FIGURES.read_bytes())

    text = page(document)

    assert text == PAGE.read_text("utf-8"), "python -m tests.bench.figures writes the page"
    missed = sum(not line["kept"] for line in document["lines"])
    assert text.count(" | missed |\n") == missed
    assert f"{missed} of " in text


def test_a_measurement_is_not_repeated_when_it_takes_long(tmp_path: Path) -> None:
    patient, hurried = Workshop(tmp_path, times=3), Workshop(tmp_path, times=3, patience=0)

    assert [*patient.turns()] == [0, 1, 2]
    assert [*hurried.turns()] == [0]
