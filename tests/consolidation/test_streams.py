"""The daemon promotes exactly the expected facts of real streams, imported while it runs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from slumberd.model.fact import FactPattern
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.corpora import (
    SETS,
    as_of,
    differences,
    episodes_file,
    gold,
    lines,
    needs_corpora,
    slots_of,
)
from tests.support.daemons import Home

pytestmark = [pytest.mark.acceptance, needs_corpora, pytest.mark.slow]


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", SETS)
def test_an_every_rule_promotes_the_gold_facts_of_a_set(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})

    with home.daemon() as daemon:
        home.slumberd("import", episodes_file(name))
        daemon.wait_until_read(len(lines(name, "episodes")))

    assert differences(slots_of(home.facts()), gold(name)) == []
    home.slumberd("audit", "verify")


@pytest.mark.nightly
def test_a_cron_rule_promotes_the_gold_facts_of_all_sets(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("nightly", cadence={"cron": "* * * * *"})
    count = sum(len(lines(name, "episodes")) for name in SETS)

    with home.daemon() as daemon:
        for name in SETS:
            home.slumberd("import", episodes_file(name))
        daemon.wait_until_read(count)

    assert differences(slots_of(home.facts()), gold(*SETS)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["eol", "congress_social"])
async def test_every_as_of_row_equals_the_facts_valid_at_its_instant(
    name: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 100})
    home.slumberd("import", episodes_file(name))
    home.slumberd("fire", "all")

    async with SQLiteFactStore(home.state / "facts.db") as store:
        for at, owners in as_of(name):
            for (user, agent), wanted in owners.items():
                pattern = FactPattern(user=user, agent=agent)
                facts = await store.query(pattern, valid_at=datetime.fromisoformat(at))
                found = slots_of(fact.model_dump() for fact in facts)
                assert differences(found, wanted) == [], (at, user)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["eol", "congress_social"])
def test_the_command_line_shows_the_facts_valid_at_an_instant(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 100})
    home.slumberd("import", episodes_file(name))
    home.slumberd("fire", "all")

    for at, owners in list(as_of(name))[::20]:
        found = slots_of(home.facts("--valid-at", at))
        for owner, wanted in owners.items():
            mine = {slot: value for slot, value in found.items() if slot[:2] == owner}
            assert differences(mine, wanted) == [], (at, owner)
