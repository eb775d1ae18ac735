"""Answer the requests of browsers: find out who asks, let a page answer, and protect the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Scope

from slumberd.daemon.interfaces import Served
from slumberd.model.errors import NotAllowedError, NotAuthenticatedError, SlumberdError, UsageError
from slumberd.operations.caller import Caller
from slumberd.web.console.pages import PAGES, start_of
from slumberd.web.console.rendering import (
    ROOT,
    STATIC,
    Fields,
    Renderer,
    is_own,
    link,
    read_static,
    shown_shard,
)
from slumberd.web.console.visit import (
    COOKIE,
    SIGN_IN,
    BrowserSession,
    ConsolePage,
    Redirect,
    Shown,
    SignIn,
    View,
    Visit,
    find_session,
    place_of,
)
from slumberd.web.http.access import Access
from slumberd.web.http.gate import PersonOf
from slumberd.web.http.limits import RefusalCounter
from slumberd.web.http.problems import status_of, title_of

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer. No page may be framed, cached, or run what it does not serve."""

_KEPT = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
_MOST_FIELDS = 1_000
_FAILED = "the daemon failed, which is a bug; see its log"
_FOREIGN = (
    "the form",
    "comes from a session that has ended, or from another site; open its page again, and send it",
)

_log = structlog.get_logger("slumberd")

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a caller of operations, and the session in the browser."""

    caller: Caller
    session: BrowserSession


def console_route(
    served: Served, access: Access, refused: RefusalCounter
) -> tuple[BaseRoute, PersonOf]:
    """Return the route of the console, and what finds out who is signed in to it.

    Args:
        access: Finds out whose a token is.
        refused: Counts refused attempts to sign in, by where they came from.
    """
    console = Console(served, access, refused)
    return Mount(ROOT, routes=console.routes()), console.caller_in


class Console:
    """Answers every request under ``/console``.

    Args:
        access: Finds out whose a token is.
        refused: Counts refused attempts to sign in, by where they came from.
    """

    def __init__(self, served: Served, access: Access, refused: RefusalCounter) -> None:
        self._served = served
        self._refused = refused
        self._sign_in = SignIn(access, served.clock)
        self._renderer = Renderer({})

    def routes(self) -> list[Route]:
        """Return the routes, below the root of the console."""
        return [
            Route("/", self._guarded(self._show_start)),
            Route("/static/{version}/{name}", _answer_static),
            Route(SIGN_IN, self._guarded(self._answer_sign_in), methods=["GET", "POST"]),
            Route("/sign-out", self._guarded(self._answer_sign_out), methods=["POST"]),
            *(
                Route(page.path, self._guarded(self._endpoint(page)), methods=_methods_of(page))
                for page in PAGES
            ),
            Route("/{other:path}", self._guarded(self._answer_unknown)),
        ]

    def caller_in(self, scope: Scope) -> Caller | None:
        """Return who is signed in; None for nobody."""
        try:
            return self._person(Request(scope)).caller
        except NotAuthenticatedError:
            return None

    def _guarded(self, answer: Endpoint) -> Endpoint:
        """Return an endpoint that answers each error with a page, and protects each answer."""

        async def guarded(request: Request) -> Response:
            try:
                response = await answer(request)
            except NotAuthenticatedError:
                response = _to_sign_in(request)
            except SlumberdError as error:
                response = await self._error(request, status_of(type(error)), error)
            except Exception as error:  # noqa: BLE001 # a bug of one page must not end the server
                _log.error("http.failed", operation=request.url.path, error=repr(error)[:500])
                response = await self._error(request, HTTPStatus.INTERNAL_SERVER_ERROR, None)
            response.headers.update(HEADERS)
            return response

        return guarded

    def _endpoint(self, page: ConsolePage) -> Endpoint:
        async def answer(request: Request) -> Response:
            person = self._person(request)
            is_sent = request.method == "POST" and page.submit is not None
            query = _given(request.query_params.multi_items())
            fields = await read_form(request) if is_sent else query
            await self._choose_shard(request, person.caller, query.get("shard"), fields.get("user"))
            visit = self._visit(page, person, fields)
            if is_sent and page.submit is not None:
                check_form(person.session, fields)
                shown = await page.submit(visit)
            else:
                shown = await page.show(visit)
            return await self._response(request, person, shown)

        return answer

    async def _choose_shard(
        self, request: Request, caller: Caller, named: str | None, user: str | None
    ) -> None:
        """Choose the shard that a page shows: that of its user, else the named one or the first.

        Raises:
            UsageError: There is no such shard.
        """
        shown_shard.set(None)
        request.state.shards = []
        if self._served.shards is None or caller.user is not None:
            return
        shards = await asyncio.to_thread(self._served.shards.numbers)
        if len(shards) == 1:
            return
        if user is not None:
            chosen = await asyncio.to_thread(self._served.shards.find, user)
        else:
            known = {str(shard): shard for shard in shards}
            if named is not None and named not in known:
                raise UsageError(f"shard: there is no shard {named[:40]!r}")
            chosen = shards[0] if named is None else known[named]
        shown_shard.set(chosen)
        request.state.shards = shards

    def _visit(self, page: ConsolePage, person: Visitor, fields: Fields) -> Visit:
        return Visit(
            served=self._served,
            caller=person.caller,
            session=person.session,
            path=page.path,
            fields={name: value for name, value in fields.items() if name != "shard"},
            shard=shown_shard.get(),
        )

    def _person(self, request: Request) -> Visitor:
        """Return who asks.

        Raises:
            NotAuthenticatedError: Nobody is signed in, or the token does not exist any more.
        """
        found = find_session(request, self._sign_in.sessions)
        if found is None:
            raise NotAuthenticatedError("nobody is signed in")
        return Visitor(self._sign_in.caller_of(found, request), found)

    async def _response(self, request: Request, person: Visitor | None, shown: Shown) -> Response:
        if isinstance(shown, Redirect):
            return RedirectResponse(shown.to, HTTPStatus.SEE_OTHER)
        values = {**shown.values, "title": shown.title, **_frame_of(request, person)}
        # In a thread: a long page must not delay a firing.
        html = await asyncio.to_thread(self._renderer.render, shown.template, values)
        return Response(html, shown.status, media_type="text/html")

    async def _error(self, request: Request, status: int, error: SlumberdError | None) -> Response:
        try:
            person: Visitor | None = self._person(request)
        except NotAuthenticatedError:
            person = None
        title = title_of(type(error)) if error else HTTPStatus(status).phrase
        values = {"message": str(error) if error else _FAILED, "status_code": status}
        return await self._response(request, person, View("error.html", title, values, status))

    async def _show_start(self, request: Request) -> Response:
        start = start_of(self._person(request).caller)
        return RedirectResponse(link(start), HTTPStatus.SEE_OTHER)

    async def _answer_sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            view = self._sign_in.show(request)
            return await self._response(request, None, view)
        fields = await read_form(request)
        try:
            secret = self._sign_in.begin(request, fields)
        except NotAuthenticatedError as error:
            self._refused.count(place_of(request))
            view = self._sign_in.show(request, problem=error.problem)
            return await self._response(request, None, view)
        to = fields.get("next", "")
        answer = RedirectResponse(to if is_own(to) else f"{ROOT}/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE, secret, path=ROOT, httponly=True, samesite="strict", secure=_is_secure(request)
        )
        return answer

    async def _answer_sign_out(self, request: Request) -> Response:
        person = self._person(request)
        check_form(person.session, await read_form(request))
        self._sign_in.sessions.end(request.cookies[COOKIE])
        answer = RedirectResponse(link(SIGN_IN), HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, path=ROOT)
        return answer

    async def _answer_unknown(self, request: Request) -> Response:
        person = self._person(request)
        values = {"message": "there is no such page", "status_code": HTTPStatus.NOT_FOUND}
        view = View("error.html", HTTPStatus.NOT_FOUND.phrase, values, HTTPStatus.NOT_FOUND)
        return await self._response(request, person, view)


def _methods_of(page: ConsolePage) -> list[str]:
    return ["GET"] if page.submit is None else ["GET", "POST"]


def _frame_of(request: Request, person: Visitor | None) -> dict[str, Any]:
    """Return what the frame of every page shows."""
    shards = getattr(request.state, "shards", [])
    if person is None:
        return {"caller": None, "menu": [], "form_secret": "", "new_form": None, "here": ""}
    here = request.url.path.removeprefix(ROOT)
    menu = [
        page
        for page in PAGES
        if page.is_in_menu_of(person.caller) and (shards or not page.of_all_shards)
    ]
    # A page that is not in the menu is about something of its own shard.
    same = here if here in {page.path for page in menu} else ""
    return {
        "here": here,
        "shards": shards,
        "same": same,
        "shard": shown_shard.get(),
        "caller": person.caller,
        "menu": menu,
        "form_secret": person.session.form_secret,
        "new_form": person.session.issue_form,
    }


def _to_sign_in(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    wanted = wanted if request.method == "GET" and wanted != f"{ROOT}/" else ""
    return RedirectResponse(link(SIGN_IN, next=wanted), HTTPStatus.SEE_OTHER)


async def read_form(request: Request) -> Fields:
    """Return the fields of a form.

    Raises:
        UsageError: The body is no form, or has too many fields.
    """
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except UnicodeDecodeError:
        raise UsageError("the form is not UTF-8") from None
    except ValueError:
        raise UsageError(f"the form has more than {_MOST_FIELDS:,} fields; send fewer") from None
    return _given(pairs)


def _given(pairs: list[tuple[str, str]]) -> Fields:
    """Return the fields that are not empty; of a field that is there twice, the last."""
    return {name: value for name, value in pairs if value != ""}


def check_form(session: BrowserSession, fields: Fields) -> None:
    """Check that a form comes from a page of this session.

    Raises:
        NotAllowedError: It does not.
    """
    if not session.allows(fields.get("form_secret", "")):
        raise NotAllowedError(*_FOREIGN)


def _is_secure(request: Request) -> bool:
    """Return whether the browser reached the console by HTTPS, which a proxy may end."""
    return request.headers.get("origin", "").startswith("https://")


async def _answer_static(request: Request) -> Response:
    """Send the stylesheet or the script; the address names its version."""
    name: str = request.path_params["name"]
    if name not in STATIC:
        return Response(status_code=HTTPStatus.NOT_FOUND, headers=HEADERS)
    return Response(read_static(name), headers=_KEPT, media_type=STATIC[name])
