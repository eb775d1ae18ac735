"""Look at a database as it is, without a byte left beside it: for whoever only reports on it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, reduce

import orjson

from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.firing import Counts
from slumberd.model.naive_timestamps import NaiveTimestamps
from slumberd.model.provenance import Lag
from slumberd.model.scope import ErasedScopes, escape, scope_of
from slumberd.sql_statements import statements
from slumberd.storage.episodes import erased_content
from slumberd.storage.episodes import log as episode_log
from slumberd.storage.episodes.rows import decode, lenient_text
from slumberd.storage.ledger import promotion_feed
from slumberd.storage.ledger.bulk_write import notes_others
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.ledger.schema import SUCCESSES
from slumberd.storage.sqlite.erased_scopes import forgotten
from slumberd.storage.sqlite.health import has_table
from slumberd.storage.sqlite.recovery import _within

Open = sqlite3.Connection
"""A database that is looked at."""


_LISTED = 100

_LEDGER = statements("ledger")
_EPISODE_LOG = statements("episode_log")
_SQL = statements("looking")
_COUNTS = statements("migrations")
_UNFINISHED = statements("unfinished")


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """A batch that waits for a person.

    Attributes:
        firing_id: Its id.
        problem: Why it was held.
    """

    firing_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Told:
    """How far a sink of provenance is.

    Attributes:
        lag: What it was not told of yet.
        refused: Rows that it will never be told of.
    """

    lag: Lag
    refused: int


@dataclass(frozen=True, slots=True)
class FactsSeen:
    """What a database of facts says of itself; instants are microseconds since 1970 UTC.

    Attributes:
        facts: How many stand.
        rows: Of the ledger.
        unlogged: Rows of the ledger without a log line.
        triggered: Whether what other programs write is noted.
        marks: The number of the last version that each rule has read.
        served: Up to when each rule's instants are served.
        fired: When each rule's last batch began.
        succeeded: When each rule's last firing that went well began.
        outcomes: What each rule's last batch came to, as `Counts` names it, over all channels.
        quarantined: Episodes that could not be read, by rule and reason.
        held: The batch of each rule that waits for a person.
        told: How far each sink of provenance is, by its name.
        unfinished: Erasures that the database of episodes may not have done.
    """

    facts: int
    rows: int
    unlogged: int
    triggered: bool
    marks: Mapping[str, int] = field(default_factory=dict)
    served: Mapping[str, int] = field(default_factory=dict)
    fired: Mapping[str, int] = field(default_factory=dict)
    succeeded: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, Counts] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held: Mapping[str, HeldBatch] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    unfinished: int = 0


def unreached_in(connection: sqlite3.Connection, seconds: float | None) -> list[str] | None:
    """Return episodes whose retraction reached nothing, and nothing since; oldest first.

    Args:
        connection: Of a database of facts.
        seconds: How long it may take; None sets no bound.

    Returns:
        At most 100; None when it took too long.
    """
    return _within(connection, seconds, _unreached)


def disagreeing_in(
    connection: sqlite3.Connection, seconds: float | None
) -> list[tuple[str, str]] | None:
    """Return pairs of current facts that say different objects of a single-valued key.

    The first of a pair is a declared fact, the second the one that a rule or a person holds.

    Args:
        connection: Of a database of facts.
        seconds: How long it may take; None sets no bound.

    Returns:
        At most 100, by key; None when it took too long.
    """
    return _within(connection, seconds, _disagreeing)


def _disagreeing(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    if not has_table(connection, "slumberd_keys"):
        return []
    found = connection.execute(_SQL["disagreeing"], {"limit": _LISTED})
    return [(str(one), str(other)) for one, other in found.fetchall()]


def future_in(
    connection: sqlite3.Connection,
    latest: datetime,
    *,
    naive: NaiveTimestamps,
    seconds: float | None,
) -> list[EpisodeVersion] | None:
    """Return episodes that are dated later than an instant, the latest first.

    Args:
        connection: Of a database of episodes, with its indexes.
        latest: The instant, in UTC.
        naive: How a timestamp without an offset is read.
        seconds: How long it may take; None sets no bound.

    Returns:
        None when it took too long.
    """
    return _within(connection, seconds, partial(_future, latest=latest, naive=naive))


def _future(
    connection: sqlite3.Connection, latest: datetime, naive: NaiveTimestamps
) -> list[EpisodeVersion]:
    connection.text_factory = lenient_text
    # The text of a timestamp lies within two days of its instant in UTC, whatever its offset.
    asked = {"latest": latest.isoformat(), "floor": (latest - timedelta(days=2)).date().isoformat()}
    rowids = [rid for (rid,) in connection.execute(_SQL["future"], asked)]
    chosen = {"rowids": orjson.dumps(rowids).decode()}
    rows = connection.execute(_SQL["episodes_of_rows"], chosen).fetchall()
    found = [decode(0, row, mismatch="trust_scope", naive=naive) for row in rows]
    ahead = [one for one in found if one.at > microseconds(latest)]
    return sorted(ahead, key=lambda one: (-one.at, one.id))


def erased_in(connection: sqlite3.Connection) -> ErasedScopes | None:
    """Return what a database remembers as erased; None when nothing ever was."""
    return forgotten(connection)


def resurfaced_in(
    connection: sqlite3.Connection, pasts: Sequence[ErasedScopes], seconds: float | None
) -> Counter[str] | None:
    """Return how many episodes or facts of erased scopes a database holds, by user.

    Args:
        connection: Of a database of either kind.
        pasts: What the databases of the state directory remember as erased.
        seconds: How long it may take; None sets no bound.

    Returns:
        None when it took too long.
    """
    of_episodes = has_table(connection, "episodes")
    find = erased_content.episodes_of_erased if of_episodes else erased_content.facts_of_erased
    return _within(connection, seconds, partial(find, pasts=pasts))


def _unreached(connection: sqlite3.Connection) -> list[str]:
    if not has_table(connection, "slumberd_ledger"):
        return []
    found = connection.execute(_SQL["unreached"], {"limit": _LISTED})
    return [str(fact_id) for (fact_id,) in found.fetchall()]


def logs_episodes(connection: sqlite3.Connection) -> bool:
    """Say whether log, indexes and triggers of a database of episodes are in place."""
    return episode_log.installed(connection)


def episodes_in(connection: sqlite3.Connection) -> int:
    """Return how many episodes there are."""
    count: int = connection.execute(_COUNTS["count_episodes"]).fetchone()[0]
    return count


def last_row_in(connection: sqlite3.Connection) -> int | None:
    """Return the number of the episode log's last row; None when there is none."""
    if not logs_episodes(connection):
        return None
    found = connection.execute(_EPISODE_LOG["newest"]).fetchone()
    return found[0] if found else None


