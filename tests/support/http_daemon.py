"""A real daemon that serves HTTP on a unix socket and on a network, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from slumberd.web.http.access import hash_of, new_token
from tests.support.daemons import Daemon, Home
from tests.support.waiting import PATIENCE_SECONDS

Entry = dict[str, Any]

TENANTS: Mapping[str, Entry] = {
    "ana": {"user": "ana", "rights": ["read", "write", "erase"]},
    "bob": {"user": "bob", "rights": ["read", "write", "erase"]},
    "reader": {"user": "ana", "rights": ["read"]},
    "operator": {"rights": ["read", "write", "erase", "operate"]},
}
"""The entries of the file of tokens, by name."""


@dataclass
class HttpDaemon:
    """A daemon that serves HTTP.

    Attributes:
        home: Its state directory.
        daemon: Its process.
        port: The port on 127.0.0.1.
        tokens: A token for each name of `TENANTS`.
        shards: How many shards its database has; 1 for files.
    """

    home: Home
    daemon: Daemon
    port: int
    tokens: dict[str, str] = field(default_factory=dict)
    shards: int = 1

    @property
    def socket(self) -> Path:
        return self.home.state / "http.sock"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def by_socket(self, **headers: str) -> Iterator[httpx.Client]:
        """Yield a client on the unix socket, who is an operator."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(
            transport=transport,
            base_url="http://localhost",
            headers=headers,
            timeout=PATIENCE_SECONDS,
        ) as client:
            yield client

    @contextmanager
    def with_token(self, name: str) -> Iterator[httpx.Client]:
        """Yield a client on the network, with the token of a name."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
            yield client


def write_tokens(file: Path, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Write a file of tokens with new tokens; return the tokens by name."""
    tokens = {name: new_token() for name in entries}
    write_entries(
        file, [{"name": name, "sha256": hash_of(tokens[name]), **entries[name]} for name in entries]
    )
    return tokens


def write_entries(file: Path, entries: list[Entry]) -> None:
    """Write a file of tokens, for its owner only."""
    fresh = file.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(orjson.dumps({"tokens": entries}))
    fresh.replace(file)


@contextmanager
def http_daemon(folder: Path, *, store: str | None = None, **serve: Any) -> Iterator[HttpDaemon]:
    """Run a daemon that serves HTTP while the block runs.

    Args:
        folder: A directory for it.
        store: The address of a database; None for files.
        serve: Further keys of the section ``serve``.
    """
    folder.mkdir(exist_ok=True)
    file = folder / "tokens.yaml"
    tokens = write_tokens(file, TENANTS)
    section = {
        "enabled": True,
        "address": "127.0.0.1:0",
        "tokens_file": str(file),
        **serve,
    }
    database = {} if store is None else {"store": store}
    home = Home(folder, {"serve": section, **database})
    home.rule("all", cadence={"every": 1})
    with home.daemon() as daemon:
        where = [event["where"] for event in daemon.seen if event["event"] == "http.listening"]
        ports = [int(place.rpartition(":")[2]) for place in where if not place.startswith("/")]
        yield HttpDaemon(home, daemon, ports[0], tokens)
