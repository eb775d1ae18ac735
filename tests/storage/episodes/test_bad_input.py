"""Bad input is refused or quarantined with its reason, and changes no other result.

Each case goes both ways in: the public ``put``, and the INSERT of another program. Its neighbours,
of the same user and batch, must come out as they would have without it.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.integrations.interchange.episode_lines import read_episode_lines
from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, MemoryScopeError, SlumberdError
from slumberd.model.fact import FactPattern
from slumberd.model.scope import Scope
from slumberd.storage.episodes.rows import decode, encode, episode_of
from tests.support.builders import at, rule, triple
from tests.support.open_stores import OpenStores, open_stores

pytestmark = pytest.mark.integration

BAD = "bad"
NEIGHBOURS = [
    triple("first", "alice", "drinks", "tea", timestamp=at(0)),
    triple("last", "alice", "drinks", "milk", timestamp=at(9)),
    triple("namer", "x", "y", 1, timestamp=at(9), metadata={"intent": "noop", "replaces": ["?"]}),
    triple("bobs", "alice", "drinks", "beer", user="bob"),
]
FILTERS = [
    pytest.param("", id="no filter"),
    pytest.param("predicate = 'drinks' OR source_node <> ''", id="a filter that reads"),
]
MEGABYTE = 1_000_000

Outcome = dict[str, Any]


def row(**columns: Any) -> tuple[Any, ...]:
    """Return a bad row, as another program might write it between the neighbours."""
    source = triple(BAD, "bad's own", "is", "x", timestamp=at(5))
    good = encode(source, Scope("alice", "s1", "rag"), operation="put")
    return tuple((good._asdict() | columns).values())


def metadata(text: str) -> bytes:
    """Return metadata of a triple, with more members."""
    return b'{"subject":"bad\'s own","predicate":"is",' + text.encode() + b"}"


def deep(levels: int) -> dict[str, Any]:
    """Return metadata with a nesting depth."""
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"x": found}
    return found


def insert(folder: Path, *rows: tuple[Any, ...]) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as connection, connection:
        connection.executemany("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", rows)


async def outcome(home: OpenStores, when_filter: str = "") -> dict[str, Outcome]:
    """Fire twice, since a failure would repeat; verify the ledger and return the facts."""
    for _ in range(2):
        await home.fire(rule("all", when_filter=when_filter))
    assert (await home.facts.verify())[2] is None
    return {fact.id: fact.model_dump() for fact in await home.facts.query(FactPattern())}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Return the facts of the neighbours alone."""

    async def alone() -> dict[str, Outcome]:
        async with open_stores(tmp_path_factory.mktemp("without")) as home:
            await home.put(*NEIGHBOURS)
            return await outcome(home)

    return asyncio.run(alone())


