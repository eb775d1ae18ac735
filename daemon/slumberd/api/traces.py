"""The route ``POST /v1/traces``: the messages in traces of GenAI programs become episodes.

The protocol is OTLP over HTTP, version 1 (https://opentelemetry.io/docs/specs/otlp/).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slumberd.errors import (
    ExtraMissingError,
    NotAllowedError,
    SlumberdError,
    UnreadableTracesError,
)
from slumberd.interchange.genai_spans import Owner, Reading, read_spans
from slumberd.interchange.spans import Span, spans_of_document
from slumberd.operations.caller import Caller, Right
from slumberd.operations.put_once import OncePutter, PutOnce
from slumberd.service.interfaces import Served

_log = structlog.get_logger(__name__)

PATH = "/v1/traces"

MOST_BYTES = 16 * 1024 * 1024
"""The longest request, uncompressed and decompressed."""

_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_MOST_REASONS = 5
_RETRY_SECONDS = "5"
_STATUS = {"form": 400, "length": 413, "encoding": 415}
_NO_MESSAGES = (
    "{} spans of calls hold no messages: their program must record them, usually by"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
)


def traces_route(served: Served) -> Route:
    """Return the route that takes traces.

    Args:
        served: The daemon.
    """
    return Route(PATH, TraceReceiver(OncePutter(served.stores.memory)).receive, methods=["POST"])


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
        episodes: Puts the episodes.
    """

    def __init__(self, episodes: OncePutter) -> None:
        self._episodes = episodes

    async def receive(self, request: Request) -> Response:
        """Answer a request as OTLP says, in the form in which it came."""
        form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        caller: Caller = request.state.caller
        try:
            caller.require(Right.WRITE)
            body = await _read_body(request)
            encoding = request.headers.get("content-encoding", "identity").strip().lower()
            # In a thread: a long request must not delay a firing.
            readings = await asyncio.to_thread(_read, body, form, encoding, _owner(caller))
            result = await self._take(readings, caller)
        except NotAllowedError as error:
            return _failure(form, 403, str(error))
        except ExtraMissingError as error:
            return _failure(form, _STATUS["encoding"], str(error))
        except UnreadableTracesError as error:
            return _failure(form, _STATUS[error.fault], str(error))
        except (SlumberdError, OSError) as error:
            return _failure(form, 503, str(error))
        return _success(form, result)

    async def _take(self, readings: Sequence[Reading], caller: Caller) -> Result:
        """Put the episodes, and log what became of the spans."""
        episodes = [episode for reading in readings for episode in reading.episodes]
        done = await self._episodes.put(episodes)
        problems = [*filter(None, (_problem(reading, done) for reading in readings))]
        if done.new or problems:
            _log.info(
                "traces.taken",
                by=str(caller),
                spans=len(readings),
                new=done.new,
                known=done.known,
                left_out=sum(reading.left_out for reading in readings),
                rejected=len(problems),
            )
        return Result(len(problems), _message(problems, sum(each.silent for each in readings)))


def _owner(caller: Caller) -> Owner:
    return Owner(caller.user, caller.agent)


def _problem(reading: Reading, done: PutOnce) -> str:
    """Return why a span is rejected; empty when it is not."""
    refused = (done.refused[each.id] for each in reading.episodes if each.id in done.refused)
    problem = reading.problem or next(refused, "")
    return problem and f"span {reading.span.span_id or '?'}: {problem}"


def _message(problems: Sequence[str], silent: int) -> str:
    """Return what a program should know about its spans."""
    listed = [*problems[:_MOST_REASONS]]
    if more := len(problems) - len(listed):
        listed.append(f"{more:,} more spans were rejected")
    if silent:
        listed.append(_NO_MESSAGES.format(f"{silent:,}"))
    return "; ".join(listed)


async def _read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        UnreadableTracesError: It is too long.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise _too_long()
    return bytes(body)


def _read(body: bytes, form: str, encoding: str, owner: Owner) -> list[Reading]:
    """Return what the spans of a body say.

    Raises:
        ExtraMissingError: It is protobuf, and the extra ``otlp`` is not installed.
        UnreadableTracesError: It has another form or encoding, or is too long.
    """
    plain = _decompressed(body, encoding)
    try:
        return read_spans(_spans_in(plain, form), owner)
    except ValueError as error:
        raise UnreadableTracesError("form", str(error)) from error


def _spans_in(plain: bytes, form: str) -> list[Span]:
    if form == _JSON:
        return spans_of_document(orjson.loads(plain))
    if form == _PROTOBUF:
        spans: list[Span] = _protobuf().read_request(plain)
        return spans
    raise UnreadableTracesError("encoding", f"{form!r} is neither {_JSON} nor {_PROTOBUF}")


def _decompressed(body: bytes, encoding: str) -> bytes:
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
        plain = unpacker.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise UnreadableTracesError("form", f"the compressed data is damaged: {error}") from error
    if len(plain) > MOST_BYTES:
        raise _too_long()
    if not unpacker.eof or unpacker.unused_data:
        raise UnreadableTracesError("form", "the compressed data ends early, or goes on")
    return plain


def _too_long() -> UnreadableTracesError:
    return UnreadableTracesError(
        "length", f"the request is longer than {MOST_BYTES // 1024**2} MiB; send fewer spans in one"
    )


def _protobuf() -> Any:  # noqa: ANN401 # a module
    """Return the module that reads protobuf.

    Raises:
        ExtraMissingError: The extra ``otlp`` is not installed.
    """
    try:
        return import_module("slumberd.api.otlp_protobuf")
    except ModuleNotFoundError as error:
        raise ExtraMissingError("otlp", "traces in protobuf cannot be read") from error


def _success(form: str, result: Result) -> Response:
    if form == _PROTOBUF:
        return Response(_protobuf().write_success(*result), media_type=_PROTOBUF)
    partial = {"rejectedSpans": str(result.rejected), "errorMessage": result.message}
    document = {"partialSuccess": partial} if any(result) else {}
    return Response(orjson.dumps(document), media_type=_JSON)


def _failure(form: str, status: int, message: str) -> Response:
    """Return a ``google.rpc.Status``; a client sends the request again only after 503."""
    headers = {"retry-after": _RETRY_SECONDS} if status == 503 else {}
    if form == _PROTOBUF and status != _STATUS["encoding"]:
        body = _protobuf().write_failure(message)
        return Response(body, status, headers, media_type=_PROTOBUF)
    return Response(orjson.dumps({"message": message}), status, headers, media_type=_JSON)
