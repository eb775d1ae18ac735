"""Compare what a batch adds with what stands, before the law decides.

What comes of it is written into the acts: ids that one names, because it says the very same word
for word, and ids that it is near to. From there on the law, a replay and an undoing take it as if
whoever told the episode had named them. It is decided once for a version of an episode: whoever
meets that version again hears what was decided then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import orjson

from slumberd.consolidation.claim import MANUAL, REFERRING, Precedence
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import MultiValued, is_declared_slot
from slumberd.consolidation.resolution import is_heard, order_of
from slumberd.consolidation.similarity import Statement, family_of, says_the_same, statement_of
from slumberd.consolidation.state import KnownState
from slumberd.errors import StoppedError
from slumberd.model.fact_ids import canonical
from slumberd.retrieval.protocols import TextComparer
from slumberd.sql_statements import statements

MOST_COMPARED = 1_000
"""Facts of a family that one is compared with: those that were said last."""

MOST_LINKED = 8
"""Facts that one is linked with: the nearest."""

_SQL = statements("nearness")
_DIGITS = 4


class Nearness:
    """Compares what is met with what stands.

    Args:
        connection: In the transaction of the batch.
        comparer: Finds texts that are near to each other.
        least: The cosine from which on two texts are near.
        late: Says that it must end.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        comparer: TextComparer,
        least: float,
        late: Callable[[], bool] | None = None,
    ) -> None:
        self._late = late
        self._connection = connection
        self._comparer = comparer
        self._least = least

    def compared(self, met: Sequence[Candidate], known_state: KnownState) -> list[Candidate]:
        """Return what was met in one channel; what is newly asserted says what it is near to.

        Args:
            met: Each version at most once.
            known_state: Holds the meetings of every fact id that is met.

        Raises:
            StoppedError: It was late.
        """
        new = [one for one in met if _is_new(one, known_state)]
        by_family = sorted(new, key=lambda one: (_family(one), order_of(one)))
        told = {
            one.eid: one
            for family, ones in groupby(by_family, _family)
            for one in self._in_family(family, [*ones], known_state.multi)
        }
        return [told.get(one.eid, one) for one in met]

    def _in_family(
        self, family: str, ones: Sequence[Candidate], multi: MultiValued
    ) -> Iterator[Candidate]:
        standing = [*self._standing(family)]
        said = [statement_of(one.claim) for one in ones if one.claim is not None]
        if not standing and len(said) == 1:
            yield ones[0]
            return
        every = [*standing, *said]
        found = self._comparer.near(
            [one.text for one in every],
            first=len(standing),
            least=self._least,
            most=MOST_COMPARED,
            late=self._late,
        )
        left = _Left(standing, multi)
        for one, mine, near in zip(ones, said, found, strict=True):
            if self._late is not None and self._late():
                raise StoppedError("it was too late to go on")
            others = [(every[number], round(cosine, _DIGITS)) for number, cosine in near]
            told = _told(one, mine, [*filter(left.is_apart_from(mine), others)])
            yield told
            left.take(mine, told.claim.names if told.claim else ())

    def _standing(self, family: str) -> Iterator[Statement]:
        """Yield the facts of a family that stand and were said last, oldest first."""
        high = family[:-1] + chr(ord("/") + 1)
        asked = {"low": family, "high": high, "most": MOST_COMPARED}
        found = self._connection.execute(_SQL["standing_of_family"], asked).fetchall()
        for key, slot, fact_id, at, rank, stamp_id, payload in reversed(found):
            # A declared fact shares its key with others, and competes with none of them.
            own = f"{key}/{slot}" if is_declared_slot(slot) else key
            yield Statement(fact_id, own, Precedence(at, rank, stamp_id), orjson.loads(payload))


class _Left:
    """What is left of a family's facts as one after the other comes in.

    As if each were in a batch of its own, the next one finds only what those before it left.
    """

    def __init__(self, standing: Sequence[Statement], multi: MultiValued) -> None:
        self._multi = multi
        self._there = {one.fact_id: one for one in standing}
        self._holders = {_slot_of(one, multi): one for one in standing}

    def take(self, mine: Statement, names: Iterable[str]) -> None:
        """Let a fact come in that replaces some, and whatever holds its slot and is older."""
        for name in names:
            self._there.pop(name, None)
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
        """Return what says whether another is there, and the law does not decide between both."""
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


def _is_new(one: Candidate, known_state: KnownState) -> bool:
    """Say whether an assertion comes in that names nothing, in a version that was never met."""
    claim = one.claim
    if claim is None or not claim.asserts or claim.names or not is_heard(one, known_state):
        return False
    return all(met.version != one.version for met in known_state.evaluations.get(one.fact_id, ()))


def _told(one: Candidate, mine: Statement, near: Iterable[tuple[Statement, float]]) -> Candidate:
    """Return what is met, its act saying what it is near to, and naming what it says again."""
    again: list[tuple[str, float]] = []
    linked: list[tuple[str, float]] = []
    for other, cosine in sorted(near, key=lambda found: (-found[1], found[0].fact_id)):
        # What a person said is a person's to take back.
        reached = other.precedence < mine.precedence and other.precedence.rank != MANUAL
        if reached and says_the_same(mine, other):
            again.append((other.fact_id, cosine))
        else:
            linked.append((other.fact_id, cosine))
    if one.claim is None or not (again or linked):
        return one
    told = one.claim._replace(near=(*again, *linked[:MOST_LINKED]))
    if again:
        names = tuple(fact_id for fact_id, _ in again)
        told = told._replace(names=names, precedence=told.precedence._replace(rank=REFERRING))
    return one._replace(claim=told)


def _slot_of(one: Statement, multi: MultiValued) -> tuple[str, str]:
    return one.key, multi.slot(one.key, _canonical(one, "object"))


def _family(one: Candidate) -> str:
    return "" if one.claim is None else family_of(one.claim)


def _canonical(statement: Statement, part: str) -> str:
    return canonical(statement.payload.get(part))


def _precedence(statement: Statement) -> Precedence:
    return statement.precedence
