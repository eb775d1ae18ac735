"""The settings of the HTTP interface."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slumberd.config.validation import FilePath, Form

ADDRESS = r"^(\[[0-9a-fA-F:.]+\]|[^\s\[\]:]+):[0-9]{1,5}$"
"""A host or an address, and a port; an IPv6 address stands in brackets."""


HOST = r"^(?P<name>\[[0-9a-fA-F:.]+\]|[^\s\[\]:/?#@*\\]+)(:(?P<port>[0-9]{1,5}))?$"
"""A host, with or without a port, as in the header ``Host``."""


def listens_everywhere(address: str) -> bool:
    """Return whether an address with a port means all networks of the machine."""
    try:
        return ip_address(address.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:  # a name
        return False


_MOST_PORT = 65_535


def _check_port(address: str) -> str:
    if int(address.rpartition(":")[2]) > _MOST_PORT:
        raise ValueError(f"a port is at most {_MOST_PORT}")
    return address


def _check_host(host: str) -> str:
    found = re.match(HOST, host)
    if found is None:
        raise ValueError(f"{host!r} is no host; write a name such as memory.example.com")
    try:
        ip_address(found["name"].strip("[]"))
    except ValueError:
        if host.startswith("["):
            raise ValueError(f"{host!r} has no IPv6 address in its brackets") from None
    return host


Address = Annotated[str, Field(pattern=ADDRESS), AfterValidator(_check_port)]

Host = Annotated[str, AfterValidator(_check_host)]

_MEBIBYTE = 1_048_576


class ServeSettings(Form):
    """The HTTP interface; it needs the extra ``serve``.

    Attributes:
        enabled: Whether the daemon serves HTTP. Default: false.
        socket: A unix socket, in the directory of the control socket. Its users have all rights, as
            on the control socket. null means none. Default: ``http.sock``.
        socket_mode: The mode of the socket: ``660`` (default) lets the group connect, ``600`` only
            the owner.
        address: A host and a port, such as ``127.0.0.1:8750`` or ``[::1]:8750``; callers need a
            token. Use ``0.0.0.0`` only behind a proxy with TLS. null (default) means none.
        tokens_file: The file of tokens, which ``slumberd token new`` makes lines for. Its mode is
            600. A relative path is relative to $CREDENTIALS_DIRECTORY. null (default) means none.
        console: Whether the daemon serves the web console under ``/console``. People sign in with a
            token, or over the socket as an account of the host. Default: true.
        hosts: Names under which clients and proxies reach the daemon, such as
            ``memory.example.com``; with a port, only that one. ``localhost``, ``127.0.0.1``,
            ``[::1]``, ``slumberd`` and the host of ``address`` are always served. Default: none.
        allowed_hosts: The older name of ``hosts``; its values count, too. Default: none.
        allowed_origins: Values of the header ``Origin`` that are answered beside the daemon's own
            hosts, such as ``https://agents.example.com``; never by the console. Default: none.
        max_body_bytes: The largest body of a request, 1024 to 67108864. Default: 4194304.
        max_connections: Connections of the network at a time, and as many of the unix socket, 1 to
            10000. Default: 256.
        max_requests: Requests at a time, 2 to 1000. One caller may have half of the places that
            others leave, and a quarter is kept for operators. Streams have as many places of their
            own, and callers without a token half as many. Default: 64.
        timeout_seconds: How long a client may take to send a request, or to read an answer, and how
            long an operation may only read, 0.1 to 3600. Default: 30.
    """

    enabled: bool = False
    socket: FilePath | None = Path("http.sock")
    socket_mode: Literal[600, 660] = 660
    address: Address | None = None
    tokens_file: FilePath | None = None
    console: bool = True
    hosts: list[Host] = Field(default_factory=list)
    allowed_hosts: list[str] = Field(default_factory=list)
    allowed_origins: list[str] = Field(default_factory=list)
    max_body_bytes: int = Field(default=4 * _MEBIBYTE, ge=1024, le=64 * _MEBIBYTE)
    max_connections: int = Field(default=256, ge=1, le=10_000)
    max_requests: int = Field(default=64, ge=2, le=1_000)
    timeout_seconds: float = Field(default=30.0, ge=0.1, le=3600, allow_inf_nan=False)
