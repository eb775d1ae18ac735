"""Look a whole installation over: what is not as it should be. Changes nothing, raises nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from slumberd.config.rule_loader import rule_files
from slumberd.config.settings import Settings
from slumberd.diagnostics.host_checks import (
    check_file_modes,
    clock,
    kept,
    megabytes,
    room,
    textfile,
    unit,
    unit_user,
    zones,
)
from slumberd.diagnostics.store_checks import (
    DoctorContext,
    dated_ahead,
    degraded,
    disagreements,
    told_by,
    waiting,
)
from slumberd.errors import ConfigurationError, StoreError
from slumberd.model.cadence import Cron
from slumberd.model.finding import Finding
from slumberd.service.erased_content import HURRIED_SECONDS, resurfaced
from slumberd.storage.audit import offline_status
from slumberd.storage.audit.offline_status import Open
from slumberd.storage.sqlite import recovery
from slumberd.storage.sqlite.backup import size_of
from slumberd.storage.sqlite.file_exchange import is_unfinished
from slumberd.storage.sqlite.health import fs_type
from slumberd.storage.sqlite.recovery import look

LARGE_LOG_BYTES = 512 * 2**20

URGENT = frozenset(
    {
        "config.invalid", "daemon.down", "daemon.silent", "disk.low", "episodes.future",
        "episodes.mismatched", "episodes.quarantined", "erasure.contradicted",
        "erasure.unfinished", "rule.degraded", "rule.held", "rule.late", "rules.stale",
        "restore.unfinished", "state.missing", "store.damaged", "store.unreadable",
    }
)  # fmt: skip
"""What somebody is to be woken for."""

_INTO_FORCE = {"reload": "`slumberd reload`", "restart": "`systemctl restart slumberd`"}
_SHARED = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")


@dataclass(frozen=True, slots=True)
class Checkup:
    """What came of it.

    Attributes:
        findings: Errors first.
        unfinished: What took too long to be looked at to its end.
    """

    findings: Sequence[Finding]
    unfinished: Sequence[str]


def run_checks(context: DoctorContext) -> Checkup:
    """Look over an installation, the daemon up or down; never raises for the state of anything."""
    unfinished: list[str] = []
    findings = [*_around(context), *_inside(context, unfinished)]
    findings.sort(key=lambda finding: finding.severity == "warning")
    return Checkup(findings, unfinished)


def urgent(context: DoctorContext) -> list[Finding]:
    """Return only what somebody is to be woken for; quick, and whether the daemon runs or not."""
    findings = run_checks(context).findings
    down = [] if context.daemon else [_down(context)]
    return [*down, *(finding for finding in findings if finding.id in URGENT)]


def _down(context: DoctorContext) -> Finding:
    remedy = "`systemctl start slumberd`, or `slumberd run`"
    return Finding("daemon.down", str(context.settings.state_dir), "no daemon runs", remedy)


def _around(context: DoctorContext) -> Iterator[Finding]:
    settings, directory = context.settings, context.settings.state_dir
    yield from _guarded(settings.rules_dir, lambda: _check_file_modes(context))
    if settings.rules_dir.is_dir():
        yield from _guarded(settings.rules_dir, lambda: ignored(settings.rules_dir))
    if directory.is_dir():
        yield from _guarded(directory, lambda: kept(directory, _files(settings)))
        databases = sum(map(_size, _databases(settings)))
        yield from _guarded(directory, lambda: room(directory, databases))
        if file := settings.textfile_path:
            yield from _guarded(directory, lambda: textfile(file, directory))
    yield from clock(context.machine)
    yield from zones(_zones(context))
    yield from _guarded(directory, lambda: unit(context.machine, directory))
    yield from _guarded(directory, lambda: _unit_user(context))


def _guarded(path: Path, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a check finds; that it could not look, if so."""
    try:
        return list(check())
    except OSError as error:
        subject = str(error.filename or path)
        problem = f"cannot be looked at: {error.strerror}"
        return [Finding("store.unreadable", subject, problem, "run as root, or as its owner")]


