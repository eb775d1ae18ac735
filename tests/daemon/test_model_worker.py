"""The worker that asks language models: what it asks when, and what it logs."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.firing import ExtractForm
from slumberd.operations.writes.model_worker import WINDOW_ROWS
from slumberd.workers.language_models.budget import Budget
from tests.support.asked_models import asked_stores, asking, said
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.model_server import Reply, completion, model_server, triples
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

RULE = asking()
PEER = Caller.of_user(7, 7)
DOWN = Reply(500, b"down")


@pytest.mark.slow
async def test_worker_asks_nothing_twice(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))

        for _ in range(3):
            await asked.worker.turn()

        assert len(asked.server.requests) == 1
        assert asked.freed == ["chat"]


@pytest.mark.slow
async def test_worker_frees_the_rule_after_each_window(tmp_path: Path) -> None:
    fired = asking(turns_per_call=50)
    async with asked_stores(tmp_path, fired) as asked:
        count = WINDOW_ROWS + 1
        await asked.home.put(*(said(f"e{n}", f"I like w{n}", n) for n in range(count)))

        await asked.worker.turn()

        assert [len(texts) for texts in asked.server.asked()] == [50, 14, 1]
        assert asked.freed == ["chat", "chat"]


@pytest.mark.slow
async def test_worker_asks_about_each_session_apart(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(
            said("e1", "I like tea"),
            said("e2", "I like ale", 1, session="s2"),
            said("e3", "I like gin", 2),
            said("e4", "I like rum", 3, user="bob"),
        )

        await asked.worker.turn()

        assert sorted(asked.server.asked()) == [
            ["I like ale"],
            ["I like rum"],
            ["I like tea", "I like gin"],
        ]


async def test_worker_leaves_other_rules_alone(tmp_path: Path) -> None:
    late = RULE.model_copy(update={"id": "late", "start": "now"})
    async with asked_stores(tmp_path, rule("plain"), late) as asked:
        await asked.home.put(said("e1", "I like tea"))

        await asked.worker.turn()

        assert asked.server.requests == []


async def test_server_decides_how_long_the_worker_waits(tmp_path: Path) -> None:
    busy = Reply(429, b"", ("Retry-After: 90",))
    greedy = Reply(429, b"", ("Retry-After: 999999",))
    async with asked_stores(tmp_path, RULE, script=(busy, greedy)) as asked:
        await asked.home.put(said("e1", "I like tea"))

        assert [await asked.worker.turn() for _ in range(3)] == [90.0, 3600.0, 1.0]


async def test_worker_waits_longer_after_each_failure(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE, script=(DOWN,) * 5) as asked:
        await asked.home.put(said("e1", "I like tea"))

        assert [await asked.worker.turn() for _ in range(6)] == [1.0, 5.0, 25.0, 60.0, 60.0, 1.0]


async def test_worker_logs_a_lasting_failure_once(tmp_path: Path) -> None:
    refusal = Reply(401, b'{"error": {"message": "no key"}}')
    script = (DOWN, DOWN, refusal, refusal, DOWN)
    async with asked_stores(tmp_path, RULE, script=script) as asked:
        await asked.home.put(said("e1", "I like tea"))

        with capture_logs() as logs:
            for _ in range(6):
                await asked.worker.turn()

    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("answers.waiting", "warning"),
        ("answers.failed", "error"),
        ("answers.waiting", "warning"),
        ("answers.recorded", "info"),
    ]
    assert "HTTP 401: no key" in logs[1]["message"]


async def test_worker_logs_that_the_budget_is_spent(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE, budget=Budget(calls=0)) as asked:
        await asked.home.put(said("e1", "I like tea"))

        with capture_logs() as logs:
            pause = await asked.worker.turn()

        assert (pause, len(asked.server.requests)) == (60.0, 0)
        assert [line["error"] for line in logs] == ["BudgetSpentError"]


async def test_worker_reports_a_bad_filter_and_asks_later(tmp_path: Path) -> None:
    bad = RULE.model_copy(update={"when_filter": "no_such_column = 1"})
    async with asked_stores(tmp_path, bad) as asked:
        await asked.home.put(said("e1", "I like tea"))

        with capture_logs() as logs:
            pause = await asked.worker.turn()

        assert (pause, [line["error"] for line in logs]) == (60.0, ["FilterError"])


async def test_failure_of_one_rule_does_not_stop_the_others(tmp_path: Path) -> None:
    typo, bad = asking(id="a", model="typo"), asking(id="b", instructions="Think.")
    bad = bad.model_copy(update={"when_filter": "no_such_column = 1"})
    async with asked_stores(tmp_path, typo, bad, RULE) as asked:
        likes = asked.server.otherwise
        asked.server.otherwise = lambda request: (
            Reply(404, b'{"error": "no model typo"}')
            if request["model"] == "typo"
            else likes(request)
        )
        await asked.home.put(said("e1", "I like tea"))

        with capture_logs() as logs:
            pause = await asked.worker.turn()

        assert pause == 60.0
        assert [line["event"] for line in logs] == ["answers.recorded", "answers.failed"]
        assert asked.freed == ["chat"]


async def test_worker_looks_again_when_a_firing_lacks_an_answer(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        bot = said("e1", "What do you like?").model_copy(update={"source_node": "bot"})
        await asked.home.put(bot, said("e2", "Just tea", 1))
        await asked.worker.turn()
        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as host:
            host.execute("DELETE FROM episodes WHERE id = 'e1'")  # the log has no row of that
        await asked.worker.turn()
        lacking = await asked.home.consolidator.fire(FireRequest(RULE, "manual", START))

        asked.worker.look_again("chat")
        await asked.worker.turn()
        done = await asked.home.consolidator.fire(FireRequest(RULE, "manual", START))

        assert (lacking.unrecorded, done.unrecorded) == (True, False)


async def test_erasure_ends_what_is_asked_before_its_next_call(tmp_path: Path) -> None:
    arrived = asyncio.Event()
    fired = asking(turns_per_call=1)
    script = (Reply(500, b"down"), Reply(body=triples().body, until=arrived))
    async with asked_stores(tmp_path, fired, script=script) as asked:
        await asked.home.put(said("e1", "I like tea"), said("e2", "I like ale", 1))
        await asked.worker.turn()
        asked.server.arrived.clear()
        turn = asyncio.ensure_future(asked.worker.turn())
        await asked.server.arrived.wait()

        asked.worker.drop_questions()
        arrived.set()
        await turn
        stopped = len(asked.server.requests)
        await asked.worker.turn()

        # The answer that came after the erasure is not recorded, so its turn is asked again.
        assert (stopped, len(asked.server.requests)) == (2, 4)


async def test_fault_of_the_asking_does_not_stop_the_daemon(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        asked.clock.now = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]

        with capture_logs() as logs:
            pause = await asked.worker.turn()

        assert pause == 1.0
        assert [line["error"] for line in logs] == ["ZeroDivisionError"]


async def test_slow_model_delays_no_firing(tmp_path: Path) -> None:
    never, plain = asyncio.Event(), rule("plain")
    async with asked_stores(tmp_path, RULE, script=(Reply(until=never),)) as asked:
        await asked.home.put(said("e1", "I like tea"))
        turn = asyncio.ensure_future(asked.worker.turn())
        await asked.server.arrived.wait()

        report = await asked.home.consolidator.fire(FireRequest(plain, "manual", START))

        assert not turn.done()
        assert report.channels["facts"].added == 1
        never.set()
        await turn


async def test_stop_ends_a_request_that_is_under_way(tmp_path: Path) -> None:
    never, stop = asyncio.Event(), asyncio.Event()
    async with asked_stores(tmp_path, RULE, script=(Reply(until=never),)) as asked:
        await asked.home.put(said("e1", "I like tea"))
        run = asyncio.ensure_future(asked.worker.run(stop))
        await asked.server.arrived.wait()

        stop.set()
        await asyncio.wait_for(run, PATIENCE_SECONDS)

        never.set()
        assert asked.freed == []


async def test_command_asks_about_one_rule(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))
        operations = asked.home.operations(RULE, rule("plain"), clock=FakeClock())
        with pytest.raises(UsageError, match="there is no language model"):
            await operations.extract(ExtractForm(rule="chat"), PEER)
        operations.worker = asked.worker

        answer = await operations.extract(ExtractForm(rule="chat"), PEER)

        with pytest.raises(UsageError, match="'plain' asks no language model"):
            await operations.extract(ExtractForm(rule="plain"), PEER)
        assert answer == {
            "rule_id": "chat", "calls": 1, "ok": 1, "refused": 0, "invalid": 0, "triples": 1,
            "dropped": 0, "tokens_in": 100, "tokens_out": 10,
        }  # fmt: skip


ASK_ONCE = """
import asyncio, os, signal, sys
from pathlib import Path
from slumberd.storage.episodes import recorded_answers
from tests.support.asked_models import asking, worker_at

