"""The pages of users, of their facts as of any instant, of a fact, and of an episode."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.console_people import Form, Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon, http_daemon

pytestmark = pytest.mark.acceptance

PLACES = {
    "e1": ("Lisbon", "2026-03-01"),
    "e2": ("Porto", "2026-06-01"),
    "e3": ("Faro", "2026-09-01"),
}
HOSTILE = '</title><script>alert(1)</script><b onclick="x">\u202e'


def remember(client: httpx.Client, id: str, text: str, when: str, *said: str, **given: Any) -> None:
    subject, predicate, object_ = said
    triple = {"subject": subject, "predicate": predicate, "object": object_}
    put = {"id": id, "text": text, "when": f"{when}T12:00:00Z", "triples": [triple], **given}
    client.post("/v1/episodes", json=put).raise_for_status()
    of = {"seconds": 60, **({"user": given["user"]} if "user" in given else {})}
    assert client.get(f"/v1/outcomes/{id}", params=of).json()["settled"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    """Run a daemon in which ana has moved, and others have facts."""
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        with running.with_token("operator") as client:
            for id, (place, when) in PLACES.items():
                said = ("ana", "lives_in", place)
                remember(client, id, f"I moved to {place}", when, *said, user="ana")
            remember(client, "b1", "I like figs", "2026-03-01", "bob", "likes", "figs", user="bob")
            hostile = (HOSTILE, "says", HOSTILE)
            remember(
                client, "h1", HOSTILE, "2026-03-01", *hostile, user="mallory", agent=HOSTILE[:-1]
            )
        yield running
        running.daemon.stop()
        logged = {event["event"] for event in [*running.daemon.seen, *running.daemon.remaining()]}
    assert not logged & {"http.failed", "http.server_failed", "library.logged"}


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


@pytest.fixture
def reader(daemon: HttpDaemon) -> Iterator[Person]:
    """Sign in somebody who may only read what is known of ana."""
    with signed_in(daemon, "reader") as person:
        yield person


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[HttpDaemon]:
    """Run a daemon of its own for a test that changes facts."""
    with http_daemon(tmp_path / "http") as running:
        with running.with_token("ana") as client:
            remember(client, "e1", "I moved to Lisbon", "2026-03-01", "ana", "lives_in", "Lisbon")
        yield running


def sliders_of(seen: Seen) -> Form:
    """Return the form of the sliders of a user's page."""
    [found] = [form for form in seen.page.forms if "sliders" in form.fields]
    return found


# Users


def test_operator_finds_users_by_the_beginning_of_their_names(operator: Person) -> None:
    everyone, some = operator.read("/users").html, operator.read("/users", prefix="an").html

    assert 'href="/console/user?user=bob"' in everyone
    assert 'href="/console/user?user=ana"' in some
    assert "user=bob" not in some


def test_number_of_facts_leads_to_the_facts(operator: Person) -> None:
    page = operator.read("/users", prefix="bob").html

    assert '<a class="count" href="/console/user?user=bob"><b>1</b> fact</a>' in page


def test_person_of_one_user_is_led_to_the_own_page(reader: Person) -> None:
    page = reader.read("/users").text

    assert "What is known of ana" in page
    assert "bob" not in page


def test_menu_leads_to_users_or_to_the_own_facts(operator: Person, reader: Person) -> None:
    assert '"/console/users"' in operator.read("/search").html
    assert '"/console/user"' in reader.read("/search").html
    assert '"/console/users"' not in reader.read("/search").html


# One user


def test_user_page_shows_facts_episodes_and_profile(operator: Person) -> None:
    page = operator.read("/user", user="ana").text

    assert "ana lives_in Faro" in page
    assert "I moved to Lisbon" in page
    assert '"ana lives in Faro"' in page
    assert "figs" not in page