def _databases(settings: Settings) -> list[Path]:
    return [settings.memory_path, settings.facts_path]


def _files(settings: Settings) -> list[Path]:
    ends = ("", "-wal", "-shm")
    files = [path.with_name(path.name + end) for path in _databases(settings) for end in ends]
    told = settings.provenance_path if settings.provenance.sink == "file" else None
    return [*files, *filter(None, [settings.log_path, told])]


def _check_file_modes(context: DoctorContext) -> Iterator[Finding]:
    rules = context.settings.rules_dir
    files = sorted(rules.iterdir()) if rules.is_dir() else []
    pack = context.settings.pack_path
    packed = [pack, *sorted(pack.rglob("*"))] if pack and pack.is_dir() else []
    return check_file_modes([*filter(None, [context.config]), rules, *files, *packed])


def _unit_user(context: DoctorContext) -> Iterator[Finding]:
    settings = context.settings
    files = [*filter(None, [context.config]), settings.rules_dir]
    with suppress(ConfigurationError):  # told as what is invalid
        files += rule_files(settings.rules_dir)
    return unit_user(context.machine, settings.state_dir, files)


def _size(path: Path) -> int:
    try:
        return size_of(path)
    except StoreError:
        return 0


def _zones(context: DoctorContext) -> list[str]:
    rules = context.rules.rules if context.rules else ()
    named = [rule.due.timezone for rule in rules if isinstance(rule.due, Cron)]
    return [context.settings.timezone, *filter(None, named)]


def ignored(directory: Path) -> Iterator[Finding]:
    """Find files that look like rule files, and are passed over."""
    for path in sorted(directory.iterdir()):
        name = path.name.lower()
        read = path.suffix in (".yaml", ".yml") and not name.startswith(".")
        if (".yaml" in name or ".yml" in name) and not read:
            problem = "is not read: rule files end in .yaml or .yml, and are not hidden"
            yield Finding("rules.ignored", str(path), problem, "rename it, or take it away")


def _inside(context: DoctorContext, unfinished: list[str]) -> Iterator[Finding]:
    settings = context.settings
    if not settings.state_dir.is_dir():
        remedy = "`slumberd run` makes it"
        yield Finding("state.missing", str(settings.state_dir), "is no directory", remedy)
        return
    if is_unfinished(settings.state_dir):
        remedy = "start the daemon, which finishes it; or run `slumberd restore DIR` again"
        problem = "a restore was begun, and not finished"
        yield Finding("restore.unfinished", str(settings.state_dir), problem, remedy)
    yield from _database(
        settings.memory_path, context, unfinished, partial(_episodes, context, unfinished)
    )
    facts = settings.facts_path
    yield from _database(facts, context, unfinished, partial(_facts, context, facts, unfinished))
    seconds = HURRIED_SECONDS if context.hurried else context.seconds
    yield from resurfaced(settings, seconds)
    yield from _daemon(context)
    yield from waiting(context)


Look = Callable[[Open], list[Finding]]


def _database(
    path: Path, context: DoctorContext, unfinished: list[str], own: Look
) -> Iterator[Finding]:
    """Find what is wrong with one database: with the file, then with what is in it."""
    if not path.exists() and not path.is_symlink():
        problem, remedy = "is not there", "`slumberd run` makes it; was it moved or deleted?"
        yield Finding("state.missing", str(path), problem, remedy)
        return
    yield from _place(path)
    try:
        damage = look(path, partial(recovery.damage_in, seconds=context.seconds))
        if damage is None and not context.hurried:
            unfinished.append(f"quick_check of {str(path)!r}")
        elif damage or look(path, partial(recovery.is_of_another, path=path)):
            yield _damaged(path, damage or "begins otherwise with its write-ahead log than without")
            return
        yield from _journal(path)
        yield from look(path, own)
    except StoreError as error:
        yield _unreadable(path, error)


