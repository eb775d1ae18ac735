"""The first page shows what was learned; each of its numbers leads to what it counts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slumberd.daemon.interfaces import Served
from slumberd.model.episode import Episode
from slumberd.model.health import DaemonHealth, RuleHealth, RuleStatus
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Dispatcher, Handler, Operation
from slumberd.operations.registry import OPERATIONS
from slumberd.web.console.pages import today
from slumberd.web.console.rendering import Renderer
from slumberd.web.console.visit import BrowserSession, View, Visit
from tests.support.builders import at, triple
from tests.support.console_homes import (
    HOSTILE,
    assert_shows,
    console_daemon,
    fresh_id,
    hold,
    learn,
    reject_all,
    unreadable,
)
from tests.support.console_people import PageParser, Person, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance


REMOVAL = {"intent": "delete", "replaces": "ana-2"}


def says(id: str, user: str, object: str, **fields: Any) -> Episode:
    """Return an episode of a user with a fact that no other episode replaces."""
    return triple(id, user, f"drinks-{id}", object, user=user, **fields)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    """A daemon that learned six facts of two users, changed one, and forgot one."""
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        learn(
            running,
            *(says(f"ana-{number}", "ana", f"tea {number}") for number in range(3)),
            says("bob-1", "bob", "coffee"),
            says("bob-2", "bob", "secret cocoa"),
            says("hostile", HOSTILE, HOSTILE),
            unreadable("broken"),
        )
        learn(
            running,
            says("ana-0", "ana", "green tea", timestamp=at(1)),
            says("gone", "ana", "tea", timestamp=at(1), metadata=REMOVAL),
        )
        yield running


@pytest.fixture(scope="module")
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


@pytest.fixture(scope="module")
def reader(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "reader") as person:
        yield person


@pytest.fixture
def healthy() -> DaemonHealth:
    return DaemonHealth(
        at=at(0),
        uptime_seconds=60.0,
        loop_lag_seconds=0.0,
        wal_bytes=0,
        rss_bytes=None,
        dropped=0,
        loaded=0,
        rules=[],
        oldest_seconds=None,
        next_at=None,
        succeeded_at=None,
        quarantined=0,
        held=0,
    )


def rows_of(person: Person, address: str) -> int:
    """Return how many changes a page and its next pages list."""
    seen = person.go(address)
    assert seen.status == 200, seen.text
    count = len(re.findall("<tr><td>", seen.html))
    following = seen.page.links.get("Next page")
    return count + (rows_of(person, following) if following else 0)


@pytest.mark.path
def test_page_counts_what_was_learned_changed_and_forgotten(operator: Person) -> None:
    seen = operator.go("/today")

    for words in ("6 learned", "1 changed", "1 retracted", "1 quarantined"):
        assert words in seen.text


@pytest.mark.parametrize(
    ("name", "query"),
    [("operator", {}), ("operator", {"days": 200}), ("operator", {"user": "bob"}), ("reader", {})],
)
def test_each_number_leads_to_as_many_changes(
    daemon: HttpDaemon, name: str, query: dict[str, str]
) -> None:
    with signed_in(daemon, name) as person:
        html = person.go("/today", **query).html
        counted = re.findall(r'href="(/console/changes[^"]*counted=[^"]*)">(?:<b>)?(\d+)<', html)

        assert len(counted) > 3
        for address, number in counted:
            assert rows_of(person, address.replace("&amp;", "&")) == int(number), address


def test_bar_of_a_day_leads_to_the_changes_of_the_day(operator: Person) -> None:
    seen = operator.go("/today")
    numbers = ": 6 learned, 1 changed, 1 retracted"
    [address] = [to for words, to in seen.page.links.items() if numbers in words]

    assert rows_of(operator, address) == 8


def test_operator_sees_rules_users_and_largest_changes(operator: Person) -> None:
    seen = operator.go("/today")

    assert seen.page.links["all"].startswith("/console/rule?")
    assert seen.page.links["bob"] == "/console/user?user=bob"
    assert [to for to in seen.page.links.values() if to.startswith("/console/firing?id=all%40")]


def test_each_number_of_a_large_change_leads_to_its_firing(operator: Person) -> None:
    html = operator.go("/today").html
    largest = html[html.index('aria-label="Largest changes"') :]
    rows = re.findall(r"<tr>.*?</tr>", largest, re.DOTALL)[1:]

    for row in rows:
        [firing, *numbers] = re.findall(r"(/console/firing\?id=[^\"]+)\">([^<]*)<", row)
        counted = [int(found) for found in re.findall(r"<td>(?:<a [^>]*>)?(\d+)<", row)]
        assert [int(number) for _, number in numbers] == [found for found in counted if found]
        assert {to for to, _ in numbers} == {firing[0]}
    assert rows


def test_reader_sees_the_own_day_only(reader: Person) -> None:
    seen = reader.go("/today")

    assert "3 learned" in seen.text
    assert "bob" not in seen.text
    assert not {"Approvals", "Quarantine", "Firings"} & {*seen.page.links}
    assert "Waiting for a person" not in seen.text


def test_reader_reads_no_changes_of_others(reader: Person) -> None:
    for page in ("/today", "/changes"):
        seen = reader.go(page, user="bob")

        assert seen.status == 403
        assert "cocoa" not in seen.text


def test_changes_of_a_reader_are_those_of_the_own_user(reader: Person) -> None:
    seen = reader.go("/changes")

    assert "green tea" in seen.text
    assert "cocoa" not in seen.text
    assert HOSTILE not in seen.text


def test_page_without_a_session_leads_to_the_sign_in(daemon: HttpDaemon) -> None:
    for page in ("/today", "/changes"):
        with daemon.with_token("operator") as client:
            answer = client.get(f"/console{page}?days=3")

        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/console/sign-in?next=")


def test_hostile_names_are_text(operator: Person) -> None:
    assert_shows(operator.go("/today"), HOSTILE)
    assert_shows(operator.go("/changes"), HOSTILE)
    assert_shows(operator.go("/today", user=HOSTILE), HOSTILE)
    assert_shows(operator.go("/changes", rule=HOSTILE), HOSTILE)


def test_pages_need_no_style_and_no_script(operator: Person) -> None:
    for page in ("/today", "/changes"):
        seen = operator.go(page).page

        assert "style" not in seen.tags | seen.attributes
        assert not [name for name in seen.attributes if name.startswith("on")]


def test_batch_that_awaits_approval_is_waiting(daemon: HttpDaemon, operator: Person) -> None:
    firing = hold(daemon)

    seen = operator.go("/today")
    reject_all(daemon)

    assert_shows(seen, "1 awaiting approval", firing, "this batch would delete 1 fact")
    assert "0 awaiting approval" in operator.go("/today").text


@pytest.mark.path
@pytest.mark.parametrize(
    ("page", "query", "problem"),
    [
        ("/today", {"days": "many"}, "days: 'many' is not a whole number"),
        ("/changes", {"since": "yesterday"}, "since: 'yesterday' is not an instant"),
        ("/changes", {"until": "0001-01-01T00:00:00+14:00"}, "until: "),
        ("/changes", {"counted": "eaten"}, "counted: 'eaten' is none of learned, changed"),
        ("/changes", {"after": "x", "firing": "all@2"}, "after: 'x' is not a whole number"),
    ],
)
def test_malformed_field_is_reported(
    operator: Person, page: str, query: dict[str, str], problem: str
) -> None:
    seen = operator.go(page, **query)

    assert seen.status == 400
    assert problem in seen.text


@pytest.mark.parametrize("days", ["0", "-3", "100000"])
def test_days_out_of_range_are_brought_into_it(operator: Person, days: str) -> None:
    assert operator.go("/today", days=days).status == 200


def test_changes_of_a_large_firing_are_on_several_pages(
    daemon: HttpDaemon, operator: Person
) -> None:
    user = fresh_id()
    learn(daemon, *(says(fresh_id(), user, f"tea {number}") for number in range(250)))

    first = operator.go("/changes", user=user)

    assert "Next page" in first.page.links
    assert rows_of(operator, f"/changes?user={user}") == 250


def test_changes_of_the_future_are_none(operator: Person) -> None:
    assert "Nothing changed." in operator.go("/changes", since="2999-01-01").text


def show_with(health: DaemonHealth) -> str:
    """Return the page of a daemon with a health, and with the documented answers of operations."""

    async def find_health() -> DaemonHealth:
        return health

    def answering(operation: Operation[Any]) -> Handler:
        async def answer(_: Answer, __: Caller) -> Answer:
            return dict(operation.example.answer)

        return answer

    handlers = {
        one.name: answering(one)
        for one in (OPERATIONS["report"], OPERATIONS["held"], OPERATIONS["rules"])
    }
    visit = Visit(
        served=cast("Served", SimpleNamespace(dispatcher=Dispatcher(handlers), health=find_health)),
        caller=Caller.here(),
        session=BrowserSession(None, 0, 0.0),
        path="/today",
        fields={},
    )
    view = asyncio.run(today.show_today(visit))
    assert isinstance(view, View)
    frame: dict[str, Any] = {
        "title": view.title,
        "caller": None,
        "menu": [],
        "here": "",
        "form_secret": "",
    }
    return Renderer({}).render(view.template, {**view.values, **frame})


def test_late_rules_are_named_with_how_late_they_are(healthy: DaemonHealth) -> None:
    rules = [
        RuleHealth(RuleStatus("hourly", pending=7, due_at=at(0), late_seconds=3_720.0)),
        RuleHealth(RuleStatus("punctual", pending=0)),
        RuleHealth(RuleStatus("nightly", due_at=at(0), late_seconds=90_000.0)),
    ]

    text = PageParser(show_with(replace(healthy, rules=rules))).text

    assert "2 late" in text
    assert re.search("nightly 1 d 1 h .*hourly 1 h 2 min .* 7", text)
    assert "punctual" not in text


def test_share_of_the_episodes_that_became_facts_is_shown(healthy: DaemonHealth) -> None:
    seen = PageParser(show_with(healthy))

    assert "learned something from 31 of the last 100 episodes that they read (31 %)" in seen.text
    assert re.search("home 100 31 60 8 1 0", seen.text)
    assert "/console/firings?rule=home" in seen.links.values()


@pytest.mark.path
def test_operator_sees_how_much_became_facts_and_a_reader_does_not(
    operator: Person, reader: Person
) -> None:
    assert "What became facts" in operator.go("/today").text
    assert "What became facts" not in reader.go("/today").text


def test_daemon_without_late_rules_lists_none(healthy: DaemonHealth) -> None:
    text = PageParser(show_with(healthy)).text

    assert "0 late" in text
    assert "Late for" not in text
