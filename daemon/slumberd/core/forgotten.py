"""What was forgotten: scopes by a keyed hash, and up to when each does not count."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable

FORGOTTEN = "forgotten"
"""The reason of what a forgotten scope still says."""


def digest_of(key: bytes, user: str, session: str | None, agent: str | None) -> bytes:
    """Return the keyed hash by which a scope, or a wider one, is remembered."""
    return hmac.digest(key, json.dumps([user, session, agent]).encode(), "sha256")


class Forgotten:
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
