"""Whoever signs in sees a page at once, and opens every page of the menu."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

import httpx
import pytest

from slumberd.operations.caller import Right
from tests.support.console_people import Person
from tests.support.http_daemon import Entry, HttpDaemon, http_daemon, write_tokens
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

RIGHTS = [
    rights
    for size in range(1, len(Right) + 1)
    for rights in combinations([right.value for right in Right], size)
]
ENTRIES: dict[str, Entry] = {
    f"{'one user' if user else 'any user'}: {', '.join(rights)}": {
        "rights": [*rights],
        **({"user": "ana"} if user else {}),
    }
    for rights in RIGHTS
    for user in (False, True)
    if not (user and "operate" in rights)
}
SEES_NOTHING = {name for name in ENTRIES if name.endswith(": write")}
"""A token that may only write finds no page."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("menu") / "home") as running:
        running.tokens |= write_tokens(running.home.folder / "tokens.yaml", ENTRIES)
        yield running


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", ENTRIES)
def test_first_page_and_menu_open(daemon: HttpDaemon, name: str) -> None:
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE_SECONDS) as client:
        person = Person(client, daemon.url)
        signed_in = person.send(person.go("/sign-in").form(), token=daemon.tokens[name])

        first = person.follow(signed_in)
        while first.to:
            first = person.follow(first)
        nav = first.html.partition("<nav")[2].partition("</nav>")[0]
        menu = re.findall(r'href="([^"]*)"', nav)

        assert (first.status == 200) == (name not in SEES_NOTHING), first.text
        assert first.status == 200 or "has no right" in first.text
        assert bool(menu) == (name not in SEES_NOTHING)
        for page in menu:
            person.read(page)
