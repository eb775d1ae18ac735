"""`slumberd copy` moves a state directory into a database and back, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runner import called
from tests.support.daemons import Home
from tests.support.moved_stores import full_home, rows_of_files, schema_of

pytestmark = pytest.mark.integration


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return full_home(tmp_path / "home")


def copy(source: object, target: object, *words: str) -> list[str]:
    """Copy, and return what was printed."""
    done = called("copy", "--from", str(source), "--to", str(target), *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_copy_back_has_every_row_of_every_table(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    copy(home.state, postgres_address)
    copy(postgres_address, tmp_path / "back")

    wanted, found = rows_of_files(home.state), rows_of_files(tmp_path / "back")
    assert found == wanted
    assert schema_of(tmp_path / "back") == schema_of(home.state)
