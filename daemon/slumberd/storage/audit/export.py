"""Export the ledger: each row in full as a line of JSON, with its firing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from slumberd.logs.lines import timestamp
from slumberd.model.episode import instant
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import EVENTS, KINDS, LedgerRow, firing_id_of


def export_rows(session: Session, after: int, limit: int) -> tuple[int, list[bytes]]:
    """Return the lines of rows above a number, and the last row's number, or `after` when none."""
    found = session.rows("ledger.whole_rows", {"after": after, "limit": limit})
    return found[-1][0] if found else after, [_line(columns) for columns in found]


def _line(columns: Sequence[Any]) -> bytes:
    *row, rule_id, rule_hash, trigger, fired_at = columns
    document = _row_document(LedgerRow(*row))
    document |= {
        "firing_id": None if rule_id is None else firing_id_of(rule_id, document["firing"]),
        "rule_id": rule_id,
        "rule_hash": rule_hash,
        "trigger": trigger,
        "fired_at": None if fired_at is None else timestamp(instant(fired_at)),
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _row_document(row: LedgerRow[str]) -> dict[str, Any]:
    """Return the columns of a row by their names in the database."""
    return {
        "seq": row.seq,
        "delta": row.first,
        "firing": row.firing,
        "what": _name_at(row.event, EVENTS),
        "kind": _name_at(row.kind, KINDS),
        "reason": row.reason,
        "version": row.version,
        "key_id": row.key_id,
        "at": row.at,
        "fact_id": row.fact_id,
        "replaces": _json(row.replaces.encode() if row.replaces else None),
        "salt": row.salt.hex() if row.salt else None,
        "payload": _json(row.payload),
        "commitment": row.commitment.hex(),
        "chain": row.chain.hex(),
    }


def _name_at(number: int, names: Sequence[str]) -> str | int:
    """Return the name with a number; the number itself when another program changed it."""
    return names[number] if 0 <= number < len(names) else number


def _json(text: bytes | None) -> object:
    """Return stored JSON byte by byte, so that the reader can compute the hashes again."""
    if text is None:
        return None
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # another program changed the row
        return {"broken": text.hex()}
    return orjson.Fragment(text)
