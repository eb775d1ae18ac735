"""The contract suites name no engine and no file, so another engine runs them as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repository import TESTS

pytestmark = pytest.mark.unit

SUITES = sorted(
    suite
    for suite in TESTS.rglob("test_*_contract.py")
    if "tests.support.providers" in suite.read_text()
)
OF_AN_ENGINE = re.compile(r"sqlite|postgres|psycopg|\.db\b|\.path\b|PRAGMA", re.IGNORECASE)


def name_of(suite: Path) -> str:
    return str(suite.relative_to(TESTS))


def test_every_suite_of_a_store_or_an_engine_takes_it_from_the_providers() -> None:
    assert [name_of(suite) for suite in SUITES] == [
        "consolidation/test_ledger_contract.py",
        "storage/episodes/test_episode_log_contract.py",
        "storage/episodes/test_memory_store_contract.py",
        "storage/facts/test_fact_store_contract.py",
        "storage/test_engine_contract.py",
        "storage/test_episode_engine_contract.py",
        "storage/test_fact_engine_contract.py",
        "storage/test_session_contract.py",
        "workers/provenance/test_promotions_contract.py",
    ]


@pytest.mark.parametrize("suite", SUITES, ids=name_of)
def test_suite_names_no_engine_and_no_file(suite: Path) -> None:
    lines = suite.read_text().splitlines()

    assert [line for line in lines if OF_AN_ENGINE.search(line)] == []
