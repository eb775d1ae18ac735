"""Hold the tables beside a ledger against its rows: watermarks, generations, held, quarantine.

Out of reach: the watermark of a rule that has not fired, a watermark that was moved back (the
rule evaluates the same again), a generation that no firing has used yet, the episode ids beside log
numbers (they can be erased), and what is missing from the quarantine of other programs' rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from slumberd.consolidation.precedence import EXTERNAL
from slumberd.model.fact_ids import fact_id_of
from slumberd.model.record import Break
from slumberd.model.scope import unescape
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import GENERATION_BITS
from slumberd.storage.ledger.bulk_write import notes_others
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.sqlite.connection import escaped, texts_as

_SQL = statements("verify_tables")
_LOG_NUMBER = (1 << GENERATION_BITS) - 1


def first_changed_schema(connection: sqlite3.Connection) -> Break | None:
    """Say whether ``facts`` is no table, or lacks our triggers; None when neither is so."""
    found = connection.execute(_SQL["kind_of_facts"]).fetchone()
    if found is None or found[0] != "table":
        return Break(0, "'facts' is no table")
    if not notes_others(connection):
        return Break(0, "the triggers on 'facts' are not ours: other programs' writes go unnoticed")
    return None


def first_changed_table(connection: sqlite3.Connection) -> Break | None:
    """Say what in the tables beside the ledger is not what its rows say; None when all is."""
    checks: tuple[Callable[[sqlite3.Connection], Iterator[Break]], ...] = (
        _watermarks,
        _generations,
        _held,
        _quarantine,
        _missing_quarantine,
    )
    with texts_as(connection, escaped):
        for check in checks:
            broken = next(check(connection), None)
            if broken is not None:
                return broken
    return None


def _watermarks(connection: sqlite3.Connection) -> Iterator[Break]:
    for rule, seq, upto in connection.execute(_SQL["watermarks"]):
        if upto is not None and seq > upto:
            problem = f"slumberd_watermark says that rule {rule!r} has read log row {seq}"
            yield Break(0, f"{problem}, its last firing ended at {upto}")


def _generations(connection: sqlite3.Connection) -> Iterator[Break]:
    """Work out the generation of every version again; there is none where no log was restored."""
    generations = connection.execute(_SQL["generations"]).fetchall()
    highest = max((generation for generation, _ in generations), default=0)
    if [generation for generation, _ in generations] != [*range(highest, 0, -1)]:
        yield Break(0, "slumberd_generations lacks a generation")
    known = connection.execute(_SQL["highest_generation"]).fetchone()[0] or 0
    if not known <= highest <= known + 1:
        yield Break(0, f"slumberd_generations ends at {highest}, the firings at {known}")
    for seq, version, generation in connection.execute(_SQL["versions"]) if highest else ():
        number = version & _LOG_NUMBER
        after = (one for one, above in generations if one <= generation and above < number)
        if version >> GENERATION_BITS != next(after, 0):
            yield Break(seq, "slumberd_generations says another generation of its version")


def _held(connection: sqlite3.Connection) -> Iterator[Break]:
    approved = set()
    for (payload,) in connection.execute(_SQL["approvals"]):
        approved.add(orjson.loads(payload).get("approves"))
    for rule, number, upto, problem, is_approved, its_rule, payload in connection.execute(
        _SQL["held"]
    ):
        told = orjson.loads(payload) if payload else {}
        said = its_rule, told.get("held"), told.get("held_upto")
        if said != (rule, problem, upto):
            yield Break(number, f"slumberd_held says something else of a batch of rule {rule!r}")
        if is_approved and firing_id_of(rule, number) not in approved:
            yield Break(number, "slumberd_held says that it is approved, the ledger does not")


def _quarantine(connection: sqlite3.Connection) -> Iterator[Break]:
    """Hold each quarantined episode against the row that quarantined it."""
    for stored in connection.execute(_SQL["quarantine"]):
        rule, channel, eid, version, owner, reason, detail, seq, *row = stored
        what, its_rule, its_version, its_reason, payload = row
        told = orjson.loads(payload) if payload else {}
        said = told.get("eid"), told.get("owner"), told.get("detail"), its_version
        by_rule = rule == its_rule or its_rule == "@undo"
        same = said == (eid, owner, detail, version) and its_reason in ("", reason)
        if what != 3 or not by_rule or not same or channel != owner.split("/")[2]:
            yield Break(seq, f"slumberd_quarantine says something else of episode {eid!r}")


def _missing_quarantine(connection: sqlite3.Connection) -> Iterator[Break]:
    """Find rows that quarantined an episode, where nothing took it off the list again."""
    listed = set(connection.execute(_SQL["listed"]))
    dropped, undone = _taken_off(connection)
    for place, (seq, firing_id) in _quarantined_last(connection).items():
        taken_off = seq in dropped or firing_id in undone
        if place not in listed and not taken_off and not _mended(connection, place, seq):
            yield Break(seq, f"quarantined episode {place[2]!r}, and slumberd_quarantine lacks it")


def _quarantined_last(
    connection: sqlite3.Connection,
) -> dict[tuple[str, str, str], tuple[int, str]]:
    """Return the last row, with its firing, that quarantined an episode for a rule and channel."""
    found = {}
    for seq, firing, rule, payload in connection.execute(_SQL["quarantining"]):
        told = orjson.loads(payload)
        if rule != EXTERNAL:
            place = rule, told["owner"].split("/")[2], told["eid"]
            found[place] = seq, firing_id_of(rule, firing)
    return found


def _taken_off(connection: sqlite3.Connection) -> tuple[set[int], set[str]]:
    """Return the rows that people dropped from the list, and the firings that were undone."""
    dropped: set[int] = set()
    undone: set[str] = set()
    for (payload,) in connection.execute(_SQL["takings_off"]):
        told: dict[str, Any] = orjson.loads(payload)
        dropped.update(told.get("rows", ()))
        undone.add(told.get("undoes", ""))
    return dropped, undone


def _mended(connection: sqlite3.Connection, place: tuple[str, str, str], seq: int) -> bool:
    rule, channel, eid = place
    fact_id = fact_id_of(unescape(channel), eid)
    asked = {"rule": rule, "fact_id": fact_id, "seq": seq}
    return connection.execute(_SQL["mended"], asked).fetchone() is not None
