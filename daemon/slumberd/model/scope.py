"""Scope keys: who an episode belongs to, in a form that two scopes never share.

What was forgotten: scopes by a keyed hash, and up to when each does not count.
"""

from __future__ import annotations

import hmac
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from slumberd.errors import MemoryScopeError

_KEY = re.compile(r"/user/([^/]*)/session/([^/]*)/agent/([^/]*)/")
# SQLite's JSON, through which keys are looked up in numbers, may end a text at a NUL.
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", "\0": "%00"})


class Scope(NamedTuple):
    """Where one episode belongs: a session of a user with an agent."""

    user: str
    session: str
    agent: str

    @property
    def key(self) -> str:
        """``/user/{user}/session/{session}/agent/{agent}/``, ``%`` and ``/`` percent-encoded."""
        user, session, agent = self if _is_plain("".join(self)) else map(escape, self)
        return f"/user/{user}/session/{session}/agent/{agent}/"


def is_key_of(key: object, scope: Scope) -> bool:
    """Say whether a key was made from a scope, by us or by Stargraph, which escapes nothing."""
    return key in (scope.key, f"/user/{scope.user}/session/{scope.session}/agent/{scope.agent}/")


def escape(part: str) -> str:
    """Return a part of a key in a form that holds no ``/`` or NUL; equal parts, equal forms."""
    return part if _is_plain(part) else part.translate(_ESCAPES)


def _is_plain(part: str) -> bool:
    return not ("%" in part or "/" in part or "\0" in part)


PLACEHOLDER = Scope("anon", "default", "default")
"""What Stargraph's ``MemoryWriteNode`` writes when its run names no scope: the scope of nothing."""

PLACEHOLDER_KEY = PLACEHOLDER.key


def unescape(part: str) -> str:
    """Return what `escape` was given, if a scope can have such a part: none holds NUL."""
    return part.replace("%2F", "/").replace("%25", "%")


def checked(part: str, *, axis: str, scope: tuple[str | None, ...], operation: str) -> str:
    """Return a part of a scope when it may be one.

    Raises:
        MemoryScopeError: It is empty, holds a control character, or is no valid Unicode.
    """
    if not part:
        raise MemoryScopeError(scope, operation, f"{axis} is empty")
    if part.isprintable():
        return part
    for character in part:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise MemoryScopeError(
                scope, operation, f"{axis} holds the control character {character!r}"
            )
    return part


def checked_scope(scope: Scope, *, operation: str) -> Scope:
    """Return a scope when each of its parts may be one.

    Raises:
        MemoryScopeError: A part is empty, holds a control character, or is no valid Unicode.
    """
    if all(scope) and "".join(scope).isprintable():
        return scope
    for axis, part in zip(Scope._fields, scope, strict=True):
        checked(part, axis=axis, scope=scope, operation=operation)
    return scope


def scope_of(key: str) -> Scope | None:
    """Return the scope that a key was made from; None when it is no scope key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    user, session, agent = found.groups()
    if "%" not in key:
        return Scope(user, session, agent)
    return Scope(unescape(user), unescape(session), unescape(agent))


class Scoped(Protocol):
    """What belongs to a session of a user with an agent."""

    @property
    def user(self) -> str:
        """Whose it is."""

    @property
    def session(self) -> str:
        """Which session it is of."""

    @property
    def agent(self) -> str:
        """Which agent it is of."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The scopes that one read may see: exactly these, in that case and spelling.

    Attributes:
        user: Always given.
        session: None for all sessions.
        agent: None for all agents.
    """

    user: str
    session: str | None
    agent: str | None

    @classmethod
    def of(cls, user: str, session: str | None, agent: str | None) -> Reach:
        """Return a reach whose parts may be parts of scopes.

        Raises:
            MemoryScopeError: One of them may not.
        """
        parts = {"user": user, "session": session, "agent": agent}
        for axis, part in parts.items():
            if part is not None:
                checked(part, axis=axis, scope=(user, session, agent), operation="recent")
        return cls(user, session, agent)

    def holds(self, scope: Scoped | None) -> bool:
        """Say whether a scope, or something that has one, is within reach."""
        return (
            scope is not None
            and scope.user == self.user
            and self.session in (None, scope.session)
            and self.agent in (None, scope.agent)
        )


FORGOTTEN = "forgotten"
"""The reason of what a forgotten scope still says."""


def digest_of(key: bytes, user: str, session: str | None, agent: str | None) -> bytes:
    """Return the keyed hash by which a scope, or a wider one, is remembered."""
    return hmac.digest(key, json.dumps([user, session, agent]).encode(), "sha256")


class ErasedScopes:
    """The scopes that were forgotten.

    Args:
        key: Of the hashes.
        moment_of: Tells microseconds since 1970 UTC by a hash; None of what is not forgotten.
    """

    def __init__(self, key: bytes, moment_of: Callable[[bytes], int | None]) -> None:
        self._key = key
        self._moment_of = moment_of
        self._known: dict[tuple[str, str, str], int | None] = {}

    def covers(self, user: str, session: str, agent: str, at: int) -> bool:
        """Say whether what a scope says as of an instant, in microseconds, does not count."""
        scope = (user, session, agent)
        if scope not in self._known:
            self._known[scope] = self._moment(*scope)
        moment = self._known[scope]
        return moment is not None and at <= moment

    def _moment(self, user: str, session: str, agent: str) -> int | None:
        wider = [(s, a) for s in (session, None) for a in (agent, None)]
        moments = (self._moment_of(digest_of(self._key, user, s, a)) for s, a in wider)
        return max((moment for moment in moments if moment is not None), default=None)


ScopeMismatch = Literal["quarantine", "trust_scope", "trust_episode"]
"""What counts when a row's scope key and its content name different owners."""
