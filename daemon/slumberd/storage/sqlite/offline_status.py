"""Read the state of a database for reports; leaves no trace in it or beside it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import orjson

from slumberd.model.episode import EpisodeVersion, NaiveTimestamps, microseconds
from slumberd.model.erasures import ErasedList, ErasedRows, RecordedErasures
from slumberd.model.record import Shrinkage
from slumberd.model.scope import ErasedScopes, escape, scope_of
from slumberd.model.store_status import (
    Backlog,
    EpisodeStoreStatus,
    FactStoreStatus,
    HeldFiring,
    LogRange,
    SinkProgress,
)
from slumberd.sql_statements import statements
from slumberd.storage import erased_scopes
from slumberd.storage.audit import damaged_values
from slumberd.storage.episodes import erased_content
from slumberd.storage.episodes import log as episode_log
from slumberd.storage.episodes.rows import decode
from slumberd.storage.erased_scopes import load_erased_scopes
from slumberd.storage.facts.reads import sum_channels
from slumberd.storage.facts.review import rule_of_row
from slumberd.storage.ledger import erasure, promotion_feed, reductions
from slumberd.storage.ledger.future import future_instants
from slumberd.storage.ledger.readings import readings_of
from slumberd.storage.ledger.rewrites import read_rewrites
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.sqlite import episode_installation
from slumberd.storage.sqlite.bulk_write import has_change_triggers
from slumberd.storage.sqlite.connection import lenient_text
from slumberd.storage.sqlite.health import has_table
from slumberd.storage.sqlite.ledger_schema import has_ledger
from slumberd.storage.sqlite.migrations import file_of
from slumberd.storage.sqlite.recovery import run_within
from slumberd.storage.sqlite.session import SQLiteSession

_LISTED = 100


def _session(connection: sqlite3.Connection) -> SQLiteSession:
    return SQLiteSession(connection, str(file_of(connection)))


_LEDGER = statements("ledger")
_EPISODE_LOG = statements("episode_log")
_SQL = statements("inspection")
_COUNTS = statements("migrations")
_UNFINISHED = statements("unfinished_erasures")


def find_unreached_retractions(
    connection: sqlite3.Connection, seconds: float | None
) -> list[str] | None:
    """Return episodes whose retraction has covered nothing so far, oldest first.

    Args:
        connection: To a database of facts.
        seconds: Stop after this time; None sets no limit.

    Returns:
        At most 100 ids; None when the time was over.
    """
    return run_within(connection, seconds, _find_unreached)


def find_disagreeing_facts(
    connection: sqlite3.Connection, seconds: float | None
) -> list[tuple[str, str]] | None:
    """Return pairs of current facts that have different objects for a single-valued key.

    The first fact of a pair is declared, the second comes from a rule or a person.

    Args:
        connection: To a database of facts.
        seconds: Stop after this time; None sets no limit.

    Returns:
        At most 100 pairs, by key; None when the time was over.
    """
    return run_within(connection, seconds, _find_disagreeing)


def _find_disagreeing(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    if not has_table(connection, "slumberd_keys"):
        return []
    found = connection.execute(_SQL["disagreements"], {"limit": _LISTED})
    return [(str(declared), str(promoted)) for declared, promoted in found.fetchall()]


def find_future_episodes(
    connection: sqlite3.Connection,
    latest: datetime,
    *,
    naive: NaiveTimestamps,
    seconds: float | None,
) -> list[EpisodeVersion] | None:
    """Return episodes with an instant later than a given one, the latest first.

    Args:
        connection: To a database of episodes, with its indexes.
        latest: The given instant, in UTC.
        naive: How to read a timestamp without an offset.
        seconds: Stop after this time; None sets no limit.

    Returns:
        The episodes; None when the time was over.
    """
    return run_within(connection, seconds, partial(_find_future, latest=latest, naive=naive))


def _find_future(
    connection: sqlite3.Connection, latest: datetime, naive: NaiveTimestamps
) -> list[EpisodeVersion]:
    connection.text_factory = lenient_text
    # Whatever its offset, the text of a timestamp is within two days of its instant in UTC.
    parameters = {
        "latest": latest.isoformat(),
        "floor": (latest - timedelta(days=2)).date().isoformat(),
    }
    rowids = [rid for (rid,) in connection.execute(_SQL["future"], parameters)]
    chosen = {"rowids": orjson.dumps(rowids).decode()}
    rows = connection.execute(_SQL["episodes_of_rows"], chosen).fetchall()
    found = [decode(0, row, mismatch="trust_scope", naive=naive) for row in rows]
    ahead = [version for version in found if version.at > microseconds(latest)]
    return sorted(ahead, key=lambda version: (-version.at, version.id))


def find_latest_versions(
    connection: sqlite3.Connection, *, naive: NaiveTimestamps, limit: int
) -> list[EpisodeVersion]:
    """Return what the last rows of the episode log hold; the arguments are of `latest_versions`."""
    connection.text_factory = lenient_text
    return episode_log.latest_versions(_session(connection), naive=naive, limit=limit)


def read_erased_scopes(connection: sqlite3.Connection) -> ErasedScopes | None:
    """Return the erased scopes of a database; None when it never had an erasure."""
    return load_erased_scopes(_session(connection))


def read_erased_list(connection: sqlite3.Connection) -> ErasedList:
    """Return the list of erased scopes of a database."""
    return erased_scopes.read_erased_list(_session(connection))


def read_recorded_erasures(
    connection: sqlite3.Connection,
) -> tuple[RecordedErasures, ErasedRows] | None:
    """Return the erased scopes and the blank rows of a ledger; None without a ledger."""
    if not has_ledger(connection):
        return None
    session = _session(connection)
    return erasure.read_recorded_erasures(session), erasure.read_erased_rows(session)


def read_shrinkage(connection: sqlite3.Connection, *, since: int) -> Shrinkage | None:
    """Return how the number of facts changed since an instant; None without a ledger."""
    if not has_ledger(connection):
        return None
    return reductions.read_shrinkage(_session(connection), since)


def find_damaged_values(
    connection: sqlite3.Connection, *, seconds: float | None
) -> list[str] | None:
    """Return the first values that slumberd never writes; None when the time was over."""
    if not has_ledger(connection):
        return []

    def find(opened: sqlite3.Connection) -> list[str]:
        found = damaged_values.find_damaged_values(_session(opened))
        return [value.words() for value in islice(found, _LISTED)]

    return run_within(connection, seconds, find)


def count_erased_content(
    connection: sqlite3.Connection, pasts: Sequence[ErasedScopes], seconds: float | None
) -> Counter[str] | None:
    """Count the episodes or facts of erased scopes in a database, by user.

    Args:
        connection: To a database of episodes or of facts.
        pasts: The erased scopes of all databases of the state directory.
        seconds: Stop after this time; None sets no limit.

    Returns:
        The counts; None when the time was over.
    """
    of_episodes = has_table(connection, "episodes")
    find = erased_content.episodes_of_erased if of_episodes else erased_content.facts_of_erased
    return run_within(connection, seconds, lambda opened: find(_session(opened), pasts))


def _find_unreached(connection: sqlite3.Connection) -> list[str]:
    if not has_ledger(connection):
        return []
    found = connection.execute(_SQL["unresolved"], {"limit": _LISTED})
    return [str(fact_id) for (fact_id,) in found.fetchall()]


def logs_episodes(connection: sqlite3.Connection) -> bool:
    """Return whether a database of episodes has slumberd's log, indexes and triggers."""
    return episode_installation.is_readable(connection)


