"""On the public corpora, the search keeps its bars, and the baseline is the known one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recall import evidence, prompts
from tests.recall.access import load_mappings
from tests.recall.conversations import read_locomo
from tests.recall.engines import OPENERS
from tests.recall.figures import missed
from tests.recall.stories import read_stories
from tests.support.corpora import FOLDER


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"{path.name} is not in the test data")


pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ENGINES = [OPENERS["bm25"], OPENERS["lexical"]]


@needs(FOLDER / "locomo.questions.jsonl.gz")
async def test_search_finds_the_evidence_of_locomo() -> None:
    figures = await evidence.measure(read_locomo(FOLDER), ENGINES, budgets=())

    assert missed(figures) == []
    plain = {figure.name: figure.value for figure in figures if figure.engine == "bm25"}
    assert plain["recall @5"] == pytest.approx(0.45, abs=0.005)
    assert plain["recall @50"] == pytest.approx(0.68, abs=0.005)


@needs(FOLDER / "gatemem")
@pytest.mark.nightly
async def test_contexts_hold_what_the_rights_of_gatemem_allow_and_no_more() -> None:
    figures = await prompts.measure(read_stories(FOLDER / "gatemem"), load_mappings(), ENGINES)

    assert missed(figures) == []
    plain = {figure.name: figure.value for figure in figures if figure.engine == "bm25"}
    assert plain["recall of includes"] == pytest.approx(0.83, abs=0.01)
    assert plain["questions with a leak"] > 0.8
