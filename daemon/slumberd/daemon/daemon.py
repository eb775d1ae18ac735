"""Run the daemon from start to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog

from slumberd.clock import Clock, CommitSignal, set_within, synchronised_time
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.protocols import CountedLogs
from slumberd.daemon.background import (
    EVERY_SECONDS,
    EVERY_SECONDS_OF_A_DATABASE,
    REDUCTION_SECONDS,
    EffectTracker,
    ReductionAlarm,
    record_external_changes,
)
from slumberd.daemon.components import Components
from slumberd.daemon.composition import (
    moves_of,
    open_under,
    provenance_sink,
    publisher_of,
    refuse_network_of,
    retention_of,
    rule_runner_of,
    tenure_of,
    tune_interpreter,
)
from slumberd.daemon.control_socket import listen
from slumberd.daemon.erased_content import find_at_start
from slumberd.daemon.heartbeat import EVERY_SECONDS as HEARTBEAT_SECONDS
from slumberd.daemon.heartbeat import (
    MOST_NAMED,
    HealthCollector,
    HealthSources,
    Heartbeat,
    StandbyHeartbeat,
)
from slumberd.daemon.interfaces import Interface, Served, TracedCalls
from slumberd.daemon.language_model import answer_recorder, model_worker_of, read_model_state
from slumberd.daemon.reload import Follow, InForce, Load, Reloading, apply_channels
from slumberd.daemon.rules import paused_rules_of
from slumberd.daemon.shard_counts import count_shards
from slumberd.daemon.stage_notes import delete_shared_notes, stage_notes_of
from slumberd.daemon.standby import Standby
from slumberd.daemon.stores import database_status_of, inspections_of, searcher_of
from slumberd.daemon.systemd import Notifier, Watchdog, pulse_beside_rewriting
from slumberd.daemon.tenure import Tenure
from slumberd.file_modes import make_directory
from slumberd.logs.lines import timestamp
from slumberd.logs.prometheus import write_textfile
from slumberd.model.episode import instant, latest_at
from slumberd.model.errors import (
    StoppedError,
    StoreError,
    SupersededError,
    TailLostError,
    UsageError,
)
from slumberd.model.firing import Position
from slumberd.model.health import DaemonHealth, Finding
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import (
    Answer,
    Dispatcher,
    Handler,
    handler_of,
    observe_calls,
    refuse_other_shards,
)
from slumberd.operations.pauses import Pausing
from slumberd.operations.reads.rule_states import RuleProgressReader
from slumberd.operations.registry import OPERATIONS
from slumberd.operations.stores import Stores
from slumberd.operations.users import UserMoving
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.operations.writes.put_once import OncePutter
from slumberd.operations.writes.rule_runner import RuleRunner, Turn, new_run_id
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.protocols import Watch
from slumberd.workers.language_models.recorder import AnswerRecorder
from slumberd.workers.provenance.publisher import ProvenancePublisher
from slumberd.workers.scheduling.alarm import Alarm
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler


class Intervals(NamedTuple):
    """How often a daemon repeats its background work.

    Attributes:
        log_retry_seconds: Between two attempts to write lines that the log did not take.
        heartbeat_seconds: Between two heartbeats.
        quiet_seconds: Between two looks whether the bytes of erasures can be removed. Without a
            new episode between two looks, the window counts as quiet. As often, a step prunes the
            episode log.
        save_seconds: Between two looks whether an index of the search is to be saved.
    """

    log_retry_seconds: float = 1.0
    heartbeat_seconds: int = HEARTBEAT_SECONDS
    quiet_seconds: float = 60.0
    save_seconds: float = 10.0


INTERVALS = Intervals()


class HostProcess(NamedTuple):
    """A process that runs the daemons of several shards.

    Attributes:
        name: The name under which it holds its shards.
        commits: Tells its interfaces when something was committed.
        serve: Answers the requests for the shard by these operations while the block runs.
    """

    name: str
    commits: CommitSignal
    serve: Callable[[Mapping[str, Handler]], AbstractAsyncContextManager[None]]


_log = structlog.get_logger("slumberd")


class Daemon:
    """One run of slumberd over a state directory.

    Args:
        rules: The rules to fire.
        load: Reads configuration and rules again, for a reload.
        logs: The log of deltas.
        notifier: Reports to the service manager.
        intervals: How often background work is repeated.
        interfaces: What serves beside the control socket, in the same event loop.
        waits: Whether to stand by while another daemon holds the database; else it is refused.
        process: The process that runs this daemon beside those of other shards, and has the control
            socket, the heartbeat and the interfaces; None for a daemon that has them itself.

    Attributes:
        health: Returns the figures of the heartbeat as of now; None until the daemon serves.
    """

    def __init__(  # noqa: PLR0913 # one for each part that it joins
        self,
        settings: Settings,
        rules: RuleSet,
        load: Load,
        *,
        clock: Clock,
        logs: CountedLogs,
        notifier: Notifier,
        intervals: Intervals = INTERVALS,
        interfaces: Sequence[Interface] = (),
        waits: bool = True,
        process: HostProcess | None = None,
    ) -> None:
        self._settings = settings
        self._in_force = InForce(settings, rules)
        self._load = load
        self._clock = clock
        self._logs = logs
        self._notifier = notifier
        self._intervals = intervals
        self._interfaces = interfaces
        self._waits = waits and process is None
        self._process = process
        self.health: Callable[[], Awaitable[DaemonHealth]] | None = None
        self._effects = EffectTracker()
        self._commits = CommitSignal() if process is None else process.commits
        self._look_again: Callable[[str], None] = lambda _: None
        self._stop = asyncio.Event()
        self._tenure: Tenure
        heartbeat = StandbyHeartbeat(
            clock, self._textfile(), every_seconds=intervals.heartbeat_seconds
        )
        self._standby = Standby(self._in_force, load, notifier, heartbeat)
        self._started = clock.monotonic()

    @property
    def _rules(self) -> RuleSet:
        return self._in_force.rules

    def reload(self) -> None:
        """Request a reload of configuration and rules; the log reports its result."""
        self._in_force.want("a signal")

    def notice_version(self, version: int) -> None:
        """Reload the rules if a version was published that this daemon does not know."""
        self._in_force.notice_version(version)

    async def run(self, stop: asyncio.Event) -> None:
        """Fire each rule when it is due, until `stop` is set.

        Raises:
            StateDirectoryLockedError: Another daemon runs on the state directory.
            StoreError: A store cannot be opened, or another daemon has taken over.
            ExtraMissingError: The provenance sink needs an extra that is not installed.
        """
        self._stop = stop
        refuse_network_of(self._settings)
        while await self._run_until_tail_is_lost():
            pass
        _log.info("daemon.stopped", uptime_seconds=self._uptime())

    async def _run_until_tail_is_lost(self) -> bool:
        """Work until `stop` is set; return True when the database lost the last commits before."""
        try:
            await self._hold_and_run()
        except (ExceptionGroup, TailLostError) as error:
            lost = first_error(error, TailLostError)
            if not isinstance(lost, TailLostError):
                raise
            _log.error("store.tail_lost", database=lost.where, written=lost.written, last=lost.last)
            self._effects = EffectTracker()
            return True
        return False

    async def _hold_and_run(self) -> None:
        settings, clock, stop = self._settings, self._clock, self._stop
        name = None if self._process is None else self._process.name
        self._tenure = tenure_of(settings, clock, is_daemon=True, name=name)
        self._tenure.describe(self._in_force.describe, self._in_force.notice_version)
        standby = self._standby
        delete_shared_notes(settings)
        if not self._waits or await self._tenure.wait(stop, standby.begin, standby.go_on):
            async with self._tenure:
                await self._run_under_tenure()

    async def _run_under_tenure(self) -> None:
        await self._standby.take_over()
        settings, clock = self._in_force.settings, self._clock
        make_directory(settings.state_dir)  # for the control socket
        inspections = inspections_of(settings)
        # Before the stores are open: closing another connection to the same file would drop the
        # locks of this process, and the next program would remove its write-ahead log.
        resurfaced = await asyncio.to_thread(lambda: [*find_at_start(inspections)])
        async with (
            provenance_sink(settings) as sink,
            open_under(self._tenure, settings, clock) as stores,
            answer_recorder(settings, stores, clock) as recorder,
            stage_notes_of(settings) as notes,
        ):
            runner = rule_runner_of(settings, stores, self._logs, clock)
            runner.consolidator.note_stages_in(notes)
            runner.consolidator.retention = retention_of(settings, lambda: self._rules)
            await self._recover(runner)
            await runner.consolidator.checkpoint()
            publisher = publisher_of(settings, stores, sink, clock)
            await self._serve(stores, runner, (publisher, recorder), resurfaced)
            await runner.consolidator.checkpoint()

    def _textfile(self) -> Callable[[bytes], None] | None:
        """Return what writes the metrics; None without a file for them."""
        path = self._settings.textfile_path
        return partial(write_textfile, path) if path else None

    async def _recover(self, runner: RuleRunner) -> None:
        await _write_missing_lines(runner.consolidator)
        await self._warn_of_future_facts(runner)
        await apply_channels(runner, self._rules, self._clock.now())

    async def _serve(
        self,
        stores: Stores,
        runner: RuleRunner,
        outside: tuple[ProvenancePublisher | None, AnswerRecorder | None],
        resurfaced: Sequence[Finding],
    ) -> None:
        """Answer requests and fire rules until the daemon stops."""
        operations = await self._begin_operations(stores, runner, resurfaced)
        scheduler = self._scheduler_of(stores, runner, operations)
        async with Alarm(self._clock, scheduler.nudge) as alarm:
            kept = paused_rules_of(self._settings, self._tenure.name)
            pausing = Pausing(kept, lambda: self._rules)
            reloading = self._reloading_of(
                runner,
                operations,
                _follow_awake(pausing, alarm.arm),
                _follow_awake(pausing, scheduler.replace),
                self._show_rule_count,
            )
            moving = self._moving_of(stores, operations, runner)
            await moving.finish()
            pausing.changed = reloading.begin
            reloading.begin()
            publisher, recorder = outside
            operations.worker = worker = self._worker_of(stores, recorder, pausing, scheduler)
            if worker is not None:
                runner.consolidator.ask_for_summaries = worker.ask_for_summaries
                self._look_again = worker.look_again
            await self._serve_with(
                Components(
                    stores,
                    runner,
                    operations,
                    scheduler,
                    alarm,
                    pausing,
                    moving,
                    reloading,
                    publisher,
                    self._commits,
                    RuleProgressReader(stores.memory, stores.facts, pausing.awake, self._clock),
                    searcher_of(self._settings, stores.memory, stores.facts, self._clock),
                )
            )

    def _moving_of(self, stores: Stores, operations: Operations, runner: RuleRunner) -> UserMoving:
        """Return what moves users to other shards."""
        moves, where = moves_of(self._settings, stores), str(self._settings.state_dir)
        left = partial(runner.consolidator.erase_notes, eids=())
        return UserMoving(moves, operations.turn, self._clock, where, left)

    async def _begin_operations(
        self, stores: Stores, runner: RuleRunner, resurfaced: Sequence[Finding]
    ) -> Operations:
        """Return what runs the operations; finish first what an earlier daemon began to erase."""
        operations = Operations(
            stores,
            runner,
            lambda: self._rules,
            self._clock,
            stop=self._stop,
            waits=lambda: self._in_force.settings.erasure.rewrite == "idle",
        )
        await operations.erasures.share()
        finished = await _finish_erasures(operations)
        _log_erasure_findings(resurfaced, finished=finished)
        return operations

    def _reloading_of(
        self, runner: RuleRunner, operations: Operations, *follow: Follow
    ) -> Reloading:
        """Return what reloads the rules, and passes them to each follower."""
        return Reloading(
            self._in_force,
            self._load,
            runner,
            operations.turn,
            follow=follow,
            clock=self._clock,
        )

    def _select_enabled(self, pausing: Pausing) -> list[ConsolidationRule]:
        """Return the rules that may fire."""
        return [rule for rule in pausing.awake(self._rules.rules) if rule.enabled]

    def _worker_of(
        self,
        stores: Stores,
        recorder: AnswerRecorder | None,
        pausing: Pausing,
        scheduler: Scheduler,
    ) -> ModelWorker | None:
        """Return what asks language models about the rules that may fire."""
        return model_worker_of(
            stores,
            recorder,
            rules=lambda: self._select_enabled(pausing),
            clock=self._clock,
            recorded=scheduler.check_again,
        )

    def _scheduler_of(
        self, stores: Stores, runner: RuleRunner, operations: Operations
    ) -> Scheduler:
        """Return a scheduler, which each decision on a held batch notifies."""
        scheduler = Scheduler(
            clock=self._clock,
            episodes=stores.memory,
            watermarks=stores.facts.watermarks,
            fire=partial(self._fire, runner, operations.turn),
            future_tolerance_seconds=self._settings.memory.future_tolerance,
        )
        operations.decided = scheduler.nudge
        return scheduler

    async def _serve_with(self, components: Components) -> None:
        own = refuse_other_shards(self._answers(components), self._settings.shard)
        if self._settings.store is not None:
            from slumberd.daemon import postgres_stores

            own = postgres_stores.refuse_other_users(own, self._settings)
        answers = observe_calls(own, TracedCalls())
        heartbeat = self._heartbeat(components)
        self.health = heartbeat.health
        served = Served(
            Dispatcher(answers),
            self._settings,
            OncePutter(components.stores.memory),
            components.commits,
            self._clock,
            heartbeat.health,
        )
        async with self._watch_episodes(components), AsyncExitStack() as interfaces:
            for serving in self._ways_to_ask(answers):
                await interfaces.enter_async_context(serving)
            for interface in self._interfaces:
                await interfaces.enter_async_context(interface(served))
            self._report_ready()
            tasks = self._background_tasks(components, heartbeat)
            await self._run_tasks(tasks, components.stores.memory.stop)

    def _ways_to_ask(
        self, answers: dict[str, Handler]
    ) -> Iterator[AbstractAsyncContextManager[object]]:
        """Yield what answers requests of commands: the control socket, and the database."""
        if self._process is not None:
            yield self._process.serve(answers)
            return
        yield listen(self._settings.state_dir, answers, runtime=self._settings.runtime_dir)
        if self._settings.store is not None:
            from slumberd.daemon import postgres_stores

            yield postgres_stores.answer_requests_of(self._settings, answers, self._tenure.name)

    def _answers(self, components: Components) -> dict[str, Handler]:
        """Return the operations of the control socket, by name."""
        reloading = components.reloading
        own: dict[str, Callable[[RequestForm, Caller], Awaitable[Answer]]] = {
            "status": partial(self._on_status, components),
            "shards": self._on_shards,
            "reload": reloading.answer,
            "outdated": reloading.outdated,
        }
        return {
            **components.operations_by_name(
                self._settings,
                lambda: (self._rules, self._in_force.settings.timezone),
                self._clock,
            ),
            **{name: handler_of(OPERATIONS[name], run) for name, run in own.items()},
        }

    def _background_tasks(
        self, components: Components, heartbeat: Heartbeat
    ) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks, which run until the daemon stops."""
        publisher, worker = components.publisher, components.operations.worker
        return [
            components.alarm.heartbeat(self._stop),
            self._accept_clock(components.operations),
            components.scheduler.run(self._stop),
            record_external_changes(
                components.operations.notice,
                self._stop,
                every_seconds=self._seldom or EVERY_SECONDS,
            ),
            self._keep_log_complete(components),
            self._remove_erased_bytes(components.operations, components.stores),
            self._prune_log(components),
            components.reloading.run(),
            components.moving.run(self._stop),
            self._save_indexes(components),
            self._keep_alive(components),
            self._tenure.hold(self._stop),
            ReductionAlarm(
                components.stores.facts.reads,
                lambda: self._in_force.settings.limits.alarm_fraction,
                self._clock,
            ).run(self._stop, every_seconds=self._seldom or REDUCTION_SECONDS),
            *([] if self._process is not None else [self._beat(heartbeat)]),
            *([] if publisher is None else [publisher.run(self._stop)]),
            *([] if worker is None else [worker.run(self._stop)]),
        ]

    async def _beat(self, heartbeat: Heartbeat) -> None:
        """Log a heartbeat each minute."""
        await heartbeat.run(self._stop, every_seconds=self._intervals.heartbeat_seconds)

    async def _keep_log_complete(self, components: Components) -> None:
        """Write the log lines that are still missing, also while no rule fires."""
        consolidator = components.runner.consolidator
        while not await set_within(self._stop, self._intervals.log_retry_seconds):
            if consolidator.behind:
                async with components.operations.turn:
                    # The next firing reports a full disk, or a ledger that cannot be read.
                    with suppress(OSError, StoreError):
                        await _write_missing_lines(consolidator)

    async def _remove_erased_bytes(self, operations: Operations, stores: Stores) -> None:
        """Remove the bytes that erasures have left, as soon as other programs let."""
        before: Position | None = None
        while not self._stop.is_set():
            try:
                newest = await stores.memory.newest()
                await operations.erasures.remove_bytes(quiet=newest == before)
                before = newest
            except SupersededError:
                raise
            except (StoreError, OSError) as error:
                _log.warning("erasure.unfinished", error=type(error).__name__, message=str(error))
            await set_within(self._stop, self._intervals.quiet_seconds)

    async def _prune_log(self, components: Components) -> None:
        """Prune the episode log, a few rows at a time, while no rule fires.

        A disabled or paused rule does not hold them back: it has nothing to read in them.
        """
        stores, pausing = components.stores, components.pausing
        while not await set_within(self._stop, self._intervals.quiet_seconds):
            with suppress(OSError, StoreError):  # the next firing reports it
                async with components.operations.turn:
                    rules = self._select_enabled(pausing)
                    await stores.memory.pruner.prune(stores.facts.watermarks, rules)

    async def _save_indexes(self, components: Components) -> None:
        """Save the indexes of the search, so that the next process need not build them.

        Those that hold an episode that a program deleted are removed.
        """
        searcher, deletions = components.searcher, components.stores.memory.feed.deletions
        stops = False
        while not stops:
            stops = await set_within(self._stop, self._intervals.save_seconds)
            with suppress(StoreError):  # the next search reports a store that cannot be read
                await searcher.save()
                await searcher.remove_gone(deletions)

    def _heartbeat(self, components: Components) -> Heartbeat:
        troubles = components.scheduler.troubles
        settings, textfile = self._settings, self._textfile()
        sources = HealthSources(
            components.stores.memory,
            components.stores,
            rules=lambda: (self._rules.rules, self._in_force.settings.timezone),
            awake=components.pausing.awake,
            troubles=lambda: troubles.by_rule,
            inspections=inspections_of(settings),
            dropped=lambda: self._logs.dropped,
            reader=settings.provenance.sink,
            failed=lambda: troubles.totals,
            counted=textfile is not None or settings.serve.enabled,
            database=_no_database if self._process else partial(database_status_of, settings),
            tolerance_seconds=settings.memory.future_tolerance,
            index_bytes=lambda: components.searcher.memory.size_bytes,
        )
        collector = HealthCollector(sources, self._clock, components.progress)
        return Heartbeat(collector.collect, self._clock, textfile)

    def _show_rule_count(self, rules: Sequence[ConsolidationRule], _: str) -> None:
        self._notifier.status("1 rule" if len(rules) == 1 else f"{len(rules):,} rules")

    def _watch_episodes(self, components: Components) -> Watch:
        """Return the watch that notifies the scheduler, from another thread, of new episodes."""
        loop = asyncio.get_running_loop()
        notice = partial(loop.call_soon_threadsafe, components.scheduler.notice)
        return components.stores.memory.watch(
            notice, poll_seconds=self._settings.memory.poll_seconds
        )

    async def _keep_alive(self, components: Components) -> None:
        scheduler, erasures = components.scheduler, components.operations.erasures
        pulses = [
            partial(pulse_beside_rewriting, store.pulse, erasures.rewriting_seconds)
            for store in (components.stores.memory, components.stores.facts)
        ]
        watchdog = Watchdog(self._notifier.watchdog, lambda: scheduler.turned_at, pulses)
        await watchdog.run(self._stop, within_seconds=self._notifier.watchdog_seconds)

    async def _accept_clock(self, operations: Operations) -> None:
        """Accept the clock once the kernel reports it as synchronised; look each minute."""
        while not self._stop.is_set():
            kernel = await asyncio.to_thread(synchronised_time)
            try:
                await operations.accept_synchronised(kernel)
            except SupersededError:
                raise
            except StoreError as error:  # the next look tries again
                _log.warning("heartbeat.failed", error=type(error).__name__, message=str(error))
            await set_within(self._stop, self._intervals.heartbeat_seconds)

    def _report_ready(self) -> None:
        self._standby.end()
        self._notifier.ready()
        _log.info(
            "daemon.ready",
            pid=os.getpid(),
            state_dir=str(self._settings.state_dir),
            rules=len(self._rules.rules),
            rules_hash=self._rules.content_hash,
        )

    async def _run_tasks(
        self, work: Sequence[Coroutine[Any, Any, None]], give_up: Callable[[], None]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(task) for task in work]
            group.create_task(self._stop_in_time(tasks, give_up))

    async def _stop_in_time(
        self, tasks: Sequence[asyncio.Task[None]], give_up: Callable[[], None]
    ) -> None:
        await self._stop.wait()
        self._in_force.end()
        give_up()
        self._notifier.stopping()
        _log.info("daemon.stopping", deadline_seconds=self._settings.stop_seconds)
        _, unfinished = await asyncio.wait(tasks, timeout=self._settings.stop_seconds)
        for task in unfinished:
            task.cancel()

    async def _fire(
        self,
        runner: RuleRunner,
        turn: Turn,
        rule: ConsolidationRule,
        due: Due,
        at: datetime,
    ) -> None:
        async with turn:
            report = await runner.fire(
                FireRequest(
                    rule,
                    due.trigger,
                    at,
                    stop=self._in_force.pause,
                    timing=due.timing(at),
                    run=new_run_id(),
                )
            )
            self._commits.announce()
            if report.unrecorded:
                self._look_again(rule.id)
            if rule.reads_episodes:  # a graph rule without effect is normal
                self._effects.record(rule.id, report, gated=rule.salience is not None)
        if report.cut_short:
            raise StoppedError(f"rule {rule.id!r} was stopped before it had read everything")

    async def _on_status(self, components: Components, _: RequestForm, __: Caller) -> Answer:
        stores, worker = components.stores, components.operations.worker
        model = await read_model_state(self._in_force.settings, stores, worker, self._clock)
        memory = components.searcher.memory
        indexes = {"bytes": memory.size_bytes, "max_bytes": memory.most_bytes}
        described = self._describe(components.scheduler)
        return described | {"language_model": model, "search_indexes": indexes}

    def _describe(self, scheduler: Scheduler) -> dict[str, Any]:
        """Return the process, the rules in force, and the rules whose last firing failed."""
        return {
            "pid": os.getpid(),
            "uptime_seconds": self._uptime(),
            "generation": self._rules.generation,
            "rules_hash": self._rules.content_hash,
            "failing": [
                {
                    "rule_id": rule_id,
                    "since": timestamp(trouble.since),
                    "failures": trouble.failures,
                    "error": trouble.error,
                    "degraded": trouble.degraded,
                }
                for rule_id, trouble in scheduler.troubles.by_rule.items()
            ],
        }

    async def _on_shards(self, _: RequestForm, __: Caller) -> Answer:
        if self._settings.store is None:
            raise UsageError(
                "shards: files have no shards; `slumberd status` counts what they hold"
            )
        counted = await asyncio.to_thread(count_shards, self._settings.of_shard(None), self._rules)
        return counted.document()

    async def _warn_of_future_facts(self, runner: RuleRunner) -> None:
        """Name current facts whose claims are still to come; 0.2.0 took such claims."""
        tolerance = self._settings.memory.future_tolerance
        latest = latest_at(self._clock.now(), tolerance)
        found = await runner.facts.ledger.future_facts(latest)
        if found:
            named = [fact.fact_id for fact in found[:MOST_NAMED]]
            last = timestamp(instant(found[0].at))
            _log.warning("facts.future", count=len(found), fact_ids=named, latest=last)

    @property
    def _seldom(self) -> float | None:
        """The time between two looks at facts that only this daemon writes; None for files."""
        return None if self._settings.store is None else EVERY_SECONDS_OF_A_DATABASE

    def _uptime(self) -> float:
        return round(self._clock.monotonic() - self._started, 3)


