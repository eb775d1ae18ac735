"""Let requests in, by the page that sends them, the caller, the size, and the free places."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slumberd.model.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    RequestTooLargeError,
    SlumberdError,
    TooManyRequestsError,
    UnknownHostError,
    UsageError,
)
from slumberd.operations.caller import Caller, Right
from slumberd.rules.settings_schema import HOST, ServeSettings, listens_everywhere
from slumberd.web.http.access import Access
from slumberd.web.http.limits import RefusalCounter
from slumberd.web.http.problems import problem_of

HEALTH = "/healthz"
"""The path that says whether the daemon answers. Anybody may read it, and it needs no place."""

DESCRIPTION = "/openapi.json"
"""The path of the OpenAPI document. Anybody may read it."""

EVENTS_PATH = "/v1/events"
"""The path whose answer does not end."""

PersonOf = Callable[[Scope], "Caller | None"]
"""Returns the person who is signed in to the web console, or None."""

_MOST_UNSIGNED_BYTES = 65_536
_OPTION = "serve.max_body_bytes"
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_REFUSED: Mapping[type[SlumberdError], str] = {
    NotAllowedError: "another site",
    NotAuthenticatedError: "not authenticated",
    TooManyRequestsError: "too many requests",
    UnknownHostError: "unknown host",
}
"""The reasons in the log, by the error with which the gate refuses a request."""


class RequestSlots:
    """Bounds how many requests are under way: of all callers, and of each.

    One caller may have half of the places that others leave. So a few callers never have all.

    Args:
        most: Of all callers.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_of_others = most - most // 4
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: str, *, operates: bool = False) -> Iterator[None]:
        """Take a place while the block runs.

        Args:
            caller: Who takes it.
            operates: Whether it may be one of the places that are kept for operators.

        Raises:
            TooManyRequestsError: There is none.
        """
        most = self.most if operates else self.most_of_others
        own = self._by_caller[caller]
        left = most - (self._by_caller.total() - own)
        if left <= 0:
            raise TooManyRequestsError(most, "the daemon")
        if own >= (each := (left + 1) // 2):
            raise TooManyRequestsError(each, caller)
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]


