"""A paused rule is not due, whoever asks and however often the daemon is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.config.rule_loader import RuleSet
from slumberd.errors import StoreError, UsageError
from slumberd.service.control_socket import Peer
from slumberd.service.pause import FILE, Pausing, paused_in
from slumberd.service.requests import RulesForm
from tests.support.builders import rule, triple
from tests.support.daemons import Home
from tests.support.installation import jsonl

pytestmark = pytest.mark.integration

ME = Peer(7, 7, 7)
RULES = RuleSet((rule("a"), rule("b")), {}, {"a": "rules.yaml", "b": "rules.yaml"})


def pausing(folder: Path) -> Pausing:
    return Pausing(folder, lambda: RULES)


async def test_a_paused_rule_stays_paused_for_the_next_daemon(tmp_path: Path) -> None:
    with capture_logs() as logged:
        answer = await pausing(tmp_path).pause(RulesForm(rules=["a"]), ME)

    assert answer == {"changed": ["a"], "paused": ["a"]}
    assert [one.id for one in pausing(tmp_path).awake(RULES.rules)] == ["b"]
    assert paused_in(tmp_path) == {"a": "uid 7"}
    assert [(line["event"], line["rule_id"], line["by"]) for line in logged] == [
        ("rule.paused", "a", "uid 7")
    ]


async def test_a_resumed_rule_is_looked_at_at_once(tmp_path: Path) -> None:
    one, looks = pausing(tmp_path), []
    await one.pause(RulesForm(rules=["a", "b"]), ME)
    one.changed = lambda: looks.append([rule.id for rule in one.awake(RULES.rules)])

    answer = await one.resume(RulesForm(rules=["a"]), ME)

    assert answer == {"changed": ["a"], "paused": ["b"]}
    assert looks == [["a"]]


async def test_a_rule_that_is_not_there_is_not_paused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rule 'c'; there are a, b"):
        await pausing(tmp_path).pause(RulesForm(rules=["a", "c"]), ME)

    assert paused_in(tmp_path) == {}


def test_a_file_that_is_none_of_ours_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[]")

    with pytest.raises(StoreError, match="delete it to resume every rule"):
        pausing(tmp_path)


def test_pause_and_resume_work_without_a_daemon(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("a", cadence={"every": 1})

    assert home.call("pause", "a").stdout == "paused: a\npaused now: a\n"
    assert home.call("pause", "a").stdout == "paused: no other rule\npaused now: a\n"
    assert home.call("resume", "a").stdout == "resumed: a\npaused now: no rule\n"


def test_a_running_daemon_leaves_a_paused_rule_alone_until_it_is_resumed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("a", cadence={"every": 1}, then_emits=["first"])
    home.rule("b", cadence={"every": 1}, then_emits=["second"])
    with home.daemon() as daemon:
        home.call("pause", "a")
        (tmp_path / "put.jsonl").write_bytes(jsonl(triple("e1", "alice", "likes", "tea")))
        home.call("import", tmp_path / "put.jsonl")
        daemon.wait_for("firing.completed", lambda event: event["rule_id"] == "b")

        assert home.facts("--channel", "first") == []
        assert "paused" in home.call("rules").stdout
        assert "paused     a" in home.call("status").stdout
        assert "a (paused by uid" in home.call("next").stdout

        home.call("resume", "a")
        daemon.wait_for("firing.completed", lambda event: event["rule_id"] == "a")


@pytest.mark.parametrize(
    "content",
    [b'{"paused": "all"}', b'{"paused": ["a"]}', b'{"paused": {"a": 7}}', b"[]", b"null", b"{}"],
)
def test_a_file_of_another_form_is_an_error_with_its_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)

    with pytest.raises(StoreError, match="delete it to resume every rule"):
        paused_in(tmp_path)


def test_a_pipe_in_place_of_the_file_is_an_error_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)

    with pytest.raises(StoreError, match="delete it"):
        paused_in(tmp_path)
