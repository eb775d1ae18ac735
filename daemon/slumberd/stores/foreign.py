"""How a row of ``facts`` is read that another program wrote: as what a hand says, or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.manual import OWN_IDS, Said
from slumberd.model.episode import instant, microseconds
from slumberd.storage.sqlite.strict_json import MOST_DEPTH, too_deep, written

UNREADABLE = "external_unreadable"
"""The reason with which such a row is quarantined."""


class Unreadable(NamedTuple):
    """Why a row cannot be read.

    Attributes:
        detail: What was found, for a person.
    """

    detail: str


class _UnreadableError(Exception):
    """A column that cannot be read; a control flow of this module."""


def said_by(row: Sequence[Any]) -> Said | Unreadable:
    """Read a row; its columns in the order of the table, texts with bad bytes as surrogates."""
    fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at = row
    try:
        said = Said(
            _fact_id(fact_id),
            _text(user, "user"),
            _text(agent, "agent"),
            _object(payload, "payload"),
            _confidence(confidence),
            _lineage(lineage),
            _object(metadata, "metadata"),
            pinned_at=_instant(pinned_at),
        )
    except _UnreadableError as error:
        return Unreadable(str(error))
    return said._replace(stored=_stored(row, said))


def _stored(row: Sequence[Any], said: Said) -> dict[str, list[str]] | None:
    """Return the columns whose bytes differ from those that this store would write."""
    ours = {
        "payload": (row[3], written(said.payload)),
        "lineage": (row[4], written(list(said.lineage))),
        "metadata": (row[6], written(said.metadata)),
        "pinned_at": (row[7], instant(said.pinned_at or 0).isoformat()),
    }
    found = {
        column: ["blob", value.decode()] if isinstance(value, bytes) else ["text", value]
        for column, (value, own) in ours.items()
        if value != own
    }
    return found or None


def claimed(row: Sequence[Any]) -> tuple[str, str]:
    """Return the user and agent that a row names; nobody when it names none properly."""
    try:
        return _text(row[1], "user"), _text(row[2], "agent")
    except _UnreadableError:
        return "", ""


def shown(fact_id: object) -> str:
    """Return a fact id as text, whatever it is; a proper one as it is."""
    if isinstance(fact_id, str):
        fact_id = fact_id.encode(errors="surrogateescape")
    return fact_id.decode(errors="backslashreplace") if isinstance(fact_id, bytes) else ""


def _fact_id(value: object) -> str:
    fact_id = _text(value, "fact_id")
    if not fact_id:
        raise _UnreadableError("fact_id is empty")
    if fact_id.startswith(OWN_IDS):
        raise _UnreadableError(f"fact_id begins with {OWN_IDS!r}, as only the ledger's own do")
    return fact_id


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise _UnreadableError(f"{column} is of type {type(value).__name__}")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise _UnreadableError(f"{column} holds NUL or no valid Unicode")
    return value


def _json(value: object, column: str) -> Any:  # noqa: ANN401 # any JSON
    if not isinstance(value, bytes | str):
        raise _UnreadableError(f"{column} is of type {type(value).__name__}")
    try:
        found = orjson.loads(value)
    except ValueError as error:
        raise _UnreadableError(f"{column} is no JSON: {error}") from error
    if isinstance(found, dict | list) and too_deep(found):
        raise _UnreadableError(f"{column} is nested deeper than {MOST_DEPTH} levels")
    # Whole numbers of more than 64 bits would be rounded.
    if json.loads(value) != found:
        raise _UnreadableError(f"{column} holds a number that is too large")
    return found


def _object(value: object, column: str) -> dict[str, Any]:
    found = _json(value, column)
    if not isinstance(found, dict):
        raise _UnreadableError(f"{column} is no JSON object")
    return found


def _lineage(value: object) -> list[dict[str, Any]]:
    found = _json(value, "lineage")
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _UnreadableError("lineage is no list of JSON objects")
    return found


def _confidence(value: object) -> float:
    if not isinstance(value, float) or not (math.isfinite(value) and 0 <= value <= 1):
        raise _UnreadableError(f"confidence is {str(value)[:40]}, not a number of 0 to 1")
    return value


def _instant(value: object) -> int:
    """Return microseconds since 1970 UTC; an instant without an offset is taken as UTC."""
    try:
        at = datetime.fromisoformat(_text(value, "pinned_at"))
        found = microseconds(at if at.tzinfo else at.replace(tzinfo=UTC))
        instant(found)
    except (ValueError, OverflowError) as error:
        raise _UnreadableError(f"pinned_at is {str(value)[:40]!r}, no ISO 8601") from error
    return found
