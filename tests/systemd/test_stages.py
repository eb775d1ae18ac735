"""A rule with stages beside the shipped rules, under a real systemd with its sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.builders import episode
from tests.support.installation import jsonl
from tests.support.repository import ROOT
from tests.support.waiting import wait_until
from tests.systemd.box import PEOPLE, Box, installation_commands
from tests.systemd.box import bootable as bootable

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.nightly,
    pytest.mark.usefixtures("bootable"),
]

CHAT = """\
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: "agent = 'booking'"
    then_emits: [wants]
    stages:
      - extract: {with: patterns, patterns: patterns/booking.yaml}
      - dedup: {}
      - importance: {below: 0.1}
"""
BOOKING = ROOT / "docs" / "examples" / "booking.yaml"
RETENTION = "s/^  purge_archived_after: null/  purge_archived_after: 1s/"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Return a machine with the shipped configuration and rules, and one rule more."""
    with Box(tmp_path_factory.mktemp("box")) as box:
        box.do("systemctl start systemd-journald")
        box.do(installation_commands())
        box.do("systemd-sysusers -", PEOPLE)
        box.log_to_journal()
        box.do("systemctl restart slumberd")
        box.do("mkdir /etc/slumberd/rules.d/patterns")
        box.do("cat > /etc/slumberd/rules.d/patterns/booking.yaml", BOOKING.read_text())
        box.do("cat > /etc/slumberd/rules.d/chat.yaml", CHAT)
        box.do("slumberd check; systemctl reload slumberd")
        yield box
        box.do("systemctl stop slumberd")


def say(box: Box, user: str, **texts: str) -> None:
    """Put chat episodes of a user, by id, as an agent does."""
    said = [
        episode(id, content=text, user=user, agent="booking", source_node="guest", session=user)
        for id, text in texts.items()
    ]
    box.do("runuser -u agent -- slumberd import -", jsonl(*said).decode())


def facts(box: Box, user: str, channel: str) -> dict[str, tuple[str, Any]]:
    """Return the predicate and object of each fact of a user in a channel."""
    words = f"--user {user} --channel {channel} --json"
    found = map(json.loads, box.do(f"runuser -u agent -- slumberd facts {words}").splitlines())
    return {fact["id"]: (fact["payload"]["predicate"], fact["payload"]["object"]) for fact in found}


def test_shipped_rules_and_the_rule_with_stages_are_in_force(box: Box) -> None:
    rules = json.loads(box.do("runuser -u agent -- slumberd status --json"))["rules"]

    assert {rule["id"] for rule in rules} == {"chat", "nightly", "preferences", "profile"}


def test_sentence_becomes_a_fact_and_a_repeat_is_marked(box: Box) -> None:
    say(box, "ann", a1="I want some thai food.", a2="See you!", a3="See you!")

    wait_until(lambda: facts(box, "ann", "marks") == {"@marks/a2": ("duplicate_of", "a3")})

    assert facts(box, "ann", "wants") == {"@wants/a1#1": ("food", "thai")}
    finished = [
        event for event in box.journal("-u slumberd") if event["event"] == "firing.finished"
    ]
    assert {"chat"} == {event["rule_id"] for event in finished if event["channels"].get("marks")}
    assert sum(event["channels"].get("marks", {}).get("added", 0) for event in finished) == 1
    assert sum(event["channels"].get("wants", {}).get("added", 0) for event in finished) == 1
    report = json.loads(box.do("runuser -u agent -- slumberd report --json"))
    chat = report["rules"]["chat"]
    assert (chat["learned"], chat["marked"]) == (1, 1)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("systemctl restart slumberd", id="restart"),
        pytest.param("systemctl kill --signal=KILL slumberd", id="kill"),
    ],
)
def test_facts_and_marks_survive_the_end_of_the_daemon(box: Box, end: str) -> None:
    user = end.split()[1]
    first, second = f"{user}1", f"{user}2"
    say(box, user, **{first: "I want some greek food."})
    wait_until(lambda: f"@wants/{first}#1" in facts(box, user, "wants"))
    pid = box.show("MainPID")

    box.do(end)

    wait_until(lambda: box.show("MainPID") != pid and box.show("ActiveState") == "active")
    say(box, user, **{second: "I want some greek food."})
    wait_until(lambda: bool(facts(box, user, "marks")))
    assert facts(box, user, "marks") == {f"@marks/{first}": ("duplicate_of", second)}
    assert facts(box, user, "wants") == {f"@wants/{second}#1": ("food", "greek")}
    assert "verified" in box.do("slumberd audit verify")


def test_retention_deletes_a_repeat_and_keeps_what_facts_cite(box: Box) -> None:
    say(box, "eve", e1="I want some thai food.", e2="Good bye!", e3="Good bye!")
    wait_until(lambda: facts(box, "eve", "marks") == {"@marks/e2": ("duplicate_of", "e3")})
    box.do(f"sed -i '{RETENTION}' /etc/slumberd/slumberd.yaml; systemctl reload slumberd")

    wait_until(lambda: "purged" in fire_all(box))

    [purged] = [
        event for event in box.journal("-u slumberd") if event["event"] == "episodes.purged"
    ]
    assert "e2" in purged["episode_ids"]
    assert not {"e1", "e3"} & {*purged["episode_ids"]}
    assert facts(box, "eve", "wants") == {"@wants/e1#1": ("food", "thai")}


def fire_all(box: Box) -> str:
    return box.do("runuser -u agent -- slumberd fire --all --json")


def test_agent_searches_and_takes_a_context_beside_the_service(box: Box) -> None:
    say(box, "nina", s1="A table by the window, please.", s2="For Friday at eight.")

    found = box.do("runuser -u agent -- slumberd search 'window table' --user nina --json")
    quoted = box.do("runuser -u agent -- slumberd context nina 'Which table?' --budget 500")

    assert [json.loads(line)["id"] for line in found.splitlines()] == ["s1", "s2"]
    assert '"A table by the window, please."' in quoted
