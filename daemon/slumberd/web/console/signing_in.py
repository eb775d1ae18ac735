"""Sign people in: by a token, or as the user at the other end of a unix socket."""

from __future__ import annotations

from starlette.requests import Request

from slumberd.clock import Clock
from slumberd.model.errors import NotAuthenticatedError
from slumberd.operations.caller import Caller
from slumberd.web.console.rendering import Fields
from slumberd.web.console.visit import BrowserSession, Sessions, View
from slumberd.web.http.access import Access, hash_of

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

    Attributes:
        sessions: All sessions.

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
