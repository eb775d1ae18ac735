"""Carry the files of slumberd 0.1.0 over into the newest schema; each file is a copy already.

The ledger of 0.1.0 has the form of the newest one, but other names: of tables, of rules and of
edits. Rows keep their numbers. Those with another name in them are committed to again, and the
chain is computed anew. A row of a copy names the head that the ledger had.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.consolidation.resolution import Decision
from slumberd.model.errors import SchemaError
from slumberd.model.firing import Firing
from slumberd.model.scope import ERASED_SCOPE
from slumberd.sql_statements import statements
from slumberd.storage.audit.verify import verify
from slumberd.storage.ledger.arrivals import COPIED, COPY, Copied
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.erasure import FORGET
from slumberd.storage.ledger.external_changes import record_changes
from slumberd.storage.ledger.rows import (
    FIRING,
    GENESIS,
    LedgerRow,
    chain_of,
    check_key,
    commitment_of,
    fixed_part,
    seal,
)
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.episode_installation import SCHEMA as EPISODES
from slumberd.storage.sqlite.episode_installation import install
from slumberd.storage.sqlite.file_schema import OLDEST, upgrade
from slumberd.storage.sqlite.ledger_schema import SCHEMA as LEDGER
from slumberd.storage.sqlite.session import (
    Pragmas,
    SQLiteSession,
    insert,
    own_writes,
    transaction,
    translate_errors,
)
from slumberd.storage.strict_json import written

_SQL = statements("carried_over")
_SCHEMAS = statements("migrations")
_LEDGER = statements("ledger")
_ERASED_SCOPES = statements("erased_scopes")
_PRAGMAS = Pragmas()

_MANUAL_OF_0_1_0 = "@hand"
_RULES = {_MANUAL_OF_0_1_0: MANUAL_RULE_ID, "@forget": FORGET}
_REASONS = {"forgotten": ERASED_SCOPE}
_FIRING_IDS = ("undoes", "approves", "rejects")
"""The keys of a firing's document that name other firings."""

_CARRIES = tuple(
    sql for name, sql in _SQL.items() if name.startswith("carry_") and "eras" not in name
)
_ROWS_AT_A_TIME = 1_000
_RELEASE = "0.1.0"


class CarriedOver(NamedTuple):
    """What was carried over from a file of facts.

    Attributes:
        facts: How many current facts.
        rows: How many ledger rows.
        manual_edits: How many firings of people.
        erased_scopes: How many erased scopes.
        head: The chain hash of the new ledger's last row, in hexadecimal.
    """

    facts: int
    rows: int
    manual_edits: int
    erased_scopes: int
    head: str


NOTHING = CarriedOver(0, 0, 0, 0, "")
"""What is carried over of a directory without facts."""


def carry_episodes_over(path: Path, *, source: Path) -> None:
    """Bring a copy of a memory.db of slumberd 0.1.0 to the newest schema.

    Args:
        path: The copy.
        source: What it was copied from, for errors.

    Raises:
        SchemaError: It is no such file.
    """
    with (
        translate_errors(path, _PRAGMAS),
        closing(connect(path, _PRAGMAS, access="write")) as connection,
        transaction(connection),
        _of_0_1_0(source),
    ):
        _rename_tables(connection, of_facts=False)
        _carry_erased_scopes(connection)
        connection.execute(_SCHEMAS["create_schema"])
        oldest = {"component": EPISODES.component, "version": OLDEST}
        connection.execute(_SCHEMAS["set_component_version"], oldest)
        install(connection)


def carry_facts_over(
    path: Path, key: bytes | None, *, source: Path, at: datetime, by: str
) -> CarriedOver:
    """Bring a copy of a facts.db of slumberd 0.1.0 to the newest schema, and verify its ledger.

    Args:
        path: The copy.
        key: The key of its ledger.
        source: What it was copied from, for errors.

    Raises:
        SchemaError: It is no such file, or its ledger is not as 0.1.0 wrote it.
        LedgerKeyError: The key is not the ledger's.
    """
    with (
        translate_errors(path, _PRAGMAS),
        closing(connect(path, _PRAGMAS, access="write", key=key)) as connection,
        closing(SQLiteSession(connection, str(source))) as session,
    ):
        with transaction(connection), _of_0_1_0(source):
            carried = _carry_facts_over(connection, session, at=at, by=by)
        # The dropped tables held what the file keeps elsewhere; their pages are zeros now.
        connection.execute("VACUUM")
    return carried


