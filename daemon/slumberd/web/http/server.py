"""Serve HTTP in the daemon's event loop, from its start to its stop."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from slumberd.clock import set_within
from slumberd.daemon.control_socket import remove_dead, short_path
from slumberd.daemon.interfaces import Served
from slumberd.model.errors import ListenError, SlumberdError
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import listens_everywhere
from slumberd.web.http.access import Access
from slumberd.web.http.endpoints import JSON, Endpoints, EventStream, answer_health
from slumberd.web.http.gate import DESCRIPTION, EVENTS_PATH, HEALTH, Gate, PersonOf
from slumberd.web.http.limits import (
    MOST_HEADER_BYTES,
    ConnectionLimits,
    LimitedProtocol,
    RefusalCounter,
    log_refused_sign_ins,
)
from slumberd.web.http.openapi import openapi_json
from slumberd.web.http.problems import answer_error, answer_http_error

_log = structlog.get_logger("slumberd")

Extension = Callable[[Served], AbstractAsyncContextManager[BaseRoute]]
"""Yields one more route, which is served until the end of its block."""

Pages = Callable[[Served, Access, RefusalCounter], tuple[BaseRoute, PersonOf]]
"""Returns the route of the web console, which counts refused attempts to sign in; and who asks."""

Listening = Callable[[Sequence[socket.socket]], None]
"""Is told the sockets, when clients can connect."""

_IDLE_SECONDS = 30
_STOP_SECONDS = 5
_TICK_SECONDS = 1.0


@asynccontextmanager
async def serve_http(
    served: Served,
    extensions: Sequence[Extension] = (),
    pages: Pages | None = None,
    listening: Listening | None = None,
) -> AsyncIterator[None]:
    """Serve HTTP while the block runs.

    Args:
        extensions: What adds further routes.
        pages: The web console; None without it.
        listening: Is told the sockets, when clients can connect; None tells nobody.

    Raises:
        ConfigurationError: The file of tokens has mistakes.
        ListenError: A socket cannot be opened.
        StoreError: Another program listens on the unix socket.
    """
    settings = served.settings
    refusals, stream = RefusalCounter(served.clock), EventStream(served)
    sign_ins = RefusalCounter(served.clock, log_refused_sign_ins)
    access = Access(settings.serve.tokens_file, credentials=settings.credentials_dir)
    async with AsyncExitStack() as stack:
        more = [await stack.enter_async_context(extension(served)) for extension in extensions]
        person_of: PersonOf = _nobody
        if pages is not None:
            console, person_of = pages(served, access, sign_ins)
            more.append(console)
        by_place = stack.enter_context(open_sockets(settings))
        sockets = [*by_place.values()]
        gate = Gate(
            application(served, stream, more),
            access=access,
            person_of=person_of,
            serve=settings.serve,
            refusals=refusals,
        )
        server = _Server(_server_configuration(gate, settings, refusals))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=sockets))
            try:
                await server.listening.wait()
                for place in by_place:
                    _log.info("http.listening", where=place)
                if listening is not None:
                    listening(sockets)
                yield
            finally:
                stream.stop()
                server.stop()
        refusals.log()
        sign_ins.log()


def _nobody(_: Scope) -> None:
    """Return who is signed in to a console that is not served."""


def application(served: Served, stream: EventStream, more: Sequence[BaseRoute]) -> Starlette:
    """Return what answers the requests that the gate lets in.

    Args:
        stream: Sends changes as they are committed.
        more: Further routes.
    """
    endpoints = Endpoints(served)
    description = openapi_json()

    async def answer_description(_: Request) -> Response:
        return Response(description, media_type=JSON)

    return Starlette(
        routes=[
            *more,
            Route(HEALTH, answer_health),
            Route(DESCRIPTION, answer_description),
            Route("/metrics", endpoints.metrics),
            Route(EVENTS_PATH, stream.answer),
            *endpoints.routes(),
        ],
        exception_handlers={HTTPException: answer_http_error, SlumberdError: answer_error},
    )


def _server_configuration(
    gate: Gate, settings: Settings, refusals: RefusalCounter
) -> uvicorn.Config:
    serve = settings.serve
    limits = ConnectionLimits(
        most=serve.max_connections,
        request_seconds=serve.timeout_seconds,
        write_seconds=serve.timeout_seconds,
        refusals=refusals,
    )
    protocol: Any = partial(LimitedProtocol, limits)
    return uvicorn.Config(
        gate,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon, and wakes once a second.

    Attributes:
        listening: Set when clients can connect.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the daemon stops the server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        """Renew the header ``Date`` once a second, until the daemon stops."""
        await self.on_tick(0)
        while not await set_within(self._stopping, _TICK_SECONDS):
            await self.on_tick(0)

    def stop(self) -> None:
        """Stop: take no more connections, and end those that are open."""
        self.should_exit = True
        self._stopping.set()


_MODES = {600: 0o600, 660: 0o660}


@contextmanager
def open_sockets(settings: Settings) -> Iterator[dict[str, socket.socket]]:
    """Yield the sockets of the configuration by their place; they listen when the server does.

    Raises:
        ListenError: A socket cannot be opened.
        StoreError: Another program listens on the unix socket.
    """
    path, address = settings.http_socket_path, settings.serve.address
    with ExitStack() as stack:
        found: dict[str, socket.socket] = {}
        if path is not None:
            mode = _MODES[settings.serve.socket_mode]
            found[str(path)] = stack.enter_context(_unix_socket(path, mode))
        if address is not None:
            opened = stack.enter_context(_network_socket(address))
            found[f"{address.rpartition(':')[0]}:{opened.getsockname()[1]}"] = opened
        yield found


@contextmanager
def _unix_socket(path: Path, mode: int) -> Iterator[socket.socket]:
    try:
        with short_path(path.parent, path.name) as short:
            _check_place(short, path)
            remove_dead(short, path)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
                opened.bind(short)
                try:
                    # Nobody can connect yet: the socket does not listen.
                    Path(short).chmod(mode)
                    yield opened
                finally:
                    Path(short).unlink(missing_ok=True)
    except OSError as error:
        raise ListenError(str(path), error.strerror or str(error)) from error


def _check_place(short: str, path: Path) -> None:
    """Check that nothing but an old socket would be replaced."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(short).st_mode):
            raise ListenError(str(path), "another file is there")


@contextmanager
def _network_socket(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    try:
        [family, kind, _, _, where] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind)
    except (OSError, OverflowError) as error:
        raise ListenError(address, str(error)) from error
    with opened:
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(where)
        except (OSError, OverflowError) as error:
            raise ListenError(address, getattr(error, "strerror", None) or str(error)) from error
        bound = opened.getsockname()
        if listens_everywhere(f"{bound[0]}:{bound[1]}"):
            _log.warning("http.exposed", address=address)
        yield opened
