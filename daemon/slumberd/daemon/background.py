"""Watch the facts in the background.

Record external changes, report ineffective rules, and log that many facts went within a day,
whatever caused it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from slumberd.clock import Clock, set_within
from slumberd.model.episode import microseconds
from slumberd.model.errors import StoreError, SupersededError
from slumberd.model.firing import Report
from slumberd.model.record import FEW_FACTS, WITHIN, Reduction, Retraction
from slumberd.storage.facts.reads import FactReader
from slumberd.storage.ledger.undo import UNDO

EVERY_SECONDS = 0.5
"""The interval between two searches for external changes; a search takes about 0.3 ms."""

EVERY_SECONDS_OF_A_DATABASE = 30.0
"""The same for a database, whose facts no other program writes. The search then only checks that
this daemon may still write, as each of its transactions does, too."""

MOST_INEFFECTIVE = 3
"""After this many ineffective firings in a row, a rule may be reported."""

MOST_READ = 100
"""The least number of episodes without an effect, too: most turns of a chat state nothing."""

_log = structlog.get_logger("slumberd")


async def record_external_changes(
    record: Callable[[], Awaitable[int]],
    stop: asyncio.Event,
    *,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Record external changes of the facts repeatedly, until `stop` is set.

    Args:
        record: Records the changes; returns the number of ledger rows.
        stop: Ends the loop.
        every_seconds: The pause between two searches.

    Raises:
        SupersededError: Another daemon has taken over, or the store was replaced.
    """
    failing = False
    while not stop.is_set():
        try:
            rows = await record()
        except SupersededError:
            raise
        except (StoreError, OSError) as error:  # a full disk of the log, too
            if not failing:
                _log.error("external.failed", error=type(error).__name__, message=str(error))
            failing = True
        else:
            failing = False
            if rows:
                _log.info("external.noticed", rows=rows)
        await set_within(stop, every_seconds)


class EffectTracker:
    """Logs ``rule.ineffective`` once for a rule whose firings have no effect, until one has."""

    def __init__(self) -> None:
        self._firings: Counter[str] = Counter()
        self._read: Counter[str] = Counter()

    def record(self, rule_id: str, report: Report, *, gated: bool = False) -> None:
        """Count a firing as effective or not.

        Args:
            report: What the firing did.
            gated: Whether the rule has a salience gate, which may hold back all it selects.
        """
        counts = report.channels.values()
        if any(each.added or each.updated or each.deleted or each.restored for each in counts):
            del self._firings[rule_id], self._read[rule_id]
        elif gated and any(each.noop for each in counts):
            return
        elif read := max((each.read for each in counts), default=0):
            known = self._is_ineffective(rule_id)
            self._firings[rule_id] += 1
            self._read[rule_id] += read
            if self._is_ineffective(rule_id) and not known:
                firings, total = self._firings[rule_id], self._read[rule_id]
                _log.warning("rule.ineffective", rule_id=rule_id, firings=firings, read=total)

    def _is_ineffective(self, rule_id: str) -> bool:
        return self._firings[rule_id] >= MOST_INEFFECTIVE and self._read[rule_id] >= MOST_READ


class _Command(NamedTuple):
    """What a command has retracted so far, its last firing, and whether that is logged."""

    last: Retraction = Retraction("", "", "", 0)
    retracted: int = 0
    is_logged: bool = False


def _log_command(command: _Command, before: int) -> None:
    """Log what a command retracted, and the command that takes it back, or shows it."""
    last = command.last
    undo = f"slumberd undo --run {last.run}" if last.run else f"slumberd undo {last.firing_id}"
    is_undoable = last.rule_id == UNDO or not last.rule_id.startswith("@")
    _log.warning(
        "facts.retracted",
        rule_id=last.rule_id,
        firing_id=last.firing_id,
        run_id=last.run,
        retracted=command.retracted,
        before=before,
        remedy=undo if is_undoable else "slumberd report",
    )


REDUCTION_SECONDS = 10.0
"""The pause between two looks at the ledger; without new rows a look reads one row."""

PAUSES = 99
"""A pause is at least so many times as long as the look before it, which may count all facts."""


class ReductionAlarm:
    """Logs each alarming reduction of facts, and each command that retracted alarmingly many.

    ``facts.reduced`` is logged once until the reduction is over. ``facts.retracted`` is logged once
    for a command, also when its deletion limits or a person allowed it.

    Args:
        reads: Reads the ledger.
        fraction: Returns the setting ``limits.alarm_fraction``.
        rows: The row of the ledger to begin after; below 0, earlier commands are not logged.
    """

    def __init__(
        self,
        reads: FactReader,
        fraction: Callable[[], float | None],
        clock: Clock,
        *,
        rows: int = -1,
    ) -> None:
        self._reads = reads
        self._fraction = fraction
        self._clock = clock
        self._rows = rows
        self._known: set[str | None] = set()
        self._commands: dict[tuple[str, str], _Command] = {}

    async def check(self) -> None:
        """Look for reductions, when the ledger has new rows."""
        rows = await self._reads.ledger_rows()
        if rows == self._rows:
            return
        shrinkage = await self._reads.shrinkage(microseconds(self._clock.now() - WITHIN))
        if self._rows >= 0:
            retractions = await self._reads.retractions(self._rows)
            self.check_commands(retractions, shrinkage.most_of_all)
        self._rows = rows
        found = [*shrinkage.reductions(self._fraction())]
        fresh = [reduction for reduction in found if reduction.user not in self._known]
        self._known = {reduction.user for reduction in found}
        if fresh:
            _log_reductions(fresh)

    def check_commands(self, retractions: Sequence[Retraction], before: int) -> None:
        """Log the commands that retracted alarmingly many of `before` facts.

        The batches of a command may be committed between two looks, so its count is kept until
        the look after its last batch.
        """
        commands: dict[tuple[str, str], _Command] = {}
        for one in retractions:
            key = one.rule_id, one.run or one.firing_id
            command = commands.get(key) or self._commands.get(key) or _Command()
            commands[key] = _Command(one, command.retracted + one.retracted, command.is_logged)
        fraction = self._fraction()
        for key, command in commands.items():
            alarming = fraction is not None and command.retracted >= fraction * before
            if alarming and command.retracted > FEW_FACTS and not command.is_logged:
                _log_command(command, before)
                commands[key] = command._replace(is_logged=True)
        self._commands = commands

    async def run(self, stop: asyncio.Event, *, every_seconds: float = REDUCTION_SECONDS) -> None:
        """Check repeatedly, until `stop` is set; the looks take at most a hundredth of the time."""
        while not stop.is_set():
            begun = self._clock.monotonic()
            with suppress(StoreError):  # a firing reports a ledger that cannot be read
                await self.check()
            took = self._clock.monotonic() - begun
            await set_within(stop, max(every_seconds, PAUSES * took))


def _log_reductions(found: list[Reduction]) -> None:
    """Log reductions in one line, without the users; the facts of all come first."""
    users = [reduction for reduction in found if reduction.user is not None]
    counted = found[:1] if found[0].user is None else users
    _log.warning(
        "facts.reduced",
        before=sum(reduction.before for reduction in counted),
        now=sum(reduction.now for reduction in counted),
        users=len(users),
    )
