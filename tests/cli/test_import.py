"""Import of lines: a refused batch is halved until only its bad lines are left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from slumberd.cli import call
from slumberd.cli.commands.importing import (
    MOST_PRINTED,
    ImportTally,
    Rejection,
    batches,
    put_records,
)
from slumberd.cli.jsonl import open_input
from slumberd.integrations.interchange.records import ImportedRecord
from slumberd.model.errors import InputError
from slumberd.storage.episodes.writes import PutCounts
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import episode

pytestmark = pytest.mark.unit


def lines(*ids: str) -> list[ImportedRecord]:
    return [ImportedRecord(number, (episode(id),)) for number, id in enumerate(ids, start=1)]


async def put(tmp_path: Path, some: Sequence[ImportedRecord]) -> ImportTally:
    tally = ImportTally(keep=True)
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        await put_records(memory.put_many, some, tally)
    return tally


async def test_lines_are_put_and_counted(tmp_path: Path) -> None:
    tally = await put(tmp_path, lines("e1", "e2", "e1"))

    assert tally.counts == PutCounts(new=2, changed=0, unchanged=1)
    assert tally.rejected == 0


async def test_import_puts_all_lines_except_refused_lines(tmp_path: Path) -> None:
    good = lines(*(f"e{number}" for number in range(1, 11)))
    of_another_user = ImportedRecord(11, (episode("e3", user="mallory"),))
    unwritable = ImportedRecord(12, (episode("e12", metadata={"x": float("nan")}),))
    unread = ImportedRecord(13, problem="the line is not a JSON object")

    tally = await put(tmp_path, [*good[:5], of_another_user, unwritable, unread, *good[5:]])

    assert tally.counts.new == 10
    assert [rejection.line for rejection in tally.rejections] == [11, 12, 13]
    assert "belongs to another scope" in tally.rejections[0].reason
    assert "JSON cannot hold" in tally.rejections[1].reason


async def test_later_line_of_an_id_wins_in_a_batch_that_is_halved(tmp_path: Path) -> None:
    story = [
        ImportedRecord(1, (episode("e1", content="first"),)),
        ImportedRecord(2, (episode("e2", metadata={"x": float("inf")}),)),
        ImportedRecord(3, (episode("e1", content="second"),)),
    ]

    tally = await put(tmp_path, story)

    assert tally.counts == PutCounts(new=1, changed=1)
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        (found,) = await memory.recent("alice", limit=5)
    assert found.content == "second"


def test_bad_lines_are_printed_up_to_a_limit_and_then_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = ImportTally(keep=False)

    for first in (1, MOST_PRINTED):
        tally.reject([Rejection(first + number, "bad") for number in range(MOST_PRINTED - 1)])

    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == 1_000
    assert messages[-1] == "slumberd: line 1000: bad"
    assert tally.rejected == 2 * MOST_PRINTED - 2
    assert tally.rejections == []


def test_tally_is_printed_on_one_line() -> None:
    tally = ImportTally(keep=False, counts=PutCounts(new=3, changed=2, unchanged=1), rejected=4)

    assert str(tally) == "imported 6 (new 3, changed 2, unchanged 1), rejected 4"


def test_batches_hold_every_line_once_and_in_order() -> None:
    story = [ImportedRecord(number) for number in range(2500)]

    cut = list(batches(story))

    assert [len(batch) for batch in cut] == [1000, 1000, 500]
    assert [line for batch in cut for line in batch] == story


def test_bad_lines_beyond_the_limit_are_counted_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"[]\n" * (MOST_PRINTED + 7))

    code = call(["import", str(tmp_path / "bad.jsonl"), "--state-dir", str(tmp_path / "state")])

    out, err = capsys.readouterr()
    assert code == 65
    assert out == f"imported 0 (new 0, changed 0, unchanged 0), rejected {MOST_PRINTED + 7}\n"
    assert err.splitlines()[-2] == "slumberd: and 7 more bad lines; --json lists all"


def test_import_of_many_misspelled_keys_says_how_many_more_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = orjson.dumps(episode("e1", metadata={"confidance": 1}).model_dump(mode="json"))
    (tmp_path / "odd.jsonl").write_bytes((line + b"\n") * (MOST_PRINTED + 7))

    call(["import", str(tmp_path / "odd.jsonl"), "--state-dir", str(tmp_path / "state")])

    err = capsys.readouterr().err
    assert err.splitlines()[-1] == "slumberd: and 7 more warnings; --json lists all"


def test_closed_standard_input_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(InputError, match="standard input is closed"), open_input("-"):
        pass


def test_unknown_key_rejects_a_line_and_a_misspelled_metadata_key_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triple = {"Subject": "alice", "predicate": "likes", "object": "tea"}
    content = [
        episode("e1").model_dump_json(),
        episode("e2", metadata=triple).model_dump_json().replace('"metadata"', '"metdata"'),
        episode("e3", metadata=triple).model_dump_json(),
    ]
    (tmp_path / "some.jsonl").write_text("\n".join(content))

    code = call(["import", str(tmp_path / "some.jsonl"), "--state-dir", str(tmp_path / "state")])

    out, err = capsys.readouterr()
    assert code == 65
    assert out == "imported 2 (new 2, changed 0, unchanged 0), rejected 1\n"
    assert err.splitlines() == [
        "slumberd: line 2: unknown key 'metdata'; did you mean 'metadata'?",
        "slumberd: line 3: warning: metadata key 'Subject' is not read; did you mean 'subject'?",
    ]


def test_warnings_are_listed_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.jsonl").write_text(episode(metadata={"Intent": "delete"}).model_dump_json())

    code = call([
        "import", str(tmp_path / "some.jsonl"), "--json", "--state-dir", str(tmp_path / "state"),
    ])  # fmt: skip

    document = orjson.loads(capsys.readouterr().out)
    assert code == 0
    assert document["new"] == 1
    assert document["warnings"] == [
        {"line": 1, "warning": "metadata key 'Intent' is not read; did you mean 'intent'?"}
    ]
