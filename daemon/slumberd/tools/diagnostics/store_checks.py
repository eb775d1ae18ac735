"""Check the content of the databases, the rules and the daemon's own report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from slumberd.consolidation.incoming import FUTURE
from slumberd.daemon.erased_content import NAMED, read_or_none
from slumberd.daemon.rules import PAUSED_FILE, paused_rules_of
from slumberd.daemon.stores import inspections_of
from slumberd.model.episode import EpisodeVersion, instant, latest_at
from slumberd.model.errors import StoreError
from slumberd.model.health import Finding
from slumberd.model.record import Reduction
from slumberd.model.rule import ConsolidationRule, Cron, Every
from slumberd.model.store_status import FactStoreStatus
from slumberd.operations.reads.rule_states import RuleState
from slumberd.rules.filters.checks import reads_column
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.rows import SCOPE_MISMATCH
from slumberd.storage.inspections import StoreInspections
from slumberd.storage.ledger.erasure import FORGET
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.tools.diagnostics.host_checks import THIS_MACHINE, Machine
from slumberd.tools.diagnostics.status import StatusContext, read_backlogs, rule_states
from slumberd.workers.scheduling.due import LATE, is_ahead

QUICK_SECONDS = 10.0
"""The time limit of each pass over a whole database, without `--deep`."""

PATIENCE = timedelta(minutes=10)
"""How long due work may wait for a running daemon before a check reports it."""


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """The installation that the checks examine.

    Attributes:
        settings: The configuration.
        rules: The loaded rules; None when they cannot be loaded.
        config: The configuration file, if one is used.
        daemon: The health report of the running daemon; None when none runs.
        now: The wall clock.
        machine: The host.
        seconds: The time limit of each pass over a whole database; None means no limit.
        outdated: The configuration keys that changed since the running daemon read them, by the
            command that applies them: ``reload`` or ``restart``.
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
    def stores(self) -> StoreInspections:
        """What looks at the stores of the installation."""
        return inspections_of(self.settings)

    @property
    def hurried(self) -> bool:
        """Whether the time limit allows no passes over whole databases."""
        return self.seconds == 0


def check_fact_store(
    where: str, seen: FactStoreStatus, unreached: Sequence[str], context: DoctorContext
) -> Iterator[Finding]:
    """Find problems in the content of the fact store.

    Args:
        unreached: The ids of episodes whose retractions cover nothing.
        context: The installation.
    """
    yield from _check_triggers(where, seen)
    yield from _check_clock(where, seen, context)
    yield from _check_served(seen, context)
    yield from _check_future_facts(where, seen, context)
    yield from _check_erasures(where, seen)
    yield from _check_quarantine(seen)
    yield from _check_held(seen)
    yield from _check_retractions(unreached)
    yield from _check_log(where, seen, context)
    yield from _check_provenance(where, seen, context)


def _check_triggers(where: str, seen: FactStoreStatus) -> Iterator[Finding]:
    if not seen.triggered:
        problem = "the triggers on 'facts' were changed: writes of other programs are not recorded"
        remedy = "restore a backup, or `slumberd audit replay` into a new file"
        yield Finding("store.triggers", where, problem, remedy)


def _check_clock(where: str, seen: FactStoreStatus, context: DoctorContext) -> Iterator[Finding]:
    """Find that the clock and the last recorded instant disagree: one of them is wrong."""
    latest = latest_at(context.now, context.settings.memory.future_tolerance)
    if seen.recorded is not None and seen.recorded > latest:
        at = f"{instant(seen.recorded):%Y-%m-%d %H:%M:%S}Z"
        problem = f"its last firing is at {at}, in the future: the clock is behind, or was ahead"
        remedy = "set the clock if it is behind; if it is right, run `slumberd clock accept`"
        yield Finding("clock.behind", where, problem, remedy)


