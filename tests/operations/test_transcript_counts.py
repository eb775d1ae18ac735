"""The file of the latest counts of transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.model.errors import StoreError
from slumberd.operations import transcript_counts
from slumberd.operations.transcript_counts import (
    FILE,
    TranscriptCounts,
    TranscriptFile,
    read_transcript_counts,
)

pytestmark = pytest.mark.unit


def counts(name: str = "a", **fields: object) -> TranscriptCounts:
    found = TranscriptCounts("ada", "desk", "codex", "1", "s", name, 1.0, 10, 1, 1, {})
    return found._replace(**fields)  # type: ignore[arg-type]


def test_latest_counts_of_each_transcript_are_kept(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path)
    for one in (counts("a"), counts("b"), counts("a", unknown={"x": 1}, lines=12)):
        file.record(one)

    assert read_transcript_counts(tmp_path) == [
        counts("b"), counts("a", unknown={"x": 1}, lines=12)
    ]  # fmt: skip
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_counts_that_say_nothing_new_are_not_written(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path)
    file.record(counts())
    before = (tmp_path / FILE).stat()
    file.record(counts(lines=11, person=2, assistant=5, at=2.0))

    assert (tmp_path / FILE).stat() == before
    file.record(counts(lines=12, at=3.0))
    assert read_transcript_counts(tmp_path) == [counts(lines=12, at=3.0)]


def test_transcript_that_was_read_longest_ago_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_counts, "MOST_TRANSCRIPTS", 3)
    file = TranscriptFile(tmp_path)
    for n in range(5):
        file.record(counts(f"t{n}"))

    found = [one.transcript for one in read_transcript_counts(tmp_path)]
    assert found == ["t2", "t3", "t4"]


async def test_shards_that_share_the_file_lose_nothing(tmp_path: Path) -> None:
    one, other = TranscriptFile(tmp_path), TranscriptFile(tmp_path)
    one.record(counts("a"))
    other.record(counts("b", user="bob"))
    one.record(counts("c"))
    await other.forget("ada")

    assert [each.transcript for each in read_transcript_counts(tmp_path)] == ["b"]


@pytest.mark.parametrize("file", [FILE, "transcripts.new"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"transcripts": [{"user": "ada"', id="cut"),
        pytest.param(b'{"transcripts": [{"user": "ada", "field": 1}]}', id="of another version"),
    ],
)
async def test_erasure_removes_what_cannot_be_read(
    tmp_path: Path, file: str, content: bytes
) -> None:
    (tmp_path / file).write_bytes(content)

    await TranscriptFile(tmp_path).forget("ada")

    assert b"ada" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


async def test_counts_are_written_after_they_could_not_be(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path)
    file.record(counts("a"))
    obstacle = tmp_path / "transcripts.new"
    obstacle.mkdir()
    with pytest.raises(StoreError):
        file.record(counts("b"))
    with pytest.raises(StoreError):
        await file.forget("ada")
    obstacle.rmdir()

    file.record(counts("b", user="bob"))
    file.record(counts("b"))
    await file.forget("bob")

    assert {one.name for one in read_transcript_counts(tmp_path)} == {
        counts("a").name, counts("b").name
    }  # fmt: skip
