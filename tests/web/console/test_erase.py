"""A person plans an erasure, confirms exactly what was shown, and keeps the certificate."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import orjson
import pytest

from tests.support.broken_disks import put
from tests.support.builders import at
from tests.support.console_homes import (
    HOSTILE,
    ask_daemon,
    assert_shows,
    console_daemon,
    fresh_id,
    learn,
    likes,
)
from tests.support.console_people import Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance

SAVE = "Save the certificate as JSON"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def plan(person: Person, reason: str = "she asked for it", **scope: str) -> Seen:
    """Fill in the form of the page, and send it."""
    return person.send(person.go("/erase").form(reason=""), reason=reason, **scope)


def facts_of(daemon: HttpDaemon, user: str) -> list[str]:
    """Return the objects of a user's facts."""
    found = ask_daemon(daemon, "facts", user=user)["facts"]
    return [str(fact["payload"]["object"]) for fact in found]


def remember(daemon: HttpDaemon, user: str, *objects: str, session: str = "s1") -> None:
    """Make facts of a user, each of one subject, each later than the one before."""
    learn(
        daemon,
        *(
            likes(fresh_id(), each, user=user, session=session, timestamp=at(number))
            for number, each in enumerate(objects)
        ),
    )


def certificate_in(done: Seen) -> dict[str, object]:
    """Return the certificate that a page offers as a file."""
    kind, _, text = done.page.links[SAVE].partition(",")
    assert kind == "data:application/json;charset=utf-8"
    found: dict[str, object] = orjson.loads(unquote(text))
    return found


def test_plan_says_in_words_and_numbers_what_is_erased(
    daemon: HttpDaemon, operator: Person
) -> None:
    remember(daemon, "planned", "tea", "coffee")

    seen = plan(operator, user="planned")

    assert seen.status == 200
    assert_shows(
        seen,
        "Nothing is erased yet.",
        "User planned Agent all agents Session all sessions",
        "2 episodes",
        "1 current fact",
        "Facts that would become current again None.",
        "backups and exports of the state directory, made before",
        "Reason: she asked for it",
    )
    assert facts_of(daemon, "planned") == ["coffee"]


def test_plan_names_the_facts_that_come_back(daemon: HttpDaemon, operator: Person) -> None:
    first = fresh_id()
    learn(daemon, likes(first, "tea", user="back", session="kept"))
    learn(daemon, likes(fresh_id(), "coffee", user="back", session="gone", timestamp=at(1)))

    seen = plan(operator, user="back", session="gone")

    assert_shows(seen, "1 fact that the erased episodes had replaced is current again:")
    assert seen.page.links[first] == f"/console/fact?id={first}&user=back"


def test_confirmed_plan_erases_and_shows_the_certificate(
    daemon: HttpDaemon, operator: Person
) -> None:
    remember(daemon, "erased", "tea")

    done = operator.confirm(plan(operator, user="erased"))

    assert done.status == 200
    assert_shows(
        done,
        "By token operator Reason she asked for it",
        "1 episode",
        "This page is shown once",
        "facts: the write-ahead log holds no erased bytes.",
    )
    assert facts_of(daemon, "erased") == []
    certificate = certificate_in(done)
    assert certificate["scope"] == {"user": "erased", "session": None, "agent": None}
    assert certificate["reason"] == "she asked for it"
    assert f"Firing {certificate['firing_id']}" in done.text


def test_erasure_is_in_the_ledger_with_its_reason_and_who_did_it(
    daemon: HttpDaemon, operator: Person
) -> None:
    remember(daemon, "recorded", "tea")

    operator.confirm(plan(operator, "a court order", user="recorded"))

    [newest] = ask_daemon(daemon, "firings", limit=1)["firings"]
    assert newest["rule_id"] == "@erasure"
    assert (newest["by"], newest["reason"]) == ("token operator", "a court order")


def test_plan_that_is_out_of_date_erases_nothing_and_shows_the_new_plan(
    daemon: HttpDaemon, operator: Person
) -> None:
    remember(daemon, "moving", "tea")
    seen = plan(operator, user="moving")
    put(daemon.home, [likes(fresh_id(), "coffee", user="moving", timestamp=at(5))])

    stale = operator.confirm(seen)

    assert stale.status == 409
    assert_shows(stale, "Nothing was erased: the scope has changed", "2 episodes")
    assert facts_of(daemon, "moving") == ["tea"]
    assert operator.confirm(stale).status == 200
    assert facts_of(daemon, "moving") == []


