"""Patterns of facts compared with an oracle in plain Python: results, order and pages."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.model.errors import ExtraMissingError, PatternError, UsageError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.pattern import LONGEST, Equals, Glob, Matches, OneOf, Prefix
from slumberd.sql_statements import statements
from slumberd.storage.facts.search import (
    BEYOND,
    literal_prefix,
    search,
    upper_bound,
    whole_text_check,
)
from slumberd.storage.ledger.fact_rows import find, is_specified
from tests.support.builders import START, at
from tests.support.providers import Provider
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

ALPHABET = "abAZ%_*?[]-!^\\/.\0\x01\x7f\ud7ff\ue000\uffffé\U0001f600\U0010ffff"
TEXTS = st.text(ALPHABET, max_size=4)
OBJECTS = st.none() | st.booleans() | st.integers(-3, 3) | TEXTS | st.sampled_from(
    [0.1, -0.0, 1.0, 2**53 + 1, 2**63, 2**64 - 1, 1e300, 5e-324, {"a": 1, "b": [None]}, [1], {}]
)  # fmt: skip
OWNERS = st.sampled_from(["", "al", "alice", "Alice", "bob", "%", "\U0010ffff"])
IDS = st.text("ab@/%", min_size=1, max_size=5) | TEXTS
NUMBERS = st.sampled_from([0.0, 0.25, 0.5, 1.0])
ZONES = st.sampled_from(["+00:00", "Z", "+05:30", ""])


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """Return a row of the table, as slumberd or another program writes it."""
    payload: dict[str, Any] = {}
    for slot in ("subject", "predicate"):
        value = draw(st.none() | TEXTS | st.just(5))
        if value is not None:
            payload[slot] = value
    if draw(st.booleans()):
        payload["object"] = draw(OBJECTS)
    found_by = draw(st.none() | TEXTS | st.just(5))
    if found_by is not None:
        payload["extracted"] = draw(st.just({"by": found_by}) | st.just(found_by))
    told_at = draw(st.none() | st.integers(0, 3) | st.sampled_from(["soon", 5, None, "9999-12-31"]))
    if isinstance(told_at, int):
        payload["timestamp"] = (START + timedelta(hours=told_at)).isoformat()
    elif told_at is not None:
        payload["timestamp"] = told_at
    moment = START + timedelta(hours=draw(st.integers(0, 3)))
    pinned_at = moment.replace(tzinfo=None).isoformat() + draw(ZONES)
    found = (draw(OWNERS), draw(OWNERS), orjson.dumps(payload), b"[{}]", draw(NUMBERS), b"{}")
    return draw(IDS), *found, pinned_at


FACTS = st.lists(rows(), max_size=12, unique_by=lambda row: row[0])

FORMS = (
    TEXTS
    | st.builds(Prefix, TEXTS)
    | st.builds(Glob, st.text("ab*?[]-!%\\\U0010ffff", max_size=5).filter(lambda g: "[" not in g))
    | st.sampled_from(["[a-b]*", "[!a]", "*[^ab]", "a[]]b", "[*]", "[a]b*", "[%-b]?"]).map(Glob)
    | st.sampled_from(["a.*", "[ab]+", "ab?", "a|b.*", "(a)", "^a*", "(?i)A", ""]).map(Matches)
    | st.lists(TEXTS, max_size=3).map(lambda texts: OneOf(*texts))
)  # fmt: skip
OBJECT_FORMS = FORMS | OBJECTS.map(Equals) | st.lists(OBJECTS, max_size=3).map(lambda v: OneOf(*v))
OWNER_FORMS = OWNERS | FORMS | st.lists(OWNERS, max_size=2).map(lambda texts: OneOf(*texts))
MOMENTS = st.none() | st.integers(-1, 4).map(lambda hours: START + timedelta(hours=hours))

PATTERNS = st.builds(
    FactPattern,
    subject=st.none() | FORMS,
    predicate=st.none() | FORMS,
    object=st.none() | OBJECT_FORMS,
    user=st.none() | OWNER_FORMS,
    agent=st.none() | OWNER_FORMS,
    id=st.none() | IDS | FORMS,
    channel=st.sampled_from([None, None, "facts", "a", "\U0010ffff"]),
    extracted_by=st.none() | TEXTS,
    min_confidence=st.none() | NUMBERS,
    max_confidence=st.none() | NUMBERS,
    said_since=MOMENTS,
    said_until=MOMENTS,
    pinned_since=MOMENTS,
    pinned_until=MOMENTS,
    order=st.sampled_from(["id", "said_at", "pinned_at", "confidence"]),
    descending=st.booleans(),
    limit=st.none() | st.integers(1, 5),
)
FEW = st.sampled_from(["subject", "predicate", "object", "user", "agent", "id"])


@contextmanager
def table(*facts: tuple[Any, ...]) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(statements("facts")["create_facts"])
        for index in ("facts_owner", "facts_subject_predicate", "facts_object"):
            connection.execute(statements("ledger_schema")[index])
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", facts)
        yield connection


def found_by(document: dict[str, Any]) -> object:
    extracted = document.get("extracted")
    return extracted.get("by") if isinstance(extracted, dict) else None


class Oracle:
    """The documented meaning of a pattern, for one fact at a time."""

    def __init__(self, pattern: FactPattern) -> None:
        self.pattern = pattern

    def of(self, facts: list[tuple[Any, ...]]) -> list[str]:
        found = sorted(filter(self.matches, facts), key=self.place)
        if self.pattern.descending:
            found.reverse()
        return [row[0] for row in found]

    def matches(self, row: tuple[Any, ...]) -> bool:
        id, user, agent, payload, _, confidence, _, _ = row
        document = orjson.loads(payload)
        slots = {"id": id, "user": user, "agent": agent}
        slots |= {slot: document.get(slot) for slot in ("subject", "predicate", "object")}
        pattern, moment = self.pattern, instant(row)
        channel = id[1:].split("/")[0] or "facts" if id[:1] == "@" and "/" in id else "facts"
        return all(
            [
                *(fits(getattr(pattern, slot), value) for slot, value in slots.items()),
                pattern.channel in (None, channel),
                pattern.extracted_by is None or pattern.extracted_by == found_by(document),
                pattern.min_confidence is None or confidence >= pattern.min_confidence,
                pattern.max_confidence is None or confidence <= pattern.max_confidence,
                pattern.said_since is None or said_at(row) >= pattern.said_since,
                pattern.said_until is None or said_at(row) < pattern.said_until,
                pattern.pinned_since is None or moment >= pattern.pinned_since,
                pattern.pinned_until is None or moment < pattern.pinned_until,
            ]
        )

    def place(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        places = {
            "id": (), "said_at": (said_at(row),), "pinned_at": (instant(row),),
            "confidence": (row[5],),
        }  # fmt: skip
        return (*places[self.pattern.order], row[0])


def instant(row: tuple[Any, ...]) -> datetime:
    found = datetime.fromisoformat(row[7])
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def said_at(row: tuple[Any, ...]) -> datetime:
    """Return the instant in a fact's payload, else the instant of its pin."""
    stored = orjson.loads(row[3]).get("timestamp")
    if stored == "9999-12-31":
        return datetime(9999, 12, 31, tzinfo=UTC)
    return instant(row) if stored in ("soon", 5, None) else datetime.fromisoformat(stored)


