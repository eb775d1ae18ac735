"""Agents and the daemon, as different users of one group, share a state directory."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from slumberd.cli import main
from slumberd.cli.registry import ENTRIES
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import triple
from tests.support.forked_commands import FORKS
from tests.support.installation import Installation
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users"),
]

DAEMON, AGENT = 64_001, 64_002
"""User ids; no user database needs to contain them."""

SHELL, UNIT = 0o022, 0o007
SCOPE = {"user": "alice", "session": "s1", "agent": "rag"}


@pytest.fixture
def site() -> Iterator[Installation]:
    """Return an installation whose state directory is as the unit creates it."""
    # Not in $TMPDIR, because other users may not enter it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        site = Installation(Path(name))
        site.state.mkdir()
        os.chown(site.state, DAEMON, DAEMON)
        site.state.chmod(0o2770)
        yield site


def run_as(user: int, umask: int, work: Callable[[], object]) -> int:
    """Run `work` as a user in the group of the daemon; return the exit code."""
    process = FORKS.Process(target=_run_as, args=(user, umask, work))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode is not None
    return process.exitcode


def _run_as(user: int, umask: int, work: Callable[[], object]) -> None:
    _import_everything()
    os.setgroups([user, DAEMON])
    os.setgid(user)
    os.setuid(user)
    os.umask(umask)
    work()


def _import_everything() -> None:
    """Run everything once, because another user may not read the files of this interpreter."""
    with tempfile.TemporaryDirectory() as name:
        site = Installation(Path(name))
        put(site.state / "memory.db")
        site.call("fire", "--all")
        site.call("facts")
    for entry in ENTRIES:
        importlib.import_module(f"slumberd.cli.commands.{entry.home.partition(':')[0]}")


def put(memory: Path) -> None:
    asyncio.run(_put(memory))


async def _put(path: Path) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await memory.put(triple("e1", "alice", "likes", "tea"), **SCOPE)


def put_and_die(memory: Path) -> NoReturn:
    asyncio.run(_put_and_die(memory))
    raise AssertionError


async def _put_and_die(path: Path) -> None:
    memory = SQLiteMemoryStore(path)
    await memory.put(triple("e1", "alice", "likes", "tea"), **SCOPE)
    os._exit(0)


def command(site: Installation, *words: str) -> Callable[[], object]:
    return partial(main, [*words, "--config", str(site.config)])


@pytest.mark.slow
@pytest.mark.parametrize("first", [put, put_and_die])
def test_daemon_consolidates_the_episode_of_an_agent_that_put_first(
    site: Installation, first: Callable[[Path], object]
) -> None:
    assert run_as(AGENT, SHELL, partial(first, site.state / "memory.db")) == 0
    assert (site.state / "memory.db").stat().st_uid == AGENT

    code = run_as(DAEMON, UNIT, command(site, "fire", "--all"))

    assert code == 0
    assert [fact["id"] for fact in site.lines("facts")] == ["e1"]


@pytest.mark.slow
def test_daemon_fires_after_an_agent_that_fired_first(site: Installation) -> None:
    put_as_agent = partial(put, site.state / "memory.db")
    assert run_as(AGENT, SHELL, put_as_agent) == 0
    assert run_as(AGENT, SHELL, command(site, "fire", "--all")) == 0
    assert run_as(AGENT, SHELL, command(site, "pause", "quiet")) == 0
    (site.state / "slumberd.pid").touch(0o600)  # a killed process left it
    assert {file.stat().st_uid for file in site.state.glob("*.db")} == {AGENT}

    code = run_as(DAEMON, UNIT, command(site, "fire", "--all"))

    assert code == 0
    assert run_as(DAEMON, UNIT, command(site, "resume", "quiet")) == 0


@pytest.mark.slow
def test_agent_puts_into_a_database_that_the_daemon_created(site: Installation) -> None:
    assert run_as(DAEMON, UNIT, command(site, "fire", "--all")) == 0

    assert run_as(AGENT, SHELL, partial(put, site.state / "memory.db")) == 0
    assert run_as(DAEMON, UNIT, command(site, "fire", "--all")) == 0
    assert [fact["id"] for fact in site.lines("facts")] == ["e1"]
