"""Move a user from one shard to another.

The daemon that holds the source moves the user, in its turn, by these steps:

1. The map says that the user is being moved.
2. The source has the user no more: its function ``put`` refuses the user from now on.
3. The target expects this move, and then gets all rows in one transaction.
4. The map says that the target has the user.
5. The source blanks the rows, under a row that names the target and the head of its ledger.

Each step can be repeated. What fails before the target has the rows takes the steps before back.
A process that dies leaves the row of step 2, by which the next holder of the source goes on. Step 3
names the move by a random number, so that a process that was paused moves nothing later.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import TypeVar

from slumberd.model.errors import (
    ChangedRowsError,
    IdTakenInTargetError,
    SlumberdError,
    UsageError,
    UserElsewhereError,
    UserMovingError,
)
from slumberd.model.moves import FinishedMoves, Move, MovedUser
from slumberd.model.scope import escape
from slumberd.storage.engine import Row, Session
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.engine import PostgresFactEngine
from slumberd.storage.postgres.moved_rows import (
    Arrived,
    UserRows,
    arrival_head,
    blank_rows,
    read_rows,
    write_rows,
)
from slumberd.storage.postgres.session import MOST_NUMBERED, PostgresSession
from slumberd.storage.postgres.shard_map import Shard, ShardMap

T = TypeVar("T")

_MOVE_BYTES = 16
_LOCK_SECONDS = 10.0
"""How long a move waits for puts that have begun."""


class UserMoves:
    """Moves users out of one shard.

    Args:
        engine: Of the facts of the source; it holds the shard.
        depth: Links of lineage.
        key: The key of the ledgers; None without one.
    """

    def __init__(
        self, engine: PostgresFactEngine, shard_map: ShardMap, *, depth: int, key: bytes | None
    ) -> None:
        self._engine = engine
        self._source = engine.shard.number
        self._map = shard_map
        self._depth = depth
        self._key = key

    async def plan(self, move: Move) -> MovedUser:
        """Return what a move would move; write nothing.

        Raises:
            UsageError: The target is unknown, or is the source.
            UserElsewhereError: The source does not have the user.
            IdTakenInTargetError: Another user of the target has an id of the user.
        """
        target = await self._target_of(move)
        rows = await self._engine.read(partial(self._read_for_plan, move=move))
        engine = PostgresFactEngine(target, key=self._key)
        try:
            await engine.read(partial(rows.check_ids, target=target.number))
        finally:
            await engine.close()
        return self._moved(move, rows)

    async def move(self, move: Move) -> MovedUser:
        """Move a user.

        Raises:
            UsageError: The target is unknown, or is the source.
            UserElsewhereError: The source does not have the user.
            UserMovingError: The user is being moved elsewhere.
            IdTakenInTargetError: Another user of the target has an id of the user.
            ShardSettingsDifferError: The target resolves claims in another way.
            ChangedRowsError: Another program changed rows of the user.
            StoreError: A server does not answer. The move goes on later when it had begun.
        """
        target = await self._target_of(move)
        if not await self._begin_in_map(move):
            return await self._complete(move, target, has_arrived=True)
        try:
            await self._engine.write(partial(self._leave, move=move), wait_seconds=_LOCK_SECONDS)
        except SlumberdError:
            await self._in_map(partial(_take_back_in_map, move=move, source=self._source))
            raise
        return await self._complete(move, target)

    async def finish(self, at: datetime, by: str) -> FinishedMoves:
        """Finish the moves that an earlier holder of the source has begun.

        A move that fails is taken back, or stays begun when a server does not answer.
        """
        leaving = await self._engine.read(lambda session: session.rows("moves.leaving"))
        moved, failed = [], []
        # A process may have ended after the first step.
        for user, target in dict([*await self._in_map(self._begun), *leaving]).items():
            try:
                moved.append(await self.move(Move(user, target, at, by)))
            except SlumberdError as error:
                failed.append((user, error))
        return FinishedMoves(moved, failed)

    async def move_planned(self, at: datetime, by: str) -> MovedUser | None:
        """Move the next user who is planned to leave the source; None when none is.

        A user whose ids another user of the target has, or with a changed row, is planned no more.
        """
        if not await asyncio.to_thread(self._map.has_planned, self._source):
            return None
        planned = await self._in_map(self._next_planned)
        if planned is None:
            return None
        user, target = planned
        try:
            return await self.move(Move(user, target, at, by))
        except (IdTakenInTargetError, ChangedRowsError):
            names = {"user": user, "source": self._source}
            await self._in_map(lambda session: session.do("moves.drop_plan", names))
            raise

    def _next_planned(self, session: Session) -> Row | None:
        return session.one("moves.planned_from", {"source": self._source, "limit": 1})

    def _begun(self, session: Session) -> list[Row]:
        return session.rows("moves.begun_from", {"source": self._source})

    async def _target_of(self, move: Move) -> Shard:
        if move.target == self._source:
            raise UsageError(f"user {move.user!r} is in shard {move.target} already")
        return await asyncio.to_thread(self._map.shard, move.target)

    async def _begin_in_map(self, move: Move) -> bool:
        """Write into the map that a user is being moved; return whether it was not over there.

        An earlier holder may have ended the move in the map, and not blanked the rows. Then the
        target may have moved the user on already, so nothing but blanking is left.

        Raises:
            UserElsewhereError: Another shard has the user.
            UserMovingError: The user is being moved elsewhere.
        """
        names = {"user": move.user}
        known = await self._engine.read(lambda session: session.one("moves.user", names))
        is_leaving = known is not None and known[1] == move.target

        def begin(session: Session) -> bool:
            shard, moving_to = session.one("moves.place_of_user", names) or (None, None)
            places = {**names, "source": self._source, "target": move.target}
            if session.do("moves.begin_in_map", places):
                return True
            if shard != self._source and is_leaving:
                return False
            if moving_to is not None and shard == self._source:
                raise UserMovingError(move.user, shard, moving_to)
            raise UserElsewhereError(move.user, self._engine.where)

        return await self._in_map(begin)

    def _leave(self, session: Session, move: Move) -> None:
        """Let the source have a user no more, in its transaction."""
        known = session.one("moves.user", {"user": move.user})
        if known is not None and known[1] is not None:
            if known[1] != move.target:
                raise UserMovingError(move.user, self._source, known[1])
            return
        session.do("moves.lock_users")
        if not session.value("moves.is_here", {"escaped": escape(move.user)}):
            raise UserElsewhereError(move.user, self._engine.where)
        while session.value("inbox.number", {"most": MOST_NUMBERED}) == MOST_NUMBERED:
            pass
        session.do("moves.leave", {"user": move.user, "target": move.target})

    async def _complete(self, move: Move, target: Shard, *, has_arrived: bool = False) -> MovedUser:
        """Do the steps that follow after the source has let a user go."""
        engine = PostgresFactEngine(target, key=self._key)
        try:
            if has_arrived:
                moved = MovedUser(move.user, self._source, move.target)
                head = await engine.read(partial(arrival_head, user=move.user))
            else:
                moved, head = await self._arrive(move, engine)
        finally:
            await engine.close()
        await self._in_map(partial(_end_in_map, move=move, source=self._source))
        await self._engine.write(partial(self._blank, move=move, head=head))
        return moved

    async def _arrive(self, move: Move, engine: PostgresFactEngine) -> tuple[MovedUser, bytes]:
        """Let the target have a user; return what was moved, and the head of its ledger then."""
        number = os.urandom(_MOVE_BYTES)
        moved = MovedUser(move.user, self._source, move.target)
        try:
            if not await engine.write(partial(self._expect, move=move, number=number)):
                await self._engine.write(partial(self._check_leaving, move=move))
                rows = await self._engine.read(partial(self._read, move=move))
                await engine.write(partial(self._write, move=move, number=number, rows=rows))
                moved = self._moved(move, rows)
        except SlumberdError:
            if not await engine.write(partial(_expect_no_more, move=move)):
                await self._engine.write(lambda s: s.do("moves.stay", {"user": move.user}))
                await self._in_map(partial(_take_back_in_map, move=move, source=self._source))
                raise
        return moved, await engine.read(partial(arrival_head, user=move.user))

    def _expect(self, session: Session, move: Move, number: bytes) -> bool:
        """Let the target expect a move; return whether it has the user already."""
        known = session.one("moves.user", {"user": move.user})
        if known is not None and known[0]:
            return True
        if known is not None and known[1] is not None:
            # The way back of a move that the target has not finished.
            raise UserMovingError(move.user, move.target, self._source)
        parameters = {"user": move.user, "move": number, "source": self._source}
        session.do("moves.expect", parameters)
        return False

    def _read(self, session: Session, move: Move) -> UserRows:
        """Return the rows of a user who leaves.

        The transaction is long, and reads no table that `_leave` locks.
        """
        return read_rows(session, move.user, self._source)

    def _read_for_plan(self, session: Session, move: Move) -> UserRows:
        if not session.value("moves.is_here", {"escaped": escape(move.user)}):
            raise UserElsewhereError(move.user, self._engine.where)
        return read_rows(session, move.user, self._source)

    def _check_leaving(self, session: Session, move: Move) -> None:
        """Check that this process holds the source, and that the source has let the user go.

        The target expects the move already. So a later holder that takes the move back ends the
        expectation first, and this process writes nothing after that.
        """
        known = session.one("moves.user", {"user": move.user})
        if known is None or known[1] != move.target:
            raise UserElsewhereError(move.user, self._engine.where)

    def _write(self, session: Session, move: Move, number: bytes, rows: UserRows) -> None:
        """Write the rows of a user into the target, in its transaction."""
        parameters = {
            "user": move.user, "source": self._source, "move": number, "head": rows.head,
        }  # fmt: skip
        if not session.do("moves.arrive", parameters):
            raise UserMovingError(move.user, self._source, move.target)
        arrived = Arrived(move.target, move.at, move.by, self._depth)
        write_rows(session, rows, arrived)
        session.one("moves.notify")

    def _blank(self, session: Session, move: Move, head: bytes) -> None:
        """Blank the rows of a user in the source, in its transaction."""
        parameters = {"user": move.user, "target": move.target, "head": head}
        if session.do("moves.finish", parameters):
            blank_rows(
                session, move.user, Arrived(move.target, move.at, move.by, self._depth), head
            )

    def _moved(self, move: Move, rows: UserRows) -> MovedUser:
        return MovedUser(
            move.user, self._source, move.target,
            len(rows.episodes), len(rows.facts), len(rows.ledger),
        )  # fmt: skip

    async def _in_map(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction of the map, in another thread."""

        def run() -> T:
            place = self._engine.where
            with connect(self._map.address) as connection, translate_errors(place):
                session = PostgresSession(connection, place)
                with closing(session):
                    return work(session)

        return await asyncio.to_thread(run)


def _end_in_map(session: Session, move: Move, source: int) -> None:
    places = {"user": move.user, "source": source, "target": move.target}
    session.do("moves.end_in_map", places)


def _take_back_in_map(session: Session, move: Move, source: int) -> None:
    places = {"user": move.user, "source": source, "target": move.target}
    session.do("moves.take_back_in_map", places)


def _expect_no_more(session: Session, move: Move) -> bool:
    """Let the target expect a user no more; return whether it has the user already."""
    known = session.one("moves.user", {"user": move.user})
    if known is not None and known[0]:
        return True
    session.do("moves.expect_no_more", {"user": move.user})
    return False
