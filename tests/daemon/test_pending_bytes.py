"""Bytes that other programs keep in a file are an open duty, which the daemon finishes."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd.daemon.stores import erase_files_of
from slumberd.logs.lines import timestamp
from slumberd.model.errors import StoreBusyError
from slumberd.model.record import QUIET, Rewrite, StoreName
from slumberd.operations.caller import Caller
from slumberd.operations.stores import Stores
from slumberd.operations.transcript_counts import TranscriptFile
from slumberd.operations.writes.erasures import Erasures, ForgetForm
from slumberd.operations.writes.rule_runner import Turn
from slumberd.rules.settings import Settings
from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.sqlite import scrubbing
from slumberd.storage.sqlite.stage_file import StageFile
from tests.daemon.test_erasure import CANARY, OTHER, canary, files_with_canary
from tests.operations.test_transcript_counts import counts
from tests.support.builders import at
from tests.support.daemons import Home
from tests.support.fakes import FakeClock
from tests.support.installation import jsonl
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider, SQLiteProvider

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
SCOPE = {"user": f"{CANARY}-user"}


def erasures_of(home: OpenStores, clock: FakeClock, *, waits: bool = False) -> Erasures:
    return Erasures(
        Stores(home.memory, home.facts),
        home.consolidator,
        clock,
        Turn(),
        drop_questions=lambda: None,
        waits=lambda: waits,
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Keep an old state of a file open, as another program does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
        reader.execute("ROLLBACK")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield
        writer.execute("ROLLBACK")


async def filled(home: OpenStores) -> None:
    await home.put(canary("1"), canary("2"), OTHER)
    await home.fire()


async def test_certificate_says_when_the_last_byte_was_gone(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await filled(home)

        certificate = await erasures_of(home, FakeClock(at(60))).forget(ForgetForm(**SCOPE), ME)

        assert (certificate["pending"], certificate["bytes_gone_at"]) == ({}, timestamp(at(60)))
        assert await home.facts.erasures.rewrites() == []
        assert files_with_canary(tmp_path) == []


@pytest.mark.parametrize(
    "obstacle", ["search/.gone-1/directory", "stages.db/directory", "transcripts.new/directory"]
)
async def test_certificate_says_what_was_erased_when_a_file_cannot_be_removed(
    tmp_path: Path, obstacle: str
) -> None:
    settings = Settings(state_dir=tmp_path, rules_dir=tmp_path)
    async with open_stores(tmp_path) as home:
        await filled(home)
        home.consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
        erasures = erasures_of(home, FakeClock(at(60)))
        TranscriptFile(tmp_path).record(counts(user=f"{CANARY}-user"))
        erasures.erased = partial(erase_files_of, settings)
        planned = await erasures.forget(ForgetForm(**SCOPE, dry_run=True), ME)
        (tmp_path / obstacle).mkdir(parents=True)

        certificate = await erasures.forget(ForgetForm(**SCOPE), ME)

        assert certificate["rows"]["facts"] == planned["rows"]["facts"]
        assert certificate["rows"]["episodes"]["episodes"] == 2
        assert certificate["bytes_gone_at"] is None
        assert Path(obstacle).parts[0].partition(".")[0] in certificate["pending"]["facts"]
        assert await home.memory.recent(f"{CANARY}-user", limit=9) == []
        shutil.rmtree((tmp_path / obstacle).parent)
        await erasures.remove_bytes(quiet=True)
        assert await home.facts.erasures.rewrites() == []
        assert await home.facts.erasures.find_unfinished() == []
        assert files_with_canary(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "store"),
    [pytest.param("facts", "facts", marks=pytest.mark.slow), ("memory", "episodes")],
)
async def test_a_reader_leaves_a_duty_that_ends_with_it(
    tmp_path: Path, name: str, store: StoreName
) -> None:
    clock = FakeClock(at(60))
    async with open_stores(SQLiteProvider(tmp_path, busy_seconds=0.05)) as home:
        await filled(home)
        erasures = erasures_of(home, clock)
        with reading(tmp_path / f"{name}.db"), capture_logs() as logs:
            certificate = await erasures.forget(ForgetForm(**SCOPE), ME)
            await erasures.remove_bytes(quiet=True)
            [left] = await home.facts.erasures.rewrites()

        firing_id = certificate["firing_id"]
        assert list(certificate["pending"]) == [store]
        assert "another program reads" in certificate["pending"][store]
        assert certificate["bytes_gone_at"] is None
        assert left == Rewrite(store, int(firing_id.rpartition("@")[2]), is_rewritten=True)
        assert [line["event"] for line in logs] == ["erasure.pending"]
        with capture_logs() as logs:
            await erasures.remove_bytes(quiet=False)
        assert [(line["event"], line["firing_id"], line["bytes_gone_at"]) for line in logs] == [
            ("erasure.completed", firing_id, timestamp(at(60)))
        ]
        assert await home.facts.erasures.rewrites() == []
        assert files_with_canary(tmp_path) == []
        assert (await home.facts.verify())[2] is None


async def test_a_full_disk_leaves_a_duty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)))
        with monkeypatch.context() as patch:
            patch.setattr(scrubbing, "SPARE_BYTES", 2**60)
            certificate = await erasures.forget(ForgetForm(**SCOPE), ME)

        assert list(certificate["pending"]) == ["facts", "episodes"]
        assert "MiB free" in certificate["pending"]["facts"]
        await erasures.remove_bytes(quiet=False)
        assert await home.facts.erasures.rewrites() == []
        assert files_with_canary(tmp_path) == []


@pytest.mark.parametrize("failing", [scrubbing.find_missing_space, scrubbing.temporary_directory])
async def test_a_failed_rewriting_leaves_a_duty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., object]
) -> None:
    def fail(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)))
        with monkeypatch.context() as patch:
            patch.setattr(scrubbing, failing.__name__, fail)
            certificate = await erasures.forget(ForgetForm(**SCOPE), ME)

        assert list(certificate["pending"]) == ["facts", "episodes"]
        assert certificate["rows"]["episodes"]["episodes"] == 2
        await erasures.remove_bytes(quiet=False)
        assert await home.facts.erasures.rewrites() == []
        assert files_with_canary(tmp_path) == []


async def test_later_attempts_that_fail_say_why_and_not_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "SPARE_BYTES", 2**60)
    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)), waits=True)
        certificate = await erasures.forget(ForgetForm(**SCOPE), ME)
        with capture_logs() as logs:
            for _ in range(31):
                await erasures.remove_bytes(quiet=True)

    [first, second] = logs
    assert (first["event"], first["firing_id"]) == ("erasure.pending", certificate["firing_id"])
    assert "MiB free" in first["problem"]
    assert second["firing_id"] == first["firing_id"]


@pytest.mark.parametrize("waits", [False, True], ids=["now", "idle"])
async def test_an_erasure_that_ended_early_is_finished_before_it_counts_as_complete(
    tmp_path: Path, waits: bool
) -> None:
    async with open_stores(SQLiteProvider(tmp_path, busy_seconds=0.05)) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)), waits=waits)
        with writing(tmp_path / "memory.db"), capture_logs() as logs:
            with pytest.raises(StoreBusyError):
                await erasures.forget(ForgetForm(**SCOPE), ME)
            with suppress(StoreBusyError):
                await erasures.remove_bytes(quiet=False)

        assert "erasure.completed" not in [line["event"] for line in logs]
        assert len(await home.facts.erasures.rewrites()) == 2
        await erasures.remove_bytes(quiet=False)
        assert await home.facts.erasures.find_unfinished() == []
        assert await home.memory.recent(SCOPE["user"], limit=9) == []
        await erasures.remove_bytes(quiet=True)
        assert files_with_canary(tmp_path) == []


async def test_with_idle_the_stores_are_rewritten_in_a_quiet_window(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)), waits=True)
        with capture_logs() as logs:
            certificate = await erasures.forget(ForgetForm(**SCOPE), ME)
            await erasures.remove_bytes(quiet=False)

        assert certificate["pending"] == {"facts": QUIET, "episodes": QUIET}
        assert (certificate["rewritten"], certificate["bytes_gone_at"]) == ({}, None)
        assert len(await home.facts.erasures.rewrites()) == 2
        assert logs == []
        with capture_logs() as logs:
            await erasures.remove_bytes(quiet=True)
        assert [line["event"] for line in logs] == ["erasure.completed"]
        assert await home.facts.erasures.rewrites() == []


async def test_a_store_that_is_never_quiet_is_rewritten_after_a_day(tmp_path: Path) -> None:
    clock = FakeClock(at(60))
    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, clock, waits=True)
        await erasures.forget(ForgetForm(**SCOPE), ME)
        left = []
        for seconds in (0, 86_399, 1):
            clock.advance(seconds)
            await erasures.remove_bytes(quiet=False)
            left.append(len(await home.facts.erasures.rewrites()))

    assert left == [2, 2, 0]


async def test_one_rewriting_completes_all_erasures_before_it(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)), waits=True)
        for user in (f"{CANARY}-user", "bob"):
            await erasures.forget(ForgetForm(user=user), ME)

        with capture_logs() as logs:
            await erasures.remove_bytes(quiet=True)

        assert [line["firing_id"] for line in logs] == ["@erasure@5", "@erasure@6"]
        assert files_with_canary(tmp_path) == []


async def test_a_restart_keeps_the_duty(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await filled(home)
        await erasures_of(home, FakeClock(at(60)), waits=True).forget(ForgetForm(**SCOPE), ME)

    async with open_stores(tmp_path) as home:
        await erasures_of(home, FakeClock(at(61))).remove_bytes(quiet=False)

        assert await home.facts.erasures.rewrites() == []
        assert files_with_canary(tmp_path) == []


async def test_a_replay_keeps_the_duty(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await filled(home)
        await erasures_of(home, FakeClock(at(60)), waits=True).forget(ForgetForm(**SCOPE), ME)

        replayed = await home.facts.replay(tmp_path / "again.db")

        assert replayed.differing == 0


def findings_of(home: Home, *words: str) -> dict[str, dict[str, Any]]:
    document = json.loads(home.call(*words, "--json", check=False).stdout)
    return {finding["id"]: finding for finding in document["findings"]}


@pytest.mark.slow
@pytest.mark.acceptance
def test_forget_ends_with_71_and_the_daemon_finishes_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    source = tmp_path / "episodes.jsonl"
    source.write_bytes(jsonl(canary("1"), OTHER))
    home.call("import", source)
    source.unlink()
    home.call("fire", "--all")
    with reading(home.state / "memory.db"):
        ended = home.call("forget", "--user", f"{CANARY}-user", "--yes", check=False)

    firing_id = json.loads(ended.stdout)["firing_id"]
    assert ended.returncode == 71
    assert f"{firing_id} erased the scope" in ended.stderr
    assert "another program reads" in ended.stderr
    for words in (("doctor",), ("status", "--check")):
        assert firing_id in findings_of(home, *words)["erasure.pending"]["problem"]
    assert json.loads(home.call("status", "--json").stdout)["pending_erasures"] == {
        "episodes": [firing_id]
    }
    assert f"erasures   episodes may still have bytes of what {firing_id} erased" in (
        home.call("status").stdout
    )
    with home.started() as daemon:
        done = daemon.wait_for("erasure.completed")

    assert done["firing_id"] == firing_id
    assert files_with_canary(home.state) == []
    assert "erasure.pending" not in findings_of(home, "doctor")


@pytest.mark.slow
@pytest.mark.acceptance
def test_a_full_disk_of_the_log_loses_no_certificate(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    source = tmp_path / "episodes.jsonl"
    source.write_bytes(jsonl(canary("1"), OTHER))
    home.call("import", source)
    source.unlink()
    home.call("fire", "--all")
    home.configure({"logging": {"file": "/dev/full"}})

    done = home.call("forget", "--user", f"{CANARY}-user", "--yes")

    assert json.loads(done.stdout)["pending"] == {}
    assert files_with_canary(home.state) == []


async def test_a_rewriting_says_for_how_long_it_runs_and_counts_as_stuck_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(at(60))
    seen: list[int | None] = []
    async with open_stores(tmp_path) as home:
        await filled(home)
        erasures = erasures_of(home, clock)
        scrub = home.memory.scrub

        async def slow(how: Scrubbing) -> Scrubbed:
            for seconds in (0, 90, 3_600):
                clock.advance(seconds)
                seen.append(erasures.rewriting_seconds())
            return await scrub(how)

        monkeypatch.setattr(home.memory, "scrub", slow)
        await erasures.forget(ForgetForm(**SCOPE), ME)

        assert [*seen, erasures.rewriting_seconds()] == [0, 90, None, None]
