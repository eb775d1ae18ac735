"""Compare what a batch adds with what stands, before the law decides.

What comes of it is written into the acts: ids that one names, because it says the very same word
for word, and ids that it is near to. From there on the law, a replay and an undoing take it as if
whoever told the episode had named them. It is decided once for a version of an episode: whoever
meets that version again hears what was decided then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import orjson

from slumberd.core.act import HAND, NAMER, Stamp, canonical
from slumberd.core.ground import Ground, Incoming
from slumberd.core.law import MultiValued
from slumberd.core.likeness import Statement, family_of, says_the_same, statement_of
from slumberd.core.settle import is_heard, order_of
from slumberd.ports import TextComparer
from slumberd.stores.queries import statements

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
    """

    def __init__(
        self, connection: sqlite3.Connection, comparer: TextComparer, least: float
    ) -> None:
        self._connection = connection
        self._comparer = comparer
        self._least = least

    def compared(self, met: Sequence[Incoming], ground: Ground) -> list[Incoming]:
        """Return what was met in one channel; what is newly asserted says what it is near to.

        Args:
            met: Each version at most once.
            ground: Holds the meetings of every fact id that is met.
        """
        new = [one for one in met if _is_new(one, ground)]
        by_family = sorted(new, key=lambda one: (_family(one), order_of(one)))
        told = {
            one.eid: one
            for family, ones in groupby(by_family, _family)
            for one in self._in_family(family, [*ones], ground.multi)
        }
        return [told.get(one.eid, one) for one in met]

    def _in_family(
        self, family: str, ones: Sequence[Incoming], multi: MultiValued
    ) -> Iterator[Incoming]:
        others = [*self._standing(family)]
        first = len(others)
        others += [statement_of(one.act) for one in ones if one.act is not None]
        if len(others) == 1:
            yield ones[0]
            return
        near = self._comparer.near(
            [one.text for one in others], first=first, least=self._least, most=MOST_COMPARED
        )
        gone: set[str] = set()
        holders = {_slot_of(other, multi): other for other in others[:first]}
        for one, mine, found in zip(ones, others[first:], near, strict=True):
            apart = [
                (others[number], round(cosine, _DIGITS))
                for number, cosine in found
                if others[number].fact_id not in gone and _are_apart(mine, others[number], multi)
            ]
            told = _told(one, mine, apart) if apart else one
            yield told
            # As if each were in a batch of its own, the next one finds only what it leaves.
            gone |= {*told.act.names} if told.act else set()
            slot = _slot_of(mine, multi)
            holder = holders.get(slot)
            holders[slot] = mine if holder is None else max(holder, mine, key=_stamp)
            if holder is not None:
                gone.add(min(holder, mine, key=_stamp).fact_id)

    def _standing(self, family: str) -> Iterator[Statement]:
        """Yield the facts of a family that stand and were said last, oldest first."""
        high = family[:-1] + chr(ord("/") + 1)
        asked = {"low": family, "high": high, "most": MOST_COMPARED}
        found = self._connection.execute(_SQL["standing_of_family"], asked).fetchall()
        for key, fact_id, at, rank, stamp_id, payload in reversed(found):
            yield Statement(fact_id, key, Stamp(at, rank, stamp_id), orjson.loads(payload))


def _is_new(one: Incoming, ground: Ground) -> bool:
    """Say whether an assertion comes in that names nothing, in a version that was never met."""
    act = one.act
    if act is None or not act.asserts or act.names or not is_heard(one, ground):
        return False
    return all(met.version != one.version for met in ground.meetings.get(one.fact_id, ()))


def _told(one: Incoming, mine: Statement, near: Iterable[tuple[Statement, float]]) -> Incoming:
    """Return what is met, its act saying what it is near to, and naming what it says again."""
    again: list[tuple[str, float]] = []
    linked: list[tuple[str, float]] = []
    for other, cosine in sorted(near, key=lambda found: (-found[1], found[0].fact_id)):
        # What a person said is a person's to take back.
        reached = other.stamp < mine.stamp and other.stamp.rank != HAND
        if reached and says_the_same(mine, other):
            again.append((other.fact_id, cosine))
        else:
            linked.append((other.fact_id, cosine))
    if one.act is None:
        return one
    told = one.act._replace(near=(*again, *linked[:MOST_LINKED]))
    if again:
        names = tuple(fact_id for fact_id, _ in again)
        told = told._replace(names=names, stamp=told.stamp._replace(rank=NAMER))
    return one._replace(act=told)


def _are_apart(one: Statement, other: Statement, multi: MultiValued) -> bool:
    """Say whether two facts are of one subject, and the law does not decide between them itself."""
    if _canonical(one, "subject") != _canonical(other, "subject"):
        return False
    return one.fact_id != other.fact_id and _slot_of(one, multi) != _slot_of(other, multi)


def _slot_of(one: Statement, multi: MultiValued) -> tuple[str, str]:
    return one.key, multi.slot(one.key, _canonical(one, "object"))


def _family(one: Incoming) -> str:
    return "" if one.act is None else family_of(one.act)


def _canonical(statement: Statement, part: str) -> str:
    return canonical(statement.payload.get(part))


def _stamp(statement: Statement) -> Stamp:
    return statement.stamp
