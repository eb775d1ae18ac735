"""Look at stores that this process has not opened, for reports; leaves no trace in them.

A read is that of the open stores wherever they have it. Only the opening differs by engine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Event
from typing import NamedTuple, TypeVar

from slumberd.model.episode import PERSON, EpisodeVersion, NaiveTimestamps, microseconds
from slumberd.model.errors import StoppedError
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.record import ErasedList, ErasedRows, RecordedErasures, Shrinkage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ErasedScopes, ScopeMismatch, unescape
from slumberd.model.store_status import (
    Backlog,
    EpisodeStoreStatus,
    FactStoreStatus,
    HeldFiring,
    LogRange,
    SinkProgress,
)
from slumberd.storage.audit.damaged_values import find_damaged_values
from slumberd.storage.closed_stores import ClosedStore, StoreName
from slumberd.storage.engine import Session, Work
from slumberd.storage.episodes import recorded_answers
from slumberd.storage.episodes import windows as episode_log
from slumberd.storage.episodes.erasure import episodes_of_erased, facts_of_erased
from slumberd.storage.episodes.rows import decode
from slumberd.storage.episodes.windows import Reader
from slumberd.storage.erased_scopes import load_erased_scopes, read_erased_list
from slumberd.storage.facts import promotion_feed
from slumberd.storage.facts.reads import sum_channels
from slumberd.storage.facts.review import rule_of_row
from slumberd.storage.ledger import erasure
from slumberd.storage.ledger.erased_rows import read_rewrites
from slumberd.storage.ledger.firings import read_shrinkage, readings_of
from slumberd.storage.ledger.future import future_instants
from slumberd.storage.ledger.rows import firing_id_of

T = TypeVar("T")

_LISTED = 100
_FILTER_SECONDS = 1.0
_PAGE_ROWS = 64
"""Rows that are read at a time: usually the first of them wait, if any."""

_CountErased = Callable[[Session, Sequence[ErasedScopes]], Counter[str]]


class StoreInspection:
    """Looks at one store. Each method reads one moment of it; errors are those of `ClosedStore`.

    A method with a limit of seconds returns None when the time was over; None sets no limit.

    Args:
        count_erased: Counts content of erased scopes in it.
    """

    def __init__(self, store: ClosedStore, count_erased: _CountErased) -> None:
        self._store = store
        self._count_erased = count_erased
        self.where = store.where
        self.on_disk = store.on_disk
        self.exists = store.exists
        self.sizes = store.sizes
        self.check_version = store.check_version

    def erased_scopes(self) -> ErasedScopes | None:
        """Return the erased scopes that the store records; None when it never had an erasure."""
        return self._store.look(load_erased_scopes)

    def erased_list(self) -> ErasedList:
        """Return the list of erased scopes of the store; an empty one when it has none."""
        return self._store.look(read_erased_list)

    def count_erased_content(
        self, pasts: Sequence[ErasedScopes], seconds: float | None
    ) -> Counter[str] | None:
        """Count the episodes or facts of erased scopes, by user.

        Args:
            pasts: The erased scopes of all stores of the state directory.
            seconds: The time limit.
        """
        try:
            return self._store.look(
                lambda session: self._count_erased(session, pasts), _limit(seconds)
            )
        except StoppedError:
            return None

    def users(self, limit: int) -> list[str]:
        """Return the first users who have something in the store, in order."""
        raise NotImplementedError

    def _find(self, work: Work[list[T]], seconds: float | None) -> list[T] | None:
        """Return what `work` finds in slumberd's tables; None when the time was over."""
        try:
            return self._store.look_if_begun(work, _limit(seconds)) or []
        except StoppedError:
            return None


