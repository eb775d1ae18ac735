"""A plugin of pytest that runs chosen tests in their order, each within a limit of time.

The variable ``PLAN`` names a file with the limits in seconds by test. The plugin replaces it with
the result: how many tests ran, and which of them failed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

PLAN = "MUTATION_PLAN"
"""The variable with the file."""

ENDED = 99
"""The exit code after a test that took too long."""


class Chosen:
    """Runs the tests of a plan."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._limits: dict[str, float] = json.loads(plan.read_text())
        self._order = {name: place for place, name in enumerate(self._limits)}
        self._ran = 0
        self._report("")

    def _report(self, failed: str, why: str = "") -> None:
        result = {"ran": self._ran, "failed": failed, "why": why}
        self._plan.with_suffix(".result").write_text(json.dumps(result))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the tests of the plan, in its order."""
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in self._order])
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """End the process when a test takes too long."""
        timer = Timer(self._limits[item.nodeid], self._expire, [item.nodeid])
        timer.daemon = True
        timer.start()
        self._ran += 1
        try:
            return (yield)
        finally:
            timer.cancel()

    def _expire(self, name: str) -> None:
        self._report(name, "time limit")
        os._exit(ENDED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails."""
        if report.failed:
            self._report(report.nodeid, report.longreprtext[-300:])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note how many tests ran, if all of them passed."""
        if not session.testsfailed:
            self._report("")


def pytest_configure(config: pytest.Config) -> None:
    """Run what the plan says."""
    config.pluginmanager.register(Chosen(Path(os.environ[PLAN])), "chosen")
