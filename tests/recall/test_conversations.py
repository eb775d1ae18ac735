"""The loaders read LoCoMo's lines and BEAM's directories."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.recall.conversations import read_beam, read_locomo, read_realtalk

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


def test_beam_updates_have_the_turns_of_the_old_and_of_the_new_value(tmp_path: Path) -> None:
    row = {
        "question": "How many rows has the table?",
        "answer": "90 rows",
        "conversation_references": ["The table has 70 rows.", "It has 90 rows now."],
        "source_chat_ids": {"original_info": [2, 3], "updated_info": [[7], 3]},
    }
    unclear = {"question": "When?", "source_chat_ids": [1, 2]}
    write_chat(tmp_path / "7", [], {"knowledge_update": [row, unclear]})

    (update,) = read_beam(tmp_path, "beam-500k").updates

    assert (update.user, update.text) == ("beam-7", "How many rows has the table?")
    assert update.old == {"beam:7:2"}
    assert update.new == {"beam:7:7", "beam:7:3"}
    assert update.values == ("The table has 70 rows.", "90 rows")


def said(turn: str, speaker: str, text: str, at: str, **rest: Any) -> dict[str, Any]:
    return {"dia_id": turn, "speaker": speaker, "clean_text": text, "date_time": at, **rest}


def asked(question: str, evidence: list[str]) -> dict[str, Any]:
    return {"question": question, "answer": "a", "evidence": evidence, "category": 2}


def write_realtalk(folder: Path) -> None:
    """Write chats 2 and 10, the second in a directory of its own."""
    first = {
        "name": {"speaker_1": "Ann"},
        "session_1": [
            said("D1:1", "Ann", "I row on the lake.", "29.12.2023, 22:42:04"),
            said("D1:2", "Ben", "Look!", "29.12.2023, 22:42:04", blip_caption="a boat"),
        ],
        "events_session_1": {},
        "session_2": [said("D2:1", "Ann", "Hello.", "28.12.2023, 10:00:00")],
        "qa": [asked("When does Ann row?", ["D1:1; D2:1", "D9:9"]), asked("Why?", ["D9:9"])],
    }
    second = {
        "session_1": [said("D1:1", "Cem", "I sing.", "01.02.2024, 10:00:00")],
        "qa": [asked("Who sings?", ["D1:1"])],
    }
    for path, chat in (("a/Chat_2_Ann_Ben.json", first), ("b/Chat_10_Cem_Dan.json", second)):
        (folder / path).parent.mkdir()
        (folder / path).write_bytes(orjson.dumps(chat))


def test_realtalk_turns_keep_the_order_of_the_file(tmp_path: Path) -> None:
    write_realtalk(tmp_path)

    episodes = read_realtalk(tmp_path).episodes

    assert [one.id for one in episodes] == [
        "realtalk:2:D1:1", "realtalk:2:D1:2", "realtalk:2:D2:1", "realtalk:10:D1:1",
    ]  # fmt: skip
    times = [one.timestamp for one in episodes[:3]]
    assert times == sorted(set(times))
    assert times[0].isoformat() == "2023-12-29T22:42:04+00:00"
    assert [one.session for one in episodes[:3]] == ["session_1", "session_1", "session_2"]
    assert episodes[1].metadata == {"speaker": "Ben", "caption": "a boat"}


def test_a_chat_of_realtalk_in_two_directories_is_read_once(tmp_path: Path) -> None:
    write_realtalk(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "Chat_2.json").write_bytes((tmp_path / "a/Chat_2_Ann_Ben.json").read_bytes())

    assert len(read_realtalk(tmp_path).episodes) == 4


def test_realtalk_questions_are_of_two_parts_and_have_known_evidence(tmp_path: Path) -> None:
    write_realtalk(tmp_path)

    first, second = read_realtalk(tmp_path).questions

    assert first.evidence == {"realtalk:2:D1:1", "realtalk:2:D2:1"}
    assert (first.kind, first.part, second.part) == ("category 2", "dev", "held out")


def test_the_first_conversations_have_their_own_questions_only(tmp_path: Path) -> None:
    write_realtalk(tmp_path)

    some = read_realtalk(tmp_path).first(1)

    assert {one.user for one in some.episodes} == {"realtalk-2"}
    assert [one.text for one in some.questions] == ["When does Ann row?"]