class EpisodeInspection(StoreInspection):
    """Looks at a store of episodes.

    Args:
        naive: How to read a timestamp without an offset.
        mismatch: Which of scope key and content names the owner, when they differ.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self,
        store: ClosedStore,
        naive: NaiveTimestamps,
        mismatch: ScopeMismatch = "quarantine",
        person: Collection[str] = PERSON,
    ) -> None:
        super().__init__(store, episodes_of_erased)
        self.has_log = store.is_begun
        self._naive: NaiveTimestamps = naive
        self._mismatch: ScopeMismatch = mismatch
        self._person = person

    def users(self, limit: int) -> list[str]:
        """Return the first users with episodes, in order of their scope keys."""
        found = self._store.look_if_begun(
            lambda session: session.rows("inspection.users_of_episodes", {"limit": limit})
        )
        return [unescape(user) for (user,) in found or ()]

    def last_log_row(self) -> int | None:
        """Return the number of the last row of the episode log; None when there is none."""
        newest = self._store.look_if_begun(episode_log.newest)
        return newest.seq or None if newest else None

    def status(self, wanted: Collection[LogRange]) -> EpisodeStoreStatus | None:
        """Return how many episodes there are, and what lies in some ranges of the log.

        The result is None when slumberd never opened the store.
        """
        return self._store.look_if_begun(partial(_read_backlogs, wanted=wanted))

    def future_episodes(
        self, latest: datetime, seconds: float | None
    ) -> list[EpisodeVersion] | None:
        """Return episodes with an instant later than a given one in UTC, the latest first."""
        return self._find(partial(_find_future, latest=latest, naive=self._naive), seconds)

    def latest_versions(self, limit: int) -> list[EpisodeVersion]:
        """Return what the last rows of the episode log hold, oldest first."""
        find = partial(episode_log.latest_versions, naive=self._naive, limit=limit)
        return self._store.look(find)

    def model_usage(self, day: str) -> ModelUsage:
        """Return what the calls of language models cost on a day, as ``2026-03-09``."""
        return self._store.look(partial(_read_model_usage, day=day))

    def first_unanswered(self, rule: ConsolidationRule, *, after: int, limit: int) -> Turn | None:
        """Return the first turn in a window of the log that waits for an answer.

        Args:
            rule: The rule that asks a language model.
            after: The number of the log row before the window.
            limit: About this many log rows.

        Returns:
            The turn; None when there is none, or when an older slumberd wrote the store.

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
        find = partial(_find_unanswered, reader=reader, after=after, last=after + limit)
        return self._store.look(find)


class FactInspection(StoreInspection):
    """Looks at a store of facts."""

    def __init__(self, store: ClosedStore) -> None:
        super().__init__(store, facts_of_erased)
        self.has_ledger = store.is_begun

    def users(self, limit: int) -> list[str]:
        """Return the first users with facts, in order."""

        def find(session: Session) -> list[str]:
            if not _has_table(session, "facts"):
                return []
            rows = session.rows("inspection.users_of_facts", {"limit": limit})
            return [user for (user,) in rows]

        return self._store.look(find)

    def has_facts_of(self, user: str) -> bool:
        """Return whether a user has facts."""
        return self._store.look(
            lambda session: (
                _has_table(session, "facts")
                and bool(session.value("inspection.any_fact_of_user", {"user": user}))
            )
        )

    def status(self) -> FactStoreStatus | None:
        """Return the state of the store; None when slumberd has never written to it."""
        read = partial(_read_fact_store, open_snapshots=self._store.open_snapshots)
        return self._store.look_if_begun(read)

    def unreached_retractions(self, seconds: float | None) -> list[str] | None:
        """Return at most 100 episodes whose retraction has covered nothing so far, oldest first."""

        def find(session: Session) -> list[str]:
            rows = session.rows("inspection.unresolved", {"limit": _LISTED})
            return [str(fact_id) for (fact_id,) in rows]

        return self._find(find, seconds)

    def disagreeing_facts(self, seconds: float | None) -> list[tuple[str, str]] | None:
        """Return at most 100 pairs of current facts that differ for a single-valued key, by key.

        The first fact of a pair is declared, the second comes from a rule or a person.
        """

        def find(session: Session) -> list[tuple[str, str]]:
            rows = session.rows("inspection.disagreements", {"limit": _LISTED})
            return [(str(declared), str(promoted)) for declared, promoted in rows]

        return self._find(find, seconds)

    def damaged_values(self, seconds: float | None) -> list[str] | None:
        """Return at most 100 values in slumberd's tables that slumberd never writes, in words."""

        def find(session: Session) -> list[str]:
            return [value.words() for value in islice(find_damaged_values(session), _LISTED)]

        return self._find(find, seconds)

    def shrinkage(self, since: int) -> Shrinkage | None:
        """Return how the number of facts changed since an instant, microseconds since 1970 UTC.

        The result is None when slumberd has never written to the store.
        """
        return self._store.look_if_begun(partial(read_shrinkage, since=since))

    def count_erasures(self, after: int) -> int:
        """Count the erasures after a row of the ledger."""
        count: int | None = self._store.look_if_begun(
            lambda session: session.value("inspection.erasures", {"after": after})
        )
        return count or 0

    def recorded_erasures(self) -> RecordedErasures | None:
        """Return the erased scopes that the ledger records; None when there is no ledger."""
        return self._store.look_if_begun(erasure.read_recorded_erasures)

    def erased_rows(self, seconds: float | None) -> ErasedRows | None:
        """Compare the blank rows of the ledger with its erasures; None when there is no ledger.

        Args:
            seconds: The time limit; the result is None when the time was over, too.
        """
        try:
            return self._store.look_if_begun(erasure.read_erased_rows, _limit(seconds))
        except StoppedError:
            return None


