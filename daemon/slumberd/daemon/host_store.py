"""Consolidate a host's own stores, by `consolidate(rule)` and `apply_delta(delta)` alone.

The stores share no transaction with slumberd, which keeps a record of what it has applied beside
them. There is no episode log, no ledger and no known state: each firing reads every delta again,
and applies those that the record does not know.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast

from slumberd.clock import Clock
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, Watermarks
from slumberd.daemon.control_socket import listen
from slumberd.daemon.daemon import Daemon
from slumberd.daemon.reload import Reloading
from slumberd.daemon.systemd import Watchdog
from slumberd.model.delta import AnyDelta, Delta, validate_delta
from slumberd.model.errors import FiringTimeoutError, HostStoreError, StoppedError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import START, Counts, Firing, Outcome, Position, Record
from slumberd.model.rule import ConsolidationRule, describe_exception
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer, handler_of
from slumberd.operations.registry import OPERATIONS
from slumberd.operations.writes.rule_runner import Turn, new_run_id
from slumberd.rules.function_loader import load_function
from slumberd.rules.settings import Settings
from slumberd.storage.sqlite.host_record import HostRecord, Known, RuleRecord
from slumberd.workers.scheduling.alarm import Alarm
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler

UNNOTICED_SECONDS = 60.0
"""How long an edit may wait that changes no number of episodes, until `consolidate` is called."""

REST = 10
"""After a call of `consolidate`, no other one for this multiple of its duration, for `every`."""

MOST_REFUSED = 100
"""Refused deltas in a row after which a firing gives up: then the store itself fails."""

_BEYOND = 2**40
"""More than any cadence counts: the number of a look, as a position in a log, begins here."""


class HostStores(NamedTuple):
    """The stores that a factory made.

    Attributes:
        name: The factory, as the configuration names it.
        memory: Has `consolidate`; it may have `bootstrap` and `health`, which counts episodes.
        facts: Has `apply_delta`; it may have `bootstrap`, and `query` for a delta in doubt.
    """

    name: str
    memory: Any
    facts: Any


async def open_host_stores(name: str) -> HostStores:
    """Call a factory, and prepare the stores that it returns.

    Args:
        name: The factory: it takes no argument, and returns one object, or a pair of a memory
            store and a fact store.

    Raises:
        HostStoreError: It fails, or returns something else.
    """
    try:
        made = await _call(load_function(name).call)
        memory, facts = made if isinstance(made, tuple) else (made, made)
        _require(memory, "consolidate")
        _require(facts, "apply_delta")
        for store in {id(one): one for one in (memory, facts)}.values():
            if bootstrap := getattr(store, "bootstrap", None):
                await _call(bootstrap)
    except Exception as error:
        raise HostStoreError(name, f"cannot be opened: {describe_exception(error)}") from error
    return HostStores(name, memory, facts)


async def _call(host: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 # the host's
    """Call a function of the host, and await what it returns when that is awaitable.

    Raises:
        RuntimeError: It would end the process, or cancelled itself. Only slumberd may end its
            own task.
    """
    try:
        result = host(*arguments)
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        raise RuntimeError(f"it called for the exit of the process ({error.code})") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was cancelled by the host's own code") from error


def _require(store: object, method: str) -> None:
    if not inspect.iscoroutinefunction(getattr(store, method, None)):
        raise TypeError(f"{type(store).__name__} has no coroutine method {method!r}")


class NamedDelta(NamedTuple):
    """A delta, and what it is known by.

    Attributes:
        delta: As the memory store returned it.
        own: The same, with valid provenance; an error when it is not valid.
        digest: Changes with all that a delta says; not with its instant, which differs at each
            call.
        fact_ids: The facts that it writes or removes.
        sources: The episodes that it comes from.
    """

    delta: Delta
    own: AnyDelta | Exception
    digest: bytes
    fact_ids: frozenset[str]
    sources: frozenset[str]


def name_delta(delta: Delta, number: int = 0) -> NamedDelta:
    """Return a delta with its digest; one that cannot be named is named by its number."""
    fact_ids, sources = frozenset[str](), frozenset([f"delta {number}"])
    try:
        fact_ids = _fact_ids(delta)
        sources = frozenset(map(str, delta.source_episode_ids)) or sources
        own = validate_delta(delta)
        return NamedDelta(delta, own, _digest(own), fact_ids, sources)
    except Exception as error:  # noqa: BLE001 - an odd delta must not stop the others
        digest = hashlib.sha256(f"delta {number}".encode()).digest()
        return NamedDelta(delta, error, digest, fact_ids, sources)


def _fact_ids(delta: Delta) -> frozenset[str]:
    payload = _payload(delta)
    own = [str(payload["id"])] if payload.get("id") is not None else []
    return frozenset([*_replaces(delta), *own])


def _digest(delta: AnyDelta) -> bytes:
    """Return what a delta is known by.

    Raises:
        ValueError: The record or the log cannot hold it.
    """
    for name in _fact_ids(delta):
        name.encode()
    delta.promotion_ts.astimezone(UTC)
    said = [
        getattr(delta, name, None)
        for name in ("kind", "source_episode_ids", "replaces", "fact_payload", "confidence")
    ]
    try:
        text = json.dumps(said, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that cannot be sorted; a loop
        text = repr(said)
    return hashlib.sha256(text.encode()).digest()


def _payload(delta: Delta) -> Mapping[str, Any]:
    payload = getattr(delta, "fact_payload", None)
    return payload if isinstance(payload, Mapping) else {}


def _replaces(delta: Delta) -> tuple[str, ...]:
    return tuple(map(str, getattr(delta, "replaces", None) or ()))


def choose_deltas(deltas: Sequence[NamedDelta], known: Known) -> list[NamedDelta]:
    """Return the deltas to apply, in order, so that each fact ends as if all were applied.

    These are the deltas that the record does not know; those that now come last for a fact, and
    did not before; and later ones that name a fact that another chosen delta has named.
    """
    last = {fact_id: one.digest for one in deltas for fact_id in one.fact_ids}
    due = {one.digest for one in deltas} - known.done
    due |= {digest for name, digest in last.items() if known.last_by_fact.get(name) != digest}
    chosen: list[NamedDelta] = []
    writers: dict[str, bytes] = {}
    for one in deltas:
        if one.digest in due or any(writers.get(x, one.digest) != one.digest for x in one.fact_ids):
            due.discard(one.digest)
            chosen.append(one)
            writers |= dict.fromkeys(one.fact_ids, one.digest)
    return chosen


class _Refusals:
    """The deltas that a store did not take in one firing, and the facts that they name."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.in_a_row = 0
        self._fact_ids: set[str] = set()

    def holds_back(self, one: NamedDelta) -> bool:
        """Return whether a delta must wait, since an earlier one of its facts was refused."""
        if held := bool(self._fact_ids & one.fact_ids):
            self._fact_ids |= one.fact_ids
        return held

    def add(self, one: NamedDelta, error: Exception) -> None:
        """Note that a store refused a delta."""
        what = ", ".join(one.sources)
        if isinstance(one.own, Exception):
            what = f"odd delta ({what})"
        else:
            what = f"{one.own.kind} of episode {what}"
        self.first = self.first or f"{what}: {describe_exception(error)}"
        self.count, self.in_a_row = self.count + 1, self.in_a_row + 1
        self._fact_ids |= one.fact_ids


