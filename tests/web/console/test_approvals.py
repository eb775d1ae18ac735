"""An operator sees the batches that await approval, and decides on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.console_homes import (
    HOSTILE,
    OPERATOR,
    ask_daemon,
    assert_shows,
    console_daemon,
    hold,
    ledger_rows,
    newest_firing,
    reject_all,
)
from tests.support.console_people import Person, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


@pytest.fixture
def daemon(running: HttpDaemon) -> HttpDaemon:
    reject_all(running)
    return running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def test_page_without_batches_says_so(operator: Person) -> None:
    assert "No batch awaits approval." in operator.go("/approvals").text


@pytest.mark.path
def test_batch_is_shown_with_its_problem_and_without_a_dry_run(
    daemon: HttpDaemon, operator: Person
) -> None:
    firing = hold(daemon)

    seen = operator.go("/approvals")

    assert_shows(seen, firing, "this batch would delete 1 fact; the limit is 0 (max_deletes)")
    assert f"Show what the batch {firing} would do" in seen.page.links
    assert "would be retracted" not in seen.text


def test_dry_run_of_a_batch_says_in_words_what_it_would_do(
    daemon: HttpDaemon, operator: Person
) -> None:
    firing = hold(daemon)
    before = ledger_rows(daemon)
    page = operator.go("/approvals")

    seen = operator.go(page.page.links[f"Show what the batch {firing} would do"])

    assert_shows(seen, "1 fact would be retracted", "ana likes tea")
    assert ledger_rows(daemon) == before


def test_approved_batch_is_applied_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    firing = hold(daemon)
    form = operator.go("/approvals").form(change="approve")

    preview = operator.send(form, reason="she asked for it")
    held = ask_daemon(daemon, "held")["held"]
    done = operator.confirm(preview)

    assert_shows(preview, f"You ask to approve the batch {firing}", "1 fact would be retracted")
    assert [batch["firing_id"] for batch in held] == [firing]
    assert ask_daemon(daemon, "held")["held"] == []
    newest = newest_firing(daemon)
    assert (newest["by"], newest["reason"]) == (OPERATOR, "she asked for it")
    assert newest["counts"]["deleted"] == 1
    assert newest["firing_id"] in operator.follow(done).text


def test_rejected_batch_is_skipped_with_a_name_and_a_reason(
    daemon: HttpDaemon, operator: Person
) -> None:
    firing = hold(daemon)
    form = operator.go("/approvals").form(change="reject")

    preview = operator.send(form, reason="a joke")
    done = operator.confirm(preview)

    assert_shows(preview, f"You ask to reject the batch {firing}", "No fact would change.")
    assert_shows(operator.follow(done), f"The batch {firing} is rejected.", "No batch awaits")
    newest = newest_firing(daemon)
    assert (newest["rule_id"], newest["by"], newest["reason"]) == ("careful", OPERATOR, "a joke")
    assert newest["counts"]["deleted"] == 0


def test_batch_that_was_decided_meanwhile_is_not_decided_again(
    daemon: HttpDaemon, operator: Person
) -> None:
    firing = hold(daemon)
    preview = operator.send(operator.go("/approvals").form(change="approve"), reason="fine")
    ask_daemon(daemon, "decide", firing=firing, approve=False)
    before = ledger_rows(daemon)

    refused = operator.confirm(preview)

    assert refused.status == 400
    assert_shows(refused, f"no batch '{firing}' is held")
    assert ledger_rows(daemon) == before
    back = operator.go(refused.page.links["Go back"])
    assert_shows(back, f"The batch {firing} does not await approval any more.")


def test_form_that_is_sent_twice_decides_once(daemon: HttpDaemon, operator: Person) -> None:
    hold(daemon)
    preview = operator.send(operator.go("/approvals").form(change="approve"), reason="fine")
    operator.confirm(preview)
    before = ledger_rows(daemon)

    again = operator.confirm(preview)

    assert again.status == 400
    assert_shows(again, "this form was sent before")
    assert ledger_rows(daemon) == before


def test_hostile_content_is_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    firing = hold(daemon, HOSTILE)
    form = operator.go("/approvals").form(change="approve")

    shown = operator.go("/approvals", firing=firing)
    preview = operator.send(form, reason=HOSTILE)
    unknown = operator.go("/approvals", firing=HOSTILE)

    assert_shows(shown, f"ana likes {HOSTILE}")
    assert_shows(preview, f"ana likes {HOSTILE}", f"The ledger keeps the reason: {HOSTILE}")
    assert_shows(unknown, HOSTILE)


def test_only_operators_see_the_page(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "ana") as ana:
        assert ana.go("/approvals").status == 403