def fits(form: object, value: object) -> bool:
    match form:
        case None:
            return True
        case str():
            return value == form
        case Equals(equals=wanted):
            return same(wanted, value)
        case OneOf(one_of=several):
            return any(same(item, value) for item in several)
        case _:
            return isinstance(value, str) and is_like(form, value)


def is_like(form: object, value: str) -> bool:
    match form:
        case Prefix(prefix=start):
            return value[: len(start)] == start
        case Glob(glob=glob):
            return is_shaped(glob, value)
        case Matches(matches=expression):
            return re.fullmatch(expression, value) is not None
        case _:
            raise AssertionError(form)


def same(left: object, right: object) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


def is_shaped(glob: str, text: str) -> bool:
    """Find the answer by a full scan."""
    if not glob:
        return not text
    if glob[0] == "*":
        return any(is_shaped(glob[1:], text[place:]) for place in range(len(text) + 1))
    if glob[0] == "[" and (found := re.match(r"\[([!^]?)(.[^\]]*)\]", glob, re.DOTALL)):
        inside = bool(text) and is_member(found[2], text[0]) != bool(found[1])
        return inside and is_shaped(glob[found.end() :], text[1:])
    return bool(text) and glob[0] in ("?", text[0]) and is_shaped(glob[1:], text[1:])


