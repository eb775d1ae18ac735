"""Read from the ledger which values of a fact's key were current, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from slumberd.consolidation.explanation import DetailedRecord
from slumberd.consolidation.key_history import KeyHistory, believed_periods, latest, valid_periods
from slumberd.consolidation.state import KnownState
from slumberd.model.errors import NoInputError
from slumberd.model.scope import ScopeFilter
from slumberd.storage.audit.explain import detailed_records
from slumberd.storage.engine import Session
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import claim_from, evaluations_from
from slumberd.storage.ledger.state_loader import LoadedState, law_at, whole_known_state

_UNKNOWN = "nothing of that id is stored in this scope"


def history_of(
    session: Session, fact_id: str, scope: ScopeFilter, *, depth: int, most: int
) -> KeyHistory:
    """Return the history of the key of a fact, which need not be current.

    Args:
        session: Inside a snapshot.
        scope: Whose fact it must be.
        depth: Links of lineage.
        most: At most so many periods of each clock, the latest ones.

    Raises:
        NoInputError: The scope has never had such a fact.
    """
    row = _find_latest_assertion(session, fact_id, scope)
    claim = claim_from(fact_id, row.claimed_at or 0, row.document)
    loaded = LoadedState(session, channels_at(session), depth, law_at(session))
    loaded.load_in_full({claim.key})
    known = loaded.known_state
    changes = _changes_of(session, known.evaluations)
    claims = sum(map(len, known.evaluations.values()))
    kept = latest(changes, most=most, claims=claims)
    believed = believed_periods(_states_after(session, known, kept), claim.key)
    valid, cut = valid_periods(known, claim.key, most=most)
    return KeyHistory(
        user=row.record.user,
        agent=row.record.agent,
        payload=claim.payload,
        valid=valid[-most:],
        believed=believed[-most:],
        cut=cut or len(kept) < len(changes) or max(len(valid), len(believed)) > most,
    )


def _find_latest_assertion(session: Session, fact_id: str, scope: ScopeFilter) -> DetailedRecord:
    rows: Sequence[DetailedRecord] = detailed_records(session, [fact_id])
    found = [
        row for row in rows if row.asserts and scope.holds_owner(row.record.user, row.record.agent)
    ]
    if not found:
        raise NoInputError(fact_id, _UNKNOWN)
    return found[-1]


def _changes_of(session: Session, fact_ids: Iterable[str]) -> list[tuple[int, datetime]]:
    """Return the last row of each firing that changed some facts, with its instant, in order."""
    last: dict[str, tuple[int, datetime]] = {}
    for row in detailed_records(session, sorted(fact_ids)):
        # A version that cannot be read is quarantined, and takes the fact of the one before away.
        if row.record.replaces or row.record.kind in ("add", "update", "delete"):
            last[row.record.firing_id] = (row.record.seq, row.record.at)
    return sorted(last.values())


def _states_after(
    session: Session, known: KnownState, changes: Iterable[tuple[int, datetime]]
) -> Iterator[tuple[datetime, KnownState]]:
    """Yield the instants of some rows, and the state of the same facts after each of them."""
    rows = session.rows("ledger.evaluations", {"values": sorted(known.evaluations)})
    referrers = [(name, found) for name, some in known.referrers.items() for found in some]
    for seq, at in changes:
        # Rows after the instant must not count: an undo among them has no effect yet.
        evaluations = evaluations_from(row for row in rows if row[1] <= seq)
        multi = channels_at(session, seq)
        law = law_at(session, seq)
        yield at, whole_known_state(evaluations, referrers, multi, known.depth, law=law)
