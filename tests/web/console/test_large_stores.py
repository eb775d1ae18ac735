"""The large state directory of the tests is one that a daemon could have written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from tests.support.daemons import Home
from tests.support.large_stores import Size, user_name, write_large_state

LAST_DAY = date(2026, 3, 31)


def written(folder: Path, size: Size) -> Home:
    home = Home(folder)
    home.rule("all", cadence={"every": 1})
    home.state.mkdir(mode=0o700)
    write_large_state(home.state, size, last_day=LAST_DAY)
    return home


def rows_of_ledger(home: Home) -> int:
    with closing(sqlite3.connect(home.state / "facts.db")) as connection:
        found: int = connection.execute("SELECT max(seq) FROM slumberd_ledger").fetchone()[0]
        return found


@pytest.mark.slow
@pytest.mark.integration
def test_ledger_of_a_state_with_copied_users_verifies_and_replays(tmp_path: Path) -> None:
    home = written(tmp_path, Size(users=4, facts=20, days=3))

    assert "verified" in home.call("audit", "verify").stdout
    home.call("audit", "replay", tmp_path / "replayed.db")


@pytest.mark.slow
@pytest.mark.integration
def test_rule_has_read_every_episode_of_a_state_with_copied_users(tmp_path: Path) -> None:
    home = written(tmp_path, Size(users=4, facts=20, days=3))
    before = rows_of_ledger(home)

    home.call("fire", "all")

    assert rows_of_ledger(home) == before


@pytest.mark.slow
@pytest.mark.integration
def test_last_user_has_facts_of_the_last_day(tmp_path: Path) -> None:
    size = Size(users=4, facts=20, days=3)
    home = written(tmp_path, size)

    facts = home.facts("--user", user_name(3))

    assert len(facts) == size.facts
    assert {fact["lineage"][0]["promotion_ts"][:10] for fact in facts} == {LAST_DAY.isoformat()}
    assert {fact["payload"]["timestamp"][:10] for fact in facts} == {LAST_DAY.isoformat()}


@pytest.mark.integration
@pytest.mark.nightly
def test_full_size_has_so_many_facts_and_rows_and_verifies(tmp_path: Path) -> None:
    home = written(tmp_path, Size())

    assert rows_of_ledger(home) > 1_000_000
    assert Size().current == 100_000
    assert "verified" in home.call("audit", "verify").stdout
