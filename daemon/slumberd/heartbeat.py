"""The heartbeat: a line each minute that tells how the daemon is, while it is."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from slumberd import cron
from slumberd.branches import Branches
from slumberd.core.cadence import Cron, Every
from slumberd.core.episode import microseconds
from slumberd.core.firing import Position
from slumberd.core.rule import ConsolidationRule
from slumberd.core.trouble import Trouble
from slumberd.core.vitals import RuleVitals, Vitals
from slumberd.errors import SlumberdError
from slumberd.exposition import exposition
from slumberd.lines import timestamp
from slumberd.lookout import Mark
from slumberd.ports import Clock, EpisodeLog
from slumberd.waiting import set_within

EVERY_SECONDS = 60
"""Between two heartbeats."""

MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""

MOST_NAMED = 10
"""Rules that a line names: those with the most that is pending."""

_ANY = ConsolidationRule(
    id="heartbeat", cadence={"every": 1}, when_filter="", then_emits=["heartbeat"]
)
_SAMPLE_SECONDS = 1.0

_Asked = tuple[str, str, datetime]
"""A cron expression, its time zone, and the instant after which."""

_log = structlog.get_logger("slumberd")


@dataclass(frozen=True, slots=True)
class Body:
    """What has a heartbeat.

    Attributes:
        episodes: What rules read.
        branches: Where they write.
        rules: Returns those in force, and the time zone of those that name none.
        awake: Returns which of some rules nobody has paused.
        troubles: Returns which rules fail.
        files: The databases.
        dropped: Returns how many log lines were dropped.
        textfile: Takes the same figures as Prometheus reads them; None when nobody wants them.
    """

    episodes: EpisodeLog
    branches: Branches
    rules: Callable[[], tuple[Sequence[ConsolidationRule], str]]
    awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]]
    troubles: Callable[[], Mapping[str, Trouble]]
    files: Sequence[Path]
    dropped: Callable[[], int]
    textfile: Callable[[bytes], None] | None = None


class Heartbeat:
    """Logs ``daemon.heartbeat``, and measures how late the event loop is in between."""

    def __init__(self, body: Body, clock: Clock) -> None:
        self._body = body
        self._clock = clock
        self._began = clock.monotonic()
        self._lag = 0.0
        self._unwritten = False

    async def keep(self, stop: asyncio.Event) -> None:
        """Beat until `stop` is set."""
        while not stop.is_set():
            for _ in range(EVERY_SECONDS):
                began = self._clock.monotonic()
                if await set_within(stop, _SAMPLE_SECONDS):
                    return
                self.measured(self._clock.monotonic() - began - _SAMPLE_SECONDS)
            await self.beat()

    def measured(self, lag: float) -> None:
        """Remember by how many seconds the loop was late, until the next beat."""
        self._lag = max(self._lag, lag)

    async def beat(self) -> None:
        """Log one line, and write the textfile; neither while a store is in trouble."""
        try:
            vitals = await self._vitals()
        except SlumberdError as error:
            _log.warning("heartbeat.failed", error=type(error).__name__, message=str(error))
            return
        self._lag = 0.0
        _log.info("daemon.heartbeat", **_told(vitals))
        if self._body.textfile is not None:
            await self._write(self._body.textfile, exposition(vitals))

    async def _write(self, textfile: Callable[[bytes], None], text: bytes) -> None:
        try:
            await asyncio.to_thread(textfile, text)
        except OSError as error:
            if not self._unwritten:
                _log.warning("metrics.failed", error=type(error).__name__, message=str(error))
            self._unwritten = True
        else:
            self._unwritten = False

    async def _vitals(self) -> Vitals:
        (rules, timezone), now = self._body.rules(), self._clock.now()
        active = {rule.id: rule for rule in rules if rule.enabled}
        marks = {
            name: mark
            for name, mark in (await self._body.branches.watermarks()).items()
            if name in active
        }
        places = await self._places({mark for mark, _ in marks.values()}, now)
        late = await self._late(active, timezone, marks, places, now)
        written = await self._written()
        return Vitals(
            at=now,
            uptime_seconds=round(self._clock.monotonic() - self._began, 3),
            loop_lag_seconds=round(self._lag, 3),
            wal_bytes=sum(map(_wal_bytes, self._body.files)),
            rss_bytes=_rss_bytes(),
            dropped=self._body.dropped(),
            loaded=len(rules),
            rules=self._of_rules(active, marks, places, late, written),
            oldest_seconds=places[min(places)].oldest_seconds if places else None,
            next_at=await asyncio.to_thread(_next_at, active.values(), timezone, now),
            succeeded_at=max(written.succeeded.values(), default=None),
            quarantined=written.quarantined.total(),
            held=written.held.total(),
        )

    def _of_rules(
        self,
        active: Iterable[str],
        marks: Mapping[str, Mark],
        places: Mapping[Position, _Place],
        late: Mapping[str, float],
        written: _Written,
    ) -> list[RuleVitals]:
        troubles = self._body.troubles()
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
                    written.held[name],
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
        """Return for how long rules have been due; not those that rest or wait for a person."""
        held = await self._body.branches.held()
        awake = self._body.awake([active[name] for name in marks if name not in held])
        crons = {
            rule.id: (rule.due.expression, rule.due.timezone or timezone, marks[rule.id][1])
            for rule in awake
            if isinstance(rule.due, Cron)
        }
        since = await asyncio.to_thread(_next_of, set(crons.values()))
        late = {
            name: (now - since[cron]).total_seconds()
            for name, cron in crons.items()
            if cron in since
        }
        for rule in awake:
            place = places[marks[rule.id][0]]
            if isinstance(rule.due, Every) and place.pending >= rule.due.count:
                late[rule.id] = place.oldest_seconds or 0.0
        return {name: max(0.0, round(seconds, 3)) for name, seconds in late.items()}

    async def _written(self) -> _Written:
        written = _Written({}, Counter(), Counter())
        for branch in self._body.branches:
            for name, at in (await branch.facts.successes()).items():
                written.succeeded[name] = max(at, written.succeeded.get(name, at))
            written.quarantined.update(await branch.facts.quarantined())
            held = (await branch.facts.held()).values()
            written.held.update(one.rule_id for one in held if not one.approved)
        return written


class _Place(NamedTuple):
    """What lies above a place of the log."""

    pending: int
    oldest_seconds: float | None


_NOWHERE = _Place(0, None)


class _Written(NamedTuple):
    """What the fact stores say, by rule."""

    succeeded: dict[str, datetime]
    quarantined: Counter[str]
    held: Counter[str]


def _told(vitals: Vitals) -> dict[str, Any]:
    """Return the figures as the log has them."""
    since = vitals.at - vitals.succeeded_at if vitals.succeeded_at else None
    waiting = [rule for rule in vitals.rules if rule.pending]
    return {
        "uptime_seconds": vitals.uptime_seconds,
        "loop_lag_seconds": vitals.loop_lag_seconds,
        "wal_bytes": vitals.wal_bytes,
        "rss_bytes": vitals.rss_bytes,
        "dropped": vitals.dropped,
        "rules": vitals.loaded,
        "pending": sum(rule.pending for rule in waiting),
        "oldest_pending_seconds": vitals.oldest_seconds,
        "late_seconds": vitals.late_seconds,
        "behind": [
            {
                "rule_id": rule.rule_id,
                "pending": rule.pending,
                "oldest_seconds": rule.oldest_seconds,
            }
            for rule in nlargest(MOST_NAMED, waiting, key=lambda rule: rule.pending)
        ],
        "failing": vitals.failing,
        "degraded": vitals.degraded,
        "next_at": timestamp(vitals.next_at) if vitals.next_at else None,
        "last_success_seconds": round(since.total_seconds(), 3) if since is not None else None,
        "held": vitals.held,
        "quarantined": vitals.quarantined,
    }


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