@contextmanager
def _of_0_1_0(source: Path) -> Iterator[None]:
    """Turn a missing table or column into an error that names the old file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        problem = f"does not have the tables of slumberd 0.1.0: {error}"
        raise SchemaError(str(source), problem, _NOT_CARRIED) from error


def _carry_facts_over(
    connection: sqlite3.Connection, session: SQLiteSession, *, at: datetime, by: str
) -> CarriedOver:
    connection.execute(_SQL["drop_number"])
    _rename_tables(connection, of_facts=True)
    upgrade(connection, LEDGER)
    connection.execute(_SQL["forget_changes"])
    connection.execute(_SQL["forget_numbers"])
    for sql in _CARRIES:
        connection.execute(sql)
    _carry_erased_scopes(connection)
    _carry_keys(connection)
    head, rows = _carry_ledger(connection, session)
    _carry_lineages(connection)
    _drop_carried_tables(connection)
    depth = number(session, "depth")
    batch = Batch(session, Firing(COPY, "", "manual", at, by=by), depth)
    copied = Copied(head.hex(), rows, rows, 0, 1)
    batch.note = {COPIED: copied._asdict(), "release": _RELEASE}
    batch.write(Decision.of(batch.resolution(), {}))
    record_changes(session, depth, at)
    count, chain, broken = verify(session, depth)
    if broken is not None:
        raise SchemaError(session.where, f"row {broken.seq}: {broken.problem}", _NOT_CARRIED)
    scopes = session.one("erased_scopes.exists")
    return CarriedOver(
        _count(connection, "count_facts"),
        count,
        _count(connection, "count_edits"),
        _count(connection, "count_erased_scopes") if scopes else 0,
        chain,
    )


_NOT_CARRIED = (
    "nothing is kept of the new files; run `slumberd audit verify` of slumberd 0.1.0 on the old "
    "ones, or move facts.db away, and slumberd promotes its facts again"
)


def _count(connection: sqlite3.Connection, statement: str) -> int:
    found: int = connection.execute(_SQL[statement]).fetchone()[0]
    return found


def _rename_tables(connection: sqlite3.Connection, *, of_facts: bool) -> None:
    """Give tables of 0.1.0 other names, and drop their indexes and triggers."""
    if of_facts:
        for name, kind in connection.execute(_SQL["old_objects"]).fetchall():
            connection.execute(f"DROP {kind} {_quoted(name)}")
    for (name,) in connection.execute(_SQL["old_tables"]).fetchall():
        if of_facts or name.startswith("slumberd_forg"):
            new = f"carried_{name.removeprefix('slumberd_')}"
            connection.execute(f"ALTER TABLE {_quoted(name)} RENAME TO {_quoted(new)}")


def _drop_carried_tables(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute(_SQL["carried_tables"]).fetchall():
        connection.execute(f"DROP TABLE {_quoted(name)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _carry_erased_scopes(connection: sqlite3.Connection) -> None:
    carried = {name for (name,) in connection.execute(_SQL["carried_tables"])}
    if {"carried_forgotten", "carried_forgetting"} <= carried:
        connection.execute(_ERASED_SCOPES["create_erasure_key"])
        connection.execute(_ERASED_SCOPES["create_erased_scopes"])
        connection.execute(_SQL["carry_erasure_key"])
        connection.execute(_SQL["carry_erased_scopes"])
        for name in ("carried_forgotten", "carried_forgetting"):
            connection.execute(f"DROP TABLE {_quoted(name)}")


def _carry_keys(connection: sqlite3.Connection) -> None:
    rows = [
        (*columns[:6], None if columns[3] is None else 0, *columns[6:8], _with_part(reach), trail)
        for *columns, reach, trail in connection.execute(_SQL["keys"])
    ]
    insert(connection, _LEDGER["put_state"], rows)


def _with_part(reach: bytes | None) -> bytes | None:
    """Return the retractions of a slot with the number of the claim in each precedence."""
    if not reach:
        return reach
    return written({what: [*by, 0] for what, by in orjson.loads(reach).items()})


def _carry_ledger(connection: sqlite3.Connection, session: SQLiteSession) -> tuple[bytes, int]:
    """Write all rows of the ledger; return the chain hash that it had, and its last number."""
    key = check_key(session, number(session, "key"))
    old = new = GENESIS
    last = 0
    found = connection.execute(_SQL["ledger"])
    while some := [LedgerRow(*row) for row in found.fetchmany(_ROWS_AT_A_TIME)]:
        rows: list[LedgerRow[str]] = []
        for row in some:
            old = _check_row(session, row, old, key)
            rows.append(_carried(row, new, key))
            new, last = rows[-1].chain, row.seq
        session.insert("ledger.add_row", rows)
    return old, last


def _check_row(
    session: SQLiteSession, row: LedgerRow[str], previous: bytes, key: bytes | None
) -> bytes:
    """Return the chain hash of a row, which must follow from the row before and its content."""
    fixed = fixed_part(row.seq, row.first, row.firing, row.version, row.event, row.kind)
    is_chained = row.chain == chain_of(key, previous, row.commitment, fixed, row.reason.encode())
    if not is_chained or (row.salt is not None and row.commitment != _commitment_of(row)):
        problem = f"row {row.seq} of the ledger is not as slumberd 0.1.0 wrote it"
        raise SchemaError(session.where, problem, _NOT_CARRIED)
    return row.chain


def _commitment_of(row: LedgerRow[str]) -> bytes:
    fact_id = None if row.fact_id is None else row.fact_id.encode()
    replaces = None if row.replaces is None else row.replaces.encode()
    salt = row.salt or b""
    return commitment_of(salt, row.key_id, row.at, fact_id, replaces, row.payload)


def _carried(row: LedgerRow[str], previous: bytes, key: bytes | None) -> LedgerRow[str]:
    """Return a row under the newest names, in the new chain."""
    payload = _renamed(row)
    row = row._replace(reason=_REASONS.get(row.reason, row.reason))
    if payload != row.payload:
        [sealed] = seal([row._replace(payload=payload)], previous, key)
        return sealed
    fixed = fixed_part(row.seq, row.first, row.firing, row.version, row.event, row.kind)
    return row._replace(chain=chain_of(key, previous, row.commitment, fixed, row.reason.encode()))


def _renamed(row: LedgerRow[str]) -> bytes | None:
    """Return the payload of a row under the newest names."""
    if row.payload is None or (row.event != FIRING and b'"@hand"' not in row.payload):
        return row.payload
    document = orjson.loads(row.payload)
    if row.event != FIRING:
        document["lineage"] = [*map(_renamed_entry, document.get("lineage", ()))]
        return written(document)
    renamed = {"rule": _RULES.get(document["rule"], document["rule"])}
    renamed |= {
        name: _renamed_firing_id(document[name]) for name in _FIRING_IDS if name in document
    }
    return row.payload if renamed.items() <= document.items() else orjson.dumps(document | renamed)


def _renamed_firing_id(firing_id: str) -> str:
    rule_id, mark, number_ = firing_id.rpartition("@")
    return f"{_RULES.get(rule_id, rule_id)}{mark}{number_}"


def _renamed_entry(entry: object) -> object:
    """Return an entry of a lineage; that of an edit under the newest names."""
    if not isinstance(entry, Mapping) or entry.get("rule_id") != _MANUAL_OF_0_1_0:
        return entry
    kind = {"kind": "manual"} if entry.get("kind") == "hand" else {}
    return {**entry, **kind, "rule_id": MANUAL_RULE_ID}


def _carry_lineages(connection: sqlite3.Connection) -> None:
    """Write the lineages of facts that people edited under the newest names."""
    found = connection.execute(_SQL["manual_facts"]).fetchall()
    with own_writes(connection, rows=len(found)):
        for parameters in _lineages(found):
            connection.execute(_SQL["set_lineage"], parameters)


def _lineages(found: list[tuple[str, bytes]]) -> Iterator[dict[str, object]]:
    for fact_id, lineage in found:
        entries = [*map(_renamed_entry, orjson.loads(lineage))]
        yield {"fact_id": fact_id, "lineage": written(entries)}
