"""Answer requests over HTTP: call one operation, and send its answer."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

import orjson
import structlog
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from slumberd.clock import set_within
from slumberd.daemon.interfaces import Served
from slumberd.logs.prometheus import render_open_metrics
from slumberd.model.errors import NoInputError, RequestTimeoutError, SlumberdError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.storage.strict_json import read_object
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


EVENTS_QUERY = ("after", "kinds", "user", "agent", "shard")
"""The fields of the operation ``changes`` that the query may have."""

BEAT_SECONDS = 15.0
"""How often a quiet stream sends a comment, so that proxies keep it open."""

_BEAT = b": nothing new\n\n"
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream:
    """Sends the changes of a caller's scope, after the number that the caller saw last.

    Args:
        beat_seconds: How often a quiet stream sends a comment.
    """

    def __init__(self, served: Served, *, beat_seconds: float = BEAT_SECONDS) -> None:
        self._served = served
        self._beat_seconds = beat_seconds
        self._stopped = False

    def stop(self) -> None:
        """End all streams."""
        self._stopped = True
        self._served.commits.announce()

    async def answer(self, request: Request) -> Response:
        """Begin a stream."""
        try:
            fields = _fields_of(request)
            # The first page shows whether the caller may read, before the answer begins.
            page = await self._page(fields, caller_in(request))
        except SlumberdError as error:
            return problem_of(error)
        stream = self._events(fields, page, caller_in(request))
        return StreamingResponse(stream, headers=_STREAM_HEADERS, media_type="text/event-stream")

    async def _page(self, fields: dict[str, Any], caller: Caller) -> Answer:
        return await self._served.dispatcher.call(OPERATIONS["changes"].name, fields, caller)

    async def _events(
        self, fields: dict[str, Any], page: Answer, caller: Caller
    ) -> AsyncIterator[bytes]:
        """Yield the events of each page, and wait for a commit at the end of the ledger."""
        committed = self._served.commits.next
        yield _BEAT
        while not self._stopped:
            yield b"".join(map(_event, page["changes"])) + _position(page, fields["after"])
            if not (page["more"] or await set_within(committed, self._beat_seconds)):
                yield _BEAT
            committed = self._served.commits.next
            fields = {**fields, "after": page["last"]}
            try:
                page = await self._page(fields, caller)
            except SlumberdError as error:
                # The client asks again with the last id, and gets the rest.
                yield b"event: problem\ndata: %s\n\n" % problem_of(error).body
                return


def _fields_of(request: Request) -> dict[str, Any]:
    """Return the fields of the operation.

    Raises:
        UsageError: The query has others, or the header is not a number.
    """
    fields = fields_in_query(OPERATIONS["changes"].form, request.query_params)
    if unknown := [name for name in fields if name not in EVENTS_QUERY]:
        raise UsageError(f"the query has {unknown[0]!r}; it may have {', '.join(EVENTS_QUERY)}")
    last = request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdigit() and len(last) < 19):
        raise UsageError("the header Last-Event-ID is the number of a row of the ledger")
    return {"after": 0, **fields, **({"after": int(last)} if last else {})}


def _event(change: dict[str, Any]) -> bytes:
    """Return one event; its id is the number to go on after."""
    data = orjson.dumps(change)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (change["seq"], change["kind"].encode(), data)


def _position(page: Answer, after: int) -> bytes:
    """Return the number to go on after, when rows after the last event were passed over."""
    last: int = page["last"]
    sent: int = page["changes"][-1]["seq"] if page["changes"] else after
    return b"" if last == sent else b"id: %d\n\n" % last


_TAG = re.compile(r'^\s*"([^"]*)"\s*$')
_WHOLE, _NUMBER = (
    re.compile(r"^-?[0-9]{1,30}$"),
    re.compile(r"^-?[0-9.]{1,30}([eE][+-]?[0-9]{1,3})?$"),
)
_TRUTH = {"true": True, "false": False}


async def read_request(route: HttpRoute, request: Request) -> dict[str, Any]:
    """Return the fields of a request of an operation.

    Raises:
        RequestTooLargeError: The body is too large.
        UsageError: A part cannot be read, or says what the path says already.
    """
    given = fields_in_query(route.operation.form, request.query_params)
    if route.method == "GET":
        fields = given
    elif given:
        raise UsageError(f"the query has {next(iter(given))!r}; write it into the body")
    else:
        fields = await _read_body(request)
    if hidden := sorted(route.hidden.intersection(fields)):
        says = "the header Idempotency-Key" if hidden[0] == route.keyed else "the path"
        raise UsageError(f"{route.operation.name}: {hidden[0]}: {says} says this; leave it out")
    if missing := [name for name in route.required if fields.get(name) is None]:
        remedy = route.required[missing[0]]
        raise UsageError(f"{route.operation.name}: key {missing[0]!r} is missing; {remedy}")
    return {**fields, **route.fixed, **_outside(route, request)}


def _outside(route: HttpRoute, request: Request) -> dict[str, Any]:
    """Return the fields that the path and the headers hold."""
    fields: dict[str, Any] = {}
    if route.in_path is not None:
        fields[route.in_path] = request.path_params["id"]
    if route.conditional is not None and (tag := request.headers.get("if-match")) is not None:
        fields[route.conditional] = version_in(tag)
    if keys := request.headers.getlist("idempotency-key"):
        fields |= _keyed_by(route, keys)
    return fields


def _keyed_by(route: HttpRoute, keys: list[str]) -> dict[str, str]:
    """Return the field that the header ``Idempotency-Key`` holds; a read needs none.

    Raises:
        UsageError: The change knows no keys, so it may be done twice; or the header is there
            twice, or holds a character that clients send in several encodings.
    """
    if route.keyed is not None:
        [key, *more] = keys
        if more or not key.isascii():
            raise UsageError(
                "give the header Idempotency-Key once, in ASCII; the field `key` takes every text"
            )
        quoted = _TAG.match(key)
        return {route.keyed: key.strip() if quoted is None else quoted[1]}
    if route.operation.read_only:
        return {}
    raise UsageError(
        f"{route.operation.name} takes no header Idempotency-Key; POST /v1/episodes does, and the"
        " field `key` of an episode"
    )


def version_in(tag: str) -> str | None:
    """Return the version that an entity tag names; None for ``*``.

    Raises:
        UsageError: It is not one strong tag.
    """
    if tag.strip() == "*":
        return None
    found = _TAG.match(tag)
    if found is None:
        raise UsageError("the header If-Match holds one entity tag in quotes, or *")
    return found[1]


async def _read_body(request: Request) -> dict[str, Any]:
    body = await request.body()
    if not body:
        return {}
    try:
        return read_object(body)
    except orjson.JSONDecodeError:
        raise UsageError("the body is not JSON") from None
    except ValueError as error:  # a duplicate key, or a number that would be rounded
        raise UsageError(f"the body cannot be read: {error}") from None


def fields_in_query(form: type[RequestForm], query: QueryParams) -> dict[str, Any]:
    """Return the fields that a query holds, as a form has them.

    Raises:
        UsageError: A field that is no list stands there twice.
    """
    kinds = field_kinds(form)
    return {
        name: _value_of(name, query.getlist(name), kinds.get(name, frozenset({"string"})))
        for name in query
    }


def _value_of(name: str, texts: list[str], kinds: frozenset[str]) -> object:
    if "array" in kinds:
        return texts
    if len(texts) > 1:
        raise UsageError(f"the query has {name!r} more than once")
    [text] = texts
    if "boolean" in kinds:
        return _TRUTH.get(text, text)
    if "integer" in kinds and _WHOLE.match(text):
        return int(text)
    if "number" in kinds and _NUMBER.match(text):
        return _number(text)
    return text


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:  # such as 1.2.3, which the form then refuses
        return text


@cache
def field_kinds(form: type[RequestForm]) -> Mapping[str, frozenset[str]]:
    """Return the kinds of JSON that each field of a form takes."""
    properties: dict[str, Any] = form.model_json_schema()["properties"]
    return {
        name: frozenset(
            kind["type"] for kind in schema.get("anyOf", [schema]) if kind.get("type") is not None
        )
        for name, schema in properties.items()
    }
