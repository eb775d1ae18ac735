"""A reload applies all current rules or none, between two batches."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.daemon.composition import open_stores, rule_runner_of
from slumberd.daemon.control_socket import RefusedError, ask
from slumberd.daemon.reload import InForce, Reloading, load_again
from slumberd.daemon.rules import rules_of
from slumberd.model.errors import (
    ConfigurationError,
    ReloadFailedError,
    SlumberdError,
    StoreBusyError,
)
from slumberd.model.firing import Record
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm
from slumberd.operations.writes.rule_runner import RuleRunner, Turn
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings, load_settings
from slumberd.storage.episodes.store import EngineMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeLogs

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)

LIKES = """\
rules:
  - {id: likes, cadence: {every: 1}, when_filter: "predicate = 'likes'", then_emits: [facts]}
"""
EVERYTHING = LIKES.replace("predicate = 'likes'", "1")
NIGHTLY = """\
rules:
  - {id: nightly, cadence: {cron: "0 3 * * *"}, when_filter: "", then_emits: [facts]}
"""


@dataclass
class ReloadedDaemon:
    """The state that a reload changes, and the files that it reads."""

    folder: Path
    runner: RuleRunner
    memory: EngineMemoryStore
    in_force: InForce
    followed: list[tuple[list[str], str]] = field(default_factory=list)
    turn: Turn = field(default_factory=Turn)

    @property
    def reloading(self) -> Reloading:
        return Reloading(
            self.in_force,
            lambda: load(self.folder),
            self.runner,
            self.turn,
            follow=[self._follow],
            clock=FakeClock(at(7200)),
        )

    def _follow(self, rules: Sequence[ConsolidationRule], timezone: str) -> None:
        self.followed.append(([rule.id for rule in rules], timezone))

    def rules(self, **files: str | None) -> None:
        """Write rule files; delete those whose text is None."""
        write_rules(self.folder, **files)

    def configure(self, text: str) -> None:
        write_config(self.folder, text)

    async def reload(self) -> dict[str, Any]:
        return await self.reloading.answer(RequestForm(), ME)


def write_rules(folder: Path, **files: str | None) -> None:
    for name, text in files.items():
        path = folder / "rules.d" / f"{name}.yaml"
        if text is None:
            path.unlink()
        else:
            path.write_text(text)


def write_config(folder: Path, text: str = "") -> None:
    (folder / "slumberd.yaml").write_text(f"state_dir: state\nrules_dir: rules.d\n{text}")


def load(folder: Path) -> tuple[Settings, RuleSet]:
    settings = load_settings(folder / "slumberd.yaml", overrides={}, environ={"HOME": "/"})
    return settings, rules_of(settings)


@asynccontextmanager
async def reloadable(folder: Path, logs: FakeLogs | None = None) -> AsyncIterator[ReloadedDaemon]:
    (folder / "rules.d").mkdir()
    (folder / "state").mkdir()
    write_config(folder, "facts: {batch: 1}\n")
    write_rules(folder, likes=LIKES)
    settings, rules = load(folder)
    in_force, clock = InForce(settings, rules), FakeClock(at(3600))
    async with open_stores(settings, clock, settings.facts_path) as stores:
        runner = rule_runner_of(settings, stores, logs or FakeLogs(), clock)
        yield ReloadedDaemon(folder, runner, stores.memory, in_force)


async def test_reload_applies_every_rule_and_reports_the_changes(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        home.rules(likes=EVERYTHING, nightly=NIGHTLY)
        with capture_logs() as log:
            answer = await home.reload()

        assert answer["added"] == ["nightly"]
        assert answer["changed"] == ["likes"]
        assert (answer["removed"], answer["restart_needed"]) == ([], [])
        assert (answer["generation"], answer["rules"]) == (2, 2)
        assert answer["rules_hash"] == home.in_force.rules.content_hash
        assert home.followed == [(["likes", "nightly"], "UTC")]
        assert [(line["event"], line.get("rule_id")) for line in log] == [
            ("rule.added", "nightly"), ("rule.changed", "likes"), ("config.reloaded", None),
        ]  # fmt: skip
        assert log[-1]["by"] == "uid 7"


async def test_removed_rule_is_reported_and_keeps_its_watermark_and_facts(
    tmp_path: Path,
) -> None:
    async with reloadable(tmp_path) as home:
        (likes,) = home.in_force.rules.rules
        await home.memory.put_many([triple("e1", "alice", "likes", "tea")])
        await home.runner.fire(FireRequest(likes, "manual", at(3600)))
        home.rules(likes=None)
        with capture_logs() as log:
            answer = await home.reload()

        assert (answer["removed"], answer["rules"]) == (["likes"], 0)
        assert log[0]["event"] == "rule.removed"
        assert (await home.runner.facts.watermarks.positions())["likes"][0].seq == 1
        assert (await home.runner.facts.health()).fragment_count == 1


async def test_reload_never_changes_a_rule_set_in_place(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        before = home.in_force.rules
        old = (before.content_hash, before.generation, [rule.id for rule in before.rules])
        home.rules(likes=EVERYTHING, nightly=NIGHTLY)

        await home.reload()

        assert home.in_force.rules is not before
        assert old == (before.content_hash, before.generation, [rule.id for rule in before.rules])


async def test_reload_with_mistakes_keeps_the_old_rules_and_reports_every_mistake(
    tmp_path: Path,
) -> None:
    broken = LIKES.replace("every: 1", "evry: 1").replace("predicate", "predcate")
    async with reloadable(tmp_path) as home:
        before = home.in_force.rules
        home.rules(likes=EVERYTHING, one=broken.replace("likes,", "one,"), two="rules: [")
        with capture_logs() as log, pytest.raises(ReloadFailedError) as caught:
            await home.reload()

        assert caught.value.exit_code == 1
        assert home.in_force.rules is before
        assert home.followed == []
        (event,) = log
        assert (event["event"], event["log_level"]) == ("config.reload_failed", "error")
        assert event["mistakes"] == len(event["errors"]) == 3
        for file, problem in (("one", "evry"), ("one", "predcate"), ("two", "closing bracket")):
            found = [error for error in event["errors"] if f"{file}.yaml:" in error]
            assert any(problem in error for error in found), event["errors"]
            assert problem in str(caught.value)


async def test_mistakes_that_do_not_fit_one_log_line_take_several_lines(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        lines = [f"  - {{id: r{n}, wrong: {n}}}" for n in range(120)]
        home.rules(likes="\n".join(["rules:", *lines]))
        with capture_logs() as log, pytest.raises(ReloadFailedError):
            await home.reload()

        assert {line["mistakes"] for line in log} == {sum(len(line["errors"]) for line in log)}
        assert len(log) > 1
        assert max(sum(map(len, line["errors"])) for line in log) < 8_000


async def test_reload_keeps_the_old_rules_when_the_store_cannot_resolve_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reloadable(tmp_path) as home:

        async def busy(*_: object, **__: object) -> None:
            raise StoreBusyError(str(tmp_path / "facts.db"), 1.0)

        monkeypatch.setattr(home.runner.facts.ledger, "set_channels", busy)
        before = home.in_force.rules
        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)

        with pytest.raises(ReloadFailedError, match="is locked"):
            await home.reload()

        assert home.in_force.rules is before


async def test_reload_fails_and_keeps_the_old_rules_when_the_log_is_full(tmp_path: Path) -> None:
    class Full(FakeDeltaLog):
        def applied(self, records: Sequence[Record]) -> None:
            raise OSError("no space left on device")

    async with reloadable(tmp_path, FakeLogs(Full())) as home:
        before = home.in_force.rules
        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)

        with pytest.raises(ReloadFailedError, match="no space left"):
            await home.reload()

        assert home.in_force.rules is before


async def test_reload_resolves_changed_channels_again(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        (likes,) = home.in_force.rules.rules
        both = [triple("e1", "alice", "likes", "tea"), triple("e2", "alice", "likes", "coffee")]
        await home.memory.put_many(both)
        await home.runner.fire(FireRequest(likes, "manual", at(3600)))
        assert (await home.runner.facts.health()).fragment_count == 1

        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)
        await home.reload()

        assert (await home.runner.facts.health()).fragment_count == 2


async def test_reload_applies_live_settings_and_names_those_that_need_a_restart(
    tmp_path: Path,
) -> None:
    async with reloadable(tmp_path) as home:
        home.configure(
            "facts: {batch: 7}\ntimezone: Europe/Berlin\n"
            "limits: {max_deletes: 3}\nstop_seconds: 5\n"
        )
        with capture_logs() as log:
            answer = await home.reload()

        assert sorted(answer["restart_needed"]) == ["facts.batch", "stop_seconds"]
        assert home.followed == [(["likes"], "Europe/Berlin")]
        assert home.runner.consolidator.limits.max_deletes == 3
        assert home.in_force.settings.timezone == "Europe/Berlin"
        assert home.in_force.settings.stop_seconds == 25, (
            "the settings are those that the daemon runs with"
        )
        warned = [line for line in log if line["event"] == "config.restart_needed"]
        assert warned[0]["log_level"] == "warning"
        again = await home.reload()
        assert again["restart_needed"] == answer["restart_needed"], (
            "the next reload names them again"
        )


class SignallingLog(FakeDeltaLog):
    """A log that sets an event when the first batch is logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.first = asyncio.Event()
        self._loop = loop

    def applied(self, records: Sequence[Record]) -> None:
        super().applied(records)
        self._loop.call_soon_threadsafe(self.first.set)