def is_member(members: str, character: str) -> bool:
    if len(members) > 2 and members[1] == "-":
        return members[0] <= character <= members[2] or is_member(members[3:], character)
    return bool(members) and (members[0] == character or is_member(members[1:], character))


def ids_of(facts: list[Fact]) -> list[str]:
    return [fact.id for fact in facts]


@pytest.mark.slow
@given(FACTS, PATTERNS)
def test_search_returns_what_the_oracle_returns_in_the_same_order(
    facts: list[tuple[Any, ...]], pattern: FactPattern
) -> None:
    with table(*facts) as connection:
        found = ids_of(search(session_of(connection), pattern))

    assert found == Oracle(pattern).of(facts)[: pattern.limit]


@pytest.mark.slow
@given(FACTS, FEW, OBJECT_FORMS, st.booleans(), st.data())
def test_each_slot_alone_finds_what_a_full_scan_finds(
    facts: list[tuple[Any, ...]], slot: str, form: Any, descending: bool, data: st.DataObject
) -> None:
    if slot != "object":
        form = data.draw(OWNER_FORMS)
    if slot == "predicate":
        pattern = FactPattern(subject=data.draw(TEXTS), predicate=form, descending=descending)
    else:
        pattern = FactPattern(**{slot: form}, descending=descending)

    with table(*facts) as connection:
        found = ids_of(search(session_of(connection), pattern))

    assert found == Oracle(pattern).of(facts)


@pytest.mark.slow
@given(
    FACTS,
    st.dictionaries(
        st.sampled_from(["subject", "predicate", "object", "user", "agent"]), OWNERS | TEXTS
    ),
)
def test_five_slots_find_the_same_through_an_index(
    facts: list[tuple[Any, ...]], slots: dict[str, str]
) -> None:
    pattern = FactPattern(**slots)
    slots = {slot: text for slot, text in slots.items() if "\0" not in text}

    with table(*facts) as connection:
        quick = find(session_of(connection), FactPattern(**slots))
        general = search(session_of(connection), FactPattern(**slots))

    assert quick == general
    assert is_specified(pattern) == (slots.keys() == pattern.model_fields_set)


@pytest.mark.slow
@given(FACTS, PATTERNS, st.lists(st.tuples(rows(), st.booleans()), max_size=6))
def test_pages_contain_every_unchanged_fact_exactly_once(
    facts: list[tuple[Any, ...]], pattern: FactPattern, changes: list[tuple[Any, bool]]
) -> None:
    """Facts appear and disappear between two pages; an unchanged fact is on exactly one page."""
    pattern = pattern.model_copy(update={"limit": pattern.limit or 2})
    untouched = {row[0] for row in facts} - {row[0] for row, _ in changes}
    seen: list[tuple[Any, ...]] = []

    with table(*facts) as connection:
        for row, comes in [*changes, *[(None, False)] * 40]:
            page = search(session_of(connection), pattern)
            rows = {row[0]: row for row in connection.execute("SELECT * FROM facts")}
            seen += [rows[fact.id] for fact in page]
            if not page:
                break
            pattern = pattern.following(page[-1])
            change(connection, row, comes)

    oracle = Oracle(pattern)
    places = [oracle.place(row) for row in seen]
    assert places == sorted(set(places), reverse=pattern.descending)
    expected = [id for id in oracle.of(facts) if id in untouched]
    assert [row[0] for row in seen if row[0] in untouched] == expected


