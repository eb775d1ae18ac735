"""What stores and rules tell of what is not as it should be; looks, and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.diagnostics.host_checks import THIS_MACHINE, Machine
from slumberd.errors import StoreError
from slumberd.model.cadence import Cron, Every
from slumberd.model.episode import EpisodeVersion, instant, microseconds
from slumberd.model.finding import Finding
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling import cron
from slumberd.scheduling.due import LATE
from slumberd.service.erased_content import NAMED, read_or_none
from slumberd.service.pause import paused_in
from slumberd.storage.audit import offline_status
from slumberd.storage.audit.offline_status import FactsSeen
from slumberd.storage.episodes.rows import SCOPE_MISMATCH
from slumberd.storage.sqlite.recovery import look

QUICK_SECONDS = 10.0
"""How long each pass over a whole database may take, unless it is to go deep."""

PATIENCE = timedelta(minutes=10)
"""How long what is due may wait for a daemon that runs."""


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What is looked over.

    Attributes:
        settings: The configuration.
        rules: What it names; None when they cannot be loaded.
        config: The file of the configuration, when it is known.
        daemon: What the running daemon says of itself; None when none runs.
        now: The wall clock.
        machine: Where the marks of the system are.
        seconds: How long each pass over a whole database may take; None sets no bound.
        outdated: Keys of the configuration that have changed since the running daemon read it, by
            what puts them into force: ``reload`` or ``restart``.
    """

    settings: Settings
    rules: RuleSet | None
    config: Path | None
    daemon: Mapping[str, Any] | None
    now: datetime
    machine: Machine = THIS_MACHINE
    seconds: float | None = QUICK_SECONDS
    outdated: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def hurried(self) -> bool:
        """Whether there is no time for passes over whole databases."""
        return self.seconds == 0


def told_by(
    path: Path, seen: FactsSeen, unreached: Sequence[str], context: DoctorContext
) -> Iterator[Finding]:
    """Find what a database of facts tells.

    Args:
        path: Of the database.
        seen: What it says.
        unreached: Episodes whose retraction reaches nothing.
        context: Whose it is.
    """
    yield from _triggers(path, seen)
    yield from _future(path, seen, context.now)
    yield from _unfinished(path, seen)
    yield from _quarantine(seen)
    yield from _held(seen)
    yield from _unreached(unreached)
    yield from _unlogged(path, seen, context)
    yield from _behind(path, seen, context)


def _triggers(path: Path, seen: FactsSeen) -> Iterator[Finding]:
    if not seen.triggered:
        problem = "the triggers on 'facts' are not ours: what other programs write is not noticed"
        remedy = "put back a backup, or `slumberd audit replay` into a new file"
        yield Finding("store.triggers", str(path), problem, remedy)


def _future(path: Path, seen: FactsSeen, now: datetime) -> Iterator[Finding]:
    last = max(seen.fired.values(), default=0)
    if last > microseconds(now + LATE):
        problem = f"its last firing is of {instant(last):%Y-%m-%d %H:%M:%S}Z, which is to come"
        yield Finding("clock.behind", str(path), problem, "set the clock; until then time stands")


def _unfinished(path: Path, seen: FactsSeen) -> Iterator[Finding]:
    if seen.unfinished:
        some = "1 erasure is" if seen.unfinished == 1 else f"{seen.unfinished} erasures are"
        problem = f"{some} half done: the episodes may still be in the database of episodes"
        remedy = "`systemctl restart slumberd` finishes it; or ask `slumberd forget` again"
        yield Finding("erasure.unfinished", str(path), problem, remedy)


def _quarantine(seen: FactsSeen) -> Iterator[Finding]:
    others: Counter[str] = Counter()
    for (rule, reason), count in sorted(seen.quarantined.items()):
        if reason == SCOPE_MISMATCH:
            problem = f"{_episodes_of(count)} whose scope key and content disagree"
            remedy = "mend the program that writes them; see `memory.scope_mismatch`"
            yield Finding("episodes.mismatched", f"rule {rule}", problem, remedy)
        else:
            others[rule] += count
    for rule, count in others.items():
        problem = f"{_episodes_of(count)} in quarantine"
        remedy = "`slumberd quarantine ls` says why; then `retry` or `drop`"
        yield Finding("episodes.quarantined", f"rule {rule}", problem, remedy)


def _episodes_of(count: int) -> str:
    return "1 episode" if count == 1 else f"{count} episodes"


def _held(seen: FactsSeen) -> Iterator[Finding]:
    for rule, batch in seen.held.items():
        remedy = f"`slumberd approve {batch.firing_id}` or `slumberd reject {batch.firing_id}`"
        yield Finding("rule.held", f"rule {rule}", f"a batch is held: {batch.problem}", remedy)


def _unreached(found: Sequence[str]) -> Iterator[Finding]:
    if found:
        names = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        how_many = "1 retraction reaches" if len(found) == 1 else f"{len(found)} retractions reach"
        problem = f"{how_many} nothing: {names}"
        remedy = f"`slumberd why-not {found[0]}`; is the clock of the host that wrote it behind?"
        yield Finding("acts.unreached", "episodes", problem, remedy)


