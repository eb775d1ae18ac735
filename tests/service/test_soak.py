"""The soak is no formality: it sees what is lost, what is done twice, and what it left behind."""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from tests.soak.checks import (
    Expected,
    Unsound,
    check_facts,
    check_met,
    check_once_each,
    check_rows,
    journals,
)
from tests.soak.life import Soak
from tests.soak.writers import ManualAssertion, episode_of, sayings
from tests.support.daemons import Home

pytestmark = pytest.mark.acceptance

TWO_COMMITS = """
import sys, time
from slumberd.cli import main
from slumberd.storage.facts.ledger import SQLiteLedger
from slumberd.sql_statements import statements

commit, move = SQLiteLedger.commit, statements("ledger")["set_watermark"]

async def first_the_watermark(self, firing, met, **more):
    end = {"rule": firing.rule_id, **firing.upto._asdict(), "served": 0}
    await self._file.database.write(lambda connection: connection.execute(move, end).rowcount)
    time.sleep(0.5)
    return await commit(self, firing, met, **more)

SQLiteLedger.commit = first_the_watermark
main(sys.argv[1:])
"""


class TwoCommits(Home):
    """A state directory whose daemon moves the watermark before it writes the facts."""

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-c", TWO_COMMITS, *self.words(words)]


class SoakOfTwoCommits(Soak):
    """A soak of that daemon."""

    def home_in(self, folder: Path) -> Home:
        return TwoCommits(folder, {"facts": {"batch": 20}, "logging": {"format": "json"}})

    def live(self) -> None:
        self.kill()


def written(home: Home, *said: ManualAssertion) -> None:
    """Import episodes, and note them as a writer would."""
    file = home.folder / "put.jsonl"
    file.write_bytes(b"\n".join(episode_of(one).model_dump_json().encode() for one in said))
    home.call("import", file)
    lines = b"".join(orjson.dumps(one) + b"\n" for one in said)
    (home.folder / "ann.journal").write_bytes(lines)


def some(count: int) -> list[ManualAssertion]:
    """Return so many episodes, each of its own id."""
    found = {}
    for one in sayings("ann", random.Random(7)):
        found[one["id"]] = one
        if len(found) == count:
            return list(found.values())
    raise AssertionError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    home.rule("tagged", cadence={"every": 1}, then_emits=["facts", "notes"])
    written(home, *some(40))
    home.call("fire", "--all")
    return home


def test_a_soak_is_sound_as_long_as_nothing_is_lost(home: Home) -> None:
    check_rows(home, journals(home.folder), set())
    check_once_each(home.state / "facts.db")
    check_met(home, journals(home.folder))

    assert check_facts(home, journals(home.folder), Expected()) > 10


def test_a_soak_sees_a_row_of_a_writer_that_is_dropped(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "memory.db")) as memory, memory:
        memory.execute("DELETE FROM episodes WHERE id = 'ann-7'")

    with pytest.raises(Unsound, match="'ann-7' was committed and is lost"):
        check_rows(home, journals(home.folder), set())


def test_a_soak_sees_a_fact_that_is_dropped(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("DELETE FROM facts WHERE rowid = 1")

    with pytest.raises(Unsound, match="1 facts differ"):
        check_facts(home, journals(home.folder), Expected())


def test_a_soak_sees_what_is_decided_twice(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("UPDATE slumberd_watermark SET seq = 0, eid = ''")
        facts.execute("UPDATE slumberd_firings SET cause = 'every'")
    home.call("fire", "all")
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("UPDATE slumberd_firings SET cause = 'every'")

    with pytest.raises(Unsound, match="decided twice"):
        check_once_each(home.state / "facts.db")


@pytest.mark.timing
def test_a_soak_sees_a_daemon_whose_watermark_has_a_commit_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(Unsound, match="episodes were never met"):
        SoakOfTwoCommits(tmp_path).run(6)
