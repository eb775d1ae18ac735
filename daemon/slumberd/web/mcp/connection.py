"""What a connection of the Model Context Protocol may do, and in whose memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from slumberd.model.errors import UsageError
from slumberd.operations.caller import ALL_RIGHTS, Right
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS

PATH = "/mcp"
"""Where the daemon's HTTP server answers the protocol."""

QUERY = ("user", "agent", "session", "all_agents", "admin")
"""What the query of the address may have."""

Call = Callable[[str, dict[str, Any]], Awaitable[Answer]]
"""Returns the answer of an operation, by its name, to the fields of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The other end of a connection: the scope and the rights of every request on it.

    Attributes:
        call: Calls operations as the caller at the other end.
        user: Whose memory it is; None when neither the caller nor the connection names a user.
        agent: Which agent remembers and recalls; None for all agents.
        session: The conversation that new episodes belong to; None for the default one.
        rights: What the caller may do.
        all_agents: Whether reads see what all agents of the user know.
        admin: Whether the administrative tools are offered.
    """

    call: Call
    user: str | None
    agent: str | None = None
    session: str | None = None
    rights: frozenset[Right] = ALL_RIGHTS
    all_agents: bool = False
    admin: bool = False

    def allows(self, operation: str) -> bool:
        """Return whether the caller has the right that an operation needs."""
        return OPERATIONS[operation].right in self.rights

    async def ask(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer to a request in the scope of the connection.

        Args:
            request: Its fields, without a user and an agent.

        Raises:
            UsageError: The operation needs a user, and there is none; or the request has mistakes.
            SlumberdError: The operation failed.
        """
        return await self.call(operation, {**request, **self._scope_for(operation)})

    def _scope_for(self, operation: str) -> dict[str, Any]:
        """Return the fields of a request that name the scope."""
        fields = OPERATIONS[operation].form.model_fields
        if "user" not in fields:
            return {}
        if self.user is None:
            raise UsageError(
                "this connection names no user; write ?user=NAME at the end of the address"
            )
        if self.all_agents and "all_agents" in fields:
            return {"user": self.user, "all_agents": True}
        return {"user": self.user} | ({} if self.agent is None else {"agent": self.agent})
