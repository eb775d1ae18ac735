"""List the users who have current facts, and move users to other shards, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Protocol

import structlog
from pydantic import Field

from slumberd.clock import Clock, set_within
from slumberd.model.errors import (
    IdTakenInTargetError,
    MemoryScopeError,
    SlumberdError,
    StoreError,
    SupersededError,
    UnsupportedByStoreError,
)
from slumberd.model.moves import FinishedMoves, Move
from slumberd.model.moves import MovedUser as Moved
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import (
    MOST_SHARDS,
    Cursor,
    Limit,
    OperatorForm,
    Result,
    read_cursor,
    write_cursor,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.writes.rule_runner import Turn
from slumberd.storage.facts.store import EngineFactStore


class UsersForm(OperatorForm):
    """The request ``users``: a page of the users who have current facts.

    Attributes:
        prefix: Only users whose names begin with this text.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    prefix: Annotated[str, Field(max_length=100)] = ""
    limit: Limit = 100
    cursor: Cursor | None = None


class KnownUser(Result):
    """A user who has current facts.

    Attributes:
        user: The user.
        agents: The agents that know them, in order; at most the first 100.
        facts: How many facts there are, of all agents, without marks and weights.
    """

    user: str
    agents: list[str]
    facts: int


class UserPage(Result):
    """A page of users.

    Attributes:
        users: The users, by name.
        next: The cursor of the next page; None at the end.
    """

    users: list[KnownUser]
    next: str | None


class Users:
    """Runs requests that list users."""

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"prefix": "a", "limit": 10},
            {"users": [{"user": "ana", "agents": ["desk"], "facts": 1}], "next": None},
        ),
    )
    async def users(self, request: UsersForm, _: Caller) -> UserPage:
        """Return a page of the users who have current facts, by name."""
        after = None
        if request.cursor is not None:
            (after,) = read_cursor("users", request.cursor, 1)
        found = await self._facts.reads.users(request.prefix, after=after, limit=request.limit)
        full = len(found) == request.limit
        return UserPage(
            users=[KnownUser(**user._asdict()) for user in found],
            next=write_cursor(found[-1].user) if full else None,
        )


LOOK_SECONDS = 60.0
"""How often a daemon looks whether a user is planned to leave its shard."""

BY_PLAN = "plan"
"""Who requests the moves of a plan, in the ledger."""

_log = structlog.get_logger("slumberd")


class MoveForm(OperatorForm):
    """The request ``move``: a user, and the shard that gets the user.

    Attributes:
        user: The user.
        to: The number of the shard.
        dry_run: Whether nothing is written.
    """

    user: str
    to: Annotated[int, Field(ge=0, le=MOST_SHARDS - 1)]
    dry_run: bool = False


class MovedUser(Result):
    """A user who was moved to another shard, or who would be.

    Attributes:
        user: The user.
        source: The shard that had the user.
        target: The shard that has the user now.
        episodes: How many episodes were moved.
        facts: How many facts were moved.
        rows: How many rows of the ledger were moved.
        dry_run: Whether nothing was written.
    """

    user: str
    source: int
    target: int
    episodes: int
    facts: int
    rows: int
    dry_run: bool


class Moves(Protocol):
    """Moves users out of the shard of this process."""

    async def plan(self, move: Move) -> Moved:
        """Return what a move would move; write nothing."""
        ...

    async def move(self, move: Move) -> Moved:
        """Move a user."""
        ...

    async def finish(self, at: datetime, by: str) -> FinishedMoves:
        """Finish the moves that an earlier holder of the shard has begun."""
        ...

    async def move_planned(self, at: datetime, by: str) -> Moved | None:
        """Move the next user who is planned to leave the shard; None when none is."""
        ...


class UserMoving:
    """Moves users between two firings.

    Args:
        moves: Moves them; None for a store without shards.
        turn: The lock that each change of the facts holds.
        where: The store in words.
        left: Called with each user who has left, to remove what files beside the store hold.
    """

    def __init__(
        self,
        moves: Moves | None,
        turn: Turn,
        clock: Clock,
        where: str,
        left: Callable[[str], Awaitable[object]],
    ) -> None:
        self._left = left
        self._moves = moves
        self._turn = turn
        self._clock = clock
        self._where = where
        self._is_unfinished = False

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(IdTakenInTargetError, MemoryScopeError, StoreError),
        example=Example(
            {"user": "alice", "to": 3},
            {
                "user": "alice",
                "source": 0,
                "target": 3,
                "episodes": 812,
                "facts": 97,
                "rows": 1204,
                "dry_run": False,
            },
        ),
    )
    async def move(self, request: MoveForm, caller: Caller) -> Annotated[Answer, MovedUser]:
        """Move a user to another shard, with all episodes, facts and rows of the ledger.

        Raises:
            UnsupportedByStoreError: The store has no shards.
            IdTakenInTargetError: Another user of the target has an id of the user.
        """
        if self._moves is None:
            remedy = "only a PostgreSQL database has shards"
            raise UnsupportedByStoreError(self._where, "no user can be moved", remedy)
        move = Move(request.user, request.to, self._clock.now(), str(caller))
        async with self._turn:
            run = self._moves.plan if request.dry_run else self._moves.move
            self._is_unfinished = not request.dry_run or self._is_unfinished
            moved = await run(move)
            if not request.dry_run:
                await self._remove_notes(moved)
        if not request.dry_run:
            _log_moved(moved)
        return {**moved._asdict(), "dry_run": request.dry_run}

    async def finish(self) -> None:
        """Finish the moves that an earlier daemon has begun, before any rule fires.

        A move whose target does not answer stays begun; `run` tries it again.
        """
        if self._moves is None:
            return
        async with self._turn:
            done = await self._moves.finish(self._clock.now(), BY_PLAN)
            for moved in done.moved:
                await self._remove_notes(moved)
        self._is_unfinished = bool(done.failed)
        for moved in done.moved:
            _log_moved(moved)
        for _, error in done.failed:
            _log_failed(error)

    async def run(self, stop: asyncio.Event) -> None:
        """Move the users that are planned to leave, one after the other, until `stop` is set."""
        while self._moves is not None and not stop.is_set():
            moved = await self._try(self._move_next)
            if moved is None:
                if self._is_unfinished:
                    await self._try(self.finish)
                await set_within(stop, LOOK_SECONDS)

    async def _move_next(self) -> Moved | None:
        if self._moves is None:
            return None
        async with self._turn:
            moved = await self._moves.move_planned(self._clock.now(), BY_PLAN)
            if moved is not None:
                await self._remove_notes(moved)
        if moved is not None:
            _log_moved(moved)
        return moved

    async def _remove_notes(self, moved: Moved) -> None:
        """Remove what files of the source hold of a user who has left."""
        try:
            await self._left(moved.user)
        except StoreError as error:  # the user was moved all the same
            _log_failed(error)

    async def _try(self, work: Callable[[], Awaitable[Moved | None]]) -> Moved | None:
        try:
            return await work()
        except SupersededError:
            raise
        except SlumberdError as error:
            self._is_unfinished = True
            _log_failed(error)
            return None


def _log_moved(moved: Moved) -> None:
    """Log a move, without the name of the user."""
    _log.info(
        "move.finished",
        source=moved.source,
        target=moved.target,
        episodes=moved.episodes,
        facts=moved.facts,
        rows=moved.rows,
    )


def _log_failed(error: SlumberdError) -> None:
    _log.error("move.failed", error=type(error).__name__)