async def test_reload_waits_for_the_current_batch_and_lets_no_other_begin(tmp_path: Path) -> None:
    log = SignallingLog(asyncio.get_running_loop())
    async with reloadable(tmp_path, FakeLogs(log)) as home:
        (likes,) = home.in_force.rules.rules
        await home.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(40)])
        home.rules(likes=EVERYTHING)

        async def fire() -> bool:
            async with home.turn:
                report = await home.runner.fire(
                    FireRequest(likes, "every", at(3600), stop=home.in_force.pause)
                )
            return report.cut_short

        async with asyncio.TaskGroup() as group:
            firing = group.create_task(fire())
            await log.first.wait()
            await home.reload()
            batches = len(log.batches)

        assert firing.result(), "the firing was stopped before its end"
        assert 0 < batches < 40
        assert not home.in_force.pause.is_set(), "the next firing may run"
        assert {batch.firing.rule_hash for batch in log.batches} == {likes.content_hash}


async def test_concurrent_reloads_run_one_after_the_other(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        reloading = home.reloading

        answers = await asyncio.gather(*(reloading.answer(RequestForm(), ME) for _ in range(3)))

        assert [answer["generation"] for answer in answers] == [2, 3, 4]


async def test_outdated_reports_changed_settings_and_applies_none(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as home:
        before = home.in_force.settings
        assert await home.reloading.outdated(RequestForm(), ME) == {"reload": [], "restart": []}

        home.configure("facts: {batch: 2}\ntimezone: Asia/Tokyo\nlimits: {max_deletes: 3}\n")
        changed = await home.reloading.outdated(RequestForm(), ME)
        await home.reload()
        after = await home.reloading.outdated(RequestForm(), ME)

    assert changed == {"reload": ["limits.max_deletes", "timezone"], "restart": ["facts.batch"]}
    assert after == {"reload": [], "restart": ["facts.batch"]}
    assert before.timezone == "UTC"


@pytest.mark.slow
def test_daemon_reloads_at_a_command_and_at_a_signal(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("likes", cadence={"every": 1}, when_filter="predicate = 'likes'")
    put(home, triple("e1", "alice", "likes", "tea"), triple("e2", "alice", "lives_in", "Porto"))
    with home.daemon() as daemon:
        daemon.wait_until_read(2)
        home.rule("all", cadence={"every": 1})
        assert "the daemon uses other rules" in home.slumberd("status").stdout

        done = home.slumberd("reload")

        assert "added    all" in done.stdout
        daemon.wait_for("firing.completed", lambda event: event["rule_id"] == "all")
        assert [fact["id"] for fact in home.facts()] == ["e1", "e2"]
        status = home.slumberd("status").stdout
        assert "rules of generation 2\n" in status
        assert "other rules" not in status

        (home.rules / "all.yaml").unlink()
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.wait_for("config.reloaded")["removed"] == 1
        removed = home.slumberd("rules", "--removed").stdout
        assert ("all" in removed, "likes" in removed) == (True, False)


@pytest.mark.slow
def test_daemon_keeps_its_rules_when_the_files_have_mistakes(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.rule("likes", cadence={"every": 1}, when_filter="predicate = 'likes'")
    with home.daemon() as daemon:
        home.rule("worse", cadence={"evry": 1})

        failed = home.slumberd("reload", check=False)

        assert failed.returncode == 1
        assert "did you mean 'every'?" in failed.stderr
        daemon.wait_for("config.reload_failed")
        home.rule("worse", cadence={"every": 1}, when_filter="predcate = 1")
        with pytest.raises(RefusedError) as caught:
            ask(home.state, "reload")
        assert caught.value.exit_code == 1
        assert ask(home.state, "status")["generation"] == 1
        put(home, triple("e1", "alice", "likes", "tea"))
        daemon.wait_for("firing.completed", lambda event: event["rule_id"] == "likes")
    assert home.slumberd("reload", check=False).returncode == 69


def put(home: Home, *episodes: Any) -> None:
    file = home.folder / "put.jsonl"
    file.write_bytes(b"".join(episode.model_dump_json().encode() + b"\n" for episode in episodes))
    home.slumberd("import", file)


def in_force_of(version: int | None, *, source: str = "published") -> InForce:
    values = {"state_dir": "/", "rules_dir": "/", "store": "postgresql:///memory"}
    settings = Settings.model_validate({**values, "postgres": {"rules": source}})
    return InForce(settings, RuleSet((), {}, {}, version=version))


@pytest.mark.parametrize(
    ("in_force", "newest", "wanted"),
    [
        pytest.param(in_force_of(1), 2, True, id="newer"),
        pytest.param(in_force_of(2), 1, True, id="of an older copy of the database"),
        pytest.param(in_force_of(2), 2, False, id="in force"),
        pytest.param(in_force_of(2), 0, False, id="none"),
        pytest.param(in_force_of(None, source="files"), 2, False, id="of a host with files"),
    ],
)
def test_publication_is_loaded_when_it_is_not_in_force(
    in_force: InForce, newest: int, wanted: bool
) -> None:
    in_force.notice_version(newest)

    assert in_force.wanted.is_set() == wanted


@pytest.mark.parametrize(
    ("error", "again"),
    [
        pytest.param(ConfigurationError([]), False, id="mistakes"),
        pytest.param(StoreBusyError("memory", 5), True, id="a store that fails"),
    ],
)
def test_publication_that_could_not_be_loaded_is_loaded_again_unless_it_has_mistakes(
    error: SlumberdError, again: bool
) -> None:
    def load() -> tuple[Settings, RuleSet]:
        raise error

    in_force = in_force_of(1)
    in_force.notice_version(2)
    load_again(in_force, load, by=in_force.wanted_by)
    in_force.notice_version(2)

    assert in_force.wanted.is_set() == again
    assert in_force.rules.version == 1
