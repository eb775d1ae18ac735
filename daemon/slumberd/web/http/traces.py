"""The route ``POST /v1/traces``: the messages in traces of GenAI programs become episodes.

The protocol is OTLP over HTTP, version 1 (https://opentelemetry.io/docs/specs/otlp/).
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from typing import Any, NamedTuple

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slumberd.daemon.control_socket import valid_text
from slumberd.daemon.interfaces import Served
from slumberd.integrations.interchange.genai_spans import SpanOwner, SpanReading, read_spans
from slumberd.integrations.interchange.spans import Span, spans_of_document, without_secrets
from slumberd.model.capture.episodes import Capture
from slumberd.model.errors import (
    ExtraMissingError,
    SecretRefusedError,
    SlumberdError,
    UnreadableTracesError,
)
from slumberd.operations.caller import Caller, Right
from slumberd.operations.writes.put_once import PutOnce, PutsOnce
from slumberd.web.http.endpoints import caller_in
from slumberd.web.http.gate import TRACES, media_type
from slumberd.web.http.problems import status_of

_log = structlog.get_logger(__name__)

PATH = TRACES

_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_MOST_REASONS = 5
_MOST_NAMES = 10
_RETRY_SECONDS = "5"
_FAULTS = {
    "form": HTTPStatus.BAD_REQUEST,
    "length": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "encoding": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
}
_NO_MESSAGES = (
    "{} spans of calls hold no messages: let their program record them, usually by"
    " OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"
)


def traces_route(served: Served) -> Route:
    """Return the route that takes traces."""
    most_bytes = served.settings.serve.max_body_bytes
    receiver = TraceReceiver(served.putter, most_bytes, served.settings.capture_rules)
    return Route(PATH, receiver.receive, methods=["POST"])


@asynccontextmanager
async def serve_traces(served: Served) -> AsyncIterator[BaseRoute]:
    """Add the route that takes traces to the HTTP interface."""
    yield traces_route(served)


class Result(NamedTuple):
    """What became of a request.

    Attributes:
        rejected: How many spans were rejected.
        message: Why, and what may be wrong with the others; empty when nothing is.
    """

    rejected: int
    message: str


class TraceReceiver:
    """Takes requests with traces.

    Args:
        most_bytes: The longest request, decompressed.
        capture: What is left out of new episodes.
    """

    def __init__(self, episodes: PutsOnce, most_bytes: int, capture: Capture) -> None:
        self._episodes = episodes
        self._capture = capture
        self._most_bytes = most_bytes
        # Objects take many times the bytes of their request, so only one request has them.
        self._turn = asyncio.Lock()

    async def receive(self, request: Request) -> Response:
        """Answer a request as OTLP says, in the form in which it came."""
        form = media_type(request.headers)
        try:
            return _success(form, await self._answer(request, form))
        except SlumberdError as error:
            return _failure(form, _status_of(error), str(error))
        except OSError as error:  # most likely a full disk
            return _failure(form, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001 # a bug must not end the server
            _log.error("http.failed", operation="traces", error=type(error).__name__)
            return _failure(form, HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug of the daemon")

    async def _answer(self, request: Request, form: str) -> Result:
        caller = caller_in(request)
        caller.require(Right.WRITE)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        owner = SpanOwner(caller.user, caller.agent)
        body = await request.body()
        async with self._turn:
            # In a thread: a long request must not delay a firing.
            readings = await asyncio.to_thread(self._read, body, form, encoding, owner)
            return await self._take(readings, caller)

    def _read(self, body: bytes, form: str, encoding: str, owner: SpanOwner) -> list[SpanReading]:
        """Return what the spans of a body say.

        Raises:
            ExtraMissingError: It is protobuf, and the extra ``otlp`` is not installed.
            UnreadableTracesError: It has another form or encoding, or is too long.
        """
        plain = _decompressed(body, encoding, self._most_bytes)
        try:
            return self._without_left_out(_spans_in(plain, form), owner)
        except ValueError as error:
            raise UnreadableTracesError("form", str(error)) from error

    def _without_left_out(self, spans: Sequence[Span], owner: SpanOwner) -> list[SpanReading]:
        """Return what spans say, without secrets, and without what a person asks to forget."""
        secrets, refused = self._capture.secret_filter(), dict[int, str]()
        filtered = []
        for number, span in enumerate(spans):
            try:
                filtered.append(without_secrets(span, secrets))
            except SecretRefusedError as error:
                refused[number] = str(error)
                filtered.append(span)
        if secrets.kinds:
            _log.info("secrets.masked", interface="traces", masked=dict(secrets.kinds))
        return [
            SpanReading(reading.span, problem=refused[number])
            if number in refused
            else self._without_forgotten(reading)
            for number, reading in enumerate(read_spans(filtered, owner))
        ]

    def _without_forgotten(self, reading: SpanReading) -> SpanReading:
        kept = tuple(self._capture.without_forgotten(reading.episodes))
        left_out = len(reading.episodes) - len(kept)
        return reading._replace(episodes=kept, left_out=reading.left_out + left_out)

    async def _take(self, readings: Sequence[SpanReading], caller: Caller) -> Result:
        """Put the episodes, and log what became of the spans."""
        episodes = [episode for reading in readings for episode in reading.episodes]
        done = await self._episodes.put(episodes)
        problems = [*filter(None, (_problem(reading, done) for reading in readings))]
        unread = Counter(name for reading in readings for name in reading.unread)
        if unread:
            _log.warning("traces.unread", by=str(caller), attributes=[*unread][:_MOST_NAMES])
        if done.new or done.erased or problems:
            _log.info(
                "traces.taken",
                by=str(caller),
                spans=len(readings),
                new=done.new,
                known=done.known,
                erased=done.erased,
                left_out=sum(reading.left_out for reading in readings),
                rejected=len(problems),
            )
        silent = sum(reading.silent for reading in readings)
        return Result(len(problems), _message(problems, silent, unread))


def _problem(reading: SpanReading, done: PutOnce) -> str:
    """Return why a span is rejected; empty when it is not."""
    refused = (done.refused[each.id] for each in reading.episodes if each.id in done.refused)
    problem = reading.problem or next(refused, "")
    return problem and f"span {reading.span.span_id or '?'}: {problem}"


def _message(problems: Sequence[str], silent: int, unread: Mapping[str, int]) -> str:
    """Return what a program should know about its spans."""
    listed = [*problems[:_MOST_REASONS]]
    if more := len(problems) - len(listed):
        listed.append(f"{more:,} more spans were rejected")
    if silent:
        listed.append(_NO_MESSAGES.format(f"{silent:,}"))
    if unread:
        listed.append(_describe_unread(unread))
    return "; ".join(listed)


def _describe_unread(unread: Mapping[str, int]) -> str:
    """Return the names of attributes that may hold messages, each with how many spans have it."""
    names = [f"{name!r} ({count:,})" for name, count in [*unread.items()][:_MOST_NAMES]]
    more = f" and {len(unread) - len(names):,} others" if len(unread) > len(names) else ""
    return f"not taken, since their form is unknown: attributes {', '.join(names)}{more}"


def _spans_in(plain: bytes, form: str) -> list[Span]:
    if form == _JSON:
        return spans_of_document(orjson.loads(plain))
    if form == _PROTOBUF:
        spans: list[Span] = _protobuf().read_request(plain)
        return spans
    raise UnreadableTracesError("encoding", f"{form!r} is neither {_JSON} nor {_PROTOBUF}")


def _decompressed(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """Return a body without its compression.

    Raises:
        UnreadableTracesError: It is too long, is damaged, or has another encoding than gzip.
    """
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise UnreadableTracesError("encoding", f"it is compressed by {encoding!r}; use gzip")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = unpacker.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise UnreadableTracesError("form", f"the compressed data is damaged: {error}") from error
    if len(plain) > most_bytes:
        problem = f"they have more than {most_bytes:,} bytes decompressed; send fewer at once"
        raise UnreadableTracesError("length", problem)
    if not unpacker.eof or unpacker.unused_data:
        raise UnreadableTracesError("form", "the compressed data ends early, or goes on")
    return plain


def _protobuf() -> Any:  # noqa: ANN401 # a module
    """Return the module that reads protobuf.

    Raises:
        ExtraMissingError: The extra ``otlp`` is not installed.
    """
    try:
        return import_module("slumberd.web.http.otlp_protobuf")
    except ModuleNotFoundError as error:
        raise ExtraMissingError("otlp", "traces in protobuf cannot be read") from error


def _success(form: str, result: Result) -> Response:
    if form == _PROTOBUF:
        return Response(_protobuf().write_success(*result), media_type=_PROTOBUF)
    partial = {"rejectedSpans": str(result.rejected), "errorMessage": result.message}
    document = {"partialSuccess": partial} if any(result) else {}
    return Response(orjson.dumps(document), media_type=_JSON)


def _status_of(error: SlumberdError) -> HTTPStatus:
    """Return the status of an error; a client sends the request again only after 429 and 503."""
    if isinstance(error, UnreadableTracesError):
        return _FAULTS[error.fault]
    if isinstance(error, ExtraMissingError):
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    found = status_of(type(error))
    return HTTPStatus.SERVICE_UNAVAILABLE if found == HTTPStatus.INTERNAL_SERVER_ERROR else found


def _failure(form: str, status: HTTPStatus, message: str) -> Response:
    """Return a ``google.rpc.Status``."""
    wait = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
    headers = {"retry-after": _RETRY_SECONDS} if wait else {}
    text = valid_text(message)
    if form == _PROTOBUF and status != HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        body: bytes = _protobuf().write_failure(text)
        return Response(body, status, headers, _PROTOBUF)
    return Response(orjson.dumps({"message": text}), status, headers, _JSON)
