"""Find content of erased scopes and episodes, which an older backup can bring back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from slumberd.model.fact_ids import episode_id_of
from slumberd.model.scope import ErasedScopes, scope_of
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import instant_or_zero
from slumberd.storage.erased_scopes import record_erased_hash

_EVER = -(2**63)

Moments = Mapping[bytes, int]
"""By the keyed hash of a scope, the last instant that was erased, microseconds."""


def facts_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many facts are of erased scopes or episodes, by user."""
    found: Counter[str] = Counter()
    for user, agent, at, its_session, fact_id in session.stream("erased_content.facts"):
        ids = (episode_id_of(fact_id), episode_id_of(fact_id).rpartition("#")[0])
        if any(
            past.covers(user, its_session or "", agent, at)
            or any(past.has_episode(user, eid) for eid in ids)
            for past in pasts
        ):
            found[user] += 1
    return found


def episodes_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many episodes are erased, by their scope keys or their ids, by user."""
    found = _erased_by_id(session, [past for past in pasts if past.may_have_episodes])
    for (key,) in session.rows("erased_content.scope_keys"):
        scope = scope_of(key) if isinstance(key, str) else None
        erased = scope and [past for past in pasts if past.covers(*scope, _EVER)]
        for (timestamp,) in session.stream("erased_content.timestamps", (key,)) if erased else ():
            if scope and any(past.covers(*scope, instant_or_zero(timestamp)) for past in pasts):
                found[scope.user] += 1
    return found


def _erased_by_id(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    found: Counter[str] = Counter()
    for eid, key in session.stream("erased_content.ids") if pasts else ():
        scope = scope_of(key) if isinstance(key, str) else None
        if scope and any(past.has_episode(scope.user, str(eid)) for past in pasts):
            found[scope.user] += 1
    return found


def learn_moments(session: Session, key: bytes, moments: Iterable[Moments]) -> None:
    """Store the erased scopes of other databases with the same key; in a transaction."""
    for some in moments:
        for digest, moment in some.items():
            record_erased_hash(session, key, digest, moment)
