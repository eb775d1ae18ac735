"""What commands show and do where channels have fact stores of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.site import CONFIG, RULES, Site

pytestmark = pytest.mark.integration

TEA = triple("e1", "alice", "likes", "tea", timestamp=at(0))
ODD = triple("e2", "alice", "likes", "x", timestamp=at(1), metadata={"intent": "shout"})
BARE = triple("e3", "alice", None, "x", timestamp=at(2))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site whose rule ``profile`` has fired into two stores."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.config.write_text(CONFIG + "facts: {channels: {notes: notes.db, later: later.db}}\n")
    site.rules.write_text(RULES.replace("then_emits: [facts]", "then_emits: [facts, notes]"))
    site.put(TEA, ODD, BARE)
    done = site.run("fire", "profile")
    assert done.returncode == 0, done.stderr
    return site


def ids(site: Site, *arguments: str) -> list[str]:
    return [fact["id"] for fact in site.lines("facts", *arguments)]


def test_facts_are_shown_of_every_store_or_of_one_channel(site: Site) -> None:
    assert ids(site) == ["@notes/e1", "e1"]
    assert ids(site, "--channel", "notes") == ["@notes/e1"]
    assert ids(site, "--channel", "facts") == ["e1"]
    assert ids(site, "--channel", "later") == []
    assert ids(site, "--channel", "notes", "--valid-at", "2030-01-01") == ["@notes/e1"]


def test_a_why_finds_the_store_of_the_fact(site: Site) -> None:
    (found,) = site.lines("why", "@notes/e1")

    assert found["stands"]
    assert [one["rule_id"] for one in found["promoted"]] == ["profile"]
    assert site.look("why", "nobody").returncode == 66


def test_a_why_not_tells_every_channel_once(site: Site) -> None:
    found = {(one["rule_id"], one["channel"]): one for one in site.lines("why-not", "e2")}

    assert list(found) == [("profile", "facts"), ("profile", "notes"), ("quiet", "notes")]
    assert {one["became"] for one in found.values()} == {"quarantined", "pending"}
    assert len(site.lines("why-not", "e2")) == 3


def test_the_quarantine_of_every_store_is_listed(site: Site) -> None:
    found = [(one["channel"], one["episode_id"]) for one in site.lines("quarantine", "ls")]

    assert found == [("facts", "e2"), ("notes", "e2")]


def test_every_ledger_is_verified_or_that_of_one_channel(site: Site) -> None:
    found = {one["store"]: one["ok"] for one in site.lines("audit", "verify")}

    assert found == {"facts.db": True, "notes.db": True, "later.db": True}
    (only,) = site.lines("audit", "verify", "--channel", "notes")
    assert only["store"] == "notes.db"
    told = site.look("audit", "verify").stdout.splitlines()
    assert [line.split(":")[0] for line in told] == ["facts.db", "notes.db", "later.db"]


def test_a_ledger_is_held_against_its_own_lines_of_a_log(site: Site) -> None:
    log = str(site.state / "slumberd.log")

    found = site.lines("audit", "verify", "--against", log)

    assert [one["checkpoints"] for one in found] == [1, 1, 1]
    refused = site.look("audit", "verify", "--against", "-")
    assert (refused.returncode, "name a --channel" in refused.stderr) == (64, True)


def test_rows_of_a_ledger_are_those_of_the_channel(site: Site, tmp_path: Path) -> None:
    notes = site.lines("audit", "ls", "--channel", "notes", "--kind", "add")
    assert [row["fact_id"] for row in notes] == ["@notes/e1"]
    assert [row["fact_id"] for row in site.lines("audit", "ls", "--kind", "add")] == ["e1"]

    exported = site.look("audit", "export", "--channel", "notes").stdout.splitlines()
    assert any("@notes/e1" in line for line in exported)
    assert not any(json.loads(line).get("fact_id") == "e1" for line in exported)

    (replayed,) = site.lines("audit", "replay", str(tmp_path / "n.db"), "--channel", "notes")
    assert (replayed["ok"], replayed["facts"]) == (True, 1)


def test_state_is_shown_of_every_store(site: Site) -> None:
    (state,) = site.lines("status")

    assert state["facts"] == 2
    assert [(one["store"], one["facts"]) for one in state["stores"]] == [
        ("facts.db", 1), ("notes.db", 1), ("later.db", 0),
    ]  # fmt: skip
    rules = {one["id"]: one for one in state["rules"]}
    assert (rules["profile"]["watermark"], rules["profile"]["pending"]) == (3, 0)
    assert (rules["quiet"]["watermark"], rules["quiet"]["pending"]) == (None, 3)
    assert rules["profile"]["quarantined"] == 2
    assert "notes.db: 1 fact," in site.look("status").stdout


def test_a_firing_is_undone_in_the_store_that_has_it(site: Site) -> None:
    (row,) = site.lines("audit", "ls", "--channel", "notes", "--kind", "firing")

    found = site.run("undo", row["firing_id"], "--dry-run")
    elsewhere = site.run("undo", row["firing_id"], "--channel", "facts", "--dry-run")

    assert (found.returncode, "@notes/e1" in found.stdout) == (0, True)
    assert (elsewhere.returncode, "no firing" in elsewhere.stderr) == (64, True)


def test_rules_are_tried_alike_wherever_channels_are_kept(tmp_path: Path) -> None:
    found = []
    for name, channels in (("together", "{}"), ("apart", "{notes: notes.db}")):
        (tmp_path / name).mkdir()
        site = Site(tmp_path / name)
        site.config.write_text(f"{CONFIG}facts: {{channels: {channels}}}\n")
        site.rules.write_text(RULES.replace("then_emits: [facts]", "then_emits: [facts, notes]"))
        site.put(TEA, ODD)
        assert site.run("fire", "profile").returncode == 0
        site.put(BARE, triple("e4", "alice", "likes", "coffee", timestamp=at(4)))
        candidate = tmp_path / name / "new"
        candidate.mkdir()
        (candidate / "a.yaml").write_text(site.rules.read_text().replace("never", "likes"))
        before = {file.name: file.read_bytes() for file in site.state.iterdir()}

        (checked,) = site.lines("check", "--against-data")
        differing = site.look("diff", str(candidate), "--json").stdout.splitlines()

        assert {file.name: file.read_bytes() for file in site.state.iterdir()} == before
        found.append((checked["data"], [json.loads(line) for line in differing]))

    (data, differences), apart = found
    assert (data, differences) == apart
    assert [one["pending"] for one in data] == [2, 4]
    assert differences[-1]["summary"]["support"] == 1, "quiet promotes what profile does"
