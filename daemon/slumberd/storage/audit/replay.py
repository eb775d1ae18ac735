"""Replay a ledger into a new file: facts and keys by the law, everything else as it was written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from slumberd.consolidation.precedence import EXTERNAL
from slumberd.errors import OutputExistsError
from slumberd.file_modes import create_file
from slumberd.model.record import Break
from slumberd.sql_statements import statements
from slumberd.storage.audit.partition import EVERY_KEY, NotApartError, Parts, in_one
from slumberd.storage.audit.recompute import Findings, Resettling, Settled
from slumberd.storage.audit.verify import first_break
from slumberd.storage.audit.worker import Helper, HelperError, Work, helping
from slumberd.storage.ledger import schema
from slumberd.storage.ledger.bulk_write import by_us, insert
from slumberd.storage.ledger.external_changes import UNREADABLE, shown
from slumberd.storage.sqlite.connection import (
    Pragmas,
    connect,
    escaped,
    texts_as,
    transaction,
    translated,
)
from slumberd.storage.sqlite.database import UNCHANGING, traceless

_SQL = statements("replay")
_FORGOTTEN = statements("forgetting")
_SCHEMA = statements("ledger_schema")
_FILE = statements("migrations")["file"]
_PRAGMAS = Pragmas(cache_mebibytes=64)

_HERE = 0.1
"""The share of the keys that whoever writes settles, too: both end together."""

_Way = Literal["helped", "alone", "whole"]
"""How a ledger is settled: apart, by two processes or by one, or as one part."""

COPIES = tuple(sql for name, sql in _SQL.items() if name.startswith("copy_"))
"""What goes with the ledger, as it was written."""

FORGETTING = (
    _FORGOTTEN["create_keys"],
    _FORGOTTEN["create_moments"],
    *(sql for name, sql in _SQL.items() if name.startswith("keep_")),
)
"""What is there when something was forgotten."""


class Replay(NamedTuple):
    """What came of a replay.

    Attributes:
        rows: Rows of the ledger.
        firings: Firings.
        facts: Facts that stand by the law.
        erased: Rows whose content was forgotten.
        differing: Rows whose delta comes out differently, facts that are other ones, keys too.
        unclear: Rows whose delta comes out differently, which what was forgotten may explain.
        first: The first difference.
    """

    rows: int
    firings: int
    facts: int
    erased: int
    differing: int
    unclear: int
    first: Break | None

    @property
    def broken(self) -> bool:
        """Whether the chain is broken, so that nothing was replayed."""
        return self.first is not None and not self.rows


def rebuild(live: Path, path: Path, depth: int, key: bytes | None) -> Replay:
    """Build a new database of facts from the ledger of another one, and compare the two.

    A ledger whose chain is broken is not replayed; then no file is left.

    Args:
        live: The database to replay; it may be in use.
        path: The new one.
        depth: Links of lineage.
        key: Of the ledger.

    Raises:
        OutputExistsError: The new file is there already.
        LedgerKeyError: The key is not the ledger's.
    """
    try:
        os.close(create_file(path))
    except FileExistsError as error:
        raise OutputExistsError(path) from error
    try:
        replay = traceless(live, partial(_rebuilt, live, path, depth, key))
    except BaseException:
        path.unlink()
        raise
    if replay.broken:
        path.unlink()
    return replay


def _rebuilt(live: Path, path: Path, depth: int, key: bytes | None, how: str) -> Replay:
    way: _Way = "helped"
    while True:
        os.truncate(path, 0)
        try:
            with (
                translated(live, _PRAGMAS),
                closing(connect(path, _PRAGMAS, access="write", key=key)) as connection,
            ):
                return _rebuild(connection, (live, how), depth, way)
        except HelperError:
            way = "alone"
        except NotApartError:
            if way == "whole":
                raise
            way = "whole"


def _rebuild(
    connection: sqlite3.Connection, live: tuple[Path, str], depth: int, way: _Way
) -> Replay:
    schema.create(connection)
    # The file is new: what a crash leaves of it is for nobody.
    connection.execute(_SQL["in_memory_journal"])
    connection.execute(_SQL["no_sync"])
    path, how = live
    connection.execute(_SQL["attach"], (f"{path.absolute().as_uri()}?{how}",))
    with _helping(connection, live, depth, way) as helper, transaction(connection):
        _copy(connection)
        rows, _, broken = first_break(connection)
        if broken is None:
            replay = _replay(connection, depth, rows, way, helper)
        else:
            replay = Replay(0, 0, 0, 0, 1, 0, broken)
    connection.execute(_SQL["detach"])
    connection.execute(_SQL["wal_journal"])
    return replay


def _helping(
    connection: sqlite3.Connection, live: tuple[Path, str], depth: int, way: _Way
) -> AbstractContextManager[Helper | None]:
    path, how = live
    rows = _count(connection, "live_rows")
    return helping(
        Work("settle", path, depth, int(rows * _HERE)),
        rows=rows,
        unchanging=how == UNCHANGING and way == "helped",
        # What comes of it is of the size of what is written there.
        folder=Path(connection.execute(_FILE).fetchone()[0]).parent,
    )


def _copy(connection: sqlite3.Connection) -> None:
    with _indexed_after(connection, "ledger_key", "ledger_fact"):
        for copy in COPIES:
            connection.execute(copy)
    if connection.execute(_SQL["live_has_forgotten"]).fetchone():
        for keep in FORGETTING:
            connection.execute(keep)
    if connection.execute(_SQL["live_has_successes"]).fetchone():
        connection.execute(_SQL["successes"])


def _replay(
    connection: sqlite3.Connection, depth: int, rows: int, way: _Way, helper: Helper | None
) -> Replay:
    erased, firings = _count(connection, "erased"), _count(connection, "firings")
    resettling = Resettling(connection, depth)
    findings = _written(connection, _settled(connection, resettling, way, helper), rows=rows)
    if findings.rows != rows - erased - firings:
        raise NotApartError
    findings = resettling.in_order(findings)
    differing, first = findings.differing, findings.first
    for changed, words in (
        (_changed_facts(connection), "fact {!r}"),
        (_changed_keys(connection), "the key of row {}"),
    ):
        differing += len(changed)
        if changed and first is None:
            first = Break(0, f"{words.format(changed[0])} is not what the ledger says")
    facts = _count(connection, "facts")
    return Replay(rows, firings, facts, erased, differing, findings.unclear, first)


def _count(connection: sqlite3.Connection, what: str) -> int:
    count: int | None = connection.execute(_SQL[f"count_{what}"]).fetchone()[0]
    return count or 0


def _settled(
    connection: sqlite3.Connection, resettling: Resettling, way: _Way, helper: Helper | None
) -> Iterator[tuple[Settled, Findings]]:
    if way == "whole":
        yield resettling.settle(in_one(connection))
        return
    parts = Parts(connection)
    first, last = EVERY_KEY
    mine = parts.of_keys(first, last if helper is None else helper.above)
    yield from map(resettling.settle, chain(mine, parts.of_several_keys(), parts.of_no_key()))
    if helper is not None:
        yield from helper.settled()


def _written(
    connection: sqlite3.Connection, settled: Iterable[tuple[Settled, Findings]], *, rows: int
) -> Findings:
    """Write what stands by about so many rows; return how they differ."""
    every = Findings()
    with (
        by_us(connection, rows=rows),
        _indexed_after(connection, "facts_owner", "facts_subject_predicate", "facts_object"),
    ):
        for (facts, heads), findings in settled:
            try:
                insert(connection, _SQL["add_fact"], facts)
                insert(connection, _SQL["add_head"], heads)
            except sqlite3.IntegrityError as error:  # one came out of two parts
                raise NotApartError from error
            every |= findings
    return every


def _changed_facts(connection: sqlite3.Connection) -> list[object]:
    """Return the ids of facts that are not what the ledger says, and that nobody else accounts for.

    What another program changed and is not recorded yet is left out, and so is what is in the
    ledger as unreadable, and was left as it is.
    """
    asked = {"rule": EXTERNAL, "reason": UNREADABLE}
    with texts_as(connection, escaped):
        others = {shown(row[0]) for row in connection.execute(_SQL["others_facts"], asked)}
        found = connection.execute(_SQL["changed_facts"]).fetchall()
        surplus = sum(is_surplus for _, is_surplus in found)
        if _count(connection, "live_facts") - surplus < _count(connection, "facts"):
            found += connection.execute(_SQL["lost_facts"]).fetchall()
    return sorted({row[0] for row in found if shown(row[0]) not in others}, key=shown)


def _changed_keys(connection: sqlite3.Connection) -> list[object]:
    """Return the numbers of the keys whose tops are not what the ledger says."""
    found = connection.execute(_SQL["changed_keys"]).fetchall()
    # All tops here are there, so there are more only if they are more.
    if found or _count(connection, "tops") < _count(connection, "live_tops"):
        found += connection.execute(_SQL["surplus_keys"]).fetchall()
    return sorted({key_id for (key_id,) in found})


@contextmanager
def _indexed_after(connection: sqlite3.Connection, *indexes: str) -> Iterator[None]:
    """Let the block write without some indexes, and make them then, whole and in order."""
    for index in indexes:
        connection.execute(_SQL[f"drop_{index}"])
    yield
    for index in indexes:
        connection.execute(_SCHEMA[index])