QUARANTINED = {
    "metadata is an array": ({"metadata": b"[]"}, "metadata_unreadable", "not an array"),
    "metadata is a number": ({"metadata": b"7"}, "metadata_unreadable", "not a scalar"),
    "metadata is null": ({"metadata": b"null"}, "metadata_unreadable", "not null"),
    "metadata is empty": ({"metadata": b""}, "metadata_unreadable", "zero-length"),
    "metadata is an integer in the database": (
        {"metadata": 5},
        "metadata_unreadable",
        "not a value of type int",
    ),
    "metadata is no utf-8": ({"metadata": b'{"a":"\xff"}'}, "metadata_unreadable", "UTF-8"),
    "metadata has a lone surrogate": (
        {"metadata": metadata(r'"object":"\ud800"')},
        "metadata_unreadable",
        "surrogate",
    ),
    "metadata has NaN": (
        {"metadata": metadata('"object":NaN')},
        "metadata_unreadable",
        "unexpected",
    ),
    "metadata has 1e400": ({"metadata": metadata('"n":1e400')}, "metadata_unreadable", "infinity"),
    "metadata has a key twice": (
        {"metadata": metadata('"predicate":"was"')},
        "metadata_unreadable",
        "key 'predicate' is given twice",
    ),
    "metadata has a key twice, with a space before the colon": (
        {"metadata": metadata('"x":"\\":","predicate" :"was"')},
        "metadata_unreadable",
        "key 'predicate' is given twice",
    ),
    "metadata has a key twice, deep inside": (
        {"metadata": metadata('"object":[{"a":1,"b":{},"a":1}]')},
        "metadata_unreadable",
        "key 'a' is given twice",
    ),
    "metadata has a key in escapes": (
        {"metadata": metadata(r'"o\u0062ject":"x"')},
        "metadata_unreadable",
        "key 'object' is written with escapes",
    ),
    "metadata is 10,000 deep": (
        {"metadata": metadata('"object":' + "[" * 10_000 + "]" * 10_000)},
        "metadata_unreadable",
        "depth limit",
    ),
    "metadata is as deep as orjson reads, and deeper than it writes": (
        {"metadata": metadata('"object":' + "[" * 1_022 + "]" * 1_022)},
        "metadata_unreadable",
        "nested deeper than 100 levels",
    ),
    "metadata is as deep as orjson writes, but not in a ledger": (
        {"metadata": metadata('"object":' + '{"a":' * 252 + "1" + "}" * 252)},
        "metadata_unreadable",
        "nested deeper than 100 levels",
    ),
    "an object is a whole number over 64 bits": (
        {"metadata": metadata('"object":18446744073709551616')},
        "metadata_unreadable",
        "more than 64 bits",
    ),
    "a whole number deep inside is over 64 bits": (
        {"metadata": metadata('"x":{"y":[-9223372036854775809]}')},
        "metadata_unreadable",
        "more than 64 bits",
    ),
    "content is an integer": ({"content": 5}, "content_unreadable", "not a value of type int"),
    "content is a real": ({"content": 0.5}, "content_unreadable", "not a value of type float"),
    "content has an owner twice": (
        {"content": row()[2].replace(b'"user"', b'"user":"bob","user"')},
        "content_unreadable",
        "key 'user' is given twice",
    ),
    "timestamp is no ISO": ({"timestamp": "5 o'clock"}, "timestamp_unreadable", "not ISO 8601"),
    "timestamp is a blob": (
        {"timestamp": b"2026-01-01T12:00:05+00:00"},
        "timestamp_unreadable",
        "not ISO 8601",
    ),
    "timestamp lies after the year 9999 in UTC": (
        {"timestamp": "9999-12-31T23:59:59-01:00"},
        "timestamp_unreadable",
        "outside the years 1 to 9999",
    ),
    "id is empty": ({"id": ""}, "id_unusable", "empty"),
    "id holds NUL": ({"id": "first\0"}, "id_unusable", "NUL"),
    "intent is a list": (
        {"metadata": metadata('"intent":["add"]')},
        "intent_unknown",
        "write one of",
    ),
    "confidence is out of bounds": (
        {"metadata": metadata('"object":"x","confidence":7')},
        "confidence_malformed",
        "write a number",
    ),
    "confidence is a text": (
        {"metadata": metadata('"object":"x","confidence":"high"')},
        "confidence_malformed",
        "write a number",
    ),
    "replaces is an object": (
        {"metadata": metadata('"intent":"update","replaces":{"id":"first"}')},
        "replaces_malformed",
        "write a list",
    ),
    "replaces has a null": (
        {"metadata": metadata('"intent":"delete","replaces":["first",null]')},
        "replaces_malformed",
        "write a list",
    ),
    "a delete of null that has no subject": (
        {"metadata": b'{"intent":"delete","replaces":null}'},
        "delete_of_nothing",
        "names no id",
    ),
    "a delete of nothing that has no subject": (
        {"metadata": b'{"intent":"delete","replaces":[]}'},
        "delete_of_nothing",
        "names no id",
    ),
}


def named(cases: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, id=name) for name, case in cases.items()]


@pytest.mark.slow
@pytest.mark.parametrize("when_filter", FILTERS)
@pytest.mark.parametrize(("columns", "reason", "text"), named(QUARANTINED))
async def test_a_bad_row_is_quarantined_with_its_reason_and_its_neighbours_are_as_without_it(
    tmp_path: Path,
    columns: dict[str, Any],
    reason: str,
    text: str,
    when_filter: str,
    without: dict[str, Outcome],
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*NEIGHBOURS[:2])
        insert(tmp_path, row(**columns))
        await home.put(*NEIGHBOURS[2:])

        facts = await outcome(home, when_filter)

        [held] = await home.facts.reads.quarantine()
        readable = await home.memory.recent("alice", limit=9)
    assert facts == without
    assert held["reason"] == reason
    assert text in held["detail"]
    assert {version.id for version in readable} - {BAD} == {"first", "last", "namer"}


