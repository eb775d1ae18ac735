"""A daemon publishes every promotion to a provenance sink, and the sink never delays it."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from slumberd.daemon import composition
from slumberd.daemon import daemon as service_daemon
from slumberd.daemon.daemon import Intervals
from slumberd.model.errors import ExtraMissingError
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import ProvenanceSettings
from slumberd.workers.provenance import publisher
from slumberd.workers.provenance.fathom_sink import open_engine
from slumberd.workers.provenance.publisher import ProvenanceSink
from tests.daemon.test_daemon import Life
from tests.support.builders import rule, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeSink
from tests.support.scripted_histories import FIRST, LATER
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.workers.provenance.test_fathom_sink import DOUBTS, pack_of

pytestmark = pytest.mark.integration

ALWAYS = rule("always")
TO_A_FILE = ProvenanceSettings(sink="file")
TO_AN_ENGINE = ProvenanceSettings(sink="fathom")
needs_fathom = pytest.mark.skipif(
    find_spec("fathom") is None, reason="fathom-rules needs Python 3.12 or newer"
)


async def put(life: Life, episodes: list[Any]) -> None:
    async with life.stores() as (stores, _):
        await stores.memory.put_many(episodes)


def promotions(path: Path) -> list[int]:
    """Return the numbers of the ledger rows that made a fact current."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT seq FROM slumberd_ledger WHERE kind IN (1, 2) ORDER BY seq"
        )
        return [seq for (seq,) in found]


def seqs_in(path: Path) -> list[int]:
    """Return the numbers of the ledger rows in a file, without truncated lines."""
    return [line["slots"]["seq"] for line in lines_in(path)]


def lines_in(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return found


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, while the daemon runs."""
    await asyncio.to_thread(wait_until, condition)


@pytest.mark.slow
async def test_daemon_publishes_every_promotion_to_a_file(tmp_path: Path) -> None:
    life = Life(tmp_path, ALWAYS, provenance=TO_A_FILE)
    await put(life, FIRST)
    async with life.running():
        await eventually(lambda: _is_all_published(tmp_path))
    lines = lines_in(tmp_path / "provenance.jsonl")
    assert [line["slots"]["seq"] for line in lines] == promotions(tmp_path / "facts.db")
    assert {line["template"] for line in lines} == {"slumberd.fact"}
    assert {line["slots"]["_source"] for line in lines} == {"rule-always"}


@pytest.mark.slow
async def test_next_daemon_continues_at_the_saved_position(tmp_path: Path) -> None:
    life = Life(tmp_path, ALWAYS, provenance=TO_A_FILE)
    for episodes in (FIRST, LATER):
        await put(life, episodes)
        async with life.running():
            await eventually(lambda: _is_all_published(tmp_path))
    seqs = seqs_in(tmp_path / "provenance.jsonl")
    assert seqs == promotions(tmp_path / "facts.db")


@pytest.mark.slow
async def test_daemon_that_stops_before_the_sink_answers_publishes_that_promotion_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, ALWAYS, provenance=TO_A_FILE)
    path = tmp_path / "provenance.jsonl"
    await put(life, FIRST)

    with _answering_late(monkeypatch, after=4) as is_written:
        async with life.running():
            await asyncio.to_thread(is_written.wait, PATIENCE_SECONDS)
    unanswered = seqs_in(path)
    position = _published_position(tmp_path / "facts.db")
    async with life.running():
        await eventually(lambda: _is_all_published(tmp_path))

    expected = promotions(tmp_path / "facts.db")
    assert unanswered == expected[:4]
    assert expected[2] <= position < expected[3]
    assert seqs_in(path) == expected[:4] + expected[3:]


@contextmanager
def _answering_late(monkeypatch: pytest.MonkeyPatch, *, after: int) -> Iterator[threading.Event]:
    """Block the file sink in its next line until the block ends.

    Yields:
        An event that is set when the line is in the file.
    """
    append = publisher._append
    is_written, may_answer, lines = threading.Event(), threading.Event(), itertools.count(1)

    def appending(path: Path, line: bytes) -> None:
        append(path, line)
        if next(lines) == after:
            is_written.set()
            may_answer.wait()

    with monkeypatch.context() as patch:
        patch.setattr(publisher, "_append", appending)
        try:
            yield is_written
        finally:
            may_answer.set()


def _is_all_published(folder: Path) -> bool:
    """Return whether every episode is read, every promotion published, and the position saved.

    A daemon that stops before it saves the position publishes the last promotion again.
    """
    lines = lines_in(folder / "provenance.jsonl")
    facts = folder / "facts.db"
    return (
        _watermark(facts) == _newest(folder / "memory.db")
        and {line["slots"]["seq"] for line in lines} == {*promotions(facts)}
        and _published_position(facts) == _last_row(facts)
    )


def _published_position(path: Path) -> int:
    """Return the number of the last ledger row that the file sink has."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute(
            "SELECT value FROM slumberd_numbers WHERE name = 'asserted:file'"
        ).fetchone()
        return int(row[0]) if row else 0


