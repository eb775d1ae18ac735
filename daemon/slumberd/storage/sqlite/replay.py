"""Replay a ledger into a new file: compute facts and keys again, copy all other tables."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from slumberd.consolidation.precedence import EXTERNAL
from slumberd.file_modes import create_file
from slumberd.model.errors import OutputExistsError
from slumberd.model.record import Break, ErasedRows
from slumberd.sql_statements import statements
from slumberd.storage.audit.partition import (
    ROWS,
    DependentPartsError,
    Part,
    Partition,
    read_as_one_part,
)
from slumberd.storage.audit.recompute import Findings, Recomputation, ResolvedPart
from slumberd.storage.audit.results import Replay
from slumberd.storage.audit.verify import first_break, foreign_break
from slumberd.storage.engine import Session
from slumberd.storage.ledger.external_changes import UNREADABLE, printable_id
from slumberd.storage.sqlite import ledger_schema as schema
from slumberd.storage.sqlite.connection import connect, traceless
from slumberd.storage.sqlite.session import (
    Pragmas,
    SQLiteSession,
    decode_texts_with,
    escaped,
    insert,
    interrupting_when,
    own_writes,
    transaction,
    translate_errors,
)

_SQL = statements("replay")
_ERASED_SCOPES = statements("erased_scopes")
_SCHEMA = statements("ledger_schema")
_PRAGMAS = Pragmas(cache_mebibytes=64)

_Divide = Callable[[Session], Iterable[Part]]
"""Divides a ledger into the parts that replay resolves one by one."""

COPIES = tuple(sql for name, sql in _SQL.items() if name.startswith("copy_"))
"""Statements that copy the ledger, and the tables that replay does not compute."""

FORGETTING = (
    _ERASED_SCOPES["create_erasure_key"],
    _ERASED_SCOPES["create_erased_scopes"],
    *(sql for name, sql in _SQL.items() if name.startswith("keep_")),
)
"""Statements that copy the tables of erased scopes, for a database that has them."""


def rebuild(
    live: Path,
    path: Path,
    depth: int,
    key: bytes | None,
    *,
    part_rows: int = ROWS,
    cancelled: Callable[[], bool] | None = None,
) -> Replay:
    """Build a new database of facts from the ledger of another one, and compare the two.

    Replay removes the new file again when the chain of the ledger is broken.

    Args:
        live: The database to replay; it may be in use.
        path: The new database.
        depth: Links of lineage.
        key: The key of the ledger's chain.
        part_rows: Resolve about so many rows at a time.
        cancelled: Called often; True ends the replay, and removes the file.

    Raises:
        OutputExistsError: The new file exists already.
        LedgerKeyError: The key is not the key of the ledger.
        StoppedError: `cancelled` returned True.
    """
    try:
        os.close(create_file(path))
    except FileExistsError as error:
        raise OutputExistsError(str(path)) from error
    try:
        write = partial(_write_file, path, depth, key, cancelled)
        replay = traceless(live, partial(_rebuild, live, write, part_rows))
    except BaseException:
        path.unlink()
        raise
    if replay.broken:
        path.unlink()
    return replay


def _rebuild(
    live: Path, write: Callable[[str, _Divide], Replay], part_rows: int, how: str
) -> Replay:
    uri = f"{live.absolute().as_uri()}?{how}"
    with translate_errors(live, _PRAGMAS):
        # Not in `except`: the frames of an error hold cursors, and these keep the file locked.
        with suppress(DependentPartsError):
            return write(uri, partial(Partition, rows=part_rows))
        return write(uri, read_as_one_part)


def _write_file(
    path: Path,
    depth: int,
    key: bytes | None,
    cancelled: Callable[[], bool] | None,
    uri: str,
    divide: _Divide,
) -> Replay:
    os.truncate(path, 0)
    with (
        closing(connect(path, _PRAGMAS, access="write", key=key)) as connection,
        closing(SQLiteSession(connection, str(path))) as session,
        interrupting_when(connection, cancelled),
    ):
        return _fill(connection, session, uri, depth, divide)


def _fill(
    connection: sqlite3.Connection, session: SQLiteSession, uri: str, depth: int, divide: _Divide
) -> Replay:
    schema.create(connection, session)
    # The file is new, so it need not survive a crash.
    connection.execute(_SQL["in_memory_journal"])
    connection.execute(_SQL["no_sync"])
    connection.execute(_SQL["attach"], (uri,))
    with transaction(connection):
        _copy(connection)
        _, _, broken, erased = first_break(session)
        if broken is None:
            replay = _with_foreign(_replay(connection, session, depth, divide), erased)
        else:
            replay = Replay(0, 0, 0, 0, 1, 0, broken)
    session.close()
    connection.execute(_SQL["detach"])
    connection.execute(_SQL["wal_journal"])
    return replay


def _with_foreign(replay: Replay, erased: ErasedRows) -> Replay:
    """Return a replay whose differences include blank rows that no erasure names."""
    broken = foreign_break(erased) or erased.broken
    if broken is None:
        return replay
    differing = replay.differing + max(erased.foreign_rows, 1)
    return replay._replace(differing=differing, first=broken)


def _copy(connection: sqlite3.Connection) -> None:
    with indexed_after(connection, "ledger_key", "ledger_fact"):
        for copy in COPIES:
            connection.execute(copy)
    if connection.execute(_SQL["live_has_erased_scopes"]).fetchone():
        for keep in FORGETTING:
            connection.execute(keep)


def _replay(
    connection: sqlite3.Connection, session: Session, depth: int, divide: _Divide
) -> Replay:
    rows = _count(connection, "rows")
    erased, firings = _count(connection, "erased"), _count(connection, "firings")
    recomputation = Recomputation(session, depth)
    resolved = map(recomputation.resolve, divide(session))
    findings = _write_resolved(connection, resolved, rows=rows)
    if findings.rows != rows - erased - firings:
        raise DependentPartsError
    findings = recomputation.check_order(findings)
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


def _write_resolved(
    connection: sqlite3.Connection,
    resolved: Iterable[tuple[ResolvedPart, Findings]],
    *,
    rows: int,
) -> Findings:
    """Write the facts and keys of all parts, of about so many rows; return all findings."""
    total = Findings()
    with (
        own_writes(connection, rows=rows),
        indexed_after(connection, "facts_owner", "facts_subject_predicate", "facts_object"),
    ):
        for (facts, heads), findings in resolved:
            try:
                insert(connection, _SQL["add_fact"], facts)
                insert(connection, _SQL["add_state"], heads)
            except sqlite3.IntegrityError as error:  # two parts made the same fact or key
                raise DependentPartsError from error
            total |= findings
    return total


def _changed_facts(connection: sqlite3.Connection) -> list[object]:
    """Return the ids of stored facts that differ from the replayed facts.

    Two kinds are left out: facts that another program changed and the ledger does not record yet,
    and facts that the ledger records as unreadable.
    """
    parameters = {"rule": EXTERNAL, "reason": UNREADABLE}
    with decode_texts_with(connection, escaped):
        others = {
            printable_id(row[0])
            for row in connection.execute(_SQL["facts_of_other_programs"], parameters)
        }
        found = connection.execute(_SQL["changed_facts"]).fetchall()
        surplus = sum(is_surplus for _, is_surplus in found)
        if _count(connection, "live_facts") - surplus < _count(connection, "facts"):
            found += connection.execute(_SQL["lost_facts"]).fetchall()
    return sorted({row[0] for row in found if printable_id(row[0]) not in others}, key=printable_id)


def _changed_keys(connection: sqlite3.Connection) -> list[object]:
    """Return the numbers of the keys whose stored winners differ from the replayed ones."""
    found = connection.execute(_SQL["changed_keys"]).fetchall()
    # Every replayed winner is stored, so surplus ones exist only if more are stored.
    if found or _count(connection, "winners") < _count(connection, "live_winners"):
        found += connection.execute(_SQL["surplus_keys"]).fetchall()
    return sorted({key_id for (key_id,) in found})


@contextmanager
def indexed_after(connection: sqlite3.Connection, *indexes: str) -> Iterator[None]:
    """Drop some indexes while the block writes, and create them afterwards."""
    for index in indexes:
        connection.execute(_SQL[f"drop_{index}"])
    yield
    for index in indexes:
        connection.execute(_SCHEMA[index])
