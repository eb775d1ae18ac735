"""The YAML reader returns values with their places, or refuses a file with its mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.rules.file_access import MOST_BYTES, Place
from slumberd.rules.yaml_reader import MOST_MENDED, Document, dotted_path, read_document

pytestmark = pytest.mark.unit


def _read(directory: Path, text: str | bytes) -> Document:
    file = directory / "sheet.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(file)


def _mistakes_of(document: Document) -> list[tuple[int, int, str]]:
    return [(mistake.line, mistake.column, mistake.problem) for mistake in document.mistakes]


def test_document_contains_the_values_of_the_file(tmp_path: Path) -> None:
    document = _read(tmp_path, "a: {b: [1, -2.5, 1e3, true, ~, text]}\nc: |\n  two\n  lines\n")

    assert document.value == {
        "a": {"b": [1, -2.5, 1000.0, True, None, "text"]},
        "c": "two\nlines\n",
    }
    assert document.readable
    assert document.mistakes == ()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_document_without_a_value_is_none(tmp_path: Path, text: str) -> None:
    document = _read(tmp_path, text)

    assert document.value is None
    assert document.readable


def test_document_contains_the_place_of_every_value_and_key(tmp_path: Path) -> None:
    document = _read(tmp_path, "rules:\n  - id: tea\n    cadence: {every: 5}\n")

    assert document.values[("rules", 0, "cadence", "every")] == Place(3, 22)
    assert document.keys[("rules", 0, "cadence")] == Place(3, 5)


def test_mistake_about_a_missing_key_has_the_place_of_its_parent(tmp_path: Path) -> None:
    document = _read(tmp_path, "rules:\n  - id: tea\n")

    mistake = document.mistake(("rules", 0, "cadence", "every"), "is missing")

    assert str(mistake) == f"{document.file}:2:5: rules[0].cadence.every: is missing"


@pytest.mark.parametrize(
    ("trail", "value"),
    [
        pytest.param(("a", 1, "b"), 5, id="there"),
        pytest.param((), {"a": [0, {"b": 5}]}, id="root"),
        pytest.param(("a", 2), None, id="beyond a list"),
        pytest.param(("a", "b"), None, id="key of a list"),
        pytest.param(("b",), None, id="no such key"),
        pytest.param(("a", 1, "b", "c"), None, id="below a number"),
    ],
)
def test_value_is_found_by_its_path_of_keys(
    tmp_path: Path, trail: tuple[Any, ...], value: object
) -> None:
    document = _read(tmp_path, "a: [0, {b: 5}]\n")

    assert document.at(trail) == value


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    document = _read(tmp_path, b"\xef\xbb\xbfa: 1\n")

    assert document.value == {"a": 1}


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        pytest.param("no", "quote it", id="boolean of YAML 1.1"),
        pytest.param("On", "quote it", id="boolean in capitals"),
        pytest.param("0300", "has a leading 0, and is octal", id="octal"),
        pytest.param("0x1F", "not a decimal number", id="hexadecimal"),
        pytest.param("1:30", "base 60", id="sexagesimal"),
        pytest.param("1_000", "contains '_'", id="underscores"),
        pytest.param(".inf", "not a finite number", id="infinity"),
        pytest.param(".NaN", "not a finite number", id="not a number"),
        pytest.param("2026-01-01", "is a date", id="date"),
        pytest.param("9" * 19, "more digits than", id="too many digits"),
        pytest.param("a\u200bb", "an invisible character", id="zero width space"),
        pytest.param("a\u00a0b", "a space that YAML does not know", id="non-breaking space"),
    ],
)
def test_reader_refuses_an_ambiguous_plain_word(tmp_path: Path, word: str, remedy: str) -> None:
    document = _read(tmp_path, f"key: {word}\n")

    [(line, column, problem)] = _mistakes_of(document)
    assert (line, column) == (1, 6)
    assert remedy in problem


@pytest.mark.parametrize("word", ["no", "0300", "1:30", "2026-01-01", "*/5 * * * *"])
def test_quoted_word_is_text(tmp_path: Path, word: str) -> None:
    document = _read(tmp_path, f'key: "{word}"\n')

    assert document.value == {"key": word}
    assert document.mistakes == ()


def test_number_beyond_the_range_of_floats_is_text(tmp_path: Path) -> None:
    document = _read(tmp_path, "key: 1e999\n")

    assert document.value == {"key": "1e999"}


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        pytest.param("a: 1\na: 2\n", (2, 1), "first in line 1", id="key twice"),
        pytest.param("on: 1\n", (1, 1), "boolean to some YAML readers", id="boolean key"),
        pytest.param("5: 1\n", (1, 1), "write '5' in quotes", id="number as key"),
        pytest.param("a: &x 1\n", (1, 4), "leave out '&x'", id="anchor"),
        pytest.param("a: *x\n", (1, 4), "aliases are not read", id="alias"),
        pytest.param("a: !!int 1\n", (1, 4), "leave out '!!int'", id="tag"),
        pytest.param("a: !x {b: c}\n", (1, 4), "leave out '!x'", id="tag of a mapping"),
        pytest.param("<<: {a: 1}\n", (1, 1), "merge keys are not read", id="merge key"),
        pytest.param("a: */5 * * * *\n", (1, 4), 'as "*/5 * * * *"', id="cron expression"),
        pytest.param("a: * * * * *\n", (1, 4), "begins with '*'", id="every minute"),
        pytest.param("a: {b: @daily}\n", (1, 8), 'as "@daily"', id="macro"),
        pytest.param("a: `x`\n", (1, 4), "begins with '`'", id="backtick"),
        pytest.param("a: %x\n", (1, 4), "begins with '%'", id="per cent"),
    ],
)
def test_reader_continues_after_a_refused_value(
    tmp_path: Path, text: str, place: tuple[int, int], problem: str
) -> None:
    document = _read(tmp_path, text + "z: 1_0\n")

    first, second = _mistakes_of(document)
    assert first[:2] == place
    assert problem in first[2]
    assert "contains '_'" in second[2]
    assert document.readable


def test_reader_stops_after_too_many_unquoted_values(tmp_path: Path) -> None:
    document = _read(tmp_path, "a:\n" + "- @x\n" * (MOST_MENDED + 5) + "b: 1_0\n")

    assert len(document.mistakes) == MOST_MENDED + 1
    assert not document.readable


def test_reader_reports_a_repeated_key_once(tmp_path: Path) -> None:
    document = _read(tmp_path, "a: {b: {c: 1}}\na: {b: {c: 2, c: 3}}\n")

    assert [mistake[:2] for mistake in _mistakes_of(document)] == [(2, 1), (2, 15)]


def test_reader_keeps_the_first_of_two_equal_keys(tmp_path: Path) -> None:
    document = _read(tmp_path, "a: {b: 1}\na: {b: 2}\n")

    assert document.value == {"a": {"b": 1}}
    assert document.values[("a", "b")] == Place(1, 8)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        pytest.param("a: 'x' = y\n", (1, 8), "quote the whole value", id="text after quotes"),
        pytest.param("a: b: c\n", (1, 5), "no ':' is allowed here", id="colon in a value"),
        pytest.param("a:\n\tb: 1\n", (2, 1), "YAML needs spaces here", id="tab"),
        pytest.param('a: "x\nb: 1\n', (1, 4), "never ends", id="open quotes"),
        pytest.param("a: [1, 2\n", (1, 4), "no matching ']'", id="open bracket"),
        pytest.param("a: [1,,2]\n", (1, 7), "value, or the closing bracket", id="nothing"),
        pytest.param("a: {b: 2\n", (1, 4), "no matching '}'", id="open brace"),
        pytest.param("a: 1\nb\nc: 2\n", (2, 1), "':' and a space", id="key without colon"),
        pytest.param("a: 1\nb:2\nc: 2\n", (2, 1), "':' and a space", id="colon without space"),
        pytest.param("%YAML 3.0\n---\na: 1\n", (1, 1), "not YAML", id="version"),
        pytest.param("? [a]\n: 1\n", (1, 3), "a key must be text", id="list as key"),
        pytest.param("---\na: 1\n---\nb: 1\n", (3, 1), "second document", id="two documents"),
        pytest.param("a: b\nc: \x07\n", (2, 4), "character U+0007", id="control character"),
        pytest.param("a: " + "[" * 100_000, (1, 24), "deeper than 20", id="depth"),
        pytest.param("[" + "1," * 10_000 + "]", (1, 19_996), "too many values", id="events"),
    ],
)
def test_document_with_a_syntax_error_is_not_readable(
    tmp_path: Path, text: str, place: tuple[int, int], problem: str
) -> None:
    document = _read(tmp_path, text)

    [(line, column, message)] = _mistakes_of(document)
    assert (line, column) == place
    assert problem in message
    assert not document.readable
    assert document.value is None


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        pytest.param(b"a: \x00", (1, 4), "contains a NUL byte", id="binary"),
        pytest.param(b"a: b\nc: \xff", (2, 4), "is not in UTF-8", id="latin"),
        pytest.param(b"\xef\xbb\xbfa: \xc3\xa9\xe9", (1, 5), "is not in UTF-8", id="after a mark"),
        pytest.param("a: b".encode("utf-16"), (0, 0), "is in UTF-16", id="UTF-16"),
        pytest.param(b"#" * (MOST_BYTES + 1), (0, 0), "larger than 256 KiB", id="too large"),
    ],
)
def test_file_that_is_not_text_is_not_readable(
    tmp_path: Path, content: bytes, place: tuple[int, int], problem: str
) -> None:
    document = _read(tmp_path, content)

    [(line, column, message)] = _mistakes_of(document)
    assert (line, column) == place
    assert problem in message
    assert not document.readable


def test_largest_file_is_read(tmp_path: Path) -> None:
    document = _read(tmp_path, b"#" * MOST_BYTES)

    assert document.readable


def test_reader_refuses_special_files_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")

    problems = [
        read_document(tmp_path / name).mistakes[0].problem for name in ("fifo", ".", "none", "loop")
    ]

    assert problems == [
        "is not a regular file",
        "is a directory, not a file",
        "does not exist",
        "cannot be read: Too many levels of symbolic links",
    ]


@pytest.fixture
def file_of_others(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "sheet.yaml"
    file.touch(0o000)
    mine = os.geteuid()
    if mine == 0:  # root reads everything
        os.seteuid(65534)
    yield file
    os.seteuid(mine)


def test_file_without_permission_is_refused(file_of_others: Path) -> None:
    assert "no permission to read it" in read_document(file_of_others).mistakes[0].problem


def test_dotted_path_escapes_control_characters() -> None:
    assert dotted_path(("rules", 0, "a\33[2J", "b")) == r"rules[0].a\x1b[2J.b"


def test_link_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.yaml").write_text("password: 5\n")
    (tmp_path / "home-too").mkdir()
    (tmp_path / "home-too" / "a.yaml").write_text("a: 1\n")
    links = {"file": "../secret.yaml", "brother": "../home-too/a.yaml", "device": "/dev/zero"}
    for name, target in links.items():
        (home / name).symlink_to(target)

    documents = {name: read_document(home / name, inside=home) for name in links}

    assert not any(document.readable or document.text for document in documents.values())
    problem = documents["file"].mistakes[0].problem
    assert (
        problem
        == f"leads out of its directory, to '{tmp_path}/secret.yaml'; put the file itself here"
    )
    assert "leads out" in documents["brother"].mistakes[0].problem
    assert documents["device"].mistakes[0].problem == "is not a regular file"


def test_directory_link_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.yaml").write_text("a: 1\n")
    (home / "inner").symlink_to("../elsewhere")
    (home / "a.yaml").symlink_to("inner/a.yaml")

    document = read_document(home / "a.yaml", inside=home)

    assert "leads out of its directory" in document.mistakes[0].problem


def test_links_that_stay_inside_are_read(tmp_path: Path) -> None:
    version = tmp_path / "real" / "..2026_01_01"
    version.mkdir(parents=True)
    (version / "a.yaml").write_text("a: 1\n")
    (tmp_path / "real" / "..data").symlink_to("..2026_01_01")
    (tmp_path / "real" / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "home").symlink_to("real")

    document = read_document(tmp_path / "home" / "a.yaml", inside=(tmp_path / "home").resolve())

    assert document.value == {"a": 1}
    assert document.mistakes == ()


def test_link_is_read_when_no_directory_limits_it(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("a: 1\n")
    (tmp_path / "link.yaml").symlink_to("real.yaml")

    assert read_document(tmp_path / "link.yaml").value == {"a": 1}


@pytest.mark.parametrize(
    ("mode", "by_root", "refused"),
    [
        pytest.param(0o666, True, True, id="everybody may write"),
        pytest.param(0o602, True, True, id="everybody except the group may write"),
        pytest.param(0o664, True, False, id="the group may write"),
        pytest.param(0o666, False, False, id="read by another user"),
    ],
)
def test_root_refuses_a_file_that_everybody_can_write(
    tmp_path: Path, mode: int, by_root: bool, refused: bool
) -> None:
    file = tmp_path / "sheet.yaml"
    file.write_text("a: 1_0\n")
    file.chmod(mode)

    document = read_document(file, by_root=by_root)

    problems = [mistake.problem for mistake in document.mistakes]
    assert any("`chmod o-w`" in problem for problem in problems) == refused
    assert "contains '_'" in problems[-1]


def test_reader_reports_a_parent_directory_that_everybody_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # the loader that lists this directory reports it
    version = tmp_path / "..2026"
    version.mkdir()
    version.chmod(0o1777)
    (version / "a.yaml").write_text("a: 1\n")
    (tmp_path / "a.yaml").symlink_to("..2026/a.yaml")

    document = read_document(tmp_path / "a.yaml", inside=tmp_path, by_root=True)

    [mistake] = document.mistakes
    assert mistake.file == str(version)
    assert "(mode 1777)" in mistake.problem
