"""A plugin of pytest that records which tests run which lines, with coverage.

Each test is a context. So is each fixture that several tests share: all of them depend on what it
ran. The processes that a test starts record their lines for it too. ``FOLDER`` names where the
data goes. Each test is written when it ends, so that a later run can leave it out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

FOLDER = "MUTATION_FOLDER"
"""The variable with the directory of the data."""

SETTINGS = """\
[run]
branch = false
parallel = true
sigterm = true
core = ctrace
source = {source}
data_file = {folder}/lines
context = ${{MUTATION_CONTEXT-}}
[paths]
source =
    {root}
    */tree/daemon/slumberd
"""

DONE = "done.json"
"""The file with the tests to leave out: those of a run that ended early, or of another tier."""


class Recorder:
    """Records the lines and the results of the tests of one process."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "coverage.ini"
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        self._coverage = coverage.Coverage(config_file=str(settings), data_suffix=True)
        self._coverage.start()
        done = json.loads((folder / DONE).read_text())
        self._recorded, self._few = set(done["recorded"]), set(done["default"])
        self._results = (folder / f"results-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._context = ""
        self._seconds = 0.0
        self._passed = True
        self._shared: set[str] = set()

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the tests that are done; a sampled one has more examples in another tier."""
        done = [
            item
            for item in items
            if item.nodeid in self._recorded
            or (item.nodeid in self._few and not item.get_closest_marker("sampled"))
        ]
        config.hook.pytest_deselected(items=done)
        left_out = set(done)
        items[:] = [item for item in items if item not in left_out]

    @contextmanager
    def _recorded_as(self, context: str) -> Iterator[None]:
        before, self._context = self._context, context
        self._switch(context)
        try:
            yield
        finally:
            self._context = before
            self._switch(before)

    def _switch(self, context: str) -> None:
        os.environ["MUTATION_CONTEXT"] = context
        self._coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record the lines of a test, then write what it did."""
        self._seconds, self._passed, self._shared = 0.0, True, set()
        with self._recorded_as(item.nodeid):
            result = yield
        line = {"test": item.nodeid, "seconds": round(self._seconds, 4), "passed": self._passed}
        self._results.write(f"{json.dumps({**line, 'shared': sorted(self._shared)})}\n")
        self._results.flush()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Record the lines of a fixture of several tests."""
        if fixturedef.scope == "function":
            return (yield)
        with self._recorded_as(_context_of(fixturedef)):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the time of a test, and note whether it ran and passed."""
        self._seconds += report.duration
        self._passed = self._passed and report.passed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Note the fixtures that a test shares with others."""
        info = getattr(item, "_fixtureinfo", None)
        self._shared = {
            _context_of(fixture)
            for fixtures in (info.name2fixturedefs.values() if info else ())
            for fixture in fixtures
            if fixture.scope != "function"
        }

    def pytest_unconfigure(self) -> None:
        """Write what was recorded."""
        self._results.close()
        self._coverage.stop()
        self._coverage.save()


def _context_of(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.baseid}::{fixture.argname}"


def pytest_configure(config: pytest.Config) -> None:
    """Record in each process that runs tests."""
    runs_tests = hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)
    if runs_tests and (folder := os.environ.get(FOLDER)):
        config.pluginmanager.register(Recorder(Path(folder)), "recorder")
