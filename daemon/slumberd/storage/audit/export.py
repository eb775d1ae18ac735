"""Export the ledger: each row in full as a line of JSON, with its firing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson

from slumberd.model.episode import instant
from slumberd.observability.line_format import timestamp
from slumberd.sql_statements import statements
from slumberd.storage.ledger.rows import KINDS, WHATS, firing_id_of

_SQL = statements("ledger")


def exported(connection: sqlite3.Connection, after: int, limit: int) -> tuple[int, list[bytes]]:
    """Return the lines of rows above a number, and the last row's number, or `after` when none."""
    found = connection.execute(_SQL["whole_rows"], {"after": after, "limit": limit}).fetchall()
    return found[-1][0] if found else after, [_line(row) for row in found]


def _line(row: Sequence[Any]) -> bytes:
    (
        seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
        payload, commitment, chain, rule, rule_hash, trigger, fired_at,
    ) = row  # fmt: skip
    document = {
        "seq": seq,
        "delta": delta,
        "firing": firing,
        "what": _word(WHATS, what),
        "kind": _word(KINDS, kind),
        "reason": reason,
        "version": version,
        "key_id": key_id,
        "at": at,
        "fact_id": fact_id,
        "replaces": _json(replaces and replaces.encode()),
        "salt": salt and salt.hex(),
        "payload": _json(payload),
        "commitment": commitment.hex(),
        "chain": chain.hex(),
        "firing_id": None if rule is None else firing_id_of(rule, firing),
        "rule_id": rule,
        "rule_hash": rule_hash,
        "trigger": trigger,
        "fired_at": None if fired_at is None else timestamp(instant(fired_at)),
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _word(words: Sequence[str], number: int) -> str | int:
    return words[number] if 0 <= number < len(words) else number


def _json(text: bytes | None) -> object:
    """Return stored JSON byte by byte, so that the reader can compute the hashes again."""
    if text is None:
        return None
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # the row was changed from outside
        return {"broken": text.hex()}
    return orjson.Fragment(text)
