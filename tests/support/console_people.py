"""A person at the web console: opens pages, reads them, and sends their forms, without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.support.http_daemon import HttpDaemon
from tests.support.waiting import PATIENCE_SECONDS

_INLINE = ("a", "b", "bdi", "code", "strong", "span", "time", "q")


@dataclass
class Form:
    """A form of a page.

    Attributes:
        action: Where it is sent.
        method: ``get`` or ``post``.
        fields: The values of its inputs, by name.
    """

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class PageParser(HTMLParser):
    """Reads what a page says.

    Attributes:
        text: The text that a person sees, with single blanks.
        links: The addresses of the links, by their text; of links with one text, the last one.
        addresses: The addresses of all links.
        forms: The forms.
        tags: The names of all elements.
        attributes: The names of all attributes.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.addresses: set[str] = set()
        self.forms: list[Form] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self._words: list[str] = []
        self._link: tuple[str, list[str]] | None = None
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        return " ".join("".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes.update(values)
        if tag == "a":
            self._link = (values.get("href", ""), [])
            self.addresses.add(self._link[0])
        elif tag == "form":
            self.forms.append(Form(values.get("action", ""), values.get("method", "get")))
        elif tag == "input" and "name" in values and self.forms:
            self.forms[-1].fields[values["name"]] = values.get("value", "")
        if tag not in _INLINE:
            self._words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            address, words = self._link
            self.links[" ".join("".join(words).split())] = address
            self._link = None

    def handle_data(self, data: str) -> None:
        self._words.append(data)
        if self._link is not None:
            self._link[1].append(data)


class Seen:
    """An answer of the console, as a person sees it.

    Attributes:
        answer: The answer.
        page: What it says.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.page = PageParser(answer.text)

    @property
    def status(self) -> int:
        return self.answer.status_code

    @property
    def html(self) -> str:
        return self.answer.text

    @property
    def text(self) -> str:
        return self.page.text

    @property
    def to(self) -> str:
        """The address that the browser goes to next; empty when it stays."""
        return str(self.answer.headers.get("location", ""))

    def form(self, **fields: str) -> Form:
        """Return the only form that has these fields."""
        [found] = [form for form in self.page.forms if fields.items() <= form.fields.items()]
        return found


class Person:
    """Somebody with a browser.

    Args:
        client: The browser, with its cookies.
        url: The scheme, host and port of the daemon.
    """

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.client = client
        self._url = url

    def go(self, address: str, **query: Any) -> Seen:
        """Open an address of the console, such as ``/console/today`` or ``/today``."""
        return Seen(self.client.get(_path(address), params=query or None))

    def read(self, address: str, **query: Any) -> Seen:
        """Open an address of the console that must show a page, there or where it leads."""
        seen = self.go(address, **query)
        while seen.to:
            seen = self.go(seen.to)
        assert seen.status == 200, seen.text
        return seen

    def send(self, form: Form, **fields: str) -> Seen:
        """Fill in the fields of a form, and send it."""
        filled = {**form.fields, **fields}
        if form.method == "get":
            return self.go(form.action, **filled)
        return self.post(form.action, filled)

    def post(self, address: str, fields: Mapping[str, str], **headers: str) -> Seen:
        """Send fields as a form of a page of the daemon does; headers may say otherwise."""
        sent = {"Origin": self._url, **headers}
        return Seen(self.client.post(_path(address), data=fields, headers=sent))

    def follow(self, seen: Seen) -> Seen:
        """Open the page that an answer leads to."""
        assert seen.status == 303, seen.text
        return self.go(seen.to)

    def confirm(self, preview: Seen) -> Seen:
        """Press the button of a preview."""
        [form] = [form for form in preview.page.forms if "form" in form.fields]
        return self.send(form)

    def secret(self) -> str:
        """Return the secret that every form of this session sends back."""
        return self.read("/search").page.forms[0].fields["form_secret"]


def _path(address: str) -> str:
    return address if address.startswith("/console") else f"/console{address}"


@contextmanager
def signed_in(daemon: HttpDaemon, name: str) -> Iterator[Person]:
    """Yield a person who signed in with the token of a name."""
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE_SECONDS) as client:
        person = Person(client, daemon.url)
        done = person.send(person.go("/sign-in").form(), token=daemon.tokens[name])
        assert done.status == 303, done.text
        yield person
