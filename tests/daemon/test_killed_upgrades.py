"""An upgrade that is killed at any step leaves two files that each open, and goes on later."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from slumberd import SQLiteFactStore, SQLiteMemoryStore
from slumberd.consolidation.precedence import LAWS
from tests.support.failpoints import KILLED, begin
from tests.support.forked_commands import FORKS
from tests.support.installation import Installation
from tests.support.laws import NEXT, lowest_law
from tests.support.release_files import RULES, put_kept
from tests.support.sample_sizes import amount
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

WRITES = (
    "memory.db migrations.create_schema", "memory.db COMMIT", "memory.db after COMMIT",
    "facts.db migrations.create_schema", "facts.db migrations.set", "facts.db COMMIT",
    "facts.db after COMMIT", "facts.db ledger.add_firing", "facts.db ledger.drop_states",
)  # fmt: skip
"""The boundaries around the writes of an upgrade; `--nightly` takes every boundary."""

UPGRADED = {"memory": 3, "facts": 3}


def add_law(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(LAWS, NEXT, lowest_law())


def site_of(folder: Path, release: str = "0.2.0") -> Installation:
    folder.mkdir()
    site = Installation(folder)
    site.rules.write_text(RULES)
    put_kept(release, site.state)
    return site


def fire(site: Installation, fatal: str = "", passed: Path | None = None) -> int | None:
    """Fire all rules by a command that is killed at a boundary; return its exit code."""
    return run(site, "fire", "--all", fatal=fatal, passed=passed)


def run(site: Installation, *words: str, fatal: str = "", passed: Path | None = None) -> int | None:
    words = (*words, "--config", str(site.config))
    child = FORKS.Process(target=begin, args=(words, fatal, passed, add_law), daemon=True)
    child.start()
    child.join(PATIENCE_SECONDS)
    code = child.exitcode
    child.kill()
    return code


def numbers(folder: Path) -> dict[str, int]:
    """Return the number of the schema of each file, read with its log as another program would."""
    found = {}
    for store in ("memory", "facts"):
        with closing(sqlite3.connect(folder / f"{store}.db")) as connection:
            names = connection.execute("SELECT name FROM sqlite_master").fetchall()
            asked = "SELECT version FROM slumberd_schema"
            numbered = ("slumberd_schema",) in names
            found[store] = connection.execute(asked).fetchone()[0] if numbered else 2
    return found


def copied(folder: Path) -> TemporaryDirectory[str]:
    copy = TemporaryDirectory()
    shutil.copytree(folder, copy.name, dirs_exist_ok=True)
    return copy


async def open_each(folder: Path) -> None:
    async with SQLiteFactStore(folder / "facts.db") as facts:
        await facts.bootstrap()
        _, _, broken = await facts.verify()
        assert broken is None
    async with SQLiteMemoryStore(folder / "memory.db") as memory:
        assert await memory.recent("ann", limit=1)


def shown(site: Installation, patch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    with patch.context() as context:
        add_law(context)
        facts = site.lines("facts")
    return [{name: fact[name] for name in ("id", "payload")} for fact in facts]


def test_upgrade_killed_at_each_boundary_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = site_of(tmp_path / "whole")
    passed = tmp_path / "passed"
    assert fire(whole, passed=passed) == 0
    expected = shown(whole, monkeypatch)
    points = passed.read_text().splitlines()
    upgrades = [point for point in points if "set_component_version" in point]
    assert [point.partition(" ")[0] for point in upgrades] == ["memory.db", "facts.db"]

    writes = [point for point in points if point.startswith(WRITES)]
    for number, point in enumerate(writes if amount(0, full=1) == 0 else points):
        site = site_of(tmp_path / str(number))
        assert fire(site, point) == KILLED, point

        with copied(site.state) as copy:
            found = numbers(Path(copy))
            assert found["memory"] >= found["facts"], point
        with copied(site.state) as copy, monkeypatch.context() as context:
            add_law(context)
            asyncio.run(open_each(Path(copy)))
        assert fire(site) == 0, point
        assert numbers(site.state) == UPGRADED
        assert shown(site, monkeypatch) == expected, point
        shutil.rmtree(tmp_path / str(number))


def test_killed_command_leaves_the_files_of_0_1_0_and_no_new_directory(tmp_path: Path) -> None:
    whole, passed = site_of(tmp_path / "whole", "0.1.0"), tmp_path / "passed"
    assert run(whole, "upgrade", "--to", str(tmp_path / "all"), passed=passed) == 0
    before = {path.name: path.read_bytes() for path in whole.state.iterdir()}
    points = passed.read_text().splitlines()

    for point in points[:: amount(20, full=1)]:
        new = tmp_path / "new"
        assert run(whole, "upgrade", "--to", str(new), fatal=point) == KILLED, point
        assert not new.exists()
        assert {path.name: path.read_bytes() for path in whole.state.iterdir()} == before

    assert run(whole, "upgrade", "--to", str(tmp_path / "new")) == 0