def _unreadable(path: Path, error: StoreError) -> Finding:
    if "damaged" in str(error):
        return _damaged(path, "cannot be read to its end")
    problem = str(error).removeprefix(f"{str(path)!r} ").removeprefix(f"{str(path)!r}: ")
    remedy = "look at its owner and mode; `slumberd restore DIR` puts back a backup of it"
    return Finding("store.unreadable", str(path), problem, remedy)


def _damaged(path: Path, damage: str) -> Finding:
    remedy = (
        f"stop the daemon; take away {path.name}-wal if it may be another file's; else "
        "`slumberd restore DIR` puts back a backup; facts also by `slumberd audit replay`"
    )
    return Finding("store.damaged", str(path), " ".join(damage.split()), remedy)


def _place(path: Path) -> Iterator[Finding]:
    kind = fs_type(path)
    if kind.startswith(_SHARED):
        problem = f"lies on {kind}, where locks cannot be relied on"
        yield Finding("store.network", str(path), problem, "move it to a local disk")
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG_BYTES:
        problem = (
            f"has grown to {megabytes(log.stat().st_size)}: somebody has been reading for long"
        )
        yield Finding("store.log", str(log), problem, f"end what holds it: `fuser -v {path}`")


def _journal(path: Path) -> Iterator[Finding]:
    if not recovery.writes_ahead(path):
        problem = "has no write-ahead log: readers and writers wait for each other"
        yield Finding("store.journal", str(path), problem, "start the daemon, which sets it")


def _episodes(context: DoctorContext, unfinished: list[str], connection: Open) -> list[Finding]:
    path = context.settings.memory_path
    if offline_status.logs_episodes(connection):
        return _future(context, unfinished, connection)
    problem = "episode log, indexes or triggers are missing: was the table rebuilt?"
    remedy = "start the daemon, or `slumberd fire --all`: every episode is met again"
    return [Finding("store.triggers", str(path), problem, remedy)]


def _future(context: DoctorContext, unfinished: list[str], connection: Open) -> list[Finding]:
    memory = context.settings.memory
    found = offline_status.future_in(
        connection,
        context.now + timedelta(seconds=memory.future_tolerance),
        naive=memory.naive_timestamps,
        seconds=HURRIED_SECONDS if context.hurried else context.seconds,
    )
    if found is None:
        unfinished.append(f"timestamps in {str(context.settings.memory_path)!r}")
    return list(dated_ahead(found or []))


def _facts(
    context: DoctorContext, path: Path, unfinished: list[str], connection: Open
) -> list[Finding]:
    seen = offline_status.facts_in(connection)
    if seen is None:
        problem = "has no ledger: no slumberd has been here"
        return [Finding("store.unreadable", str(path), problem, "start the daemon")]
    unreached = offline_status.unreached_in(connection, context.seconds)
    if unreached is None and not context.hurried:
        unfinished.append(f"acts without effect in {str(path)!r}")
    pairs = look_for_disagreements(context, path, unfinished, connection)
    return [*told_by(path, seen, unreached or [], context), *disagreements(pairs)]


def look_for_disagreements(
    context: DoctorContext, path: Path, unfinished: list[str], connection: Open
) -> list[tuple[str, str]]:
    """Return the pairs of facts that disagree, unless it takes too long to find them."""
    pairs = offline_status.disagreeing_in(connection, context.seconds)
    if pairs is None and not context.hurried:
        unfinished.append(f"facts that disagree in {str(path)!r}")
    return pairs or []


def _daemon(context: DoctorContext) -> Iterator[Finding]:
    daemon, rules = context.daemon, context.rules
    if daemon is not None and rules and daemon.get("rules_hash") != rules.content_hash:
        problem = "the daemon goes by other rules than the files say"
        yield Finding("rules.stale", str(context.settings.rules_dir), problem, "`slumberd reload`")
    subject = str(context.config or "configuration")
    yield from degraded(daemon)
    for way, remedy in _INTO_FORCE.items():
        if keys := context.outdated.get(way):
            problem = f"the daemon has read another value of {', '.join(keys)}"
            yield Finding("config.stale", subject, problem, remedy)
