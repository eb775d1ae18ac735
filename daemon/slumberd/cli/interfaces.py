"""Choose what the daemon serves beside the control socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial

from slumberd.config.settings import Settings
from slumberd.errors import ExtraMissingError
from slumberd.service.interfaces import Interface

Listening = Callable[[Sequence[socket.socket]], None]
"""Is told the sockets of HTTP, when clients can connect."""


def interfaces_of(settings: Settings, listening: Listening | None = None) -> Sequence[Interface]:
    """Return the interfaces that the configuration enables.

    Args:
        settings: The configuration.
        listening: Is told the sockets of HTTP; None tells nobody.

    Raises:
        ExtraMissingError: The extra ``serve`` is needed, and not installed.
    """
    return [_http(settings, listening)] if settings.serve.enabled else []


def _http(settings: Settings, listening: Listening | None) -> Interface:
    try:
        from slumberd.api.mcp_server import open_mcp
        from slumberd.api.server import serve_http
        from slumberd.api.traces import serve_traces
        from slumberd.console.app import console_route
    except ImportError as error:
        raise ExtraMissingError("serve", "HTTP cannot be served") from error
    pages = console_route if settings.serve.console else None
    return partial(
        serve_http, extensions=[open_mcp, serve_traces], pages=pages, listening=listening
    )
