"""Read the recorded answers of language models for reports; leaves no trace in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from threading import Event

from slumberd.filters.sandbox import prepare
from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeMismatch
from slumberd.storage.episodes import recorded_answers
from slumberd.storage.episodes.windows import Reader
from slumberd.storage.sqlite.health import has_table
from slumberd.storage.sqlite.migrations import file_of
from slumberd.storage.sqlite.session import SQLiteSession

_FILTER_SECONDS = 1.0

_PAGE_ROWS = 64
"""Rows that are read at a time: usually the first of them wait, if any."""


def read_model_usage(connection: sqlite3.Connection, day: str) -> ModelUsage:
    """Return what the calls of language models cost on a day, as ``2026-03-09``.

    An older slumberd recorded nothing.
    """
    if not has_table(connection, "slumberd_model_usage"):
        return ModelUsage()
    return recorded_answers.spent(_session(connection), day)


def find_unanswered(  # noqa: PLR0913 # how a firing reads
    connection: sqlite3.Connection,
    rule: ConsolidationRule,
    *,
    after: int,
    limit: int,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps,
    person: Collection[str] = PERSON,
) -> Turn | None:
    """Return the first turn in a window of the log that waits for an answer; None without one.

    Args:
        connection: To a database of episodes.
        rule: The rule.
        after: The number of the log row before the window.
        limit: At most this many log rows.
        mismatch: Which of scope key and content names the owner, when they differ.
        naive: How to read a timestamp without an offset.
        person: The speakers whose words are those of the user.

    Raises:
        FilterError: The rule's filter must not run, or ran over its time limit.
    """
    if not has_table(connection, "slumberd_extractions"):
        return None
    connection.text_factory = str  # as a firing reads
    prepare(connection, naive, person)
    reader = Reader(
        rule,
        mismatch=mismatch,
        naive=naive,
        stop=Event(),
        seconds=_FILTER_SECONDS,
        person=person,
    )
    session, last = _session(connection), after + limit
    while after < last:
        found = reader.questions(session, after, _PAGE_ROWS, again=False)
        if found.questions:
            return found.questions[0].turn
        if found.upto == after:
            return None
        after = found.upto
    return None


def _session(connection: sqlite3.Connection) -> SQLiteSession:
    return SQLiteSession(connection, str(file_of(connection)))