class Gate:
    """Lets a request in when its caller is known, its body is small, and there is a place.

    It reads the body, so nothing behind it meets a client that goes away before the end of one. It
    stores the caller in ``scope["state"]["caller"]``, and leaves the peer of a unix socket in
    ``scope["state"]["peer"]`` only to requests that name this machine.

    Args:
        app: What answers.
        access: Finds out who calls.
        person_of: Returns who is signed in to the web console; None for nobody.
        serve: The configuration.
        refusals: Counts refused requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        person_of: PersonOf,
        serve: ServeSettings,
        refusals: RefusalCounter,
    ) -> None:
        self._app = app
        self._access = access
        self._person_of = person_of
        self._refusals = refusals
        self._most_bytes = serve.max_body_bytes
        self._checks = PageChecks(serve)
        self._requests = RequestSlots(serve.max_requests)
        self._streams = RequestSlots(serve.max_requests)
        self._strangers = asyncio.Semaphore(max(1, serve.max_requests // 2))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == HEALTH:  # a full daemon lives, too
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, Headers(scope=scope), receive, send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a problem."""
        try:
            if scope["path"] == DESCRIPTION:
                caller = None
            else:
                self._checks.check(scope, headers)
                caller = self._caller_of(scope, headers)
            if caller is None:
                await self._answer_stranger(scope, headers, receive, send)
            else:
                await self._answer_caller(caller, scope, headers, receive, send)
        except SlumberdError as error:
            if reason := _REFUSED.get(type(error)):
                self._refusals.count(reason)
            await problem_of(error)(scope, receive, send)

    def _caller_of(self, scope: Scope, headers: Headers) -> Caller | None:
        """Return who calls; None for somebody who is not signed in to the web console.

        Raises:
            NotAuthenticatedError: A program sends no token, or an unknown one.
        """
        state = scope["state"]
        if not is_local(headers):
            state["peer"] = None
        if is_console(scope["path"]):
            return self._person_of(scope)
        state["caller"] = self._access.caller_of(
            state.pop("peer", None), headers.get("authorization")
        )
        caller: Caller = state["caller"]
        return caller

    async def _answer_caller(
        self, caller: Caller, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        slots = self._streams if scope["path"] == EVENTS_PATH else self._requests
        with slots.one(str(caller), operates=Right.OPERATE in caller.rights):
            body = await _read_body(scope, headers, receive, self._most_bytes)
            if body is not None:
                scope["state"]["keep_connection"]()
                await self._app(scope, _with_body(body, receive), send)

    async def _answer_stranger(
        self, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        """Answer a caller without a token; it holds a place only while the answer is made.

        Such a request waits for a place, and is not refused: an answer takes little time, and a
        connection waits for one answer at a time.
        """
        most = min(self._most_bytes, _MOST_UNSIGNED_BYTES)
        body = await _read_body(scope, headers, receive, most)
        if body is None:
            return
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        async with self._strangers:
            await self._app(scope, _with_body(body, receive), keep)
        for message in answer:
            await send(message)


async def _read_body(
    scope: Scope, headers: Headers, receive: Receive, most_bytes: int
) -> bytes | None:
    """Return the body of a request; None when the client goes away before its end.

    Raises:
        RequestTooLargeError: It is too large, or announces to be.
    """
    announced = int(headers.get("content-length", "0"))
    if announced > most_bytes:
        raise RequestTooLargeError(most_bytes, announced, _OPTION)
    if scope["method"] in _WITHOUT_BODY:
        return b""
    parts, left = [], most_bytes
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        left -= len(parts[-1])
        if left < 0:
            raise RequestTooLargeError(most_bytes, option=_OPTION)
        if not message.get("more_body", False):
            return b"".join(parts)


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return what receives a whole body, and after it what the client does."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_next


CONSOLE = "/console"
"""The path of the web console, which asks people to sign in."""

TRACES = "/v1/traces"
"""The path that takes traces."""

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names that mean this machine in every browser, so no page can have them on another one."""

_BY_SOCKET = "slumberd"
"""The name in addresses of programs that use the unix socket."""

_PORTS = ":*"
_OWN_SITES = ("same-origin", "none")
_WITH_BODY = ("POST", "PATCH")
_HOST = re.compile(HOST)
_NO_HOST = ("", "")


def is_console(path: str) -> bool:
    """Return whether a path belongs to the web console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def is_local(headers: Headers) -> bool:
    """Return whether a request names this machine as no page of another site can.

    Only then does the account at the other end of the unix socket count.
    """
    host = headers.get("host", "").lower()
    return host == _BY_SOCKET or _split(host)[0] in _LOCAL


class PageChecks:
    """Checks whose page sends a request, and the type of its body."""

    def __init__(self, serve: ServeSettings) -> None:
        own = [] if serve.address is None else [serve.address.rpartition(":")[0]]
        self._any_address = serve.address is not None and listens_everywhere(serve.address)
        older = [host.removesuffix(_PORTS) for host in serve.allowed_hosts]
        self._hosts = {_split(host.lower()) for host in (*own, *serve.hosts, *older)}
        self._hosts.discard(_NO_HOST)
        self._hosts |= {(name, "") for name in (*_LOCAL, _BY_SOCKET)}
        self._origins = [origin.lower() for origin in serve.allowed_origins]

    def check(self, scope: Scope, headers: Headers) -> None:
        """Check the headers of a request.

        Raises:
            NotAllowedError: A page of another site sends it.
            UnknownHostError: Its host is not served.
            UsageError: Its body has another type than its path takes.
        """
        host = headers.get("host", "").lower()
        if not self._serves(host):
            raise UnknownHostError(host)
        self._check_page(scope, headers, host)
        _check_type(scope, headers)

    def _serves(self, host: str) -> bool:
        name, port = _split(host)
        if (name, "") in self._hosts or (name, port) in self._hosts:
            return True
        # Of all addresses of the machine, each is its own; a page needs a name to mislead.
        return self._any_address and _is_address(name)

    def _check_page(self, scope: Scope, headers: Headers, host: str) -> None:
        """Check that no page sends a request, or one of this host or of a listed origin.

        Raises:
            NotAllowedError: Another page sends it; or a form does not say whose it is.
        """
        console = is_console(scope["path"])
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None:
            if not console and _is_listed(origin.lower(), self._origins):
                return
            if not _is_own(origin.lower(), host):
                raise _foreign(f"its origin is {origin!r}, and its host {host!r}")
        if site is None:
            if origin is None and console and scope["method"] == "POST":
                raise _foreign("it has neither Origin nor Sec-Fetch-Site")
        elif site not in _OWN_SITES and not (console and _is_link(scope, headers)):
            raise _foreign(f"Sec-Fetch-Site is {site!r}")


def _foreign(why: str) -> NotAllowedError:
    remedy = "open the page again; a proxy must pass the headers Host and Origin"
    return NotAllowedError("the request", f"comes from another site: {why}; {remedy}")


def _is_own(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


def _is_listed(origin: str, listed: Iterable[str]) -> bool:
    """Return whether an origin is listed, by its port or by ``:*`` for every port."""
    any_port = re.sub(r":[0-9]+$", "", origin) + _PORTS
    return origin in listed or any_port in listed


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a person follows a link: the page that links cannot read what it leads to."""
    seen = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return scope["method"] in ("GET", "HEAD") and seen == ("navigate", "document")


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of a host; both empty for what is no host."""
    found = _HOST.match(host)
    if found is None:
        return _NO_HOST
    name = found["name"].strip("[]")
    return (str(ip_address(name)) if _is_address(name) else name), found["port"] or ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_type(scope: Scope, headers: Headers) -> None:
    """Check the type of a body, also of an empty one: a page may send it without asking.

    Raises:
        UsageError: It is not the one that the path takes.
    """
    if scope["method"] not in _WITH_BODY or scope["path"] == TRACES:  # traces have errors of OTLP
        return
    wanted = FORM if is_console(scope["path"]) else JSON
    sent = media_type(headers)
    if sent != wanted:
        raise UsageError(f"the body is of the type {sent!r}; send {wanted} as Content-Type")


def media_type(headers: Headers) -> str:
    """Return the type of a body, without its parameters; empty when the request has none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