def change(connection: sqlite3.Connection, row: tuple[Any, ...] | None, comes: bool) -> None:
    if row is not None:
        connection.execute("DELETE FROM facts WHERE fact_id = ?", row[:1])
        if comes:
            connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


@pytest.mark.parametrize("agents", [3, 101], ids=["few", "many"])
def test_pages_of_a_user_cover_all_agents(agents: int) -> None:
    rows = [
        (f"e{n % 7}{n:03}", "u", f"{n % agents or ''}", b"{}", b"[]", 1.0, b"{}", START.isoformat())
        for n in range(202)
    ]
    pattern, seen = FactPattern(user="u", limit=50), []

    with table(*rows, ("e0", "other", "", *rows[0][3:])) as connection:
        while page := search(session_of(connection), pattern):
            seen += ids_of(page)
            pattern = pattern.following(page[-1])

    assert seen == sorted(row[0] for row in rows)


def test_unreadable_row_is_on_no_page() -> None:
    good = ("e1", "u", "a", b"{}", b"[]", 0.5, b"{}", START.isoformat())
    bad = [
        (b"e0", *good[1:]),
        ("e2", b"u", *good[2:]),
        ("e3", "u", b"\xff", *good[3:]),
        ("e4", "u", "a", b"{", *good[4:]),
        ("e5", "u", "a", b"[]", *good[4:]),
        ("e6", *good[1:7], "today"),
        ("e7", *good[1:5], "sure", *good[6:]),
    ]

    with table(good, *bad) as connection:
        connection.execute("UPDATE facts SET user = CAST(x'ff' AS TEXT) WHERE fact_id = 'e2'")
        found = [ids_of(search(session_of(connection), pattern)) for pattern in UNREADABLE_IN]

    assert found == [["e1", "e7"], ["e1", "e7"], ["e7", "e1"], ["e1"], ["e1"]]


UNREADABLE_IN = (
    FactPattern(limit=9),
    FactPattern(user="u", limit=9),
    FactPattern(order="confidence"),
    FactPattern(min_confidence=0),
    FactPattern(max_confidence=1),
)

CHARACTERS = st.characters(exclude_categories=["Cs"])


