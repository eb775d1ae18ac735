"""What a page gets, and what it returns; who is signed in, and how.

The memory of the daemon holds the sessions, and the secrets of their forms.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from slumberd.clock import Clock
from slumberd.daemon.interfaces import Served
from slumberd.model.errors import NotAuthenticatedError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.web.console.rendering import Fields
from slumberd.web.http.access import Access, hash_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of a person who is signed in.

    Attributes:
        served: The daemon.
        caller: The person.
        session: The person's session.
        path: The path of the page, without ``/console``.
        fields: The fields of the query, or of the form that was sent. An empty field is absent.
        shard: The shard that the page shows; None where there is one only, and for a person of one
            user.
    """

    served: Served
    caller: Caller
    session: BrowserSession
    path: str
    fields: Fields
    shard: int | None = None

    async def ask(self, operation: str, **fields: Any) -> Answer:
        """Run an operation as the person, and return its answer; a field of None is absent.

        What concerns no user concerns the shard that the page shows.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        takes_shard = "shard" in OPERATIONS[operation].form.model_fields
        if self.shard is not None and takes_shard and "user" not in given:
            given["shard"] = self.shard
        return await self.served.dispatcher.call(operation, given, self.caller)

    def may(self, right: Right) -> bool:
        """Return whether the person has a right."""
        return right in self.caller.rights

    def need(self, name: str) -> str:
        """Return a field.

        Raises:
            UsageError: It is absent.
        """
        found = self.fields.get(name)
        if found is None:
            raise UsageError(f"{name}: is missing")
        return found

    def number(self, name: str, default: int) -> int:
        """Return a field that is a whole number.

        Raises:
            UsageError: It is another text.
        """
        text = self.fields.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{name}: {text[:40]!r} is not a whole number") from None


@dataclass(frozen=True, slots=True)
class View:
    """A page with its content.

    Attributes:
        template: The file in ``templates``.
        title: The title of the page.
        values: What the template shows.
        status: The status of the answer.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page that the browser shows instead.

    Attributes:
        to: Its address, as `links.link` returns it.
    """

    to: str


Shown = View | Redirect


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePage:
    """One page.

    Attributes:
        path: Its path, without ``/console``.
        show: Answers a visit.
        submit: Answers a form that the page sends; None when it sends none.
        menu: Its name in the menu; empty when the menu does not list it.
        right: What a person needs to find it in the menu. The operations check the rights.
        of_all_shards: Whether the menu lists it only where a database has several shards.
        own: True when only a person of one user finds it there. False when only a person who may
            name any user does. None when both do.
    """

    path: str
    show: Callable[[Visit], Awaitable[Shown]]
    submit: Callable[[Visit], Awaitable[Shown]] | None = None
    menu: str = ""
    right: Right = Right.READ
    own: bool | None = None
    of_all_shards: bool = False

    def is_in_menu_of(self, caller: Caller) -> bool:
        """Return whether a person finds the page in the menu."""
        own = caller.user is not None
        return bool(self.menu) and self.right in caller.rights and self.own in (None, own)


LIFETIME_SECONDS = 12 * 3600.0
"""A session ends so long after its sign-in."""

MOST_EACH = 100
"""The most sessions of a token or an account; a further sign-in ends the oldest."""

MOST_FORMS = 100
"""A session remembers so many forms that were shown and not sent."""

_RANDOM_BYTES = 32


@dataclass(slots=True)
class BrowserSession:
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
    """All sessions of a daemon; its restart ends them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_hash: dict[str, BrowserSession] = {}

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
        self._by_hash[_hash_of(secret)] = BrowserSession(token_hash, uid, ends)
        return secret

    def find(self, secret: str) -> BrowserSession | None:
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


SIGN_IN = "/sign-in"
"""The path of the page, without ``/console``."""

COOKIE = "slumberd_session"

_SOCKET = "the unix socket"
_NOTHING_WRITTEN = "enter a token"
_NO_PEER = "enter a token: only a browser that reaches the unix socket as localhost needs none"


def find_session(request: Request, sessions: Sessions) -> BrowserSession | None:
    """Return the session of a browser; None without one."""
    secret = request.cookies.get(COOKIE)
    return None if secret is None else sessions.find(secret)


def place_of(request: Request) -> str:
    """Return where a request comes from: an address of the network, or the unix socket."""
    client = request.client
    return client.host if client is not None and client.host else _SOCKET


class SignIn:
    """Begins sessions, and finds out whose they are.

    Args:
        access: Finds out whose a token is.
    """

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self.sessions = Sessions(clock)

    def show(self, request: Request, problem: str = "") -> View:
        """Return the page.

        Args:
            problem: Why the attempt before failed; empty without one.
        """
        values = {
            "problem": problem,
            "peer": _peer_of(request),
            "next": request.query_params.get("next", ""),
        }
        return View("sign_in.html", "Sign in", values, 401 if problem else 200)

    def begin(self, request: Request, fields: Fields) -> str:
        """Begin a session; return the secret that the browser keeps.

        Raises:
            NotAuthenticatedError: The token is unknown, or there is none.
        """
        token = fields.get("token", "").strip()
        if token:
            digest = hash_of(token)
            self._access.caller_of_hash(digest)
            return self.sessions.begin(token_hash=digest)
        if "peer" not in fields:
            raise NotAuthenticatedError(_NOTHING_WRITTEN)
        peer = _peer_of(request)
        if peer is None:
            raise NotAuthenticatedError(_NO_PEER)
        return self.sessions.begin(uid=peer.uid)

    def caller_of(self, session: BrowserSession, request: Request) -> Caller:
        """Return whose a session is, with the rights of this moment.

        Raises:
            NotAuthenticatedError: The token does not exist any more, or the browser now is at the
                other end of another socket.
        """
        if session.token_hash is not None:
            return self._access.caller_of_hash(session.token_hash)
        peer = _peer_of(request)
        if peer is None or peer.uid != session.uid:
            raise NotAuthenticatedError(_NO_PEER)
        return peer


def _peer_of(request: Request) -> Caller | None:
    """Return the user of the unix socket; None on a network, or under a name of a network."""
    found: Caller | None = getattr(request.state, "peer", None)
    return found
