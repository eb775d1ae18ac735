"""Episodes from JSON lines: a line is an episode, is empty, or is bad for a reason."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pytest

from slumberd.cli.jsonl import open_input
from slumberd.integrations.interchange.episode_lines import read_episode_lines as read_lines
from slumberd.integrations.interchange.records import GivenScope, ImportedRecord
from slumberd.model.errors import InputError, NoInputError
from tests.support.builders import episode

pytestmark = pytest.mark.unit


def line(id: str = "e1") -> bytes:
    return episode(id).model_dump_json().encode() + b"\n"


def lines_of(content: bytes) -> list[ImportedRecord]:
    return list(read_lines(io.BytesIO(content)))


def test_lines_are_read_as_episodes_with_their_numbers() -> None:
    first, second = lines_of(line("e1") + line("e2"))

    assert first == ImportedRecord(1, (episode("e1"),))
    assert second == ImportedRecord(2, (episode("e2"),))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(line().rstrip(), id="no newline at the end"),
        pytest.param(line().replace(b"\n", b"\r\n"), id="lines end as on Windows"),
        pytest.param(b"\xef\xbb\xbf" + line(), id="byte order mark"),
    ],
)
def test_line_is_read_with_any_beginning_and_ending(content: bytes) -> None:
    assert [line_read.episodes for line_read in lines_of(content)] == [(episode(),)]


def test_empty_lines_are_skipped_and_counted() -> None:
    assert [line_read.line for line_read in lines_of(b"\n  \t\n" + line() + b"\r\n" + line())] == [
        3,
        5,
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"{oops}\n", "Invalid JSON", id="no json"),
        pytest.param(b"[1]\n", "the line is not a JSON object", id="an array"),
        pytest.param(b"\xff\xfe\n", "Invalid JSON", id="no utf-8"),
        pytest.param(line().replace(b'"user":"alice",', b""), "key 'user' is missing", id="key"),
        pytest.param(line().replace(b"00Z", b"0o"), "timestamp: .* datetime", id="timestamp"),
        pytest.param(line().replace(b'"alice"', b"7"), "user: .* string", id="type"),
        pytest.param(
            line().replace(b'"metadata"', b'"metdata"'),
            "^unknown key 'metdata'; did you mean 'metadata'\\?$",
            id="a key that is misspelled",
        ),
        pytest.param(
            line().replace(b'"user":', b'"x":1,"user":'),
            "^unknown key 'x'; known are id, content, timestamp",
            id="a key that is not known",
        ),
    ],
)
def test_bad_line_has_a_reason(content: bytes, problem: str) -> None:
    (bad,) = lines_of(content)

    assert bad.episodes == ()
    assert re.search(problem, bad.problem)


def test_reason_names_the_column_and_no_line() -> None:
    (bad,) = lines_of(b'{"id": }\n')

    assert bad.problem.endswith("at column 8")


def test_too_long_line_is_a_bad_line_and_the_next_line_is_read() -> None:
    first, second = read_lines(io.BytesIO(b"x" * 5000 + b"\n" + line()), most_bytes=1000)

    assert first == ImportedRecord(1, problem="is longer than 0 MiB")
    assert second == ImportedRecord(2, (episode(),))


def test_gzip_is_read_from_a_file_of_any_name(tmp_path: Path) -> None:
    file = tmp_path / "episodes"
    file.write_bytes(gzip.compress(line()))

    with open_input(str(file)) as source:
        found = list(read_lines(source.stream))

    assert found == [ImportedRecord(1, (episode(),))]
    assert source.size == file.stat().st_size
    assert source.modified is not None
    assert source.modified.timestamp() == pytest.approx(file.stat().st_mtime)


def test_truncated_gzip_yields_its_complete_lines_and_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "episodes.gz"
    file.write_bytes(gzip.compress(line("e1")) + gzip.compress(line("e2"))[:-20])

    with open_input(str(file)) as source:
        *good, last = read_lines(source.stream)

    assert [line_read.episodes for line_read in good] == [(episode("e1"),)]
    assert "ends early" in last.problem


def test_empty_file_holds_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with open_input(str(tmp_path / "empty")) as source:
        assert list(read_lines(source.stream)) == []


def test_missing_file_raises_no_input(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="does not exist"), open_input(str(tmp_path / "none")):
        pass


def test_directory_raises_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"), open_input(str(tmp_path)):
        pass


def test_misspelled_metadata_key_is_a_doubt_and_not_a_problem() -> None:
    (doubtful,) = lines_of(line().replace(b"{}", b'{"predicat":"likes"}'))

    assert doubtful.episodes == (episode(metadata={"predicat": "likes"}),)
    assert doubtful.doubts == ("metadata key 'predicat' is not read; did you mean 'predicate'?",)


def test_given_scope_replaces_that_of_every_line() -> None:
    (found,) = read_lines(io.BytesIO(line()), GivenScope(user="bob", session="s9"))

    assert found.episodes == (episode(user="bob", session="s9"),)