def users_with_facts(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Return the first users that have facts, in order."""
    if not has_table(connection, "facts"):
        return []
    found: list[str] = []
    while len(found) < limit:
        after = found[-1] if found else ""
        user = connection.execute(_SQL["next_user_of_facts"], (after,)).fetchone()[0]
        if not isinstance(user, str):  # none, or a row of another program that is no text
            break
        found.append(user)
    return found


def has_facts_of(connection: sqlite3.Connection, user: str) -> bool:
    """Say whether a user has facts."""
    if not has_table(connection, "facts"):
        return False
    return bool(connection.execute(_SQL["any_fact_of_user"], (user,)).fetchone()[0])


def users_with_episodes(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Return the first users that have episodes, in order of their scope keys."""
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
            after = f"/user/{escape(scope.user)}0"  # 0 follows the slash, so the next user's
    return found


def pending_in(connection: sqlite3.Connection, after: int, at_most: int) -> int:
    """Count the versions of episodes above a place, up to `at_most`."""
    return episode_log.pending(connection, after, at_most)


def oldest_in(connection: sqlite3.Connection, after: int) -> str | None:
    """Return the timestamp of the first episode in the log above a place, as it is written."""
    row = connection.execute(_SQL["oldest"], {"after": after}).fetchone()
    return row[0] if row else None


def facts_in(connection: sqlite3.Connection) -> FactsSeen | None:
    """Return what a database of facts says; None when no slumberd has been here."""
    if not has_table(connection, "slumberd_ledger"):
        return None
    marks = connection.execute(_LEDGER["watermarks"]).fetchall()
    last = connection.execute(_LEDGER["last_row"]).fetchone()
    fired = connection.execute(_SQL["last_firings"]).fetchall()
    return FactsSeen(
        facts=connection.execute(_COUNTS["count_facts"]).fetchone()[0],
        rows=last[0] if last else 0,
        unlogged=connection.execute(_SQL["unlogged"]).fetchone()[0],
        triggered=notes_others(connection),
        marks={rule: seq for rule, seq, _, _ in marks},
        served={rule: served for rule, _, _, served in marks},
        fired={rule: at for rule, _, at, _ in fired},
        succeeded=_successes(connection),
        outcomes={rule: _outcome(counts) for rule, _, _, counts in fired},
        quarantined={
            (rule, reason): count for rule, reason, count in connection.execute(_SQL["quarantined"])
        },
        held=_held(connection),
        told={name: _told(connection, name) for name in promotion_feed.readers(connection)},
        unfinished=_unfinished(connection),
    )


def erasures_in(connection: sqlite3.Connection, after: int) -> int:
    """Count the erasures that a ledger has above a row."""
    if not has_table(connection, "slumberd_ledger"):
        return 0
    count: int = connection.execute(_SQL["erasures"], {"after": after}).fetchone()[0]
    return count


def _unfinished(connection: sqlite3.Connection) -> int:
    if not has_table(connection, "slumberd_unfinished"):  # an older slumberd was here last
        return 0
    count: int = connection.execute(_UNFINISHED["count"]).fetchone()[0]
    return count


def _told(connection: sqlite3.Connection, reader: str) -> Told:
    _, refused = promotion_feed.place(connection, reader)
    return Told(promotion_feed.lag(connection, reader), refused)


def _successes(connection: sqlite3.Connection) -> dict[str, int]:
    if not has_table(connection, SUCCESSES):  # an older slumberd was here last
        return {}
    return dict(connection.execute(_LEDGER["successes"]).fetchall())


def _outcome(counts: bytes) -> Counts:
    channels = [Counts(**one) for one in orjson.loads(counts).values()]
    return reduce(Counts.plus, channels, Counts())


def _held(connection: sqlite3.Connection) -> dict[str, HeldBatch]:
    return {
        rule: HeldBatch(firing_id_of(rule, n), problem)
        for rule, n, _, _, problem, approved in connection.execute(_LEDGER["held"])
        if not approved
    }
