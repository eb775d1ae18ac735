"""An operator sees what could not be read, has it read again, or drops it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broken_disks import put
from tests.support.builders import episode
from tests.support.console_homes import (
    HOSTILE,
    OPERATOR,
    SELDOM,
    ask_daemon,
    assert_shows,
    console_daemon,
    fire,
    fresh_id,
    learn,
    ledger_rows,
    likes,
    newest_firing,
    unreadable,
)
from tests.support.console_people import Form, Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance

ODD = {"odd": "no JSON"}
"""Metadata on which the filter of the rule ``picky`` fails."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


@pytest.fixture
def daemon(running: HttpDaemon) -> HttpDaemon:
    ask_daemon(running, "drop", all=True)
    return running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def quarantined(daemon: HttpDaemon) -> set[tuple[str, str]]:
    entries = ask_daemon(daemon, "quarantined")["entries"]
    return {(entry["rule_id"], entry["episode_id"]) for entry in entries}


def spoil(daemon: HttpDaemon, *ids: str, rules: tuple[str, ...] = ("all",)) -> None:
    """Put episodes that nobody can read, and fire rules."""
    put(daemon.home, [unreadable(id) for id in ids])
    fire(daemon, *rules)


def put_for_picky(daemon: HttpDaemon, *ids: str) -> None:
    """Put readable episodes; the filter of the rule ``picky`` fails on them."""
    write_picky(daemon, "json_extract(json_extract(metadata, '$.odd'), '$.kind') = 1")
    put(daemon.home, [likes(id, "tea", user=id, metadata=ODD) for id in ids])
    fire(daemon, "picky")


def write_picky(daemon: HttpDaemon, when_filter: str) -> None:
    daemon.home.rule("picky", cadence={"every": SELDOM}, when_filter=when_filter)
    daemon.home.call("reload")


def form_for_all(page: Seen, change: str) -> Form:
    """Return the form that concerns all episodes of a rule."""
    forms = [form for form in page.page.forms if form.fields.get("change") == change]
    [found] = [form for form in forms if "episode" not in form.fields]
    return found


def test_page_of_an_empty_quarantine_says_so(operator: Person) -> None:
    assert "Nothing is in quarantine." in operator.go("/quarantine").text


def test_entry_is_shown_with_its_reason_and_a_link_to_the_episode(
    daemon: HttpDaemon, operator: Person
) -> None:
    id = fresh_id()
    spoil(daemon, id)

    seen = operator.go("/quarantine")

    assert_shows(seen, "intent_unknown", "intent is 'nonsense'", "1 all")
    assert seen.page.links[id] == f"/console/episode?id={id}&user=ana"


def test_page_of_a_rule_shows_only_its_entries(daemon: HttpDaemon, operator: Person) -> None:
    both, one = fresh_id(), fresh_id()
    spoil(daemon, both, rules=("all", "careful"))
    spoil(daemon, one)

    seen = operator.go("/quarantine", rule="careful")

    assert {id for id in (both, one) if id in seen.page.links} == {both}


def test_long_quarantine_has_pages(daemon: HttpDaemon, operator: Person) -> None:
    ids = {f"{number:03}-{fresh_id()}" for number in range(101)}
    spoil(daemon, *ids, rules=("all", "careful"))

    first = operator.go("/quarantine", rule="all")
    second = operator.go(first.page.links["Next page"])

    shown = [{id for id in ids if id in page.page.links} for page in (first, second)]
    assert [len(each) for each in shown] == [100, 1]
    assert shown[0] | shown[1] == ids
    assert "Next page" not in second.page.links


def test_episode_is_read_again_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    id, other = fresh_id(), fresh_id()
    put_for_picky(daemon, id, other)
    write_picky(daemon, "")
    form = operator.go("/quarantine").form(change="retry", episode=id)

    preview = operator.send(form, reason="the filter is mended")
    before = quarantined(daemon)
    done = operator.confirm(preview)

    assert_shows(preview, f"You ask to read again the episode {id}", "1 fact would be added")
    assert_shows(preview, "I like tea")
    assert before == {("picky", id), ("picky", other)}
    assert quarantined(daemon) == {("picky", other)}
    newest = newest_firing(daemon)
    assert (newest["trigger"], newest["by"]) == ("retry", OPERATOR)
    assert (newest["reason"], newest["counts"]["added"]) == ("the filter is mended", 1)
    assert newest["firing_id"] in operator.follow(done).text