class HostConsolidator:
    """Fires rules on a host's stores, and tells the scheduler what it needs for that.

    It stands in for the episode log and the watermarks of a `Scheduler`: it has the methods that a
    scheduler calls.

    Args:
        stop: Set while a firing must end.
    """

    def __init__(
        self,
        stores: HostStores,
        record: HostRecord,
        log: DeltaLog,
        clock: Clock,
        stop: asyncio.Event,
    ) -> None:
        self._stores = stores
        self._record = record
        self._log = log
        self._clock = clock
        self._stop = stop
        self._rules: Mapping[str, ConsolidationRule] = {}
        self._read: dict[str, list[NamedDelta]] = {}
        self._look = 0
        self._last_look: dict[str, int] = {}
        self._episodes: int | None = None
        self._rest_until = self._look_again_at = clock.monotonic()
        self.turn = Turn()

    def replace(self, rules: Sequence[ConsolidationRule], _: str) -> None:
        """Use other rules."""
        self._rules = {rule.id: rule for rule in rules}
        self._last_look.clear()
        self._read.clear()

    # What a scheduler asks an episode log.

    async def changed(self) -> bool:
        """Return whether rules with `every` shall look for new episodes now."""
        now = self._clock.monotonic()
        if now < self._rest_until:
            return False
        count = await self._count_episodes()
        if count is not None and count == self._episodes and now < self._look_again_at:
            return False
        self._episodes, self._look_again_at = count, now + UNNOTICED_SECONDS
        self._look += 1
        return True

    async def _count_episodes(self) -> int | None:
        """Return the number of episodes; None when the store does not say it."""
        try:
            count = (await _call(self._stores.memory.health)).fragment_count
        except Exception:  # noqa: BLE001 - without a number, the deltas are read more often
            return None
        return count if isinstance(count, int) else None

    async def newest(self) -> Position:
        """Return a position that is new with each look, and far enough for every cadence."""
        return Position(_BEYOND + self._look)

    async def episode_at(self, _: int) -> str:
        """Return the episode id that all positions have here."""
        return START.eid

    async def pending(self, _: int, *, at_most: int, rule_id: str = "") -> int:
        """Count the episodes of deltas that the record does not know, once for each look."""
        rule = self._rules.get(rule_id)
        if rule is None:  # a reload has just removed it
            return 0
        if self._record.is_interrupted(rule_id):
            return at_most
        if self._last_look.get(rule_id) == self._look:
            return 0
        try:
            async with asyncio.timeout(rule.timeout):
                deltas = await self._consolidate(rule)
        except (HostStoreError, TimeoutError):
            return at_most  # the firing reports it
        done = self._record.known(rule_id).done
        count = len({name for one in deltas if one.digest not in done for name in one.sources})
        if count >= at_most:
            self._read[rule_id] = deltas
        else:
            self._last_look[rule_id] = self._look
        return count

    # What a scheduler asks the watermarks.

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return the last cron instant that each rule has served."""
        return self._record.positions()

    async def begin(self, rule_id: str, _: Position, *, served: datetime) -> None:
        """Record a new rule."""
        self._record.begin_rule(rule_id, served)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant."""
        del succeeded_at
        self._record.serve(rule_id, instant)

    async def correct_served(self, rule_id: str, now: datetime) -> None:
        """Move the served instant of a rule back to now; it was recorded by a wrong clock."""
        self._record.serve(rule_id, now)

    async def future_of_rules(self) -> dict[str, datetime]:
        """Return nothing: a host's store has no quarantine."""
        return {}

    async def held(self) -> dict[str, Any]:
        """Return nothing: no batch awaits approval."""
        return {}

    # A firing.

    async def fire(self, rule: ConsolidationRule, due: Due, at: datetime) -> None:
        """Apply and log the deltas of a rule that the record does not know.

        Raises:
            HostStoreError: The stores failed, or refused deltas; the other deltas are applied.
            FiringTimeoutError: The rule's time limit has passed.
            StoppedError: The daemon stops.
        """
        async with self.turn:
            limit = asyncio.timeout(rule.timeout)
            try:
                async with limit:
                    await self._fire(rule, due, at)
            except TimeoutError as error:
                if not limit.expired():  # the log's reader is stuck
                    raise
                raise FiringTimeoutError(rule.id, rule.timeout or 0.0) from error
        self._last_look[rule.id] = self._look

    async def _fire(self, rule: ConsolidationRule, due: Due, at: datetime) -> None:
        began = self._clock.monotonic()
        deltas = self._read.pop(rule.id, None) or await self._consolidate(rule)
        firing = _Firing(rule, at, f"{rule.id}@{self._record.begin_firing(rule.id, at)}")
        known, refusals = self._record.known(rule.id), _Refusals()
        for one in choose_deltas(deltas, known):
            if self._stop.is_set():
                raise StoppedError(f"rule {rule.id!r} was stopped before it had applied everything")
            if not refusals.holds_back(one):
                await self._apply(one, firing, refusals, in_doubt=one.digest in known.in_doubt)
            if refusals.in_a_row == MOST_REFUSED:
                break
        if refusals.count:
            problem = f"refused {refusals.count} deltas, the first an {refusals.first}"
            raise HostStoreError(self._stores.name, problem)
        self._record.end_firing(
            rule.id,
            applied=firing.counts.total(),
            known=known,
            digests={one.digest for one in deltas},
            fact_ids=frozenset().union(*(one.fact_ids for one in deltas)),
        )
        self._log.completed(firing.outcome(due, self._clock.monotonic() - began))

    async def _consolidate(self, rule: ConsolidationRule) -> list[NamedDelta]:
        began = self._clock.monotonic()
        try:
            deltas = await _call(self._stores.memory.consolidate, rule)
            return [name_delta(delta, number) for number, delta in enumerate(deltas, 1)]
        except Exception as error:
            problem = f"'consolidate' failed: {describe_exception(error)}"
            raise HostStoreError(self._stores.name, problem) from error
        finally:
            ended = self._clock.monotonic()
            self._rest_until = ended + REST * (ended - began)

    async def _apply(
        self, one: NamedDelta, firing: _Firing, refusals: _Refusals, *, in_doubt: bool
    ) -> None:
        rule_id, own = firing.rule.id, one.own
        if isinstance(own, Exception):
            refusals.add(one, own)
            return
        number = self._record.begin_delta(rule_id, one.digest, one.fact_ids)
        line = firing.record(own, number)  # before the store can change the delta
        try:
            if not (in_doubt and await self._is_applied(one.delta)):
                await _call(self._stores.facts.apply_delta, one.delta)
        except Exception as error:  # noqa: BLE001 - one refused delta must not stop the others
            refusals.add(one, error)
            return
        refusals.in_a_row = 0
        firing.counts[own.kind] += 1
        self._log.applied([line])
        self._record.end_delta(number, rule_id, one.digest, one.fact_ids)

    async def _is_applied(self, delta: Delta) -> bool:
        """Return whether the facts show that a delta in doubt was applied; if unknown, False."""
        query = getattr(self._stores.facts, "query", None)
        payload = _payload(delta)
        own, replaces = payload.get("id"), set(_replaces(delta))
        if query is None or not (payload or replaces):
            return False
        try:
            facts = await _call(query, FactPattern())
            if any(fact.id in replaces and fact.id != own for fact in facts):
                return False
            return not payload or any(_is_fact_of(delta, fact) for fact in facts)
        except (AttributeError, NotImplementedError, TypeError):  # facts of another form
            return False


