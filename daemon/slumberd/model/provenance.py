"""Promotions of the ledger, and their provenance in the plain values that a sink stores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Literal, NamedTuple, TypedDict
from uuid import UUID

import orjson

from slumberd.model.errors import ProvenanceError

Plain = str | int
"""A value that any sink can store; an integer has at most 64 bits."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNLIKE_IDENTIFIERS = re.compile(r"[^A-WYZa-z0-9_-]")
_LARGEST = 2**63


class ProvenanceBundle(TypedDict):
    """Where an assertion comes from; exactly these keys.

    Attributes:
        origin: The kind of process that asserts, as an identifier.
        source: The process of that kind, as an identifier.
        run_id: The run of the process.
        step: The position in the run, or in its output.
        confidence: 0 to 1; a float is refused: give ``Decimal(str(value))``.
        timestamp: When the process decided; aware.
    """

    origin: str | Enum
    source: str
    run_id: str | UUID
    step: int
    confidence: Decimal | int
    timestamp: datetime


_KINDS: dict[str, tuple[type, ...]] = {
    "origin": (str, Enum),
    "source": (str,),
    "run_id": (str, UUID),
    "step": (int,),
    "confidence": (Decimal, int),
    "timestamp": (datetime,),
}
"""The types that each key of a bundle accepts."""


def assertion_document(
    slots: Mapping[str, object], provenance: ProvenanceBundle
) -> dict[str, Plain]:
    """Return all that a sink stores for one assertion, with each key of the provenance after ``_``.

    Args:
        slots: The asserted values, by names that are identifiers and do not begin with ``_``.
        provenance: Where the assertion comes from.

    Raises:
        ProvenanceError: A name or a value cannot be stored unchanged.
    """
    return {
        **{_slot_name(name): encode(value, slot=name) for name, value in slots.items()},
        **encode_bundle(provenance),
    }


def _slot_name(name: str) -> str:
    if name.startswith("_"):
        raise ProvenanceError(name, "names that begin with '_' are those of provenance")
    return _identifier(name, slot=name)


def encode_bundle(provenance: ProvenanceBundle) -> dict[str, Plain]:
    """Return a bundle as a sink stores it, each key after ``_``.

    Raises:
        ProvenanceError: A key is missing or unknown, or a value is invalid.
    """
    given: Mapping[str, object] = {**provenance}
    for name in sorted(_KINDS.keys() ^ given.keys()):
        raise ProvenanceError(
            f"_{name}", "missing" if name in _KINDS else "not a key of provenance"
        )
    return {f"_{name}": _encode_part(name, given[name]) for name in _KINDS}


def _encode_part(name: str, value: object) -> Plain:
    slot = f"_{name}"
    if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
        raise ProvenanceError(slot, f"cannot be a {type(value).__name__}")
    plain = encode(value, slot=slot)
    if name == "confidence" and not 0 <= Decimal(plain) <= 1:
        raise ProvenanceError(slot, f"must lie in 0..1, not {plain}")
    if isinstance(plain, str) and not _is_balanced(plain):
        raise ProvenanceError(slot, "holds parentheses that do not match")
    if name in ("origin", "source"):
        # `encode` adds the dot to an enumeration's member, so both sides of the dot are checked.
        for part in str(plain).split(".", 1) if isinstance(value, Enum) else [str(plain)]:
            _identifier(part, slot=slot)
    return plain


def _identifier(text: str, *, slot: str) -> str:
    # The whole text: `$` would let a line feed pass at its end.
    if _IDENTIFIER.fullmatch(text) is None:
        raise ProvenanceError(
            slot,
            f"{text!r} is not an identifier: a letter or '_', then letters, digits, '_' and '-'",
        )
    return text


def _is_balanced(text: str) -> bool:
    open_ = 0
    for character in text:
        open_ += (character == "(") - (character == ")")
        if open_ < 0:
            return False
    return open_ == 0


def encode(value: object, *, slot: str) -> Plain:
    """Return a value in the plain form that a sink stores.

    A member of an enumeration becomes ``Type.NAME``, a bool ``TRUE`` or ``FALSE``, a decimal its
    digits, a UUID its hex digits, an instant ISO 8601 in UTC after ``Z``, a path its POSIX form,
    a dict or list compact JSON with sorted keys; text and integers stay.

    Args:
        slot: Its name, for the error.

    Raises:
        ProvenanceError: Its type is not supported, it has no exact form (a float, a naive
            instant, a relative path), or it is a text that cannot be stored.
    """
    if isinstance(value, int) and not isinstance(value, bool | Enum):
        return _check_range(int(value), slot)
    text = _text(value, slot)
    if "\0" in text:
        raise ProvenanceError(slot, "holds a NUL character")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ProvenanceError(slot, "is not valid Unicode")
    return text


