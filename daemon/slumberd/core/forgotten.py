"""What was forgotten: scopes by a keyed hash, and up to when each does not count."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

FORGOTTEN = "forgotten"
"""The reason of what a forgotten scope still says."""


def digest_of(key: bytes, user: str, session: str | None, agent: str | None) -> bytes:
    """Return the keyed hash by which a scope, or a wider one, is remembered."""
    return hmac.digest(key, json.dumps([user, session, agent]).encode(), "sha256")


class Forgotten:
    """The scopes that were forgotten.

    Args:
        key: Of the hashes.
        moments: Microseconds since 1970 UTC, by hash.
    """

    def __init__(self, key: bytes, moments: Mapping[bytes, int]) -> None:
        self._key = key
        self._moments = moments
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
        digests = (digest_of(self._key, user, s, a) for s, a in wider)
        return max((self._moments[d] for d in digests if d in self._moments), default=None)
