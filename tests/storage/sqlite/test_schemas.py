"""New databases have the recorded tables, indexes and triggers, to the letter."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support.schemas import FOLDER, NAMES, schemas

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", NAMES)
async def test_new_database_has_the_recorded_schema(tmp_path: Path, name: str) -> None:
    recorded = (FOLDER / f"{name}.sql").read_text().splitlines()

    found = (await schemas(tmp_path))[name]

    changes = list(unified_diff(recorded, found, "recorded", "created", lineterm="", n=3))
    assert not changes, "\n".join(changes)
