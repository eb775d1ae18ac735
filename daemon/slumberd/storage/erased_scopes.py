"""Keep the list of erased scopes, as keyed hashes, in a store, and look scopes up in it.

The list also holds episodes that were erased by their ids. Their moment is the last instant of the
calendar, since every version of such an episode is erased.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import partial

from slumberd.model.episode import LATEST
from slumberd.model.record import ErasedList
from slumberd.model.scope import ErasedScopes, ScopeFilter, digest_of, episode_digest_of
from slumberd.storage.engine import Session

Moments = Mapping[bytes, int]
"""By the keyed hash of a scope, the last instant that was erased, microseconds."""


def read_erased_list(session: Session) -> ErasedList:
    """Return the list of erased scopes of a store."""
    key = key_of(session)
    if key is None or not session.one("erased_scopes.exists"):
        return ErasedList(key, {})
    return ErasedList(key, dict(session.rows("erased_scopes.moments")))


def load_erased_scopes(session: Session) -> ErasedScopes | None:
    """Return all erased scopes, loaded for many look-ups; None when nothing was ever erased."""
    key = _key(session)
    if key is None:
        return None
    moments: dict[bytes, int] = dict(session.rows("erased_scopes.moments"))
    return ErasedScopes(key, moments.get, may_have_episodes=LATEST in moments.values())


def erased_scope_lookup(session: Session) -> ErasedScopes | None:
    """Return the erased scopes, each looked up in the file; None when nothing was ever erased."""
    key = _key(session)
    return None if key is None else ErasedScopes(key, partial(_moment_of, session))


def _key(session: Session) -> bytes | None:
    if not session.one("erased_scopes.exists"):
        return None
    return key_of(session)


def _moment_of(session: Session, digest: bytes) -> int | None:
    found = session.one("erased_scopes.moment", (digest,))
    return found[0] if found else None


def key_of(session: Session) -> bytes | None:
    """Return the key of the hashes; None when nothing was ever erased here."""
    if not session.one("erased_scopes.has_key"):
        return None
    found = session.one("erased_scopes.key")
    return found[0] if found else None


def record_erased_scope(
    session: Session, scope: ScopeFilter, moment: int, key: bytes | None = None
) -> bytes:
    """Record that a scope is erased up to a moment; return its hash.

    Args:
        session: In a transaction.
        moment: The last erased instant, microseconds.
        key: The key of the hashes if this database has none yet; None draws one. All databases of
            a state directory share it, so that each can take over the hashes of another.
    """
    key = _begin(session, key or secrets.token_bytes(32))
    digest = digest_of(key, scope.user, scope.session, scope.agent)
    session.do("erased_scopes.add_moment", (digest, moment))
    return digest


def record_erased_episodes(
    session: Session, user: str, eids: Iterable[str], key: bytes | None = None
) -> list[bytes]:
    """Record that episodes of a user are erased by their ids; return their hashes, in order.

    Args:
        session: In a transaction.
        key: As of `record_erased_scope`.
    """
    key = _begin(session, key or secrets.token_bytes(32))
    digests = sorted(episode_digest_of(key, user, eid) for eid in eids)
    session.do_each("erased_scopes.add_moment", [(digest, LATEST) for digest in digests])
    return digests


def record_erased_hash(session: Session, key: bytes, digest: bytes, moment: int) -> None:
    """Record an erased scope by its hash in another database that has the same key."""
    if _begin(session, key) == key:
        session.do("erased_scopes.add_moment", (digest, moment))


def learn_moments(session: Session, key: bytes, moments: Iterable[Moments]) -> None:
    """Record the erased scopes of other databases with the same key; in a transaction."""
    for some in moments:
        for digest, moment in some.items():
            record_erased_hash(session, key, digest, moment)


def _begin(session: Session, key: bytes) -> bytes:
    session.do("erased_scopes.create_erasure_key")
    session.do("erased_scopes.create_erased_scopes")
    session.do("erased_scopes.add_key", (key,))
    stored: bytes = session.value("erased_scopes.key")
    return stored
