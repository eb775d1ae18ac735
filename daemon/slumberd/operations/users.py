"""List the users who have current facts, for operators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import Cursor, Limit, OperatorForm, Result, read_cursor, write_cursor
from slumberd.operations.handlers import Example, operation
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