def test_retry_of_all_says_how_many_would_stay(daemon: HttpDaemon, operator: Person) -> None:
    id, bad = fresh_id(), fresh_id()
    put(daemon.home, [unreadable(bad, metadata={**ODD, "intent": "nonsense"})])
    put_for_picky(daemon, id)
    write_picky(daemon, "")
    form = form_for_all(operator.go("/quarantine", rule="picky"), "retry")

    preview = operator.send(form, reason="all of them")
    operator.confirm(preview)

    assert_shows(
        preview,
        "You ask to read again all episodes that the rule picky could not read.",
        "1 fact would be added",
        "1 entry would stay in quarantine.",
    )
    assert quarantined(daemon) == {("picky", bad)}


def test_dropped_episode_leaves_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    id, other = fresh_id(), fresh_id()
    spoil(daemon, id, other, rules=("all", "careful"))
    form = operator.go("/quarantine").form(change="drop", episode=id, rule="careful")

    preview = operator.send(form, reason="never mind")
    before = quarantined(daemon)
    done = operator.confirm(preview)

    assert_shows(preview, f"You ask to drop from the quarantine the episode {id}")
    assert_shows(preview, "No fact would change.", "1 entry would leave the quarantine.")
    assert {(rule, name) for rule in ("all", "careful") for name in (id, other)} <= before
    assert quarantined(daemon) == before - {("careful", id)}
    newest = newest_firing(daemon)
    assert (newest["rule_id"], newest["by"]) == ("@quarantine", OPERATOR)
    assert newest["reason"] == "never mind"
    assert_shows(operator.follow(done), "1 entry has left the quarantine.")


def test_all_entries_of_a_rule_are_dropped(daemon: HttpDaemon, operator: Person) -> None:
    id, other = fresh_id(), fresh_id()
    spoil(daemon, id, other, rules=("all", "careful"))
    form = form_for_all(operator.go("/quarantine", rule="all"), "drop")

    preview = operator.send(form, reason="never mind")
    operator.confirm(preview)

    assert_shows(preview, "2 entries would leave the quarantine.")
    assert quarantined(daemon) == {("careful", id), ("careful", other)}


def test_entry_that_left_meanwhile_is_not_dropped(daemon: HttpDaemon, operator: Person) -> None:
    id = fresh_id()
    spoil(daemon, id)
    form = operator.go("/quarantine").form(change="drop", episode=id)
    preview = operator.send(form, reason="never mind")
    ask_daemon(daemon, "drop", episodes=[id])
    before = ledger_rows(daemon)

    refused = operator.confirm(preview)

    assert refused.status == 404
    assert_shows(refused, f"not in quarantine: '{id}'")
    assert refused.page.links["Go back"] == "/console/quarantine?rule=all"
    assert ledger_rows(daemon) == before


def test_hostile_content_is_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    id = HOSTILE + fresh_id()
    put(daemon.home, [episode(id, user=HOSTILE, metadata={"intent": HOSTILE})])
    fire(daemon, "all")
    page = operator.go("/quarantine")

    preview = operator.send(page.form(change="drop", episode=id), reason=HOSTILE)

    assert_shows(page, id, "intent is ")
    assert_shows(preview, id, f"The ledger keeps the reason: {HOSTILE}")
    assert operator.confirm(preview).status == 303


@pytest.mark.path
def test_only_operators_see_the_page(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "ana") as ana:
        assert ana.go("/quarantine").status == 403


def test_learned_episode_is_not_in_quarantine(daemon: HttpDaemon, operator: Person) -> None:
    id = fresh_id()
    learn(daemon, likes(id, "tea"))

    assert id not in operator.go("/quarantine").page.links
