"""The demo's own questions are answered by what is true now; what was replaced says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runner import called

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("demo") / "kept"
    assert called("demo", "--keep", str(place)).returncode == 0
    return place / "slumberd.yaml"


QUESTIONS = [
    pytest.param(
        "mira", "Where does Mira live?", "mira lives in Braga", "live in Porto", id="home"
    ),
    pytest.param("mira", "Where is Mira's next trip?", "mira next trip Bergen", "Oslo", id="trip"),
]


@pytest.mark.parametrize(("user", "question", "answer", "old"), QUESTIONS)
def test_context_begins_with_the_answer_and_marks_the_replaced_sentence(
    config: Path, user: str, question: str, answer: str, old: str
) -> None:
    lines = called("context", user, question, "-c", str(config)).stdout.splitlines()

    assert lines[2].startswith("fact ")
    assert answer in lines[2]
    [said] = [line for line in lines if line.startswith("episode ") and f"{old}." in line]
    assert f'"replaced on 4 March 2025: {answer}"' in said


@pytest.mark.parametrize(("user", "question", "answer", "old"), QUESTIONS)
def test_search_names_no_replaced_sentence_without_what_replaced_it(
    config: Path, user: str, question: str, answer: str, old: str
) -> None:
    found = called("search", question, "--user", user, "-c", str(config)).stdout.splitlines()[1:]

    assert "fact" in found[0]
    assert answer in found[0]
    for line in found:
        if f"{old}." in line:
            assert line.endswith(f"(replaced on 4 March 2025: {answer})")


def test_context_that_omits_what_is_superseded_names_no_former_home(config: Path) -> None:
    done = called(
        "context", "mira", "Where does Mira live?", "--superseded", "omit", "-c", str(config)
    )

    assert "Braga" in done.stdout
    assert "Porto" not in done.stdout
    assert "Not Oslo after all" in done.stdout, "this sentence is current"
