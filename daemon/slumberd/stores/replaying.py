"""Replay a ledger into a new file: facts and keys by the law, everything else as it was written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from slumberd.core.law import EXTERNAL
from slumberd.core.record import Break
from slumberd.errors import OutputExistsError
from slumberd.stores import schema
from slumberd.stores.elsewhere import Helper, helping
from slumberd.stores.foreign import UNREADABLE, shown
from slumberd.stores.ours import by_us
from slumberd.stores.parting import EVERY_KEY, Parts, in_one
from slumberd.stores.queries import statements
from slumberd.stores.resettling import Findings, Resettling, Settled
from slumberd.stores.sqlite import (
    FILE_MODE,
    Pragmas,
    connect,
    escaped,
    texts_as,
    transaction,
    translated,
)
from slumberd.stores.traceless import UNCHANGING, traceless
from slumberd.stores.verifying import first_break

_SQL = statements("replay")
_FORGOTTEN = statements("forgetting")
_SCHEMA = statements("ledger_schema")
_PRAGMAS = Pragmas(cache_mebibytes=64)

_HERE = 4
"""One key in so many is settled by whoever also writes: both end together."""

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
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
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
    os.truncate(path, 0)
    with (
        closing(connect(path, _PRAGMAS, access="write", key=key)) as connection,
        translated(live, _PRAGMAS),
    ):
        return _rebuild(connection, live, how, depth)


def _rebuild(connection: sqlite3.Connection, live: Path, how: str, depth: int) -> Replay:
    schema.create(connection)
    # The file is new: what a crash leaves of it is for nobody.
    connection.execute(_SQL["in_memory_journal"])
    connection.execute(_SQL["no_sync"])
    connection.execute(_SQL["attach"], (f"{live.absolute().as_uri()}?{how}",))
    rows = _count(connection, "live_rows")
    with (
        helping(
            "settle", live, depth, rows=rows, above=rows // _HERE, unchanging=how == UNCHANGING
        ) as helper,
        transaction(connection),
    ):
        with _indexed_after(connection, "ledger_key", "ledger_fact"):
            for copy in COPIES:
                connection.execute(copy)
        if connection.execute(_SQL["live_has_forgotten"]).fetchone():
            for keep in FORGETTING:
                connection.execute(keep)
        if connection.execute(_SQL["live_has_successes"]).fetchone():
            connection.execute(_SQL["successes"])
        replay = _replay(connection, depth, helper)
    connection.execute(_SQL["detach"])
    connection.execute(_SQL["wal_journal"])
    return replay


def _replay(connection: sqlite3.Connection, depth: int, helper: Helper | None) -> Replay:
    rows, _, broken = first_break(connection)
    if broken is not None:
        return Replay(0, 0, 0, 0, 1, 0, broken)
    erased = _count(connection, "erased")
    findings = _settled(connection, depth, helper, rows - erased - _count(connection, "firings"))
    differing, first = findings.differing, findings.first
    for changed, words in (
        (_changed_facts(connection), "fact {!r}"),
        (connection.execute(_SQL["changed_keys"]).fetchall(), "the key of row {}"),
    ):
        differing += len(changed)
        if changed and first is None:
            first = Break(0, f"{words.format(changed[0][0])} is not what the ledger says")
    firings, facts = _count(connection, "firings"), _count(connection, "facts")
    return Replay(rows, firings, facts, erased, differing, findings.unclear, first)


def _count(connection: sqlite3.Connection, what: str) -> int:
    count: int = connection.execute(_SQL[f"count_{what}"]).fetchone()[0] or 0
    return count


def _settled(
    connection: sqlite3.Connection, depth: int, helper: Helper | None, rows: int
) -> Findings:
    """Settle so many rows again, and write what stands by them; return how they differ."""
    resettling = Resettling(connection, depth)
    with (
        by_us(connection, rows=rows),
        _indexed_after(connection, "facts_user", "facts_subject_predicate", "facts_object"),
    ):
        try:
            findings = _written(connection, _apart(connection, resettling, helper))
        except sqlite3.IntegrityError:  # a key, or a fact, came out of two parts
            findings = Findings()
        if findings.rows != rows:
            # So keys have several numbers, which the law does not go by.
            connection.execute(_SQL["drop_every_fact"])
            connection.execute(_SQL["drop_every_key"])
            whole = resettling.settle(in_one(connection))
            findings = _written(connection, [whole])
    return resettling.in_order(findings)


def _apart(
    connection: sqlite3.Connection, resettling: Resettling, helper: Helper | None
) -> Iterator[tuple[Settled, Findings]]:
    parts = Parts(connection)
    first, last = EVERY_KEY
    middle = last if helper is None else helper.above
    mine = chain(parts.of_keys(first, middle), parts.of_several_keys(), parts.of_no_key())
    yield from map(resettling.settle, mine)
    if helper is not None:
        yield from helper.settled() or map(resettling.settle, parts.of_keys(middle, last))


def _written(
    connection: sqlite3.Connection, settled: Iterable[tuple[Settled, Findings]]
) -> Findings:
    every = Findings()
    for (facts, heads), findings in settled:
        connection.executemany(_SQL["add_fact"], facts)
        connection.executemany(_SQL["add_head"], heads)
        every |= findings
    return every


def _changed_facts(connection: sqlite3.Connection) -> list[tuple[object]]:
    """Return the ids of facts that are not what the ledger says, and that nobody else accounts for.

    What another program changed and is not recorded yet is left out, and so is what is in the
    ledger as unreadable, and was left as it is.
    """
    asked = {"rule": EXTERNAL, "reason": UNREADABLE}
    with texts_as(connection, escaped):
        others = {shown(row[0]) for row in connection.execute(_SQL["others_facts"], asked)}
        found = connection.execute(_SQL["changed_facts"]).fetchall()
    return [row for row in found if shown(row[0]) not in others]


@contextmanager
def _indexed_after(connection: sqlite3.Connection, *indexes: str) -> Iterator[None]:
    """Let the block write without some indexes, and make them then, whole and in order."""
    for index in indexes:
        connection.execute(_SQL[f"drop_{index}"])
    yield
    for index in indexes:
        connection.execute(_SCHEMA[index])
