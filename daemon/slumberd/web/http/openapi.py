"""Describe the HTTP interface as OpenAPI 3.1, from the operations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import orjson

from slumberd import __version__
from slumberd.model.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    NotRunningError,
    RequestTimeoutError,
    RequestTooLargeError,
    SlumberdError,
    StoreError,
    TooManyRequestsError,
    UnknownHostError,
    UsageError,
    VersionConflictError,
)
from slumberd.operations.facts import KnownFact
from slumberd.operations.registry import OPERATIONS
from slumberd.web.http.endpoints import EVENTS_QUERY, OPEN_METRICS
from slumberd.web.http.gate import EVENTS_PATH, HEALTH, TRACES
from slumberd.web.http.problems import MEDIA_TYPE as PROBLEM
from slumberd.web.http.problems import status_of
from slumberd.web.http.routes import ROUTES, HttpRoute
from slumberd.web.mcp.connection import PATH as MCP
from slumberd.web.mcp.connection import QUERY as MCP_QUERY

Document = dict[str, Any]

_TEMPLATE = "#/components/schemas/{model}"
_JSON = "application/json"
_PROTOBUF = "application/x-protobuf"
_OF_MCP = (HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_EVERYWHERE: tuple[type[SlumberdError], ...] = (
    UsageError,
    NotAuthenticatedError,
    NotAllowedError,
    UnknownHostError,
    RequestTooLargeError,
    TooManyRequestsError,
    StoreError,
    NotRunningError,
)
_TEXT: Document = {"type": "string"}
_PROBLEM: Document = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "exit_code": {"type": "integer", "description": "As a command would end."},
        "kind": {"type": "string", "description": "The class of the error."},
        "fields": {"type": "object", "description": "What the message is made of."},
    },
}


@cache
def openapi_json() -> bytes:
    """Return the whole document as JSON; a process makes it once."""
    return orjson.dumps(openapi_document())


def openapi_document() -> Document:
    """Return the whole document."""
    schemas: Document = {"Problem": _PROBLEM}
    paths: defaultdict[str, Document] = defaultdict(dict)
    for route in ROUTES:
        paths[route.public_path][route.method.lower()] = _operation(route, schemas)
    paths[EVENTS_PATH]["get"] = _events(schemas)
    paths["/metrics"]["get"] = _plain("metrics", "Return the metrics.", OPEN_METRICS)
    paths[HEALTH]["get"] = {
        "operationId": "health",
        "summary": "Answer that the daemon answers.",
        "security": [],
        "responses": {"200": {"description": "It answers.", "content": {_JSON: {}}}},
    }
    paths[TRACES]["post"] = _traces()
    paths[MCP]["post"] = _mcp()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "slumberd",
            "version": __version__,
            "summary": "The memory of agents: episodes, and the facts that rules make of them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The address that this document comes from."}],
        "security": [{}, {"token": []}],
        "paths": dict(paths),
        "components": {
            "schemas": {name: _without_defaults(each) for name, each in schemas.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: HttpRoute, schemas: Document) -> Document:
    operation = route.operation
    described: Document = {
        "operationId": _id_of(route),
        "summary": route.title,
        "description": f"Needs the right `{route.right or operation.right}`.",
        "parameters": [*_path_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _answer(route, schemas), **_problems(route)},
    }
    form = _form(route, schemas)
    if route.method == "GET":
        described["parameters"] += _query_parameters(form)
    else:
        described["requestBody"] = {
            "required": bool(form.get("required")),
            "content": {_JSON: {"schema": _without_defaults(form), **_example(route)}},
        }
    return described


def _id_of(route: HttpRoute) -> str:
    """Return a name that no other route has."""
    words = [part for part in route.public_path.split("/")[2:] if not part.startswith("{")]
    one = ["one"] if "{" in route.public_path else []
    return "_".join([route.method.lower(), *words, *one])


def _form(route: HttpRoute, schemas: Document) -> Document:
    """Return the schema of a form without the fields that are hidden here."""
    form = _schema_of(route.operation.form.model_json_schema(ref_template=_TEMPLATE), schemas)
    properties = {k: v for k, v in form["properties"].items() if k not in route.hidden}
    required = [name for name in form.get("required", []) if name in properties]
    for name in route.required:
        properties[name] = _without_null(properties[name])
    kept = {k: v for k, v in form.items() if k not in ("title", "description", "required")}
    wanted = {"required": [*required, *route.required]} if required or route.required else {}
    return {**kept, "properties": properties, **wanted}


def _schema_of(schema: Document, schemas: Document) -> Document:
    """Return a schema; move the definitions inside it to the components."""
    schemas.update(schema.pop("$defs", {}))
    return schema


def _without_defaults(schema: Document) -> Document:
    """Return a schema whose descriptions say the defaults: generators require fields that have one.

    A field that is not among the required ones may be absent.
    """
    found = {key: _inside(key, value) for key, value in schema.items() if key != "default"}
    default = schema.get("default")
    if default not in (None, "", []):
        said = schema.get("description", "")
        found["description"] = f"{said} Default: {json.dumps(default)}.".strip()
    return found


def _inside(key: str, value: Any) -> Any:  # noqa: ANN401 # any part of a schema
    if key == "properties":
        return {name: _without_defaults(each) for name, each in value.items()}
    if key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return [_without_defaults(each) for each in value]
    is_schema = key in ("items", "additionalProperties") and isinstance(value, dict)
    return _without_defaults(value) if is_schema else value


def _without_null(schema: Document) -> Document:
    """Return the schema of a field that must have a value."""
    kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
    return {**{k: v for k, v in schema.items() if k not in ("anyOf", "default")}, **kinds[0]}


def _query_parameters(form: Document) -> list[Document]:
    return [
        {"name": name, "in": "query", "required": False, "schema": _in_query(schema)}
        for name, schema in form["properties"].items()
    ]


def _in_query(schema: Document) -> Document:
    """Return the schema of a field in a query, which cannot say null."""
    return _without_null(schema) if "anyOf" in schema else schema


def _path_parameters(route: HttpRoute) -> list[Document]:
    if route.in_path is None:
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": 1_000}
    return [{"name": "id", "in": "path", "required": True, "schema": schema}]


def _header_parameters(route: HttpRoute) -> list[Document]:
    if route.shape == "first fact":
        return [_header("If-None-Match", "The entity tag that the caller has.")]
    if route.conditional is not None:
        return [_header("If-Match", "The entity tag of the fact that the caller saw, or `*`.")]
    if route.keyed is not None:
        return [_header("Idempotency-Key", "As the field `key`; other content gets 422.")]
    return []


def _header(name: str, description: str) -> Document:
    return {"name": name, "in": "header", "description": description, "schema": _TEXT}


def _answer(route: HttpRoute, schemas: Document) -> Document:
    if route.shape == "first fact":
        model = KnownFact
        tag: Document = {"headers": {"ETag": {"description": "Its version.", "schema": _TEXT}}}
    else:
        model, tag = route.operation.result, {}  # type: ignore[assignment] # both are results
    schemas[model.__name__] = _schema_of(model.model_json_schema(ref_template=_TEMPLATE), schemas)
    reference = {"$ref": _TEMPLATE.format(model=model.__name__)}
    return {"description": route.title, **tag, "content": {_JSON: {"schema": reference}}}


def _example(route: HttpRoute) -> Document:
    request: Mapping[str, Any] = route.operation.example.request
    shown = {name: value for name, value in request.items() if name not in route.hidden}
    complete = all(name in shown for name in route.required)
    return {"example": shown} if complete and shown else {}


def _problems(route: HttpRoute) -> Document:
    errors = [*_EVERYWHERE, *route.operation.errors]
    if route.operation.read_only:
        errors.append(RequestTimeoutError)
    statuses = {int(status_of(error)) for error in errors}
    if route.shape == "first fact":
        statuses |= {404, 304}
    if route.conditional is not None and VersionConflictError in errors:
        statuses.add(412)
    return {str(status): _problem(status) for status in sorted(statuses)}


def _problem(status: int) -> Document:
    phrase = HTTPStatus(status).phrase
    if status == HTTPStatus.NOT_MODIFIED:
        return {"description": phrase}
    schema = {"$ref": _TEMPLATE.format(model="Problem")}
    return {"description": phrase, "content": {PROBLEM: {"schema": schema}}}


def _plain(name: str, summary: str, media_type: str) -> Document:
    """Return the description of a path that is no operation."""
    statuses = sorted({int(status_of(error)) for error in _EVERYWHERE})
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": {media_type: {}}},
            **{str(status): _problem(status) for status in statuses},
        },
    }


def _traces() -> Document:
    """Return the description of the path that takes traces."""
    summary = "Put the messages in traces of agents as episodes (OTLP over HTTP)."
    spans = {"type": "array", "items": {"type": "object"}}
    taken = {"type": "object", "properties": {"resourceSpans": spans}}
    binary: Document = {"schema": {"type": "string", "format": "binary"}}
    failure = {"type": "object", "properties": {"message": _TEXT}}
    problem = {"$ref": _TEMPLATE.format(model="Problem")}
    said = {_JSON: {"schema": failure}, _PROTOBUF: binary, PROBLEM: {"schema": problem}}
    statuses = {*map(int, map(status_of, _EVERYWHERE)), HTTPStatus.UNSUPPORTED_MEDIA_TYPE}
    answer = {_JSON: {"schema": {"type": "object"}}, _PROTOBUF: binary}
    return {
        "operationId": "traces",
        "summary": summary,
        "description": "Needs the right `write`. The body may be compressed by gzip.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": taken}, _PROTOBUF: binary}},
        "responses": {
            "200": {"description": "What was rejected, if anything was.", "content": answer},
            **{
                str(int(status)): {"description": HTTPStatus(status).phrase, "content": said}
                for status in sorted(statuses)
            },
        },
    }


def _mcp() -> Document:
    """Return the description of the path that answers the Model Context Protocol."""
    summary = (
        "Answer one message of the Model Context Protocol (Streamable HTTP, without sessions)."
    )
    message = {
        "type": "object",
        "description": "A message of JSON-RPC 2.0.",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer"]},
            "method": _TEXT,
            "params": {"type": "object"},
        },
    }
    answer = {_JSON: {"schema": {"type": "object"}}}
    statuses = {*map(int, map(status_of, _EVERYWHERE)), *_OF_MCP}
    return {
        "operationId": "mcp",
        "summary": summary,
        "description": (
            "The header Accept names application/json and text/event-stream."
            " The token, and these parameters, say whose memory it is."
        ),
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": _TEXT} for name in MCP_QUERY
        ],
        "requestBody": {"required": True, "content": {_JSON: {"schema": message}}},
        "responses": {
            "200": {"description": "The answer to the message.", "content": answer},
            "202": {"description": "The message needs no answer."},
            **{
                str(int(status)): {
                    "description": HTTPStatus(status).phrase,
                    "content": {
                        **answer,
                        PROBLEM: {"schema": {"$ref": _TEMPLATE.format(model="Problem")}},
                    },
                }
                for status in sorted(statuses)
            },
        },
    }


def _events(schemas: Document) -> Document:
    """Return the description of the stream of changes."""
    form = _schema_of(OPERATIONS["changes"].form.model_json_schema(ref_template=_TEMPLATE), schemas)
    wanted = {name: form["properties"][name] for name in EVENTS_QUERY}
    summary = "Send rows of the ledger as server-sent events, as they are committed."
    last = _header("Last-Event-ID", "The number of the last row that the caller has.")
    return {
        **_plain("events", summary, "text/event-stream"),
        "parameters": [*_query_parameters({"properties": wanted}), last],
    }
