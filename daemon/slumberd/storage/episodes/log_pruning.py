"""Prune the episode log: remove rows of deleted episodes that no reader needs any more.

Nothing counts the deletions that a row of the log outlives, so a row is removed only when all that
read the log give the same answers without it:

* A rule reads what lies above its watermark, compares the watermark with its own row, and looks up
  the newest row of existing episodes. The rows of all watermarks and of the ends of held batches
  stay, those of existing episodes too, and all that a rule in force has not read.
* A rule whose store of episodes was restored steps back to the end of an earlier batch. So do the
  rules of another store of facts on the same episodes. The last `KEPT_ROWS` stay for them.
* An index takes the rows that were written or deleted after its place, and the notes of stages take
  their ids. Those that lie more than `KEPT_ROWS` behind are made again.
* The table of deletions has numbers of rows, and the log tells whose they were. So the last row of
  the log that names a deleted row stays as long as the table has it. An earlier one may go once a
  later one came before the last `KEPT_ROWS`: the places of all readers lie behind both.
* A file is compared with its write-ahead log by the first row of the log, which stays.
* SQLite and PostgreSQL both keep the last number of the log elsewhere, so none is given twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple

from slumberd.consolidation.protocols import Watermarks
from slumberd.model.feed import FeedPlace
from slumberd.model.firing import START
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.engine import EpisodeEngine, Session
from slumberd.storage.episodes.index_feed import KEPT_ROWS, place_of

STEP_ROWS = 5_000
"""Rows of the log that a step looks at, by default: some 12 ms."""


class Step(NamedTuple):
    """Rows of the log that were looked at.

    Attributes:
        last: The number of the last one; None when there are no more.
        seqs: The numbers of those that can be removed.
    """

    last: int | None
    seqs: list[int]


class LogPruner:
    """Prunes the log of a store of episodes in steps, each of them a small transaction.

    Args:
        engine: Opens the transactions of the store.
        kept_rows: The last rows of the log, which stay.
        step_rows: How many rows a step looks at.
    """

    def __init__(
        self, engine: EpisodeEngine, *, kept_rows: int = KEPT_ROWS, step_rows: int = STEP_ROWS
    ) -> None:
        self._engine = engine
        self._kept_rows = kept_rows
        self._step_rows = step_rows
        self._after = 0
        self._begun_at: tuple[FeedPlace, int, frozenset[int]] | None = None

    async def prune(self, watermarks: Watermarks, rules: Iterable[ConsolidationRule]) -> int:
        """Take the next step; return how many rows were removed.

        After the last row it begins anew, once something was put, deleted or read.

        Args:
            watermarks: How far the rules have read. None of them may move back meanwhile.
            rules: Those that may fire.
        """
        place = await self._engine.read(place_of)
        marks = {id: mark.seq for id, (mark, _) in (await watermarks.positions()).items()}
        held = {batch.upto[0] for batch in (await watermarks.held()).values()}
        read_by_all = min([place.position.seq, *(marks.get(rule.id, START.seq) for rule in rules)])
        kept = frozenset({*marks.values(), *held})
        if not self._after:
            if (place, read_by_all, kept) == self._begun_at:
                return 0
            self._begun_at = place, read_by_all, kept
        find = partial(
            find_prunable,
            after=self._after,
            upto=read_by_all - self._kept_rows,
            kept=kept,
            limit=self._step_rows,
        )
        step = await self._engine.read(find)
        if step.seqs:
            await self._engine.write(partial(remove, seqs=step.seqs))
        self._after = step.last or 0
        return len(step.seqs)


def find_prunable(
    session: Session, *, after: int, upto: int, kept: Collection[int], limit: int
) -> Step:
    """Look at some rows of the log.

    Args:
        session: Of the episodes.
        after: The number of the last row that was looked at before.
        upto: No row after this one is looked at.
        kept: The numbers of rows that stay.
        limit: At most this many rows.
    """
    rows = session.rows("episode_log.prunable", {"after": after, "upto": upto, "limit": limit})
    seqs = [seq for seq, is_prunable in rows if is_prunable and seq not in kept]
    return Step(rows[-1][0] if len(rows) == limit else None, seqs)


def remove(session: Session, seqs: Collection[int]) -> int:
    """Remove rows of the log; return how many there were.

    An episode that is put again meanwhile has a newer row.
    """
    return session.do("episode_log.prune", {"rows": [*seqs]})
