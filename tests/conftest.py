"""The plugins of all tests, and the one automatic check."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.catalogue_check import problems_of_log_files, watched

if TYPE_CHECKING:
    from coverage import Coverage

pytest_plugins = [
    "tests.support.selection",
    "tests.support.ledger_fixtures",
    "tests.support.postgres_server",
    "tests.support.providers",
    "tests.support.engine_subjects",
]


TESTS = Path(__file__).parent

MEASURED = {"consolidation", "logs", "model", "operations", "rules", "search", "storage", "workers"}
"""The directories whose tests coverage measures in CI; it also measures each `unit` test.

They cover the decisions. A test that is measured takes 1.6 times as long, and most of that is lost
even when coverage records nothing of it, so coverage stops for the others.
"""


def pytest_configure(config: pytest.Config) -> None:
    """With ``SLUMBERD_MEASURE_TESTS_ONLY``, let coverage measure what CI needs, and no more.

    It measures no process that a test starts: a command or daemon would take twice as long. A test
    process is measured since its start, and during the tests of `MEASURED`.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker and os.environ.pop("SLUMBERD_MEASURE_TESTS_ONLY", ""):
        os.environ.pop("COVERAGE_PROCESS_START", None)
        if (module := sys.modules.get("coverage")) and (measuring := module.Coverage.current()):
            config.pluginmanager.register(_MeasuredTests(measuring))


class _MeasuredTests:
    """Stops coverage during a test that it need not measure."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._runs = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        directory = item.path.relative_to(TESTS).parts[0]
        wanted = directory in MEASURED or item.get_closest_marker("unit") is not None
        if wanted != self._runs:
            (self._coverage.start if wanted else self._coverage.stop)()
            self._runs = wanted


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage; later searches leave out what was collected.

    Modules and tests live as long as the process. To look through them again and again took a
    quarter of the processor time of a collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def lines_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test whose log lines are not in the event catalogue, or differ from it.

    Lines of other processes count when they go to a file in the directory of the test.

    The price, measured in November 2026 on 2,367 quick tests of models, rules, scheduling and
    stores: 0.17 s of 28 s of processor time, or 0.07 ms for each test. Whole runs with the fixture
    and without it differ by less than their noise.
    """
    # Requested here, the directory is removed after this fixture ends.
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    with watched(monkeypatch) as wrong:
        yield
    if folder is not None:
        wrong += problems_of_log_files(folder)
    assert not wrong, wrong[:3]
