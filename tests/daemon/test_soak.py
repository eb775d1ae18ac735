"""The soak finds lost rows, lost facts, repeated evaluations and separate commits."""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from tests.soak.checks import (
    BrokenPromise,
    Expected,
    check_facts,
    check_newest_evaluated,
    check_once_each,
    check_rows,
    journals,
)
from tests.soak.soak_run import Soak
from tests.soak.writers import ManualAssertion, episode_of, sayings
from tests.support.daemons import Home

pytestmark = pytest.mark.acceptance

TWO_COMMITS = """
import asyncio, sys
from slumberd.cli import main
from slumberd.storage.facts.apply import DeltaApplier

apply = DeltaApplier.apply

async def apply_after_the_watermark(self, batch, **more):
    end = {"rule": batch.firing.rule_id, **batch.upto._asdict(), "served": 0}
    await self._transactions.write(lambda session: session.do("ledger.set_watermark", end))
    await asyncio.sleep(0.5)
    return await apply(self, batch, **more)

DeltaApplier.apply = apply_after_the_watermark
main(sys.argv[1:])
"""


class TwoCommits(Home):
    """A state directory whose daemon moves the watermark before it writes the facts."""

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-c", TWO_COMMITS, *self.words(words)]


class SoakOfTwoCommits(Soak):
    """A soak of a daemon that moves the watermark before it writes the facts."""

    def home_in(self, folder: Path) -> Home:
        return TwoCommits(folder, {"facts": {"batch": 20}, "logging": {"format": "json"}})

    def live(self) -> None:
        self.kill()


def import_with_journal(home: Home, *assertions: ManualAssertion) -> None:
    """Import episodes, and write them to a journal as a writer of the soak does."""
    file = home.folder / "put.jsonl"
    file.write_bytes(
        b"\n".join(episode_of(assertion).model_dump_json().encode() for assertion in assertions)
    )
    home.call("import", file)
    lines = b"".join(orjson.dumps(assertion) + b"\n" for assertion in assertions)
    (home.folder / "ann.journal").write_bytes(lines)


def distinct_assertions(count: int) -> list[ManualAssertion]:
    """Return so many assertions of a writer, each with another episode id."""
    found = {}
    for assertion in sayings("ann", random.Random(7)):
        found[assertion["id"]] = assertion
        if len(found) == count:
            return list(found.values())
    raise AssertionError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    home.rule("tagged", cadence={"every": 1}, then_emits=["facts", "notes"])
    import_with_journal(home, *distinct_assertions(40))
    home.call("fire", "--all")
    return home


def test_soak_reports_no_problem_when_nothing_is_lost(home: Home) -> None:
    check_rows(home, journals(home.folder), set())
    check_once_each(home.state / "facts.db")
    check_newest_evaluated(home, journals(home.folder))

    assert check_facts(home, journals(home.folder), Expected()) > 5


def test_soak_finds_a_deleted_episode(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "memory.db")) as memory, memory:
        memory.execute("DELETE FROM episodes WHERE id = 'ann-7'")

    with pytest.raises(BrokenPromise, match="'ann-7' was committed and is lost"):
        check_rows(home, journals(home.folder), set())


def test_soak_finds_a_deleted_fact(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("DELETE FROM facts WHERE rowid = 1")

    with pytest.raises(BrokenPromise, match="1 facts differ"):
        check_facts(home, journals(home.folder), Expected())


def test_soak_finds_an_episode_that_was_decided_twice(home: Home) -> None:
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("UPDATE slumberd_watermark SET seq = 0, eid = ''")
        facts.execute("UPDATE slumberd_firings SET cause = 'every'")
    home.call("fire", "all")
    with closing(sqlite3.connect(home.state / "facts.db")) as facts, facts:
        facts.execute("UPDATE slumberd_firings SET cause = 'every'")

    with pytest.raises(BrokenPromise, match="decided twice"):
        check_once_each(home.state / "facts.db")


@pytest.mark.nightly
@pytest.mark.timing
def test_soak_finds_a_daemon_that_commits_the_watermark_apart(tmp_path: Path) -> None:
    with pytest.raises(BrokenPromise, match="episodes were never evaluated"):
        SoakOfTwoCommits(tmp_path).run(6)
