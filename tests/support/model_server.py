"""A server of chat completions in the test process, which answers as a script says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.support.waiting import PATIENCE_SECONDS

Answer = Callable[[dict[str, Any]], "Reply"]
"""Returns the reply to the body of a request."""


@dataclass(frozen=True)
class Reply:
    """One response; without `until`, it is sent at once.

    Attributes:
        status: The status code.
        body: The body.
        headers: Further headers.
        until: The response waits for this event; None sends it at once.
        cut: Whether the connection ends in the middle of the body.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[str, ...] = ()
    until: asyncio.Event | None = None
    cut: bool = False


def completion(text: str, *, finish: str = "stop", refusal: str | None = None) -> Reply:
    """Return the reply with one answer of a model, as servers write it."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return Reply(body=orjson.dumps({"choices": choices, "usage": usage}))


def stated(turn: str, subject: str, predicate: str, object: str, **more: Any) -> dict[str, Any]:
    """Return one triple of an answer; by default its quote is the object."""
    triple = {"turn": turn, "subject": subject, "predicate": predicate, "object": object}
    return {**triple, "quote": object, "intent": "add", "confidence": 1.0, **more}


def triples(*found: dict[str, Any]) -> Reply:
    """Return the reply of a model that obeys the schema."""
    return completion(orjson.dumps({"triples": found}).decode())


def turns_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns that a request asks about."""
    user = next(one for one in request["messages"] if one["role"] == "user")
    found: list[dict[str, Any]] = orjson.loads(user["content"])["turns"]
    return found


def likes_everything(request: dict[str, Any]) -> Reply:
    """Answer that each speaker likes the last word of each turn."""
    return triples(
        *(
            stated(turn["id"], turn["speaker"], "likes", turn["text"].split()[-1])
            for turn in turns_in(request)
        )
    )


@dataclass
class ModelServer:
    """The scripted server.

    Attributes:
        url: Its address, for ``base_url``.
        script: The next replies; when it is empty, `otherwise` answers.
        otherwise: Answers when the script has ended.
        models: The names that the server lists.
        requests: The bodies of all requests.
        headers: The headers of all requests, as text.
        arrived: Set once a request has arrived.
    """

    url: str = ""
    script: list[Reply | Answer] = field(default_factory=list)
    otherwise: Answer = likes_everything
    models: list[str] = field(default_factory=lambda: ["tiny"])
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def asked(self) -> list[list[str]]:
        """Return the texts that each request asks about."""
        return [[turn["text"] for turn in turns_in(request)] for request in self.requests]

    def will(self, *replies: Reply | Answer) -> None:
        """Reply so to the next requests."""
        self.script += replies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("GET "):
                    self.headers.append(head)
                    await self._list_models(writer)
                    continue
                length = next(
                    int(line.partition(":")[2])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                )
                body = orjson.loads(await reader.readexactly(length))
                self.headers.append(head)
                self.requests.append(body)
                self.arrived.set()
                await self._reply(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _list_models(self, writer: asyncio.StreamWriter) -> None:
        body = orjson.dumps({"object": "list", "data": [{"id": name} for name in self.models]})
        writer.write(f"HTTP/1.1 200 x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _reply(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        step = self.script.pop(0) if self.script else self.otherwise
        reply = step if isinstance(step, Reply) else step(body)
        if reply.until is not None:
            await reply.until.wait()
        lines = [f"HTTP/1.1 {reply.status} x", f"Content-Length: {len(reply.body)}", *reply.headers]
        content = reply.body[: len(reply.body) // 2] if reply.cut else reply.body
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()
        if reply.cut:
            raise ConnectionError


@asynccontextmanager
async def model_server(script: Sequence[Reply | Answer] = ()) -> AsyncIterator[ModelServer]:
    """Run a server on a free port of the loopback address."""
    found = ModelServer(script=[*script])
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield found
        server.close()


@contextmanager
def server_in_a_thread() -> Iterator[ModelServer]:
    """Run a scripted server beside a test that waits for processes."""
    ready = threading.Event()
    found: list[tuple[ModelServer, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        end = asyncio.Event()
        async with model_server() as server:
            found.append((server, asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(PATIENCE_SECONDS)
    server, loop, end = found[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE_SECONDS)