@pytest.mark.parametrize(
    ("clocks", "shown"),
    [
        pytest.param({"valid_at": "2026-07-01"}, "lives_in Porto", id="true in July"),
        pytest.param({"valid_at": "2026-04-01T00:00:00Z"}, "lives_in Lisbon", id="true in April"),
        pytest.param({"valid_at": "2026-01-01"}, "No fact matches", id="before all"),
        pytest.param({"believed_at": "2026-07-01"}, "No fact matches", id="held before the ledger"),
    ],
)
def test_facts_are_shown_as_of_an_instant(
    operator: Person, clocks: dict[str, str], shown: str
) -> None:
    page = operator.read("/user", user="ana", **clocks).text

    assert shown in page
    assert "Facts at these instants" in page
    assert "Show the current facts" in page


def test_sliders_lead_to_the_page_of_their_instants(operator: Person) -> None:
    form = sliders_of(operator.read("/user", user="ana"))
    july = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp())

    sent = operator.send(form, valid=str(july), believed=form.fields["sliders"])

    assert sent.status == 303
    query = parse_qs(urlsplit(sent.to).query)
    assert query == {"user": ["ana"], "valid_at": ["2026-07-01T00:00:00Z"]}


def test_sliders_reach_from_the_first_claim_of_the_page_to_now(operator: Person) -> None:
    page = operator.read("/user", user="ana")
    fields = sliders_of(page).fields

    lows = [int(part.partition('"')[0]) for part in page.html.split('type="range"')[1:]
            for part in [part.partition('min="')[2]]]  # fmt: skip
    assert lows[0] <= datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    assert lows[1] > int(fields["sliders"]) - 3 * 86_400


def test_facts_are_filtered(operator: Person) -> None:
    found = operator.read("/user", user="ana", subject="ana", predicate="lives_in").text
    nothing = operator.read("/user", user="ana", predicate="likes").text

    assert "ana lives_in Faro" in found
    assert "No fact matches" in nothing


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"valid_at": "March"}, id="no instant"),
        pytest.param({"sliders": "x"}, id="no number"),
        pytest.param({"sliders": "5", "valid": "-9" + "9" * 30}, id="no place"),
        pytest.param({"cursor": "nonsense"}, id="no cursor"),
    ],
)
def test_mistake_is_said_and_never_a_traceback(operator: Person, fields: dict[str, str]) -> None:
    refused = operator.go("/user", user="ana", **fields)

    assert refused.status == 400
    assert 'role="alert"' in refused.html
    assert "Traceback" not in refused.html


def test_facts_come_in_pages(changed: HttpDaemon) -> None:
    with changed.with_token("ana") as client:
        for number in range(55):
            triple = {"subject": f"s{number:02}", "predicate": "is", "object": f"o{number:02}"}
            client.post("/v1/facts", json={**triple, "reason": "so"}).raise_for_status()
    with signed_in(changed, "ana") as ana:
        first = ana.read("/user").html
        link = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        second = ana.read(link).html

    of_pages = [
        {f"o{n:02}" for n in range(55) if f"<b><bdi>o{n:02}" in one} for one in (first, second)
    ]
    assert not of_pages[0] & of_pages[1]
    assert len(of_pages[0] | of_pages[1]) == 55
    assert 'rel="next"' not in second


# A fact and an episode


def test_fact_page_says_why_it_is_held(operator: Person) -> None:
    seen = operator.read("/fact", id="e3", user="ana")

    assert "The fact is current" in seen.text
    assert "I moved to Faro" in seen.text
    assert "It replaced: e2" in seen.text
    assert "said by user, written by remember" in seen.text
    assert 'href="/console/episode?id=e3&amp;user=ana"' in seen.html
    assert 'href="/console/firing?id=all%40' in seen.html


@pytest.mark.path
def test_history_is_drawn_and_is_in_a_table(operator: Person) -> None:
    seen = operator.read("/fact", id="e3", user="ana")
    page = seen.text

    assert seen.html.count('<svg class="history"') == 2
    assert "Lisbon: from 2026-03-01 12:00:00 until 2026-06-01 12:00:00" in page
    assert "Porto 2026-06-01 12:00:00 2026-09-01 12:00:00 e2" in page
    assert "Faro 2026-09-01 12:00:00 now e3 (this fact)" in page


def test_fact_that_is_not_current_is_explained(operator: Person) -> None:
    seen = operator.read("/fact", id="e1", user="ana")

    assert "ana lives_in Lisbon" in seen.text
    assert "The fact is not current: e2 replaced it" in seen.text
    assert 'name="change"' not in seen.html