PROMOTED = {
    "metadata is an empty object": ({"metadata": b"{}"}, None),
    "metadata is TEXT": ({"metadata": metadata('"object":"x"').decode()}, "x"),
    "content is TEXT": ({"content": row()[2].decode()}, "x"),
    "an object of 64 bits": ({"metadata": metadata('"object":18446744073709551615')}, 2**64 - 1),
    "an object that is a large float": ({"metadata": metadata('"object":1e300')}, 1e300),
    "an object that is as deep as may be": (
        {"metadata": metadata('"object":' + "[" * 99 + "]" * 99)},
        orjson.loads("[" * 99 + "]" * 99),
    ),
    "subject is null": ({"metadata": b'{"subject":null,"object":"x"}'}, "x"),
    "subject is a number": ({"metadata": b'{"subject":7,"predicate":"is","object":"x"}'}, "x"),
    "subject is 1 MB": (
        {"metadata": metadata('"object":"x"').replace(b"own", b"o" * MEGABYTE)},
        "x",
    ),
    "id is 1 MB": ({"id": BAD * (MEGABYTE // 3)}, "x"),
    "id differs from another in case only": ({"id": "FIRST"}, "x"),
    "id differs from another in its accents' form only": ({"id": "e\u0301"}, "x"),
    "timestamp is the first of all": ({"timestamp": "0001-01-01T00:00:00+00:00"}, "x"),
    "timestamp is the last of all": ({"timestamp": "9999-12-31T23:59:59.999999+00:00"}, "x"),
    "timestamp lies in the future": ({"timestamp": "2500-01-01T00:00:00Z"}, "x"),
    "timestamp has another offset": ({"timestamp": "2026-01-02T02:00:05+14:00"}, "x"),
    "timestamp equals another": ({"timestamp": "2026-01-01T12:00:00+00:00"}, "x"),
    "an update of itself": (
        {"metadata": metadata('"object":"x","intent":"update","replaces":["bad"]')},
        "x",
    ),
    "an update of a string": (
        {"metadata": metadata('"object":"x","intent":"update","replaces":"never-was"')},
        "x",
    ),
    "an update of null": (
        {"metadata": metadata('"object":"x","intent":"update","replaces":null')},
        "x",
    ),
    "an update of one of another user": (
        {"metadata": metadata('"object":"x","intent":"update","replaces":["bobs","bobs"]')},
        "x",
    ),
}
"""A row that only looks bad, and is promoted."""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["put", "insert"])
@pytest.mark.parametrize(("columns", "object"), named(PROMOTED))
async def test_a_row_that_only_looks_bad_is_promoted_and_its_neighbours_are_as_without_it(
    tmp_path: Path, columns: dict[str, Any], object: Any, way: str, without: dict[str, Outcome]
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*NEIGHBOURS[:2])
        if way == "put":
            await home.put(episode_of(decode(0, row(**columns), mismatch="quarantine")))
        else:
            insert(tmp_path, row(**columns))
        await home.put(*NEIGHBOURS[2:])

        facts = await outcome(home)

        readable = await home.memory.recent("alice", limit=9)
    [bad] = [facts.pop(fact_id) for fact_id in list(facts) if fact_id not in without]
    assert bad["payload"].get("object") == object
    assert facts == without
    assert len(readable) == 4


REFUSED = {
    "NaN": ({"metadata": {"object": math.nan}}, InputError, "metadata.object is nan"),
    "infinity": ({"metadata": {"n": [1e400]}}, InputError, r"metadata.n\[0\] is inf"),
    "a lone surrogate": ({"metadata": {"subject": "\ud800"}}, InputError, "surrogates"),
    "an int over 64 bits": ({"metadata": {"object": 2**64}}, InputError, "64-bit"),
    "10,000 deep": ({"metadata": deep(10_000)}, InputError, "(?i)recursion"),
    "too deep for a ledger": ({"metadata": deep(102)}, InputError, "deeper than 100 levels"),
    "a set": ({"metadata": {"object": {1}}}, InputError, "not JSON"),
    "an empty id": ({"id": ""}, InputError, "the id is empty"),
    "NUL in the id": ({"id": "a\0"}, InputError, "the id holds NUL"),
    "a timestamp before the year 1": (
        {"timestamp": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))},
        InputError,
        "out of range",
    ),
    "an id of another user": ({"id": "bobs"}, MemoryScopeError, "belongs to another scope"),
    "a user with NUL": ({"user": "alice\0"}, MemoryScopeError, "control character"),
}


