"""Find content of erased scopes, which a backup from before the erasure can bring back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from slumberd.model.scope import ErasedScopes, scope_of
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import instant_or_zero
from slumberd.storage.erased_scopes import record_erased_hash

_EVER = -(2**63)

Moments = Mapping[bytes, int]
"""By the keyed hash of a scope, the last instant that was erased, microseconds."""


def facts_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many facts are of erased scopes, by user."""
    found: Counter[str] = Counter()
    for user, agent, at, its_session in session.stream("erased_content.facts"):
        if any(past.covers(user, its_session or "", agent, at) for past in pasts):
            found[user] += 1
    return found


def episodes_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many episodes are of erased scopes by their scope keys, by user."""
    found: Counter[str] = Counter()
    for (key,) in session.rows("erased_content.scope_keys"):
        scope = scope_of(key) if isinstance(key, str) else None
        erased = scope and [past for past in pasts if past.covers(*scope, _EVER)]
        for (timestamp,) in session.stream("erased_content.timestamps", (key,)) if erased else ():
            if scope and any(past.covers(*scope, instant_or_zero(timestamp)) for past in pasts):
                found[scope.user] += 1
    return found


def learn_moments(session: Session, key: bytes, moments: Iterable[Moments]) -> None:
    """Store the erased scopes of other databases with the same key; in a transaction."""
    for some in moments:
        for digest, moment in some.items():
            record_erased_hash(session, key, digest, moment)
