"""Answer requests over HTTP: call one operation, and send its answer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slumberd.daemon.interfaces import Served
from slumberd.logs.prometheus import render_open_metrics
from slumberd.model.errors import NoInputError, RequestTimeoutError, SlumberdError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer
from slumberd.web.http.http_requests import read_request
from slumberd.web.http.problems import plain_problem, problem_of
from slumberd.web.http.routes import ROUTES, HttpRoute

JSON = "application/json"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_NOT_CACHED = {"Cache-Control": "no-store"}
_UNKNOWN = "no current fact of that id is in this scope"
_CANNOT_WRITE = "the daemon cannot write: {}; what is in the ledger is done"

_log = structlog.get_logger("slumberd")

Endpoint = Callable[[Request], Awaitable[Response]]


def caller_in(request: Request) -> Caller:
    """Return who sends a request; the gate has found it out."""
    caller: Caller = request.state.caller
    return caller


class Endpoints:
    """Answers the requests of all operations."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._seconds = served.settings.serve.timeout_seconds

    def routes(self) -> list[Route]:
        """Return one route for each path, which answers all of its methods."""
        by_path: defaultdict[str, dict[str, HttpRoute]] = defaultdict(dict)
        for route in ROUTES:
            by_path[route.path][route.method] = route
        return [
            Route(path, self._endpoint(methods), methods=[*methods])
            for path, methods in by_path.items()
        ]

    def _endpoint(self, methods: Mapping[str, HttpRoute]) -> Endpoint:
        async def answer(request: Request) -> Response:
            route = methods["GET" if request.method == "HEAD" else request.method]
            return await self._guarded(route, request)

        return answer

    async def _guarded(self, route: HttpRoute, request: Request) -> Response:
        """Answer a request; answer each error with a problem."""
        try:
            return await self._answer(route, request)
        except SlumberdError as error:
            return problem_of(error, conditional="if-match" in request.headers)
        except OSError as error:  # most likely a full disk; the daemon writes the log lines later
            return plain_problem(500, _CANNOT_WRITE.format(error.strerror))
        except Exception as error:  # noqa: BLE001 # a bug of one operation must not end the server
            _log.error("http.failed", operation=route.operation.name, error=repr(error)[:500])
            return plain_problem(500, "the daemon failed, which is a bug; see its log")

    async def _answer(self, route: HttpRoute, request: Request) -> Response:
        fields = await read_request(route, request)
        answer = await self._call(route, fields, caller_in(request))
        if route.shape == "first fact":
            return _one_fact(answer, request)
        return Response(orjson.dumps(answer), route.status, _NOT_CACHED, JSON)

    async def _call(self, route: HttpRoute, fields: dict[str, Any], caller: Caller) -> Answer:
        """Call an operation. One that only reads has a time limit; a change is never cut off."""
        operation = route.operation
        if route.right is not None:
            caller.require(route.right)
        call = self._served.dispatcher.call(operation.name, fields, caller)
        if not operation.read_only:
            return await call
        waits = fields.get("seconds", 0.0)
        limit = self._seconds + (waits if isinstance(waits, int | float) else 0.0)
        try:
            async with asyncio.timeout(limit):
                return await call
        except TimeoutError:
            raise RequestTimeoutError(operation.name, limit) from None

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in OpenMetrics."""
        try:
            caller_in(request).require(Right.OPERATE)
            health = await self._served.health()
        except SlumberdError as error:
            return problem_of(error)
        return Response(render_open_metrics(health), headers=_NOT_CACHED, media_type=OPEN_METRICS)


def _one_fact(answer: Answer, request: Request) -> Response:
    """Return the fact of an answer, with its version as the entity tag.

    Raises:
        NoInputError: There is none.
    """
    facts: Sequence[dict[str, Any]] = answer["facts"]
    if not facts:
        raise NoInputError(request.path_params["id"], _UNKNOWN)
    tag = f'"{facts[0]["version"]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(orjson.dumps(facts[0]), headers=headers, media_type=JSON)


async def answer_health(_: Request) -> Response:
    """Answer that the daemon answers."""
    return Response(b'{"status":"ok"}', headers=_NOT_CACHED, media_type=JSON)
