"""The path of one episode, from put to log line: the page and a trace name the same modules."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

import pytest
import structlog

from slumberd.cli.setup import logs
from slumberd.clock import SystemClock
from slumberd.consolidation.firing import FireRequest
from slumberd.daemon.composition import open_for_writing, rule_runner_of
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import LoggingSettings
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler
from tests.support.builders import at, rule, triple
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "explanation" / "architecture.md"

WARM_UP = 3
"""Episodes that pass before the one that is traced."""


@pytest.fixture(autouse=True)
def logging_of_others() -> Iterator[None]:
    """Give the handlers of logging back to the tests that follow."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


class Trace:
    """Collects the modules of slumberd whose functions run, in all threads."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.is_on = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe this thread, and those that begin now."""
        before = sys.getprofile()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if self.is_on and event == "call" and name.startswith("slumberd."):
            self.modules.add(name)


async def trace_episode(folder: Path) -> set[str]:
    """Return the modules that an episode passes, after some others have passed."""
    trace, log_file, clock = Trace(), folder / "slumberd.log", SystemClock()
    settings = Settings(state_dir=folder, rules_dir=folder, logging=LoggingSettings(file=log_file))
    noticed, loop = asyncio.Event(), asyncio.get_running_loop()

    async def fire(due: ConsolidationRule, _: Due, instant: datetime) -> None:
        await runner.fire(FireRequest(due, "every", instant))

    with trace.installed(), logs(settings, clock) as log:
        async with (
            open_for_writing(settings, clock) as stores,
            stores.memory.watch(
                lambda: loop.call_soon_threadsafe(noticed.set), poll_seconds=PATIENCE_SECONDS
            ),
        ):
            runner = rule_runner_of(settings, stores, log, clock)
            scheduler = Scheduler(
                clock=clock, episodes=stores.memory, watermarks=stores.facts.watermarks, fire=fire
            )
            scheduler.replace([rule("all", when_filter="content <> 'left out'")], "UTC")
            await noticed.wait()  # the watch calls back at its start, too
            for number in range(WARM_UP + 1):
                noticed.clear()
                said = triple(f"e{number}", "alice", "likes", number, timestamp=at(number))
                trace.is_on = number == WARM_UP
                await stores.memory.put(
                    said, user=said.user, session=said.session, agent=said.agent
                )
                await noticed.wait()
                await scheduler.turn(asyncio.Event())
                trace.is_on = False
                assert f'"{said.id}"' in log_file.read_text()
    return trace.modules


def modules_on_page() -> set[str]:
    """Return the modules that the page names for the path of an episode."""
    page = PAGE.read_text()
    tables = [
        page.split(f"<!-- {name}: episode -->\n\n")[1].split("\n\n")[0]
        for name in ("path", "modules")
    ]
    return set(re.findall(r"^\|.*`(slumberd\.[\w.]+)`", "\n".join(tables), re.MULTILINE))


async def test_page_names_exactly_the_modules_that_an_episode_passes(tmp_path: Path) -> None:
    assert sorted(await trace_episode(tmp_path)) == sorted(modules_on_page())