def _limit(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _has_table(session: Session, name: str) -> bool:
    """Return whether a store has a table, which other programs or older releases may lack."""
    return bool(session.value("inspection.has_table", {"name": name}))


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


def _find_future(
    session: Session, latest: datetime, naive: NaiveTimestamps
) -> list[EpisodeVersion]:
    # Whatever its offset, the text of a timestamp is within two days of its instant in UTC.
    floor = (latest - timedelta(days=2)).date().isoformat()
    rows = session.rows("inspection.future", {"latest": latest.isoformat(), "floor": floor})
    found = [decode(0, row, mismatch="trust_scope", naive=naive) for row in rows]
    ahead = [version for version in found if version.at > microseconds(latest)]
    return sorted(ahead, key=lambda version: (-version.at, version.id))


def _read_model_usage(session: Session, day: str) -> ModelUsage:
    if not _has_table(session, "slumberd_model_usage"):
        return ModelUsage()
    return recorded_answers.spent(session, day)


def _find_unanswered(session: Session, reader: Reader, after: int, last: int) -> Turn | None:
    if not _has_table(session, "slumberd_extractions"):
        return None
    while after < last:
        found = reader.questions(session, after, _PAGE_ROWS, again=False)
        if found.questions:
            return found.questions[0].turn
        if found.upto == after:
            return None
        after = found.upto
    return None


def _read_fact_store(
    session: Session, open_snapshots: Callable[[Session], Sequence[str]]
) -> FactStoreStatus:
    watermarks = session.rows("ledger.watermarks")
    last = session.one("ledger.last_row")
    fired = session.rows("inspection.last_firings")
    rewrites = read_rewrites(session)
    return FactStoreStatus(
        facts=session.value("inspection.count_facts"),
        rows=last[0] if last else 0,
        unlogged=session.value("inspection.unlogged"),
        triggered=not session.find_schema_change(),
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
        rewrites=rewrites,
        snapshots=open_snapshots(session) if rewrites else (),
        future=future_instants(session.rows("ledger.future_instants")),
        recorded=(session.one("inspection.last_recorded") or (None,))[0],
        latest_claim=session.value("inspection.latest_claim"),
        readings=readings_of(session, (rule for rule, _, _, _ in watermarks)),
    )


class StoreInspections(NamedTuple):
    """Looks at the two stores of a state directory."""

    episodes: EpisodeInspection
    facts: FactInspection

    def of(self, store: StoreName) -> StoreInspection:
        """Return what looks at one of them."""
        return self.episodes if store == "memory" else self.facts
