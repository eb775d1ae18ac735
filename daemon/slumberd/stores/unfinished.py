"""Erasures that facts.db has done and memory.db perhaps not; kept until both have.

A row names the scope and its episodes. It goes, overwritten, once memory.db holds them no more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

import orjson

from slumberd.model.scope import Reach
from slumberd.storage.sqlite.statements import statements

_SQL = statements("unfinished")


class Unfinished(NamedTuple):
    """An erasure that memory.db may not have done.

    Attributes:
        reach: The scope.
        eids: Ids of its episodes.
        moment: Up to when it is forgotten, microseconds since 1970 UTC.
        by: Who asked.
    """

    reach: Reach
    eids: frozenset[str]
    moment: int
    by: str


def begin(connection: sqlite3.Connection, erasure: Unfinished) -> None:
    """Record that an erasure is half done; inside of its transaction."""
    connection.execute(
        _SQL["begin"],
        {
            "scope": _written(erasure.reach),
            "eids": orjson.dumps(sorted(erasure.eids)),
            "moment": erasure.moment,
            "by": erasure.by,
        },
    )


def end(connection: sqlite3.Connection, reaches: Collection[Reach]) -> None:
    """Record that erasures are done; inside of a transaction that overwrites what it deletes."""
    connection.executemany(_SQL["end"], [(_written(reach),) for reach in reaches])


def unfinished(connection: sqlite3.Connection) -> list[Unfinished]:
    """Return the erasures that are half done."""
    return [
        Unfinished(Reach(*orjson.loads(scope)), frozenset(orjson.loads(eids)), moment, by)
        for scope, eids, moment, by in connection.execute(_SQL["all"])
    ]


def _written(reach: Reach) -> str:
    return orjson.dumps([reach.user, reach.session, reach.agent]).decode()
