"""The parts of a daemon that serves, and the operations that they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from slumberd.clock import Clock, CommitSignal
from slumberd.daemon.reload import Reloading
from slumberd.daemon.stores import erase_files_of
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.corrections import Corrections
from slumberd.operations.episodes import EpisodeReads
from slumberd.operations.facts import FactReads
from slumberd.operations.handlers import Answer, Handler, handlers_of
from slumberd.operations.ledger import HeldReads, LedgerReads
from slumberd.operations.outcomes import Outcomes
from slumberd.operations.pauses import Pausing
from slumberd.operations.puts import EpisodePuts
from slumberd.operations.quarantine import QuarantineReads
from slumberd.operations.reads.rule_states import RuleProgressReader
from slumberd.operations.report import Reports
from slumberd.operations.rules import CadenceReads, Loaded, RuleReads, served_instants
from slumberd.operations.search import Search
from slumberd.operations.stores import Stores
from slumberd.operations.transcript_counts import TranscriptFile
from slumberd.operations.users import UserMoving, Users
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.settings import Settings
from slumberd.search.searcher import Searcher
from slumberd.workers.provenance.publisher import ProvenancePublisher
from slumberd.workers.scheduling.alarm import Alarm
from slumberd.workers.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a daemon that serves.

    Attributes:
        stores: The episodes and the facts.
        runner: Fires rules into the facts.
        operations: Runs the operations that commands request.
        scheduler: Fires the rules that are due.
        alarm: Wakes the scheduler.
        pausing: Pauses and resumes rules.
        moving: Moves users to other shards.
        reloading: Reads the configuration and the rules again.
        publisher: Publishes provenance; None without a sink.
        commits: Tells the interfaces when something was committed.
        progress: Reads how far rules are.
        searcher: Searches the episodes and facts.
    """

    stores: Stores
    runner: RuleRunner
    operations: Operations
    scheduler: Scheduler
    alarm: Alarm
    pausing: Pausing
    moving: UserMoving
    reloading: Reloading
    publisher: ProvenancePublisher | None
    commits: CommitSignal
    progress: RuleProgressReader
    searcher: Searcher

    def operations_by_name(
        self, settings: Settings, loaded: Callable[[], Loaded], clock: Clock
    ) -> dict[str, Handler]:
        """Return the operations on memory, facts and rules, by name.

        Args:
            loaded: Returns the rules in force, and the time zone of rules without one.
        """
        stores = self.stores
        transcripts = TranscriptFile(settings.state_dir)

        async def erased(user: str) -> int:
            await self.searcher.forget(user)
            return await erase_files_of(settings, user)

        self.operations.erasures.erased = erased
        tolerance = timedelta(seconds=settings.memory.future_tolerance)
        outcomes = Outcomes(
            stores,
            rules=lambda: loaded()[0],
            clock=clock,
            tolerance=tolerance,
            commits=self.commits,
            paused=lambda: self.pausing.paused,
        )
        puts = EpisodePuts(
            stores.memory,
            outcomes,
            rules=lambda: loaded()[0],
            clock=clock,
            tolerance=tolerance,
            capture=settings.capture_rules,
            transcripts=transcripts,
        )
        rules = RuleReads(
            stores,
            self.progress,
            loaded=loaded,
            paused=lambda: self.pausing.paused,
            clock=clock,
            tolerance_seconds=settings.memory.future_tolerance,
        )
        announcing = self.operations.handlers
        return {
            **{name: _announced(handler, self.commits) for name, handler in announcing.items()},
            **handlers_of(
                puts,
                EpisodeReads(stores.memory),
                outcomes,
                Search(self.searcher),
                FactReads(stores.facts),
                Corrections(stores.facts, self.operations),
                Reports(stores.facts, clock),
                LedgerReads(stores.facts, self.commits),
                HeldReads(stores.facts),
                QuarantineReads(stores.facts),
                Users(stores.facts),
                rules,
                CadenceReads(
                    loaded, lambda: self.pausing.paused, lambda: served_instants(stores.facts)
                ),
                self.pausing,
                self.moving,
            ),
        }


def _announced(handler: Handler, commits: CommitSignal) -> Handler:
    """Return a handler that announces a commit after each call."""

    async def handle(request: dict[str, object], caller: Caller) -> Answer:
        try:
            return await handler(request, caller)
        finally:
            commits.announce()

    return handle
