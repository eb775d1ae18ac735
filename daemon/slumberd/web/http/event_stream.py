"""Send rows of the ledger as server-sent events, as they are committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slumberd.clock import set_within
from slumberd.daemon.interfaces import Served
from slumberd.model.errors import SlumberdError, UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.web.http.endpoints import caller_in
from slumberd.web.http.gate import STREAM
from slumberd.web.http.http_requests import fields_in_query
from slumberd.web.http.problems import problem_of

PATH = STREAM
QUERY = ("after", "kinds", "user", "agent", "shard")
"""The fields of the operation ``changes`` that the query may have."""

BEAT_SECONDS = 15.0
"""How often a quiet stream sends a comment, so that proxies keep it open."""

_BEAT = b": nothing new\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


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
        return StreamingResponse(stream, headers=_HEADERS, media_type="text/event-stream")

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
    if unknown := [name for name in fields if name not in QUERY]:
        raise UsageError(f"the query has {unknown[0]!r}; it may have {', '.join(QUERY)}")
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