def _is_fact_of(delta: Delta, fact: Any) -> bool:  # noqa: ANN401 # a fact of the host's class
    return bool(fact.payload == _payload(delta)) and any(
        link.get("rule_id") == delta.rule_id
        and link.get("source_episode_ids") == delta.source_episode_ids
        for link in fact.lineage
    )


_COUNTED = {"add": "added", "update": "updated", "delete": "deleted", "noop": "noop"}


@dataclass(frozen=True, slots=True)
class _Firing:
    """A firing of a rule, and the deltas that it has applied, by kind."""

    rule: ConsolidationRule
    at: datetime
    firing_id: str
    run: str = field(default_factory=new_run_id)
    counts: Counter[str] = field(default_factory=Counter)

    def record(self, delta: AnyDelta, number: int) -> Record:
        """Return what the log line of a delta says."""
        payload, at = _payload(delta), delta.promotion_ts
        return Record(
            seq=number,
            firing_id=self.firing_id,
            rule_id=self.rule.id,
            kind=delta.kind,
            fact_id=_text(payload.get("id")),
            replaces=_replaces(delta),
            source_episode_ids=tuple(delta.source_episode_ids),
            reason="",
            confidence=delta.confidence,
            at=at if at.tzinfo else self.at,
            user=_text(payload.get("user")),
            agent=_text(payload.get("agent")),
            run=self.run,
        )

    def outcome(self, due: Due, seconds: float) -> Outcome:
        """Return what the firing did; a host's store names no channels, so the first one counts."""
        rule, total = self.rule, self.counts.total()
        counted = {_COUNTED[kind]: number for kind, number in self.counts.items()}
        firing = Firing(
            rule.id,
            rule.content_hash,
            due.trigger,
            self.at,
            timing=due.timing(self.at),
            run=self.run,
        )
        channels = {rule.then_emits[0]: Counts(read=total, **counted)}
        return Outcome(firing, self.firing_id, channels, [], seconds)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def read_rules(settings: Settings) -> list[RuleRecord]:
    """Return what the record says of each rule that has fired, by id; nothing without a record.

    Raises:
        StoreError: The record cannot be read.
    """
    with _recorded(settings) as record:
        return [] if record is None else record.rules()


