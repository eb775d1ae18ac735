"""Commands that read a damaged store name the damage; none of them calls it a bug."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.installation import Installation
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

COMMANDS = (
    ("doctor",), ("status",), ("status", "--check"), ("rules",), ("next",), ("facts",),
    ("audit", "verify"), ("audit", "ls"), ("why", "e1"), ("why-not", "e1"),
    ("quarantine", "ls"), ("recent", "--user", "ann"), ("report",), ("export", "-"),
    ("audit", "export", "-"), ("fire", "--all", "--dry-run"),
)  # fmt: skip
BUG = 70

VALUES = (
    2**63 - 1, -(2**63), 2**62, -1, 0, 7.5, "", "x", "nan", "\0", "@", "[", "null", "{}", "[1]",
    '{"a": 1}', "9999-12-31T23:59:59.999999+00:00", "-5", b"", b"x", b"null", b"{}", b"[]", b"7",
    b'"x"', b"\xff\xfe", b"[[[[", None,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with rows in the tables of slumberd, with its configuration."""
    folder = tmp_path_factory.mktemp("whole")
    site = Installation(folder)
    site.put(
        triple("e1", "ann", "drinks", "tea", user="ann"),
        triple("e2", "ann", "drinks", "milk", user="ann", timestamp=at(1)),
        triple("e3", "bob", "likes", "cake", user="bob", timestamp=at(2)),
        triple("odd", "ann", "drinks", "ink", user="ann", metadata={"intent": "shout"}),
        triple("z1", "zed", "is", "here", user="zed"),
    )
    for command in (
        ("fire", "--all"),
        ("unpin", "e3", "--reason", "r"),
        ("forget", "--user", "zed", "--yes"),
    ):
        assert site.call(*command).returncode == 0
    return folder


def cells(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the file, table and column of each cell that can be damaged."""
    for name in ("facts.db", "memory.db"):
        with closing(sqlite3.connect(folder / "state" / name)) as file:
            tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in sorted(tables):
                if file.execute(f'SELECT 1 FROM "{table}"').fetchone():
                    columns = file.execute("SELECT name FROM pragma_table_info(?)", [table])
                    yield from ((name, table, column) for (column,) in columns.fetchall())


def damage(folder: Path, cell: tuple[str, str, str], value: object) -> bool:
    """Write a value into each row of a column; return whether the table accepts it."""
    name, table, column = cell
    with closing(sqlite3.connect(folder / "state" / name)) as file, file:
        try:
            file.execute("PRAGMA ignore_check_constraints = ON")
            return bool(file.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', [value]))
        except sqlite3.Error:
            return False


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(amount(2, full=40)))
def test_no_command_calls_a_damaged_value_a_bug(whole: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    every = [*cells(whole)]
    for number in range(6):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        cell, value = chance.choice(every), chance.choice(VALUES)
        if not damage(folder, cell, value):
            continue
        for command in chance.sample(COMMANDS, 4):
            done = called(*command, "--config", str(folder / "slumberd.yaml"))
            assert done.returncode != BUG, (cell, value, command, done.stderr)


def test_doctor_names_a_served_instant_that_no_clock_shows(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    assert damage(folder, ("facts.db", "slumberd_watermark", "served"), 2**63 - 1)

    done = called("doctor", "--config", str(folder / "slumberd.yaml"))

    assert done.returncode == 1
    assert "table watermark, row 'profile': served is 9223372036854775807" in done.stdout
    for command in ("status", "rules"):
        assert called(command, "--config", str(folder / "slumberd.yaml")).returncode == 74


def test_an_intact_store_does_not_explain_an_error(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("in the code")

    monkeypatch.setattr("slumberd.cli.commands.rules.print_table", fail)
    done = called("rules", "--config", str(whole / "slumberd.yaml"))

    assert done.returncode == BUG
    assert "this is a bug" in done.stderr
