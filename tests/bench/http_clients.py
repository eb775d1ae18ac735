"""Bench: from a put to its fact, while HTTP clients hold connections and read nothing."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.databases import Workshop
from tests.bench.measuring import Line, Table, at_most
from tests.bench.serving import open_daemon, put_by_sql, put_to_fact

SECTION = "http"
HELD = 1_000
PUTS_EACH = 20
"""For each time that everything is measured."""

_UNREAD = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
_HALF = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
_STATES = (b"", b"GET /v1/facts HTTP/1.1\r\nHost: localhost\r\n", _UNREAD, _HALF)
"""Nothing sent, half a head, many answers that nobody reads, and a body that does not come."""
_SERVE = {"serve": {"enabled": True, "max_connections": 2 * HELD, "timeout_seconds": 600}}


def measure(table: Table, shop: Workshop) -> None:
    """Measure puts alone and beside held connections, in turns."""
    alone: list[float] = []
    beside: list[float] = []
    with _enough_files():
        home = shop.home(shop.consolidated(shop.small), start="now", settings=_SERVE)
        with open_daemon(home), put_by_sql(home) as put:
            for turn in shop.turns():
                ids = [f"{turn}-{number}" for number in range(PUTS_EACH)]
                alone += [1e3 * put_to_fact(home, put, f"alone-{id}") for id in ids]
                with _held_connections(home.state / "http.sock"):
                    beside += [1e3 * put_to_fact(home, put, f"beside-{id}") for id in ids]
    table.add(Line(SECTION, "a put to its fact, without clients", "ms", alone))
    name = f"... beside {HELD:,} clients that read nothing"
    table.add(Line(SECTION, name, "ms", beside, bound=at_most(50)))


@contextmanager
def _held_connections(path: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for number in range(HELD):
            opened = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            opened.connect(str(path))
            opened.sendall(_STATES[number % len(_STATES)])
        yield


@contextmanager
def _enough_files() -> Iterator[None]:
    """Let this process, and the daemon that it starts, open enough files while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * HELD), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
