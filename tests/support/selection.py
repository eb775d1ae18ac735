"""Choose the tests of a tier. A test that is left out is neither imported nor made, if possible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.forked_commands import start_by_forks
from tests.support.sample_sizes import use_samples_of

# A busy machine must not fail an example; the tests that measure time have their own limits.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The default tests try the same examples in each run, so that what they cover is no chance.
settings.register_profile("slumberd-default", PATIENT, max_examples=30, derandomize=True)
settings.register_profile("slumberd-all", PATIENT, max_examples=50)
settings.register_profile("slumberd-nightly", PATIENT, max_examples=500)
settings.register_profile("long", PATIENT, max_examples=5_000)

TIERS = ("default", "all", "nightly")
"""The tiers of the tests. Each contains the ones before it; an option chooses it."""

LATER_MARKS: dict[str, frozenset[str]] = {
    "default": frozenset({"slow", "timing", "nightly"}),
    "all": frozenset({"nightly"}),
    "nightly": frozenset(),
}
"""By tier, the marks that a test of it cannot have."""

ENGINES = ("sqlite", "postgres")
"""The engines of stores; the default tests take the first one, unless they are paths."""

_FIXTURES_OF_ENGINES = frozenset({"new_stores", "provider", "missing"})
"""The fixtures of `tests.support.providers` that take the name of an engine."""

_MARKS_OF_FILE = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)$", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define ``--all`` and ``--nightly``."""
    parser.addoption("--all", action="store_true", help="also run what CI runs: slow tests, too")
    parser.addoption("--nightly", action="store_true", help="run all tests, with long samples")


def chosen_tier(config: pytest.Config) -> str:
    """Return the tier that the options choose."""
    if config.getoption("--nightly"):
        return "nightly"
    return "all" if config.getoption("--all") else "default"


def pytest_configure(config: pytest.Config) -> None:
    """Let tests try as many examples as their tier says, in each worker."""
    tier = chosen_tier(config)
    use_samples_of(tier)
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile(f"slumberd-{tier}")


def pytest_report_header(config: pytest.Config) -> str:
    """Return a line that says which tests are left out."""
    return {
        "default": "the default tests run; --all runs more, --nightly runs every test",
        "all": "the tests of CI run; --nightly runs every test",
        "nightly": "every test runs",
    }[chosen_tier(config)]


def tier_of(item: pytest.Item) -> str:
    """Return the first tier that has a test.

    Raises:
        pytest.UsageError: A path is in a file that is slow, so that it would not run by default.
    """
    marks = {mark.name for mark in item.iter_markers()}
    module = item.getparent(pytest.Module)
    if "path" in marks and module and any(mark.name == "slow" for mark in module.own_markers):
        raise pytest.UsageError(f"{item.nodeid} is a path, but its file is slow")
    if marks & LATER_MARKS["all"]:
        return "nightly"
    if marks & LATER_MARKS["default"]:
        return "all"
    is_costly = "acceptance" in marks or runs_on_a_database(item)
    return "all" if is_costly and "path" not in marks else "default"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose tests all belong to later tiers, as its marks say."""
    if collection_path.suffix != ".py" or str(collection_path) in named_files(config):
        return None
    text = collection_path.read_text("utf-8")
    found = _MARKS_OF_FILE.search(text)
    marks = set(re.findall(r"mark\.(\w+)", found[0])) if found else set()
    if chosen_tier(config) == "default" and "acceptance" in marks and "mark.path" not in text:
        return True
    return True if marks & LATER_MARKS[chosen_tier(config)] else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no cases of a test that is left out, unless the command names its file."""
    if not name.startswith("test") or str(collector.path) in named_files(collector.config):
        return None
    marks = {mark.name for mark in getattr(obj, "pytestmark", ())}
    return [] if marks & LATER_MARKS[chosen_tier(collector.config)] else None


@pytest.hookimpl(tryfirst=True)  # before other parameters, so that the engine comes first in the id
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test of stores run on each engine in turn, unless the test chooses its engines."""
    marks = list(metafunc.definition.iter_markers())
    chosen = {mark.args[0] for mark in marks if mark.name == "parametrize"}
    is_on_files = (
        chosen_tier(metafunc.config) == "default"
        and all(mark.name != "path" for mark in marks)
        and str(metafunc.definition.path) not in named_files(metafunc.config)
    )
    for name in _FIXTURES_OF_ENGINES.intersection(metafunc.fixturenames) - chosen:
        metafunc.parametrize(name, ENGINES[: 1 if is_on_files else None], indirect=True)


def named_files(config: pytest.Config) -> set[str]:
    """Return the files that the command names, so that pytest can say that it leaves them out."""
    return {str(config.invocation_params.dir / word.split("::")[0]) for word in config.args}


@pytest.hookimpl(tryfirst=True)  # `-m` and `-k` then count what is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of later tiers than the chosen one."""
    leave_cases_to_nightly(items)
    last = TIERS.index(chosen_tier(config))
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        tier = tier_of(item)
        if tier == "all":
            item.add_marker("slow")  # `-m slow` selects what `--all` adds
        chosen[TIERS.index(tier) <= last].append(item)
    config.hook.pytest_deselected(items=chosen[False])
    items[:] = chosen[True]


def leave_cases_to_nightly(items: list[pytest.Item]) -> None:
    """Mark the cases of a test with ``cases`` that only ``--nightly`` runs."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("cases"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same_test in cases.values():
        mark = same_test[0].get_closest_marker("cases")
        assert mark is not None
        step = max(1, len(same_test) // mark.args[0])
        for number, item in enumerate(same_test):
            if number % step or number >= step * mark.args[0]:
                item.add_marker("nightly")


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the tests that ``--all`` adds fork their daemons; other tests start them as users do.

    A test that measures time measures what users start.
    """
    is_added = chosen_tier(item.config) == "all" and tier_of(item) == "all"
    start_by_forks(by_forks=is_added and item.get_closest_marker("timing") is None)


def runs_on_a_database(item: pytest.Item) -> bool:
    """Return whether a test takes its stores from PostgreSQL."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "postgres" in parameters.values() or "postgres" in getattr(item, "fixturenames", ())
