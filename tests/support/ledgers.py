"""Fixtures of ledgers that several test modules read; no test writes to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.stories import tell_everything, tell_much


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("everything") / "facts.db"
    asyncio.run(tell_everything(path))
    return path


@pytest.fixture(scope="session")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("much") / "facts.db"
    asyncio.run(tell_much(path, 600))
    return path
