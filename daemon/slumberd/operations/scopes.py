"""The scope of a request that an operator may send for all users."""

from __future__ import annotations

from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import ScopedForm


def reading_scope(request: ScopedForm, caller: Caller) -> ScopeFilter | None:
    """Return the scope of a request; None when an operator names no user.

    Raises:
        MemoryScopeError: A part is malformed.
        NotAllowedError: The request names another user or agent than the caller's.
        UsageError: Neither the request nor a caller who is no operator names a user.
    """
    is_open = caller.user is request.user is request.agent is None
    if is_open and Right.OPERATE in caller.rights:
        return None
    return caller.scope(request.user, request.agent)
