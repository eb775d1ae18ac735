"""The loaders read LoCoMo's lines and BEAM's directories."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.recall.conversations import read_beam, read_locomo

pytestmark = [pytest.mark.unit, pytest.mark.slow]


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, rows))))


def turn(id: int, role: str, content: str, **rest: Any) -> dict[str, Any]:
    return {"id": id, "role": role, "content": content, **rest}


def write_chat(
    folder: Path, batches: list[dict[str, Any]], asked: dict[str, list[dict[str, Any]]]
) -> None:
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_bytes(orjson.dumps(batches))
    (folder / "probing_questions" / "probing_questions.json").write_bytes(orjson.dumps(asked))


def test_locomo_questions_without_evidence_are_left_out(tmp_path: Path) -> None:
    episode = {
        "id": "e1", "content": "I moved to Oslo.", "timestamp": "2024-05-01T10:00:00Z",
        "source_node": "chat_turn", "agent": "ann", "user": "u1", "session": "s1",
        "metadata": {"speaker": "Ann"},
    }  # fmt: skip
    row = {"user": "u1", "question": "Where does Ann live?", "category": "single-hop"}
    write_lines(tmp_path / "locomo.episodes.jsonl.gz", [episode])
    write_lines(
        tmp_path / "locomo.questions.jsonl.gz",
        [{**row, "evidence": ["e1"]}, {**row, "evidence": []}],
    )

    read = read_locomo(tmp_path)

    assert [episode.content for episode in read.episodes] == ["I moved to Oslo."]
    assert [question.evidence for question in read.questions] == [{"e1"}]


def test_beam_turns_get_a_user_a_session_and_increasing_times(tmp_path: Path) -> None:
    first = {
        "batch_number": 1,
        "time_anchor": "March-15-2024",
        "turns": [[turn(0, "user", "Plan my week. ->-> 1,1"), turn(1, "assistant", "Gladly.")]],
    }
    second = {
        "batch_number": 2,
        "turns": [[turn(2, "user", "Thanks.", time_anchor="March-01-2024")]],
    }
    write_chat(tmp_path / "7", [first, second], {})

    episodes = read_beam(tmp_path).episodes

    assert [episode.content for episode in episodes] == ["Plan my week.", "Gladly.", "Thanks."]
    assert [episode.session for episode in episodes] == ["batch_1", "batch_1", "batch_2"]
    assert {episode.user for episode in episodes} == {"beam-7"}
    times = [episode.timestamp for episode in episodes]
    assert times == sorted(set(times))
    assert times[0].isoformat() == "2024-03-15T00:00:00+00:00"


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([3, 5], id="a list"),
        pytest.param([[3], [5, 3]], id="lists in a list"),
        pytest.param({"first": [3], "second": [5]}, id="lists by name"),
    ],
)
def test_beam_evidence_is_read_from_each_form_of_its_ids(tmp_path: Path, ids: Any) -> None:
    asked = {"knowledge_update": [{"question": "When?", "source_chat_ids": ids}]}
    write_chat(tmp_path / "7", [], asked)

    (question,) = read_beam(tmp_path).questions

    assert question.evidence == {"beam:7:3", "beam:7:5"}
    assert (question.user, question.kind) == ("beam-7", "knowledge_update")


def test_beam_summaries_and_questions_without_evidence_are_left_out(tmp_path: Path) -> None:
    asked: dict[str, list[dict[str, Any]]] = {
        "summarization": [{"question": "Sum it up.", "source_chat_ids": [1]}],
        "abstention": [{"question": "Why?"}],
    }
    write_chat(tmp_path / "7", [], asked)

    assert read_beam(tmp_path).questions == []