def disagreements(pairs: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Find declared facts that say another object than the fact of the same key."""
    if not pairs:
        return
    shown = [f"{declared} (declared) and {held}" for declared, held in pairs[:NAMED]]
    names = "; ".join(shown) + ("; ..." if len(pairs) > NAMED else "")
    how_many = "1 pair of facts disagrees" if len(pairs) == 1 else f"{len(pairs)} pairs disagree"
    declared, held = pairs[0]
    remedy = (
        f"`slumberd why {declared}` and `slumberd why {held}`; `slumberd unpin` the wrong one, or "
        "list the predicate under `multi_valued`"
    )
    yield Finding("facts.disagree", "facts", f"{how_many} on a single value: {names}", remedy)


def dated_ahead(found: Sequence[EpisodeVersion]) -> Iterator[Finding]:
    """Find episodes that are dated in the future."""
    if found:
        told = [f"{one.id} ({instant(one.at):%Y-%m-%d %H:%M:%S}Z)" for one in found[:NAMED]]
        names = ", ".join(told) + (", ..." if len(found) > NAMED else "")
        are = "is" if len(found) == 1 else "are"
        problem = f"{_episodes_of(len(found))} {are} dated in the future: {names}"
        remedy = "put them again with their real timestamps: until then nothing newer replaces them"
        yield Finding("episodes.future", "episodes", problem, remedy)


def _unlogged(path: Path, seen: FactsSeen, context: DoctorContext) -> Iterator[Finding]:
    if seen.unlogged and context.daemon is None:
        problem = f"{seen.unlogged} rows of the ledger have no log line yet"
        yield Finding("log.unwritten", str(path), problem, "start the daemon: it writes them first")


def _behind(path: Path, seen: FactsSeen, context: DoctorContext) -> Iterator[Finding]:
    sink = context.settings.provenance.sink
    if sink is None or sink not in seen.told or _is_young(context):
        return
    lag = seen.told[sink].lag
    if lag.seconds(context.now) > PATIENCE.total_seconds():
        since = f"{lag.since:%Y-%m-%d %H:%M:%S}Z"
        rows = "1 row" if lag.rows == 1 else f"{lag.rows:,} rows"
        problem = f"the sink of provenance is {rows} behind, since {since}"
        down = "start the daemon: it tells it"
        remedy = "see `provenance.failed` in the daemon's log" if context.daemon else down
        yield Finding("provenance.behind", str(path), problem, remedy)


def _is_young(context: DoctorContext) -> bool:
    """Say whether the daemon has had no time yet for what it found."""
    daemon = context.daemon
    return daemon is not None and daemon["uptime_seconds"] < PATIENCE.total_seconds()


def degraded(daemon: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Find rules that fail again and again, by what the running daemon says of itself."""
    for one in daemon.get("failing", ()) if daemon else ():
        if one["degraded"]:
            since = f"{one['since'][:19].replace('T', ' ')}Z"
            problem = f"failed {one['failures']} times in a row since {since}: {one['error']}"
            remedy = "see `firing.failed` in the daemon's log for the message; mend what it names"
            yield Finding("rule.degraded", f"rule {one['rule_id']}", problem, remedy)


def waiting(context: DoctorContext) -> Iterator[Finding]:
    """Find rules that have been due for longer than they should be."""
    seen = read_or_none(context.settings.facts_path, offline_status.facts_in)
    if seen is None or _is_young(context):
        return
    paused = paused_in(context.settings.state_dir)
    for rule in context.rules.rules if context.rules else ():
        rests = not rule.enabled or rule.id in paused or rule.id in seen.held
        if rule.id in seen.marks and not rests:
            yield from _late(rule, seen, context)


def _late(rule: ConsolidationRule, seen: FactsSeen, context: DoctorContext) -> Iterator[Finding]:
    if why := _why_late(rule, seen, context):
        fired = seen.fired.get(rule.id)
        ago = f"; it fired last at {instant(fired):%Y-%m-%d %H:%M:%S}Z" if fired else ""
        down = "start the daemon, or `slumberd fire " + rule.id + "`"
        remedy = "see `firing.failed` in the daemon's log" if context.daemon else down
        yield Finding("rule.late", f"rule {rule.id}", why + ago, remedy)


def _why_late(rule: ConsolidationRule, seen: FactsSeen, context: DoctorContext) -> str:
    match rule.due:
        case Every(count=count):
            return _full(seen.marks[rule.id], count, seen.fired.get(rule.id, 0), context)
        case Cron() as due:
            return _missed(due, seen.served[rule.id], context)
        case never:
            assert_never(never)


def _full(mark: int, count: int, fired: int, context: DoctorContext) -> str:
    if context.daemon is not None and microseconds(context.now - PATIENCE) < fired:
        return ""
    count_pending = partial(offline_status.pending_in, after=mark, at_most=10 * count)
    try:
        pending = look(context.settings.memory_path, count_pending)
    except StoreError:
        return ""
    more = "or more " if pending == 10 * count else ""
    return f"{pending} {more}versions wait, of {count} each" if pending >= count else ""


def _missed(due: Cron, served: int, context: DoctorContext) -> str:
    zone = due.timezone or context.settings.timezone
    until = context.now - (PATIENCE if context.daemon else LATE)
    try:
        missed = cron.missed_instants(due.expression, zone, after=instant(served), until=until)
    except ValueError:
        return ""
    return f"was due at {missed.first:%Y-%m-%d %H:%M:%S}Z" if missed else ""
