"""Install the episode log: triggers number each version of each episode, and each deletion.

A table that another program rebuilt has lost its triggers. Writes since then are unknown, so every
episode is logged again: nothing may be lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slumberd.model.errors import SchemaError
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.file_schema import (
    OLDEST,
    FileSchema,
    describe_older,
    find_number,
    upgrade,
)
from slumberd.storage.sqlite.session import schema_version, snapshot, transaction

_SQL = statements("episode_log")
_ACCESSES = statements("accesses")
_EPISODES = statements("episodes")
_EXTRACTIONS = statements("extractions")
_FEED = statements("index_feed")
_TRIGGERS = {
    "slumberd_episode_inserted": _SQL["create_insert_trigger"],
    "slumberd_episode_updated": _SQL["create_update_trigger"],
}

_DELETE_TRIGGER = {"slumberd_episode_deleted": _FEED["create_delete_trigger"]}

_OF_EPISODES = {
    "idx_episodes_scope_ts": ("drop_index", "create_index"),
    "slumberd_episodes_utc": ("drop_utc_index", "create_utc_index"),
    "slumberd_episodes_other": ("drop_other_index", "create_other_index"),
    "slumberd_episodes_by_user": ("drop_by_user_index", "create_by_user_index"),
    "slumberd_episodes_by_session": ("drop_by_session_index", "create_by_session_index"),
}
_TABLES = {
    "slumberd_episode_log": _SQL["create_table"],
    "slumberd_episode_deletions": _FEED["create_table"],
    "slumberd_accesses": _ACCESSES["create_table"],
    "slumberd_extractions": _EXTRACTIONS["create_table"],
    "slumberd_model_summaries": _EXTRACTIONS["create_summaries"],
    "slumberd_model_usage": _EXTRACTIONS["create_usage"],
}
"""The statement that creates each of slumberd's own tables in schema 2."""

_LATER_TABLES = {"slumberd_model_requests": _EXTRACTIONS["create_requests"]}
"""The statement that creates each table that schema 3 adds."""

_INDEXES = {
    **dict.fromkeys(_OF_EPISODES, "episodes"),
    "slumberd_episode_log_rid": "slumberd_episode_log",
    "slumberd_extractions_eid": "slumberd_extractions",
    "slumberd_model_summaries_eid": "slumberd_model_summaries",
}
_LATER_INDEXES = {"slumberd_model_requests_id": "slumberd_model_requests"}

_REWRITING = "slumberd_rewriting"
"""The table that exists while the file is rewritten, and after a crash until the next use."""

_OURS = {
    name: _EPISODES[create].replace("IF NOT EXISTS ", "", 1)
    for name, (_, create) in _OF_EPISODES.items()
    if name.startswith("slumberd_")
}
"""The SQL of each of slumberd's own indexes, as SQLite stores it."""

SCHEMA = FileSchema(
    "episodes",
    (
        ";\n".join(
            [
                *_TABLES.values(),
                _SQL["create_log_index"],
                _EXTRACTIONS["create_index"],
                _EXTRACTIONS["create_summary_index"],
            ]
        ),
        ";\n".join([*_LATER_TABLES.values(), _EXTRACTIONS["create_request_index"]]),
    ),
    unnumbered=OLDEST,
    repairs=True,
    remedy=(
        "a build before 0.2.0 wrote it, or another program changed it: `slumberd upgrade --to DIR` "
        "carries files of 0.1.0 over; else restore a backup, or import its episodes into a new file"
    ),
)
"""The schemas of memory.db; the first is that of slumberd 0.2.0, and never changes."""

Found = dict[str, tuple[str, str]]
"""By schema object, its table and its SQL."""


def installed(connection: sqlite3.Connection) -> bool:
    """Return whether table, indexes, log and triggers all exist in the form of the newest schema.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    number = find_number(connection, SCHEMA)
    return number == SCHEMA.newest and _has_all(connection, number)


def is_readable(connection: sqlite3.Connection) -> bool:
    """Return whether table, indexes, log and triggers all exist, of whatever known schema.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    number = find_number(connection, SCHEMA)
    return number > 0 and _has_all(connection, number)


def check_schema(connection: sqlite3.Connection) -> None:
    """Check that this slumberd knows the schema of a file.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    find_number(connection, SCHEMA)


def _has_all(connection: sqlite3.Connection, number: int) -> bool:
    """Return whether a file has everything that its schema has."""
    found = _find_objects(connection)
    tables, indexes = {**_TABLES}, {**_INDEXES}
    if number == SCHEMA.newest:
        tables |= _LATER_TABLES
        indexes |= _LATER_INDEXES
    has_triggers = _has(_TRIGGERS, found) and _has(_DELETE_TRIGGER, found)
    has_parts = found.keys() >= tables.keys() and _has_indexes(indexes, found) and has_triggers
    return has_parts and not _was_rewritten(connection, found)


def _was_rewritten(connection: sqlite3.Connection, found: Found) -> bool:
    """Return whether VACUUM has changed the file since `keeping_numbers` began, or may have."""
    if _REWRITING not in found:
        return False
    begun_at: tuple[int] | None = connection.execute(_SQL["rewriting_begun_at"]).fetchone()
    return begun_at != (schema_version(connection),)


def _find_objects(connection: sqlite3.Connection) -> Found:
    return {name: (table, sql) for name, table, sql in connection.execute(_SQL["objects"])}


def _has_indexes(indexes: Mapping[str, str], found: Found) -> bool:
    return all(_is_there(name, table, found) for name, table in indexes.items())


def _is_there(name: str, table: str, found: Found) -> bool:
    """Return whether a table has an index; slumberd's own indexes must have its SQL."""
    its_table, sql = found.get(name, ("", ""))
    return its_table == table and sql == _OURS.get(name, sql)


