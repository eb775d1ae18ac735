"""The resources of the Model Context Protocol: facts, episodes, the profile and the report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson
from mcp_types import (
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from slumberd.model.errors import NoInputError
from slumberd.web.mcp.connection import Connection

_FACTS, _EPISODES = "slumberd://facts/", "slumberd://episodes/"
_PROFILE, _REPORT = "slumberd://profile", "slumberd://report/latest"
_JSON, _PLAIN = "application/json", "text/plain"
_NOT_HERE = "no resource of that address is in this scope"

RESOURCES = [
    Resource(
        uri=_PROFILE,
        name="profile",
        title="Profile",
        description="The facts to know in every conversation, quoted as data, in 1,024 tokens.",
        mime_type=_PLAIN,
    ),
    Resource(
        uri=_REPORT,
        name="report",
        title="Latest report",
        description="How much was learned, changed and retracted in the last day, by rule.",
        mime_type=_JSON,
    ),
]
TEMPLATES = [
    ResourceTemplate(
        uri_template=_FACTS + "{id}",
        name="fact",
        title="Fact",
        description="A current fact, with its lineage.",
        mime_type=_JSON,
    ),
    ResourceTemplate(
        uri_template=_EPISODES + "{id}",
        name="episode",
        title="Episode",
        description="An episode, as it was put.",
        mime_type=_JSON,
    ),
]


async def read_resource(connection: Connection, uri: str) -> ReadResourceResult:
    """Return the content of a resource of the connection's scope.

    Args:
        connection: Who reads.
        uri: The address of the resource.

    Raises:
        NoInputError: The scope has no such resource.
        SlumberdError: The operation failed.
    """
    if uri in _READERS:
        mime_type, read = _READERS[uri]
        return _result(uri, mime_type, await read(connection))
    for prefix, operation in ((_FACTS, "facts"), (_EPISODES, "episodes")):
        if uri.startswith(prefix) and (id := unquote(uri.removeprefix(prefix))):
            return _result(uri, _JSON, await _read_one(connection, operation, id, uri))
    raise NoInputError(uri, _NOT_HERE)


async def _read_one(connection: Connection, operation: str, id: str, uri: str) -> str:
    found = (await connection.ask(operation, {"id": id}))[operation]
    if not found:
        raise NoInputError(uri, _NOT_HERE)
    return _json(found[0])


async def _read_profile(connection: Connection) -> str:
    text: str = (await connection.ask("profile", {}))["text"]
    return text


async def _read_report(connection: Connection) -> str:
    return _json(await connection.ask("report", {}))


_READERS: dict[str, tuple[str, Callable[[Connection], Awaitable[str]]]] = {
    _PROFILE: (_PLAIN, _read_profile),
    _REPORT: (_JSON, _read_report),
}


def _json(document: dict[str, Any]) -> str:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _result(uri: str, mime_type: str, text: str) -> ReadResourceResult:
    return ReadResourceResult(
        contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=text)]
    )
