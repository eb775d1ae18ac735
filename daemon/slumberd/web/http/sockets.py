"""Open the sockets that the HTTP interface listens on."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import structlog

from slumberd.daemon.control_socket import remove_dead, short_path
from slumberd.model.errors import ListenError
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import listens_everywhere

_MODES = {600: 0o600, 660: 0o660}
_log = structlog.get_logger("slumberd")


@contextmanager
def open_sockets(settings: Settings) -> Iterator[dict[str, socket.socket]]:
    """Yield the sockets of the configuration by their place; they listen when the server does.

    Raises:
        ListenError: A socket cannot be opened.
        StoreError: Another program listens on the unix socket.
    """
    path, address = settings.http_socket_path, settings.serve.address
    with ExitStack() as stack:
        found: dict[str, socket.socket] = {}
        if path is not None:
            mode = _MODES[settings.serve.socket_mode]
            found[str(path)] = stack.enter_context(_unix_socket(path, mode))
        if address is not None:
            opened = stack.enter_context(_network_socket(address))
            found[f"{address.rpartition(':')[0]}:{opened.getsockname()[1]}"] = opened
        yield found


@contextmanager
def _unix_socket(path: Path, mode: int) -> Iterator[socket.socket]:
    try:
        with short_path(path.parent, path.name) as short:
            _check_place(short, path)
            remove_dead(short, path)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
                opened.bind(short)
                try:
                    # Nobody can connect yet: the socket does not listen.
                    Path(short).chmod(mode)
                    yield opened
                finally:
                    Path(short).unlink(missing_ok=True)
    except OSError as error:
        raise ListenError(str(path), error.strerror or str(error)) from error


def _check_place(short: str, path: Path) -> None:
    """Check that nothing but an old socket would be replaced."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(short).st_mode):
            raise ListenError(str(path), "another file is there")


@contextmanager
def _network_socket(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    try:
        [family, kind, _, _, where] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind)
    except (OSError, OverflowError) as error:
        raise ListenError(address, str(error)) from error
    with opened:
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(where)
        except (OSError, OverflowError) as error:
            raise ListenError(address, getattr(error, "strerror", None) or str(error)) from error
        bound = opened.getsockname()
        if listens_everywhere(f"{bound[0]}:{bound[1]}"):
            _log.warning("http.exposed", address=address)
        yield opened
