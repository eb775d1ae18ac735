"""Erase the episodes of a scope from memory.db."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from slumberd.core.scope import PLACEHOLDER_KEY, Reach, Scope, scope_of
from slumberd.stores import accesses
from slumberd.stores.decode import instant_or_zero, lenient_text, owner_of
from slumberd.stores.forgetting import overwriting, remember, scrub
from slumberd.stores.instants import NaiveTimestamps
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import transaction

_SQL = statements("forgetting")


class Found(NamedTuple):
    """The episodes of a scope.

    Attributes:
        rowids: Of their rows.
        eids: Their ids.
        newest: The latest of their instants, microseconds; None when there are none.
    """

    rowids: list[int]
    eids: list[str]
    newest: int | None


def find_scope(
    connection: sqlite3.Connection, reach: Reach, naive: NaiveTimestamps = "local"
) -> Found:
    """Return the episodes that belong within reach; `naive` says how their timestamps are read."""
    rows = list(_rows(connection, reach))
    newest = max((instant_or_zero(row[3], naive) for row in rows), default=None)
    return Found([row[0] for row in rows], [str(row[1]) for row in rows], newest)


def _rows(
    connection: sqlite3.Connection, reach: Reach
) -> Iterator[tuple[int, object, str, object, object]]:
    connection.text_factory = lenient_text
    try:
        for row in connection.execute(_SQL["episodes"]):
            if isinstance(row[2], str) and reach.holds(_owner(row[2], row[4])):
                yield row
    finally:
        connection.text_factory = str


def _owner(key: str, content: object) -> Scope | None:
    """Return whose a row is; its content counts where the key does not name its owner for sure."""
    owner = None if content is None else owner_of(key, content, "quarantine")
    return owner or (None if key == PLACEHOLDER_KEY else scope_of(key))


def erase_episodes(
    connection: sqlite3.Connection, reach: Reach, eids: Iterable[str], moment: int
) -> dict[str, int]:
    """Erase the episodes of a scope, and the names of `eids` from the log; remember it.

    Args:
        connection: Outside of any transaction.
        reach: The scope.
        eids: More ids of its episodes, which their host has deleted before.
        moment: Up to when it is forgotten, in microseconds.

    Returns:
        How many rows went, by table.
    """
    with overwriting(connection), transaction(connection):
        found = find_scope(connection, reach)
        rowids = {"rowids": orjson.dumps(found.rowids).decode()}
        names = sorted({*found.eids, *eids})
        asked = {"eids": orjson.dumps(names).decode()}
        connection.execute(_SQL["drop_episodes"], rowids)
        blanked = connection.execute(_SQL["blank_log"], asked).rowcount
        read = accesses.erase(connection, names)
        remember(connection, reach, moment)
    return {
        "episodes": len(found.rowids),
        "slumberd_episode_log": blanked,
        "slumberd_accesses": read,
    }


def scrub_memory(connection: sqlite3.Connection) -> bool:
    """Leave no byte of what was erased; return whether the write-ahead log could be emptied."""
    emptied = scrub(connection)
    # Writing the file anew may give rows new numbers; the log finds them again by id.
    with transaction(connection):
        connection.execute(_SQL["renumber_log"])
    return emptied
