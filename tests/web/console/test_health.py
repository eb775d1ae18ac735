"""An operator sees how the daemon is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broken_disks import put
from tests.support.console_homes import (
    ask_daemon,
    assert_shows,
    console_daemon,
    fire,
    fresh_id,
    hold,
    likes,
    unreadable,
)
from tests.support.console_people import Person, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def test_figures_are_those_of_the_daemon(daemon: HttpDaemon, operator: Person) -> None:
    put(daemon.home, [likes(fresh_id(), "tea"), unreadable(fresh_id())])
    fire(daemon, "all")
    status = ask_daemon(daemon, "status")

    seen = operator.go("/health")

    assert seen.status == 200
    assert_shows(
        seen,
        f"Process id {status['pid']}",
        status["rules_hash"],
        "2 of 2 rules are enabled",
        "1 in quarantine",
    )
    assert seen.page.links["1 in quarantine"] == "/console/quarantine"
    assert seen.page.links["all"] == "/console/rule?rule=all"


def test_page_says_what_to_do_and_where(daemon: HttpDaemon, operator: Person) -> None:
    hold(daemon)
    ask_daemon(daemon, "pause", rules=["all"])
    try:
        seen = operator.go("/health")
    finally:
        ask_daemon(daemon, "resume", rules=["all"])

    assert_shows(
        seen,
        "error: 1 batch awaits approval.",
        "Approve each batch if its deletions are intended, else reject it.",
        "warning: The rule all is paused.",
        "`slumberd resume all` resumes it",
    )
    assert seen.page.links["1 batch awaits approval"] == "/console/approvals"


@pytest.mark.path
def test_configuration_that_cannot_be_read_is_no_error_page(
    daemon: HttpDaemon, operator: Person
) -> None:
    sound = daemon.home.config.read_bytes()
    daemon.home.config.write_text("state_dir: <img src=x>\nnonsense: 1\n")
    try:
        seen = operator.go("/health")
    finally:
        daemon.home.config.write_bytes(sound)

    assert seen.status == 200
    assert_shows(seen, "The configuration or a rule file has mistakes")


def test_only_operators_see_the_page(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "ana") as ana:
        assert ana.go("/health").status == 403
