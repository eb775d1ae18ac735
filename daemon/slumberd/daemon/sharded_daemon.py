"""Run the daemons of those shards of a database that this process holds; decide which it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import structlog

from slumberd.clock import Clock, CommitSignal, set_within
from slumberd.daemon.composition import user_stores_of
from slumberd.daemon.control_socket import listen
from slumberd.daemon.daemon import INTERVALS, Daemon, HostProcess, Intervals, first_store_error
from slumberd.daemon.database_requests import ServedShards, answer_requests
from slumberd.daemon.database_tenure import HostReports, unique_name
from slumberd.daemon.heartbeat import Heartbeat, StandbyHeartbeat
from slumberd.daemon.interfaces import AllShards, Interface, Served, TracedCalls
from slumberd.daemon.postgres_stores import database_of, place_of
from slumberd.daemon.reload import InForce, Load, load_again
from slumberd.daemon.shard_counts import count_shards
from slumberd.daemon.shard_requests import (
    SPARE_SECONDS,
    ShardRequests,
    ask_patiently,
    shard_handlers,
)
from slumberd.daemon.stage_notes import delete_shared_notes
from slumberd.daemon.stores import database_status_of, settings_of_user, shards_of
from slumberd.daemon.systemd import BEATS, Notifier, ShardNotifier
from slumberd.file_modes import make_directory
from slumberd.logs.output import DeltaLines
from slumberd.logs.prometheus import write_textfile
from slumberd.model.errors import (
    DatabaseHeldError,
    LeaseLostError,
    NotRunningError,
    SlumberdError,
    StaleWriterError,
    StoreError,
)
from slumberd.model.health import DaemonHealth
from slumberd.model.health_sums import sum_health
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer, Dispatcher, handler_of, observe_calls
from slumberd.operations.registry import OPERATIONS
from slumberd.operations.writes.put_once import ShardPutter
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.postgres.connection_pool import share_connections
from slumberd.storage.postgres.lease import ClusterView, HostTable
from slumberd.storage.postgres.shard_map import Shard, shard_map_of
from slumberd.workers.scheduling.due import BACKOFF_SECONDS

_log = structlog.get_logger("slumberd")

LOOK_SECONDS = 1.0
"""How often a process looks which shards are free."""

_PER_LEASE = 3
"""How often it looks at least within the time of a lease."""

_LEAVE_SECONDS = 2.0
"""How long a process that ends tries to remove itself from the table of hosts."""


@dataclass(slots=True)
class _Running:
    """The daemon of one shard.

    Attributes:
        notifier: Notes that it is alive.
        stop: Ends it.
    """

    daemon: Daemon
    notifier: ShardNotifier
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Trouble:
    """How often the daemon of a shard has failed in a row, and when it may start again."""

    failures: int
    retry_at: float


class ShardedDaemon:
    """One run of slumberd over those shards of a database that it gets.

    Each shard has a whole `Daemon`. The processes of a database divide the shards among them; when
    one of them ends, the others take its shards.

    Args:
        settings: The configuration, which names a database.
        rules: The rules to fire.
        load: Reads configuration and rules again, for a reload.
        notifier: Reports to the service manager.
        interfaces: What serves beside the control socket, in the same event loop.
        intervals: How often background work is repeated.
    """

    def __init__(  # noqa: PLR0913 # one for each part that it joins
        self,
        settings: Settings,
        rules: RuleSet,
        load: Load,
        *,
        clock: Clock,
        logs: DeltaLines,
        notifier: Notifier,
        interfaces: Sequence[Interface] = (),
        intervals: Intervals = INTERVALS,
    ) -> None:
        self._interfaces = interfaces
        self._in_force = InForce(settings, rules)
        self._load = load
        self._clock = clock
        self._logs = logs
        self._notifier = notifier
        self._intervals = intervals
        self._name = unique_name()
        self._commits = CommitSignal()
        self._served = ServedShards()
        self._table = HostTable(database_of(settings), self._name)
        self._reports = HostReports(self._table, clock)
        self._reports.describe(self._in_force.describe, self._notice_version)
        self._started = clock.monotonic()
        self._has_waited = False
        self._shown: list[int] | None = None
        self._running: dict[int, _Running] = {}
        self._troubles: dict[int, _Trouble] = {}
        self._is_failing = False
        self._known_problems: set[str] = set()
        textfile = self._textfile()
        self._standby = StandbyHeartbeat(clock, textfile, every_seconds=intervals.heartbeat_seconds)
        self._heartbeat = Heartbeat(
            self._collect_health, clock, textfile, is_active=lambda: bool(self._serving())
        )

    def reload(self) -> None:
        """Request a reload of configuration and rules; the log reports its result."""
        if not self._running:
            self._in_force.want("a signal")
        for running in self._running.values():
            running.daemon.reload()

    def _notice_version(self, version: int) -> None:
        """Reload the rules if a version was published that a daemon does not know."""
        if not self._running:
            self._in_force.notice_version(version)
        for running in self._running.values():
            running.daemon.notice_version(version)

    async def run(self, stop: asyncio.Event) -> None:
        """Run the daemons of the shards that this process gets, until `stop` is set.

        Raises:
            StoreError: The database cannot be used at the start.
        """
        delete_shared_notes(self._in_force.settings, "stages-*.db")
        async with share_connections():
            try:
                await self._table.view(self._lease_seconds)
                await self._run_shards(stop)
            finally:
                await self._leave()
        uptime = self._clock.monotonic() - self._started
        _log.info("daemon.stopped", uptime_seconds=round(uptime, 3))

    async def _run_shards(self, stop: asyncio.Event) -> None:
        answering = answer_requests(self._served, holder=self._name)
        async with answering, asyncio.TaskGroup() as group:
            every_seconds = self._intervals.heartbeat_seconds
            group.create_task(self._heartbeat.run(stop, every_seconds=every_seconds))
            group.create_task(self._keep_alive(stop))
            async with serve_interfaces(
                self._in_force.settings,
                self._interfaces,
                self._commits,
                self._clock,
                self._heartbeat.health,
                lambda: self._in_force.rules,
            ):
                self._notifier.ready()
                await self._keep_assigning(group, stop)
            self._end_shards()

    async def _keep_assigning(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if (view := await self._look()) is not None:
                await self._follow(view, group)
            if self._interfaces:
                self._commits.announce()  # other hosts may have committed
            await set_within(stop, min(LOOK_SECONDS, self._lease_seconds / _PER_LEASE))

    async def _look(self) -> ClusterView | None:
        """Tell of this process, and return who holds what; None when the server is away."""
        try:
            await self._reports.tell("active" if self._running else "standby")
            await self._reports.compare_rules()
            view = await self._table.view(self._lease_seconds)
        except StoreError as error:
            if not self._is_failing:
                place = place_of(self._in_force.settings)
                _log.warning("lease.not_renewed", database=place, message=str(error))
            self._is_failing = True
            return None
        self._is_failing = False
        self._warn_of(view.problems)
        return view

    def _warn_of(self, problems: Sequence[StoreError]) -> None:
        """Log once why other databases, or shards of this one, cannot be read."""
        for problem in problems:
            if str(problem) not in self._known_problems:
                place = place_of(self._in_force.settings)
                _log.warning("lease.not_renewed", database=place, message=str(problem))
        self._known_problems = {str(problem) for problem in problems}

    async def _follow(self, view: ClusterView, group: asyncio.TaskGroup) -> None:
        """Start the daemons of shards that this process claims, or end one of too many."""
        now = self._clock.monotonic()
        resting = {shard for shard, trouble in self._troubles.items() if trouble.retry_at > now}
        change = assign_shards(view.holders, view.hosts, self._name, self._running, resting=resting)
        if change.give_back is not None and not self._is_ending():
            self._running[change.give_back].stop.set()
        await self._read_rules_again(takes_over=bool(change.claim))
        for shard in change.claim:
            self._start(view.shards[shard], group)
        if not self._running:
            others = {holder for holder in view.holders.values() if holder is not None}
            self._standby.beat_if_due(", ".join(sorted(others)))
        self._show(len(view.holders))

    def _is_ending(self) -> bool:
        return any(running.stop.is_set() for running in self._running.values())

    async def _read_rules_again(self, *, takes_over: bool) -> None:
        """Read the rules again after a wait, which may have taken weeks, and at a signal."""
        if self._running:
            self._has_waited = False
        elif self._in_force.wanted.is_set():
            load_again(self._in_force, self._load, by=self._in_force.wanted_by)
        elif takes_over and self._has_waited:
            await asyncio.to_thread(load_again, self._in_force, self._load, by="a takeover")
        elif not takes_over:
            self._has_waited = True

    def _start(self, shard: Shard, group: asyncio.TaskGroup) -> None:
        number = shard.number
        notifier = ShardNotifier(self._clock, self._notifier.watchdog_seconds)
        daemon = Daemon(
            self._settings_of(self._in_force.settings, number),
            self._in_force.rules,
            partial(self._load_of, number),
            clock=self._clock,
            logs=self._logs.of_shard(number),
            notifier=notifier,
            intervals=self._intervals,
            process=HostProcess(self._name, self._commits, partial(self._served.serve, shard)),
        )
        running = self._running[number] = _Running(daemon, notifier)
        group.create_task(self._run_shard(number, running))

    def _settings_of(self, settings: Settings, shard: int) -> Settings:
        """Return the settings of a shard, whose sink writes a file of its own."""
        file = settings.provenance.file
        named = file.with_name(f"{file.stem}-shard-{shard}{file.suffix}")
        provenance = settings.provenance.model_copy(update={"file": named})
        return settings.of_shard(shard).model_copy(update={"provenance": provenance})

    def _load_of(self, shard: int) -> tuple[Settings, RuleSet]:
        """Read configuration and rules again, also for the shards that start later."""
        settings, rules = self._load()
        if _identity(rules) != _identity(self._in_force.rules):
            self._in_force.replace(settings, rules)
        return self._settings_of(settings, shard), rules

    async def _run_shard(self, shard: int, running: _Running) -> None:
        structlog.contextvars.bind_contextvars(shard=shard)
        try:
            await running.daemon.run(running.stop)
        except Exception as error:  # noqa: BLE001 # other shards go on
            self._note_failure(shard, error)
        else:
            self._troubles.pop(shard, None)
        finally:
            del self._running[shard]

    def _note_failure(self, shard: int, error: Exception) -> None:
        """Log why the daemon of a shard ended, and let it rest; another host may be luckier."""
        if isinstance(error, ExceptionGroup):
            error = error.subgroup(LeaseLostError) or error
            error = first_store_error(error)
        if isinstance(error, (DatabaseHeldError, LeaseLostError)):
            return  # another host has the shard, and the loss of a lease is logged
        if isinstance(error, StaleWriterError):  # noticed before the lease was renewed
            _log.warning("lease.lost", database=error.where, holder="")
            return
        before = self._troubles.get(shard)
        failures = 1 if before is None else before.failures + 1
        pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
        self._troubles[shard] = _Trouble(failures, self._clock.monotonic() + pause)
        _log.error(
            "shard.failed",
            error=type(error).__name__,
            message=str(error),
            retry_seconds=pause,
            exc_info=None if isinstance(error, SlumberdError) else error,
        )

    def _show(self, count: int) -> None:
        """Log which shards this process holds, when that has changed."""
        held = sorted(self._running)
        if held == self._shown:
            return
        self._shown = held
        _log.info("shards.held", held=held, shards=count)
        self._notifier.status(f"{len(held)} of {count} shards")

    async def _keep_alive(self, stop: asyncio.Event) -> None:
        """Report to the service manager while the daemon of each shard is alive."""
        seconds = self._notifier.watchdog_seconds
        while seconds is not None and not stop.is_set():
            if all(running.notifier.silent_seconds < seconds for running in self._serving()):
                self._notifier.watchdog()
            await set_within(stop, seconds / BEATS)

    def _serving(self) -> list[_Running]:
        return [running for running in self._running.values() if running.daemon.health]

    async def _collect_health(self, loop_lag: float) -> DaemonHealth:
        parts = [
            await running.daemon.health() for running in self._serving() if running.daemon.health
        ]
        if not parts:
            raise NotRunningError("this host serves no shard of the database now")
        database = await asyncio.to_thread(database_status_of, self._in_force.settings)
        return replace(sum_health(parts), loop_lag_seconds=loop_lag, database=database)

    def _end_shards(self) -> None:
        self._notifier.stopping()
        for running in self._running.values():
            running.stop.set()

    async def _leave(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._table.forget_host()
        await self._table.close()

    def _textfile(self) -> Callable[[bytes], None] | None:
        path = self._in_force.settings.textfile_path
        return partial(write_textfile, path) if path else None

    @property
    def _lease_seconds(self) -> float:
        return self._in_force.settings.postgres.lease


def _identity(rules: RuleSet) -> tuple[str, int | None]:
    return rules.content_hash, rules.version


class Assignment(NamedTuple):
    """What a host changes about the shards that it holds.

    Attributes:
        claim: The free shards that it claims.
        give_back: A shard that it gives back, since it has more than its share; None without one.
    """

    claim: list[int]
    give_back: int | None = None


def assign_shards(
    holders: Mapping[int, str | None],
    hosts: Collection[str],
    own: str,
    held: Collection[int],
    *,
    resting: Collection[int] = (),
) -> Assignment:
    """Return what a host changes; when all hosts do so, each shard gets a holder.

    The share of a host is the number of shards over the number of hosts, rounded up. A host with
    less claims free shards. A host with more gives one back at a time: each shard stands still
    until its next holder has it.

    Args:
        holders: The holder of each shard; None for a free one.
        hosts: The names of the hosts that are alive; this host counts in any case.
        own: The name of this host.
        held: The shards that it holds, the latest last.
        resting: The shards that it does not claim now, since it has failed on them.
    """
    alive = sorted({*hosts, own})
    share = -(-len(holders) // len(alive))
    if len(held) > share:
        return Assignment([], [*held][-1])
    free = [shard for shard, holder in sorted(holders.items()) if holder is None]
    wanted = [shard for shard in free if shard not in held and shard not in resting]
    # Each host begins at another place, so that two seldom claim the same shard.
    start = alive.index(own) * len(wanted) // len(alive)
    return Assignment([*wanted[start:], *wanted[:start]][: share - len(held)])


@asynccontextmanager
async def serve_interfaces(
    settings: Settings,
    interfaces: Sequence[Interface],
    commits: CommitSignal,
    clock: Clock,
    health: Callable[[], Awaitable[DaemonHealth]],
    rules: Callable[[], RuleSet],
) -> AsyncIterator[None]:
    """Serve the control socket and the interfaces while the block runs.

    Each request goes to the shard that it concerns, on whatever host that is.

    Args:
        interfaces: What serves beside the control socket.
        commits: Tells when something was committed.
        health: Returns the figures of the heartbeat as of now.
        rules: Returns the rules in force.
    """
    lease = settings.postgres.lease
    ask = partial(ask_patiently, patience_seconds=lease + SPARE_SECONDS)
    requests = ShardRequests(shard_map_of(database_of(settings)), lease_seconds=lease, ask=ask)

    async def answer_counts(_: RequestForm, __: Caller) -> Answer:
        return (await asyncio.to_thread(count_shards, settings, rules())).document()

    handlers = shard_handlers(requests)
    handlers["shards"] = handler_of(OPERATIONS["shards"], answer_counts)
    answers = observe_calls(handlers, TracedCalls())
    stores = user_stores_of(settings, clock)
    served = Served(
        Dispatcher(answers),
        settings,
        ShardPutter(stores),
        commits,
        clock,
        health,
        AllShards(lambda: shards_of(settings), lambda user: settings_of_user(settings, user).shard),
    )
    make_directory(settings.state_dir)  # for the control socket
    async with AsyncExitStack() as serving:
        serving.push_async_callback(stores.close)
        await serving.enter_async_context(
            listen(settings.state_dir, answers, runtime=settings.runtime_dir)
        )
        for interface in interfaces:
            await serving.enter_async_context(interface(served))
        yield
