"""Each guarantee of the README is tested by default, and the page says which tiers test it."""

from __future__ import annotations

import pytest

from tests.support.guarantees import (
    PAGE,
    current,
    guarantees,
    tiers_of_files,
    tiers_of_guarantees,
)

pytestmark = pytest.mark.integration

ROWS = """\
| guarantee | tests |
|---|---|
| Tested by default. | `tests/a.py`, `tests/b.py`: at random |
| Tested later. | `tests/b.py`, `python -m tests.soak 120` |
"""


@pytest.fixture(scope="module")
def tiers() -> dict[str, set[str]]:
    return tiers_of_files()


@pytest.mark.slow
def test_table_of_tiers_is_current(tiers: dict[str, set[str]]) -> None:
    page = PAGE.read_text("utf-8")

    assert current(page, tiers) == page, "run `python -m tests.support.guarantees`"


@pytest.mark.slow
def test_every_guarantee_is_tested_by_default(tiers: dict[str, set[str]]) -> None:
    found = tiers_of_guarantees(PAGE.read_text("utf-8"), tiers)

    assert not [guarantee for guarantee, its in found.items() if "default" not in its]


def test_every_row_of_the_page_is_a_guarantee_with_a_file_of_tests() -> None:
    page = PAGE.read_text("utf-8")
    tables = page.partition("<!-- end of tiers -->")[2]
    rows = [line for line in tables.splitlines() if line.startswith("|")]

    found = guarantees(page)

    heads = sum(line.startswith(("| guarantee", "|---")) for line in rows)
    assert len(found) == len(rows) - heads
    assert not [guarantee for guarantee, (files, _) in found.items() if not files]


def test_tiers_of_a_guarantee_are_those_of_its_files_and_programs() -> None:
    found = tiers_of_guarantees(ROWS, {"tests/a.py": {"default"}, "tests/b.py": {"all"}})

    assert found == {"Tested by default.": {"default", "all"}, "Tested later.": {"all", "nightly"}}
