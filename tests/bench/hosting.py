"""Hosts of slumberd: each runs it in its own process, and prints measurements as JSON.

``python -m tests.bench.hosting SIGHT CONFIG [NUMBER ...]`` with one of these sights: ``gaps``, of
the event loop of `slumberd run` until SIGTERM; ``puts COUNT``, each to its fact, within `slumberd
run`; ``overdue COUNT SECONDS``, passes of so many seconds at most, beyond their timeout.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from slumberd.cli import main
from slumberd.cli.setup import load_settings_and_rules, logs
from slumberd.clock import SystemClock
from slumberd.consolidation.firing import FireRequest
from slumberd.daemon import startup
from slumberd.daemon.composition import open_for_writing, rule_runner_of
from slumberd.daemon.daemon import Daemon
from slumberd.model.errors import FiringTimeoutError
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import triple

Sight = Callable[[asyncio.Event], Awaitable[Any]]

POLL_SECONDS = 0.05
"""The default; puts come at any moment between two polls."""

_WAKE_SECONDS = 0.001
_LOOKS_EACH = 256
_LOOK_SECONDS = 0.000_5
_FACT = "SELECT 1 FROM facts WHERE fact_id = ?"


async def gaps(stop: asyncio.Event) -> dict[str, float]:
    """Wake each millisecond; return the longest gap, and the longest that was slumberd's own.

    On a busy machine the loop and the threads that it needs wait for a processor. Slumberd's own
    share is at most the gap without the loop's wait and without the longest wait of another thread.
    It is also at most the time that all threads computed together: a virtual machine does not show
    a processor that its host took away. A loop that blocks shows in the longest gap alone.
    """
    longest = own = 0.0
    threads, looks = _threads(), 0
    last, waited, computed = time.monotonic(), _waits(threads), time.process_time()
    while not stop.is_set():
        await asyncio.sleep(_WAKE_SECONDS)
        now, waits = time.monotonic(), _waits(threads)
        main, *others = [after - before for after, before in zip(waits, waited, strict=True)]
        gap = now - last - _WAKE_SECONDS
        computed = time.process_time() - computed
        longest = max(longest, gap)
        own = max(own, min(gap - main - max(others, default=0), computed))
        looks += 1
        if looks % _LOOKS_EACH == 0:
            threads = _threads(threads)
        last, waited, computed = time.monotonic(), _waits(threads), time.process_time()
    return {"longest": longest, "own": own}


def _threads(known: Sequence[int] = ()) -> list[int]:
    """Return descriptors of the scheduler statistics of each thread, the main thread first."""
    for descriptor in known:
        os.close(descriptor)
    paths = [f"/proc/self/task/{thread}/schedstat" for thread in sorted(map(int, _tasks()))]
    return [os.open(path, os.O_RDONLY) for path in paths]


def _tasks() -> list[str]:
    return os.listdir("/proc/self/task")  # noqa: PTH208


def _waits(threads: Sequence[int]) -> list[float]:
    """Return the seconds that each thread waited for a free processor."""
    return [_wait(descriptor) for descriptor in threads]


def _wait(descriptor: int) -> float:
    with suppress(ProcessLookupError):  # it has ended
        return int(os.pread(descriptor, 100, 0).split()[1]) / 1e9
    return 0.0


async def puts(config: Path, count: int, stop: asyncio.Event) -> list[float]:
    """Put episodes through a store of the host; return the seconds until each is a fact."""
    settings, _ = load_settings_and_rules(config, None)
    facts = settings.facts_path
    async with SQLiteMemoryStore(settings.memory_path) as memory:
        with closing(sqlite3.connect(facts, isolation_level=None)) as connection:
            found = [await _put(memory, connection, f"put-{n}") for n in range(count)]
    stop.set()
    return found


async def _put(memory: SQLiteMemoryStore, facts: sqlite3.Connection, id: str) -> float:
    episode = triple(id, id, "is", "put")
    await asyncio.sleep(random.uniform(0, POLL_SECONDS))
    began = time.monotonic()
    await memory.put(episode, user=episode.user, session=episode.session, agent=episode.agent)
    while facts.execute(_FACT, (id,)).fetchone() is None:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


async def overdue(config: Path, count: int, about: float) -> list[float]:
    """Let firings exceed their timeout; return the seconds after the timeout."""
    settings, rules = load_settings_and_rules(config, None)
    clock, found = SystemClock(), []
    with logs(settings, clock) as lines:
        async with open_for_writing(settings, clock) as stores:
            runner = rule_runner_of(settings, stores, lines, clock)
            for _ in range(count):
                timeout = random.uniform(about / 2, about)
                hurried = rules.rules[0].model_copy(update={"timeout": timeout})
                began = time.monotonic()
                with suppress(FiringTimeoutError):
                    await runner.fire(FireRequest(hurried, "manual", clock.now()))
                found.append(max(0.0, time.monotonic() - began - timeout))
    return found


def host(sight: Sight, config: str) -> None:
    """Run the daemon as the command does, and measure meanwhile."""

    class Hosted(Daemon):
        async def run(self, stop: asyncio.Event) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(super().run(stop))
                print(orjson.dumps(await sight(stop)).decode())

    startup.Daemon = Hosted  # type: ignore[attr-defined]
    main(["run", "--config", config])


if __name__ == "__main__":
    name, config, *rest = sys.argv[1:]
    match name:
        case "gaps":
            host(gaps, config)
        case "puts":
            host(partial(puts, Path(config), int(rest[0])), config)
        case "overdue":
            found = asyncio.run(overdue(Path(config), int(rest[0]), float(rest[1])))
            print(orjson.dumps(found).decode())
        case _:
            raise SystemExit(__doc__)