async def _write_missing_lines(consolidator: Consolidator) -> None:
    repeated = await consolidator.log_pending_records()
    if repeated:
        _log.info("logs.repeated", rows=repeated)


async def _finish_erasures(operations: Operations) -> int:
    """Finish interrupted erasures, and return how many; `doctor` reports those that fail."""
    try:
        finished = await operations.erasures.finish_all()
    except StoreError as error:
        _log.warning("erasure.unfinished", error=type(error).__name__, message=str(error))
        return 0
    if finished:
        _log.info("erasure.finished", erasures=finished)
    return finished


def _log_erasure_findings(found: Sequence[Finding], *, finished: int) -> None:
    """Log what contradicts the erasures; a finished erasure explains content of its scope."""
    for finding in found:
        if finding.id == "erasure.contradicted" and not finished:
            _log.warning("erasure.contradicted", path=finding.subject, problem=finding.problem)
        elif finding.id == "erasure.foreign_blank":
            _log.error("erasure.foreign_blank", path=finding.subject, problem=finding.problem)


def _follow_awake(pausing: Pausing, follow: Follow) -> Follow:
    return lambda rules, timezone: follow(pausing.awake(rules), timezone)


def _no_database() -> None:
    """Return no state of the database: the process reads it once for all shards."""


class Runnable(Protocol):
    """A daemon, of one shard or of several."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        ...


def run_until(signals: Callable[[asyncio.Event], None], daemon: Runnable) -> None:
    """Run a daemon in a new event loop; `signals` connects the signals to the stop event.

    Raises:
        StoreError: As `Daemon.run`.
    """

    async def main() -> None:
        stop = asyncio.Event()
        signals(stop)
        await daemon.run(stop)

    tune_interpreter()
    try:
        asyncio.run(main())
    except ExceptionGroup as errors:
        raise first_store_error(errors) from errors


def first_store_error(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of a store among some errors, else the first error."""
    return first_error(errors, StoreError)


def first_error(error: Exception, kind: type[Exception]) -> Exception:
    """Return an error, or of a group the first one of a kind, else the first one."""
    if isinstance(error, ExceptionGroup):
        error = error.subgroup(kind) or error
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