def _check_served(seen: FactStoreStatus, context: DoctorContext) -> Iterator[Finding]:
    """Find cron instants that a wrong clock recorded as served."""
    tolerance = context.settings.memory.future_tolerance
    remedy = (
        "start the daemon: it sets it to now"
        if context.daemon is None
        else "check the clock of this host; the daemon sets it to now when it looks at its rules"
    )
    for rule, served in sorted(seen.served.items()):
        at = instant(served)
        if is_ahead(at, now=context.now, tolerance_seconds=tolerance):
            problem = (
                f"a wrong clock recorded that {at:%Y-%m-%d %H:%M:%S}Z is served; this is ignored"
            )
            yield Finding("clock.ahead", f"rule {rule}", problem, remedy)


def _check_future_facts(
    where: str, seen: FactStoreStatus, context: DoctorContext
) -> Iterator[Finding]:
    """Find that a current fact has a claim that is still to come, as 0.2.0 took them."""
    latest = latest_at(context.now, context.settings.memory.future_tolerance)
    if seen.latest_claim is not None and seen.latest_claim > latest:
        at = f"{instant(seen.latest_claim):%Y-%m-%d %H:%M:%S}Z"
        problem = f"a current fact was said at {at}, in the future: no newer episode replaces it"
        remedy = "`slumberd quarantine future` withdraws such claims until their instant comes"
        yield Finding("facts.future", where, problem, remedy)


def _check_erasures(where: str, seen: FactStoreStatus) -> Iterator[Finding]:
    if seen.unfinished:
        some = "1 erasure is" if seen.unfinished == 1 else f"{seen.unfinished} erasures are"
        problem = f"{some} incomplete: the episodes may still be in the episode database"
        remedy = "a running daemon finishes it within a minute; or run `slumberd forget` again"
        yield Finding("erasure.unfinished", where, problem, remedy)
    if seen.rewrites:
        yield Finding("erasure.pending", where, *_describe_rewrites(seen))


def _describe_rewrites(seen: FactStoreStatus) -> tuple[str, str]:
    """Return which erasures have left bytes, and what removes them."""
    stores = " and ".join(dict.fromkeys(one.store for one in seen.rewrites))
    rows = sorted({one.row for one in seen.rewrites})
    named = ", ".join(firing_id_of(FORGET, row) for row in rows[:NAMED])
    named += f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    problem = f"the store of {stores} may still have bytes of what {named} erased"
    if seen.snapshots:
        problem += f"; old versions of rows may be kept by {'; '.join(seen.snapshots[:NAMED])}"
        return problem, "end that transaction; a running daemon then removes the bytes"
    remedy = "a running daemon removes them; `erasure.pending` in its log says what it waits for"
    return problem, remedy


def _check_quarantine(seen: FactStoreStatus) -> Iterator[Finding]:
    others: Counter[str] = Counter()
    for (rule, reason), count in sorted(seen.quarantined.items()):
        if reason == SCOPE_MISMATCH:
            problem = f"{_count_text(count)} whose scope key and content disagree"
            remedy = "correct the program that writes them; see `memory.scope_mismatch`"
            yield Finding("episodes.mismatched", f"rule {rule}", problem, remedy)
        elif reason != FUTURE:  # another check names these episodes
            others[rule] += count
    for rule, count in others.items():
        problem = f"{_count_text(count)} in quarantine"
        remedy = "`slumberd quarantine ls` says why; then `retry` or `drop`"
        yield Finding("episodes.quarantined", f"rule {rule}", problem, remedy)


LATEST_ROWS = 500
"""How many rows of the episode log are searched for words of the person."""

_NAMED_SPEAKERS = 3


def check_person(context: DoctorContext) -> Iterator[Finding]:
    """Find rules that take only the words of the person, while no recent speaker is one."""
    asking = [
        rule
        for rule in (context.rules.of_episodes().rules if context.rules else ())
        if rule.enabled and reads_column(rule.when_filter, "is_person")
    ]
    if not asking:
        return
    versions = read_or_none(partial(context.stores.episodes.latest_versions, LATEST_ROWS)) or []
    speakers = Counter(version.speaker for version in versions if not version.fault)
    if not speakers or not speakers.keys().isdisjoint(context.settings.memory.person):
        return
    named = [name for name, _ in speakers.most_common() if name is not None][:_NAMED_SPEAKERS]
    problem = "takes only what the person says, but no recent speaker is the person: "
    problem += f"speakers are {', '.join(map(repr, named))}" if named else "no speaker is known"
    remedy = (
        "list the speakers with the person's words in `memory.person` of the configuration"
        if named
        else "put the words of the person with `speaker` `user` in the metadata"
    )
    for rule in asking:
        yield Finding("rule.no_person", f"rule {rule.id}", problem, remedy)


