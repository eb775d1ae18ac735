"""An operator looks at rules, tries them on the live data, fires and backfills them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broken_disks import put
from tests.support.builders import at
from tests.support.console_homes import (
    HOSTILE,
    ask_daemon,
    assert_shows,
    console_daemon,
    fire,
    fresh_id,
    ledger_rows,
    likes,
    newest_firing,
    unreadable,
)
from tests.support.console_people import Form, Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        running.home.rule(
            "nightly",
            cadence={"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
            when_filter="object = 'tea'",
            then_emits=["drinks"],
            description="What people drink",
        )
        running.home.call("reload")
        yield running


@pytest.fixture
def daemon(running: HttpDaemon) -> HttpDaemon:
    """Provide a daemon whose rule ``nightly`` has read everything."""
    fire(running, "nightly")
    return running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def rule_page(person: Person, rule: str = "nightly") -> Seen:
    return person.go("/rule", rule=rule)


def backfill_form(person: Person) -> Form:
    return rule_page(person).form(change="backfill")


def try_backfill(person: Person, **fields: str) -> Seen:
    """Press the button of the form that tries a backfill."""
    form = backfill_form(person)
    return person.post("/rule", {**form.fields, "show": "backfill", **fields})


def test_list_shows_each_rule_with_its_cadence_and_its_state(
    daemon: HttpDaemon, operator: Person
) -> None:
    put(daemon.home, [likes(fresh_id(), "tea")])
    ask_daemon(daemon, "pause", rules=["careful"])
    try:
        seen = operator.go("/rules")
    finally:
        ask_daemon(daemon, "resume", rules=["careful"])

    assert_shows(
        seen, "What people drink", "at 03:00, every day in Europe/Berlin", "paused by", "drinks"
    )
    assert seen.page.links["nightly"] == "/console/rule?rule=nightly"
    assert 'href="/console/rule?rule=nightly#progress">1<' in seen.html


def test_quarantine_of_a_rule_is_a_link_to_it(daemon: HttpDaemon, operator: Person) -> None:
    put(daemon.home, [unreadable(fresh_id())])
    fire(daemon, "all")

    seen = operator.go("/rules")

    assert 'href="/console/quarantine?rule=all"' in seen.html


def test_page_of_a_rule_shows_its_next_instants(operator: Person) -> None:
    seen = rule_page(operator)

    assert_shows(seen, "Filter object = 'tea'", "Pending 0 versions of episodes", "as 0 3 * * *")
    assert seen.html.count("UTC, local") == 10
    assert seen.page.links["All its firings"] == "/console/firings?rule=nightly"


def test_coverage_is_counted_only_on_demand(daemon: HttpDaemon, operator: Person) -> None:
    put(daemon.home, [likes(fresh_id(), "tea"), likes(fresh_id(), "rain")])
    page = rule_page(operator)

    counted = operator.send(page.form(show="coverage"))

    assert "The filter selects" not in page.text
    [coverage] = [
        rule["coverage"]
        for rule in ask_daemon(daemon, "rules", rules=["nightly"], coverage=True)["rules"]
    ]
    assert 0 < coverage["selected"] < coverage["episodes"]
    assert_shows(
        counted,
        f"The filter selects {coverage['selected']} of {coverage['episodes']} stored episodes",
    )


def test_trial_says_what_a_firing_would_add_and_writes_nothing(
    daemon: HttpDaemon, operator: Person
) -> None:
    user = fresh_id()
    put(daemon.home, [likes(fresh_id(), "tea", user=user)])
    before = ledger_rows(daemon)

    tried = operator.send(rule_page(operator).form(show="fire"))

    assert tried.status == 200
    assert_shows(tried, "What a firing would do now", "1 fact would be added", user)
    assert ledger_rows(daemon) == before
    assert "Pending 1 version of episodes" in tried.text


def test_confirmed_firing_is_in_the_ledger_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    put(daemon.home, [likes(fresh_id(), "tea", user=fresh_id())])

    preview = operator.send(rule_page(operator).form(change="fire"), reason="before the demo")
    done = operator.confirm(preview)

    assert_shows(preview, "You ask to fire the rule nightly now.", "1 fact would be added")
    newest = newest_firing(daemon)
    assert (newest["by"], newest["reason"]) == ("token operator", "before the demo")
    assert (newest["rule_id"], newest["counts"]["added"]) == ("nightly", 1)
    assert done.to == f"/console/firings?run={newest['run']}"


def test_backfill_is_tried_on_a_period_without_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    user, id = fresh_id(), fresh_id()
    put(daemon.home, [likes(id, "tea", user=user, timestamp=at(100))])
    firing = fire(daemon, "nightly")["reports"][0]["firing_ids"][0]
    ask_daemon(daemon, "undo", firing=firing)
    before = ledger_rows(daemon)

    within = try_backfill(operator, **{"from": at(90).isoformat(), "to": at(110).isoformat()})
    after = try_backfill(operator, **{"from": at(110).isoformat()})

    assert_shows(within, "What the backfill would do", "1 fact would be", user)
    assert_shows(after, "The rule has read no such episode, so nothing would change.")
    assert ledger_rows(daemon) == before


def test_confirmed_backfill_restores_what_was_undone(daemon: HttpDaemon, operator: Person) -> None:
    user = fresh_id()
    put(daemon.home, [likes(fresh_id(), "tea", user=user, timestamp=at(200))])
    firing = fire(daemon, "nightly")["reports"][0]["firing_ids"][0]
    ask_daemon(daemon, "undo", firing=firing)

    period = {"from": at(199).isoformat(), "to": at(201).isoformat()}
    preview = operator.send(backfill_form(operator), reason="the undo was wrong", **period)
    undone = ask_daemon(daemon, "facts", user=user)["facts"]
    operator.confirm(preview)

    assert_shows(preview, f"its facts from episodes since {period['from']} and before")
    assert undone == []
    assert len(ask_daemon(daemon, "facts", user=user)["facts"]) == 1
    newest = newest_firing(daemon)
    assert (newest["by"], newest["reason"]) == ("token operator", "the undo was wrong")


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        pytest.param({"from": "soon"}, "from", "an instant with an offset", id="no instant"),
        pytest.param(
            {"from": "2026-03-02", "to": "2026-03-01"},
            "to",
            "an instant after the first one is needed",
            id="backwards",
        ),
    ],
)
def test_mistake_in_a_period_stands_beside_its_field(
    operator: Person, fields: dict[str, str], field: str, problem: str
) -> None:
    seen = try_backfill(operator, **fields)

    assert seen.status == 400
    assert_shows(seen, problem)
    assert f'aria-describedby="mistake-{field}"' in seen.html


def test_change_without_a_reason_is_refused(daemon: HttpDaemon, operator: Person) -> None:
    before = ledger_rows(daemon)

    fired = operator.send(rule_page(operator).form(change="fire"))
    backfilled = operator.send(backfill_form(operator))

    assert (fired.status, backfilled.status) == (400, 400)
    assert_shows(fired, "reason: is missing")
    assert ledger_rows(daemon) == before


def test_form_that_is_sent_twice_fires_once(daemon: HttpDaemon, operator: Person) -> None:
    put(daemon.home, [likes(fresh_id(), "tea", user=fresh_id())])
    preview = operator.send(rule_page(operator).form(change="fire"), reason="once")
    operator.confirm(preview)
    before = ledger_rows(daemon)

    again = operator.confirm(preview)

    assert again.status == 400
    assert_shows(again, "this form was sent before")
    assert ledger_rows(daemon) == before


def test_form_of_another_site_or_session_tries_nothing(operator: Person) -> None:
    fields = rule_page(operator).form(show="fire").fields

    foreign = operator.post("/rule", fields, Origin="http://evil.example")
    forged = operator.post("/rule", {**fields, "form_secret": "guessed"})

    assert (foreign.status, forged.status) == (403, 403)


def test_unknown_rule_and_unknown_button_are_understandable_mistakes(operator: Person) -> None:
    fields = rule_page(operator).form(show="fire").fields

    unknown = rule_page(operator, HOSTILE)
    wrong = operator.post("/rule", {**fields, "show": HOSTILE})

    assert (unknown.status, wrong.status) == (400, 400)
    assert "img" not in unknown.page.tags | wrong.page.tags
    assert "there are all, careful, nightly" in unknown.text


def test_hostile_content_is_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    daemon.home.rule("hostile", cadence={"every": 1_000}, when_filter=_QUOTED, description=HOSTILE)
    ask_daemon(daemon, "reload")
    put(daemon.home, [likes(fresh_id(), HOSTILE)])

    listed = operator.go("/rules")
    tried = operator.send(rule_page(operator, "hostile").form(show="fire"))
    preview = operator.send(rule_page(operator, "hostile").form(change="fire"), reason=HOSTILE)

    assert_shows(listed, HOSTILE)
    assert_shows(tried, HOSTILE, f"Filter {_QUOTED}")
    assert_shows(preview, f"The ledger keeps the reason: {HOSTILE}")


_QUOTED = "object != '<img src=x onerror=alert(1)>\"&'"


@pytest.mark.path
@pytest.mark.parametrize("page", ["/rules", "/rule?rule=nightly"])
def test_only_operators_see_rules(daemon: HttpDaemon, page: str) -> None:
    with signed_in(daemon, "ana") as ana:
        assert ana.go(page).status == 403