@given(st.text(CHARACTERS, min_size=1), st.text(CHARACTERS), st.text(CHARACTERS))
@example("\ud7ff", "\ue000", "")
@example("\U0010ffff", "\U0010ffff", "a")
@example("a\U0010ffff", "b", "a")
@example("\x00", "\x01", "\x00")
def test_range_of_a_prefix_contains_exactly_the_texts_with_the_prefix(
    start: str, other: str, rest: str
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        query = "SELECT ?1 >= ?2 AND ?1 < ?3"

        def inside(text: str) -> bool:
            high = upper_bound(start)
            return bool(connection.execute(query, (text, start, high)).fetchone()[0])

        assert inside(start + rest)
        assert inside(other) == other.startswith(start)


@pytest.mark.parametrize(
    "form",
    ["a\0b", Prefix("a\0"), Glob("a\0*"), Glob("a\0b"), Matches("a\0b"), OneOf("a\0b", "c")],
    ids=["text", "prefix", "glob", "glob of one", "regex", "set"],
)
@pytest.mark.parametrize("slot", ["subject", "predicate", "object", "id"])
def test_text_with_nul_is_found_in_every_slot(slot: str, form: Any) -> None:
    """SQLite 3.40 ends a text of JSON at NUL."""
    document = {"subject": "a\0b", "predicate": "a\0b", "object": "a\0b"}
    row = ("a\0b", "u", "a", orjson.dumps(document), b"[]", 1.0, b"{}", START.isoformat())
    others = {"subject": "a\0b"} if slot == "predicate" else {}

    with table(row) as connection:
        found = search(session_of(connection), FactPattern(**others | {slot: form}))

    assert ids_of(found) == ["a\0b"]


def test_last_character_has_no_successor() -> None:
    assert upper_bound("\U0010ffff" * 3) == BEYOND


@given(st.text("ab|^$.?*+{}()[]\\1", max_size=8), st.text("ab1", max_size=4))
def test_every_match_begins_with_the_literal_start_of_the_expression(
    expression: str, text: str
) -> None:
    try:
        matches = whole_text_check("subject", expression)
    except PatternError:
        return

    if matches(text):
        assert text.startswith(literal_prefix(expression))


@pytest.mark.parametrize(
    ("expression", "start"),
    [
        ("user-1/.*", "user-1/"), ("^user", "user"), ("users?", "user"), ("ab{0}", "a"),
        ("a|b", ""), ("(?i)a", ""), (r"\d", ""), ("ab+c", "a"), ("", ""),
    ],
)  # fmt: skip
def test_expression_is_searched_by_its_literal_start(expression: str, start: str) -> None:
    assert literal_prefix(expression) == start


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        pytest.param(
            {"subject": Glob("a[b")},
            "subject 'a[b' at character 2: '[' has no ']'; write '[[]' for the character itself",
            id="an open bracket",
        ),
        pytest.param(
            {"id": Glob("x[z-a]")},
            "id 'x[z-a]' at character 3: z-a is not a range: it ends before it begins",
            id="a range that ends before it begins",
        ),
        pytest.param(
            {"object": Matches("a(b")}, "object 'a(b' at character 1: missing ): a(b", id="a group"
        ),
        pytest.param(
            {"user": Matches("a**")}, "at character 2: bad repetition operator: **", id="two stars"
        ),
        pytest.param({"user": Matches("x(?=y)")}, "invalid perl operator: (?=", id="look-ahead"),
        pytest.param({"agent": Glob("a" * (LONGEST + 1))}, "longer than 1000", id="a long glob"),
        pytest.param({"agent": Matches("a" * (LONGEST + 1))}, "longer than 1000", id="a long one"),
        pytest.param({"after": "zzz"}, "after 'zzz': is not a cursor", id="no cursor"),
        pytest.param({"after": "é"}, "after 'é': is not a cursor", id="no cursor, nor ASCII"),
        pytest.param({"after": "W10"}, "after 'W10': is not a cursor", id="a cursor of nothing"),
    ],
)
def test_error_names_the_place_of_an_invalid_value(slots: dict[str, Any], message: str) -> None:
    with table() as connection, pytest.raises(PatternError) as refused:
        search(session_of(connection), FactPattern(**slots))

    assert message in str(refused.value)
    assert refused.value.slot == next(iter(slots))
    assert refused.value.exit_code == 64


@pytest.mark.parametrize("form", [Glob, Matches])
def test_form_has_at_most_a_thousand_characters(form: type[Glob] | type[Matches]) -> None:
    with table() as connection:
        session = session_of(connection)

        assert search(session, FactPattern(subject=form("a" * 1_000))) == []
        with pytest.raises(PatternError, match="is longer than 1000 characters"):
            search(session, FactPattern(subject=form("a" * 1_001)))


def test_a_cursor_of_another_order_is_refused() -> None:
    fact = Fact(
        id="e1", user="u", agent="a", payload={}, lineage=[], confidence=1.0, pinned_at=START
    )
    pattern = FactPattern(order="confidence").following(fact)

    with table() as connection, pytest.raises(PatternError, match="is a cursor of a page by conf"):
        search(session_of(connection), pattern.model_copy(update={"order": "pinned_at"}))


