"""Some tests run by default, and others only with ``--all``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LEFT_OUT

pytestmark = pytest.mark.unit

MARKED = """
import pytest

from tests.support.sample_sizes import amount

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.timing
def test_timing(): pass

def test_quick(): pass

@pytest.mark.files_first
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_of(engine): pass

@pytest.mark.parametrize("number", range(amount(1, full=3)))
def test_sampled(number): pass
"""


def collect(folder: Path, *options: str) -> list[str]:
    """Return the names of the tests that pytest would run of `MARKED`."""
    root = Path(__file__).parents[1]
    file = folder / "test_marked.py"
    file.write_text(MARKED)
    plugins = ("-p", "tests.conftest", "-c", str(root / "pyproject.toml"), "--noconftest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *plugins, *options, str(file)],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]


def test_default_run_leaves_out_slow_and_timing_tests(tmp_path: Path) -> None:
    assert collect(tmp_path) == ["test_quick", "test_of[sqlite]", "test_sampled[0]"]


def test_option_all_runs_every_test_with_full_samples(tmp_path: Path) -> None:
    sampled = [f"test_sampled[{n}]" for n in range(3)]
    first = ["test_slow", "test_timing", "test_quick", "test_of[sqlite]", "test_of[postgres]"]

    assert collect(tmp_path, "--all") == [*first, *sampled]


def test_this_run_has_no_slow_or_timing_test_without_the_option_all(
    request: pytest.FixtureRequest,
) -> None:
    marked = [
        item.nodeid for item in request.session.items if any(map(item.get_closest_marker, LEFT_OUT))
    ]

    assert request.config.getoption("--all") or marked == []
