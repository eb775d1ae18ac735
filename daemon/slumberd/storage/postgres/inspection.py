"""Look at the stores of a database for reports; leaves no trace in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from threading import Event
from typing import TypeVar

import psycopg

from slumberd.model.episode import PERSON, EpisodeVersion, NaiveTimestamps, microseconds
from slumberd.model.erasures import ErasedList, ErasedRows, RecordedErasures
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.record import Shrinkage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ErasedScopes, ScopeMismatch, unescape
from slumberd.model.store_status import (
    Backlog,
    EpisodeStoreStatus,
    FactStoreStatus,
    HeldFiring,
    LogRange,
    SinkProgress,
    StoreSizes,
)
from slumberd.storage.audit.damaged_values import find_damaged_values
from slumberd.storage.engine import Session
from slumberd.storage.episodes import erased_content, recorded_answers
from slumberd.storage.episodes import log as episode_log
from slumberd.storage.episodes.rows import decode
from slumberd.storage.episodes.windows import Reader
from slumberd.storage.erased_scopes import load_erased_scopes, read_erased_list
from slumberd.storage.facts.reads import sum_channels
from slumberd.storage.facts.review import rule_of_row
from slumberd.storage.ledger import erasure, promotion_feed, reductions
from slumberd.storage.ledger.future import future_instants
from slumberd.storage.ledger.readings import readings_of
from slumberd.storage.ledger.rewrites import read_rewrites
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.filter_rows import FilterRows
from slumberd.storage.postgres.scrubbing import OpenSnapshot
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard

T = TypeVar("T")

_LISTED = 100
_FILTER_SECONDS = 1.0
_PAGE_ROWS = 64


class PostgresInspection:
    """Looks at one store of a shard; implements what both kinds of `StoreInspection` share.

    Args:
        shard: The shard.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def where(self) -> str:
        """The database in words, without its password."""
        return self._shard.where

    @property
    def on_disk(self) -> None:
        """Nothing: the server keeps the files, and checks them."""
        return None

    def exists(self) -> bool:
        """Return whether the database has a schema of slumberd, of whatever version.

        Raises:
            DatabaseUnreachableError: The server does not answer.
        """
        with (
            connect(self._shard.address, self._shard.schema, read_only=True) as connection,
            translate_errors(self.where),
        ):
            return installation.has_schema(connection, self._shard.schema)

    def erased_scopes(self) -> ErasedScopes | None:
        """Return the erased scopes of the database; None when it never had an erasure."""
        return self._look(load_erased_scopes)

    def erased_list(self) -> ErasedList:
        """Return the list of erased scopes of the database; an empty one when it has none."""
        return self._look(read_erased_list)

    def _look(self, work: Callable[[PostgresSession], T]) -> T:
        """Run `work` on one snapshot, after a check of the schema."""
        with (
            connect(self._shard.address, self._shard.schema, read_only=True) as connection,
            translate_errors(self.where),
        ):
            installation.check_shard(connection, self._shard)
            session = PostgresSession(connection, self.where, filter_rows=FilterRows("local"))
            try:
                return work(session)
            finally:
                session.close()
                connection.rollback()

    def _look_within(self, work: Callable[[PostgresSession], T], seconds: float | None) -> T | None:
        """Run `work` as `_look` does; return None when it takes longer than a time limit."""
        if seconds == 0:
            return None
        limit = 0 if seconds is None else max(1, round(1000 * seconds))
        with (
            connect(self._shard.address, self._shard.schema, read_only=True) as connection,
            translate_errors(self.where),
        ):
            installation.check_shard(connection, self._shard)
            connection.execute(f"SET statement_timeout = {limit:d}".encode())
            session = PostgresSession(connection, self.where)
            try:
                return work(session)
            except psycopg.errors.QueryCanceled:
                return None
            finally:
                session.close()
                connection.rollback()


