"""Who calls an operation: a name for the audit, a scope, and rights.

A caller comes from the connection, never from the request.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from slumberd.model.errors import NotAllowedError, UsageError
from slumberd.model.scope import ScopeFilter


class Right(StrEnum):
    """What a caller may do."""

    READ = "read"
    """Read episodes and facts of the scope."""
    WRITE = "write"
    """Put episodes, and correct facts."""
    ERASE = "erase"
    """Erase the scope."""
    OPERATE = "operate"
    """Change rules and firings, and read about every scope."""


ALL_RIGHTS = frozenset(Right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The program or person at the other end of a connection.

    Attributes:
        name: The name that the audit records, such as ``uid 1000``.
        uid: The number of the operating system's user; None when it is not known.
        pid: The process; 0 when it is not known.
        user: The only user that it may name; None for any.
        agent: The only agent that it may name; None for any.
        rights: What it may do.
    """

    name: str
    uid: int | None = None
    pid: int = 0
    user: str | None = None
    agent: str | None = None
    rights: frozenset[Right] = ALL_RIGHTS

    @classmethod
    def of_user(cls, uid: int, pid: int = 0) -> Self:
        """Return an operator: a user of this machine, with all rights in every scope."""
        return cls(name=f"uid {uid}", uid=uid, pid=pid)

    @classmethod
    def here(cls) -> Self:
        """Return the user of this process, as an operator."""
        return cls.of_user(os.getuid(), os.getpid())

    def __str__(self) -> str:
        """Return the name that the audit records."""
        return self.name

    def require(self, right: Right) -> None:
        """Check that the caller has a right.

        Raises:
            NotAllowedError: It has not.
        """
        if right not in self.rights:
            raise NotAllowedError(self.name, f"has no right to {right}")

    def scope(
        self,
        user: str | None,
        agent: str | None = None,
        session: str | None = None,
        *,
        all_agents: bool = False,
    ) -> ScopeFilter:
        """Return the scope of a request: what it names, within what the caller may name.

        Args:
            user: The user that the request names; None for the caller's own.
            agent: The agent that the request names; None for the caller's own, or for all.
            session: The session that the request names; None for all.
            all_agents: Whether the request asks for all agents of the user.

        Raises:
            MemoryScopeError: A part is malformed.
            NotAllowedError: The request names another user or agent than the caller's, or all.
            UsageError: Neither the caller nor the request names a user; or the request names an
                agent, and asks for all.
        """
        if all_agents:
            self._require_all_agents(agent)
        found = self._own("user", self.user, user)
        if found is None:
            raise UsageError("name a user")
        return ScopeFilter.of(found, session, self._own("agent", self.agent, agent))

    def _require_all_agents(self, agent: str | None) -> None:
        if agent is not None:
            raise UsageError("give an agent or all_agents; not both")
        if self.agent is not None:
            raise NotAllowedError(self.name, "may not read other agents than its own")

    def _own(self, part: str, own: str | None, named: str | None) -> str | None:
        if own is not None and named not in (None, own):
            raise NotAllowedError(self.name, f"may not name another {part} than its own")
        return named if own is None else own
