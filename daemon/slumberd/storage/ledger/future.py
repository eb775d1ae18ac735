"""Withdraw claims whose instant is still to come, and quarantine their versions until then.

Only ledgers of 0.2.0, and of hosts whose clock was wrong, hold such claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL, Claim
from slumberd.consolidation.incoming import FUTURE, Contested, future_detail
from slumberd.consolidation.precedence import MANUAL_RULE_ID, Evaluation, History
from slumberd.consolidation.resolution import Decision
from slumberd.model.episode import microseconds
from slumberd.model.firing import Firing, Outcome
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.manual_edits import ManualEdits
from slumberd.storage.ledger.undo import UNDO, Undoer, withdraw


class FutureClaim(NamedTuple):
    """A current fact whose claim has an instant that is still to come.

    Attributes:
        at: The instant, microseconds since 1970 UTC.
    """

    fact_id: str
    at: int


class FutureOf(NamedTuple):
    """Which claims are withdrawn, because their instant is still to come.

    Attributes:
        latest: The last instant that is not, microseconds since 1970 UTC.
        owner: Only claims of this user, agent and channel; empty for all.
    """

    latest: int
    owner: str

    def has(self, claim: Claim) -> bool:
        """Return whether a claim is withdrawn; a declared fact never is."""
        is_later = claim.precedence.at > self.latest and not claim.declared
        return is_later and self.owner in ("", claim.owner)


def future_instants(rows: Iterable[Row]) -> dict[str, list[int]]:
    """Return instants in microseconds by rule, from rows of a rule and a detail, in order."""
    found: dict[str, list[int]] = {}
    for rule, detail in rows:
        found.setdefault(rule, []).append(microseconds(datetime.fromisoformat(detail)))
    return found


def find_future_facts(session: Session, latest: int) -> list[FutureClaim]:
    """Return the current facts whose claims are later than an instant, the latest first."""
    return [FutureClaim(*row) for row in session.rows("ledger.future_facts", {"latest": latest})]


def withdraw_future(
    session: Session, latest: int, depth: int, undoer: Undoer, *, owner: str = ""
) -> Iterator[Outcome]:
    """Withdraw the claims that are later than an instant; inside a transaction.

    What a rule evaluated goes into the quarantine. A manual edit gets the instant of this moment.

    Args:
        session: Of the facts.
        latest: Microseconds since 1970 UTC.
        depth: How many replaced assertions a fact's lineage names.
        undoer: The person, the moment, and the reason.
        owner: Only claims of this user, agent and channel; empty for all.

    Yields:
        The outcome of each firing.
    """
    fact_ids = [row[0] for row in session.stream("ledger.future_claims", {"latest": latest})]
    # One firing withdraws one evaluation of a fact id at most: a replay takes them one by one.
    future = FutureOf(latest, owner)
    while outcome := _withdraw_once(session, fact_ids, future, depth, undoer):
        yield outcome
    edits = ManualEdits(session, depth, _firing(MANUAL_RULE_ID, undoer))
    edits.load(fact_ids)
    edits.repeat([*_edits_to_repeat(edits, fact_ids, future)])
    repeated = edits.finish()
    if repeated is not None:
        yield repeated


def _firing(rule_id: str, undoer: Undoer) -> Firing:
    return Firing(
        rule_id, "", "manual", undoer.at, by=undoer.by, run=undoer.run, reason=undoer.reason
    )


def _withdraw_once(
    session: Session, fact_ids: list[str], future: FutureOf, depth: int, undoer: Undoer
) -> Outcome | None:
    batch = Batch(session, _firing(UNDO, undoer), depth)
    batch.note = {"withdraws": FUTURE}
    histories = batch.loaded.load_histories(fact_ids)
    wanted = {
        fact_id: found
        for fact_id in fact_ids
        for found in _evaluations_of_future(histories[fact_id], future)[:1]
    }
    if not wanted:
        return None
    resolution = batch.resolution()
    quarantined: dict[tuple[str, str, str], Contested] = {}
    for fact_id, (evaluation, claim) in wanted.items():
        numbers = evaluation.firing, batch.number
        withdraw(resolution, fact_id, histories[fact_id], numbers, at=batch.at)
        place = evaluation.rule_id, claim.owner, claim.precedence.id
        quarantined[place] = _quarantined(evaluation, claim, _session_of(session, evaluation))
    for candidate in quarantined.values():
        resolution.apply(candidate)
    return batch.write(Decision.of(resolution, {}))


def _evaluations_of_future(history: History, future: FutureOf) -> list[tuple[Evaluation, Claim]]:
    """Return the evaluations of rules that count and are later than an instant."""
    return [
        (evaluation, evaluation.claim)
        for evaluation in history.remaining()
        if evaluation.claim is not None and future.has(evaluation.claim)
        if evaluation.claim.precedence.rank != MANUAL
    ]


def _session_of(session: Session, evaluation: Evaluation) -> str:
    """Return the session of an evaluated episode, by which an erasure may look for it."""
    payload = session.value("ledger.payload", (evaluation.seq,))
    found: str = orjson.loads(payload).get("session", "") if payload else ""
    return found


def _quarantined(evaluation: Evaluation, claim: Claim, said_in: str) -> Contested:
    at = claim.precedence.at
    return Contested(
        fact_id=claim.fact_id,
        owner=claim.owner,
        rule_id=evaluation.rule_id,
        at=at,
        eid=claim.precedence.id,
        reason=FUTURE,
        detail=future_detail(at),
        version=evaluation.version,
        session=said_in,
    )


def _edits_to_repeat(edits: ManualEdits, fact_ids: list[str], future: FutureOf) -> Iterator[Claim]:
    """Yield the manual edits that are later than an instant, with the instant of this moment."""
    for fact_id in fact_ids:
        for effective in edits.known_state.effective_claims(fact_id):
            claim = effective.claim
            if claim.precedence.rank == MANUAL and future.has(claim):
                yield claim._replace(precedence=claim.precedence._replace(at=edits.moment))
