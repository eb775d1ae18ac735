"""A memory over HTTP outlives a restart of its daemon, and says what it cannot know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory
from slumberd.client.http_transport import MOST_CALLS, HttpTransport, is_repeatable
from slumberd.model.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    NotRunningError,
    RequestTooLargeError,
    StoreError,
    UsageError,
)
from slumberd.operations.registry import OPERATIONS
from tests.support.daemons_in_loop import PROGRAM_TOKEN, memory_in_loop, served_over_http
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


def memory_at(address: str, *, patience_seconds: float = PATIENCE_SECONDS) -> Memory:
    transport = HttpTransport(address, PROGRAM_TOKEN, patience_seconds=patience_seconds)
    return Memory(transport, user="ann", agent="desk", session="s1")


@asynccontextmanager
async def answering(*answers: bytes | None) -> AsyncIterator[tuple[str, list[int]]]:
    """Listen, and give each connection one answer, the last one to all others; None ends it."""
    asked: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        asked.append(length)
        found = answers[min(len(asked), len(answers)) - 1]
        if found is not None:
            writer.write(found)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


def http(status: str, body: bytes, form: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {form}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


PUT = http("200 OK", b'{"id": "key:ann/desk/k", "state": "new"}')
GATEWAY = http("502 Bad Gateway", b"<html>no upstream</html>", "text/html")
BUSY = http(
    "429 Too Many Requests",
    b'{"detail": "too many", "exit_code": 75, "kind": "TooManyRequestsError", "fields": {}}',
    "application/problem+json",
)


@pytest.mark.path
async def test_calls_wait_until_a_daemon_that_restarts_answers(tmp_path: Path) -> None:
    async with memory_in_loop(tmp_path / "m") as own:
        async with served_over_http(own) as address:
            memory = memory_at(address)
            await memory.remember("before", key="1")
        async with asyncio.TaskGroup() as group:
            put = group.create_task(memory.remember("during", key="2"))
            new = group.create_task(memory.remember("during"))  # nothing was sent yet
            read = group.create_task(memory.episodes())
            await asyncio.sleep(0)
            again = served_over_http(own, int(address.rpartition(":")[2]))
            await group.create_task(again.__aenter__())
        await again.__aexit__(None, None, None)

    assert (put.result().state, new.result().state) == ("new", "new")
    assert "before" in {one.content for one in read.result()}


@pytest.mark.parametrize(
    "unanswered", [pytest.param(None, id="a cut connection"), pytest.param(GATEWAY, id="a proxy")]
)
async def test_put_with_a_key_is_sent_again_and_another_put_is_not(
    unanswered: bytes | None,
) -> None:
    async with answering(unanswered, PUT) as (address, asked):
        assert (await memory_at(address).remember("tea", key="k")).state == "new"
        assert len(asked) == 2

    async with answering(unanswered, PUT) as (address, asked):
        with pytest.raises(StoreError, match="before you send it again"):
            await memory_at(address).remember("tea")
        assert len(asked) == 1


async def test_read_that_is_cut_after_a_long_wait_is_sent_again() -> None:
    patience, asked = 0.3, 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if asked == 1:
            await asyncio.wait([never], timeout=patience)
        else:
            writer.write(http("200 OK", b'{"episodes": []}'))
        writer.close()

    never = asyncio.get_running_loop().create_future()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await memory_at(address, patience_seconds=patience).episodes() == []


async def test_request_that_was_refused_for_want_of_room_is_sent_again() -> None:
    async with answering(BUSY, PUT) as (address, asked):
        assert (await memory_at(address).remember("tea")).state == "new"

    assert len(asked) == 2


@pytest.mark.parametrize("answer", [None, GATEWAY, BUSY])
async def test_daemon_that_does_not_come_back_is_an_error_that_names_it(
    answer: bytes | None,
) -> None:
    async with answering(answer) as (address, asked):
        with pytest.raises(NotRunningError, match=address):
            await memory_at(address, patience_seconds=0.15).episodes()

    assert len(asked) <= 2  # on a busy machine, the first answer takes all the patience
    with pytest.raises(NotRunningError, match=r"for 0 seconds.*refused"):
        await memory_at(address, patience_seconds=0).episodes()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(http("200 OK", b"hello", "text/plain"), "no answer of slumberd", id="text"),
        pytest.param(http("200 OK", b"[1]"), "no answer of slumberd", id="a list"),
        pytest.param(http("301 Moved", b""), "HTTP 301", id="a redirection"),
        pytest.param(http("200 OK", b'{"ok": true}'), "none of slumberd", id="an object"),
        pytest.param(
            http("404 Not Found", b'{"kind": "Status", "message": "no such path"}'),
            "no answer of slumberd",
            id="an error of another kind",
        ),
        pytest.param(
            http("400 x", b'{"kind": ["a"], "detail": 1, "exit_code": "1", "fields": 5}'),
            "HTTP 400",
            id="an error of other types",
        ),
        pytest.param(
            http("404 Not Found", b'{"detail": "Not Found"}', "application/problem+json"),
            "Not Found",
            id="an older daemon",
        ),
    ],
)
async def test_answer_of_another_server_is_an_error(answer: bytes, words: str) -> None:
    async with answering(answer) as (address, asked):
        with pytest.raises(StoreError, match=words):
            await memory_at(address).episodes()

    assert len(asked) == 1


@pytest.mark.slow
async def test_token_decides_who_calls_and_a_path_before_the_operation_is_kept(
    tmp_path: Path,
) -> None:
    async with memory_in_loop(tmp_path / "m") as own, served_over_http(own) as address:
        async with Memory.open(address, user="ann", token="unknown") as memory:  # noqa: S106 # of tests
            with pytest.raises(NotAuthenticatedError):
                await memory.episodes()
        async with Memory.open(f"{address}/", user="ann", token=PROGRAM_TOKEN) as memory:
            assert await memory.episodes() == []
            with pytest.raises(NotAllowedError, match="operate"):
                await memory._transport.call("status", {})
        async with Memory.open(f"{address}/memory", user="ann", token=PROGRAM_TOKEN) as memory:
            with pytest.raises(StoreError, match="Not Found"):
                await memory.episodes()


@pytest.mark.slow
async def test_request_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    large = [{"text": "x" * 100_000, "key": str(number)} for number in range(100)]
    async with memory_in_loop(tmp_path / "m") as own, served_over_http(own) as address:
        with pytest.raises(RequestTooLargeError, match="at most 4,194,304;"):
            await memory_at(address).put_many(large)


@pytest.mark.parametrize(
    "address",
    [
        "http://",
        "http://me:secret@host",
        "http://host?user=ann",
        "http://host#x",
        "http://h:x",
        "http://[::1",
        "http://two words/",
        "http://host/two words",
        "http://host/a\nb",
        "http://host/\xe9",
        f"http://{'a' * 64}.example",
        "http://a..example",
    ],
)
async def test_wrong_address_is_refused_and_its_password_is_not_shown(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        async with Memory.open(address, user="ann"):
            pass

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "token", ["", " ", "secret\nline", "secret\0", "secret\u00e9", "\u65e5", 5]
)
async def test_token_that_no_header_holds_is_refused_and_not_shown(token: Any) -> None:
    with pytest.raises(UsageError, match="slumberd token new") as caught:
        async with Memory.open("http://localhost:1", user="ann", token=token):
            pass

    assert "secret" not in str(caught.value)


@pytest.mark.slow
async def test_token_may_have_the_end_of_the_line_of_its_file(tmp_path: Path) -> None:
    token = f"{PROGRAM_TOKEN}\n"
    async with (
        memory_in_loop(tmp_path / "m") as own,
        served_over_http(own) as address,
        Memory.open(address, user="ann", token=token) as memory,
    ):
        assert await memory.episodes() == []


async def test_calls_that_wait_for_their_answers_leave_others_their_turn() -> None:
    """More wait than `asyncio.to_thread` has threads on any machine that runs few of them."""
    waiting, answered = asyncio.Event(), asyncio.Event()
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        head = await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if b"/outcome " in head:
            if asked == MOST_CALLS - 1:
                waiting.set()
            await answered.wait()
            writer.write(http("400 x", b"no"))
        else:
            writer.write(PUT)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        memory = memory_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        waits = [asyncio.ensure_future(memory.wait_for("e")) for _ in range(MOST_CALLS - 1)]
        try:
            async with asyncio.timeout(30):
                await waiting.wait()
                assert (await memory.remember("tea", key="k")).state == "new"
                assert await asyncio.to_thread(lambda: "free") == "free"
        finally:
            answered.set()
            await asyncio.gather(*waits, return_exceptions=True)


@pytest.mark.parametrize("address", ["unix:here", "postgresql://host/db", "here"])
async def test_token_for_another_kind_of_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="takes no token"):
        async with Memory.open(address, user="ann", token="x"):  # noqa: S106 # of tests
            pass


@pytest.mark.parametrize(
    ("operation", "request_", "repeatable"),
    [
        ("remember", {"text": "a"}, False),
        ("remember", {"text": "a", "key": "k"}, True),
        ("remember", {"text": "a", "id": "e"}, True),
        ("put_many", {"episodes": [{"key": "k"}, {"id": "e"}]}, True),
        ("put_many", {"episodes": [{"key": "k"}, {}]}, False),
        ("forget", {"dry_run": True}, True),
        ("forget", {"dry_run": False, "plan": "p"}, False),
        ("correct", {}, False),
        ("nonsense", {}, False),
    ],
)
def test_call_is_repeatable_when_it_does_no_harm(
    operation: str, request_: Mapping[str, Any], repeatable: bool
) -> None:
    assert is_repeatable(operation, request_) is repeatable


def test_every_read_is_repeatable() -> None:
    reads = {name for name, operation in OPERATIONS.items() if operation.read_only}

    assert {name for name in OPERATIONS if is_repeatable(name, {})} == {*reads, "put_many"}
