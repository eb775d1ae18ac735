"""The pages open on each store: files, and a PostgreSQL database with one shard or with several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from slumberd.daemon.control_socket import ask
from slumberd.rules.settings_schema import PostgresSettings
from slumberd.web.console.changes import PATH as CHANGE
from slumberd.web.console.pages import PAGES
from tests.support.broken_disks import put
from tests.support.builders import at
from tests.support.console_homes import (
    OPERATOR,
    SHARD,
    ask_daemon,
    assert_shows,
    console_daemon,
    fire,
    fresh_id,
    fresh_user,
    hold,
    learn,
    likes,
    newest_firing,
    unreadable,
)
from tests.support.console_people import Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon
from tests.support.postgres_server import PostgresServer
from tests.support.shards import shard_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.acceptance

SEVERAL = 3
USERS = ("ana", "bob", "cat", "dan", "eve")
ERASED = "kim"
"""A user of the shard of ana, like bob."""
STORES = {"files": 0, "one shard": 1, "several shards": SEVERAL}
"""The shards of each store, by its name; 0 for files."""

ON_POSTGRES = pytest.mark.parametrize("store", ["one shard", "several shards"], indirect=True)

ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "/today": ("/today", "/today?days=31", "/today?user=ana"),
    "/changes": ("/changes", "/changes?user=ana", "/changes?firing={changing}"),
    "/users": ("/users", "/users?prefix=a"),
    "/user": ("/user?user=ana", "/user?user=ana&valid_at=2026-01-01&believed_at=2026-01-02"),
    "/fact": ("/fact?id={new}&user=ana", "/fact?id={old}&user=ana"),
    "/episode": ("/episode?id={new}&user=ana", "/episode?id={broken}&user=ana"),
    "/search": ("/search", "/search?q=tea&user=ana"),
    "/firings": ("/firings", "/firings?rule=all", "/firings?run={run}"),
    "/firing": ("/firing?id={changing}", "/firing?id={erasing}"),
    "/approvals": ("/approvals", "/approvals?firing={held}"),
    "/quarantine": ("/quarantine", "/quarantine?rule=all"),
    "/rules": ("/rules",),
    "/rule": ("/rule?rule=all", "/rule?rule=careful"),
    "/erase": ("/erase", "/erase?user=ana"),
    "/shards": ("/shards",),
    "/health": ("/health",),
}
"""The addresses of each page; names in braces stand for what the store has."""


@dataclass(frozen=True)
class Store:
    """A store, and the daemon that has filled it.

    Attributes:
        daemon: The daemon.
        address: The address of the database; None for files.
        shards: How many shards the database has.
        ids: The ids of what the store has, by the names in `ADDRESSES`.
    """

    daemon: HttpDaemon
    address: str | None
    shards: int
    ids: Mapping[str, str]


@pytest.fixture(scope="module", params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    folder, shards = tmp_path_factory.mktemp("console") / "home", STORES[request.param]
    with new_database(request, shards) as address, console_daemon(folder, store=address) as daemon:
        daemon.shards = max(1, shards)
        yield Store(daemon, address, shards, fill(daemon))
        daemon.daemon.stop()
        logged = {event["event"] for event in [*daemon.daemon.seen, *daemon.daemon.remaining()]}
    assert not logged & {"http.failed", "http.server_failed", "library.logged"}


@contextmanager
def new_database(request: pytest.FixtureRequest, shards: int) -> Iterator[str | None]:
    """Yield the address of a new database; None without shards."""
    if shards == 0:
        yield None
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(shards=shards) as name:
        yield server.address_of(name)


@pytest.fixture
def operator(store: Store) -> Iterator[Person]:
    with signed_in(store.daemon, "operator") as person:
        yield person


def fill(daemon: HttpDaemon) -> dict[str, str]:
    """Make firings of several users, a held batch, a quarantined episode and an erasure.

    Returns:
        What `ADDRESSES` names.
    """
    old, new, broken = fresh_id(), fresh_id(), fresh_id()
    put(daemon.home, [likes(fresh_id(), "milk", user=user) for user in (*USERS[1:], ERASED)])
    learn_all = fire(daemon, "all")
    for shard in range(1, daemon.shards):
        ask(daemon.home.state, "fire", rules=["all"], shard=shard)
    learn(daemon, likes(old, "tea"))
    changing = learn(daemon, likes(new, "coffee", timestamp=at(1)))
    put(daemon.home, [unreadable(broken)])
    fire(daemon, "all")
    held = hold(daemon)
    fire(daemon, "all")  # so that the firing of a test reads what the test puts
    erased = ask_daemon(daemon, "forget", user=ERASED, reason="he asked for it")
    return {
        "old": old,
        "new": new,
        "broken": broken,
        "run": learn_all["run"],
        "changing": changing,
        "held": held,
        "erasing": erased["firing_id"],
    }


def person_of(firing: Mapping[str, Any]) -> str:
    """Return who requested a firing, without the host that asked the host of the shard."""
    return str(firing["by"]).partition(" via ")[0]


def assert_opens(person: Person, address: str) -> Seen:
    """Check that an address leads to a page without an error, and return it."""
    seen = person.read(address)
    assert 'role="alert"' not in seen.html, (address, seen.text)
    return seen


def links_of(seen: Seen) -> set[str]:
    """Return the addresses of the console to which a page leads."""
    links = {link.partition("#")[0] for link in seen.page.addresses}
    return {link for link in links if link.startswith("/console/")}


def all_links(store: Store, person: Person) -> list[str]:
    """Check that each page opens, and return the addresses to which the pages lead, in order."""
    addresses = [
        each.format(**store.ids)
        for path, many in ADDRESSES.items()
        for each in many
        if path != "/shards" or store.shards
    ]
    return sorted(set().union(*(links_of(assert_opens(person, one)) for one in addresses)))


def kind_of(link: str) -> tuple[str, tuple[str, ...]]:
    """Return the page of a link, and the names of its fields."""
    parts = urlsplit(link)
    return parts.path, tuple(sorted(parse_qs(parts.query)))


def test_every_page_is_opened() -> None:
    assert {page.path for page in PAGES} == {*ADDRESSES, CHANGE}


def test_users_lie_in_several_shards() -> None:
    assert {shard_of(user, SEVERAL) for user in USERS} == {*range(SEVERAL)}
    assert {shard_of(user, SEVERAL) for user in ("ana", "bob", ERASED)} == {SHARD}


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["files", "one shard"], indirect=True)
def test_every_link_leads_to_a_page(store: Store, operator: Person) -> None:
    links = all_links(store, operator)

    for link in links:
        assert_opens(operator, link)

    assert f"/console/fact?id={store.ids['old']}&user=ana" in links


@pytest.mark.parametrize("store", ["files", "several shards"], indirect=True)
def test_link_of_each_kind_leads_to_a_page(store: Store, operator: Person) -> None:
    by_kind = {kind_of(link): link for link in all_links(store, operator)}

    for link in by_kind.values():
        assert_opens(operator, link)

    assert len(by_kind) > len(ADDRESSES)


@pytest.mark.parametrize("store", ["files", "one shard"], indirect=True)
def test_dry_run_leads_to_no_fact_that_is_not_there(store: Store, operator: Person) -> None:
    kept, new, removing = fresh_id(), fresh_id(), fresh_id()
    metadata = {"intent": "delete", "replaces": kept}
    learn(store.daemon, likes(kept, "tea", user="fay"))
    put(
        store.daemon.home,
        [
            likes(new, "milk", user="gil"),
            likes(removing, "tea", user="fay", timestamp=at(1), metadata=metadata),
        ],
    )
    form = operator.read("/rule", rule="all").form(change="fire")

    preview = operator.send(form, reason="a test")
    links = links_of(preview)
    for link in links:
        assert_opens(operator, link)
    done = operator.follow(operator.confirm(preview))

    facts = {link for link in links if link.startswith("/console/fact?")}
    assert facts == {f"/console/fact?id={kept}&user=fay"}
    for firing in [link for link in links_of(done) if link.startswith("/console/firing?")]:
        for link in links_of(operator.read(firing)):
            assert_opens(operator, link)


def test_pages_show_what_the_store_has(store: Store, operator: Person) -> None:
    ids = store.ids

    assert_shows(operator.read("/today"), "1 awaiting approval", "2 quarantined", "1 changed")
    own = {user for user in USERS if shard_of(user, max(1, store.shards)) == SHARD}
    assert own <= operator.read("/users").page.links.keys()
    assert_shows(operator.read("/user", user="ana"), "ana likes coffee")
    assert_shows(operator.read("/fact", id=ids["old"], user="ana"), f"{ids['new']} replaced it")
    assert_shows(operator.read("/firing", id=ids["erasing"]), "An erasure cannot be undone.")
    assert_shows(operator.read("/approvals", firing=ids["held"]), "would be retracted")
    assert ids["broken"] in operator.read("/quarantine").page.links
    assert_shows(operator.read("/search", q="coffee", user="ana"), "I like coffee")


def test_rule_is_tried_and_counted(store: Store, operator: Person) -> None:
    page = operator.read("/rule", rule="all")

    tried = operator.send(page.form(show="fire"))
    counted = operator.send(page.form(show="coverage"))

    assert (tried.status, counted.status) == (200, 200)
    assert_shows(tried, "What a firing would do now")
    assert re.search(r"The filter selects (\d+) of \1 stored episodes", counted.text)


@ON_POSTGRES
def test_health_page_shows_the_database(store: Store, operator: Person) -> None:
    address = store.address or ""
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "SELECT current_setting('server_version'), current_setting('fsync')"
        )
        [(version, fsync)] = found.fetchall()
    status = ask_daemon(store.daemon, "status")

    row = rf"/{status['pid']}/\w+ active \d s ago {store.shards} \S+ {status['rules_hash']} "
    # A host writes its row again every second or two, and its rules may be newer.
    wait_until(lambda: re.search(row, operator.read("/health").text) is not None)

    text = operator.read("/health").text.partition("Database Where ")[2]

    assert f"/{address.rpartition('/')[2]} Server {version.split()[0]} Size " in text
    assert re.search(r"Size [1-9][\d.]* (KiB|MiB) Episodes without a number 0", text)
    assert (
        f"Accepts writes yes A commit survives a crash {'yes' if fsync == 'on' else 'no'}" in text
    )
    hosts, _, shards = text.partition(" Shard Held by Lease ")
    assert re.search(row, hosts)
    leases = re.findall(rf"(\d) \S+/{status['pid']}/\w+ ([\d.]+) s left", shards)
    assert [int(shard) for shard, _ in leases] == [*range(store.shards)]
    assert all(0 < float(left) <= PostgresSettings().lease for _, left in leases)


@pytest.mark.path
@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_health_page_shows_no_database_of_files(store: Store, operator: Person) -> None:
    assert "Database Where" not in operator.read("/health").text


def test_undo_is_in_the_ledger_with_a_name_and_a_reason(store: Store, operator: Person) -> None:
    user = fresh_user(store.daemon)
    firing = learn(store.daemon, likes(fresh_id(), "tea", user=user))
    form = operator.read("/firing", id=firing).form(change="undo")

    preview = operator.send(form, reason="a mistake")
    after_preview = newest_firing(store.daemon)
    done = operator.confirm(preview)

    assert_shows(preview, "Nothing has changed yet.", "ana likes tea", "1 fact would be retracted")
    assert after_preview["firing_id"] == firing
    newest = newest_firing(store.daemon)
    assert (newest["undoes"], newest["reason"]) == (firing, "a mistake")
    assert person_of(newest) == OPERATOR
    assert ask_daemon(store.daemon, "facts", user=user)["facts"] == []
    assert_shows(operator.follow(done), f"This firing undid {firing}.", "a mistake", OPERATOR)


@pytest.mark.cases(1)
def test_erasure_is_planned_confirmed_and_certified(store: Store, operator: Person) -> None:
    user = fresh_user(store.daemon)
    learn(store.daemon, likes(fresh_id(), "tea", user=user))
    form = operator.read("/erase").form(reason="")

    plan = operator.send(form, user=user, reason="a court order")
    kept = ask_daemon(store.daemon, "facts", user=user)["facts"]
    done = operator.confirm(plan)

    assert_shows(plan, "Nothing is erased yet.", "1 episode", "1 current fact")
    assert len(kept) == 1
    assert_shows(done, f"By {OPERATOR}", "Reason a court order", "1 episode")
    newest = newest_firing(store.daemon)
    assert (newest["rule_id"], newest["reason"]) == ("@erasure", "a court order")
    assert person_of(newest) == OPERATOR
    assert ask_daemon(store.daemon, "facts", user=user)["facts"] == []


@pytest.mark.parametrize("store", ["several shards"], indirect=True)
def test_all_shards_are_summed_up_and_chosen(store: Store, operator: Person) -> None:
    page = operator.read("/shards")

    assert [f"/console/today?shard={shard}" in links_of(page) for shard in range(SEVERAL)] == (
        [True] * SEVERAL
    )
    counted = ask_daemon(store.daemon, "shards")["shards"]
    for row in counted:
        assert re.search(rf"\b{row['shard']} \S+ {row['episodes']} {row['facts']} ", page.text)
    for shard in range(SEVERAL):
        users = operator.read("/users", shard=shard)
        own = {user for user in USERS if shard_of(user, SEVERAL) == shard}
        others = {*USERS} - own
        assert own <= users.page.links.keys()
        assert others.isdisjoint(users.page.links.keys())


@pytest.mark.parametrize("store", ["several shards"], indirect=True)
def test_shard_is_kept_by_links_and_forms(store: Store, operator: Person) -> None:
    page = operator.read("/users", shard=1)
    others = operator.read("/firings", shard=2)

    assert "/console/rules?shard=1" in links_of(page)
    assert page.form(prefix="").fields["shard"] == "1"
    firings = {link for link in links_of(others) if link.startswith("/console/firing?")}
    assert all(link.endswith("&shard=2") for link in firings) and firings
    for link in firings:
        assert_opens(operator, link)
    assert operator.go("/users", shard=SEVERAL).status == 400
    assert operator.go("/users", shard="x").status == 400


@pytest.mark.parametrize("store", ["several shards"], indirect=True)
def test_page_of_a_user_shows_the_shard_of_the_user(store: Store, operator: Person) -> None:
    page = operator.read("/user", user="eve")

    assert shard_of("eve", SEVERAL) == 2
    assert "/console/rules?shard=2" in links_of(page)


@pytest.mark.parametrize("store", ["several shards"], indirect=True)
def test_person_of_one_user_sees_no_shards(store: Store) -> None:
    with signed_in(store.daemon, "ana") as ana:
        page = ana.read("/user")

    assert "Shard" not in page.text
    assert not any("shard=" in link for link in links_of(page))


@pytest.mark.parametrize("store", ["files", "one shard"], indirect=True)
def test_one_shard_is_no_choice(store: Store, operator: Person) -> None:
    page = operator.read("/today")

    assert "Shards" not in page.page.links
    assert not any("shard=" in link for link in links_of(page))
