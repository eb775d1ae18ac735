"""Requests of other hosts are performed once, in order, and their senders always get to know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import orjson
import pytest

from slumberd.clock import SystemClock
from slumberd.daemon.control_socket import RefusedError
from slumberd.daemon.database_requests import ServedShards, answer_requests, ask_database
from slumberd.daemon.database_tenure import DatabaseTenure
from slumberd.model.errors import (
    NotRunningError,
    RequestTooLargeError,
    StaleWriterError,
    StoppedError,
    StoreError,
)
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.storage.postgres.connection import Connection, connect
from slumberd.storage.postgres.requests import send_request
from slumberd.storage.postgres.shard_map import Shard
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HOLDS = (
    "UPDATE slumberd_0.lease SET holder = 'a/1', held_until = now() + interval '1 hour',"
    """ host = '{"daemon": true}'"""
)
COUNT = "SELECT count(*) FROM slumberd_0.requests"
MIB = 2**20


@pytest.fixture
def database(postgres_address: str) -> str:
    return postgres_address.rpartition("/")[2]


class Operations:
    """Operations of a daemon that tests begin and end.

    Attributes:
        seen: The requests, in the order of their start.
        begun: Set when ``slow`` has begun.
        go_on: Lets ``slow`` end.
    """

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.callers: list[str] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    async def echo(self, request: dict[str, Any], caller: Caller) -> Answer:
        """Return the request."""
        self.seen.append(request)
        self.callers.append(str(caller))
        return {"echo": request.get("text")}

    async def large(self, request: dict[str, Any], _: Caller) -> Answer:
        """Return a text of a wanted length."""
        return {"text": "x" * request["length"]}

    async def refuse(self, _: dict[str, Any], __: Caller) -> Answer:
        """Refuse as a superseded daemon does."""
        raise StaleWriterError("the database", 1, 2)

    async def slow(self, request: dict[str, Any], _: Caller) -> Answer:
        """Wait until the test lets it end."""
        self.seen.append(request)
        self.begun.set()
        await asyncio.to_thread(self.go_on.wait)
        return {"echo": "slow"}

    def by_name(self) -> dict[str, Any]:
        """Return the operations by name."""
        return {name: getattr(self, name) for name in ("echo", "large", "refuse", "slow")}


@contextmanager
def daemon_on(address: str, operations: Operations, *, holder: str | None = None) -> Iterator[None]:
    """Hold a database and answer its requests in another thread, while the block runs.

    Args:
        address: The address of the database.
        operations: The operations.
        holder: The daemon that holds the database already; None to hold it by a lease.
    """
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        tenure = DatabaseTenure(
            Shard(0, address), address, SystemClock(), seconds=3, is_daemon=True
        )
        served = ServedShards()
        async with (
            tenure if holder is None else nullcontext(),
            answer_requests(served, holder=holder or tenure.name),
            served.serve(Shard(0, address), operations.by_name()),
        ):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        operations.go_on.set()
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


class Asking:
    """A call in a thread of its own, and what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._found: list[object] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except Exception as error:  # noqa: BLE001 # the test looks at it
            self._found.append(error)

    def result(self) -> Any:
        """Return the result or the error, once there is one."""
        wait_until(lambda: bool(self._found))
        return self._found[0]


def asking(address: str, operation: str, **fields: Any) -> Asking:
    return Asking(lambda: ask_database(Shard(0, address), operation, fields))


def sending(address: str, line: bytes = b"{}\n") -> Asking:
    shard = Shard(0, address)
    return Asking(lambda: send_request(shard, "echo", line, host="me", poll_seconds=0.01))