def _check_range(value: int, slot: str) -> int:
    if not -_LARGEST <= value < _LARGEST:
        raise ProvenanceError(slot, "is an integer of more than 64 bits")
    return value


def _text(value: object, slot: str) -> str:
    match value:
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return str(value)
        case UUID():
            return value.hex
        case dict() | list():
            return _json(value, slot)
        case _:
            return _exact_text(value, slot)


def _exact_text(value: object, slot: str) -> str:
    match value:
        case Decimal() if value.is_finite():
            return str(value)
        case datetime() if value.utcoffset() is not None:
            return _utc(value, slot)
        case PurePath() if value.is_absolute():
            return value.as_posix()
        case Decimal():
            raise ProvenanceError(slot, f"must be finite, not {value}")
        case datetime():
            raise ProvenanceError(slot, f"must say its time zone, not {value.isoformat()!r}")
        case PurePath():
            raise ProvenanceError(slot, f"must be an absolute path, not {str(value)!r}")
        case _:
            raise ProvenanceError(slot, f"cannot be a {type(value).__name__}")


def _utc(value: datetime, slot: str) -> str:
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError as error:
        raise ProvenanceError(slot, f"{value.isoformat()!r} has no year in UTC") from error


def _json(value: object, slot: str) -> str:
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise ProvenanceError(slot, f"is not JSON: {error}") from error


def make_identifier(name: str) -> str:
    """Return an identifier for any name; two names never share one.

    Letters, digits, ``_`` and ``-`` stay; every other character, and ``X``, becomes its hex
    digits between two ``X``. The result may begin with a digit, so the caller adds a prefix.
    """
    return _UNLIKE_IDENTIFIERS.sub(lambda found: f"X{ord(found[0]):x}X", name)


ORIGIN = "consolidation"
"""The origin of every promotion of a ledger."""


class Promotion(NamedTuple):
    """One row of the ledger of kind add or update.

    Attributes:
        seq: The row's number.
        kind: The delta.
        firing_id: The firing of the row.
        rule_id: The firing's rule, or ``@manual`` and the like.
        at: The firing's instant.
        user: The fact's user.
        agent: The fact's agent.
        channel: The fact's channel.
        subject: The fact's subject; JSON when it is not a text, empty when there is none.
        predicate: The fact's predicate, in the same form.
        object: The fact's object, as canonical JSON.
        confidence: 0 to 1.
        replaces: The ids of the facts that were replaced.
    """

    seq: int
    kind: Literal["add", "update"]
    firing_id: str
    rule_id: str
    at: datetime
    fact_id: str
    user: str
    agent: str
    channel: str
    subject: str
    predicate: str
    object: str
    confidence: float
    replaces: tuple[str, ...]


class PromotionPage(NamedTuple):
    """A page of the promotion feed.

    Attributes:
        promotions: The promotions among the page's rows, in order, without erased promotions.
        upto: The number of the page's last row; without rows, that of the row before the page.
    """

    promotions: Sequence[Promotion]
    upto: int


class Lag(NamedTuple):
    """How far a reader of the promotion feed is behind the ledger.

    Attributes:
        rows: How many rows, of any kind, it has not read.
        since: The instant of the first of them; None when there is none.
    """

    rows: int
    since: datetime | None

    def seconds(self, now: datetime) -> float:
        """Return the age of the first unread row; 0 without one, or after a clock set back."""
        since = self.since
        return 0.0 if since is None else max(0.0, round((now - since).total_seconds(), 3))


def slots_of(promotion: Promotion) -> dict[str, object]:
    """Return the asserted values of a promotion; by ``seq`` a sink recognises a repeat."""
    return {
        "seq": promotion.seq,
        "kind": promotion.kind,
        "fact_id": promotion.fact_id,
        "user": promotion.user,
        "agent": promotion.agent,
        "channel": promotion.channel,
        "subject": promotion.subject,
        "predicate": promotion.predicate,
        "object": promotion.object,
        "replaces": list(promotion.replaces),
        "rule": promotion.rule_id,
        "firing": promotion.firing_id,
    }


SLOTS = (
    "seq", "kind", "fact_id", "user", "agent", "channel", "subject", "predicate", "object",
    "replaces", "rule", "firing",
)  # fmt: skip
"""The names of `slots_of`; ``seq`` is an integer, the others are text."""


def bundle_of(promotion: Promotion) -> ProvenanceBundle:
    """Return the provenance of a promotion; it is valid for any rule id."""
    return {
        "origin": ORIGIN,
        "source": f"rule-{make_identifier(promotion.rule_id)}",
        "run_id": promotion.firing_id,
        "step": promotion.seq,
        "confidence": Decimal(str(promotion.confidence)),
        "timestamp": promotion.at,
    }


def payload_text(value: object) -> str:
    """Return a value of a payload as text: JSON when it is not a text, empty when it is None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
