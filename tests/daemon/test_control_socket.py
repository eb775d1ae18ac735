"""The control socket answers each request line with one line, and reports why it refuses one."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest

from slumberd.daemon.control_socket import SOCKET, RefusedError, ask, listen
from slumberd.model.errors import NotRunningError, RequestTooLargeError, StoreError, UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler
from slumberd.storage.strict_json import MOST_REQUEST_BYTES
from tests.support.daemons import Home
from tests.support.jumping_time import run_without_waiting

pytestmark = pytest.mark.integration


async def greet(request: dict[str, Any], _: Caller) -> Answer:
    return {"hello": request["name"]}


async def refuse(_: dict[str, Any], __: Caller) -> Answer:
    raise UsageError("not like this")


async def stumble(_: dict[str, Any], __: Caller) -> Answer:
    raise RuntimeError("a bug")


async def babble(_: dict[str, Any], __: Caller) -> Answer:
    return {"number": 2**70}


async def mumble(_: dict[str, Any], __: Caller) -> Answer:
    raise UsageError("no caf\udce9")


async def overflow(_: dict[str, Any], __: Caller) -> Answer:
    raise OSError(28, "No space left on device")


OPERATIONS: dict[str, Handler] = {
    "greet": greet, "refuse": refuse, "stumble": stumble, "babble": babble,
    "mumble": mumble, "overflow": overflow,
}  # fmt: skip


async def send_request(directory: Path, operation: str, **fields: Any) -> Answer:
    return await asyncio.to_thread(ask, directory, operation, **fields)


async def test_request_gets_its_answer(tmp_path: Path) -> None:
    async with listen(tmp_path, OPERATIONS):
        assert await send_request(tmp_path, "greet", name="you") == {"hello": "you"}


async def test_directory_path_may_be_longer_than_a_socket_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)

    async with listen(deep, OPERATIONS):
        assert await send_request(deep, "greet", name="you") == {"hello": "you"}


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("umask", "mode"), [(0o007, 0o660), (0o077, 0o600), (0, 0o660)], indirect=["umask"]
)
@pytest.mark.usefixtures("umask")
async def test_group_may_use_the_socket_if_the_umask_permits_it(tmp_path: Path, mode: int) -> None:
    async with listen(tmp_path, OPERATIONS):
        assert (tmp_path / SOCKET).stat().st_mode & 0o777 == mode


async def test_leftover_file_is_replaced_and_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / SOCKET).touch()

    async with listen(tmp_path, OPERATIONS):
        assert await send_request(tmp_path, "greet", name="you") == {"hello": "you"}

    assert not (tmp_path / SOCKET).exists()


async def test_socket_that_another_program_listens_on_is_not_replaced(
    tmp_path: Path,
) -> None:
    async with listen(tmp_path, OPERATIONS):
        with pytest.raises(StoreError, match="another program listens on"):
            async with listen(tmp_path, {}):
                pass

        assert await send_request(tmp_path, "greet", name="you") == {"hello": "you"}


async def test_socket_without_a_listener_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
        dead.listen()

    async with listen(tmp_path, OPERATIONS):
        assert await send_request(tmp_path, "greet", name="you") == {"hello": "you"}


async def test_state_directory_links_to_the_socket_in_the_runtime_directory(
    tmp_path: Path,
) -> None:
    state, runtime = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    runtime.mkdir()

    async with listen(state, OPERATIONS, runtime=runtime):
        assert (runtime / SOCKET).is_socket()
        assert (state / SOCKET).readlink() == runtime / SOCKET
        assert await send_request(state, "greet", name="you") == {"hello": "you"}

    assert [*state.iterdir(), *runtime.iterdir()] == []


async def test_link_to_a_missing_runtime_directory_is_replaced(
    tmp_path: Path,
) -> None:
    (tmp_path / SOCKET).symlink_to("/run/gone/control.sock")
    with pytest.raises(NotRunningError, match="no slumberd runs"):
        await send_request(tmp_path, "greet")

    async with listen(tmp_path, OPERATIONS):
        assert (tmp_path / SOCKET).is_socket() and not (tmp_path / SOCKET).is_symlink()


async def test_request_without_a_daemon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="no slumberd runs"):
        await send_request(tmp_path, "greet")


@pytest.mark.parametrize(
    "value", [pytest.param("caf\udce9", id="no unicode"), pytest.param(2**70, id="too large")]
)
async def test_value_that_json_cannot_hold_is_refused_before_it_is_sent(
    tmp_path: Path, value: object
) -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        await send_request(tmp_path, "greet", name=value)


@pytest.mark.parametrize(
    ("operation", "message", "code"),
    [
        pytest.param("refuse", "not like this", 64, id="an error of ours"),
        pytest.param("stumble", "a bug", 70, id="a bug"),
        pytest.param("mumble", r"no caf\\udce9", 64, id="words that are no Unicode"),
        pytest.param("babble", "a bug", 70, id="an answer that is no JSON"),
        pytest.param("overflow", "cannot write: .*No space", 74, id="a full disk"),
        pytest.param("dance", "unknown operation 'dance'", 64, id="unknown"),
    ],
)
async def test_refusal_keeps_its_exit_code(
    tmp_path: Path, operation: str, message: str, code: int
) -> None:
    async with listen(tmp_path, OPERATIONS):
        with pytest.raises(RefusedError, match=message) as refused:
            await send_request(tmp_path, operation)
        assert await send_request(tmp_path, "greet", name="still here") == {"hello": "still here"}

    assert refused.value.exit_code == code


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"not json\n", id="no json"),
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b'{"version": 99, "operation": "greet"}\n', id="another version"),
    ],
)
async def test_line_that_is_no_request_is_refused_with_64(tmp_path: Path, line: bytes) -> None:
    def send() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / SOCKET))
            connection.sendall(line)
            return connection.makefile("rb").readline()

    async with listen(tmp_path, OPERATIONS):
        answer = orjson.loads(await asyncio.to_thread(send))

    assert (answer["ok"], answer["exit_code"]) == (False, 64)


@pytest.mark.parametrize("size", [MOST_REQUEST_BYTES + 1, 3 * MOST_REQUEST_BYTES])
async def test_request_that_is_too_large_is_refused_by_name(tmp_path: Path, size: int) -> None:
    async with listen(tmp_path, OPERATIONS):
        answer = orjson.loads(await asyncio.to_thread(exchange, tmp_path, b"x" * size + b"\n"))
        with pytest.raises(RequestTooLargeError) as refused:
            await send_request(tmp_path, "greet", name="x" * size)

    given = f"the request is too large: {size:,} bytes, at most 4,194,304; send less"
    assert (answer["kind"], answer["exit_code"], answer["error"]) == (
        "RequestTooLargeError", 65, given,
    )  # fmt: skip
    assert "at most 4,194,304" in str(refused.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"version":1,"operation":"greet","name":"a","name":"b"}', "'name' is given twice"),
        (b'{"version":1,"operation":"greet","name":123456789012345678901234}', "64 bits"),
        (b'{"version":1,"operation":"greet","name":{"a":1,"a":2}}', "'a' is given twice"),
    ],
)
async def test_ambiguous_request_is_refused(tmp_path: Path, line: bytes, problem: str) -> None:
    async with listen(tmp_path, OPERATIONS):
        answer = orjson.loads(await asyncio.to_thread(exchange, tmp_path, line + b"\n"))

    assert (answer["ok"], answer["exit_code"]) == (False, 64)
    assert problem in answer["error"]


def exchange(directory: Path, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(directory / SOCKET))
        connection.sendall(line)
        return connection.makefile("rb").readline()


def connect(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    # Through the directory's descriptor, because its path may be too long for a socket.
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{opened}/{SOCKET}")
    finally:
        os.close(opened)
    return connection


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        (b'{"ok":false,"error":"busy","exit_code":75}\n', RefusedError, "busy"),
        (b"", StoreError, "ended before it answered"),
    ],
    ids=["refusal", "end"],
)
def test_daemon_that_closes_before_it_reads_the_request_causes_a_clear_error(
    tmp_path: Path, line: bytes, error: type[Exception], message: str
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / SOCKET))
        server.listen()

        def answer_and_close() -> None:
            connection, _ = server.accept()
            connection.sendall(line)
            connection.close()

        thread = Thread(target=answer_and_close)
        thread.start()
        # A request of 1 MiB does not fit into the socket's buffer: the close interrupts it.
        with pytest.raises(error, match=message):
            ask(tmp_path, "greet", name="x" * 2**20)
        thread.join()


async def ask_slowly(directory: Path, seconds: float) -> bytes:
    """Connect, send a request after some seconds, and return the answer."""
    async with listen(directory, OPERATIONS):
        reader, writer = await asyncio.open_unix_connection(sock=connect(directory))
        with closing(writer):
            await asyncio.sleep(seconds)
            writer.write(b'{"version":1,"operation":"greet","name":"you"}\n')
            return await reader.read()


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        pytest.param(4.9, b'{"ok":true,"hello":"you"}\n', id="less than five seconds"),
        pytest.param(5.1, b"", id="more than five seconds"),
    ],
)
def test_connection_without_a_request_is_closed_after_five_seconds(
    tmp_path: Path, seconds: float, answer: bytes
) -> None:
    assert run_without_waiting(ask_slowly(tmp_path, seconds)) == answer


async def stop_with_an_idle_connection(directory: Path) -> float:
    """Connect without a request, stop listening, and return the seconds that the stop took."""
    loop = asyncio.get_running_loop()
    async with listen(directory, OPERATIONS):
        _, writer = await asyncio.open_unix_connection(sock=connect(directory))
        await asyncio.sleep(1)  # the daemon has accepted it
        began = loop.time()
    writer.close()
    return loop.time() - began


def test_idle_connection_does_not_delay_the_end(tmp_path: Path) -> None:
    assert run_without_waiting(stop_with_an_idle_connection(tmp_path)) == 0


async def test_user_with_64_connections_is_refused_until_one_closes(tmp_path: Path) -> None:
    async with listen(tmp_path, OPERATIONS):
        idle = [await asyncio.to_thread(connect, tmp_path) for _ in range(63)]
        assert await send_request(tmp_path, "greet", name="you") == {"hello": "you"}
        idle.append(await asyncio.to_thread(connect, tmp_path))
        with pytest.raises(RefusedError, match="you have 64 connections open") as refused:
            await send_request(tmp_path, "greet", name="you")
        for connection in idle:
            connection.close()
        while True:  # until the daemon has noticed the closed connections
            try:
                answer = await send_request(tmp_path, "greet", name="you")
                break
            except RefusedError:
                continue

    assert refused.value.exit_code == 75
    assert answer == {"hello": "you"}


@pytest.mark.parametrize(
    ("size", "ok"),
    [pytest.param(4 * 2**20, True, id="4 MiB"), pytest.param(4 * 2**20 + 1, False, id="longer")],
)
async def test_request_of_four_mebibytes_is_read_and_a_longer_one_is_refused(
    tmp_path: Path, size: int, ok: bool
) -> None:
    line = b'{"version":1,"operation":"greet","name":"you"}'.ljust(size) + b"\n"

    async with listen(tmp_path, OPERATIONS):
        answer = orjson.loads(await asyncio.to_thread(exchange, tmp_path, line))

    assert answer["ok"] is ok


@pytest.mark.slow
def test_idle_connections_cause_no_error_lines_when_the_daemon_stops(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    with home.daemon() as daemon:
        idle = [connect(home.state) for _ in range(3)]
        home.slumberd("fire", "--all")  # answered after the daemon has accepted the others
    daemon.close()
    left = [daemon._events.get() for _ in range(daemon._events.qsize())]
    for connection in idle:
        connection.close()

    events = [line["event"] for line in [*daemon.seen, *left] if line]
    assert "daemon.stopped" in events
    assert "library.logged" not in events


def test_request_that_the_end_of_the_loop_cancels_leaves_no_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop_meanwhile() -> None:
        begun = asyncio.Event()

        async def hang(_: dict[str, Any], __: Caller) -> Answer:
            begun.set()
            await asyncio.Event().wait()
            return {}

        async with listen(tmp_path, {"hang": hang}):
            connection = connect(tmp_path)
            connection.sendall(b'{"version":1,"operation":"hang"}\n')
            await begun.wait()
        connection.close()

    asyncio.run(stop_meanwhile())
    gc.collect()  # a transport that is still open is a warning now, and so an error

    assert caplog.records == []


@pytest.mark.slow
def test_flood_of_connections_fills_no_log_and_blocks_no_command(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    with home.daemon() as daemon:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        flood = [connect(home.state) for _ in range(400)]
        for connection in flood:
            connection.close()
        home.slumberd("fire", "--all")
    daemon.close()
    left = [daemon._events.get() for _ in range(daemon._events.qsize())]

    assert "library.logged" not in {event["event"] for event in [*daemon.seen, *left] if event}
