"""Options, markers and the one automatic check of all tests."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.support.catalogue_check import problems_of_log_files, watched
from tests.support.sample_sizes import use_full_samples

pytest_plugins = [
    "tests.support.ledger_fixtures",
    "tests.support.postgres_server",
    "tests.support.providers",
    "tests.support.engine_subjects",
]

# A busy machine must not fail an example; the tests that measure time have their own limits.
settings.register_profile("slumberd", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5_000)
settings.load_profile("slumberd")

LEFT_OUT = ("slow", "timing")
"""The markers of tests that run only with ``--all``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define ``--all``."""
    parser.addoption(
        "--all", action="store_true", help="also run the tests that are marked slow or timing"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let tests try all of their samples with ``--all``, in each worker."""
    if config.getoption("--all"):
        use_full_samples()


def pytest_report_header(config: pytest.Config) -> str:
    """Return a line that says whether tests are left out."""
    if config.getoption("--all"):
        return "all tests run, slow ones too"
    return f"tests marked {' or '.join(LEFT_OUT)} are left out; --all runs them"


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


@pytest.hookimpl(tryfirst=True)  # `-m` and `-k` then count what is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow and timing tests, unless ``--all`` asks for them."""
    for item in items:
        if item.get_closest_marker("files_first") and runs_on_a_database(item):
            item.add_marker("slow")
    if config.getoption("--all"):
        return
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[any(map(item.get_closest_marker, LEFT_OUT))].append(item)
    config.hook.pytest_deselected(items=chosen[True])
    items[:] = chosen[False]


def runs_on_a_database(item: pytest.Item) -> bool:
    """Return whether a test takes its stores from PostgreSQL."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "postgres" in parameters.values() or "postgres" in getattr(item, "fixturenames", ())


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
