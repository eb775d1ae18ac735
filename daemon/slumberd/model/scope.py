"""Scopes of episodes and their keys, ids and keys of facts, and erased scopes, known by hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from slumberd.model.errors import MemoryScopeError

FACTS = "facts"
"""The channel whose fact ids are the episode ids themselves."""


_KEY = re.compile(r"/user/([^/]*)/session/([^/]*)/agent/([^/]*)/")
# SQLite's JSON, which passes many keys to one query, may end a text at a NUL.
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", "\0": "%00"})


class Scope(NamedTuple):
    """The scope of an episode: a session of a user with an agent."""

    user: str
    session: str
    agent: str

    @property
    def key(self) -> str:
        """``/user/{user}/session/{session}/agent/{agent}/``, ``%`` and ``/`` percent-encoded."""
        user, session, agent = self if _is_plain("".join(self)) else map(escape, self)
        return f"/user/{user}/session/{session}/agent/{agent}/"


def is_key_of(key: object, scope: Scope) -> bool:
    """Return whether a key is a scope's, escaped by slumberd or not escaped by Stargraph."""
    return key in (scope.key, f"/user/{scope.user}/session/{scope.session}/agent/{scope.agent}/")


def escape(part: str) -> str:
    """Return a part of a key without ``/`` and NUL; different parts stay different."""
    return part if _is_plain(part) else part.translate(_ESCAPES)


def _is_plain(part: str) -> bool:
    return not ("%" in part or "/" in part or "\0" in part)


PLACEHOLDER = Scope("anon", "default", "default")
"""The scope that Stargraph's ``MemoryWriteNode`` writes when its run names no scope."""

PLACEHOLDER_KEY = PLACEHOLDER.key
"""The key of the placeholder scope."""


def unescape(part: str) -> str:
    """Return the part that `escape` escaped; a part of a scope holds no NUL."""
    return part.replace("%2F", "/").replace("%25", "%")


def check_part(part: object, *, axis: str, scope: tuple[str | None, ...], operation: str) -> str:
    """Return a part of a scope if it is valid.

    Raises:
        MemoryScopeError: It is no text, empty, holds a control character, or is not valid Unicode.
    """
    if not isinstance(part, str):  # a host may pass anything
        raise MemoryScopeError(scope, operation, f"{axis} is {part!r:.100}, which is no text")
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


def validate_scope(scope: Scope, *, operation: str) -> Scope:
    """Return a scope if each of its parts is valid.

    Raises:
        MemoryScopeError: A part is empty, holds a control character, or is not valid Unicode.
    """
    with suppress(TypeError):  # a part is no text
        if all(scope) and "".join(scope).isprintable():
            return scope
    for axis, part in zip(Scope._fields, scope, strict=True):
        check_part(part, axis=axis, scope=scope, operation=operation)
    return scope


def scope_of(key: str) -> Scope | None:
    """Return the scope of a key; None when it is not a scope key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    user, session, agent = found.groups()
    if "%" not in key:
        return Scope(user, session, agent)
    return Scope(unescape(user), unescape(session), unescape(agent))


class Scoped(Protocol):
    """A value that belongs to a scope."""

    @property
    def user(self) -> str:
        """The user of its scope."""

    @property
    def session(self) -> str:
        """The session of its scope."""

    @property
    def agent(self) -> str:
        """The agent of its scope."""


@dataclass(frozen=True, slots=True)
class ScopeFilter:
    """The scopes that one read may see, compared exactly and case-sensitively.

    Attributes:
        user: Always given.
        session: None for all sessions.
        agent: None for all agents.
    """

    user: str
    session: str | None
    agent: str | None

    @classmethod
    def of(
        cls, user: str, session: str | None, agent: str | None, *, operation: str = "recent"
    ) -> ScopeFilter:
        """Return a filter with valid parts.

        Args:
            user: Always given.
            session: None for all sessions.
            agent: None for all agents.
            operation: What is refused when a part is invalid.

        Raises:
            MemoryScopeError: A part is invalid.
        """
        parts = {"user": user, "session": session, "agent": agent}
        for axis, part in parts.items():
            if part is not None or axis == "user":
                scope = (user, session, agent)
                check_part(part, axis=axis, scope=scope, operation=operation)
        return cls(user, session, agent)

    def holds_owner(self, user: str, agent: str) -> bool:
        """Return whether the filter includes the facts of a user and an agent."""
        return user == self.user and self.agent in (None, agent)

    def holds(self, scope: Scoped | None) -> bool:
        """Return whether the filter includes a scope, or the scope of a value."""
        return (
            scope is not None
            and scope.user == self.user
            and self.session in (None, scope.session)
            and self.agent in (None, scope.agent)
        )


ERASED_SCOPE = "erased"
"""The reason of a noop: the claim belongs to an erased scope."""


def digest_of(key: bytes, user: str, session: str | None, agent: str | None) -> bytes:
    """Return the keyed hash of an erased scope; None means all sessions or agents."""
    return hmac.digest(key, json.dumps([user, session, agent]).encode(), "sha256")


def episode_digest_of(key: bytes, user: str, eid: str) -> bytes:
    """Return the keyed hash of an erased episode of a user; no scope has the same."""
    # Of hashes: an id may hold any character, and SQL must make the same message.
    user_hash, id_hash = (
        hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest() for text in (user, eid)
    )
    return hmac.digest(key, f"episode {user_hash} {id_hash}".encode(), "sha256")


class ErasedScopes:
    """The erased scopes, and the erased episodes of other scopes.

    Attributes:
        may_have_episodes: Whether an episode may be erased by its id.

    Args:
        key: The key of the hashes.
        moment_of: Returns the moment of an erasure by its hash, in microseconds since 1970 UTC;
            None for a scope that was not erased.
        may_have_episodes: Whether an episode may be erased by its id.
    """

    def __init__(
        self,
        key: bytes,
        moment_of: Callable[[bytes], int | None],
        *,
        may_have_episodes: bool = True,
    ) -> None:
        self._key = key
        self._moment_of = moment_of
        self.may_have_episodes = may_have_episodes
        self._known: dict[tuple[str, str, str], int | None] = {}

    def covers(self, user: str, session: str, agent: str, at: int) -> bool:
        """Return whether an erasure covers a scope's claims of an instant, in microseconds."""
        scope = (user, session, agent)
        if scope not in self._known:
            self._known[scope] = self._moment(*scope)
        moment = self._known[scope]
        return moment is not None and at <= moment

    def has_episode(self, user: str, eid: str) -> bool:
        """Return whether an episode of a user was erased by its id, whatever its instant."""
        if not self.may_have_episodes:
            return False
        return self._moment_of(episode_digest_of(self._key, user, eid)) is not None

    def _moment(self, user: str, session: str, agent: str) -> int | None:
        wider = [(s, a) for s in (session, None) for a in (agent, None)]
        moments = (self._moment_of(digest_of(self._key, user, s, a)) for s, a in wider)
        return max((moment for moment in moments if moment is not None), default=None)


