"""Call operations of a daemon over HTTP, on any host; check requests before they are sent."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from slumberd.daemon.control_socket import RefusedError, encode_request, own_error
from slumberd.model.errors import NotRunningError, StoreError, UsageError
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.storage.strict_json import read_object

PATIENCE_SECONDS = 30.0
"""How long a call is tried again while no daemon answers."""

ANSWER_SECONDS = 60.0
"""How long a call waits for its answer, beside the time that it asks the daemon to wait."""

MOST_CALLS = 32
"""Calls of one program at the same time; further ones wait."""

_PATH = "/v1/operations/"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
_FROM_A_PROXY = {
    HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
}  # fmt: skip
"""What a proxy answers while its daemon restarts."""


class HttpTransport:
    """Calls operations of the daemon at an address, each by a connection of its own.

    While no daemon answers, a call is tried again if it does no harm to repeat it: a read, or a
    put whose episodes all have a key or an id. Any other call is tried again only as long as it
    cannot have reached the daemon.

    Args:
        address: ``http://HOST:PORT``, or ``https://`` and the place of a proxy.
        token: What the daemon knows the caller by; None for none.
        patience_seconds: How long a call is tried again.

    Raises:
        UsageError: The address has a user, a query or a fragment, or no host; or the token holds
            what no header holds.
    """

    def __init__(
        self, address: str, token: str | None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._address = _read_address(address)
        self._token = _read_token(token)
        self._patience = patience_seconds
        # A call may wait for a minute, and the threads of `asyncio.to_thread` are few.
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="slumberd-http")

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of the daemon.

        Raises:
            NotRunningError: No daemon answers, for as long as the call may be tried again.
            StoreError: The daemon ended before it answered, or no slumberd answers there.
            SlumberdError: The daemon's own error, of the same class and with the same message.
        """
        ask = partial(
            self._ask, operation, orjson.dumps(as_json(operation, request)), _wait_of(request)
        )
        repeatable = is_repeatable(operation, request)
        loop = asyncio.get_running_loop()
        time = loop.time
        deadline, pause, was_cut = time() + self._patience, _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                return await loop.run_in_executor(self._threads, ask)
            except _UnansweredError as problem:
                if problem.is_final or (problem.may_be_done and not repeatable):
                    raise problem.error(self._address.text) from problem
                if problem.is_cut and not was_cut:  # until then, a daemon was there
                    deadline, was_cut = time() + self._patience, True
                if time() + pause > deadline:
                    raise problem.error(self._address.text, self._patience) from problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _ask(self, operation: str, body: bytes, wait_seconds: float) -> Answer:
        """Send a request once, in a thread.

        Raises:
            _UnansweredError: It may have to be sent again.
            SlumberdError: As `call`.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        with closing(self._address.connect(ANSWER_SECONDS + wait_seconds)) as connection:
            path = f"{self._address.prefix}{_PATH}{operation}"
            try:
                # A daemon that refuses a large body does not read all of it.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise _UnansweredError(_words_of(error), may_be_done=True) from error
        return self._read(answer.status, answer.getheader("Content-Type", ""), content)

    def _read(self, status: int, form: str, content: bytes) -> Answer:
        """Return the answer in a response."""
        document: Any = None
        if form.partition(";")[0].strip() in ("application/json", "application/problem+json"):
            with suppress(orjson.JSONDecodeError):
                document = orjson.loads(content)
        if isinstance(document, dict) and status < HTTPStatus.MULTIPLE_CHOICES:
            return document
        if isinstance(document, dict) and _is_own(document):
            if status == HTTPStatus.TOO_MANY_REQUESTS:  # so nothing was done
                raise _UnansweredError(document["detail"], may_be_done=False)
            refused = RefusedError(
                document["detail"], document["exit_code"], document["kind"], document["fields"]
            )
            raise own_error(refused) from None
        if status in _FROM_A_PROXY:
            raise _UnansweredError(f"HTTP {status}", may_be_done=True)
        detail = document.get("detail") if isinstance(document, dict) else None
        said = "which is no answer of slumberd" if detail is None else detail
        raise StoreError(f"{self._address.text!r} answers HTTP {status}: {said}")


def is_repeatable(operation: str, request: Mapping[str, Any]) -> bool:
    """Return whether it does no harm to send a request twice."""
    known = OPERATIONS.get(operation)
    if known is None:
        return False
    if operation == "remember":
        return _has_name(request)
    if operation == "put_many":
        return all(map(_has_name, request.get("episodes", [])))
    return known.read_only or request.get("dry_run") is True


def _has_name(episode: object) -> bool:
    return isinstance(episode, Mapping) and any(
        episode.get(name) is not None for name in ("id", "key", "idempotency_key")
    )


def _wait_of(request: Mapping[str, Any]) -> float:
    """Return how long a request asks the daemon to wait."""
    seconds = request.get("seconds", 0.0)
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds <= 60 else 0.0


class _UnansweredError(Exception):
    """No daemon answered a request.

    Attributes:
        reason: Why, in words.
        may_be_done: Whether the request may have reached the daemon.
        is_final: Whether it is useless to try again.
        is_cut: Whether the connection ended before the answer came.
    """

    def __init__(self, reason: str, *, may_be_done: bool, is_final: bool = False) -> None:
        self.reason = reason
        self.may_be_done = may_be_done
        self.is_final = is_final
        super().__init__(reason)

    @property
    def is_cut(self) -> bool:
        return self.may_be_done and not isinstance(self.__cause__, TimeoutError)

    def error(
        self, address: str, tried_seconds: float | None = None
    ) -> NotRunningError | StoreError:
        """Return the error for a program.

        Args:
            address: The address that does not answer.
            tried_seconds: How long the call was tried; None for once.
        """
        tried = "" if tried_seconds is None else f", for {tried_seconds:g} seconds"
        if self.may_be_done and tried_seconds is None:
            return StoreError(
                f"the daemon at {address!r} ended before it answered ({self.reason}); read whether"
                " the change was made before you send it again"
            )
        return NotRunningError(f"no slumberd answers at {address!r}{tried}: {self.reason}")


class _Address(NamedTuple):
    """The place of a daemon.

    Attributes:
        text: The address, for errors.
        secure: Whether the connection is encrypted.
        port: The port; None for that of the scheme.
        prefix: The path before that of an operation.
    """

    text: str
    secure: bool
    host: str
    port: int | None
    prefix: str

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """Return an open connection.

        Raises:
            _UnansweredError: It cannot be opened, so nothing was sent.
        """
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            unknown = isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME
            final = unknown or isinstance(error, ssl.SSLError)
            raise _UnansweredError(_words_of(error), may_be_done=False, is_final=final) from error
        return connection


def _words_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _is_own(document: Mapping[str, Any]) -> bool:
    """Return whether an answer is an error of slumberd, and not of another server."""
    return (
        isinstance(document.get("kind"), str)
        and isinstance(document.get("detail"), str)
        and isinstance(document.get("exit_code"), int)
        and isinstance(document.get("fields"), dict)
    )


def _read_address(text: str) -> _Address:
    """Return what an address names.

    Raises:
        UsageError: It is none.
    """
    # An error would show a password.
    shown = text.rpartition("@")[2]
    wrong = UsageError(
        f"{shown!r:.200} is no address; write http://HOST:PORT or https://HOST, and give the token"
        " as `token`"
    )
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
        host.encode("idna")
        parts.path.encode("ascii")
    except ValueError:
        raise wrong from None
    has_more = parts.username is not None or parts.query or parts.fragment
    if has_more or not text.isprintable() or " " in text:
        raise wrong
    if not host:
        raise UsageError(f"{shown!r} names no host; write http://HOST:PORT")
    return _Address(text, parts.scheme == "https", host, port, parts.path.rstrip("/"))


def _read_token(token: object) -> str | None:
    """Return a token, without the space around it, such as the end of the line in its file.

    Raises:
        UsageError: It is no text, or no header holds it. The error does not show it.
    """
    if token is None:
        return None
    text = token.strip() if isinstance(token, str) else ""
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError(
            "the token is no token of slumberd; give the text after `token:` that"
            " `slumberd token new` has printed"
        )
    return text


def as_json(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as its JSON is read again, so that every way takes the same requests.

    Raises:
        RequestTooLargeError: No interface takes so much.
        UsageError: JSON cannot hold a value: infinity, half a character, a number of over 64 bits;
            or values are nested too deep.
    """
    try:
        # orjson writes null for infinity.
        json.dumps(request, allow_nan=False)
        line = encode_request(operation, request)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    except RecursionError:
        raise UsageError("the request is nested too deep to be written as JSON") from None
    try:
        found = read_object(line)
    except ValueError as error:
        raise UsageError(f"the request cannot be read: {error}") from None
    return {name: found[name] for name in request}
