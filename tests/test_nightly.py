"""What takes minutes, as one command: soak, fuzzers, planted faults, and other Pythons.

These tests run only with ``--nightly``. Each starts a program that can also run alone for longer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutation.copies import files_of
from tests.support.interpreters import find_python
from tests.support.repository import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly]

SOAK_SECONDS = 120
FUZZ_SECONDS = 60
FAULTS = 40
LEAST_CAUGHT = 0.85
"""Of a sample of `FAULTS`, whose 95 % interval is 20 percent wide."""

FATHOM_TESTS = [
    f"tests/workers/provenance/test_{name}.py"
    for name in ("provenance_sink_contract", "fathom_sink", "publishing")
]


def run(*words: str | Path, folder: Path = ROOT) -> str:
    """Run a program in a folder; fail with what it printed unless it ends with 0."""
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    return done.stdout


def test_soak_breaks_no_promise() -> None:
    printed = run(sys.executable, "-m", "tests.soak", str(SOAK_SECONDS))

    assert "firings" in printed


@pytest.mark.skipif(find_spec("atheris") is None, reason="needs the extra `fuzz`")
@pytest.mark.parametrize("target", ["control", "filter", "http", "mcp", "rows", "rules", "traces"])
def test_fuzzer_has_no_finding(target: str) -> None:
    words = (sys.executable, "-m", "tests.fuzz")
    assert target in run(*words, "--list").split()

    assert "Done" in run(*words, target, "--seconds", str(FUZZ_SECONDS))


def test_tests_catch_planted_faults(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    run(
        *(sys.executable, "-m", "tests.mutation", "--resume", results),
        *("--count", str(FAULTS), "--seed", "35", "--most-seconds", "90"),
    )

    outcomes = [json.loads(line).get("outcome") for line in results.read_text().splitlines()]
    caught, missed = outcomes.count("caught"), outcomes.count("survived")
    assert caught >= LEAST_CAUGHT * (caught + missed), results.read_text()


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_slumberd_runs_on_another_python(tmp_path: Path, version: str) -> None:
    """The engine of Fathom needs Python 3.12, so its tests run here only."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} is here")
    copy, own = tmp_path / "copy", tmp_path / "environment" / "bin"
    for name in files_of(ROOT):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)

    run(python, "-m", "venv", own.parent)
    run(own / "pip", "install", "-q", "--require-hashes", "-r", copy / "requirements/test.txt")
    run(own / "pip", "install", "-q", "--no-deps", copy)
    run(own / "slumberd", "demo", folder=tmp_path)
    printed = run(own / "pytest", "-q", "-n", "0", *FATHOM_TESTS, folder=copy)

    assert "skipped" not in printed, os.linesep.join(printed.splitlines()[-10:])
