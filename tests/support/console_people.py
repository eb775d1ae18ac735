"""A person at the web console: an HTTP client that keeps cookies, sends forms, and reads pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.support.http_daemon import HttpDaemon

_SECRET = re.compile(r'name="form_secret" value="([^"]+)"')


@dataclass
class Person:
    """Somebody who is signed in.

    Attributes:
        client: Keeps the cookies.
        origin: The header that the browser sends with each form.
    """

    client: httpx.Client
    origin: str

    def get(self, page: str, **fields: Any) -> httpx.Response:
        """Open a page; follow where it leads."""
        return self.client.get(f"/console/{page}", params=fields, follow_redirects=True)

    def read(self, page: str, **fields: Any) -> str:
        """Return the HTML of a page that must open."""
        answer = self.get(page, **fields)
        assert answer.status_code == 200, text_of(answer.text)
        return answer.text

    def post(self, page: str, fields: Mapping[str, Any], **headers: str) -> httpx.Response:
        """Send a form as it is; do not follow where it leads."""
        return self.client.post(
            f"/console/{page}", data=dict(fields), headers={"Origin": self.origin, **headers}
        )

    def secret(self) -> str:
        """Return what every form of this session sends back."""
        found = _SECRET.search(self.get("search").text)
        assert found is not None
        return found[1]

    def preview(self, change: str, reason: str = "a test", **fields: Any) -> httpx.Response:
        """Ask for a change; return the page with its dry run."""
        given = {"form_secret": self.secret(), "change": change, "reason": reason, **fields}
        return self.post("change", given)

    def change(self, change: str, reason: str = "a test", **fields: Any) -> httpx.Response:
        """Ask for a change, and confirm it; return the answer to the confirmation."""
        shown = self.preview(change, reason, **fields)
        assert shown.status_code == 200, text_of(shown.text)
        return self.confirm(shown.text)

    def confirm(self, html: str) -> httpx.Response:
        """Send the form of a preview."""
        return self.post("change", hidden_fields(html, "/console/change"))


@contextmanager
def signed_in(daemon: HttpDaemon, name: str) -> Iterator[Person]:
    """Yield the person with the token of a name."""
    with httpx.Client(base_url=daemon.url, timeout=60) as client:
        person = Person(client, daemon.url)
        answer = person.post("sign-in", {"token": daemon.tokens[name]})
        assert answer.status_code == 303, text_of(answer.text)
        yield person


class _Forms(HTMLParser):
    """Collects the hidden fields of forms, by the address that they are sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str]] = {}
        self._current: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._current = self.found.setdefault(given.get("action", ""), {})
        elif tag == "input" and given.get("type") == "hidden":
            self._current[given["name"]] = given.get("value", "")


def hidden_fields(html: str, action: str) -> dict[str, str]:
    """Return the hidden fields of the forms that a page sends to an address."""
    forms = _Forms()
    forms.feed(html)
    return forms.found[action]


def text_of(html: str) -> str:
    """Return what a page says, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
