"""The plugins of all tests, and the one automatic check."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest

from tests.support.catalogue_check import problems_of_log_files, watched

pytest_plugins = [
    "tests.support.selection",
    "tests.support.ledger_fixtures",
    "tests.support.postgres_server",
    "tests.support.providers",
    "tests.support.engine_subjects",
]


def pytest_configure(config: pytest.Config) -> None:
    """With ``SLUMBERD_MEASURE_TESTS_ONLY``, let coverage measure no process that a test starts.

    A test process is measured since its start. A command or daemon would take twice as long.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker and os.environ.pop("SLUMBERD_MEASURE_TESTS_ONLY", ""):
        os.environ.pop("COVERAGE_PROCESS_START", None)


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
