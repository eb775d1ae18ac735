"""A backfill over a deletion limit changes nothing, and every command says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.installation import RULES, Installation

pytestmark = pytest.mark.integration

LIMITS = "limits: {max_deletes: 20}\nfacts: {batch: 7}\n"


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    """An installation with 30 facts, whose rule selects none of their episodes any more."""
    site = Installation(tmp_path)
    site.config.write_text(site.config.read_text() + LIMITS)
    site.put(*(triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(30)))
    assert site.call("fire", "profile").returncode == 0
    site.rules.write_text(RULES.replace("predicate IS NOT NULL", "predicate = 'none'"))
    return site


def facts(site: Installation) -> int:
    return len(site.lines("facts", "--limit", "100"))


def held(site: Installation) -> list[dict[str, Any]]:
    findings = json.loads(site.call("status", "--check", "--json").stdout)["findings"]
    return [finding for finding in findings if finding["id"] == "rule.held"]


def test_backfill_waits_and_is_approved(site: Installation) -> None:
    dry = site.call("backfill", "profile", "--dry-run")
    assert dry.returncode == 1
    assert "without --dry-run it would wait for approval: this backfill would delete 30" in (
        dry.stderr
    )

    done = site.call("backfill", "profile", "--json")

    assert done.returncode == 1
    firing = json.loads(done.stdout)["reports"][0]["held_batch"]["firing_id"]
    assert facts(site) == 30
    (finding,) = held(site)
    assert finding["subject"] == "rule profile"
    assert f"slumberd approve {firing}" in finding["remedy"]
    lines = [json.loads(line) for line in (site.state / "slumberd.log").read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "firing.held"]
    assert (line["level"], line["firing_id"]) == ("warning", firing)
    assert site.call("approve", firing).returncode == 0
    assert facts(site) == 0
    assert held(site) == []
    assert site.call("audit", "verify").returncode == 0


def test_a_rejected_backfill_is_left_out(site: Installation) -> None:
    done = site.call("backfill", "profile", "--json")
    firing = json.loads(done.stdout)["reports"][0]["held_batch"]["firing_id"]

    assert site.call("reject", firing).returncode == 0

    for period in ((), ("--to", at(5).isoformat())):
        again = site.call("backfill", "profile", *period)
        assert again.returncode == 1
        assert "a person rejected them" in again.stderr
    assert facts(site) == 30
    assert held(site) == []
