"""A paused rule is never due, also after a restart of the daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.daemon.rules import PAUSED_FILE, PausedFile, paused_in
from slumberd.model.errors import StoreError, UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.pauses import Pausing, RulesForm
from slumberd.rules.rule_loader import RuleSet
from tests.support.builders import rule, triple
from tests.support.daemons import Home
from tests.support.installation import jsonl

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
RULES = RuleSet((rule("a"), rule("b")), {}, {"a": "rules.yaml", "b": "rules.yaml"})


def pausing_of(folder: Path) -> Pausing:
    return Pausing(PausedFile(folder), lambda: RULES)


async def test_paused_rule_stays_paused_for_the_next_daemon(tmp_path: Path) -> None:
    with capture_logs() as logged:
        answer = await pausing_of(tmp_path).pause(RulesForm(rules=["a"]), ME)

    assert answer == {"changed": ["a"], "paused": ["a"]}
    assert [awake.id for awake in pausing_of(tmp_path).awake(RULES.rules)] == ["b"]
    assert paused_in(tmp_path) == {"a": "uid 7"}
    assert [(line["event"], line["rule_id"], line["by"]) for line in logged] == [
        ("rule.paused", "a", "uid 7")
    ]


async def test_resume_notifies_the_scheduler_of_awake_rules(tmp_path: Path) -> None:
    pausing, awake_after_change = pausing_of(tmp_path), []
    await pausing.pause(RulesForm(rules=["a", "b"]), ME)
    pausing.changed = lambda: awake_after_change.append(
        [rule.id for rule in pausing.awake(RULES.rules)]
    )

    answer = await pausing.resume(RulesForm(rules=["a"]), ME)

    assert answer == {"changed": ["a"], "paused": ["b"]}
    assert awake_after_change == [["a"]]


async def test_requests_at_the_same_time_lose_no_pause(tmp_path: Path) -> None:
    pausing = pausing_of(tmp_path)

    await asyncio.gather(*(pausing.pause(RulesForm(rules=[name]), ME) for name in "ab"))
    assert sorted(paused_in(tmp_path)) == sorted(pausing.paused) == ["a", "b"]

    await asyncio.gather(*(pausing.resume(RulesForm(rules=[name]), ME) for name in "ab"))
    assert paused_in(tmp_path) == pausing.paused == {}


async def test_pause_of_an_unknown_rule_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rule 'c'; there are a, b"):
        await pausing_of(tmp_path).pause(RulesForm(rules=["a", "c"]), ME)

    assert paused_in(tmp_path) == {}


def test_unreadable_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / PAUSED_FILE).write_text("[]")

    with pytest.raises(StoreError, match="delete it to resume every rule"):
        pausing_of(tmp_path)


def test_pause_and_resume_work_without_a_daemon(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("a", cadence={"every": 1})

    assert home.call("pause", "a").stdout == "paused: a\npaused now: a\n"
    assert home.call("pause", "a").stdout == "paused: no other rule\npaused now: a\n"
    assert home.call("resume", "a").stdout == "resumed: a\npaused now: no rule\n"


@pytest.mark.slow
def test_running_daemon_does_not_fire_a_paused_rule_until_it_is_resumed(tmp_path: Path) -> None:
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
def test_file_of_another_form_is_an_error_with_its_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PAUSED_FILE).write_bytes(content)

    with pytest.raises(StoreError, match="delete it to resume every rule"):
        paused_in(tmp_path)


def test_pipe_in_place_of_the_file_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / PAUSED_FILE)

    with pytest.raises(StoreError, match="delete it"):
        paused_in(tmp_path)
