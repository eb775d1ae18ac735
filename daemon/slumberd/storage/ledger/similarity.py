"""Link the new facts of a batch with the current facts that are near to them.

The links are written into the claims, before they are resolved. They are found once for a version
of an episode: another rule that evaluates the same version gets the same links.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import orjson

from slumberd.consolidation.claim import Precedence
from slumberd.consolidation.incoming import Candidate, ClaimCandidate, HeldBack, order_of
from slumberd.consolidation.precedence import MultiValued, is_declared_slot
from slumberd.consolidation.similarity import Statement, family_of, statement_of
from slumberd.consolidation.state import KnownState, reaches_precedence_rule
from slumberd.errors import StoppedError
from slumberd.model.fact_ids import canonical
from slumberd.retrieval.protocols import TextComparer
from slumberd.sql_statements import statements

MOST_COMPARED = 1_000
"""A fact is compared with at most so many facts of its family: the latest."""

MOST_LINKED = 8
"""A fact is linked with at most so many facts: the nearest."""

_SQL = statements("similarity")
_DIGITS = 4


class BatchSimilarity:
    """Compares new facts with current facts.

    Args:
        connection: In the transaction of the batch.
        comparer: Finds texts that are near to each other.
        least: Two texts are near from this cosine on.
        cancelled: Returns whether the comparison must stop.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        comparer: TextComparer,
        least: float,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._cancelled = cancelled
        self._connection = connection
        self._comparer = comparer
        self._least = least

    def compared(self, met: Sequence[Candidate], known_state: KnownState) -> list[Candidate]:
        """Return the candidates of one channel; new assertions get their links.

        Args:
            met: Each version at most once.
            known_state: Holds the evaluations of every candidate's fact id.

        Raises:
            StoppedError: `cancelled` returned true.
        """
        new = [one for one in met if _is_new(one, known_state)]
        by_family = sorted(new, key=lambda one: (_family(one), order_of(one)))
        linked = {
            one.eid: one
            for family, ones in groupby(by_family, _family)
            for one in self._link_family(family, [*ones], known_state.multi_valued)
        }
        return [linked.get(one.eid, one) for one in met]

    def _link_family(
        self, family: str, ones: Sequence[Candidate], multi: MultiValued
    ) -> Iterator[Candidate]:
        current = [*self._current_of(family)]
        said = [statement_of(one.claim) for one in ones if one.claim is not None]
        if not current and len(said) == 1:
            yield ones[0]
            return
        every = [*current, *said]
        found = self._comparer.near(
            [one.text for one in every],
            first=len(current),
            least=self._least,
            most=MOST_COMPARED,
            cancelled=self._cancelled,
        )
        left = _Left(current, multi)
        for one, mine, near in zip(ones, said, found, strict=True):
            if self._cancelled is not None and self._cancelled():
                raise StoppedError("it was too late to go on")
            others = [(every[number], round(cosine, _DIGITS)) for number, cosine in near]
            yield _link(one, [*filter(left.is_apart_from(mine), others)])
            left.take(mine)

    def _current_of(self, family: str) -> Iterator[Statement]:
        """Yield the latest current facts of a family, oldest first."""
        high = family[:-1] + chr(ord("/") + 1)
        asked = {"low": family, "high": high, "most": MOST_COMPARED}
        found = self._connection.execute(_SQL["winners_between"], asked).fetchall()
        for key, slot, fact_id, at, rank, precedence_id, payload in reversed(found):
            # A declared fact shares its key with other facts, but does not compete with them.
            own = f"{key}/{slot}" if is_declared_slot(slot) else key
            yield Statement(
                fact_id, own, Precedence(at, rank, precedence_id), orjson.loads(payload)
            )


class _Left:
    """The current facts of a family while the new facts are added one by one.

    A new fact finds what it would find if each new fact were a batch of its own.
    """

    def __init__(self, current: Sequence[Statement], multi: MultiValued) -> None:
        self._multi = multi
        self._there = {one.fact_id: one for one in current}
        self._holders = {_slot_of(one, multi): one for one in current}

    def take(self, mine: Statement) -> None:
        """Add a fact; of two facts in one slot the older goes."""
        self._there[mine.fact_id] = mine
        slot = _slot_of(mine, self._multi)
        holder = self._holders.get(slot)
        if holder is None or holder.fact_id == mine.fact_id:
            self._holders[slot] = mine
            return
        older, self._holders[slot] = sorted((holder, mine), key=_precedence)
        if self._there.get(older.fact_id) is older:
            del self._there[older.fact_id]

    def is_apart_from(self, mine: Statement) -> Callable[[tuple[Statement, float]], bool]:
        """Return a test: is another fact current, and does it not compete with this one?"""
        slot, subject = _slot_of(mine, self._multi), _canonical(mine, "subject")

        def is_apart(near: tuple[Statement, float]) -> bool:
            other, _ = near
            return (
                self._there.get(other.fact_id) is other
                and other.fact_id != mine.fact_id
                and _canonical(other, "subject") == subject
                and _slot_of(other, self._multi) != slot
            )

        return is_apart


def _is_new(candidate: Candidate, known_state: KnownState) -> bool:
    """Return whether a candidate asserts, names no id, and its version is new."""
    claim = candidate.claim
    if (
        claim is None
        or not claim.asserts
        or claim.names
        or not reaches_precedence_rule(candidate, known_state)
    ):
        return False
    known = known_state.evaluations.get(candidate.fact_id, ())
    return all(evaluation.version != candidate.version for evaluation in known)


def _link(one: Candidate, near: list[tuple[Statement, float]]) -> Candidate:
    """Return a candidate whose claim is linked with the nearest facts."""
    if not isinstance(one, ClaimCandidate | HeldBack) or one.claim is None or not near:
        return one
    nearest = sorted(near, key=lambda found: (-found[1], found[0].fact_id))[:MOST_LINKED]
    links = tuple((other.fact_id, cosine) for other, cosine in nearest)
    return one._replace(claim=one.claim._replace(near=links))


def _slot_of(one: Statement, multi: MultiValued) -> tuple[str, str]:
    return one.key, multi.slot(one.key, _canonical(one, "object"))


def _family(one: Candidate) -> str:
    return "" if one.claim is None else family_of(one.claim)


def _canonical(statement: Statement, part: str) -> str:
    return canonical(statement.payload.get(part))


def _precedence(statement: Statement) -> Precedence:
    return statement.precedence