def _count_text(count: int) -> str:
    return "1 episode" if count == 1 else f"{count} episodes"


def _check_held(seen: FactStoreStatus) -> Iterator[Finding]:
    for batch in seen.held.values():
        rule = batch.firing_id.rpartition("@")[0]
        remedy = f"`slumberd approve {batch.firing_id}` or `slumberd reject {batch.firing_id}`"
        yield Finding(
            "rule.held", f"rule {rule}", f"a batch awaits approval: {batch.problem}", remedy
        )


def _check_retractions(found: Sequence[str]) -> Iterator[Finding]:
    if found:
        names = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        how_many = "1 retraction covers" if len(found) == 1 else f"{len(found)} retractions cover"
        problem = f"{how_many} nothing: {names}"
        remedy = f"`slumberd why-not {found[0]}`; is the clock of the host that wrote it behind?"
        yield Finding("claims.unreached", "episodes", problem, remedy)


def check_disagreements(pairs: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Find declared facts with another object than the promoted fact of the same key."""
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


def check_reductions(where: str, found: Sequence[Reduction]) -> Iterator[Finding]:
    """Find alarming reductions of facts."""
    if found:
        shown = "; ".join(reduction.words() for reduction in found[:NAMED])
        problem = shown + ("; ..." if len(found) > NAMED else "")
        remedy = (
            "`slumberd report` shows what removed them; `slumberd undo FIRING` takes a firing back,"
            " and nothing takes back an erasure; see `limits.alarm_fraction`"
        )
        yield Finding("facts.reduced", where, problem, remedy)


def check_future_episodes(found: Sequence[EpisodeVersion]) -> Iterator[Finding]:
    """Find episodes that are dated in the future."""
    if found:
        named = [
            f"{episode.id} ({instant(episode.at):%Y-%m-%d %H:%M:%S}Z)" for episode in found[:NAMED]
        ]
        names = ", ".join(named) + (", ..." if len(found) > NAMED else "")
        are = "is" if len(found) == 1 else "are"
        problem = f"{_count_text(len(found))} {are} dated in the future: {names}"
        remedy = (
            "put them again with their real timestamps; else rules evaluate them when these come"
        )
        yield Finding("episodes.future", "episodes", problem, remedy)


def _check_log(where: str, seen: FactStoreStatus, context: DoctorContext) -> Iterator[Finding]:
    if seen.unlogged and context.daemon is None:
        problem = f"{seen.unlogged} rows of the ledger have no log line yet"
        yield Finding("log.unwritten", where, problem, "start the daemon: it writes them first")


def _check_provenance(
    where: str, seen: FactStoreStatus, context: DoctorContext
) -> Iterator[Finding]:
    sink = context.settings.provenance.sink
    if sink is None or sink not in seen.sinks or started_recently(context):
        return
    lag = seen.sinks[sink].lag
    if lag.seconds(context.now) > PATIENCE.total_seconds():
        since = f"{lag.since:%Y-%m-%d %H:%M:%S}Z"
        rows = "1 row" if lag.rows == 1 else f"{lag.rows:,} rows"
        problem = f"the provenance sink is {rows} behind, since {since}"
        down = "start the daemon: it publishes them"
        remedy = "see `provenance.failed` in the daemon's log" if context.daemon else down
        yield Finding("provenance.behind", where, problem, remedy)


def started_recently(context: DoctorContext) -> bool:
    """Return whether the daemon runs for too short a time to have done pending work."""
    daemon = context.daemon
    return daemon is not None and daemon["uptime_seconds"] < PATIENCE.total_seconds()


def check_degraded_rules(daemon: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Find rules that the running daemon reports as degraded."""
    for rule in daemon.get("failing", ()) if daemon else ():
        if rule["degraded"]:
            since = f"{rule['since'][:19].replace('T', ' ')}Z"
            problem = f"failed {rule['failures']} times in a row since {since}: {rule['error']}"
            remedy = (
                "see `firing.failed` in the daemon's log for the message; correct what it names"
            )
            yield Finding("rule.degraded", f"rule {rule['rule_id']}", problem, remedy)


def check_paused_rules(settings: Settings) -> Iterator[Finding]:
    """Find that the list of paused rules of a configuration cannot be read."""
    if paused_or_none(settings) is None and settings.store is None:
        problem = "cannot be read: a daemon does not start with it"
        remedy = "restore it from a backup, or delete it to resume every rule"
        yield Finding("state.unreadable", str(settings.state_dir / PAUSED_FILE), problem, remedy)


def check_stage_notes(context: DoctorContext, unfinished: list[str]) -> Iterator[Finding]:
    """Find that the notes of the stages of rules are damaged, or not what the stages would keep."""
    path = context.settings.stages_path
    if not path.exists():
        return
    # Its imports take a tenth of a second.
    from slumberd.daemon.stage_notes import find_wrong_notes, stage_file_of

    file = stage_file_of(context.settings)
    problem = "" if file is None else file.find_problem()
    if not problem and not context.hurried and context.rules is not None:
        staged = [rule for rule in context.rules.of_episodes().rules if rule.stages]
        wrong = find_wrong_notes(context.settings, staged, context.now, context.seconds)
        if wrong is None:
            unfinished.append(f"notes in {str(path)!r}")
        problem = "; ".join(wrong or ())
    if problem:
        remedy = "delete it: the next firing of each rule with stages makes it again"
        yield Finding("stage_notes.damaged", str(path), problem, remedy)


def paused_or_none(settings: Settings) -> Mapping[str, str] | None:
    """Return the paused rules of a configuration; None when their list cannot be read."""
    try:
        return paused_rules_of(settings).read()
    except StoreError:
        return None


def check_due_rules(context: DoctorContext) -> Iterator[Finding]:
    """Find rules that have been due for too long."""
    settings, rules = context.settings, context.rules
    seen = read_or_none(context.stores.facts.status)
    paused = paused_or_none(settings)
    if rules is None or seen is None or paused is None or started_recently(context):
        return
    episodes = context.stores.episodes
    backlogs = read_or_none(partial(read_backlogs, episodes, rules, seen, _most_counted))
    status = StatusContext(settings, seen, backlogs, paused, context.now)
    for state in rule_states(rules, status):
        yield from _check_lateness(state, context)


def _most_counted(rule: ConsolidationRule) -> int:
    return 10 * rule.due.count if isinstance(rule.due, Every) else 0


def _check_lateness(state: RuleState, context: DoctorContext) -> Iterator[Finding]:
    rule, due_at = state.rule, state.status.due_at
    if due_at is None or context.now - due_at < _patience_with(rule, context):
        return
    fired = f"; it fired last at {state.fired_at:%Y-%m-%d %H:%M:%S}Z" if state.fired_at else ""
    down = "start the daemon, or `slumberd fire " + rule.id + "`"
    remedy = "see `firing.failed` in the daemon's log" if context.daemon else down
    problem = _describe_lateness(rule, due_at, state.status.pending or 0)
    yield Finding("rule.late", f"rule {rule.id}", problem + fired, remedy)


def _patience_with(rule: ConsolidationRule, context: DoctorContext) -> timedelta:
    """Return for how long a rule may be due before a check reports it."""
    if context.daemon is not None:
        return PATIENCE
    return LATE if isinstance(rule.due, Cron) else timedelta()


def _describe_lateness(rule: ConsolidationRule, due_at: datetime, pending: int) -> str:
    match rule.due:
        case Every(count=count):
            more = "or more " if pending == _most_counted(rule) else ""
            some = "1 version is" if pending == 1 else f"{pending} {more}versions are"
            return f"{some} pending; the rule fires every {count}"
        case Cron():
            return f"was due at {due_at:%Y-%m-%d %H:%M:%S}Z"
        case never:
            assert_never(never)
