"""What tests of broken disks and stale daemons share: what is broken, and what is looked for."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from slumberd.core.episode import Episode
from tests.builders import at, triple
from tests.daemons import Home


@dataclass
class Variant(Home):
    """A home whose daemon runs with a fault, which a script plants before slumberd begins.

    Attributes:
        fault: Python that plants it.
    """

    fault: str = ""

    def command(self, *words: str | Path) -> list[str]:
        begin = "import sys\nfrom slumberd.cli import main\nmain(sys.argv[1:])\n"
        return [str(self.python), "-c", f"{self.fault}\n{begin}", *self.words(words)]


def episodes(first: int, count: int) -> list[Episode]:
    """Return episodes that each say a triple of their own: ``e3`` says that ``s3 is 3``."""
    return [triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(first, first + count)]


def put(home: Home, told: Sequence[Episode]) -> None:
    """Put episodes as another program does, in this process."""
    file = home.folder / "put.jsonl"
    file.write_text("".join(one.model_dump_json() + "\n" for one in told))
    home.call("import", file)


def content_of(path: Path) -> list[str]:
    """Return all that a database says, row by row, wherever it is written."""
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.iterdump()]


def met_more_than_once(path: Path) -> list[tuple[str, int]]:
    """Return the versions of episodes that more than one row of the ledger says were met."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT fact_id, version FROM slumberd_ledger WHERE what <> 0"
        ).fetchall()
    return [met for met, times in Counter(rows).items() if times > 1]


def check_consolidated_once(home: Home, ids: Sequence[str]) -> None:
    """Make sure that every episode is a fact, by one row of a ledger that verifies."""
    assert sorted(fact["id"] for fact in home.facts()) == sorted(ids)
    assert met_more_than_once(home.state / "facts.db") == []
    home.call("audit", "verify")


def backup(source: Path, target: Path) -> None:
    """Copy a database that may be in use; into one that is there, as `.restore` does."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