def test_fact_page_names_the_pattern_that_found_it_and_the_words(changed: HttpDaemon) -> None:
    found = {
        "subject": "ana", "predicate": "likes", "object": "tea",
        "extracted": {"by": "conversation/likes", "span": [5, 16]},
    }  # fmt: skip
    with changed.with_token("ana") as client:
        put = {"id": "e2", "text": "Well I like tea.", "metadata": {"triples": [found]}}
        client.post("/v1/episodes", json=put).raise_for_status()
        assert client.get("/v1/outcomes/e2", params={"seconds": 60}).json()["settled"]
    with signed_in(changed, "operator") as person:
        seen = person.read("/fact", id="e2#1", user="ana")
        stated = person.read("/fact", id="e1", user="ana")

    assert "conversation/likes, in characters 5 to 16 of the text: I like tea." in seen.text
    assert "Extracted by" not in stated.text


def test_episode_page_says_what_became_of_it(operator: Person) -> None:
    seen = operator.read("/episode", id="e1", user="ana")

    assert "I moved to Lisbon" in seen.text
    assert "e2 replaced it; say it again with a later timestamp" in seen.text
    assert 'href="/console/fact?id=e1&amp;user=ana"' in seen.html
    assert 'href="/console/firing?id=all%40' in seen.html
    assert "Every enabled rule has evaluated" in seen.text


@pytest.mark.parametrize("page", ["/fact", "/episode"])
@pytest.mark.parametrize(
    ("id", "user"),
    [
        pytest.param("e1", "bob", id="of another user"),
        pytest.param("none", "ana", id="unknown"),
    ],
)
def test_what_the_scope_does_not_hold_is_not_found(
    operator: Person, page: str, id: str, user: str
) -> None:
    seen = operator.go(page, id=id, user=user)

    assert seen.status == 404
    assert "moved" not in seen.html


# Rights


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        pytest.param("/user", {"user": "bob"}, id="user"),
        pytest.param("/fact", {"id": "b1", "user": "bob"}, id="fact"),
        pytest.param("/episode", {"id": "b1", "user": "bob"}, id="episode"),
    ],
)
def test_reader_of_one_user_may_name_no_other(
    reader: Person, page: str, fields: dict[str, str]
) -> None:
    seen = reader.go(page, **fields)

    assert seen.status == 403
    assert "figs" not in seen.html


@pytest.mark.parametrize("page", ["/fact", "/episode"])
def test_reader_of_one_user_finds_nothing_of_another(reader: Person, page: str) -> None:
    seen = reader.go(page, id="b1")

    assert seen.status == 404
    assert "figs" not in seen.html


def test_reader_sees_facts_and_episodes_but_no_forms_and_no_firings(reader: Person) -> None:
    fact, episode = reader.read("/fact", id="e3"), reader.read("/episode", id="e3")
    user = reader.read("/user")

    assert "I moved to Faro" in fact.text
    assert 'name="change"' not in fact.html
    assert "/console/firing" not in fact.html + episode.html
    assert "/console/rule" not in episode.html
    assert "/console/erase" not in user.html


@pytest.mark.parametrize("change", ["correct", "retract"])
def test_reader_who_sends_a_form_changes_nothing(reader: Person, change: str) -> None:
    fields = {"change": change, "fact": "e3", "object": "Braga", "reason": "a test"}

    refused = reader.post("/change", {**fields, "form_secret": reader.secret()})

    assert refused.status == 403
    assert "lives_in Faro" in reader.read("/user").text


@pytest.mark.parametrize("page", ["users", "user", "fact", "episode"])
def test_stranger_sees_no_page(daemon: HttpDaemon, page: str) -> None:
    answer = httpx.get(f"{daemon.url}/console/{page}?id=e1&user=ana")

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in")


# Hostile content


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        pytest.param("/users", {}, id="users"),
        pytest.param("/user", {"user": "mallory"}, id="user"),
        pytest.param("/user", {"user": "mallory", "subject": HOSTILE}, id="filters"),
        pytest.param("/fact", {"id": "h1", "user": "mallory"}, id="fact"),
        pytest.param("/episode", {"id": "h1", "user": "mallory"}, id="episode"),
    ],
)
def test_hostile_text_is_shown_as_text(operator: Person, page: str, fields: dict[str, str]) -> None:
    html = operator.read(page, **fields).html

    assert "<script>" not in html
    assert "<b onclick" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("</title><script") == 0