@pytest.mark.parametrize(("fields", "error", "text"), named(REFUSED))
async def test_a_bad_episode_is_refused_by_put_and_its_neighbours_are_as_without_it(
    tmp_path: Path,
    fields: dict[str, Any],
    error: type[SlumberdError],
    text: str,
    without: dict[str, Outcome],
) -> None:
    bad = triple(BAD, "bad's own", "is", "x").model_copy(update=fields)
    scope: dict[str, Any] = {"user": bad.user, "session": bad.session, "agent": bad.agent}
    async with open_stores(tmp_path) as home:
        await home.put(*NEIGHBOURS[3:])
        # Puts that wait together share a transaction.
        good = [put(home, neighbour) for neighbour in NEIGHBOURS[:3]]
        refused, *_ = await asyncio.gather(
            home.memory.put(bad, **scope), *good, return_exceptions=True
        )

        facts = await outcome(home)

    assert facts == without
    assert isinstance(refused, error)
    assert re.search(text, str(refused))


async def put(home: OpenStores, item: Episode) -> None:
    await home.memory.put(item, user=item.user, session=item.session, agent=item.agent)


LINES = {
    "metadata is an array": ('"metadata":[]', "metadata: Input should be an object"),
    "metadata has NaN": ('"metadata":{"n":NaN}', "JSON"),
    "metadata has 1e400": ('"metadata":{"n":1e400}', "infinity"),
    "metadata has a key twice": ('"metadata":{"n":1,"n":2}', "key 'n' is given twice"),
    "metadata has an int over 64 bits": ('"metadata":{"n":18446744073709551616}', "64 bits"),
    "metadata is too deep": ('"metadata":{"n":' + "[" * 101 + "]" * 101 + "}", "100 levels"),
    "metadata is 10,000 deep": ('"metadata":{"n":' + "[" * 10_000 + "]" * 10_000 + "}", "recurs"),
    "the user is given twice": ('"user":"bob","metadata":{}', "key 'user' is given twice"),
    "a lone surrogate": (r'"metadata":{"n":"\ud800"}', "hex escape"),
}


@pytest.mark.parametrize(("text", "problem"), named(LINES))
def test_a_bad_line_of_an_import_is_refused_and_the_others_are_read(
    text: str, problem: str
) -> None:
    good = triple("e1", "s", "is", "x").model_dump_json(exclude={"metadata"}).encode()
    bad = good.replace(b"}", b"," + text.encode() + b"}")

    found = list(read_episode_lines(io.BytesIO(b"\n".join([good, bad, good]))))

    assert [bool(line.episodes) for line in found] == [True, False, True]
    assert problem in found[1].problem


@pytest.mark.parametrize(
    ("when_filter", "columns"),
    [
        pytest.param("subject = 's'", {"metadata": r'{"subject":"s\u0000!"}'}, id="subject"),
        pytest.param("\"subject\" = 's'", {"metadata": r'{"subject":"s\u0000!"}'}, id="in quotes"),
        pytest.param(
            "json_extract(metadata, '$.x') = 's'", {"metadata": r'{"x":"s\u0000!"}'}, id="metadata"
        ),
        pytest.param(
            "content NOT LIKE '%secret%'",
            {"content": row()[2].replace(b"content of", rb"\u0000secret of")},
            id="content",
        ),
    ],
)
async def test_a_text_that_a_filter_cannot_see_whole_is_quarantined(
    tmp_path: Path, when_filter: str, columns: dict[str, Any]
) -> None:
    async with open_stores(tmp_path) as home:
        await home.memory.bootstrap()
        insert(tmp_path, row(**columns))

        await home.fire(rule("all", when_filter=when_filter))
        await home.fire(rule("other", when_filter="source_node = 'chat'"))

        [held] = await home.facts.reads.quarantine()
        facts = await home.facts.query(FactPattern())
    assert (held["rule_id"], held["reason"]) == ("all", "filter_failed")
    assert "holds U+0000" in held["detail"]
    assert [own["rule_id"] for fact in facts for own in fact.lineage] == ["other"]
