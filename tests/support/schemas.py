"""The tables, indexes and triggers of new databases, as SQLite keeps their statements.

A test compares them with the files in `tests/storage/sqlite/schemas`. A file that a version of
slumberd has written stays as it is, so a change of these needs a migration. To write the files
again, and see what changed:

    python -m tests.support.schemas && git diff tests/storage/sqlite/schemas
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd import SQLiteFactStore, SQLiteMemoryStore
from tests.support.repository import TESTS

FOLDER = TESTS / "storage" / "sqlite" / "schemas"
NAMES = ("facts", "memory")


async def schemas(directory: Path) -> dict[str, list[str]]:
    """Create both databases in a directory; return the lines of each one's schema."""
    async with SQLiteFactStore(directory / "facts.db") as facts:
        await facts.bootstrap()
    async with SQLiteMemoryStore(directory / "memory.db") as memory:
        await memory.bootstrap()
    return {name: _schema_of(directory / f"{name}.db") for name in NAMES}


def _schema_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"
        )
        return "\n\n".join(f"{sql};" for (sql,) in found).splitlines()


def main() -> None:
    """Write the files again."""
    with TemporaryDirectory() as directory:
        found = asyncio.run(schemas(Path(directory)))
    for name, lines in found.items():
        (FOLDER / f"{name}.sql").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
