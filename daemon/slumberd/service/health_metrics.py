"""Examine the daemon and its rules: how much waits, for how long, and what fails.

Add up what all batches of the ledger came to; only those that are new are read.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.cadence import Cron, Every
from slumberd.model.episode import microseconds
from slumberd.model.firing import Position
from slumberd.model.health import ProvenanceVitals, RuleVitals, Tallies, Tally, Vitals
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling import cron
from slumberd.scheduling.due import Trouble
from slumberd.scheduling.due_finder import Mark
from slumberd.storage.facts.store import SQLiteFactStore

AT_ONCE = 2_000
"""Batches that are read at a time; the loop goes on in between."""


class Counting:
    """The sums so far, of a daemon that runs."""

    def __init__(self) -> None:
        self._upto = 0
        self._sums: dict[str, Tally] = defaultdict(Tally)

    async def tallies(self, facts: SQLiteFactStore, episodes: EpisodeLog) -> Tallies:
        """Read what is new, and return the sums.

        Raises:
            StoreError: A store cannot be read.
        """
        while found := await facts.counts(self._upto, limit=AT_ONCE):
            for number, rule, channels in found:
                self._sums[rule] = self._sums[rule].plus(Tally.of(channels))
                self._upto = number
        rows = await facts.ledger_rows()
        return Tallies(rows, (await episodes.newest()).seq, dict(self._sums))


MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""

_ANY = ConsolidationRule(
    id="heartbeat", cadence={"every": 1}, when_filter="", then_emits=["heartbeat"]
)

_Asked = tuple[str, str, datetime]
"""A cron expression, its time zone, and the instant after which."""


@dataclass(frozen=True, slots=True)
class HealthSources:
    """What is examined.

    Attributes:
        episodes: What rules read.
        facts: Where they write.
        rules: Returns those in force, and the time zone of those that name none.
        awake: Returns which of some rules nobody has paused.
        troubles: Returns which rules fail.
        files: The databases.
        dropped: Returns how many log lines were dropped.
        reader: The name of the sink of provenance; None when there is none.
        failed: Returns how often each rule has failed.
        counted: Whether somebody wants to know what all batches came to.
    """

    episodes: EpisodeLog
    facts: SQLiteFactStore
    rules: Callable[[], tuple[Sequence[ConsolidationRule], str]]
    awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]]
    troubles: Callable[[], Mapping[str, Trouble]]
    files: Sequence[Path]
    dropped: Callable[[], int]
    reader: str | None = None
    failed: Callable[[], Mapping[str, int]] = dict
    counted: bool = False


class _Place(NamedTuple):
    """What lies above a place of the log."""

    pending: int
    oldest_seconds: float | None


_NOWHERE = _Place(0, None)


class _Written(NamedTuple):
    """What the facts say of rules.

    Attributes:
        succeeded: When each rule's last firing that went well began.
        quarantined: How many episodes of each rule are in quarantine.
        held: The rules with a batch that awaits approval.
    """

    succeeded: Mapping[str, datetime]
    quarantined: Counter[str]
    held: frozenset[str]


class HealthCollector:
    """Looks how the daemon is, again and again; it remembers since when rules are due."""

    def __init__(self, body: HealthSources, clock: Clock) -> None:
        self._body = body
        self._clock = clock
        self._began = clock.monotonic()
        self._full: dict[str, float] = {}
        self._counting = Counting()

    async def vitals(self, loop_lag: float) -> Vitals:
        """Return how everything is; how late the event loop is, the caller knows.

        Raises:
            StoreError: A store cannot say how it is.
        """
        (rules, timezone), now = self._body.rules(), self._clock.now()
        active = {rule.id: rule for rule in rules if rule.enabled}
        marks = {
            name: mark
            for name, mark in (await self._body.facts.watermarks()).items()
            if name in active
        }
        read = {name: mark for name, mark in marks.items() if active[name].reads_episodes}
        places = await self._places({mark for mark, _ in read.values()}, now)
        written = await self._written()
        going = {name: mark for name, mark in marks.items() if name not in written.held}
        late = await self._late(active, timezone, going, places, now)
        tallies = await self._tallies()
        return Vitals(
            at=now,
            uptime_seconds=round(self._clock.monotonic() - self._began, 3),
            loop_lag_seconds=round(loop_lag, 3),
            wal_bytes=sum(map(_wal_bytes, self._body.files)),
            rss_bytes=_rss_bytes(),
            dropped=self._body.dropped(),
            loaded=len(rules),
            rules=self._of_rules(active, read, places, late, written, tallies),
            oldest_seconds=places[min(places)].oldest_seconds if places else None,
            next_at=await asyncio.to_thread(_next_at, active.values(), timezone, now),
            succeeded_at=max(written.succeeded.values(), default=None),
            quarantined=written.quarantined.total(),
            held=len(written.held),
            provenance=await self._provenance(now),
            tallies=tallies,
        )

    async def _tallies(self) -> Tallies | None:
        if not self._body.counted:
            return None
        return await self._counting.tallies(self._body.facts, self._body.episodes)

    async def _provenance(self, now: datetime) -> ProvenanceVitals | None:
        """Return how far the sink of provenance is behind."""
        reader = self._body.reader
        if reader is None:
            return None
        lag = await self._body.facts.lag(reader)
        _, refused = await self._body.facts.published_position(reader)
        return ProvenanceVitals(lag.rows, lag.seconds(now), refused)

    def _of_rules(
        self,
        active: Iterable[str],
        marks: Mapping[str, Mark],
        places: Mapping[Position, _Place],
        late: Mapping[str, float],
        written: _Written,
        tallies: Tallies | None,
    ) -> list[RuleVitals]:
        troubles, failed = self._body.troubles(), self._body.failed()
        found = []
        for name in active:
            place = places[marks[name][0]] if name in marks else _NOWHERE
            failures = troubles[name].failures if name in troubles else 0
            found.append(
                RuleVitals(
                    name,
                    place.pending,
                    place.oldest_seconds,
                    late.get(name, 0.0),
                    written.succeeded.get(name),
                    failures,
                    written.quarantined[name],
                    int(name in written.held),
                    failed.get(name, 0),
                    tallies.by_rule.get(name, Tally()) if tallies else None,
                )
            )
        return found

    async def _places(self, marks: Iterable[Position], now: datetime) -> dict[Position, _Place]:
        """Look what lies above each place of the log; most rules stand at the same few."""
        places = {}
        for mark in marks:
            pending = await self._body.episodes.pending(mark.seq, at_most=MOST_PENDING)
            places[mark] = _Place(pending, await self._age(mark, now) if pending else None)
        return places

    async def _age(self, mark: Position, now: datetime) -> float | None:
        """Return how old the first episode above a place is; None when there is none."""
        # No rule's own filter: one that fails is told elsewhere, and must not end the heartbeat.
        window = await self._body.episodes.select(_ANY, after=mark, limit=1)
        if not window.versions:
            return None
        return round((microseconds(now) - window.versions[0].at) / 1e6, 3)

    async def _late(
        self,
        active: Mapping[str, ConsolidationRule],
        timezone: str,
        marks: Mapping[str, Mark],
        places: Mapping[Position, _Place],
        now: datetime,
    ) -> dict[str, float]:
        """Return for how long rules have been due; not those that are paused."""
        awake = self._body.awake([active[name] for name in marks])
        full = {
            rule.id: places[marks[rule.id][0]]
            for rule in awake
            if isinstance(rule.due, Every)
            and await self._is_full(rule.due, marks[rule.id][0], places)
        }
        crons = {
            rule.id: (rule.due.expression, rule.due.timezone or timezone, marks[rule.id][1])
            for rule in awake
            if isinstance(rule.due, Cron)
        }
        due_at = await asyncio.to_thread(_next_of, set(crons.values()))
        unserved = {
            name: (now - due_at[cron]).total_seconds()
            for name, cron in crons.items()
            if cron in due_at
        }
        late = {**self._full_for(full), **unserved}
        return {name: max(0.0, round(seconds, 3)) for name, seconds in late.items()}

    async def _is_full(
        self, cadence: Every, mark: Position, places: Mapping[Position, _Place]
    ) -> bool:
        if cadence.count <= MOST_PENDING or places[mark].pending < MOST_PENDING:
            return places[mark].pending >= cadence.count
        pending = await self._body.episodes.pending(mark.seq, at_most=cadence.count)
        return pending >= cadence.count

    def _full_for(self, full: Mapping[str, _Place]) -> dict[str, float]:
        """Return for how long rules have been due by what waits for them.

        Neither longer than that was seen, for the first may have waited days for the last, and an
        import brings old episodes; nor longer than the first has waited, for where episodes come
        all the time, some are met at every look.
        """
        monotonic = self._clock.monotonic()
        self._full = {name: self._full.get(name, monotonic) for name in full}
        return {
            name: min(monotonic - self._full[name], place.oldest_seconds or 0.0)
            for name, place in full.items()
        }

    async def _written(self) -> _Written:
        facts = self._body.facts
        held = (await facts.held()).values()
        return _Written(
            await facts.successes(),
            Counter(await facts.quarantined()),
            frozenset(one.rule_id for one in held if not one.approved),
        )


def _next_at(rules: Iterable[ConsolidationRule], timezone: str, now: datetime) -> datetime | None:
    """Return the next instant of any rule; an expression that many have is asked once."""
    dues = [rule.due for rule in rules if isinstance(rule.due, Cron)]
    asked = {(due.expression, due.timezone or timezone, now) for due in dues}
    return min(_next_of(asked).values(), default=None)


def _next_of(asked: Iterable[_Asked]) -> dict[_Asked, datetime]:
    """Return the first instant of each expression; none where nothing comes any more."""
    found = {}
    for expression, zone, after in asked:
        with suppress(ValueError):
            found[expression, zone, after] = cron.next_instant(expression, zone, after=after)
    return found


def _wal_bytes(database: Path) -> int:
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except OSError:
        return 0


def _rss_bytes() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
