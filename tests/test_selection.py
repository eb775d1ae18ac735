"""The options choose a tier of the tests: the default tests, those of CI, or all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.repository import ROOT
from tests.support.selection import tier_of

pytestmark = pytest.mark.unit

MARKED = """
import pytest

from tests.support.sample_sizes import amount

@pytest.mark.nightly
def test_nightly(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.timing
def test_timing(): pass

@pytest.mark.acceptance
def test_command(): pass

@pytest.mark.slow
@pytest.mark.cases(2)
@pytest.mark.parametrize("number", range(5))
def test_case(number): pass

def test_quick(): pass

@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_of(engine): pass

@pytest.mark.path
@pytest.mark.parametrize("engine", ["postgres"])
def test_path(engine): pass

@pytest.mark.parametrize("number", range(amount(3, full=5)))
def test_sampled(number): pass
"""
DEFAULT = ["test_quick", "test_of[sqlite]", "test_path[postgres]", "test_sampled[0]"]
ALL = [
    *("test_slow", "test_timing", "test_command", "test_case[0]", "test_case[2]", "test_quick"),
    *("test_of[sqlite]", "test_of[postgres]", "test_path[postgres]"),
    *("test_sampled[0]", "test_sampled[1]", "test_sampled[2]"),
]
NIGHTLY = [
    *("test_nightly", "test_slow", "test_timing", "test_command"),
    *(f"test_case[{number}]" for number in range(5)),
    *("test_quick", "test_of[sqlite]", "test_of[postgres]", "test_path[postgres]"),
    *(f"test_sampled[{number}]" for number in range(5)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([], DEFAULT, id="default"),
        pytest.param(["--all"], ALL, id="all"),
        pytest.param(["--nightly"], NIGHTLY, id="nightly"),
        pytest.param(
            ["--all", "-m", "slow"],
            [
                *("test_slow", "test_timing", "test_command"),
                *("test_case[0]", "test_case[2]", "test_of[postgres]"),
            ],
            id="what all adds",
        ),
    ],
)
def test_option_chooses_the_tests_and_their_samples(
    tmp_path: Path, options: list[str], expected: list[str]
) -> None:
    root = ROOT
    file = tmp_path / "test_marked.py"
    file.write_text(MARKED)
    plugins = ("-p", "tests.support.selection", "-c", str(root / "pyproject.toml"), "--noconftest")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *plugins, *options, str(file)],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line] == expected


def test_run_without_an_option_has_no_test_of_a_later_tier(request: pytest.FixtureRequest) -> None:
    later = [item.nodeid for item in request.session.items if tier_of(item) != "default"]

    assert request.config.getoption("--all") or request.config.getoption("--nightly") or not later


def tried_numbers(tier: str) -> list[int]:
    numbers = []

    @settings(settings.get_profile(f"slumberd-{tier}"), database=None)
    @given(st.integers())
    def attempt(number: int) -> None:
        numbers.append(number)

    attempt()
    return numbers


@pytest.mark.parametrize(("tier", "are_same"), [("default", True), ("all", False)])
def test_only_default_tests_try_the_same_examples_in_each_run(tier: str, *, are_same: bool) -> None:
    assert (tried_numbers(tier) == tried_numbers(tier)) == are_same
