"""The command prints its table, writes its figures, and ends with 1 when a bar is missed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.recall import __main__ as command
from tests.recall.samples import blind, blind_default, episode, plain, seeing

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    questions = [
        {"user": "ann", "question": "Who drinks tea?", "category": "c", "evidence": ["a"]},
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "episodes": [episode("a", "Ann drinks tea.").model_dump(mode="json")],
        "questions": questions,
    }
    for part, some in rows.items():
        lines = b"\n".join(map(orjson.dumps, some))
        (tmp_path / f"locomo.{part}.jsonl.gz").write_bytes(gzip.compress(lines))
    return tmp_path


def test_the_command_writes_its_figures_and_keeps_the_bars_of_what_was_measured(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["locomo", "--data", str(data), "--engines", "bm25", "--json", str(data / "out.json")]

    code = command.main(words)

    assert code == 0
    assert "locomo: recall @5" in capsys.readouterr().out
    (first, *_) = orjson.loads((data / "out.json").read_bytes())
    assert (first["name"], first["engine"], first["value"]) == ("recall @5", "bm25", 1.0)


def test_the_command_names_the_bars_that_an_engine_misses(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OPENERS", {"bm25": plain, "lexical": blind})

    code = command.main(["locomo", "--data", str(data), "--engines", "bm25", "lexical"])

    assert code == 1
    lines = capsys.readouterr().out.splitlines()
    assert "missed: locomo: recall @5 of lexical, at least 0.69" in lines


@pytest.mark.parametrize("section", ["beam", "beam-500k", "realtalk"])
def test_a_part_without_its_data_is_skipped_by_name(
    section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main([section, f"--{section}", str(tmp_path / "none"), "--engines", "bm25"])

    assert code == 0
    assert f"skipped: {section}; its data are not in {tmp_path / 'none'}" in capsys.readouterr().out


def test_a_part_of_the_conversations_is_measured_and_not_judged(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OPENERS", {"lexical": blind})
    words = ["locomo", "--data", str(data), "--engines", "lexical", "--most", "1"]

    code = command.main(words)

    assert code == 0
    assert "locomo: recall @5" in capsys.readouterr().out


def test_a_default_that_is_worse_than_another_search_is_named(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OPENERS", {"init": blind_default, "lexical": seeing})

    code = command.main(["locomo", "--data", str(data), "--engines", "init", "lexical"])

    assert code == 1
    lines = capsys.readouterr().out.splitlines()
    wanted = "locomo: recall @5 of init, at least recall @5 of no-language or lexical less 0.01"
    assert f"missed: {wanted}" in lines


def test_an_unknown_section_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["bean"])

    assert "there is no section 'bean'; they are locomo, beam, " in capsys.readouterr().err