class PostgresEpisodeInspection(PostgresInspection):
    """Looks at the episodes of a shard; implements `EpisodeInspection`.

    Args:
        shard: The shard.
        naive: How to read a timestamp without an offset.
        mismatch: Which of scope key and content names the owner, when they differ.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self,
        shard: Shard,
        naive: NaiveTimestamps,
        mismatch: ScopeMismatch = "quarantine",
        person: Collection[str] = PERSON,
    ) -> None:
        super().__init__(shard)
        self._person = person
        self._naive: NaiveTimestamps = naive
        self._mismatch: ScopeMismatch = mismatch

    def sizes(self) -> StoreSizes:
        """Return the bytes of the tables of all shards; the log is the server's."""
        return StoreSizes(
            self._look(lambda session: session.value("inspection.size_of_episodes")), 0
        )

    def users(self, limit: int) -> list[str]:
        """Return the first users with episodes, in order."""
        parameters = {"limit": limit}
        rows = self._look(lambda session: session.rows("inspection.users_of_episodes", parameters))
        return [unescape(user) for (user,) in rows]

    def has_log(self) -> bool:
        """Return whether the database has a schema of slumberd."""
        return self.exists()

    def last_log_row(self) -> int | None:
        """Return the number of the last row of the episode log; None when there is none."""
        return self._look(episode_log.newest).seq or None

    def status(self, wanted: Collection[LogRange]) -> EpisodeStoreStatus | None:
        """Return how many episodes there are, and what lies in some ranges of the log."""
        return self._look(partial(_read_backlogs, wanted=wanted))

    def count_erased_content(
        self, pasts: Sequence[ErasedScopes], seconds: float | None
    ) -> Counter[str] | None:
        """Count the episodes of erased scopes, by user; None when the time was over."""
        count = partial(erased_content.episodes_of_erased, pasts=pasts)
        return self._look_within(count, seconds)

    def future_episodes(
        self, latest: datetime, seconds: float | None
    ) -> list[EpisodeVersion] | None:
        """Return episodes later than an instant in UTC, the latest first; None out of time."""

        def find(session: Session) -> list[EpisodeVersion]:
            rows = session.rows("inspection.future", {"latest": latest.isoformat()})
            found = [decode(0, row, mismatch="trust_scope", naive=self._naive) for row in rows]
            ahead = [version for version in found if version.at > microseconds(latest)]
            return sorted(ahead, key=lambda version: (-version.at, version.id))

        return self._look_within(find, seconds)

    def latest_versions(self, limit: int) -> list[EpisodeVersion]:
        """Return what the last rows of the episode log hold, oldest first."""
        return self._look(partial(episode_log.latest_versions, naive=self._naive, limit=limit))

    def model_usage(self, day: str) -> ModelUsage:
        """Return what the calls of language models cost on a day, as ``2026-03-09``."""
        return self._look(partial(recorded_answers.spent, day=day))

    def first_unanswered(self, rule: ConsolidationRule, *, after: int, limit: int) -> Turn | None:
        """Return the first turn in a window of the log that waits for an answer.

        Args:
            rule: The rule that asks a language model.
            after: The number of the log row before the window.
            limit: About this many log rows.

        Raises:
            FilterError: The rule's filter must not run, or ran over its time limit.
        """
        reader = Reader(
            rule,
            mismatch=self._mismatch,
            naive=self._naive,
            stop=Event(),
            seconds=_FILTER_SECONDS,
            person=self._person,
        )
        return self._look(partial(_find_unanswered, reader=reader, after=after, last=after + limit))


