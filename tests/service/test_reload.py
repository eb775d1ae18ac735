"""Reload: all of the rules that there are now, or none, between two batches."""

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

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings, load_settings
from slumberd.consolidation.fire_request import FireRequest
from slumberd.errors import ReloadFailedError, StoreBusyError
from slumberd.model.record import Record
from slumberd.model.rule import ConsolidationRule
from slumberd.service.composition import open_stores, rules_of
from slumberd.service.control_socket import Peer, RefusedError, ask
from slumberd.service.reload import InForce, Reloading
from slumberd.service.requests import RequestForm
from slumberd.service.rule_runner import RuleRunner, rule_runner_of
from slumberd.storage.episodes.store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeLogs

pytestmark = pytest.mark.integration

ME = Peer(7, 7, 7)

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
    """What a reload changes, and the files that it reads."""

    folder: Path
    runner: RuleRunner
    memory: SQLiteMemoryStore
    in_force: InForce
    followed: list[tuple[list[str], str]] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        """Write rule files, or take them away."""
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
async def house(folder: Path, logs: FakeLogs | None = None) -> AsyncIterator[ReloadedDaemon]:
    (folder / "rules.d").mkdir()
    (folder / "state").mkdir()
    write_config(folder, "facts: {batch: 1}\n")
    write_rules(folder, likes=LIKES)
    settings, rules = load(folder)
    in_force, clock = InForce(settings, rules), FakeClock(at(3600))
    async with open_stores(settings, clock, settings.facts_path) as stores:
        runner = rule_runner_of(settings, stores, logs or FakeLogs(), clock)
        yield ReloadedDaemon(folder, runner, stores.memory, in_force)


async def test_a_reload_takes_every_rule_and_tells_what_changed(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
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


async def test_a_removed_rule_is_told_and_keeps_its_watermark_and_its_facts(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home:
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


async def test_a_set_of_rules_is_never_changed_in_place(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        before = home.in_force.rules
        told = (before.content_hash, before.generation, [rule.id for rule in before.rules])
        home.rules(likes=EVERYTHING, nightly=NIGHTLY)

        await home.reload()

        assert home.in_force.rules is not before
        assert told == (before.content_hash, before.generation, [rule.id for rule in before.rules])


async def test_any_mistake_keeps_the_old_rules_and_all_are_told(tmp_path: Path) -> None:
    broken = LIKES.replace("every: 1", "evry: 1").replace("predicate", "predcate")
    async with house(tmp_path) as home:
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
            assert any(problem in one for one in found), event["errors"]
            assert problem in str(caught.value)


async def test_more_mistakes_than_fit_a_line_of_the_log_take_several(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        lines = [f"  - {{id: r{n}, wrong: {n}}}" for n in range(120)]
        home.rules(likes="\n".join(["rules:", *lines]))
        with capture_logs() as log, pytest.raises(ReloadFailedError):
            await home.reload()

        assert {line["mistakes"] for line in log} == {sum(len(line["errors"]) for line in log)}
        assert len(log) > 1
        assert max(sum(map(len, line["errors"])) for line in log) < 8_000


async def test_a_store_that_cannot_settle_channels_again_keeps_the_old_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as home:

        async def busy(*_: object, **__: object) -> None:
            raise StoreBusyError(home.runner.facts.path, 1.0)

        monkeypatch.setattr(home.runner.facts.ledger, "set_channels", busy)
        before = home.in_force.rules
        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)

        with pytest.raises(ReloadFailedError, match="is locked"):
            await home.reload()

        assert home.in_force.rules is before


async def test_a_log_that_takes_no_line_fails_a_reload_and_ends_nothing(tmp_path: Path) -> None:
    class Full(FakeDeltaLog):
        def applied(self, records: Sequence[Record]) -> None:
            raise OSError("no space left on device")

    async with house(tmp_path, FakeLogs(Full())) as home:
        before = home.in_force.rules
        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)

        with pytest.raises(ReloadFailedError, match="no space left"):
            await home.reload()

        assert home.in_force.rules is before


async def test_channels_are_settled_again_by_a_reload(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        (likes,) = home.in_force.rules.rules
        both = [triple("e1", "alice", "likes", "tea"), triple("e2", "alice", "likes", "coffee")]
        await home.memory.put_many(both)
        await home.runner.fire(FireRequest(likes, "manual", at(3600)))
        assert (await home.runner.facts.health()).fragment_count == 1

        home.rules(likes="channels: {facts: {multi_valued: [likes]}}\n" + LIKES)
        await home.reload()

        assert (await home.runner.facts.health()).fragment_count == 2


async def test_of_the_configuration_a_reload_takes_what_it_can_and_names_the_rest(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home:
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
        assert home.in_force.settings.stop_seconds == 25, "what runs is what is told of"
        warned = [line for line in log if line["event"] == "config.restart_needed"]
        assert warned[0]["log_level"] == "warning"
        again = await home.reload()
        assert again["restart_needed"] == answer["restart_needed"], "as long as it is true"


class Hooked(FakeDeltaLog):
    """Tells when the first batch is logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.first = asyncio.Event()
        self._loop = loop

    def applied(self, records: Sequence[Record]) -> None:
        super().applied(records)
        self._loop.call_soon_threadsafe(self.first.set)


async def test_a_reload_lets_the_batch_under_way_end_and_no_other_begin(tmp_path: Path) -> None:
    hooked = Hooked(asyncio.get_running_loop())
    async with house(tmp_path, FakeLogs(hooked)) as home:
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
            await hooked.first.wait()
            await home.reload()
            batches = len(hooked.batches)

        assert firing.result(), "there was more to do"
        assert 0 < batches < 40
        assert not home.in_force.pause.is_set(), "the next firing goes on"
        assert {batch.firing.rule_hash for batch in hooked.batches} == {likes.content_hash}


async def test_two_reloads_at_once_come_one_after_the_other(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        reloading = home.reloading

        answers = await asyncio.gather(*(reloading.answer(RequestForm(), ME) for _ in range(3)))

        assert [answer["generation"] for answer in answers] == [2, 3, 4]


async def test_what_there_is_now_and_was_not_taken_is_told_and_not_taken(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        before = home.in_force.settings
        assert await home.reloading.outdated(RequestForm(), ME) == {"reload": [], "restart": []}

        home.configure("facts: {batch: 2}\ntimezone: Asia/Tokyo\nlimits: {max_deletes: 3}\n")
        told = await home.reloading.outdated(RequestForm(), ME)
        await home.reload()
        after = await home.reloading.outdated(RequestForm(), ME)

    assert told == {"reload": ["limits.max_deletes", "timezone"], "restart": ["facts.batch"]}
    assert after == {"reload": [], "restart": ["facts.batch"]}
    assert before.timezone == "UTC"


@pytest.mark.slow
def test_a_daemon_reloads_when_it_is_told_to(tmp_path: Path) -> None:
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


def test_a_daemon_keeps_its_rules_when_those_that_there_are_cannot_be_taken(
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
