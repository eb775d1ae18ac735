"""Put episodes by the function of the database, which a host may run that may do nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.model.episode import NaiveTimestamps
from slumberd.model.errors import ForgottenError, MemoryScopeError
from slumberd.model.scope import scope_of
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import Row
from slumberd.storage.episodes.writes import CHANGES, Change, taken_id_error
from slumberd.storage.postgres.session import PostgresSession

_ERASED_SCOPE = "erased"
_ERASED_ID = "erased_id"


def put_rows(
    session: Session, rows: Sequence[Row], _: NaiveTimestamps = "local"
) -> list[Change | MemoryScopeError]:
    """Put rows; return for each what changed, or the error that refuses it.

    Raises:
        InputError: An id or a scope key is too long for an index of the database.
    """
    if not rows:
        return []
    ids, keys, contents, timestamps, metadatas = (
        list(column) for column in zip(*rows, strict=True)
    )
    parameters = {
        "ids": ids,
        "scope_keys": keys,
        "contents": contents,
        "timestamps": timestamps,
        "metadatas": metadatas,
    }
    outcomes: list[str] = session.value("episodes.put", parameters)
    if isinstance(session, PostgresSession):
        # The server does not say how many rows a function wrote.
        session.written += sum(outcome in ("new", "changed") for outcome in outcomes)
    return [_change_of(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]


def _change_of(row: Row, outcome: str) -> Change | MemoryScopeError:
    if outcome == _ERASED_SCOPE:
        return ForgottenError(tuple(scope_of(row.scope_key) or ()), row.id)
    if outcome == _ERASED_ID:
        return "erased"
    for change in CHANGES:
        if change == outcome:
            return change
    return taken_id_error(row)