def _last_row(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT max(seq) FROM slumberd_ledger").fetchone()[0] or 0)


def _watermark(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT max(seq) FROM slumberd_watermark").fetchone()
        return int(row[0] or 0)


def _newest(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT max(seq) FROM slumberd_episode_log").fetchone()[0])


class UnreliableSink(FakeSink):
    """Fails, cancels itself, hangs, and accepts, in turn."""

    async def assert_with_provenance(self, template: str, slots: Any, provenance: Any) -> None:
        behaviour = next(self.behaviours)
        faults = {0: OSError("down"), 1: asyncio.CancelledError(), 2: None, 3: None}
        self.fault, self.hangs = faults[behaviour], behaviour == 2
        await super().assert_with_provenance(template, slots, provenance)

    behaviours: Iterator[int] = itertools.cycle([0, 1, 2, 3])


def content_without_positions(path: Path) -> list[str]:
    """Return the content of a database without the saved positions of sinks."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM slumberd_numbers WHERE name GLOB '*:*'")
        return [*connection.iterdump()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "unreliable", "hanging"])
async def test_facts_and_ledger_are_byte_for_byte_the_same_with_a_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sinks = {"unreliable": UnreliableSink(), "hanging": FakeSink()}
    sinks["hanging"].hangs = True
    without = await run_daemon_on_episodes(tmp_path / "without", monkeypatch, ProvenanceSettings())
    if kind in sinks:
        monkeypatch.setattr(service_daemon, "provenance_sink", lambda _: yield_sink(sinks[kind]))
    called = sinks[kind].called if kind in sinks else None
    assert (
        await run_daemon_on_episodes(tmp_path / "with", monkeypatch, TO_A_FILE, called) == without
    )


async def run_daemon_on_episodes(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    provenance: ProvenanceSettings,
    called: asyncio.Event | None = None,
) -> list[str]:
    """Run a daemon on all episodes, and return the content of its fact store.

    The second half of the episodes follows the first call of the sink. There is no randomness, and
    the clock is stopped.
    """
    salts = itertools.count()
    monkeypatch.setattr(os, "urandom", lambda size: next(salts).to_bytes(size, "big"))
    folder.mkdir()
    life = Life(folder, ALWAYS, rule("again", then_emits=["notes"]), provenance=provenance)
    await put(life, FIRST)
    with capture_logs():
        async with life.running():
            await eventually(lambda: _is_logged(folder, life))
            if called is not None:
                await called.wait()
            await put(life, LATER)
            await eventually(lambda: _is_logged(folder, life))
    return content_without_positions(folder / "facts.db")


def _is_logged(folder: Path, life: Life) -> bool:
    """Return whether every episode is read and every ledger row is logged.

    A daemon that stops before it logs a batch leaves the number ``logged`` behind.
    """
    logged = {line.seq for line in life.log.lines}
    return _is_read(folder) and _last_row(folder / "facts.db") in logged


def _is_read(folder: Path) -> bool:
    with closing(sqlite3.connect(folder / "facts.db")) as connection:
        watermarks = connection.execute("SELECT seq FROM slumberd_watermark").fetchall()
    return watermarks == [(_newest(folder / "memory.db"),)] * 2


@asynccontextmanager
async def yield_sink(sink: ProvenanceSink) -> AsyncIterator[ProvenanceSink]:
    yield sink


async def test_daemon_does_not_start_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fathom", None)
    with pytest.raises(ExceptionGroup) as caught:
        async with Life(tmp_path, ALWAYS, provenance=TO_AN_ENGINE).running():
            raise AssertionError("it runs")
    assert caught.group_contains(ExtraMissingError)
    assert not (tmp_path / "facts.db").exists()


@pytest.mark.path
async def test_heartbeat_reports_how_far_the_sink_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FakeSink()
    sink.hangs = True
    monkeypatch.setattr(service_daemon, "provenance_sink", lambda _: yield_sink(sink))
    life = Life(tmp_path, ALWAYS, provenance=TO_A_FILE)
    life.intervals = Intervals(heartbeat_seconds=0)
    await put(life, [triple("e1", "alice", "likes", "tea")])
    with capture_logs() as logs:
        async with life.running():
            await sink.called.wait()
            seen = len(logs)
            await eventually(lambda: any(map(_is_beat, logs[seen:])))
    figures = [line["provenance"] for line in logs if _is_beat(line)]
    assert figures[-1] == {"rows": 2, "seconds": 0.0, "refused": 0}


def _is_beat(line: Any) -> bool:
    return bool(line["event"] == "daemon.heartbeat")


def home_of(folder: Path, **provenance: Any) -> Home:
    home = Home(folder, {"provenance": {"sink": "file", **provenance}})
    home.rule("all", cadence={"every": 1})
    return home


def put_by_command(home: Home, *episodes: Any) -> None:
    file = home.folder / "put.jsonl"
    file.write_text("\n".join(episode.model_dump_json() for episode in episodes))
    home.call("import", file, check=False)


@pytest.mark.path
def test_status_reports_how_far_the_sink_is_behind(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    put_by_command(home, triple("e1", "alice", "likes", "tea"))
    home.call("fire", "all")

    status = orjson.loads(home.call("status", "--json").stdout)["provenance"]
    screen = home.call("status").stdout

    assert (status["sink"], status["rows"], status["refused"]) == ("file", 2, 0)
    assert "provenance file: 2 rows behind" in screen
    assert Home(tmp_path).call("status", "--json").stdout.count('"provenance":null') == 1


def _set_behind(home: Home, position: int, since: int) -> None:
    with closing(sqlite3.connect(home.state / "facts.db")) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO slumberd_numbers VALUES ('asserted:file', ?)", [position]
        )
        connection.execute("INSERT OR REPLACE INTO slumberd_numbers VALUES ('refused:file', 3)")
        connection.execute("UPDATE slumberd_firings SET at = at - ?", [since])


@pytest.mark.slow
def test_doctor_reports_a_sink_that_is_behind_for_a_long_time(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    put_by_command(home, triple("e1", "alice", "likes", "tea"))
    home.call("fire", "all")

    def problems() -> list[str]:
        findings = orjson.loads(home.call("doctor", "--json", check=False).stdout)["findings"]
        return [finding["problem"] for finding in findings if finding["id"] == "provenance.behind"]

    _set_behind(home, 1, 0)
    assert problems() == []
    _set_behind(home, 1, 3_600_000_000)
    assert len(problems()) == 1
    assert "1 row behind" in problems()[0]
    assert "3 refused" in home.call("status").stdout
    _set_behind(home, 2, 0)
    assert problems() == []
    assert "provenance file: all rows published, 3 refused" in home.call("status").stdout


def _has_published(file: Path, more_than: int) -> bool:
    return file.exists() and len(lines_in(file)) > more_than


@pytest.mark.nightly
def test_kills_lose_no_promotion(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    file = home.state / "provenance.jsonl"
    for number in range(8):
        episodes = [triple(f"e{number}-{part}", f"s{part}", "is", number) for part in range(40)]
        put_by_command(home, *episodes)
        with home.started() as daemon:
            wait_until(partial(_has_published, file, 12 * number))
            daemon.kill()
    with home.daemon():
        wait_until(lambda: _is_all_published(home.state))
    assert list(dict.fromkeys(seqs_in(file))) == promotions(home.state / "facts.db")
    home.slumberd("audit", "verify")


@pytest.mark.slow
def test_change_of_the_sink_needs_a_restart(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    with home.daemon() as daemon:
        Home(tmp_path, {"provenance": {"sink": "file", "timeout_seconds": 20}})
        home.call("reload")
        event = daemon.wait_for("config.restart_needed")
    assert event["keys"] == ["provenance.timeout_seconds"]


@needs_fathom
async def test_daemon_publishes_current_facts_to_each_new_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[Any] = []

    def open_and_record(*arguments: Any) -> Any:
        engines.append(open_engine(*arguments))
        return engines[-1]

    monkeypatch.setattr(composition, "open_engine", open_and_record)
    life = Life(tmp_path, ALWAYS, provenance=TO_AN_ENGINE)
    for episodes in (FIRST, LATER):
        await put(life, episodes)
        async with life.running():
            await eventually(lambda: _engine_has_all(tmp_path, engines[-1]))
    first, second = engines
    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
        current = {id for (id,) in connection.execute("SELECT fact_id FROM facts")}
    assert {slots["fact_id"] for slots in second.query("slumberd-fact")} >= current
    removed = {slots["fact_id"] for slots in first.query("slumberd-fact")} - current
    assert removed, "the episodes remove a fact"
    for slots in second.query("slumberd-fact"):
        assert slots["_origin"] == "consolidation"
        assert slots["_step"] == slots["seq"]


def _engine_has_all(folder: Path, engine: Any) -> bool:
    """Return whether everything was published, and the engine has all current facts."""
    with closing(sqlite3.connect(folder / "facts.db")) as connection:
        current = connection.execute("SELECT fact_id FROM facts").fetchall()
        rows = connection.execute("SELECT max(seq) FROM slumberd_ledger").fetchone()
        position = connection.execute(
            "SELECT value FROM slumberd_numbers WHERE name = 'asserted:fathom'"
        ).fetchone()
    asserted = {slots["fact_id"] for slots in engine.query("slumberd-fact")}
    read = _watermark(folder / "facts.db") == _newest(folder / "memory.db")
    return read and position == rows and asserted >= {id for (id,) in current}


@needs_fathom
def test_rules_of_a_real_engine_fire_in_a_real_daemon(tmp_path: Path) -> None:
    pack = pack_of(tmp_path, **DOUBTS)
    home = home_of(tmp_path / "home", sink="fathom", pack=str(pack))
    with home.daemon() as daemon:
        put_by_command(
            home,
            triple("e1", "alice", "lives_in", "Porto"),
            triple("e2", "alice", "lives_in", "Braga", timestamp=FIRST[-1].timestamp),
        )
        event = daemon.wait_for("provenance.concluded")
    assert event["rules"] == ["review::doubt"]
    assert event["decision"] == "escalate"


def test_default_settings_name_no_sink() -> None:
    settings = Settings(state_dir=Path("/s"), rules_dir=Path("/r"))
    assert settings.provenance.sink is None
    assert settings.provenance_path == Path("/s/provenance.jsonl")
    assert settings.pack_path is None
