"""Refuse the requests of web pages of other sites, on every interface of the HTTP port.

A page can let its visitor's browser send requests to any address, and can let its own host name
mean this machine. The browser says in ``Host``, ``Origin`` and ``Sec-Fetch-Site`` which page sends
a request, and asks before a page sends another type of body than that of a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from slumberd.model.errors import NotAllowedError, UnknownHostError, UsageError
from slumberd.rules.settings_schema import HOST, ServeSettings, listens_everywhere

CONSOLE = "/console"
"""The path of the web console, which asks people to sign in."""

TRACES = "/v1/traces"
"""The path that takes traces."""

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names that mean this machine in every browser, so no page can have them on another one."""

_BY_SOCKET = "slumberd"
"""The name in addresses of programs that use the unix socket."""

_PORTS = ":*"
_OWN_SITES = ("same-origin", "none")
_WITH_BODY = ("POST", "PATCH")
_HOST = re.compile(HOST)
_NO_HOST = ("", "")


def is_console(path: str) -> bool:
    """Return whether a path belongs to the web console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def is_local(headers: Headers) -> bool:
    """Return whether a request names this machine as no page of another site can.

    Only then does the account at the other end of the unix socket count.
    """
    host = headers.get("host", "").lower()
    return host == _BY_SOCKET or _split(host)[0] in _LOCAL


class PageChecks:
    """Checks whose page sends a request, and the type of its body."""

    def __init__(self, serve: ServeSettings) -> None:
        own = [] if serve.address is None else [serve.address.rpartition(":")[0]]
        self._any_address = serve.address is not None and listens_everywhere(serve.address)
        older = [host.removesuffix(_PORTS) for host in serve.allowed_hosts]
        self._hosts = {_split(host.lower()) for host in (*own, *serve.hosts, *older)}
        self._hosts.discard(_NO_HOST)
        self._hosts |= {(name, "") for name in (*_LOCAL, _BY_SOCKET)}
        self._origins = [origin.lower() for origin in serve.allowed_origins]

    def check(self, scope: Scope, headers: Headers) -> None:
        """Check the headers of a request.

        Raises:
            NotAllowedError: A page of another site sends it.
            UnknownHostError: Its host is not served.
            UsageError: Its body has another type than its path takes.
        """
        host = headers.get("host", "").lower()
        if not self._serves(host):
            raise UnknownHostError(host)
        self._check_page(scope, headers, host)
        _check_type(scope, headers)

    def _serves(self, host: str) -> bool:
        name, port = _split(host)
        if (name, "") in self._hosts or (name, port) in self._hosts:
            return True
        # Of all addresses of the machine, each is its own; a page needs a name to mislead.
        return self._any_address and _is_address(name)

    def _check_page(self, scope: Scope, headers: Headers, host: str) -> None:
        """Check that no page sends a request, or one of this host or of a listed origin.

        Raises:
            NotAllowedError: Another page sends it; or a form does not say whose it is.
        """
        console = is_console(scope["path"])
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None:
            if not console and _is_listed(origin.lower(), self._origins):
                return
            if not _is_own(origin.lower(), host):
                raise _foreign(f"its origin is {origin!r}, and its host {host!r}")
        if site is None:
            if origin is None and console and scope["method"] == "POST":
                raise _foreign("it has neither Origin nor Sec-Fetch-Site")
        elif site not in _OWN_SITES and not (console and _is_link(scope, headers)):
            raise _foreign(f"Sec-Fetch-Site is {site!r}")


def _foreign(why: str) -> NotAllowedError:
    remedy = "open the page again; a proxy must pass the headers Host and Origin"
    return NotAllowedError("the request", f"comes from another site: {why}; {remedy}")


def _is_own(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


def _is_listed(origin: str, listed: Iterable[str]) -> bool:
    """Return whether an origin is listed, by its port or by ``:*`` for every port."""
    any_port = re.sub(r":[0-9]+$", "", origin) + _PORTS
    return origin in listed or any_port in listed


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a person follows a link: the page that links cannot read what it leads to."""
    seen = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return scope["method"] in ("GET", "HEAD") and seen == ("navigate", "document")


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of a host; both empty for what is no host."""
    found = _HOST.match(host)
    if found is None:
        return _NO_HOST
    name = found["name"].strip("[]")
    return (str(ip_address(name)) if _is_address(name) else name), found["port"] or ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_type(scope: Scope, headers: Headers) -> None:
    """Check the type of a body, also of an empty one: a page may send it without asking.

    Raises:
        UsageError: It is not the one that the path takes.
    """
    if scope["method"] not in _WITH_BODY or scope["path"] == TRACES:  # traces have errors of OTLP
        return
    wanted = FORM if is_console(scope["path"]) else JSON
    sent = media_type(headers)
    if sent != wanted:
        raise UsageError(f"the body is of the type {sent!r}; send {wanted} as Content-Type")


def media_type(headers: Headers) -> str:
    """Return the type of a body, without its parameters; empty when the request has none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
