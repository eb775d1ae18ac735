"""Compare the tables beside a ledger with its rows: watermarks, generations, held, quarantine.

These changes stay unseen: the watermark of a rule that has not fired; a watermark that was moved
back, so that the rule evaluates the same versions again; a generation that no firing has used; the
episode ids beside log numbers, which an erasure may remove; and missing quarantine entries of rows
that other programs wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from slumberd.consolidation.precedence import EXTERNAL
from slumberd.model.fact_ids import named_ids
from slumberd.model.record import Break
from slumberd.model.scope import unescape
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import GENERATION_BITS
from slumberd.storage.ledger.rows import firing_id_of

_LOG_NUMBER = (1 << GENERATION_BITS) - 1


def first_changed_schema(session: Session) -> Break | None:
    """Return a break when another program changed the tables of the store; else None."""
    problem = session.find_schema_change()
    return Break(0, problem) if problem else None


def first_changed_table(session: Session) -> Break | None:
    """Return the first difference between the ledger and the tables beside it; None when equal."""
    checks: tuple[Callable[[Session], Iterator[Break]], ...] = (
        _check_watermarks,
        _check_generations,
        _check_held,
        _check_quarantine,
        _check_missing_quarantine,
    )
    for check in checks:
        broken = next(check(session), None)
        if broken is not None:
            return broken
    return None


def _check_watermarks(session: Session) -> Iterator[Break]:
    for rule, seq, upto in session.stream("verify_tables.watermarks"):
        if upto is not None and seq > upto:
            problem = f"slumberd_watermark has log row {seq} for rule {rule!r}"
            yield Break(0, f"{problem}, its last firing ended at {upto}")


def _check_generations(session: Session) -> Iterator[Break]:
    """Compute the generation of each version again; only a restored log has generations."""
    generations = session.rows("verify_tables.generations")
    highest = max((generation for generation, _ in generations), default=0)
    if [generation for generation, _ in generations] != [*range(highest, 0, -1)]:
        yield Break(0, "slumberd_generations lacks a generation")
    known = session.value("verify_tables.highest_generation") or 0
    if not known <= highest <= known + 1:
        yield Break(0, f"slumberd_generations ends at {highest}, the firings at {known}")
    for seq, version, generation in session.stream("verify_tables.versions") if highest else ():
        number = version & _LOG_NUMBER
        older = (known for known, after in generations if known <= generation and after < number)
        if version >> GENERATION_BITS != next(older, 0):
            yield Break(seq, "slumberd_generations has another generation for its version")


def _check_held(session: Session) -> Iterator[Break]:
    approved = set()
    for (payload,) in session.stream("verify_tables.approvals"):
        approved.add(orjson.loads(payload).get("approves"))
    for rule, number, upto, problem, is_approved, its_rule, payload in session.stream(
        "verify_tables.held_batches"
    ):
        document = orjson.loads(payload) if payload else {}
        expected = its_rule, document.get("held"), document.get("held_upto")
        name = firing_id_of(its_rule, number) if "held_again" in document else its_rule
        if (name, *expected) != (rule, its_rule, problem, upto):
            yield Break(
                number, f"slumberd_held_batches differs from the ledger for a batch of {rule!r}"
            )
        if is_approved and firing_id_of(its_rule, number) not in approved:
            yield Break(number, "slumberd_held_batches has it as approved, the ledger does not")


def _check_quarantine(session: Session) -> Iterator[Break]:
    """Compare each quarantined episode with the row that quarantined it."""
    for stored in session.stream("verify_tables.quarantine"):
        rule, channel, eid, version, owner, reason, detail, seq, *row = stored
        what, its_rule, its_version, its_reason, payload = row
        document = orjson.loads(payload) if payload else {}
        expected = document.get("eid"), document.get("owner"), document.get("detail"), its_version
        by_rule = rule == its_rule or its_rule == "@undo"
        same = expected == (eid, owner, detail, version) and its_reason in ("", reason)
        if what != 3 or not by_rule or not same or channel != owner.split("/")[2]:
            yield Break(seq, f"slumberd_quarantine differs from the ledger for episode {eid!r}")


def _check_missing_quarantine(session: Session) -> Iterator[Break]:
    """Find rows whose episode the quarantine lacks, though nothing removed it from there."""
    listed = set(session.stream("verify_tables.quarantined_ids"))
    dropped, undone = _find_removals(session)
    for episode, (seq, firing_id) in _last_quarantines(session).items():
        removed = seq in dropped or firing_id in undone
        if episode not in listed and not removed and not _is_resolved(session, episode, seq):
            yield Break(seq, f"quarantined episode {episode[2]!r}, slumberd_quarantine lacks it")


def _last_quarantines(
    session: Session,
) -> dict[tuple[str, str, str], tuple[int, str]]:
    """Return by rule, channel and episode the last row that quarantined it, with its firing."""
    found = {}
    for seq, firing, rule, payload in session.stream("verify_tables.quarantine_rows"):
        document = orjson.loads(payload)
        if rule != EXTERNAL:
            episode = rule, document["owner"].split("/")[2], document["eid"]
            found[episode] = seq, firing_id_of(rule, firing)
    return found


def _find_removals(session: Session) -> tuple[set[int], set[str]]:
    """Return the rows that people removed from the quarantine, and the firings they undid."""
    dropped: set[int] = set()
    undone: set[str] = set()
    for (payload,) in session.stream("verify_tables.quarantine_removals"):
        document: dict[str, Any] = orjson.loads(payload)
        dropped.update(document.get("rows", ()))
        undone.add(document.get("undoes", ""))
    return dropped, undone


def _is_resolved(session: Session, episode: tuple[str, str, str], seq: int) -> bool:
    """Return whether the rule evaluated the episode since, and did not quarantine it."""
    rule, channel, eid = episode
    for fact_id in named_ids(unescape(channel), eid):
        parameters = {"rule": rule, "fact_id": fact_id, "seq": seq}
        if session.one("verify_tables.is_read_later", parameters) is not None:
            return True
    return False
