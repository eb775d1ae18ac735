"""An erasure that ended between the two databases is found and finished."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.errors import StoreBusyError
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.writes.erasures import ForgetForm
from tests.daemon.test_erasure import CANARY, OTHER, canary, files_with_canary
from tests.support.builders import at, rule
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import SQLiteProvider

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
SCOPE = {"user": f"{CANARY}-user"}


def operations(home: OpenStores) -> Operations:
    return home.operations(rule("all"), clock=FakeClock(at(60)))


async def begin(home: OpenStores, folder: Path) -> None:
    """Erase the canary while memory.db is locked, so that only facts.db loses it."""
    await home.put(canary("1"), canary("2"), OTHER)
    await home.fire()
    with closing(sqlite3.connect(folder / "memory.db", isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError):
            await operations(home).erasures.forget(ForgetForm(**SCOPE), ME)
        busy.execute("ROLLBACK")


@pytest.mark.slow
async def test_unfinished_erasure_is_finished(tmp_path: Path) -> None:
    async with open_stores(SQLiteProvider(tmp_path, busy_seconds=0.1)) as home:
        await begin(home, tmp_path)
        assert "memory.db" in " ".join(files_with_canary(tmp_path))
        assert [erasure.reach.user for erasure in await home.facts.erasures.find_unfinished()] == [
            f"{CANARY}-user"
        ]

        finished = await operations(home).erasures.finish_all()

        assert finished == 1
        assert files_with_canary(tmp_path) == []
        assert await home.facts.erasures.find_unfinished() == []
        assert await operations(home).erasures.finish_all() == 0
        assert [episode.id for episode in await home.memory.recent("bob", limit=9)] == ["other"]
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_repeated_forget_finishes_an_erasure(tmp_path: Path) -> None:
    async with open_stores(SQLiteProvider(tmp_path, busy_seconds=0.1)) as home:
        await begin(home, tmp_path)

        await operations(home).erasures.forget(ForgetForm(**SCOPE), ME)

        assert files_with_canary(tmp_path) == []
        assert await home.facts.erasures.find_unfinished() == []


async def test_dry_run_leaves_no_unfinished_erasure(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"))
        await home.fire()

        await operations(home).erasures.forget(ForgetForm(**SCOPE, dry_run=True), ME)

        assert await home.facts.erasures.find_unfinished() == []


@pytest.mark.nightly
@pytest.mark.slow  # waits for a lock as long as a command does
def test_doctor_finds_an_unfinished_erasure_and_the_daemon_finishes_it(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text("state_dir: state\nrules_dir: rules.d\n")
    site.put(canary("1"), OTHER)
    assert site.call("fire", "profile").returncode == 0
    with closing(sqlite3.connect(site.state / "memory.db", isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        ended = site.run("forget", "--user", f"{CANARY}-user", "--yes")
        busy.execute("ROLLBACK")
    assert ended.returncode == 75

    for command in (("doctor", "--json"), ("status", "--check", "--json")):
        found = json.loads(site.run(*command).stdout)["findings"]
        assert [finding["id"] for finding in found if finding["id"] == "erasure.unfinished"] != []
    with site.daemon():
        pass

    assert files_with_canary(site.state) == []
    found = json.loads(site.run("doctor", "--json").stdout)["findings"]
    assert [finding for finding in found if finding["id"] == "erasure.unfinished"] == []
