"""The records of a document are found in any shape, however its bytes arrive."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.interchange.json_documents import RawRecord, read_items
from slumberd.model.errors import WrongFormatError

pytestmark = pytest.mark.unit

TEXTS = st.text(alphabet='ab"\\{}[],:\n\u00e9 ', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.fixed_dictionaries({"id": TEXTS, "x": VALUES}), max_size=5)


class Trickle(io.BytesIO):
    """A stream that returns a few bytes at a time, as a slow pipe may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(7 if size is None or size < 0 else min(size, 7))


def items_of(content: bytes, *, most_bytes: int = 1024**2) -> list[RawRecord]:
    return list(
        read_items(Trickle(content), "sample", ("results", "relations"), most_bytes=most_bytes)
    )


def decoded(items: list[RawRecord]) -> list[tuple[str, Any]]:
    assert [item.problem for item in items if item.problem] == []
    return [(item.key, json.loads(item.text)) for item in items]


@pytest.mark.slow
@given(records=RECORDS, indent=st.sampled_from([None, 2]), after=st.sampled_from(["", "\n\n"]))
def test_array_has_its_records(records: list[Any], indent: int | None, after: str) -> None:
    found = items_of((json.dumps(records, indent=indent) + after).encode())

    assert decoded(found) == [("", record) for record in records]
    assert [item.path for item in found] == [f"[{place}]" for place in range(len(records))]


@pytest.mark.slow
@given(records=RECORDS, relations=RECORDS, indent=st.sampled_from([None, 1]), other=VALUES)
def test_object_has_the_records_of_its_arrays(
    records: list[Any], relations: list[Any], indent: int | None, other: Any
) -> None:
    document = {"message": other, "results": records, "total": 3, "relations": relations}

    found = items_of(json.dumps(document, indent=indent).encode())

    assert decoded(found) == [
        *(("results", record) for record in records),
        *(("relations", relation) for relation in relations),
    ]


@pytest.mark.slow
@given(pages=st.lists(RECORDS, min_size=1, max_size=3))
def test_pages_that_follow_each_other_are_read_as_one(pages: list[list[Any]]) -> None:
    content = "\n".join(json.dumps({"results": page}, indent=1) for page in pages)

    assert decoded(items_of(content.encode())) == [
        ("results", one) for page in pages for one in page
    ]


@pytest.mark.slow
@given(records=RECORDS)
def test_json_lines_have_a_record_each(records: list[Any]) -> None:
    found = items_of("\n".join(map(json.dumps, records)).encode())

    assert decoded(found) == [("", record) for record in records]
    assert [item.line for item in found] == [*range(1, len(records) + 1)]


@pytest.mark.slow
@given(records=RECORDS)
def test_record_has_the_line_of_its_first_character(records: list[Any]) -> None:
    content = json.dumps({"results": records}, indent=2)

    for item in items_of(content.encode()):
        behind = "\n".join(content.split("\n")[item.line - 1 :]).lstrip()
        assert behind.startswith(item.text.decode())


@pytest.mark.slow
def test_line_that_is_no_json_does_not_stop_json_lines() -> None:
    first, second, third = items_of(b'\n{"a": 1}\n{oops\n{"a": 2}\n')

    assert (first.line, second.line, third.line) == (2, 3, 4)
    assert (first.text.strip(), third.text.strip()) == (b'{"a": 1}', b'{"a": 2}')


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"# Notes\n", "line 1 .*'#' begins neither", id="markdown"),
        pytest.param(b'\n{\n"a": 1}\n', "line 3 .*'results' or 'relations' is needed", id="no key"),
        pytest.param(b'{"results":\n3}', "'results' holds no array", id="key without an array"),
        pytest.param(b'{"results"', "':' is missing before the end", id="ends early"),
        pytest.param(b'{\n"results": [}', "a value is missing", id="no value"),
        pytest.param(b"{\n3}", "'}' is missing before '3'", id="no key at all"),
        pytest.param(b'{"x": 12 34}', "',' or '}' is missing", id="no comma"),
    ],
)
def test_other_beginning_is_a_wrong_format(content: bytes, problem: str) -> None:
    with pytest.raises(WrongFormatError, match=problem) as raised:
        items_of(content)

    assert "name the format of the input with --format" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b'[{"a": 1},\n{"a": "x', "the input ends within a value", id="cut"),
        pytest.param(b'[{"a": 1},\n]', "a value is missing before ']'", id="comma at the end"),
        pytest.param(b'[{"a": 1}\n{"a": 2}]', "',' or ']' is missing", id="no comma"),
        pytest.param(b'[{"a": 1},\n{"a": "' + b"x" * 5000 + b'"}]', "longer than", id="too long"),
    ],
)
def test_malformed_document_has_its_records_and_a_problem(content: bytes, problem: str) -> None:
    first, last = items_of(content, most_bytes=1000)

    assert (first.text, first.line, first.problem) == (b'{"a": 1}', 1, "")
    assert problem in last.problem
    assert "the rest is not read" in last.problem
    assert last.line == 2


def test_byte_order_mark_is_skipped() -> None:
    assert decoded(items_of(b"\xef\xbb\xbf[1, 2]")) == [("", 1), ("", 2)]


@pytest.mark.parametrize("kept", [12, 200])
def test_damaged_gzip_is_a_problem(kept: int) -> None:
    content = json.dumps({"results": [{"id": str(n)} for n in range(9_999)]}).encode()
    stream = io.BytesIO(gzip.compress(content)[:kept])

    opened = cast("BinaryIO", gzip.GzipFile(fileobj=stream))

    *_, last = read_items(opened, "sample", ("results",))

    assert "ends early" in last.problem


def test_empty_file_has_no_records() -> None:
    assert items_of(b"") == items_of(b"\n\n") == []
