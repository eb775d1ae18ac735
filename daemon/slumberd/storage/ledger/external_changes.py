"""Record in the ledger what other programs changed in ``facts``.

Triggers store the changed fact ids, and each row is compared with the ledger. A row that another
program wrote is a declared fact, and a row that it removed is a withdrawal of that fact. If a rule
promoted the fact of that id, the change is a manual edit. A row that cannot be read is quarantined.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.incoming import ID_TAKEN, Contested, Unmatched, describe_taken
from slumberd.consolidation.manual import OWN_IDS, ManualAssertion, owner_of_assertion
from slumberd.consolidation.precedence import EXTERNAL
from slumberd.consolidation.state import CurrentFact
from slumberd.model.episode import instant, microseconds
from slumberd.model.errors import InstantRangeError
from slumberd.model.firing import Firing, Record
from slumberd.model.scope import channel_of, escape, owner_of
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.manual_edits import ManualEdits
from slumberd.storage.strict_json import MOST_DEPTH, too_deep, written

UNREADABLE = "external_unreadable"
"""The quarantine reason of a row that cannot be read."""


class Unreadable(NamedTuple):
    """Why a row cannot be read.

    Attributes:
        detail: The problem, in words.
    """

    detail: str


class _UnreadableError(Exception):
    """A column cannot be read; only this module raises and catches it."""


def decode_fact_row(row: Sequence[Any]) -> ManualAssertion | Unreadable:
    """Read a row: columns in the order of the table, invalid bytes as surrogates."""
    fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at = row
    try:
        asserted = ManualAssertion(
            _fact_id(fact_id),
            _text(user, "user"),
            _text(agent, "agent"),
            _object(payload, "payload"),
            _confidence(confidence),
            _lineage(lineage),
            _object(metadata, "metadata"),
            pinned_at=_pinned_at(pinned_at),
        )
    except _UnreadableError as error:
        return Unreadable(str(error))
    return asserted._replace(stored=_stored(row, asserted))


def _stored(row: Sequence[Any], asserted: ManualAssertion) -> dict[str, list[str]] | None:
    """Return the columns whose bytes differ from those that this store would write."""
    ours = {
        "payload": (row[3], written(asserted.payload)),
        "lineage": (row[4], written(list(asserted.lineage))),
        "metadata": (row[6], written(asserted.metadata)),
        "pinned_at": (row[7], instant(asserted.pinned_at or 0).isoformat()),
    }
    found = {
        column: ["blob", value.decode()] if isinstance(value, bytes) else ["text", value]
        for column, (value, own) in ours.items()
        if value != own
    }
    return found or None


def read_owner(row: Sequence[Any]) -> tuple[str, str]:
    """Return the user and agent of a row; empty texts when they cannot be read."""
    try:
        return _text(row[1], "user"), _text(row[2], "agent")
    except _UnreadableError:
        return "", ""


def printable_id(fact_id: object) -> str:
    """Return any fact id as text; a valid id is unchanged."""
    if isinstance(fact_id, str):
        fact_id = fact_id.encode(errors="surrogateescape")
    return fact_id.decode(errors="backslashreplace") if isinstance(fact_id, bytes) else ""


def _fact_id(value: object) -> str:
    fact_id = _text(value, "fact_id")
    if not fact_id:
        raise _UnreadableError("fact_id is empty")
    if fact_id.startswith(OWN_IDS):
        raise _UnreadableError(f"fact_id begins with {OWN_IDS!r}, which is reserved for the ledger")
    return fact_id


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise _UnreadableError(f"{column} is of type {type(value).__name__}")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise _UnreadableError(f"{column} contains NUL or invalid Unicode")
    return value


def _json(value: object, column: str) -> Any:  # noqa: ANN401 # any JSON
    if not isinstance(value, bytes | str):
        raise _UnreadableError(f"{column} is of type {type(value).__name__}")
    try:
        found = orjson.loads(value)
    except ValueError as error:
        raise _UnreadableError(f"{column} is not valid JSON: {error}") from error
    if isinstance(found, dict | list) and too_deep(found):
        raise _UnreadableError(f"{column} is nested deeper than {MOST_DEPTH} levels")
    # Whole numbers of more than 64 bits would be rounded.
    if json.loads(value) != found:
        raise _UnreadableError(f"{column} holds a number that is too large")
    return found


def _object(value: object, column: str) -> dict[str, Any]:
    found = _json(value, column)
    if not isinstance(found, dict):
        raise _UnreadableError(f"{column} is not a JSON object")
    return found


def _lineage(value: object) -> list[dict[str, Any]]:
    found = _json(value, "lineage")
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _UnreadableError("lineage is not a list of JSON objects")
    return found


def _confidence(value: object) -> float:
    if not isinstance(value, float) or not (math.isfinite(value) and 0 <= value <= 1):
        raise _UnreadableError(
            f"confidence is {str(value)[:40]}, which is not a number from 0 to 1"
        )
    return value


def _pinned_at(value: object) -> int:
    """Return microseconds since 1970 UTC; an instant without an offset is taken as UTC."""
    try:
        at = datetime.fromisoformat(_text(value, "pinned_at"))
        found = microseconds(at if at.tzinfo else at.replace(tzinfo=UTC))
        instant(found)
    except (ValueError, OverflowError, InstantRangeError) as error:
        raise _UnreadableError(
            f"pinned_at is {str(value)[:40]!r}, which is not ISO 8601"
        ) from error
    return found


CHUNK = 2_000
"""At most so many changes are recorded as one firing."""


class _Change(NamedTuple):
    """The row of a changed fact id.

    Attributes:
        fact_id: The id, as text that can be printed.
        row: Its row; None when it was removed.
        content: The assertion of the row, or why it cannot be read.
    """

    fact_id: str
    row: Sequence[Any] | None
    content: ManualAssertion | Unreadable

    @property
    def sort_key(self) -> tuple[bool, int, str]:
        """The sort key of changes: removals first, then by the instants of the rows.

        A new row may replace a removed row of the same key.
        """
        at = self.content.pinned_at if isinstance(self.content, ManualAssertion) else None
        return self.row is not None, at or 0, self.fact_id


def record_changes(
    session: Session, depth: int, at: datetime, *, chunk: int = CHUNK
) -> list[Record]:
    """Record the changes of other programs; inside a transaction, before its own writes.

    Args:
        session: Without an open cursor on ``facts``.
        depth: Links of lineage.
        at: The instant of the changes.
        chunk: Record at most so many changes as one firing.

    Returns:
        The rows that are added to the ledger.
    """
    changed = session.rows("external_changes.changes")
    firing = Firing(EXTERNAL, "", "manual", at)
    adopting = not session.one("ledger.last_row")
    records = []
    for first in range(0, len(changed), chunk):
        changes = _sorted_changes(session, changed[first : first + chunk])
        edits = ManualEdits(session, depth, firing)
        records += _record_firing(edits, session, changes, adopting=adopting)
    session.do("external_changes.drop_changes")
    return records


def _sorted_changes(
    session: Session, changed: Iterable[tuple[object, int | None]]
) -> list[_Change]:
    return sorted(_read_changes(session, changed), key=lambda change: change.sort_key)


def _read_changes(
    session: Session, changed: Iterable[tuple[object, int | None]]
) -> Iterator[_Change]:
    for fact_id, rowid in changed:
        row = None if rowid is None else session.one("external_changes.row", (rowid,))
        content = decode_fact_row(row) if row else Unreadable("the row was removed")
        yield _Change(printable_id(fact_id), row, content)


def _record_firing(
    edits: ManualEdits,
    session: Session,
    changes: Sequence[_Change],
    *,
    adopting: bool,
) -> list[Record]:
    edits.batch.overwrites = True
    edits.batch.found = {change.fact_id: tuple(change.row) for change in changes if change.row}
    if adopting:
        edits.batch.note = {"adopted": len(edits.batch.found)}
    edits.load([change.fact_id for change in changes])
    session.do_each(
        "external_changes.drop_unreadable", [_quarantine_key(change) for change in changes]
    )
    claims = [(change, _claim_of(edits, change)) for change in changes]
    edits.apply_changes([claim for _, claim in claims if claim is not None])
    for change, claim in claims:
        # The ledger may not have the row as current, for example after a retraction.
        if (
            change.row is not None
            and claim is not None
            and not edits.known_state.fact(change.fact_id)
        ):
            edits.rewrite_row(change.fact_id)
    outcome = edits.finish()
    return outcome.records if outcome else []


def _quarantine_key(change: _Change) -> dict[str, str]:
    channel = escape(channel_of(change.fact_id))
    return {"rule": EXTERNAL, "channel": channel, "eid": change.fact_id}


def _claim_of(edits: ManualEdits, change: _Change) -> Claim | Unmatched | None:
    """Return the claim of a change; None when it changes nothing, or is quarantined."""
    fact = edits.known_state.fact(change.fact_id)
    stored = fact_row(fact) if fact else None
    if change.row == stored:
        return None
    covers = edits.evaluated_version(change.fact_id)
    if change.row is None:
        if fact is None:
            return None
        if covers is None or fact.effective.claim.declared:
            return edits.withdraw_or_retract(fact)
        return edits.removal_claim(fact, covers)
    content = change.content
    if isinstance(content, Unreadable):
        owner = owner_of(*read_owner(change.row), channel_of(change.fact_id))
        edits.quarantine(_quarantined_candidate(edits, change, owner, UNREADABLE, content.detail))
        return None
    if edits.is_taken(change.fact_id, owner_of_assertion(content)):
        detail = describe_taken(change.fact_id)
        edits.quarantine(
            _quarantined_candidate(edits, change, owner_of_assertion(content), ID_TAKEN, detail)
        )
        edits.rewrite_row(change.fact_id)
        return None
    if edits.edits_manually(change.fact_id):
        claim = edits.assertion_claim(content, at=_instant(edits, content, fact))
        return claim._replace(covers=covers)
    return edits.declaration_claim(content)


def _quarantined_candidate(
    edits: ManualEdits, change: _Change, owner: str, reason: str, detail: str
) -> Contested:
    fact_id = change.fact_id
    return Contested(
        fact_id=fact_id,
        owner=owner,
        rule_id=EXTERNAL,
        at=edits.batch.at,
        eid=fact_id,
        reason=reason,
        detail=detail,
    )


def _instant(edits: ManualEdits, asserted: ManualAssertion, fact: CurrentFact | None) -> int | None:
    """Return the instant of a change: that of its row, if it is new, and now at the latest."""
    stored = None if fact is None else fact.effective.pinned_at
    if asserted.pinned_at is None or asserted.pinned_at == stored:
        return None
    return min(asserted.pinned_at, edits.batch.at)