ScopeMismatch = Literal["quarantine", "trust_scope", "trust_episode"]
"""Which owner counts when a row's scope key and its content name different owners."""


_NUMBERED = re.compile(r"#[0-9]+\Z")
"""The end of an episode's id that looks like the number of one of several claims."""

_WHOLE = "#0"
"""Ends the id of an own claim that would look like one of several claims of another episode."""


def fact_id_of(channel: str, episode_id: str, part: int = 0) -> str:
    """Return the id of the fact that an episode promotes into a channel.

    Only the several claims of an episode have ids that end in ``#`` and a number from 1 on, but for
    ``@facts/{id}`` of an episode whose own id ends so. No two episodes share an id.

    Args:
        part: Which of several claims of the episode it is, from 1; 0 for the episode's own.
    """
    own = _own_id(channel, episode_id)
    return f"{own}#{part}" if part else own


def _own_id(channel: str, episode_id: str) -> str:
    numbered = _NUMBERED.search(episode_id) if "#" in episode_id else None
    if numbered is None:
        return plain_fact_id(channel, episode_id)
    own = f"@{channel}/{episode_id}"
    is_clear = channel == FACTS and not episode_id.startswith("@")
    if is_clear and not _NUMBERED.search(episode_id[: numbered.start()]):
        return own
    return own + _WHOLE


def plain_fact_id(channel: str, name: str) -> str:
    """Return the id of a name in a channel, whatever the name ends in.

    Such is the id of a single fact that a claim names, and the id that slumberd 0.2 gave to an
    episode whose own id ends in ``#`` and digits.
    """
    if channel == FACTS and not name.startswith("@"):
        return name
    return f"@{channel}/{name}"


def named_ids(channel: str, name: str) -> tuple[str, ...]:
    """Return the ids that a name stands for: an episode's own fact, and one of several facts."""
    return tuple(dict.fromkeys((fact_id_of(channel, name), plain_fact_id(channel, name))))


def channel_of(fact_id: str) -> str:
    """Return the channel in a fact id; ``facts`` for an id without a channel."""
    if fact_id.startswith("@") and "/" in fact_id:
        return fact_id[1:].split("/", 1)[0] or FACTS
    return FACTS


@lru_cache(maxsize=4_096)
def owner_of(user: str, agent: str, channel: str) -> str:
    """Return the owner part of a key: user, agent and channel."""
    return f"{escape(user)}/{escape(agent)}/{escape(channel)}/"


def key_of(owner: str, payload: Mapping[str, Any], fact_id: str) -> str:
    """Return a payload's key; without subject and predicate, a key of its own."""
    subject, predicate = payload.get("subject"), payload.get("predicate")
    if isinstance(subject, str) and isinstance(predicate, str) and subject and predicate:
        if _is_plain(subject + predicate):
            return f"{owner}{subject}/{predicate}"
        return f"{owner}{escape(subject)}/{escape(predicate)}"
    return f"{owner}//{escape(fact_id)}"


def canonical(value: object) -> str:
    """Return JSON with sorted keys; two objects are equal when their canonical JSON is."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def episode_id_of(fact_id: str) -> str:
    """Return the id of the episode that a fact id was made from."""
    if fact_id.startswith("@") and "/" in fact_id:
        episode_id = fact_id.split("/", 1)[1]
        shorter = episode_id.removesuffix(_WHOLE)
        return shorter if _NUMBERED.search(shorter) else episode_id
    return fact_id
