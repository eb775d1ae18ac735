"""At how many pages SQLite checkpoints the log of a file of facts, in a backlog and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.storage.engine import Session
from slumberd.storage.sqlite.engine import CheckpointPolicy, SQLiteFactEngine
from slumberd.storage.sqlite.session import Pragmas
from tests.support.sessions import connection_of

pytestmark = pytest.mark.integration


def checkpoint_pages(session: Session) -> int:
    pages: int = connection_of(session).execute("PRAGMA wal_autocheckpoint").fetchone()[0]
    return pages


async def test_engine_of_facts_checkpoints_as_its_policy_says(tmp_path: Path) -> None:
    policy = CheckpointPolicy(backlog_pages=70, usual_pages=30)
    engine = SQLiteFactEngine(tmp_path / "facts.db", Pragmas(), checkpoints=policy)
    await engine.bootstrap()

    during = await engine.write(checkpoint_pages, bulk=True)
    await engine.finish_backlog()
    after = await engine.write(checkpoint_pages)
    await engine.close()

    assert (during, after) == (70, 30)
