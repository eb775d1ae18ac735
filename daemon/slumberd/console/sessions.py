"""Remember who is signed in, in the memory of the daemon, and the secrets of their forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from slumberd.clock import Clock

LIFETIME_SECONDS = 12 * 3600.0
"""A session ends so long after its sign-in."""

MOST_EACH = 100
"""The most sessions of a token or an account; a further sign-in ends the oldest."""

MOST_FORMS = 100
"""A session remembers so many forms that were shown and not sent."""

_RANDOM_BYTES = 32


@dataclass(slots=True)
class Session:
    """One person who is signed in, in one browser.

    Attributes:
        token_hash: The hash of the token that the person signed in with; None for a user of the
            unix socket.
        uid: The user at the other end of the unix socket; None for a token.
        ends: When it ends, by the monotonic clock.
        form_secret: What every form of the session sends back.
    """

    token_hash: str | None
    uid: int | None
    ends: float
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(_RANDOM_BYTES))
    _forms: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def allows(self, form_secret: str) -> bool:
        """Return whether a form comes from a page of this session."""
        return hmac.compare_digest(self.form_secret.encode(), form_secret.encode())

    def issue_form(self) -> str:
        """Return a number for a form that may be sent once."""
        number = secrets.token_urlsafe(_RANDOM_BYTES)
        self._forms[number] = None
        while len(self._forms) > MOST_FORMS:
            self._forms.popitem(last=False)
        return number

    def use_form(self, number: str) -> bool:
        """Return whether a form was not sent before; from now on it was."""
        if number not in self._forms:
            return False
        del self._forms[number]
        return True


class Sessions:
    """All sessions of a daemon; its restart ends them.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_hash: dict[str, Session] = {}

    def begin(self, *, token_hash: str | None = None, uid: int | None = None) -> str:
        """Begin a session, and return the secret that the browser keeps.

        Args:
            token_hash: The hash of a token; None for a user of the unix socket.
            uid: That user.
        """
        secret = secrets.token_urlsafe(_RANDOM_BYTES)
        ends = self._clock.monotonic() + LIFETIME_SECONDS
        owner = (token_hash, uid)
        own = [key for key, each in self._by_hash.items() if (each.token_hash, each.uid) == owner]
        if len(own) >= MOST_EACH:
            del self._by_hash[own[0]]
        self._by_hash[_hash_of(secret)] = Session(token_hash, uid, ends)
        return secret

    def find(self, secret: str) -> Session | None:
        """Return the session of a secret; None when it has ended, or never began."""
        found = self._by_hash.get(_hash_of(secret))
        if found is None or found.ends > self._clock.monotonic():
            return found
        self.end(secret)
        return None

    def end(self, secret: str) -> None:
        """End a session."""
        self._by_hash.pop(_hash_of(secret), None)


def _hash_of(secret: str) -> str:
    # A look-up by the hash takes a time that tells nothing about the secrets.
    return hashlib.sha256(secret.encode()).hexdigest()
