"""Read from the ledger which values of a fact's key were current, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.explanation import DetailedRecord
from slumberd.consolidation.key_history import KeyHistory, believed_periods, valid_periods
from slumberd.consolidation.precedence import effective_claims
from slumberd.errors import NoInputError
from slumberd.model.scope import ScopeFilter
from slumberd.storage.audit.explain import detailed_records
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import claim_from, evaluations_from
from slumberd.storage.ledger.state_loader import LoadedState

_UNKNOWN = "nothing of that id is stored in this scope"


def history_of(
    session: Session, fact_id: str, scope: ScopeFilter, *, depth: int, most: int
) -> KeyHistory:
    """Return the history of the key of a fact, which need not be current.

    Args:
        session: Inside a snapshot.
        fact_id: The fact.
        scope: Whose fact it must be.
        depth: Links of lineage.
        most: At most so many periods of each clock, the latest ones.

    Raises:
        NoInputError: The scope has never had such a fact.
    """
    row = _find_latest_assertion(session, fact_id, scope)
    claim = claim_from(fact_id, row.claimed_at or 0, row.document)
    loaded = LoadedState(session, channels_at(session), depth)
    loaded.load_in_full({claim.key})
    known = loaded.known_state
    # The rows of the key are read by their ids: a claim that names a fact has another key.
    fact_ids = {fact_id, *known.complete_keys[claim.key]}
    referrers = {found for each in fact_ids for found in known.referrers.get(each, ())}
    rows = detailed_records(session, sorted(fact_ids | referrers))
    believed = believed_periods(rows, claim.key, row.key_id or 0, _Claims(session, fact_ids).at)
    valid, cut = valid_periods(known, claim.key, most=most)
    return KeyHistory(
        user=row.record.user,
        agent=row.record.agent,
        payload=claim.payload,
        valid=valid[-most:],
        believed=believed[-most:],
        cut=cut or len(valid) > most or len(believed) > most,
    )


def _find_latest_assertion(session: Session, fact_id: str, scope: ScopeFilter) -> DetailedRecord:
    rows: Sequence[DetailedRecord] = detailed_records(session, [fact_id])
    found = [
        row for row in rows if row.asserts and scope.holds_owner(row.record.user, row.record.agent)
    ]
    if not found:
        raise NoInputError(fact_id, _UNKNOWN)
    return found[-1]


class _Claims:
    """The claims of some facts at any row of the ledger; they are read when first asked for."""

    def __init__(self, session: Session, fact_ids: Iterable[str]) -> None:
        self._session = session
        self._values = {"values": sorted(fact_ids)}

    def at(self, fact_id: str, seq: int) -> list[Claim]:
        """Return the claims that counted of a fact after a row."""
        found = [row for row in self._rows.get(fact_id, ()) if row[1] <= seq]
        evaluations = evaluations_from(found).get(fact_id, [])
        return [effective.claim for effective in effective_claims(evaluations)]

    @cached_property
    def _rows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._session.rows("ledger.evaluations", self._values):
            found.setdefault(row[0], []).append(row)
        return found
