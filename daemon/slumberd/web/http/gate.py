"""Let requests in, by the page that sends them, the caller, the size, and the free places."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slumberd.model.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    RequestTooLargeError,
    SlumberdError,
    TooManyRequestsError,
    UnknownHostError,
)
from slumberd.operations.caller import Caller, Right
from slumberd.rules.settings_schema import ServeSettings
from slumberd.web.http.access import Access
from slumberd.web.http.limits import RefusalCounter
from slumberd.web.http.page_checks import PageChecks, is_console, is_local
from slumberd.web.http.problems import problem_of

HEALTH = "/healthz"
"""The path that says whether the daemon answers. Anybody may read it, and it needs no place."""

DESCRIPTION = "/openapi.json"
"""The path of the OpenAPI document. Anybody may read it."""

STREAM = "/v1/events"
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
        slots = self._streams if scope["path"] == STREAM else self._requests
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
