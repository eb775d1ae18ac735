"""Commands on rules with a salience gate; those that only read write nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.installation import Installation

pytestmark = pytest.mark.integration

GATED = """\
rules:
  - id: gated
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    salience: {min: 0.03, tau: 2d}
"""
UNGATED = GATED.replace("    salience: {min: 0.03, tau: 2d}\n", "")
TESTS = """\
tests:
  - name: what was only said is not worth a fact
    episodes: [{id: e1, subject: ada, predicate: likes, object: tea}]
    expect:
      deltas: [{episode: e1, kind: noop, reason: below_salience}]
      facts: []
  - name: this is not so
    episodes: [{id: e1, subject: ada, predicate: likes, object: tea}]
    expect:
      facts: [{id: e1}]
"""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    site = Installation(tmp_path)
    site.rules.write_text(GATED)
    site.put(*(triple(f"e{n}", "ada", f"p{n}", n, timestamp=at(n)) for n in range(3)))
    return site


def footprint(site: Installation) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in site.state.iterdir()
    }


async def _read(site: Installation, limit: int) -> None:
    async with SQLiteMemoryStore(site.state / "memory.db") as memory:
        await memory.recent("alice", limit=limit)


@pytest.mark.slow
def test_read_episode_becomes_a_fact_and_why_not_explains_the_others(
    site: Installation,
) -> None:
    assert site.call("fire", "--all").returncode == 0
    assert site.lines("facts") == []
    asyncio.run(_read(site, 1))
    assert site.call("recent", "alice").returncode == 0  # a person looks
    assert site.call("fire", "--all").returncode == 0

    [fact] = site.lines("facts")
    [decision] = site.lines("why-not", "e1")

    assert fact["id"] == "e2"
    assert (decision["outcome"], decision["reason"]) == ("noop", "below_salience")
    assert decision["would_change"] == (
        "its salience was 0.0000, and gated requires 0.03; the rule scores it again when it is read"
    )
    assert site.call("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["fire", "--all", "--dry-run"],
        ["backfill", "gated", "--dry-run"],
        ["check", "--against-data"],
        ["diff", "{rules}"],
        ["why-not", "e1"],
    ],
    ids=lambda words: words[0],
)
def test_reading_command_writes_nothing_about_gated_episodes(
    site: Installation, words: list[str]
) -> None:
    assert site.call("fire", "--all").returncode == 0
    site.put(triple("e3", "ada", "p3", 3))
    before = footprint(site)

    done = site.call(*(word.format(rules=site.rules.parent) for word in words))

    assert done.returncode == 0, done.stderr
    assert footprint(site) == before


def test_check_against_data_counts_the_episodes_below_the_gate(site: Installation) -> None:
    done = site.call("check", "--against-data", "--json")

    assert "below_salience" in done.stdout
    assert "memory.db-wal" not in footprint(site)


def summary_of_diff(site: Installation, rules: str) -> dict[str, Any]:
    candidate = site.config.parent / "candidate"
    candidate.mkdir()
    (candidate / "rules.yaml").write_text(rules)
    printed = site.call("diff", str(candidate), "--json").stdout
    summary: dict[str, Any] = json.loads(printed.splitlines()[-1])["summary"]
    return summary


def test_diff_shows_the_facts_that_a_lower_gate_would_add(site: Installation) -> None:
    assert site.call("fire", "--all").returncode == 0

    summary = summary_of_diff(site, UNGATED)

    assert summary["rules"][0]["fields"] == ["salience"]
    assert (summary["appear"], summary["disappear"]) == (3, 0)


@pytest.mark.slow
def test_diff_shows_that_a_gate_removes_no_fact(site: Installation) -> None:
    site.rules.write_text(UNGATED)
    assert site.call("fire", "--all").returncode == 0

    summary = summary_of_diff(site, GATED)

    assert (summary["stay"], summary["disappear"]) == (3, 0)


def test_rule_tests_apply_salience_gates(site: Installation) -> None:
    site.rules.with_name("rules.test.yaml").write_text(TESTS)

    done = site.call("test", str(site.rules.parent))

    assert done.returncode == 1
    assert "1 passed, 1 failed" in done.stdout
    assert (
        "why: e1 under gated: noop (below_salience); its salience was 0.0197, and gated requires"
        " 0.03; the rule scores it again when it is read"
    ) in done.stdout


@pytest.mark.slow
def test_fire_applies_the_relevance_of_a_salience_gate(site: Installation) -> None:
    gate = '{min: 0.01, weights: {recency: 0, relevance: 1}, about: "green tea"}'
    site.rules.write_text(GATED.replace("{min: 0.03, tau: 2d}", gate))
    site.put(
        triple("t1", "ada", "drinks", "tea", content="Ada drinks green tea every morning."),
        triple("t2", "ada", "works", "late", content="The meeting was moved to room 12."),
    )

    assert site.call("fire", "--all").returncode == 0

    assert [fact["id"] for fact in site.lines("facts")] == ["t1"]