def count_episodes(connection: sqlite3.Connection) -> int:
    """Return the number of episodes."""
    count: int = connection.execute(_COUNTS["count_episodes"]).fetchone()[0]
    return count


def last_log_row(connection: sqlite3.Connection) -> int | None:
    """Return the number of the last row of the episode log; None when there is none."""
    if not logs_episodes(connection):
        return None
    found = connection.execute(_EPISODE_LOG["newest"]).fetchone()
    return found[0] if found else None


def users_with_facts(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Return the first users with facts, in order."""
    if not has_table(connection, "facts"):
        return []
    found: list[str] = []
    after = b""  # what Python makes of a text that is not UTF-8 has another place in the order
    while len(found) < limit:
        row = connection.execute(_SQL["next_user_of_facts"], (after,)).fetchone()
        # There is no further user, or another program wrote a value that is not text.
        if row is None or not isinstance(row[0], str):
            break
        user, after = row
        found.append(user)
    return found


def has_facts_of(connection: sqlite3.Connection, user: str) -> bool:
    """Return whether a user has facts."""
    if not has_table(connection, "facts"):
        return False
    return bool(connection.execute(_SQL["any_fact_of_user"], (user,)).fetchone()[0])


def users_with_episodes(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Return the first users with episodes, in order of their scope keys."""
    if not logs_episodes(connection):
        return []
    found: list[str] = []
    after: str | None = ""
    while len(found) < limit:
        after = connection.execute(_SQL["next_scope_key"], (after,)).fetchone()[0]
        if not isinstance(after, str):
            break
        if scope := scope_of(after):
            found.append(scope.user)
            after = f"/user/{escape(scope.user)}0"  # 0 follows the slash: skips this user
    return found


def read_backlogs(
    connection: sqlite3.Connection, wanted: Collection[LogRange]
) -> EpisodeStoreStatus | None:
    """Return what lies above some rows of the episode log; None without a log.

    Args:
        connection: To a database of episodes.
        wanted: The rows, each with the most versions that are counted above it.
    """
    if not logs_episodes(connection):
        return None
    backlogs = {each: _read_backlog(connection, each.after, each.at_most) for each in set(wanted)}
    return EpisodeStoreStatus(count_episodes(connection), backlogs)


def _read_backlog(connection: sqlite3.Connection, after: int, at_most: int) -> Backlog:
    pending = episode_log.pending(_session(connection), after, at_most)
    return Backlog(pending, episode_log.oldest_timestamp(_session(connection), after))


def read_fact_store(connection: sqlite3.Connection) -> FactStoreStatus | None:
    """Return the state of a database of facts; None when slumberd has never written to it."""
    if not has_ledger(connection):
        return None
    watermarks = connection.execute(_LEDGER["watermarks"]).fetchall()
    last = connection.execute(_LEDGER["last_row"]).fetchone()
    fired = connection.execute(_SQL["last_firings"]).fetchall()
    return FactStoreStatus(
        facts=connection.execute(_COUNTS["count_facts"]).fetchone()[0],
        rows=last[0] if last else 0,
        unlogged=connection.execute(_SQL["unlogged"]).fetchone()[0],
        triggered=has_change_triggers(connection),
        watermarks={rule: seq for rule, seq, _, _ in watermarks},
        served={rule: served for rule, _, _, served in watermarks},
        fired={rule: at for rule, _, at, _ in fired},
        succeeded=_read_successes(connection),
        outcomes={rule: sum_channels(counts) for rule, _, _, counts in fired},
        quarantined={
            (rule, reason): count for rule, reason, count in connection.execute(_SQL["quarantined"])
        },
        held=_read_held(connection),
        sinks={
            name: _read_progress(connection, name)
            for name in promotion_feed.sink_names(_session(connection))
        },
        unfinished=_count_unfinished(connection),
        rewrites=read_rewrites(_session(connection)),
        future=future_instants(connection.execute(_LEDGER["future_instants"])),
        recorded=(connection.execute(_SQL["last_recorded"]).fetchone() or (None,))[0],
        latest_claim=connection.execute(_SQL["latest_claim"]).fetchone()[0],
        readings=readings_of(_session(connection), (rule for rule, _, _, _ in watermarks)),
    )


def count_erasures(connection: sqlite3.Connection, after: int) -> int:
    """Count the erasures after a row of the ledger."""
    if not has_ledger(connection):
        return 0
    count: int = connection.execute(_SQL["erasures"], {"after": after}).fetchone()[0]
    return count


def _count_unfinished(connection: sqlite3.Connection) -> int:
    count: int = connection.execute(_UNFINISHED["count"]).fetchone()[0]
    return count


def _read_progress(connection: sqlite3.Connection, reader: str) -> SinkProgress:
    _, refused = promotion_feed.read_position(_session(connection), reader)
    return SinkProgress(promotion_feed.lag(_session(connection), reader), refused)


def _read_successes(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute(_LEDGER["successes"]).fetchall())


def _read_held(connection: sqlite3.Connection) -> dict[str, HeldFiring]:
    return {
        rule: HeldFiring(firing_id_of(rule_of_row(rule), n), problem)
        for rule, n, _, _, problem, approved in connection.execute(_LEDGER["held_batches"])
        if not approved
    }
