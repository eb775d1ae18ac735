"""The values of provenance that a sink stores, their forms, and the values it refuses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.errors import ProvenanceError
from slumberd.model.provenance import (
    ProvenanceBundle,
    assertion_document,
    encode,
    encode_bundle,
    make_identifier,
)
from tests.support.builders import START

pytestmark = pytest.mark.unit

Colour = Enum("Colour", ["RED"])
Level = IntEnum("Level", ["HIGH"])
Word = StrEnum("Word", ["TEA"])
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def bundle(**other: object) -> ProvenanceBundle:
    """Return a valid bundle, with the given values in place of its own."""
    plain: dict[str, object] = {
        "origin": "consolidation",
        "source": "rule-tea",
        "run_id": "tea@7",
        "step": 12,
        "confidence": Decimal("0.9"),
        "timestamp": START,
    }
    return cast("ProvenanceBundle", plain | other)


def test_bundle_has_exactly_the_six_keys_of_the_specification() -> None:
    assert list(ProvenanceBundle.__annotations__) == [
        "origin", "source", "run_id", "step", "confidence", "timestamp",
    ]  # fmt: skip
    assert ProvenanceBundle.__required_keys__ == set(ProvenanceBundle.__annotations__)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (True, "TRUE"),
        (False, "FALSE"),
        (7, 7),
        (-(2**63), -(2**63)),
        ("née :)", "née :)"),
        ("", ""),
        (Decimal("0.90"), "0.90"),
        (Decimal("1E-7"), "1E-7"),
        (UUID(int=15), "0" * 31 + "f"),
        (datetime(2026, 3, 1, 3, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T01:00:00Z"),
        (datetime(2026, 3, 1, 3, 0, 0, 120, tzinfo=UTC), "2026-03-01T03:00:00.000120Z"),
        (PurePosixPath("/var/x"), "/var/x"),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, "Level.HIGH"),
        (Word.TEA, "Word.TEA"),
        ({"b": [1, None], "a": "ü"}, '{"a":"ü","b":[1,null]}'),
        ([], "[]"),
    ],
    ids=repr,
)
def test_value_has_its_exact_form(value: object, plain: object) -> None:
    assert encode(value, slot="s") == plain
    assert type(encode(value, slot="s")) is type(plain)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0.5, "cannot be a float"),
        (None, "cannot be a NoneType"),
        (b"x", "cannot be a bytes"),
        ((1,), "cannot be a tuple"),
        (START.date(), "cannot be a date"),
        (START.replace(tzinfo=None), "must say its time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "has no year in UTC"),
        (PurePosixPath("var/x"), "must be an absolute path"),
        (Decimal("NaN"), "must be finite"),
        (Decimal("-Infinity"), "must be finite"),
        (2**63, "more than 64 bits"),
        ("a\0b", "NUL"),
        (PurePosixPath("/a\0b"), "NUL"),
        ("\ud800", "not valid Unicode"),
        (["\udfff"], "not valid Unicode"),
        ([float("nan")], "is not JSON"),
        ({"a": START}, "is not JSON"),
        ({1: 2, "a": 3}, "is not JSON"),
    ],
    ids=repr,
)
def test_value_without_an_exact_form_is_refused_by_name(value: object, reason: str) -> None:
    with pytest.raises(ProvenanceError, match=f"slot 'object': .*{reason}") as caught:
        encode(value, slot="object")
    assert caught.value.slot == "object"
    assert caught.value.exit_code == 65


def test_a_list_that_contains_itself_is_refused() -> None:
    deep: list[object] = []
    deep.append(deep)
    with pytest.raises(ProvenanceError, match="is not JSON"):
        encode(deep, slot="s")


def test_document_has_the_slots_and_the_six_keys_after_an_underscore() -> None:
    assert assertion_document({"subject": "ada", "seq": 3}, bundle()) == {
        "subject": "ada",
        "seq": 3,
        "_origin": "consolidation",
        "_source": "rule-tea",
        "_run_id": "tea@7",
        "_step": 12,
        "_confidence": "0.9",
        "_timestamp": START.isoformat().replace("+00:00", "Z"),
    }


@pytest.mark.parametrize("name", ["_origin", "_source", "_timestamp", "_", "_other"])
def test_slot_with_the_name_of_a_provenance_key_is_refused(name: str) -> None:
    with pytest.raises(ProvenanceError, match="are those of provenance") as caught:
        assertion_document({name: "forged"}, bundle())
    assert caught.value.slot == name


@pytest.mark.parametrize("name", ["", "a b", "1a", "a\n", "a)", "ä"])
def test_name_of_a_slot_must_be_an_identifier(name: str) -> None:
    with pytest.raises(ProvenanceError, match="is not an identifier"):
        assertion_document({name: "x"}, bundle())


@pytest.mark.parametrize("key", ["origin", "source"])
@pytest.mark.parametrize("text", ["", "abc\n", "a b", "1a", "a.b", "a:b", "ä", "\n", "-a"])
def test_the_whole_identifier_is_checked(key: str, text: str) -> None:
    with pytest.raises(ProvenanceError, match="is not an identifier") as caught:
        encode_bundle(bundle(**{key: text}))
    assert caught.value.slot == f"_{key}"


def test_origin_may_be_a_member_of_an_enumeration() -> None:
    assert encode_bundle(bundle(origin=Colour.RED))["_origin"] == "Colour.RED"
    with pytest.raises(ProvenanceError, match="is not an identifier"):
        encode_bundle(bundle(origin=Enum("Colour", ["RÖD"]).RÖD))  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["origin", "source", "run_id"])
@pytest.mark.parametrize("text", ["a(", "a)(", ")", "(()"])
def test_unbalanced_parentheses_are_refused(key: str, text: str) -> None:
    with pytest.raises(ProvenanceError, match="parentheses"):
        encode_bundle(bundle(**{key: text}))
    assert encode_bundle(bundle(run_id="a(b(c))()"))["_run_id"] == "a(b(c))()"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", True),
        ("step", "1"),
        ("step", 1.0),
        ("confidence", 0.5),
        ("confidence", True),
        ("confidence", "1"),
        ("confidence", None),
        ("timestamp", "2026-03-01"),
        ("timestamp", START.date()),
        ("run_id", 7),
        ("source", Colour.RED),
        ("origin", 7),
    ],
    ids=repr,
)
def test_key_with_a_value_of_another_type_is_refused(key: str, value: object) -> None:
    with pytest.raises(ProvenanceError, match="cannot be a") as caught:
        encode_bundle(bundle(**{key: value}))
    assert caught.value.slot == f"_{key}"


@pytest.mark.parametrize("confidence", [2, -1, Decimal("1.01"), Decimal("-0.1")], ids=str)
def test_confidence_outside_of_0_to_1_is_refused(confidence: object) -> None:
    with pytest.raises(ProvenanceError, match=r"must lie in 0\.\.1"):
        encode_bundle(bundle(confidence=confidence))
    assert encode_bundle(bundle(confidence=1))["_confidence"] == 1


def test_bundle_with_a_missing_or_unknown_key_is_refused() -> None:
    less = {key: value for key, value in bundle().items() if key != "step"}
    with pytest.raises(ProvenanceError, match="slot '_step': missing"):
        encode_bundle(cast("ProvenanceBundle", less))
    with pytest.raises(ProvenanceError, match="slot '_extra': not a key of provenance"):
        encode_bundle(bundle(extra=1))


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_two_names_never_share_an_identifier(names: list[str]) -> None:
    first, second = (f"rule-{make_identifier(name)}" for name in names)
    assert first != second
    assert IDENTIFIER.fullmatch(first)
    assert IDENTIFIER.fullmatch(second)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("tea", "tea"), ("9-tea_x", "9-tea_x"), ("tea.v2", "teaX2eXv2"), ("X2eX", "X58X2eX58X")],
)
def test_common_names_stay_readable(name: str, identifier: str) -> None:
    assert make_identifier(name) == identifier


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
    | st.decimals() | st.datetimes(timezones=st.none() | st.timezones()) | st.uuids()
    | st.binary() | st.sampled_from([*Colour, *Level, *Word]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters(), max_size=3), anything, max_size=3), anything)
def test_any_value_is_stored_exactly_or_refused(slots: dict[str, Any], step: Any) -> None:
    try:
        document = assertion_document(slots, bundle(step=step))
    except ProvenanceError:
        return
    assert document.keys() == slots.keys() | {
        "_origin", "_source", "_run_id", "_step", "_confidence", "_timestamp",
    }  # fmt: skip
    assert document["_origin"] == "consolidation"
    for value in document.values():
        assert type(value) in (str, int)
        if isinstance(value, str):
            assert "\0" not in value
            value.encode()
