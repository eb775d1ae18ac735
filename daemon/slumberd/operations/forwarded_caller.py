"""Pass on with a request who called it, from one host to another.

The receiver trusts its sender, as it trusts all who may write requests into the database. What the
sender passes on can only narrow what it may do itself.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from slumberd.errors import NotAllowedError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer, Handler

FIELD = "caller"
"""The field of a request that says who called."""


class ForwardedCaller(BaseModel):
    """Who called, as a request says it.

    Attributes:
        name: The name for the audit; None for the sender itself.
        user: The only user that it may name; None for any.
        agent: The only agent that it may name; None for any.
        rights: What it may do; None for all that the sender may do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    user: str | None = None
    agent: str | None = None
    rights: list[Right] | None = None


def forward(request: dict[str, Any], caller: Caller | None = None) -> dict[str, Any]:
    """Return a request that says who called it.

    Args:
        request: The fields of the request.
        caller: Who called; None for the sender itself.
    """
    if caller is None:
        return request
    passed = ForwardedCaller(
        name=caller.name, user=caller.user, agent=caller.agent, rights=sorted(caller.rights)
    )
    return {**request, FIELD: passed.model_dump(mode="json", exclude_none=True)}


def for_forwarded(handler: Handler) -> Handler:
    """Return a handler that calls another one for the caller that a request names.

    Raises:
        NotAllowedError: By the handler; the caller would have more than the sender.
        UsageError: By the handler; what the request says of the caller is malformed.
    """

    async def handle(request: dict[str, Any], sender: Caller) -> Answer:
        if FIELD not in request:
            return await handler(request, sender)
        fields = {name: value for name, value in request.items() if name != FIELD}
        return await handler(fields, _narrow(sender, _read(request[FIELD])))

    return handle


def _read(document: object) -> ForwardedCaller:
    try:
        return ForwardedCaller.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"the caller of the request cannot be read: {error}") from error


def _narrow(sender: Caller, passed: ForwardedCaller) -> Caller:
    """Return the caller that a sender passes on, with at most what the sender may do."""
    for own, given in ((sender.user, passed.user), (sender.agent, passed.agent)):
        if own is not None and given not in (None, own):
            raise NotAllowedError(sender.name, "may not name another scope than its own")
    rights = sender.rights if passed.rights is None else sender.rights & {*passed.rights}
    return Caller(
        name=sender.name if passed.name is None else f"{passed.name} via {sender.name}",
        uid=sender.uid,
        pid=sender.pid,
        user=passed.user if sender.user is None else sender.user,
        agent=passed.agent if sender.agent is None else sender.agent,
        rights=frozenset(rights),
    )
