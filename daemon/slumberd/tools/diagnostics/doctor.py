"""Run all checks of an installation. The checks change nothing and return problems as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from slumberd.daemon.damage import describe_damage
from slumberd.daemon.erased_content import (
    HURRIED_SECONDS,
    NAMED,
    find_foreign,
    find_resurfaced,
    find_unlisted,
)
from slumberd.daemon.file_exchange import is_unfinished
from slumberd.model.episode import microseconds
from slumberd.model.errors import ConfigurationError, SchemaError, StoreError
from slumberd.model.health import Finding
from slumberd.model.record import WITHIN
from slumberd.model.rule import Cron
from slumberd.rules.rule_loader import RuleSet, rule_files
from slumberd.rules.settings import Settings
from slumberd.rules.warnings import find_warnings
from slumberd.search.saved_indexes import DIRECTORY, check_indexes
from slumberd.storage.closed_stores import StoreFiles
from slumberd.storage.inspections import StoreInspection
from slumberd.tools.diagnostics.database_checks import check_database, find_unusable
from slumberd.tools.diagnostics.host_checks import (
    Machine,
    check_clock,
    check_disk_space,
    check_file_modes,
    check_http_address,
    check_state_files,
    check_textfile,
    check_time_zones,
    check_unit,
    check_unit_user,
    megabytes,
)
from slumberd.tools.diagnostics.learning import (
    check_learning,
    check_transcripts,
    check_waiting_answers,
)
from slumberd.tools.diagnostics.store_checks import (
    DoctorContext,
    check_degraded_rules,
    check_disagreements,
    check_due_rules,
    check_fact_store,
    check_future_episodes,
    check_paused_rules,
    check_person,
    check_reductions,
    check_stage_notes,
)

URGENT = frozenset(
    {
        "answers.waiting", "clock.ahead", "clock.behind", "config.invalid", "daemon.down",
        "daemon.silent",
        "database.inbox", "database.not_durable", "database.old_transaction", "database.read_only",
        "database.rights", "database.schema", "database.unheld",
        "database.unreachable", "database.wraparound", "disk.low",
        "episodes.future", "episodes.mismatched", "episodes.quarantined", "facts.future",
        "facts.reduced", "host.clock", "hosts.differ",
        "erasure.contradicted", "erasure.pending", "erasure.unfinished", "erasure.unlisted",
        "rule.degraded",
        "rule.held", "rule.late", "rules.stale", "restore.unfinished", "state.missing",
        "state.unreadable", "store.damaged", "store.unreadable", "store.values",
        "transcripts.no_person", "transcripts.unknown",
    }
)  # fmt: skip
"""The kinds that `slumberd status --check` reports: a person must act soon."""

_APPLY_REMEDIES = {"reload": "`slumberd reload`", "restart": "`systemctl restart slumberd`"}
_NETWORK_TYPES = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of all checks.

    Attributes:
        findings: The problems that were found, errors first.
        unfinished: The checks that reached their time limit.
    """

    findings: Sequence[Finding]
    unfinished: Sequence[str]


def run_checks(context: DoctorContext) -> DoctorReport:
    """Run all checks, whether the daemon runs or not. Errors of a check become findings."""
    unfinished: list[str] = []
    findings = [*_check_host(context), *_check_state(context, unfinished)]
    findings.sort(key=lambda finding: finding.severity == "warning")
    return DoctorReport(findings, unfinished)


def find_urgent(context: DoctorContext) -> list[Finding]:
    """Return the urgent findings only, and that no daemon runs."""
    findings = run_checks(context).findings
    down = [] if context.daemon else [_daemon_down(context)]
    return [*down, *(finding for finding in findings if finding.id in URGENT)]


def _daemon_down(context: DoctorContext) -> Finding:
    remedy = "`systemctl start slumberd`, or `slumberd run`"
    if context.settings.store is None:
        return Finding("daemon.down", str(context.settings.state_dir), "no daemon runs", remedy)
    place = context.stores.facts.where
    return Finding("daemon.down", place, "no daemon is active", f"{remedy}, on one of the hosts")