def test_daemon_answers_requests_and_leaves_none_in_the_table(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    operations = Operations()
    with daemon_on(postgres_address, operations):
        shard = Shard(0, postgres_address)
        answers = [ask_database(shard, "echo", {"text": str(n)}) for n in range(5)]

    assert [answer["echo"] for answer in answers] == ["0", "1", "2", "3", "4"]
    assert all("@" in caller for caller in operations.callers)
    assert postgres.rows(COUNT, database) == [(0,)]


def test_error_of_an_operation_reaches_the_sender_with_class_and_code(
    postgres_address: str,
) -> None:
    with daemon_on(postgres_address, Operations()):
        refused = asking(postgres_address, "refuse").result()
        unknown = asking(postgres_address, "nonsense").result()

    assert isinstance(refused, RefusedError)
    assert (refused.kind, refused.exit_code) == ("StaleWriterError", 75)
    assert (unknown.exit_code, str(unknown)) == (64, "unknown operation 'nonsense'")


def test_large_answer_arrives_and_a_large_request_is_refused(postgres_address: str) -> None:
    with daemon_on(postgres_address, Operations()):
        answer = asking(postgres_address, "large", length=40 * MIB).result()
        unsent = asking(postgres_address, "echo", text="x" * (4 * MIB)).result()
        refused = orjson.loads(sending(postgres_address, b" " * (4 * MIB + 1)).result())

    assert len(answer["text"]) == 40 * MIB
    assert isinstance(unsent, RequestTooLargeError)
    assert (refused["kind"], refused["exit_code"]) == ("RequestTooLargeError", 65)
    assert "the request is too large: more than 4,194,304 bytes" in refused["error"]


@pytest.mark.nightly
def test_requests_of_many_hosts_are_all_answered(postgres_address: str) -> None:
    operations = Operations()
    with daemon_on(postgres_address, operations):
        sent = [asking(postgres_address, "echo", text=str(number)) for number in range(100)]
        answers = [each.result() for each in sent]

    assert [answer["echo"] for answer in answers] == [str(number) for number in range(100)]
    assert len(operations.seen) == 100


def test_request_is_answered_when_the_connection_is_cut_before_its_notification(
    postgres: PostgresServer,
    postgres_address: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect_to_lose(address: str, schema: str, **options: Any) -> Connection:
        connection = connect(address, schema, **options)
        execute = connection.execute

        def cut_and_execute(query: Any) -> object:
            if b"NOTIFY" in query:
                postgres.end_connections(database)
            return execute(query)

        monkeypatch.setattr(connection, "execute", cut_and_execute)
        return connection

    with daemon_on(postgres_address, Operations()):
        monkeypatch.setattr("slumberd.storage.postgres.requests.connect", connect_to_lose)

        assert asking(postgres_address, "echo", text="hello").result() == {"echo": "hello"}


def test_request_is_done_once_when_all_connections_are_cut(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    operations = Operations()
    with daemon_on(postgres_address, operations):
        slow = asking(postgres_address, "slow")
        operations.begun.wait()
        postgres.end_connections(database)
        other = asking(postgres_address, "echo", text="meanwhile").result()
        operations.go_on.set()
        answer = slow.result()

    assert answer == {"echo": "slow"}
    assert other == {"echo": "meanwhile"}
    assert len(operations.seen) == 2


def test_request_is_answered_after_the_server_was_restarted(own_postgres: OwnServer) -> None:
    operations = Operations()
    with own_postgres.database() as name:
        address = own_postgres.address_of(name)
        with daemon_on(address, operations):
            slow = asking(address, "slow")
            operations.begun.wait()
            own_postgres.stop(at_once=True)
            operations.go_on.set()
            own_postgres.start()

            assert slow.result() == {"echo": "slow"}

    assert len(operations.seen) == 1


def test_request_under_way_is_answered_when_the_daemon_stops(postgres_address: str) -> None:
    operations = Operations()
    with daemon_on(postgres_address, operations):
        slow = asking(postgres_address, "slow")
        operations.begun.wait()

    assert slow.result() == {"echo": "slow"}


def test_request_that_nobody_took_is_performed_by_the_next_daemon(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    operations = Operations()
    postgres.run(HOLDS, database=database)
    asked = asking(postgres_address, "echo", text="later")
    wait_until(lambda: postgres.rows(COUNT, database) == [(1,)])
    # The sender never sees a moment without a daemon: it would take its request back.
    with daemon_on(postgres_address, operations, holder="a/1"):
        answer = asked.result()

    assert answer == {"echo": "later"}


def test_request_is_taken_back_when_its_daemon_ends_before_it_took_it(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    postgres.run(HOLDS, database=database)
    sent = sending(postgres_address)
    wait_until(lambda: postgres.rows(COUNT, database) == [(1,)])
    postgres.run("UPDATE slumberd_0.lease SET holder = NULL", database=database)

    raised = sent.result()

    assert isinstance(raised, NotRunningError)
    assert postgres.rows(COUNT, database) == [(0,)]


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param("holder = 'b/2'", id="another daemon"),
        pytest.param("held_until = now() - interval '6 seconds'", id="no daemon"),
    ],
)
def test_sender_learns_that_its_daemon_ended_at_work(
    postgres: PostgresServer, postgres_address: str, database: str, ends: str
) -> None:
    postgres.run(HOLDS, database=database)
    sent = sending(postgres_address)
    wait_until(lambda: postgres.rows(COUNT, database) == [(1,)])
    postgres.run("UPDATE slumberd_0.requests SET holder = 'a/1'", database=database)
    postgres.run(f"UPDATE slumberd_0.lease SET {ends}", database=database)

    raised = sent.result()

    assert type(raised) is StoreError
    assert "the daemon a/1 ended while it performed the request, which may be done" in str(raised)
    assert postgres.rows(COUNT, database) == [(1,)]


def test_request_that_a_daemon_gives_back_with_its_shard_is_performed_by_the_next(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    operations = Operations()
    postgres.run(HOLDS, database=database)
    postgres.run("INSERT INTO slumberd.hosts VALUES ('a/1', now(), '{}')", database=database)
    asked = asking(postgres_address, "echo", text="late")
    wait_until(lambda: postgres.rows(COUNT, database) == [(1,)])
    postgres.run("UPDATE slumberd_0.requests SET holder = 'a/1'", database=database)
    postgres.run(
        "UPDATE slumberd_0.lease SET holder = 'b/2', last_holder = 'a/1', released_at = now()",
        database=database,
    )
    with daemon_on(postgres_address, operations, holder="b/2"):
        ask_database(Shard(0, postgres_address), "echo", {"text": "between"})
        postgres.run("UPDATE slumberd_0.requests SET holder = NULL", database=database)
        answer = asked.result()

    assert answer == {"echo": "late"}
    assert [request["text"] for request in operations.seen] == ["between", "late"]


async def result_after_a_stop(address: str, operation: str) -> object:
    """Ask for an operation that fails while its shard is given up, and serve the shard again."""
    shard, served = Shard(0, address), ServedShards()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def end_with_the_shard(_: dict[str, Any], __: Caller) -> Answer:
        begun.set()
        await ended.wait()
        raise StoppedError("the store was stopped")

    async def answer(_: dict[str, Any], __: Caller) -> Answer:
        return {"answered": "later"}

    tenure = DatabaseTenure(shard, address, SystemClock(), seconds=3, is_daemon=True)
    async with tenure, answer_requests(served, holder=tenure.name):
        async with served.serve(shard, {operation: end_with_the_shard}):
            asked = asking(address, operation)
            await begun.wait()
            asyncio.get_running_loop().call_soon(ended.set)  # when the shard is no longer served
        async with served.serve(shard, {operation: answer}):
            return await asyncio.to_thread(asked.result)


async def test_read_that_failed_since_its_shard_was_given_up_is_answered_by_the_next_daemon(
    postgres_address: str,
) -> None:
    assert await result_after_a_stop(postgres_address, "outcome") == {"answered": "later"}


async def test_change_that_failed_since_its_shard_was_given_up_is_not_repeated(
    postgres_address: str,
) -> None:
    assert isinstance(await result_after_a_stop(postgres_address, "undo"), RefusedError)


def test_daemon_performs_no_request_whose_sender_has_ended_long_ago(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    operations = Operations()
    line = orjson.dumps({"version": 1, "operation": "echo", "text": "old"}).decode()
    postgres.run(
        "INSERT INTO slumberd_0.requests (operation, request, host, requested_at)"
        f" VALUES ('echo', '{line}', 'me', now() - interval '11 seconds')",
        database=database,
    )

    with daemon_on(postgres_address, operations):
        ask_database(Shard(0, postgres_address), "echo", {"text": "new"})

    assert [request["text"] for request in operations.seen] == ["new"]


def test_daemon_that_lost_the_database_takes_no_request(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    old, new = Operations(), Operations()
    with daemon_on(postgres_address, old, holder="a/1"), daemon_on(postgres_address, new):
        for number in range(20):
            ask_database(Shard(0, postgres_address), "echo", {"text": str(number)})

    assert (len(old.seen), len(new.seen)) == (0, 20)


def test_old_answers_are_removed_and_work_under_way_is_kept(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    postgres.run(
        "INSERT INTO slumberd_0.requests"
        " (operation, request, host, holder, requested_at, answered_at)"
        " VALUES ('answered', '', 'me', 'a/1', now() - interval '2 hours', now() - interval '2 h'),"
        " ('fresh', '', 'me', 'a/1', now() - interval '2 hours', now()),"
        " ('working', '', 'me', 'a/1', now() - interval '2 hours', NULL),"
        " ('of another', '', 'me', 'b/2', now() - interval '2 hours', NULL),"
        " ('untaken', '', 'me', NULL, now() - interval '2 hours', NULL)",
        HOLDS,
        database=database,
    )

    with daemon_on(postgres_address, Operations(), holder="a/1"):
        ask_database(Shard(0, postgres_address), "echo", {})

    left = postgres.rows("SELECT operation FROM slumberd_0.requests ORDER BY number", database)
    assert left == [("fresh",), ("working",)]
