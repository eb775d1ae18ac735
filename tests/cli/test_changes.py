"""Commands that change facts: each prints its effect, and a dry run writes nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

PORTO = triple("e1", "alice", "lives_in", "Porto", timestamp=at(0))
TEA = triple("e2", "alice", "likes", "tea", timestamp=at(1))
GONE = triple("e3", "alice", "likes", "tea", timestamp=at(2), metadata={"intent": "delete"})
ODD = triple("e4", "alice", "likes", "x", timestamp=at(3), metadata={"intent": "shout"})


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    site = Installation(tmp_path)
    site.put(PORTO, TEA)
    assert site.call("fire", "profile").returncode == 0
    return site


def ids(site: Installation) -> list[str]:
    return [fact["id"] for fact in site.lines("facts")]


def last_firing(site: Installation) -> str:
    rows = site.lines("audit", "ls", "--kind", "firing")
    return str(rows[-1]["firing_id"])


def answer_of(site: Installation, *arguments: str) -> dict[str, Any]:
    done = site.call(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def files(site: Installation) -> dict[str, str]:
    return {
        name: hashlib.sha256((site.state / name).read_bytes()).hexdigest()
        for name in ("memory.db", "facts.db")
    }


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        pytest.param(["undo", "profile@2"], "2 delete", id="undo"),
        pytest.param(["backfill", "profile"], "0", id="backfill"),
        pytest.param(["quarantine", "retry"], "profile", id="quarantine retry"),
        pytest.param(
            ["quarantine", "drop", "--all"], "0 entries would be dropped", id="quarantine drop"
        ),
        pytest.param(["fire", "--all"], "a dry run: nothing was written", id="fire"),
    ],
)
def test_dry_run_changes_no_byte(site: Installation, arguments: list[str], printed: str) -> None:
    before = files(site)

    done = site.call(*arguments, "--dry-run")

    assert done.returncode == 0
    assert printed in done.stdout
    assert files(site) == before


@pytest.mark.slow
def test_undo_removes_the_facts_of_a_firing_and_a_backfill_restores_them(
    site: Installation,
) -> None:
    answer = answer_of(site, "undo", last_firing(site))

    assert answer["counts"] == {"delete": 2}
    assert ids(site) == []
    assert site.call("backfill", "profile").returncode == 0
    assert ids(site) == ["e1", "e2"]
    assert site.call("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("firing", ["profile@1", "other@2", "@undo", "x", "profile@99999999999999"])
def test_undo_of_an_unknown_firing_is_refused(site: Installation, firing: str) -> None:
    done = site.call("undo", firing)

    assert done.returncode == 64
    assert f"no firing {firing!r}" in done.stderr


@pytest.mark.slow
def test_dry_run_lists_the_deltas_of_the_next_firing(site: Installation) -> None:
    site.put(GONE)

    dry = answer_of(site, "fire", "profile", "--dry-run")

    assert sorted(dry) == ["dry_run", "reports", "run"]
    assert [delta["kind"] for delta in dry["reports"][0]["deltas"]] == ["delete"]
    assert site.call("fire", "profile").returncode == 0
    assert ids(site) == ["e1"]


@pytest.mark.slow
def test_quarantine_is_listed_retried_and_dropped(site: Installation) -> None:
    site.put(ODD)
    site.call("fire", "profile")
    (entry,) = site.lines("quarantine", "ls")
    assert (entry["episode_id"], entry["reason"]) == ("e4", "intent_unknown")
    assert site.lines("quarantine", "ls", "--rule", "quiet") == []

    assert site.call("quarantine", "retry").returncode == 0
    assert len(site.lines("quarantine", "ls")) == 1

    assert "1 entry dropped" in site.call("quarantine", "drop", "e4").stdout
    assert site.lines("quarantine", "ls") == []


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True])
def test_held_batch_is_applied_when_a_person_approves_it(
    site: Installation, *, running: bool
) -> None:
    site.config.write_text(site.config.read_text() + "limits: {max_deletes: 0}\n")
    site.put(GONE)
    done = site.call("fire", "profile")
    assert done.returncode == 1
    assert (
        "waits for approval: this batch would delete 1 fact; the limit is 0 (max_deletes)"
        in done.stderr
    )
    waiting = held_batch_of(site)
    assert waiting in (site.state / "slumberd.log").read_text()

    if running:
        with site.daemon():
            done = site.call("approve", waiting)
    else:
        done = site.call("approve", waiting)

    assert done.returncode == 0, done.stderr
    assert ids(site) == ["e1"]
    assert site.call("approve", waiting).returncode == 64


@pytest.mark.slow
def test_rejected_batch_is_skipped(site: Installation) -> None:
    site.config.write_text(site.config.read_text() + "limits: {max_deletes: 0}\n")
    site.put(GONE)
    site.call("fire", "profile")
    waiting = held_batch_of(site)
    before = files(site)
    for decision in ("approve", "reject"):
        assert site.call(decision, waiting, "--dry-run").returncode == 0
    assert files(site) == before

    assert site.call("reject", waiting).returncode == 0

    assert site.lines("rules")[0]["pending"] == 0
    assert ids(site) == ["e1", "e2"]


@pytest.mark.slow
def test_daemon_consolidates_later_episodes_as_soon_as_a_batch_is_rejected(
    site: Installation,
) -> None:
    site.config.write_text(site.config.read_text() + "limits: {max_deletes: 0}\n")
    with site.daemon():
        site.put(GONE)
        wait_until(lambda: held_batch_of(site) is not None)
        site.put(triple("late", "bob", "likes", "tea", user="bob"))

        assert site.call("reject", held_batch_of(site)).returncode == 0

        wait_until(lambda: "late" in ids(site))


@pytest.mark.slow
def test_held_batch_of_a_removed_rule_stays_held(site: Installation) -> None:
    site.config.write_text(site.config.read_text() + "limits: {max_deletes: 0}\n")
    site.put(GONE)
    site.call("fire", "profile")
    firing = held_batch_of(site)
    rules = site.rules.read_text()
    site.rules.write_text(rules.replace("id: profile", "id: other"))

    done = site.call("approve", firing)

    assert (done.returncode, "no rule 'profile'" in done.stderr) == (64, True)
    site.rules.write_text(rules)
    assert held_batch_of(site) == firing


def held_batch_of(site: Installation) -> Any:
    return site.lines("status")[0]["rules"][0]["held_firing_id"]
