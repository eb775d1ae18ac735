"""An operator looks through the firings, and undoes them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.broken_disks import put
from tests.support.builders import at
from tests.support.console_homes import (
    HOSTILE,
    OPERATOR,
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
from tests.support.console_people import Person, Seen, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance

FUTURE = "2100-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


@pytest.fixture
def user() -> str:
    """Return the id of a user whom no other test knows."""
    return fresh_id()


def objects(daemon: HttpDaemon, user: str) -> list[str]:
    facts = ask_daemon(daemon, "facts", user=user)["facts"]
    return sorted(fact["payload"]["object"] for fact in facts)


def pin(daemon: HttpDaemon, user: str, object: str) -> str:
    """Assert a fact as a person, and return the firing."""
    answer = ask_daemon(
        daemon,
        "pin",
        user=user,
        agent="rag",
        subject="ana",
        predicate="likes",
        object=object,
        reason="she said so",
    )
    return str(answer["firing_id"])


def preview_undo(operator: Person, firing: str, reason: str = "a mistake") -> Seen:
    form = operator.go("/firing", id=firing).form(change="undo")
    return operator.send(form, reason=reason)


def test_firings_are_listed_newest_first_with_what_they_did(
    daemon: HttpDaemon, operator: Person, user: str
) -> None:
    older = learn(daemon, likes(fresh_id(), "tea", user=user))
    newer = learn(
        daemon, likes(fresh_id(), "milk", user=user, timestamp=at(1)), unreadable(fresh_id())
    )

    seen = operator.go("/firings")

    assert_shows(seen, "manual", "uid 0")
    assert seen.text.index(newer) < seen.text.index(older)
    assert "1 changed, 1 quarantined" in seen.page.links
    assert seen.page.links[newer] == f"/console/firing?id={newer.replace('@', '%40')}"


@pytest.mark.parametrize("filtered", ["rule", "run", "since"])
def test_list_shows_only_what_matches(
    daemon: HttpDaemon, operator: Person, user: str, filtered: str
) -> None:
    other = pin(daemon, user, "tea")
    put(daemon.home, [likes(fresh_id(), "milk", user=user)])
    fired = fire(daemon, "all")
    [firing] = fired["reports"][0]["firing_ids"]
    wanted = {"rule": "all", "run": fired["run"], "since": newest_firing(daemon)["at"]}

    seen = operator.go("/firings", **{filtered: wanted[filtered]})

    assert firing in seen.page.links
    assert other not in seen.page.links
    assert operator.go("/firings", since=FUTURE).text.count("No firing matches.") == 1


def test_long_list_has_pages(daemon: HttpDaemon, operator: Person, user: str) -> None:
    firings = {pin(daemon, user, f"tea {number}") for number in range(51)}

    first = operator.go("/firings", rule="@manual")
    second = operator.go(first.page.links["Next page"])

    shown = [
        {firing for firing in firings if firing in page.page.links} for page in (first, second)
    ]
    assert [len(each) for each in shown] == [50, 1]
    assert shown[0] | shown[1] == firings


def test_firing_is_shown_with_its_changes_in_words(
    daemon: HttpDaemon, operator: Person, user: str
) -> None:
    tea, milk = fresh_id(), fresh_id()
    learn(daemon, likes(tea, "tea", user=user))
    firing = learn(daemon, likes(milk, "milk", user=user, timestamp=at(1)))

    seen = operator.go("/firing", id=firing)

    assert_shows(seen, "1 changed", "1 read", "Change", "ana likes milk", "uid 0", user)
    assert seen.page.links[tea] == f"/console/fact?id={tea}&user={user}"
    run = ask_daemon(daemon, "firings", firing=firing)["firings"][0]["run"]
    assert firing in operator.go(seen.page.links[run]).page.links


def test_large_firing_has_pages(daemon: HttpDaemon, operator: Person) -> None:
    ids = [fresh_id() for _ in range(101)]
    firing = learn(daemon, *(likes(id, "tea", user=id) for id in ids))

    first = operator.go("/firing", id=firing)
    second = operator.go(first.page.links["Next page"])

    shown = [{id for id in ids if id in page.page.links} for page in (first, second)]
    assert [len(each) for each in shown] == [100, 1]
    assert shown[0] | shown[1] == {*ids}
    # The first rows are in words. Each further one costs two reads, so it has its ids only.
    assert first.text.count("ana likes tea") == 50


@pytest.mark.parametrize("id", ["all@999999", "nothing", "@undo@x", HOSTILE])
def test_unknown_firing_is_not_found(operator: Person, id: str) -> None:
    seen = operator.go("/firing", id=id)

    assert seen.status == 404
    assert_shows(seen, "the ledger has no firing of that id")


@pytest.mark.parametrize("since", ["yesterday", "2026-01-01T00:00:00", HOSTILE])
def test_malformed_instant_is_refused(operator: Person, since: str) -> None:
    seen = operator.go("/firings", since=since)

    assert seen.status == 400
    assert_shows(seen, "firings: since")


def test_undo_shows_first_what_it_would_do(daemon: HttpDaemon, operator: Person, user: str) -> None:
    learn(daemon, likes(fresh_id(), "tea", user=user))
    firing = learn(daemon, likes(fresh_id(), "milk", user=user, timestamp=at(1)))
    before = ledger_rows(daemon)

    preview = preview_undo(operator, firing)

    assert_shows(
        preview,
        f"You ask to undo the firing {firing}: what it changed is taken back.",
        "Nothing has changed yet.",
        "ana likes milk",
        "I like tea",
        "The ledger keeps the reason: a mistake",
    )
    assert (ledger_rows(daemon), objects(daemon, user)) == (before, ["milk"])
    assert preview.page.links["Do not change anything"].startswith("/console/firing?id=")


def test_undo_is_in_the_ledger_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person, user: str
) -> None:
    firing = learn(daemon, likes(fresh_id(), "tea", user=user))

    done = operator.confirm(preview_undo(operator, firing))

    newest = newest_firing(daemon)
    assert (newest["undoes"], newest["by"], newest["reason"]) == (firing, OPERATOR, "a mistake")
    assert objects(daemon, user) == []
    shown = operator.follow(done)
    assert parse_qs(urlsplit(done.to).query)["id"] == [newest["firing_id"]]
    assert_shows(shown, f"This firing undid {firing}.", "a mistake", OPERATOR)
    undone = operator.go("/firing", id=firing)
    assert_shows(undone, f"This firing is undone. {newest['firing_id']} undid it")
    assert not [form for form in undone.page.forms if "change" in form.fields]


def test_undo_can_be_undone(daemon: HttpDaemon, operator: Person, user: str) -> None:
    firing = learn(daemon, likes(fresh_id(), "tea", user=user))
    undoing = operator.follow(operator.confirm(preview_undo(operator, firing)))

    preview = operator.send(undoing.form(change="undo"), reason="it was right")
    operator.confirm(preview)

    assert_shows(preview, "what it took back takes effect again", "1 fact would be added")
    assert_shows(preview, "I like tea")
    assert objects(daemon, user) == ["tea"]
    again = operator.go("/firing", id=firing)
    assert "This firing is undone." not in again.text


def test_run_is_undone_as_a_whole(daemon: HttpDaemon, operator: Person, user: str) -> None:
    put(daemon.home, [likes(fresh_id(), "tea", user=user)])
    fired = fire(daemon, "all", "careful")
    page = operator.go("/firings", run=fired["run"])

    preview = operator.send(page.form(change="undo run"), reason="too early")
    done = operator.confirm(preview)

    assert_shows(preview, f"You ask to undo all firings of the run {fired['run']}.")
    firings = {firing for report in fired["reports"] for firing in report["firing_ids"]}
    shown = ask_daemon(daemon, "firings", run=parse_qs(urlsplit(done.to).query)["run"][0])
    assert {each["undoes"] for each in shown["firings"]} == firings
    assert {each["reason"] for each in shown["firings"]} == {"too early"}
    assert objects(daemon, user) == []


def test_firings_of_a_rule_since_an_instant_are_undone(
    daemon: HttpDaemon, operator: Person, user: str
) -> None:
    learn(daemon, likes(fresh_id(), "tea", user=user))
    firing = learn(daemon, likes(fresh_id(), "milk", user=user, timestamp=at(1)))
    page = operator.go("/firings", rule="all", since=newest_firing(daemon)["at"])

    preview = operator.send(page.form(change="undo since"), reason="too late")
    done = operator.confirm(preview)

    assert_shows(preview, "You ask to undo all firings of the rule all since 20")
    assert_shows(operator.follow(done), f"This firing undid {firing}.", "too late")
    assert objects(daemon, user) == ["tea"]


def test_undo_without_a_reason_is_refused(daemon: HttpDaemon, operator: Person, user: str) -> None:
    firing = learn(daemon, likes(fresh_id(), "tea", user=user))
    before = ledger_rows(daemon)

    refused = preview_undo(operator, firing, reason="")

    assert refused.status == 400
    assert_shows(refused, f"You ask to undo the firing {firing}", "reason: is missing")
    assert operator.go(refused.page.links["Go back"]).status == 200
    assert ledger_rows(daemon) == before


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        pytest.param(" ", "1 to 1,000 characters are needed", id="blank"),
        pytest.param("x" * 1_001, "too long: 1,001 characters, at most 1,000", id="long"),
    ],
)
def test_reason_that_the_ledger_does_not_take_is_refused(
    daemon: HttpDaemon, operator: Person, user: str, reason: str, problem: str
) -> None:
    firing = learn(daemon, likes(fresh_id(), "tea", user=user))

    refused = preview_undo(operator, firing, reason)

    assert refused.status == 400
    assert_shows(refused, f"undo: reason: {problem}")


def test_undo_that_is_sent_twice_undoes_once(
    daemon: HttpDaemon, operator: Person, user: str
) -> None:
    preview = preview_undo(operator, learn(daemon, likes(fresh_id(), "tea", user=user)))
    operator.confirm(preview)
    before = ledger_rows(daemon)

    again = operator.confirm(preview)

    assert again.status == 400
    assert_shows(again, "this form was sent before")
    assert ledger_rows(daemon) == before


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"change": "undo"}, "firing: is missing", id="no firing"),
        pytest.param({"change": HOSTILE}, "unknown change", id="unknown change"),
        pytest.param({}, "change: is missing", id="no change"),
        pytest.param(
            {"change": "undo since", "rule": "all", "since": HOSTILE},
            "an instant with an offset is needed",
            id="no instant",
        ),
        pytest.param(
            {"change": "undo", "firing": HOSTILE}, f"no firing '{HOSTILE[:20]}", id="no such firing"
        ),
    ],
)
def test_incomplete_change_is_refused(
    operator: Person, fields: dict[str, str], problem: str
) -> None:
    given = {"form_secret": operator.secret(), "reason": "a mistake", **fields}

    refused = operator.post("/change", given)

    assert refused.status == 400
    assert_shows(refused, problem)


@pytest.mark.path
def test_reload_of_a_preview_leads_to_the_first_page(operator: Person) -> None:
    assert operator.go("/change").to == "/console/"


def test_erasure_cannot_be_undone(daemon: HttpDaemon, operator: Person, user: str) -> None:
    learn(daemon, likes(fresh_id(), "tea", user=user))
    erased = ask_daemon(daemon, "forget", user=user)["firing_id"]
    form = {"change": "undo", "firing": erased, "reason": "a mistake"}

    seen = operator.go("/firing", id=erased)
    refused = operator.post("/change", {**form, "form_secret": operator.secret()})

    assert_shows(seen, "An erasure cannot be undone.")
    assert not [form for form in seen.page.forms if "change" in form.fields]
    assert refused.status == 400
    assert_shows(refused, "is an erasure; an erasure cannot be undone")


def test_hostile_content_is_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    id, user = HOSTILE + fresh_id(), HOSTILE + fresh_id()
    firing = learn(daemon, likes(id, HOSTILE, user=user))

    shown = operator.go("/firing", id=firing)
    preview = preview_undo(operator, firing, HOSTILE)
    done = operator.confirm(preview)

    for seen in (shown, preview):
        assert_shows(seen, f"ana likes {HOSTILE}", id, user)
    assert_shows(operator.follow(done), HOSTILE)
    assert_shows(operator.go("/firings"), HOSTILE)
    assert_shows(operator.go("/firings", rule=HOSTILE, run=HOSTILE), "No firing matches.")


@pytest.mark.parametrize("path", ["/firings", "/firing?id=all%401"])
@pytest.mark.parametrize("name", ["ana", "reader"])
def test_only_operators_see_firings(daemon: HttpDaemon, name: str, path: str) -> None:
    with signed_in(daemon, name) as person:
        seen = person.go(path)

    assert seen.status == 403
    assert "Firings" not in seen.page.links