def die(session, answers):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if sys.argv[3] == "die":
        recorded_answers.record = die
    async with worker_at(Path(sys.argv[1]), sys.argv[2], asking()) as worker:
        await worker.turn()

asyncio.run(main())
"""


@pytest.mark.nightly
async def test_process_killed_before_it_records_asks_once_more(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.put(said("e1", "I like tea"))
    async with model_server() as server:
        codes = [await _ask_once(tmp_path, server.url, how) for how in ("die", "live", "live")]

        assert codes == [-signal.SIGKILL, 0, 0]
        assert len(server.requests) == 2
    async with asked_stores(tmp_path, RULE) as asked:
        await asked.home.consolidator.fire(FireRequest(RULE, "manual", START))
        assert await asked.likes() == {"e1#1": "tea"}
        assert (await asked.home.memory.answers.spent("2026-01-01")).calls == 2


async def _ask_once(folder: Path, url: str, how: str) -> int:
    """Ask in a process of its own; return its exit code."""
    command = [sys.executable, "-c", ASK_ONCE, str(folder), url, how]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ})
    return await process.wait()


async def test_broken_model_never_ends_the_worker(tmp_path: Path) -> None:
    async with asked_stores(tmp_path, RULE) as asked:
        asked.server.otherwise = lambda _: completion("\x00" * 50_000)
        await asked.home.put(said("e1", "I like tea"))

        await asked.worker.turn()
        await asked.home.consolidator.fire(FireRequest(RULE, "manual", START))

        [found] = await asked.home.facts.reads.quarantine()
        assert found["reason"] == "answer_invalid"
