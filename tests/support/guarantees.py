"""Say which tier of the tests proves which guarantee: ``python -m tests.support.guarantees``.

The command writes the table of ``docs/project/guarantees.md``. It reads the guarantees and their
files of tests from the other tables of the page, and asks pytest for the tier of each test.

As a plugin of pytest, this module writes the tiers of all collected tests to the file ``OUTPUT``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.repository import ROOT

PAGE = ROOT / "docs/project/guarantees.md"
FIGURES = ROOT / "docs/project/testing.md"
OUTPUT = "SLUMBERD_TEST_TIERS"
"""The variable with the file for the plugin."""

TIERS = ("default", "all", "nightly")
PLUGIN = "tests.support.guarantees"  # when this module runs as a command, its name is another
_TABLE = re.compile(r"(<!-- tiers -->\n).*?(<!-- end of tiers -->)", re.DOTALL)
_ROW = re.compile(r"^\| (?P<guarantee>[^|]+) \| (?P<tests>[^|]*`[^|]*) \|$", re.MULTILINE)
_FILES = re.compile(r"`(tests/[\w/{},]+\.py)`")
_PROGRAMS = re.compile(r"python -m tests\.(soak|fuzz|mutation)")
"""Programs that `tests/test_nightly.py` starts."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write the tiers of the collected tests, by file."""
    from tests.support.selection import tier_of  # pytest loads this plugin first

    found: dict[str, set[str]] = {}
    for item in items:
        found.setdefault(item.nodeid.split("::")[0], set()).add(tier_of(item))
    document = {file: sorted(tiers) for file, tiers in found.items()}
    Path(os.environ[OUTPUT]).write_text(json.dumps(document), "utf-8")


def tiers_of_files() -> dict[str, set[str]]:
    """Return the tiers of each file of tests; takes as long as pytest needs to collect them."""
    with TemporaryDirectory() as folder:
        output = Path(folder, "tiers.json")
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "--collect-only", "-qq", "--nightly", "-p", PLUGIN),
            cwd=ROOT, env={**os.environ, OUTPUT: str(output)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
        return {file: set(tiers) for file, tiers in json.loads(output.read_text()).items()}


def guarantees(page: str) -> dict[str, tuple[list[str], bool]]:
    """Return the files of each guarantee of a page, and whether a nightly program tests it, too."""
    rows = _ROW.finditer(_TABLE.sub("", page))
    return {
        row["guarantee"]: (_FILES.findall(row["tests"]), bool(_PROGRAMS.search(row["tests"])))
        for row in rows
    }


def tiers_of_guarantees(page: str, tiers: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the tiers that test each guarantee of a page.

    Raises:
        KeyError: The page names a file without tests.
    """
    return {
        guarantee: {tier for file in files for tier in tiers[file]}
        | ({"nightly"} if long else set())
        for guarantee, (files, long) in guarantees(page).items()
    }


def caught_faults() -> list[str]:
    """Return which share of the planted faults the default tests catch, and ``--all``."""
    figures = FIGURES.read_text("utf-8")
    rows = re.findall(
        r"^\| planted faults that .* catche?s?\b.* \| (\d+ of \d+) .*\|$", figures, re.MULTILINE
    )
    assert len(rows) == 2, f"{FIGURES.name} has not two rows with planted faults"
    return rows


def current(page: str, tiers: dict[str, set[str]]) -> str:
    """Return the page with the table as it should be."""
    found = tiers_of_guarantees(page, tiers)
    lines = [
        f"| {guarantee} | {' | '.join('yes' if tier in its else '' for tier in TIERS)} |"
        for guarantee, its in found.items()
    ]
    head = ["| guarantee | by default | `--all` adds tests | `--nightly` adds tests |"]
    last = (
        f"| Planted faults that the tests catch. | {' | '.join(caught_faults())} | not measured |"
    )
    table = "\n".join([*head, "|---|---|---|---|", *lines, last])
    return _TABLE.sub(lambda part: f"{part[1]}\n{table}\n\n{part[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text("utf-8"), tiers_of_files()), "utf-8")
