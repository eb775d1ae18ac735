"""Undo firings: withdraw the evaluations that they were the first to make, and resolve again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.consolidation.incoming import Undo
from slumberd.consolidation.precedence import History, UndoneEvaluation
from slumberd.consolidation.resolution import Decision, Resolution
from slumberd.model.episode import microseconds
from slumberd.model.errors import UsageError
from slumberd.model.firing import Firing, Outcome, Record
from slumberd.model.scope import episode_id_of
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.arrivals import MOVED_GENERATION
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.rows import firing_id_of


class Undoing(NamedTuple):
    """A firing to undo.

    Attributes:
        number: The number of its own row in the ledger.
    """

    number: int
    rule_id: str


def undone_firing_ids(undoings: Iterable[tuple[int, str]], undo: str) -> set[str]:
    """Return the ids of the undone firings, which may be undo firings themselves.

    Args:
        undoings: The number of each undo firing and the id of the firing that it undoes, newest
            first. An undo firing that is itself undone does not count.
        undo: The rule id of undo firings.
    """
    return {*undoings_in_force(undoings, undo)}


def undoings_in_force(undoings: Iterable[tuple[int, str]], undo: str) -> dict[str, str]:
    """Return the undo firing of each undone firing, by the id of the undone one.

    Args:
        undoings: As for `undone_firing_ids`. Of two that undo the same firing, the earlier one is
            returned.
        undo: The rule id of undo firings.
    """
    undone_by: dict[str, str] = {}
    for number, firing_id in undoings:
        undo_firing = f"{undo}@{number}"
        if firing_id and undo_firing not in undone_by:
            undone_by[firing_id] = undo_firing
    return undone_by


def in_order(firings: Sequence[Undoing], undo: str) -> list[Undoing]:
    """Return firings in the order in which undoing them changes the fewest facts meanwhile.

    Facts of an older firing are rarely current, so it comes first. An undo firing brings facts
    back, so of these the newest comes first. The facts at the end are the same in any order.

    Args:
        firings: The firings, oldest first.
        undo: The rule id of undo firings.
    """
    undoings = [firing for firing in firings if firing.rule_id == undo]
    others = [firing for firing in firings if firing.rule_id != undo]
    return others + undoings[::-1]


UNDO = "@undo"
"""The rule id of undo firings."""


class ByRun(NamedTuple):
    """All firings of one run."""

    run: str


class BySince(NamedTuple):
    """All firings of one rule from an instant on."""

    rule_id: str
    since: datetime


Wanted = ByRun | BySince
"""Selects the firings to undo."""


class Undoer(NamedTuple):
    """Who undoes firings, when, as part of which run, and why."""

    at: datetime
    by: str
    run: str = ""
    reason: str = ""


@dataclass(slots=True)
class UndoneFirings:
    """The result of undoing several firings.

    Attributes:
        limit: At most so many deltas are kept; all are counted.
        undone: The ids of the firings that were undone.
        firing_ids: The ids of the firings that undid them.
        counts: The number of deltas, by kind.
        records: The first deltas.
    """

    limit: int
    undone: list[str] = field(default_factory=list)
    firing_ids: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    records: list[Record] = field(default_factory=list)

    def add(self, firing_id: str, outcome: Outcome) -> None:
        """Add the outcome of undoing one firing."""
        deltas = [record for record in outcome.records if record.kind != "firing"]
        self.undone.append(firing_id)
        self.firing_ids.append(outcome.firing_id)
        self.counts.update(record.kind for record in deltas)
        self.records += deltas[: self.limit - len(self.records)]


def undo(session: Session, firing_id: str, depth: int, undoer: Undoer) -> Outcome:
    """Undo one firing; inside a transaction.

    Raises:
        UsageError: There is no such firing, or it is an erasure.
    """
    rule_id, number = _find_undoable(session, firing_id)
    return _undo(session, Undoing(number, rule_id), depth, undoer)


def undo_each(
    session: Session, wanted: Wanted, depth: int, undoer: Undoer
) -> Iterator[tuple[str, Outcome]]:
    """Undo several firings; inside a transaction.

    Firings that are already undone are left out, so a second call continues the first.

    Yields:
        The id of each firing, with the outcome of its undo.
    """
    undone = undone_firing_ids(session.stream("ledger.undone_by", {"undo": UNDO}), UNDO)
    for firing in in_order(find_firings(session, wanted), UNDO):
        firing_id = firing_id_of(firing.rule_id, firing.number)
        if firing_id not in undone:
            yield firing_id, _undo(session, firing, depth, undoer)


def find_firings(session: Session, wanted: Wanted) -> list[Undoing]:
    """Return the selected firings that added rows, oldest first.

    Raises:
        UsageError: One of them is an erasure.
    """
    found = [Undoing(*row) for row in _rows_of(session, wanted)]
    for firing in found:
        _refuse_erasure(firing.rule_id, firing_id_of(firing.rule_id, firing.number))
    return found


def _rows_of(session: Session, wanted: Wanted) -> Iterator[Row]:
    match wanted:
        case ByRun(run):
            return session.stream("ledger.firings_of_run", {"run": run})
        case BySince(rule_id, since):
            parameters = {"rules": _ledger_ids_of(rule_id), "since": microseconds(since)}
            return session.stream("ledger.firings_since", parameters)


def has_firings(session: Session, wanted: Wanted) -> bool:
    """Return whether a run has a firing that added rows, or a rule any firing."""
    match wanted:
        case ByRun():
            return bool(find_firings(session, wanted))
        case BySince(rule_id, _):
            parameters = {"rules": _ledger_ids_of(rule_id)}
            return bool(session.value("ledger.any_firing_of", parameters))


def _ledger_ids_of(rule_id: str) -> list[str]:
    """Return the rule ids of a rule in the ledger: for episodes, and for a graph."""
    return [rule_id, ledger_rule_id(rule_id)]


def _undo(session: Session, undoing: Undoing, depth: int, undoer: Undoer) -> Outcome:
    number = undoing.number
    at, by, run, reason = undoer
    firing = Firing(UNDO, "", "manual", at, by=by, run=run, reason=reason)
    batch = Batch(session, firing, depth)
    batch.note = {"undoes": firing_id_of(undoing.rule_id, number)}
    parameters = {"rule": undoing.rule_id, "firing": number}
    found = session.stream("ledger.evaluated_in_firing", parameters)
    evaluated = [fact_id for (fact_id,) in found]
    histories = batch.loaded.load_histories(evaluated)
    resolution = batch.resolution()
    for fact_id in evaluated:
        withdraw(resolution, fact_id, histories[fact_id], (number, batch.number), at=batch.at)
    session.do("ledger.drop_quarantine_of_firing", parameters)
    return batch.write(Decision.of(resolution, {}))


def withdraw(
    resolution: Resolution, fact_id: str, history: History, firings: tuple[int, int], *, at: int
) -> None:
    """Withdraw the evaluation of a fact id by a firing.

    Args:
        resolution: Of the undo firing.
        history: Its evaluations before.
        firings: The number of the undone firing, and of the undo firing.
        at: The instant of the undo firing, microseconds since 1970 UTC.
    """
    number, by = firings
    owner = history.owner_at(number)
    without_firing = History(
        history.evaluations, [*history.undone, UndoneEvaluation(by + 1, number, by, owner)]
    )
    claims = [evaluation.claim for evaluation in history.evaluations if evaluation.claim]
    source = next((claim.source for claim in claims if claim.source), episode_id_of(fact_id))
    undo = Undo(fact_id=fact_id, owner=owner, rule_id=UNDO, at=at, eid=source, firing=number)
    resolution.undo(undo, without_firing.remaining())


def find_firing(session: Session, firing_id: str) -> tuple[str, int] | None:
    """Return the rule and the number of a firing; None when the ledger does not have it.

    Raises:
        UsageError: The firing was made in another shard.
    """
    rule_id, _, number = firing_id.rpartition("@")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    found = session.one("ledger.firing", (int(number),))
    if found is None or found[0] != rule_id:
        return None
    if found[2] <= MOVED_GENERATION:
        raise UsageError(
            f"firing {firing_id!r} was made in another shard, before its user was moved; "
            "it can be read only"
        )
    return rule_id, int(number)


def _find_undoable(session: Session, firing_id: str) -> tuple[str, int]:
    found = find_firing(session, firing_id)
    if found is None:
        raise UsageError(f"no firing {firing_id!r}; `slumberd audit ls --kind firing` lists them")
    _refuse_erasure(found[0], firing_id)
    return found


def _refuse_erasure(rule_id: str, firing_id: str) -> None:
    if rule_id == "@erasure":
        raise UsageError(f"firing {firing_id!r} is an erasure; an erasure cannot be undone")