@pytest.mark.parametrize(
    "form",
    [Prefix("no \udce9"), Glob("no \udce9*"), Matches("no \udce9"), OneOf("a", "no \udce9")],
    ids=["prefix", "glob", "regex", "set"],
)
def test_form_of_invalid_unicode_is_a_usage_error(provider: Provider, form: Any) -> None:
    async def main() -> None:
        async with provider.facts() as store:
            await store.bootstrap()
            await store.query(FactPattern(subject=form))

    with pytest.raises(UsageError, match="no valid Unicode"):
        asyncio.run(main())


def test_regular_expression_without_its_extra_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    with table() as connection, pytest.raises(ExtraMissingError, match=r"slumberd\[regex\]") as no:
        search(session_of(connection), FactPattern(subject=Matches("a")))

    assert (no.value.extra, no.value.exit_code) == ("regex", 78)
    assert "subject 'a' is a regular expression" in str(no.value)


@pytest.mark.parametrize(
    "hostile", [Matches("(a*)*b"), Matches("(a|aa)+$"), Glob("a*" * 400 + "b"), Glob("*a" * 499)]
)
def test_time_of_a_match_does_not_grow_with_the_ways_to_match(hostile: Any) -> None:
    payload = orjson.dumps({"subject": "a" * 5_000})
    row = ("e1", "u", "a", payload, b"[]", 1.0, b"{}", START.isoformat())

    with table(row) as connection:
        found = search(session_of(connection), FactPattern(subject=hostile))

    assert len(found) == (1 if hostile in (Matches("(a|aa)+$"), Glob("*a" * 499)) else 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": OneOf(1)}, {"subject": Equals("a")}, {"limit": 0}, {"min_confidence": 1.1},
        {"max_confidence": float("nan")}, {"pinned_since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"order": "user"}, {"object": 5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_contradictory_pattern_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FactPattern(**wrong)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": object()}, {1, 2}, 2**70])
def test_value_that_json_cannot_represent_is_refused_as_an_object(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Equals(value)


def test_a_form_takes_one_value() -> None:
    with pytest.raises(TypeError, match="Prefix takes one value"):
        Prefix("a", "b")


def test_pattern_survives_a_round_trip_through_json() -> None:
    pattern = FactPattern(
        subject=Prefix("a"), predicate=Glob("b*"), object=OneOf(1, None, "x"), user="u",
        agent=Matches("c"), min_confidence=0.5, pinned_until=at(0), order="pinned_at", limit=3,
    )  # fmt: skip

    assert FactPattern.model_validate_json(pattern.model_dump_json()) == pattern


async def test_patterns_search_past_facts_too(provider: Provider) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        for name, what in (("e1", 1), ("e2", 1.0), ("e3", None), ("x4", True)):
            await store.pin(
                Fact(
                    id=name, user="ada", agent="rag", lineage=[{"by": "me"}], pinned_at=START,
                    payload={"subject": name, "predicate": "is", "object": what}, confidence=0.5,
                )
            )  # fmt: skip
        now = (await store.reads.records())[-1].at

        async def then(**pattern: Any) -> list[str]:
            return ids_of(await store.query(FactPattern(**pattern), believed_at=now))

        assert await then(object=Equals(1)) == ["e1"]
        assert await then(object=OneOf(1.0, None)) == ["e2", "e3"]
        assert await then(subject=Glob("e?"), order="id", descending=True, limit=2) == ["e3", "e2"]
        first = await store.query(FactPattern(limit=1), believed_at=now)
        assert await then(after=FactPattern().following(first[0]).after) == ["e2", "e3", "x4"]
        assert await then(user=Prefix("b")) == []
        with pytest.raises(UsageError, match="no valid Unicode"):
            await then(subject=Prefix("\udce9"))
