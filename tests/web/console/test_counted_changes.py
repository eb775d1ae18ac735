"""Each number of the first page leads to what it counts: of files, and of a divided database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from tests.support.accessibility import check_accessible
from tests.support.broken_disks import put
from tests.support.browser import Browser
from tests.support.builders import at, episode, triple
from tests.support.console_people import PageParser, Person, signed_in
from tests.support.http_daemon import HttpDaemon, http_daemon

pytestmark = pytest.mark.acceptance

NAMES = ("learned", "changed", "retracted", "quarantined", "marked", "unmarked")
HOSTILE = "<b>kim</b>"
USERS = ("ana", "bob", HOSTILE)
SELDOM = 1_000_000
TWICE = "We spoke of the old harbour for an hour."
"""A text that two episodes of each user have."""

COUNTED = re.compile(r'href="(/console/changes[^"]*counted=(\w+)[^"]*)"[^>]*>(?:<b>)?([\d,]+)<')


def episodes_of(user: str) -> Iterator[Episode]:
    """Yield episodes of which one cannot be read, and one says the same as another."""
    yield triple(f"{user}-tea", user, "drinks", "tea", user=user)
    for number in range(2):
        yield episode(f"{user}-{number}", content=TWICE, user=user, timestamp=at(number))
    nonsense = {"object": "tea", "intent": "nonsense"}
    yield episode(f"{user}-odd", content=f"odd {user}", user=user, metadata=nonsense)


def call(daemon: HttpDaemon, path: str, **fields: Any) -> dict[str, Any]:
    """Return the answer of an operation, asked for by an operator."""
    with daemon.with_token("operator") as client:
        answer = client.post(f"/v1/{path}", json=fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.fixture(scope="module", params=["files", "database"])
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpDaemon]:
    """A daemon that learned, marked, unmarked, and could not read something of each user."""
    folder: Path = tmp_path_factory.mktemp("counted") / "home"
    with ExitStack() as stack:
        store = None
        if request.param == "database":
            postgres = request.getfixturevalue("postgres")
            store = postgres.address_of(stack.enter_context(postgres.database()))
        running = stack.enter_context(http_daemon(folder, store=store))
        seldom = {"every": SELDOM}
        running.home.rule("all", cadence=seldom, stages=[{"dedup": {"method": "exact"}}])
        running.home.rule("other", cadence=seldom, then_emits=["work"])
        running.home.call("reload")
        put(running.home, [one for user in USERS for one in episodes_of(user)])
        fired = call(running, "firings", rules=["all", "other"])["reports"]
        for firing in (id for report in fired for id in report["firing_ids"] if "all@" in id):
            call(running, "firings/undo", firing=firing)
        yield running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def open_page(person: Person, address: str) -> str:
    """Return the HTML of a page by its address."""
    answer = person.client.get(address)
    assert answer.status_code == 200, PageParser(answer.text).text
    return answer.text


def rows_of(person: Person, address: str) -> list[str]:
    """Return the rows of changes that a page and its next pages list."""
    html = open_page(person, address)
    rows = re.findall(r"<tr><td>.*?</tr>", html, re.DOTALL)
    following = re.search(r'rel="next" href="([^"]+)"', html)
    return rows + (rows_of(person, unescape(following[1])) if following else [])


def links_in(html: str) -> list[tuple[str, str, int]]:
    """Return the address, the name and the number of each link to what a number counts."""
    return [
        (unescape(address), name, int(number.replace(",", "")))
        for address, name, number in COUNTED.findall(html)
    ]


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("name", "query"),
    [
        pytest.param("operator", {}, id="operator"),
        pytest.param("operator", {"days": "30"}, id="operator, of a month"),
        pytest.param("operator", {"user": HOSTILE}, id="operator, of one user"),
        pytest.param("reader", {}, id="reader of one user"),
    ],
)
def test_each_number_leads_to_as_many_rows(
    daemon: HttpDaemon, name: str, query: dict[str, str]
) -> None:
    with signed_in(daemon, name) as person:
        links = links_in(person.read("/today", **query).html)
        listed = {address: len(rows_of(person, address)) for address, _, _ in links}

    assert {found for _, found, _ in links} == {*NAMES}
    assert listed == {address: number for address, _, number in links}


def test_each_number_of_an_operator_counts_something(operator: Person) -> None:
    numbers = {found: number for _, found, number in links_in(operator.read("/today").html)[:6]}

    assert [name for name in NAMES if not numbers[name]] == ["changed"]


def test_number_of_a_rule_leads_to_rows_of_the_rule(operator: Person) -> None:
    rule = [link for link in links_in(operator.read("/today").html) if "rule=other" in link[0]]
    [(address, _, number)] = [link for link in rule if link[1] == "quarantined"]

    page = open_page(operator, address)

    assert number == len(USERS)
    assert re.findall(r"firing\?id=[^\"]*", page)
    assert all("other%40" in firing for firing in re.findall(r"firing\?id=[^\"]*", page))


@pytest.mark.path
def test_page_links_the_other_numbers_of_the_time(operator: Person) -> None:
    page = operator.read("/changes", counted="marked").html

    counted = re.findall(r"/console/changes\?counted=(\w+)\"", page)
    assert counted == [*NAMES]
    assert 'counted=marked" aria-current="true"' in page


def test_quarantined_episode_leads_to_its_entry_while_it_is_there(
    daemon: HttpDaemon, operator: Person
) -> None:
    address = "/console/changes?counted=quarantined&rule=other"
    entry = "/console/quarantine?rule=other&amp;episode=bob-odd"
    [row] = [row for row in rows_of(operator, address) if "bob-odd" in row]
    shown = operator.read("/quarantine", rule="other", episode="bob-odd").text

    call(daemon, "operations/drop", rules=["other"], episodes=["bob-odd"], reason="a test")
    left = [row for row in rows_of(operator, address) if "bob-odd" in row]
    page = operator.read("/quarantine", rule="other", episode="bob-odd").text

    assert entry in row
    assert "bob-odd" in shown
    assert "ana-odd" not in shown
    assert len(left) == 1
    assert entry not in left[0]
    assert "This episode is not in quarantine of this rule." in page


def test_reader_is_led_to_no_quarantine(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "reader") as person:
        pages = [person.read("/today").html, person.read("/changes", counted="quarantined").html]

    assert not any("/console/quarantine" in page for page in pages)


def test_hostile_names_are_text(operator: Person) -> None:
    for counted in ("quarantined", "marked", "unmarked"):
        page = operator.read("/changes", counted=counted).html

        assert HOSTILE not in page
        assert HOSTILE in unescape(page)


@pytest.mark.cases(1)
def test_person_goes_from_a_number_to_the_quarantine(daemon: HttpDaemon, browser: Browser) -> None:
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["operator"])
        visit.open("/console/today")
        visit.page.get_by_role("link", name="quarantined").first.click()
        check_accessible(visit.page)
        visit.page.locator("tr", has_text="ana-odd").get_by_role(
            "link", name="in quarantine"
        ).first.click()
        check_accessible(visit.page)

        assert "Only entries of the rule" in visit.page.locator("main").inner_text()
