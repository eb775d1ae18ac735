"""Hold back a batch over a deletion limit, record the decision about it, and clear quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from slumberd.consolidation.claim import user_and_agent
from slumberd.consolidation.resolution import Decision
from slumberd.model.episode import instant, microseconds
from slumberd.model.firing import (
    CHANNELS,
    START,
    DeletionImpact,
    Firing,
    HeldBatch,
    HeldScope,
    Outcome,
    Position,
)
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.rows import firing_id_of


def hold_batch(  # noqa: PLR0913 # the fields of its ledger row
    session: Session,
    firing: Firing,
    problem: str,
    scope: HeldScope,
    impact: DeletionImpact,
    depth: int,
    instead_of: HeldBatch | None = None,
) -> Outcome:
    """Leave a batch or a command unwritten, and its watermark in place, until a person decides.

    Args:
        session: In a transaction.
        firing: The batch's; its window ends where the whole command ends.
        problem: Why it is held back.
        scope: What it would evaluate.
        impact: What it would delete.
        depth: How many replaced assertions a fact's lineage names.
        instead_of: What waited for the same decision until now; None for a new one.
    """
    at = firing.after if not scope.again else firing.upto
    batch = Batch(session, replace(firing, after=at, upto=at), depth)
    batch.note = {
        "held": problem,
        "held_upto": firing.upto.seq,
        "held_lost": impact.lost,
        "held_fewer": impact.fewer,
    }
    if scope.again:
        batch.note |= {"held_again": scope.again, "held_between": scope.between}
        batch.note |= {"held_versions": list(scope.versions)} if scope.versions else {}
    outcome = batch.write(Decision.of(batch.resolution(), {}))
    if instead_of is not None:
        session.do("ledger.drop_held_batch", {"rule": _row_name(instead_of), "seq": _EVERYTHING})
    held = HeldBatch(
        firing.rule_id,
        outcome.firing_id,
        firing.upto,
        problem,
        approved=False,
        rule_hash=firing.rule_hash,
        scope=scope,
        impact=impact,
    )
    session.do("ledger.add_held_batch", (_row_name(held), batch.number, *firing.upto, problem))
    return replace(outcome, held=held)


_EVERYTHING = 2**63 - 1


def _row_name(held: HeldBatch) -> str:
    """Return the name of a row in ``slumberd_held_batches``: one for each rule, by the rule's id.

    A command that evaluates again is a row of its own, by its firing's id; no rule has such an id.
    """
    return held.firing_id if held.scope.again else held.rule_id


def read_held(session: Session) -> dict[str, HeldBatch]:
    """Return what awaits approval, or is approved, by the name of its row."""
    documents = {row[0]: _document(row[-1]) for row in session.rows("verify_tables.held_batches")}
    return {
        name: _held_batch(name, n, (seq, eid), problem, bool(approved), documents[name])
        for name, n, seq, eid, problem, approved in session.rows("ledger.held_batches")
    }


def _document(payload: bytes | None) -> dict[str, Any]:
    with suppress(orjson.JSONDecodeError):  # another program changed the row
        document = orjson.loads(payload or b"{}")
        return document if isinstance(document, dict) else {}
    return {}


def _held_batch(  # the columns of its row
    name: str,
    n: int,
    upto: tuple[int, str],
    problem: str,
    approved: bool,  # as above
    document: dict[str, Any],
) -> HeldBatch:
    rule_id = rule_of_row(name)
    scope, impact = scope_in(document), None
    if "held_lost" in document:
        impact = DeletionImpact(document["held_lost"], document["held_fewer"])
    rule_hash = document.get("rule_hash", "")
    firing_id = firing_id_of(rule_id, n)
    return HeldBatch(rule_id, firing_id, upto, problem, approved, rule_hash, scope, impact)


def rule_of_row(name: str) -> str:
    """Return the rule of a row of ``slumberd_held_batches``."""
    rule_id, _, number = name.rpartition("@")
    return rule_id if rule_id and number.isdecimal() else name


def scope_in(document: Mapping[str, Any]) -> HeldScope:
    """Return what a held command evaluates, from the document of its ledger row."""
    between = document.get("held_between")
    again = document.get("held_again", "")
    return HeldScope(
        again,
        0 if again else document.get("after", 0),
        document.get("held_upto", 0),
        None if between is None else (between[0], between[1]),
        document.get("held_versions", ()),
    )


def read_rejections(session: Session, rule_id: str, rule_hash: str) -> dict[str, HeldScope]:
    """Return what people rejected of a rule with this content, by the id of the held firing.

    A log that was restored since assigns its numbers anew, so older rejections do not count.
    """
    generations = session.rows("ledger.generations")
    generation = generations[0][1] if generations else 0
    held: dict[str, HeldScope] = {}
    rejected: set[str] = set()
    for seq, payload in session.stream("ledger.firing_rows_of_rule", (rule_id,)):
        if b'"held' not in payload and b'"rejects"' not in payload:
            continue
        document = _document(payload)
        rejected.add(document.get("rejects", ""))
        same = document.get("rule_hash"), document.get("generation")
        if "held" in document and same == (rule_hash, generation):
            held[firing_id_of(rule_id, seq)] = scope_in(document)
    return {firing_id: scope for firing_id, scope in held.items() if firing_id in rejected}


def record_decision(  # noqa: PLR0913 # the fields of its ledger row
    session: Session,
    held: HeldBatch,
    *,
    approve: bool,
    at: datetime,
    by: str,
    depth: int,
    reason: str = "",
) -> Firing:
    """Record the decision about a held batch, within the caller's transaction.

    Returns:
        The firing; a rejected batch's watermark still has to move to its ``upto``.
    """
    watermark = START
    if held.rule_id != CHANNELS:
        [mark] = session.rows("ledger.watermark", (held.rule_id,))
        watermark = Position(*mark)
    upto = watermark if approve or held.scope.again else Position(*held.upto)
    firing = Firing(held.rule_id, "", "manual", at, watermark, upto, by, reason=reason)
    batch = Batch(session, firing, depth)
    batch.note = {"approves" if approve else "rejects": held.firing_id}
    batch.write(Decision.of(batch.resolution(), {}))
    if held.scope.again:
        session.do("ledger.drop_held_batch", {"rule": _row_name(held), "seq": _EVERYTHING})
    elif approve:
        session.do("ledger.approve_held_batch", (held.rule_id,))
    elif held.rule_id == CHANNELS:
        session.do("ledger.drop_held_batch", {"rule": CHANNELS, "seq": 0})
    return firing


CLOCK = "@clock"
"""The rule id of the rows that say that the clock is right."""


def accept_clock(
    session: Session, *, at: datetime, by: str, depth: int, reason: str = ""
) -> Outcome:
    """Record that the clock is right, within the caller's transaction.

    The recorded instant of a row is the earliest of its own and those of all later such rows.
    """
    firing = Firing(CLOCK, "", "manual", at, by=by, reason=reason)
    batch = Batch(session, firing, depth)
    batch.note = {"recorded": instant(batch.at).isoformat()}
    batch.at = microseconds(at)
    session.do("ledger.cap_served", {"at": batch.at})
    session.do("ledger.cap_successes", {"at": batch.at})
    return batch.write(Decision.of(batch.resolution(), {}))


_ENTRY = ("rule_id", "channel", "episode_id", "reason", "detail", "seq")
"""The columns of an entry of the quarantine."""


def list_quarantine(session: Session) -> list[dict[str, Any]]:
    """Return the quarantined episodes, by rule, channel and id."""
    found = session.rows("ledger.list_quarantine")
    return [dict(zip(_ENTRY, row, strict=True)) for row in found]


def read_quarantine_page(
    session: Session,
    rule: str | None,
    after: tuple[str, str, str] | None,
    limit: int,
    episodes: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return a page of the quarantined episodes, by rule, channel and id.

    Args:
        session: A session of the facts.
        rule: Only entries of this rule; None for all.
        after: Rule, channel and episode of the entry before the page; None for the first page.
        episodes: Only entries of these episodes, which needs a rule; None for all.
    """
    last_rule, channel, eid = after or ("", "", "")
    values = {"rule": last_rule, "channel": channel, "eid": eid, "limit": limit}
    if rule is None:
        found = session.rows("ledger.quarantine_after", values)
    elif episodes is None:
        found = session.rows("ledger.quarantine_of_rule_after", {**values, "rule": rule})
    else:
        of_episodes = {**values, "rule": rule, "ids": [*episodes]}
        found = session.rows("ledger.quarantine_of_episodes_after", of_episodes)
    return [_entry_with_owner(row) for row in found]


def _entry_with_owner(row: Row) -> dict[str, Any]:
    """Return an entry, and whose the episode is; a scope that cannot be read belongs to nobody."""
    *entry, owner = row
    user, agent = user_and_agent(owner) if owner.count("/") > 1 else ("", "")
    return {**dict(zip(_ENTRY, entry, strict=True)), "user": user, "agent": agent}


def drop_entries(
    session: Session,
    entries: Sequence[Mapping[str, Any]],
    *,
    at: datetime,
    by: str,
    depth: int,
    reason: str = "",
) -> Outcome:
    """Remove entries from the quarantine, within the caller's transaction."""
    firing = Firing("@quarantine", "", "manual", at, by=by, reason=reason)
    batch = Batch(session, firing, depth)
    rows = sorted(entry["seq"] for entry in entries)
    batch.note = {"dropped": len(entries), "rows": rows}
    names = [(entry["rule_id"], entry["channel"], entry["episode_id"]) for entry in entries]
    session.do_each("ledger.drop_quarantine", names)
    return batch.write(Decision.of(batch.resolution(), {}))