def _check_host(context: DoctorContext) -> Iterator[Finding]:
    settings, directory = context.settings, context.settings.state_dir
    yield from _run_check(settings.rules_dir, lambda: _check_config_files(context))
    if settings.rules_dir.is_dir():
        yield from _run_check(settings.rules_dir, lambda: check_ignored_files(settings.rules_dir))
    if directory.is_dir():
        yield from _run_check(
            directory, lambda: check_state_files(directory, _state_files(context))
        )
        databases = sum(_size_of(store) for store in _own_stores(context) if store.on_disk)
        yield from _run_check(
            directory, lambda: check_disk_space(directory, databases, context.machine)
        )
        if file := settings.textfile_path:
            yield from _run_check(directory, lambda: check_textfile(file, directory))
    yield from check_http_address(settings.serve)
    yield from check_clock(context.machine)
    yield from check_time_zones(_configured_zones(context))
    yield from _run_check(directory, lambda: check_unit(context.machine, directory))
    yield from _run_check(directory, lambda: _check_unit_user(context))


def _run_check(path: Path, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check; one that names the error if the check cannot run."""
    try:
        return list(check())
    except OSError as error:
        subject = str(error.filename or path)
        problem = f"cannot be read: {error.strerror}"
        return [Finding("store.unreadable", subject, problem, "run as root, or as its owner")]


def _own_stores(context: DoctorContext) -> Sequence[StoreInspection]:
    """Return slumberd's own stores; none when the stores are a host's."""
    return () if context.settings.host_store is not None else context.stores


def _state_files(context: DoctorContext) -> list[Path]:
    settings, stores = context.settings, _own_stores(context)
    files = [file for store in stores if store.on_disk for file in store.on_disk.paths()]
    files.append(context.settings.stages_path)
    sink = settings.provenance_path if settings.provenance.sink == "file" else None
    indexes = settings.state_dir / DIRECTORY
    return [*files, *filter(None, [settings.log_path, sink]), indexes, *indexes.glob("*")]


def _check_config_files(context: DoctorContext) -> Iterator[Finding]:
    rules = context.settings.rules_dir
    files = sorted(rules.iterdir()) if rules.is_dir() else []
    pack = context.settings.pack_path
    packed = [pack, *sorted(pack.rglob("*"))] if pack and pack.is_dir() else []
    return check_file_modes([*filter(None, [context.config]), rules, *files, *packed])


def _check_unit_user(context: DoctorContext) -> Iterator[Finding]:
    settings = context.settings
    files = [*filter(None, [context.config]), settings.rules_dir]
    with suppress(ConfigurationError):  # the finding config.invalid reports it
        files += rule_files(settings.rules_dir)
    return check_unit_user(context.machine, settings.state_dir, files)


def _size_of(store: StoreInspection) -> int:
    try:
        return store.sizes().total
    except StoreError:
        return 0


def _configured_zones(context: DoctorContext) -> list[str]:
    rules = context.rules.rules if context.rules else ()
    named = [rule.due.timezone for rule in rules if isinstance(rule.due, Cron)]
    return [context.settings.timezone, *filter(None, named)]


def check_ignored_files(directory: Path) -> Iterator[Finding]:
    """Find files that look like rule files and are not read."""
    for path in sorted(directory.iterdir()):
        name = path.name.lower()
        read = path.suffix in (".yaml", ".yml") and not name.startswith(".")
        if (".yaml" in name or ".yml" in name) and not read:
            problem = "is not read: rule files end in .yaml or .yml, and are not hidden"
            yield Finding("rules.ignored", str(path), problem, "rename it, or move it elsewhere")


def _check_state(context: DoctorContext, unfinished: list[str]) -> Iterator[Finding]:
    settings = context.settings
    if settings.store is not None:
        if (unusable := find_unusable(settings)) is not None:
            yield unusable
            return
    elif not settings.state_dir.is_dir():
        remedy = "`slumberd run` creates it"
        yield Finding("state.missing", str(settings.state_dir), "is not a directory", remedy)
        return
    if settings.host_store is not None:
        yield from _check_host_record(settings)
        yield from _check_daemon(context)
        return
    if is_unfinished(settings.state_dir):
        remedy = "start the daemon, which finishes it; or run `slumberd restore DIR` again"
        problem = "a restore was begun, and not finished"
        yield Finding("restore.unfinished", str(settings.state_dir), problem, remedy)
    episodes, facts = context.stores
    for store, inspect in ((episodes, _check_episodes), (facts, _check_facts)):
        yield from _check_store(store, context, unfinished, partial(inspect, context, unfinished))
    yield from _check_both(context, unfinished)


def _check_host_record(settings: Settings) -> Iterator[Finding]:
    """Find that the record of what was applied to a host's own store cannot be read."""
    from slumberd.daemon.host_store import read_rules

    try:
        read_rules(settings)
    except StoreError as error:
        path = str(settings.host_record_path)
        remedy = "move it away: the next firing of each rule applies every delta again"
        yield Finding("store.unreadable", path, str(error), remedy)


def _check_both(context: DoctorContext, unfinished: list[str]) -> Iterator[Finding]:
    """Find the problems that concern both stores."""
    seconds = HURRIED_SECONDS if context.hurried else context.seconds
    checks: tuple[Callable[[], Iterable[Finding]], ...] = (
        lambda: find_resurfaced(context.stores, seconds),
        lambda: find_unlisted(context.stores),
        lambda: find_foreign(context.stores, seconds),
        lambda: check_database(context.settings),
        lambda: _check_daemon(context),
        lambda: check_paused_rules(context.settings),
        lambda: check_stage_notes(context, unfinished),
        lambda: check_due_rules(context),
        lambda: check_person(context),
        lambda: check_learning(context),
        lambda: check_waiting_answers(context),
        lambda: check_transcripts(context.settings.state_dir, context.now),
        lambda: () if context.hurried else _check_indexes(context.settings.state_dir),
    )
    for check in checks:
        try:
            yield from check()
        except StoreError as error:
            yield _unreadable_finding(context.stores.facts.where, error)
        except Exception as error:  # noqa: BLE001 # raised again when the store is intact
            yield _explain_by_damage(context.stores.facts, context, error)


def _check_indexes(directory: Path) -> Iterator[Finding]:
    """Find saved indexes of the search that cannot be read."""
    for path, problem in check_indexes(directory):
        if problem:
            remedy = f"run `rm {path}`; the next search builds it anew"
            yield Finding("search.damaged", str(path), problem, remedy)


def _check_store(
    store: StoreInspection,
    context: DoctorContext,
    unfinished: list[str],
    inspect: Callable[[], Iterable[Finding]],
) -> Iterator[Finding]:
    """Find the problems of one store: of its files, then of its content."""
    try:
        if store.on_disk is not None:
            found = list(_check_files(store, store.on_disk, context, unfinished))
            yield from found
            if any(finding.id in _UNUSABLE for finding in found):
                return
        yield from inspect()
    except StoreError as error:
        yield _unreadable_finding(store.where, error)
    except Exception as error:  # noqa: BLE001 # raised again when the store is intact
        yield _explain_by_damage(store, context, error)


def _explain_by_damage(store: StoreInspection, context: DoctorContext, error: Exception) -> Finding:
    """Return that a store is damaged, when that is why a check failed.

    Raises:
        Exception: The store is not damaged.
    """
    damage = describe_damage(context.settings)
    if not damage:
        raise error
    return Finding("store.values", store.where, damage, _RESTORE)


_RESTORE = "`slumberd restore DIR` restores a backup; `slumberd audit verify` says more"

_UNUSABLE = ("state.missing", "store.damaged")
"""Findings on files that leave nothing to check in their content."""


def _check_files(
    store: StoreInspection, files: StoreFiles, context: DoctorContext, unfinished: list[str]
) -> Iterator[Finding]:
    """Find the problems of the files of a store."""
    if files.is_missing():
        problem, remedy = "does not exist", "`slumberd run` creates it; was it moved or deleted?"
        yield Finding("state.missing", store.where, problem, remedy)
        return
    yield from _check_location(store, files, context.machine)
    damage = files.damage(context.seconds)
    if damage is None and not context.hurried:
        unfinished.append(f"quick_check of {store.where!r}")
    elif damage or files.has_foreign_log():
        problem = damage or "its write-ahead log seems to belong to another database"
        yield _damaged_finding(store.where, problem)
        return
    if older := files.older_schema():
        number, newest = older
        problem = f"has schema {number}, and the next start upgrades it to {newest}"
        remedy = (
            "make a copy with `slumberd backup DIR` first: older releases do not open an upgraded "
            "file; then start the daemon, or run `slumberd upgrade`"
        )
        yield Finding("store.older", store.where, problem, remedy)
    if not files.writes_ahead():
        problem = "has no write-ahead log: readers and writers wait for each other"
        yield Finding("store.journal", store.where, problem, "start the daemon: it creates the log")


def _unreadable_finding(where: str, error: StoreError) -> Finding:
    if isinstance(error, SchemaError) and error.problem.startswith("is damaged"):
        return _damaged_finding(where, "cannot be read to its end")
    if isinstance(error, SchemaError) and error.remedy:
        return Finding("store.unreadable", where, error.problem, error.remedy)
    problem = str(error).removeprefix(f"{where!r} ").removeprefix(f"{where!r}: ")
    remedy = "check its owner and mode; `slumberd restore DIR` restores a backup of it"
    return Finding("store.unreadable", where, problem, remedy)


def _damaged_finding(where: str, damage: str) -> Finding:
    remedy = (
        f"stop the daemon; move {Path(where).name}-wal away if it may belong to another file; else "
        "`slumberd restore DIR` restores a backup; `slumberd audit replay` rebuilds facts too"
    )
    return Finding("store.damaged", where, " ".join(damage.split()), remedy)


def _check_location(
    store: StoreInspection, files: StoreFiles, machine: Machine
) -> Iterator[Finding]:
    (kind, log), log_bytes = files.location(), store.sizes().log
    if kind.startswith(_NETWORK_TYPES):
        problem = f"is on {kind}, where file locks are not reliable"
        yield Finding("store.network", store.where, problem, "move it to a local disk")
    if log_bytes > machine.large_log_bytes:
        problem = f"has grown to {megabytes(log_bytes)}: a program has a long read transaction open"
        remedy = f"end the program that reads: `fuser -v {store.where}`"
        yield Finding("store.log", log, problem, remedy)


def _check_episodes(context: DoctorContext, unfinished: list[str]) -> list[Finding]:
    episodes = context.stores.episodes
    if episodes.has_log():
        return _check_future(context, unfinished)
    problem = "episode log, indexes or triggers are missing: was the table rebuilt?"
    remedy = "start the daemon, or `slumberd fire --all`: rules evaluate every episode again"
    return [Finding("store.triggers", episodes.where, problem, remedy)]


def _check_future(context: DoctorContext, unfinished: list[str]) -> list[Finding]:
    latest = context.now + timedelta(seconds=context.settings.memory.future_tolerance)
    seconds = HURRIED_SECONDS if context.hurried else context.seconds
    episodes = context.stores.episodes
    found = episodes.future_episodes(latest, seconds)
    if found is None:
        unfinished.append(f"timestamps in {episodes.where!r}")
    return list(check_future_episodes(found or []))


def _check_facts(context: DoctorContext, unfinished: list[str]) -> list[Finding]:
    facts = context.stores.facts
    damaged = facts.damaged_values(context.seconds)
    if damaged is None and not context.hurried:
        unfinished.append(f"values in {facts.where!r}")
    if damaged:
        problem = "; ".join(damaged[:NAMED]) + ("; ..." if len(damaged) > NAMED else "")
        return [Finding("store.values", facts.where, problem, _RESTORE)]
    seen = facts.status()
    if seen is None:
        problem = "has no ledger: slumberd has not created it"
        return [Finding("store.unreadable", facts.where, problem, "start the daemon")]
    unreached = facts.unreached_retractions(context.seconds)
    if unreached is None and not context.hurried:
        unfinished.append(f"retractions without effect in {facts.where!r}")
    since = microseconds(context.now - WITHIN)
    shrinkage = facts.shrinkage(since)
    fraction = context.settings.limits.alarm_fraction
    reduced = [] if shrinkage is None else [*shrinkage.reductions(fraction)]
    pairs = facts.disagreeing_facts(context.seconds)
    if pairs is None and not context.hurried:
        unfinished.append(f"facts that disagree in {facts.where!r}")
    return [
        *check_fact_store(facts.where, seen, unreached or [], context),
        *check_disagreements(pairs or []),
        *check_reductions(facts.where, reduced),
    ]


def _check_rule_files(rules: RuleSet) -> Iterator[Finding]:
    warnings = find_warnings(rules)
    for kind, found in (("rules.outdated", rules.outdated), ("rules.doubtful", warnings)):
        for one in found:
            place = f"{one.file}:{one.line}:{one.column}"
            yield Finding(kind, place, one.problem, "change the file, then `slumberd check`")


def _check_daemon(context: DoctorContext) -> Iterator[Finding]:
    daemon, rules = context.daemon, context.rules
    if daemon is not None and rules and daemon.get("rules_hash") != rules.content_hash:
        published = context.settings.are_rules_published
        source = "those that are published" if published else "those in the files"
        place = context.stores.facts.where if published else str(context.settings.rules_dir)
        problem = f"the daemon uses other rules than {source}"
        yield Finding("rules.stale", place, problem, "`slumberd reload`")
    subject = str(context.config or "configuration")
    if rules is not None and context.settings.host_store is None:  # a host has filters of its own
        yield from _check_rule_files(rules)
    yield from check_degraded_rules(daemon)
    for way, remedy in _APPLY_REMEDIES.items():
        if keys := context.outdated.get(way):
            problem = f"the daemon uses another value of {', '.join(keys)} than the file"
            yield Finding("config.stale", subject, problem, remedy)