# Changes


def form_of_fact(person: Person, change: str = "correct") -> Form:
    """Return the form that corrects or retracts the fact."""
    return person.read("/fact", id="e1").form(change=change)


def make_change(person: Person, form: Form, **fields: str) -> Seen:
    """Send a form, confirm its dry run, and return the answer to the confirmation."""
    shown = person.send(form, **fields)
    assert shown.status == 200, shown.text
    return person.confirm(shown)


def ledger_of(daemon: HttpDaemon) -> list[dict[str, Any]]:
    with daemon.with_token("operator") as client:
        found = client.get("/v1/changes", params={"user": "ana"}).json()["changes"]
    assert isinstance(found, list)
    return found


def test_fact_is_corrected_after_its_dry_run(changed: HttpDaemon) -> None:
    with signed_in(changed, "ana") as ana:
        before = ledger_of(changed)
        shown = ana.send(form_of_fact(ana), object="Porto", reason="she told me")
        after_preview = ledger_of(changed)
        page = ana.follow(ana.confirm(shown)).text

    assert "Nothing has changed yet" in shown.text
    assert "1 fact would be changed" in shown.text
    assert after_preview == before
    assert "ana lives_in Porto" in page
    assert "she told me" in page
    assert "token ana" in page
    assert ledger_of(changed)[-1]["rule_id"] == "@manual"


def test_fact_is_retracted_after_its_dry_run(changed: HttpDaemon) -> None:
    with signed_in(changed, "ana") as ana:
        done = make_change(ana, form_of_fact(ana, "retract"), reason="a joke")
        page = ana.follow(done).text

    assert "The fact is not current: a person retracted it (token ana), because: a joke" in page


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("42", 42, id="number"),
        pytest.param('"42"', "42", id="text"),
        pytest.param("Vila Real", "Vila Real", id="words"),
    ],
)
def test_value_is_json_or_a_text(changed: HttpDaemon, written: str, value: object) -> None:
    with signed_in(changed, "ana") as ana:
        make_change(ana, form_of_fact(ana), object=written, reason="a test")

    with changed.with_token("ana") as client:
        assert client.get("/v1/facts/e1").json()["payload"]["object"] == value


def test_fact_that_has_changed_since_is_not_corrected(changed: HttpDaemon) -> None:
    with signed_in(changed, "ana") as ana:
        form = form_of_fact(ana)
        make_change(ana, form, object="Porto", reason="a test")
        refused = ana.send(form, object="Faro", reason="a test")

    assert refused.status in (409, 412)
    assert ledger_of(changed)[-1]["fact_id"] == "e1"


@pytest.mark.parametrize("change", ["correct", "retract"])
def test_change_needs_a_reason(changed: HttpDaemon, change: str) -> None:
    with signed_in(changed, "ana") as ana:
        before = ledger_of(changed)
        refused = ana.send(form_of_fact(ana, change), object="Porto")

    assert refused.status == 400
    assert "reason" in refused.text
    assert ledger_of(changed) == before


def test_form_that_is_sent_twice_changes_nothing_more(changed: HttpDaemon) -> None:
    with signed_in(changed, "ana") as ana:
        shown = ana.send(form_of_fact(ana), object="Porto", reason="a test")
        ana.confirm(shown)
        once = ledger_of(changed)
        again = ana.confirm(shown)

    assert again.status >= 400
    assert ledger_of(changed) == once


def test_form_of_another_site_or_session_is_refused(changed: HttpDaemon) -> None:
    with signed_in(changed, "ana") as ana:
        before = ledger_of(changed)
        sent = {**form_of_fact(ana, "retract").fields, "reason": "x"}
        foreign = ana.post("/change", sent, Origin="https://x.example")
        forged = ana.post("/change", {**sent, "form_secret": "guess"})

    assert (foreign.status, forged.status) == (403, 403)
    assert ledger_of(changed) == before