def read_served(settings: Settings) -> dict[str, datetime]:
    """Return the last cron instant that each rule has served; nothing without a record.

    Raises:
        StoreError: The record cannot be read.
    """
    with _recorded(settings) as record:
        marks = {} if record is None else record.positions()
    return {rule_id: served for rule_id, (_, served) in marks.items()}


@contextmanager
def _recorded(settings: Settings) -> Iterator[HostRecord | None]:
    if not settings.host_record_path.exists():
        yield None
        return
    with closing(HostRecord(settings.host_record_path, access="read")) as record:
        yield record


class HostDaemon(Daemon):
    """One run of slumberd over a host's own stores.

    It locks the state directory, keeps its record there, and answers `status` and `reload`.
    """

    async def _run_under_tenure(self) -> None:
        stores = await self._open_unless_stopped()
        if stores is None:
            return
        with closing(HostRecord(self._settings.host_record_path)) as record:
            consolidator = HostConsolidator(
                stores, record, self._logs.keyed(b""), self._clock, self._in_force.pause
            )
            # It has the methods of both that a scheduler calls.
            scheduler = Scheduler(
                clock=self._clock,
                episodes=cast("EpisodeLog", consolidator),
                watermarks=cast("Watermarks", consolidator),
                fire=consolidator.fire,
            )
            await self._serve_host(consolidator, scheduler)

    async def _open_unless_stopped(self) -> HostStores | None:
        """Open the stores; return None when the daemon shall stop, as while one does not answer."""
        opening = asyncio.ensure_future(open_host_stores(self._settings.host_store or ""))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await opening if opening.done() else None
        finally:
            opening.cancel()
            stopping.cancel()
            await asyncio.wait((opening, stopping), timeout=self._settings.stop_seconds)

    async def _serve_host(self, consolidator: HostConsolidator, scheduler: Scheduler) -> None:
        stop, settings = self._stop, self._settings
        async with Alarm(self._clock, scheduler.nudge) as alarm:
            reloading = Reloading(
                self._in_force,
                self._load,
                None,
                consolidator.turn,
                follow=(consolidator.replace, alarm.arm, scheduler.replace, self._show_rule_count),
                clock=self._clock,
            )
            reloading.begin()
            own: dict[str, Callable[[RequestForm, Caller], Awaitable[Answer]]] = {
                "status": partial(self._on_host_status, scheduler),
                "reload": reloading.answer,
                "outdated": reloading.outdated,
            }
            answers = {name: handler_of(OPERATIONS[name], run) for name, run in own.items()}
            watchdog = Watchdog(self._notifier.watchdog, lambda: scheduler.turned_at, [])
            async with listen(settings.state_dir, answers, runtime=settings.runtime_dir):
                self._report_ready()
                tasks = [
                    alarm.heartbeat(stop),
                    scheduler.run(stop),
                    reloading.run(),
                    watchdog.run(stop, within_seconds=self._notifier.watchdog_seconds),
                ]
                await self._run_tasks(tasks, lambda: None)

    async def _on_host_status(self, scheduler: Scheduler, _: RequestForm, __: Caller) -> Answer:
        return self._describe(scheduler) | {"language_model": None, "search_indexes": None}
