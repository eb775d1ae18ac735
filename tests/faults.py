"""What the tests of broken disks and stale daemons look for in the files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def content_of(path: Path) -> list[str]:
    """Return all that a database says, row by row, wherever it is written."""
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.iterdump()]