class PostgresFactInspection(PostgresInspection):
    """Looks at the facts of a shard; implements `FactInspection`."""

    def sizes(self) -> StoreSizes:
        """Return the bytes of the tables of all shards; the log is the server's."""
        return StoreSizes(self._look(lambda session: session.value("inspection.size_of_facts")), 0)

    def users(self, limit: int) -> list[str]:
        """Return the first users with facts, in order."""
        parameters = {"limit": limit}
        rows = self._look(lambda session: session.rows("inspection.users_of_facts", parameters))
        return [user for (user,) in rows]

    def has_ledger(self) -> bool:
        """Return whether the database has a schema of slumberd."""
        return self.exists()

    def check_version(self) -> None:
        """Check that this slumberd can read the ledger.

        Raises:
            SchemaError: Another version of slumberd wrote it.
        """
        self._look(lambda _: None)

    def status(self) -> FactStoreStatus | None:
        """Return the state of the store."""
        return self._look(_read_fact_store)

    def count_erased_content(
        self, pasts: Sequence[ErasedScopes], seconds: float | None
    ) -> Counter[str] | None:
        """Count the facts of erased scopes, by user; None when the time was over."""
        return self._look_within(partial(erased_content.facts_of_erased, pasts=pasts), seconds)

    def unreached_retractions(self, seconds: float | None) -> list[str] | None:
        """Return episodes whose retraction has covered nothing; None when the time was over."""

        def find(session: Session) -> list[str]:
            rows = session.rows("inspection.unresolved", {"limit": _LISTED})
            return [fact_id for (fact_id,) in rows]

        return self._look_within(find, seconds)

    def disagreeing_facts(self, seconds: float | None) -> list[tuple[str, str]] | None:
        """Return declared and promoted facts that disagree; None when the time was over."""

        def find(session: Session) -> list[tuple[str, str]]:
            rows = session.rows("inspection.disagreements", {"limit": _LISTED})
            return [(declared, promoted) for declared, promoted in rows]

        return self._look_within(find, seconds)

    def shrinkage(self, since: int) -> Shrinkage | None:
        """Return how the number of facts changed since an instant, microseconds since 1970 UTC."""
        return self._look(lambda session: reductions.read_shrinkage(session, since))

    def damaged_values(self, seconds: float | None) -> list[str] | None:
        """Return the values in slumberd's tables that slumberd never writes, in words.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 values; None when the time was over.
        """
        if seconds == 0:
            return None
        return self._look(
            lambda session: [
                value.words() for value in islice(find_damaged_values(session), _LISTED)
            ]
        )

    def count_erasures(self, after: int) -> int:
        """Count the erasures after a row of the ledger."""
        count: int = self._look(
            lambda session: session.value("inspection.erasures", {"after": after})
        )
        return count

    def recorded_erasures(self) -> tuple[RecordedErasures, ErasedRows] | None:
        """Return the erased scopes that the ledger records, and its blank rows."""
        return self._look(
            lambda session: (
                erasure.read_recorded_erasures(session),
                erasure.read_erased_rows(session),
            )
        )

    def has_facts_of(self, user: str) -> bool:
        """Return whether a user has facts."""
        parameters = {"user": user}
        return bool(
            self._look(lambda session: session.value("inspection.any_fact_of_user", parameters))
        )


def _read_backlogs(session: Session, wanted: Collection[LogRange]) -> EpisodeStoreStatus:
    backlogs = {each: _read_backlog(session, each) for each in set(wanted)}
    return EpisodeStoreStatus(session.value("inspection.count_episodes"), backlogs)


def _read_backlog(session: Session, wanted: LogRange) -> Backlog:
    """Return what lies in a range of the log; what has no number yet lies at its end."""
    pending = episode_log.pending(session, *wanted)
    parameters = {"limit": wanted.at_most - pending}
    pending += session.value("inspection.count_unnumbered", parameters)
    oldest = episode_log.oldest_timestamp(session, wanted.after, wanted.rule_id)
    return Backlog(pending, oldest or session.value("inspection.oldest_unnumbered"))


def _find_unanswered(session: Session, reader: Reader, after: int, last: int) -> Turn | None:
    while after < last:
        found = reader.questions(session, after, _PAGE_ROWS, again=False)
        if found.questions:
            return found.questions[0].turn
        if found.upto == after:
            return None
        after = found.upto
    return None


def _read_fact_store(session: Session) -> FactStoreStatus:
    watermarks = session.rows("ledger.watermarks")
    last = session.one("ledger.last_row")
    fired = session.rows("inspection.last_firings")
    return FactStoreStatus(
        facts=session.value("inspection.count_facts"),
        rows=last[0] if last else 0,
        unlogged=session.value("inspection.unlogged"),
        triggered=True,
        watermarks={rule: seq for rule, seq, _, _ in watermarks},
        served={rule: served for rule, _, _, served in watermarks},
        fired={rule: at for rule, _, at, _ in fired},
        succeeded=dict(session.rows("ledger.successes")),
        outcomes={rule: sum_channels(counts) for rule, _, _, counts in fired},
        quarantined={
            (rule, reason): count for rule, reason, count in session.rows("inspection.quarantined")
        },
        held={
            rule: HeldFiring(firing_id_of(rule_of_row(rule), n), problem)
            for rule, n, _, _, problem, approved in session.rows("ledger.held_batches")
            if not approved
        },
        sinks={
            name: SinkProgress(
                promotion_feed.lag(session, name), promotion_feed.read_position(session, name)[1]
            )
            for name in promotion_feed.sink_names(session)
        },
        unfinished=session.value("unfinished_erasures.count"),
        rewrites=(rewrites := read_rewrites(session)),
        snapshots=[str(OpenSnapshot(*row)) for row in session.rows("hosts.open_snapshots")]
        if rewrites
        else (),
        future=future_instants(session.rows("ledger.future_instants")),
        recorded=(session.one("inspection.last_recorded") or (None,))[0],
        latest_claim=session.value("inspection.latest_claim"),
        readings=readings_of(session, (rule for rule, _, _, _ in watermarks)),
    )
