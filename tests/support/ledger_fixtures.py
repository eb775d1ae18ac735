"""Fixtures of ledgers that several test modules read; no test writes to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.example_ledgers import write_large_ledger, write_ledger_of_every_kind


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("everything") / "facts.db"
    asyncio.run(write_ledger_of_every_kind(path))
    return path


@pytest.fixture(scope="session")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("much") / "facts.db"
    asyncio.run(write_large_ledger(path, 600))
    return path
