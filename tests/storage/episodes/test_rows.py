"""Rows: written episodes are read back equal; rows of other programs are read or have a fault."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import Episode, EpisodeVersion, microseconds
from slumberd.model.errors import InputError, MemoryScopeError
from slumberd.model.scope import Scope, ScopeMismatch
from slumberd.storage.engine import Mangled
from slumberd.storage.episodes.rows import (
    CONTENT_UNREADABLE,
    FAULTS,
    ID_UNUSABLE,
    METADATA_UNREADABLE,
    SCOPE_MISMATCH,
    SCOPE_UNREADABLE,
    TIMESTAMP_NAIVE,
    TIMESTAMP_UNREADABLE,
    Row,
    decode,
    encode,
    episode_of,
    same,
)
from slumberd.storage.sqlite.session import lenient_text
from tests.support.builders import episode, version

pytestmark = pytest.mark.unit

ALICE = Scope("alice", "s1", "rag")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
INSTANTS = st.datetimes(
    min_value=datetime(2, 1, 1),  # noqa: DTZ001 # hypothesis adds the zone
    max_value=datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


def written(**overrides: Any) -> Row:
    source = episode(**overrides)
    return encode(source, Scope(source.user, source.session, source.agent), operation="put")


def read(row: Row, mismatch: ScopeMismatch = "quarantine") -> EpisodeVersion:
    return decode(7, row, mismatch=mismatch)


def reason(found: EpisodeVersion) -> str:
    return found.fault.partition(": ")[0]


def test_a_row_is_encoded_as_stargraph_encodes_it() -> None:
    row = written(metadata={"b": 1, "a": "é"})

    assert row == Row(
        id="e1",
        scope_key="/user/alice/session/s1/agent/rag/",
        content=orjson.dumps(
            {
                "content": "content of e1",
                "source_node": "chat",
                "agent": "rag",
                "user": "alice",
                "session": "s1",
            }
        ),
        timestamp="2026-01-01T12:00:00+00:00",
        metadata='{"b":1,"a":"é"}'.encode(),
    )


@pytest.mark.slow
@given(content=TEXT, metadata=st.dictionaries(TEXT, JSON, max_size=4), timestamp=INSTANTS)
def test_every_episode_that_can_be_written_is_read_back_equal(
    content: str, metadata: dict[str, Any], timestamp: datetime
) -> None:
    original = episode(content=content, metadata=metadata, timestamp=timestamp)

    found = read(encode(original, ALICE, operation="put"))

    assert episode_of(found) == original
    assert found.fault == ""


@given(
    timestamp=INSTANTS | INSTANTS.map(lambda at: at.astimezone(UTC)),
    separator=st.sampled_from("T "),
    utc=st.sampled_from(["+00:00", "Z"]),
)
def test_an_episode_has_its_instant_in_utc_however_its_row_has_it(
    timestamp: datetime, separator: str, utc: str
) -> None:
    text = timestamp.isoformat(separator).replace("+00:00", utc)
    found = read(written()._replace(timestamp=text))

    decoded = episode_of(found, text)

    assert decoded == episode_of(found)
    assert decoded.timestamp == datetime.fromisoformat(text)
    assert decoded.timestamp.tzinfo is UTC


@given(INSTANTS, INSTANTS)
def test_the_text_order_of_our_timestamps_is_the_order_of_instants(
    left: datetime, right: datetime
) -> None:
    first, second = written(timestamp=left).timestamp, written(timestamp=right).timestamp

    assert (first < second) == (left < right)


def test_a_whole_second_sorts_before_its_first_microsecond() -> None:
    whole = datetime(2026, 1, 1, tzinfo=UTC)

    texts = [written(timestamp=whole + timedelta(microseconds=n)).timestamp for n in (0, 1)]

    assert texts == ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.000001+00:00"]
    assert texts == sorted(texts)


def test_a_tuple_is_written_as_the_array_that_it_is_in_json() -> None:
    assert read(written(metadata={"replaces": ("a", "b")})).metadata == {"replaces": ["a", "b"]}


class Level(Enum):
    """Something that a host counts."""

    LOW = "low"
    UNKNOWN = math.nan


@dataclass
class Weight:
    """Something that a host measures."""

    grams: float


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        pytest.param(datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00", id="datetime"),
        pytest.param(datetime(2026, 1, 1), "2026-01-01T00:00:00", id="naive datetime"),  # noqa: DTZ001 # as hosts have it
        pytest.param(date(2026, 1, 1), "2026-01-01", id="date"),
        pytest.param(time(12, 30), "12:30:00", id="time"),
        pytest.param(UUID(int=7), "00000000-0000-0000-0000-000000000007", id="UUID"),
        pytest.param(Level.LOW, "low", id="enum"),
        pytest.param(Weight(1.5), {"grams": 1.5}, id="dataclass"),
        pytest.param((1, (2,)), [1, [2]], id="tuple"),
    ],
)
def test_metadata_that_orjson_takes_is_stored_as_orjson_writes_it(
    value: object, stored: object
) -> None:
    source = episode(metadata={"x": {"y": [value]}})

    row = encode(source, Scope("alice", "s1", "rag"), operation="put")

    assert orjson.loads(row.metadata) == {"x": {"y": [stored]}}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param({"x": float("nan")}, "metadata.x is nan", id="nan"),
        pytest.param({"x": [1, float("inf")]}, r"metadata.x\[1\] is inf", id="infinity"),
        pytest.param({"x": 2**64}, "64-bit", id="an int over 64 bits"),
        pytest.param({"x": "\ud800"}, "surrogates", id="a lone surrogate"),
        pytest.param({1: "x"}, "must be str", id="a key that is no text"),
        pytest.param({"x": {1, 2}}, "set", id="a set"),
        pytest.param({"x": Weight(math.inf)}, "metadata.x.grams is inf", id="in a dataclass"),
        pytest.param({"x": [Level.UNKNOWN]}, r"metadata.x\[0\] is nan", id="in an enum"),
        pytest.param({"x": {"y": b""}}, "bytes", id="bytes"),
    ],
)
def test_metadata_that_would_not_be_read_back_equal_is_refused_and_named(
    value: dict[Any, Any], named: str
) -> None:
    invalid = Episode.model_construct(**(episode().model_dump() | {"metadata": value}))

    with pytest.raises(InputError, match=named) as caught:
        encode(invalid, ALICE, operation="put")

    assert "'e1'" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("id", "", id="empty id"),
        pytest.param("id", "a\0b", id="nul in the id"),
        pytest.param("id", "\udfff", id="surrogate in the id"),
        pytest.param("content", "\ud800", id="surrogate in the content"),
        pytest.param(
            "timestamp",
            datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
            id="before the year 1",
        ),
    ],
)
def test_an_episode_that_no_row_can_hold_is_refused(field: str, value: object) -> None:
    invalid = Episode.model_construct(**(episode().model_dump() | {field: value}))

    with pytest.raises(InputError):
        encode(invalid, ALICE, operation="put")


def test_invalid_scope_is_refused() -> None:
    with pytest.raises(MemoryScopeError, match="user is empty"):
        encode(episode(user=""), Scope("", "s1", "rag"), operation="put")


FAULTY = [
    pytest.param("id", None, ID_UNUSABLE, id="no id"),
    pytest.param("id", "", ID_UNUSABLE, id="an empty id"),
    pytest.param("id", b"e1", ID_UNUSABLE, id="an id of bytes"),
    pytest.param("id", Mangled("caf\\xe9"), ID_UNUSABLE, id="an id that is no utf-8"),
    pytest.param("scope_key", "/user/alice/", SCOPE_UNREADABLE, id="a key cut short"),
    pytest.param("scope_key", b"\xff", SCOPE_UNREADABLE, id="a key of bytes"),
    pytest.param("scope_key", "/user//session/s1/agent/rag/", SCOPE_UNREADABLE, id="no user"),
    pytest.param("scope_key", Scope("bob", "s1", "rag").key, SCOPE_MISMATCH, id="another's key"),
    pytest.param("content", b"{", CONTENT_UNREADABLE, id="content cut short"),
    pytest.param("content", b"[]", CONTENT_UNREADABLE, id="content that is no object"),
    pytest.param(
        "content",
        written(content="x").content.replace(b'"x"', b"5"),
        CONTENT_UNREADABLE,
        id="content whose text is a number",
    ),
    pytest.param("content", None, CONTENT_UNREADABLE, id="content that is NULL"),
    pytest.param("content", 5, CONTENT_UNREADABLE, id="content that is a number"),
    pytest.param("metadata", b"\xff", METADATA_UNREADABLE, id="metadata that is no utf-8"),
    pytest.param(
        "metadata", Mangled('{"a":"\\\\xe9"}'), METADATA_UNREADABLE, id="text that is no utf-8"
    ),
    pytest.param("scope_key", Mangled(ALICE.key), SCOPE_UNREADABLE, id="a key that is no utf-8"),
    pytest.param("metadata", b'"x"', METADATA_UNREADABLE, id="metadata that is a text"),
    pytest.param("metadata", b'{"x":"\\ud800"}', METADATA_UNREADABLE, id="a lone surrogate"),
    pytest.param("timestamp", "yesterday", TIMESTAMP_UNREADABLE, id="a word for a timestamp"),
    pytest.param("timestamp", 1767268800, TIMESTAMP_UNREADABLE, id="a number for a timestamp"),
    pytest.param("timestamp", "20260101T120000Z", TIMESTAMP_UNREADABLE, id="the basic format"),
    pytest.param("timestamp", "2026-01-01", TIMESTAMP_NAIVE, id="a date"),
    pytest.param("timestamp", "2026-01-01T12:00:00", TIMESTAMP_NAIVE, id="no offset"),
    pytest.param(
        "timestamp", "0001-01-01T00:00:00+14:00", TIMESTAMP_UNREADABLE, id="before the year 1"
    ),
]


@pytest.mark.parametrize(("column", "value", "expected"), FAULTY)
def test_a_row_that_cannot_be_read_is_matched_and_its_fault_named(
    column: str, value: Any, expected: str
) -> None:
    row = written()._replace(**{column: value})

    found = decode(7, row, mismatch="quarantine", naive="refuse", matched=False)

    assert reason(found) == expected
    assert expected in FAULTS
    assert found.contested == (expected in {ID_UNUSABLE, SCOPE_UNREADABLE, SCOPE_MISMATCH})
    assert found.matched
    assert found.seq == 7


def test_faulty_row_has_the_owner_of_its_key() -> None:
    found = read(written()._replace(content=b"?"))

    assert (found.user, found.session, found.agent) == ALICE
    assert found.at == version().at


def test_fault_reveals_nothing_of_another_owner() -> None:
    found = read(written(user="mallory")._replace(scope_key=ALICE.key))

    assert found.fault == "scope_mismatch: content names another user"


@pytest.mark.parametrize(("mismatch", "user"), [("trust_scope", "alice"), ("trust_episode", "bob")])
def test_store_that_trusts_one_side_reads_its_owner(mismatch: ScopeMismatch, user: str) -> None:
    row = written(user="bob")._replace(scope_key=ALICE.key)

    found = read(row, mismatch)

    assert (found.user, found.fault) == (user, "")


def test_content_without_an_owner_has_none_with_trust_episode() -> None:
    row = written()._replace(content=b'{"content":"","source_node":""}')

    assert reason(read(row, "trust_episode")) == SCOPE_UNREADABLE
    assert reason(read(row, "quarantine")) == SCOPE_MISMATCH
    assert read(row, "trust_scope").fault == ""


@pytest.mark.parametrize(
    "timestamp",
    ["2026-01-01T17:00:00+05:00", "2026-01-01T12:00:00Z", "2026-01-01 12:00:00.000+00:00"],
)
def test_any_offset_is_read_as_the_instant_that_it_is(timestamp: str) -> None:
    assert read(written()._replace(timestamp=timestamp)).at == microseconds(episode().timestamp)


def test_rows_are_the_same_when_only_the_spelling_differs() -> None:
    ours = written(metadata={"a": 1, "b": 2})
    theirs = ours._replace(timestamp="2026-01-01T14:00:00+02:00", metadata=b'{ "b": 2, "a": 1 }')

    assert same(ours, theirs)


@pytest.mark.parametrize("metadata", [b'{"a":1.0}', b'{"a":true}', b'{"a":"1"}', b"{}", b"{", None])
def test_rows_differ_when_a_value_does(metadata: Any) -> None:
    ours = written(metadata={"a": 1})

    assert not same(ours, ours._replace(metadata=metadata))


def test_invalid_utf_8_is_shown_with_its_bytes_escaped() -> None:
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lenient_text

    good, bad = connection.execute("SELECT 'é', CAST(x'63e9' AS TEXT)").fetchone()
    connection.close()

    assert (good, type(good)) == ("é", str)
    assert (bad, type(bad)) == ("c\\xe9", Mangled)