def _has(triggers: Mapping[str, str], found: Found) -> bool:
    return all(found.get(name) == ("episodes", sql) for name, sql in triggers.items())


def install(connection: sqlite3.Connection) -> None:
    """Create what is missing, and upgrade what is older, within the caller's transaction.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
        sqlite3.OperationalError: The table ``episodes`` has another form.
    """
    upgrade(connection, SCHEMA)
    connection.execute(_EPISODES["create_table"])
    connection.execute(_EPISODES["probe"])
    found = _find_objects(connection)
    if _was_rewritten(connection, found):
        _end_rewriting(connection)
    for name, create in (_TABLES | _LATER_TABLES).items():
        if name not in found:
            connection.execute(create)
    if not _has_indexes(_INDEXES | _LATER_INDEXES, found):
        _create_indexes(connection, found)
    if not _has(_TRIGGERS, found):
        _create_triggers(connection)
    if not _has(_DELETE_TRIGGER, found):
        _create_delete_trigger(connection)


def _create_indexes(connection: sqlite3.Connection, found: Found) -> None:
    connection.execute(_SQL["drop_user_index"])  # of an older slumberd
    for name, (drop, create) in _OF_EPISODES.items():
        if not _is_there(name, "episodes", found):
            # Dropped first: after a rename the old table may still hold its name.
            connection.execute(_SQL[drop])
            connection.execute(_EPISODES[create])
    connection.execute(_SQL["create_log_index"])
    connection.execute(_EXTRACTIONS["create_index"])
    connection.execute(_EXTRACTIONS["create_summary_index"])
    connection.execute(_EXTRACTIONS["create_request_index"])


def _create_triggers(connection: sqlite3.Connection) -> None:
    for name in ("drop_insert_trigger", "drop_update_trigger"):
        connection.execute(_SQL[name])
    for sql in _TRIGGERS.values():
        connection.execute(sql)
    connection.execute(_SQL["log_every_episode"])


def _create_delete_trigger(connection: sqlite3.Connection) -> None:
    """Create the trigger; what was deleted without it is unknown."""
    connection.execute(_FEED["drop_delete_trigger"])
    connection.execute(_FEED["create_delete_trigger"])
    connection.execute(_FEED["record_unknown_deletions"])


@contextmanager
def without_log(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep triggers and indexes from what the block writes, within the caller's transaction.

    Args:
        connection: Of a file with everything that `install` creates.
    """
    for name in ("drop_insert_trigger", "drop_update_trigger"):
        connection.execute(_SQL[name])
    connection.execute(_FEED["drop_delete_trigger"])
    for drop, _ in _OF_EPISODES.values():
        connection.execute(_SQL[drop])
    yield
    for _, create in _OF_EPISODES.values():
        connection.execute(_EPISODES[create])
    for sql in (*_TRIGGERS.values(), *_DELETE_TRIGGER.values()):
        connection.execute(sql)


@contextmanager
def keeping_numbers(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep the episode log right while the block rewrites the file by VACUUM.

    The documentation of SQLite allows VACUUM to number the rows of episodes anew. No version that
    slumberd knows does so to a table with an index. No transaction can contain VACUUM, so a table
    notes the number of the schema before, which VACUUM increments. Whoever uses the log next,
    after a crash too, or after a put of another program, first corrects it. The rows are compared
    on a snapshot, while other programs write: only another VACUUM could number them anew then.
    """
    with transaction(connection):
        connection.execute(_SQL["drop_rewriting"])
        connection.execute(_SQL["create_rewriting"])
        connection.execute(_SQL["begin_rewriting"], (schema_version(connection),))
    try:
        yield
    finally:
        with snapshot(connection):
            compared_at = schema_version(connection)
            is_kept = connection.execute(_SQL["is_renumbered"]).fetchone() == (0,)
        with transaction(connection):
            if is_kept and schema_version(connection) == compared_at:
                connection.execute(_SQL["drop_rewriting"])
            else:
                _end_rewriting(connection)


def _end_rewriting(connection: sqlite3.Connection) -> None:
    """Correct the episode log if the rows are numbered anew, in the caller's transaction."""
    if connection.execute(_SQL["is_renumbered"]).fetchone() == (1,):
        connection.execute(_SQL["renumber_log"])
        connection.execute(_FEED["record_unknown_deletions"])
    connection.execute(_SQL["drop_rewriting"])


def complete(connection: sqlite3.Connection, path: Path) -> None:
    """Install what is missing in a file, within the caller's transaction.

    Raises:
        SchemaError: The table of episodes has another form.
    """
    try:
        install(connection)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise
        raise SchemaError(str(path), f"'episodes' is not the table we know: {error}") from error


def warnings_of(connection: sqlite3.Connection) -> list[str]:
    """Return what the health of a store has to say about its episode log.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    number = find_number(connection, SCHEMA)
    if _has_all(connection, number):
        return describe_older(number, SCHEMA)
    return ["the episode log is not installed: the next call of the store installs it"]
