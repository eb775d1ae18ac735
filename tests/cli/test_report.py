"""`slumberd report` prints what was learned, changed and retracted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    site = Installation(tmp_path_factory.mktemp("reported"))
    site.put(
        triple("e1", "alice", "lives_in", "Porto", timestamp=at(0)),
        triple("e2", "alice", "lives_in", "Braga", timestamp=at(1)),
        triple("e3", "bob", "lives_in", "Faro", timestamp=at(2), user="bob"),
    )
    assert site.call("fire", "profile").returncode == 0
    return site


def test_report_shows_rules_users_and_the_largest_changes(site: Installation) -> None:
    printed = site.look("report").stdout

    assert "learned 2, changed 1, retracted 0, quarantined 0" in printed
    assert "profile  2        1        0          0" in printed
    assert "alice  1        1        0          0" in printed
    assert "profile@2" in printed.partition("largest changes")[2]


def test_report_of_few_users_says_how_many_others_there_are(site: Installation) -> None:
    assert "and 1 other user; --limit shows more" in site.look("report", "--limit", "1").stdout


def test_json_report_is_one_document(site: Installation) -> None:
    found = json.loads(site.look("report", "--since", "1h", "--json").stdout)

    assert [*found] == [
        "since", "batches", "learned", "changed", "retracted", "quarantined", "marked",
        "unmarked", "forgotten", "rules", "users",
        "other_users", "largest", "held",
    ]  # fmt: skip
    numbers = {
        "learned": 2,
        "changed": 1,
        "retracted": 0,
        "quarantined": 0,
        "marked": 0,
        "unmarked": 0,
        "forgotten": 0,  # the name of `retracted` in 0.2.0
    }
    assert found["rules"] == {"profile": numbers}
    assert [*found["users"]] == ["alice", "bob"]
    assert found["held"] == []


def test_report_before_any_firing_has_nothing(tmp_path: Path) -> None:
    site = Installation(tmp_path)

    found = site.call("report", "--since", "2026-01-01", "--json")

    assert found.returncode == 0
    assert json.loads(found.stdout)["batches"] == 0


def test_report_of_the_future_is_empty(site: Installation) -> None:
    found = json.loads(site.look("report", "--since", "2999-01-01", "--json").stdout)

    assert (found["batches"], found["rules"], found["largest"]) == (0, {}, [])


def test_malformed_instant_is_a_usage_error(site: Installation) -> None:
    refused = site.call("report", "--since", "yesterday")

    assert refused.returncode == 64
    assert "is not an instant" in refused.stderr


@pytest.mark.slow
def test_held_batch_is_listed_until_it_is_approved(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(*(triple(f"e{n}", f"s{n}", "lives_in", "Porto", timestamp=at(0)) for n in range(3)))
    assert site.call("fire", "profile").returncode == 0
    named = {"intent": "delete", "replaces": ["e0", "e1", "e2"]}
    site.put(triple("gone", "alice", "lives_in", "Porto", timestamp=at(1), metadata=named))
    site.run("fire", "profile", SLUMBERD_LIMITS__MAX_DELETES="1")

    found = json.loads(site.look("report", "--json").stdout)

    assert [batch["rule_id"] for batch in found["held"]] == ["profile"]
    assert "would delete 3" in found["held"][0]["problem"]