def test_episode_and_fact_are_erased_after_a_plan_that_names_what_goes(
    daemon: HttpDaemon, operator: Person
) -> None:
    older, newer = fresh_id(), fresh_id()
    learn(daemon, likes(older, "tea", user="single"))
    learn(daemon, likes(newer, "coffee", user="single", timestamp=at(1)))

    seen = plan(operator, episode=newer)
    done = operator.confirm(seen)
    last = operator.confirm(plan(operator, fact=older))

    assert_shows(
        seen,
        "User single",
        f"Episodes that are erased by their ids {newer}",
        f"Facts that go {newer}: ana likes coffee",
        "1 fact that the erased episodes had replaced is current again",
    )
    assert_shows(done, f"Facts that go {newer}", "1 episode")
    assert certificate_in(done)["episodes"] == [newer]
    assert last.status == 200
    assert facts_of(daemon, "single") == []


def test_unknown_episode_and_that_of_another_user_have_one_answer(daemon: HttpDaemon) -> None:
    other = fresh_id()
    learn(daemon, likes(other, "tea", user="someone"))
    with signed_in(daemon, "bob") as bob:
        texts = [plan(bob, episode=id).text.replace(id, "ID") for id in (other, fresh_id())]

    assert texts[0] == texts[1]
    assert "nothing is stored of user 'bob', episode 'ID'" in texts[0]
    assert facts_of(daemon, "someone") == ["tea"]


@pytest.mark.path
def test_form_without_a_scope_or_a_reason_is_refused_beside_its_fields(operator: Person) -> None:
    form = operator.go("/erase").form(user="")

    seen = operator.send(form)

    assert seen.status == 400
    assert_shows(seen, "User is missing", "Reason, without personal data is missing")


def test_scope_that_holds_nothing_is_an_understandable_mistake(operator: Person) -> None:
    seen = plan(operator, user="nobody at all")

    assert seen.status == 404
    assert_shows(seen, "nothing is stored of user 'nobody at all'; case and spelling count")


def test_form_that_is_sent_twice_erases_once(daemon: HttpDaemon, operator: Person) -> None:
    remember(daemon, "twice", "tea")
    seen = plan(operator, user="twice")
    operator.confirm(seen)
    before = ask_daemon(daemon, "firings", limit=1)["firings"]

    again = operator.confirm(seen)

    assert again.status == 400
    assert_shows(again, "this form was sent before")
    assert ask_daemon(daemon, "firings", limit=1)["firings"] == before


def test_form_of_another_site_or_session_erases_nothing(
    daemon: HttpDaemon, operator: Person
) -> None:
    remember(daemon, "guarded", "tea")
    [form] = [form for form in plan(operator, user="guarded").page.forms if "form" in form.fields]

    foreign = operator.post("/erase", form.fields, Origin="http://evil.example")
    forged = operator.post("/erase", {**form.fields, "form_secret": "guessed"})

    assert (foreign.status, forged.status) == (403, 403)
    assert facts_of(daemon, "guarded") == ["tea"]


def test_user_erases_only_its_own_scope(daemon: HttpDaemon) -> None:
    remember(daemon, "ana", "tea")
    remember(daemon, "bob", "coffee")
    with signed_in(daemon, "bob") as bob:
        other = plan(bob, user="ana")
        done = bob.confirm(plan(bob))

    assert other.status == 403
    assert_shows(done, "User bob")
    assert facts_of(daemon, "ana") == ["tea"]
    assert facts_of(daemon, "bob") == []


def test_reader_may_not_erase(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "reader") as reader:
        seen = reader.go("/erase")
        menu = reader.go("/search").page.links

    assert seen.status == 403
    assert "Erase" not in menu


def test_hostile_scope_and_reason_are_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    remember(daemon, HOSTILE, "tea", session=HOSTILE)

    seen = plan(operator, HOSTILE, user=HOSTILE, session=HOSTILE)
    done = operator.confirm(seen)
    empty = plan(operator, HOSTILE, user=HOSTILE + "?")

    assert_shows(seen, f"User {HOSTILE}", f"Session {HOSTILE}", f"Reason: {HOSTILE}")
    assert_shows(done, f"User {HOSTILE}", f"Reason {HOSTILE}")
    assert certificate_in(done)["reason"] == HOSTILE
    assert "img" not in empty.page.tags
