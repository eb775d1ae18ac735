"""Read the request of an operation from a path, a query, headers and a body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import Request

from slumberd.model.errors import UsageError
from slumberd.operations.forms import RequestForm
from slumberd.storage.strict_json import read_object
from slumberd.web.http.routes import HttpRoute

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
        raise UsageError(f"{route.operation.name}: {missing[0]}: is missing")
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
