"""Answer an error with problem details (RFC 9457), by the class of its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from slumberd.daemon.control_socket import plain_field, valid_text
from slumberd.model.errors import (
    NotAuthenticatedError,
    RequestTimeoutError,
    RequestTooLargeError,
    SlumberdError,
    TooManyRequestsError,
    UnknownHostError,
    VersionConflictError,
)

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:slumberd:error:"
"""How the ``type`` of a problem begins; the class of the error follows."""

BY_EXIT_CODE = {
    1: HTTPStatus.CONFLICT,
    64: HTTPStatus.BAD_REQUEST,
    65: HTTPStatus.UNPROCESSABLE_ENTITY,
    66: HTTPStatus.NOT_FOUND,
    69: HTTPStatus.SERVICE_UNAVAILABLE,
    70: HTTPStatus.INTERNAL_SERVER_ERROR,
    73: HTTPStatus.CONFLICT,
    74: HTTPStatus.INTERNAL_SERVER_ERROR,
    75: HTTPStatus.SERVICE_UNAVAILABLE,
    77: HTTPStatus.FORBIDDEN,
    78: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of an error, by the exit code that a command would end with."""

BY_CLASS: Mapping[type[SlumberdError], HTTPStatus] = {
    NotAuthenticatedError: HTTPStatus.UNAUTHORIZED,
    RequestTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RequestTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    TooManyRequestsError: HTTPStatus.TOO_MANY_REQUESTS,
    UnknownHostError: HTTPStatus.MISDIRECTED_REQUEST,
    VersionConflictError: HTTPStatus.CONFLICT,
}
"""The status of an error for which HTTP has a better one."""

_RETRY_SECONDS = "1"
_RETRIED = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}


def status_of(error: type[SlumberdError]) -> HTTPStatus:
    """Return the status of a class of errors."""
    return BY_CLASS.get(error) or BY_EXIT_CODE[error.exit_code]


def problem_of(error: SlumberdError, *, conditional: bool = False) -> Response:
    """Return the answer to a request that failed.

    Args:
        error: Why.
        conditional: Whether the request has the header ``If-Match``.
    """
    status = status_of(type(error))
    if conditional and isinstance(error, VersionConflictError):
        status = HTTPStatus.PRECONDITION_FAILED
    name = type(error).__name__
    document = {
        "type": TYPE + name,
        "title": title_of(type(error)),
        "status": int(status),
        "detail": valid_text(str(error)),
        "exit_code": error.exit_code,
        "kind": name,
        "fields": {key: plain_field(value) for key, value in error.context.items()},
    }
    return problem_response(status, document)


def title_of(error: type[SlumberdError]) -> str:
    """Return the first sentence about a class of errors."""
    return (error.__doc__ or error.__name__).split("\n", 1)[0].rstrip(".")


def plain_problem(status: int, detail: str) -> Response:
    """Return a problem that is none of slumberd's errors, such as an unknown path."""
    title = HTTPStatus(status).phrase
    return problem_response(
        status, {"type": "about:blank", "title": title, "status": status, "detail": detail}
    )


def problem_response(status: int, document: Mapping[str, Any]) -> Response:
    """Return problem details as an answer."""
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in _RETRIED:
        headers["Retry-After"] = _RETRY_SECONDS
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        headers["Connection"] = "close"
    return Response(orjson.dumps(document), status, headers, MEDIA_TYPE)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed in a route of an extension."""
    assert isinstance(error, SlumberdError)  # noqa: S101 # it is registered for these only
    return problem_of(error, conditional="if-match" in request.headers)


async def answer_http_error(_: Request, error: Exception) -> Response:
    """Return the answer to a request without a route, or with another method."""
    status = getattr(error, "status_code", HTTPStatus.INTERNAL_SERVER_ERROR)
    answer = plain_problem(status, str(getattr(error, "detail", "")))
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer
