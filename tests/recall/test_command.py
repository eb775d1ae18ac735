"""The command prints its table, writes its figures, and ends with 1 when a bar is missed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.recall import __main__ as command
from tests.recall.samples import blind, episode, plain

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


def test_a_part_without_its_data_is_skipped_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main(["beam", "--beam", str(tmp_path / "none"), "--engines", "bm25"])

    assert code == 0
    assert "skipped: beam; its data are not in " in capsys.readouterr().out


def test_an_unknown_section_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["bean"])

    assert "there is no section 'bean'; they are locomo, beam, " in capsys.readouterr().err
