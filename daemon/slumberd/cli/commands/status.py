"""Commands on the health of the service: `slumberd status` and `slumberd doctor`."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.asking import ask_daemon
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.environment import settings_variables
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, is_new, number, plural, print_json, print_table
from slumberd.clock import SystemClock
from slumberd.daemon.rules import paused_rules_of, rules_of
from slumberd.daemon.stores import database_status_of, inspections_of, settings_of_user, shards_of
from slumberd.logs.lines import printable, timestamp
from slumberd.model.episode import instant
from slumberd.model.errors import ConfigurationError, Mistake, StoreError
from slumberd.model.firing import Counts
from slumberd.model.health import KINDS, Finding
from slumberd.model.provenance import Lag
from slumberd.model.store_status import (
    DatabaseStatus,
    HostStatus,
    Readings,
    ShardHolder,
    StoreSizes,
)
from slumberd.operations.reads.rule_states import RuleState
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings, config_file
from slumberd.storage.ledger.erasure import FORGET
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.tools.diagnostics.doctor import DoctorReport, find_urgent, run_checks
from slumberd.tools.diagnostics.host_checks import THIS_MACHINE, megabytes, unit_of
from slumberd.tools.diagnostics.path_checks import (
    account_of,
    find_path_mistakes,
    find_unreadable_files,
)
from slumberd.tools.diagnostics.status import (
    Spending,
    StatusReport,
    read_languages,
    read_spending,
    read_status,
)
from slumberd.tools.diagnostics.store_checks import QUICK_SECONDS, DoctorContext
from slumberd.web.http.access import read_tokens

STATUS_COLUMNS = (
    "rule", "cadence", "pending", "oldest", "last firing", "facts", "learned", "next",
    "quarantined", "held",
)  # fmt: skip
HOST_COLUMNS = ("rule", "firing", "last firing", "applied", "known", "in doubt")
"""The columns for a host's own stores: `applied` is empty while the firing has not ended."""

SHOWN = 30
"""Rules that fit on a screen."""

PROBLEMS = 1
"""The exit code when there is a finding."""


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Check every page, without a limit of time.")
    ] = False,
    kinds: Annotated[
        bool, typer.Option("--list", help="List the ids of the possible findings.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Examine the installation, and report each problem with its remedy.

    The command changes nothing. It works with and without a running daemon. The exit code is 1 when
    it reports a finding. Each pass over a whole database ends after 10 s unless --deep is given;
    the command names the checks that it did not finish, and they count as no finding.
    """
    if kinds:
        _print_kinds(json=json)
        return
    report = examine(config, state_dir, seconds=None if deep else QUICK_SECONDS)
    if json:
        print_json(_report_document(report))
    else:
        _print_report(report)
    if report.findings:
        raise typer.Exit(PROBLEMS)


def examine(config: Path | None, state_dir: Path | None, *, seconds: float | None) -> DoctorReport:
    """Run the checks on the installation that the options name.

    Args:
        config: The configuration file, as the command line names it.
        state_dir: The state directory, as the command line names it.
        seconds: The limit of each pass over a database; None for no limit.
    """
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        return DoctorReport(mistake_findings(error.mistakes), [])
    if settings.host_store is not None:
        say(f"the stores are the host's own ({settings.host_store}), and are not examined")
    context, findings = build_context(settings, config, seconds=seconds)
    if context.daemon is not None:
        # A daemon that cannot read its files now does not answer this: the findings name the files.
        outdated, _ = ask_daemon(settings, "outdated")
        context = replace(context, outdated=outdated or {})
    found = run_checks(context)
    return replace(found, findings=[*findings, *found.findings])


def build_context(
    settings: Settings, config: Path | None, *, seconds: float | None
) -> tuple[DoctorContext, list[Finding]]:
    """Return the context of the checks, and the findings made while building it.

    Raises:
        ShardNotNamedError: The configuration names none of several shards.
    """
    with suppress(StoreError):  # the checks of the database report it
        settings = settings_of_user(settings, None)
    rules, mistakes = _load_rules(settings)
    daemon, silent = ask_daemon(settings)
    context = DoctorContext(
        settings,
        rules,
        config_file(config, settings_variables()),
        daemon,
        SystemClock().now(),
        THIS_MACHINE,
        seconds=seconds,
    )
    refused = _find_refused_paths(settings, context.config, rules)
    return context, [*mistake_findings([*mistakes, *refused]), *silent]


def _find_refused_paths(
    settings: Settings, config: Path | None, rules: RuleSet | None
) -> list[Mistake]:
    """Return the paths that no other finding reports: metrics.unwritable, and unit.user."""
    account = account_of(settings, THIS_MACHINE)
    mistakes = find_path_mistakes(settings, config, read_tokens=read_tokens, account=account)
    found = [mistake for mistake in mistakes if mistake.path != "metrics.textfile"]
    if unit_of(THIS_MACHINE, settings.state_dir) is None:
        found += find_unreadable_files(settings, config, account, rules)
    return found


def _load_rules(settings: Settings) -> tuple[RuleSet | None, Sequence[Mistake]]:
    try:
        return rules_of(settings), ()
    except ConfigurationError as error:
        return None, error.mistakes
    except StoreError:  # the checks of the database report it
        return None, ()


def mistake_findings(mistakes: Sequence[Mistake]) -> list[Finding]:
    """Return the findings for mistakes in the configuration and the rules."""
    return [
        Finding(
            "config.invalid",
            mistake.file,
            _problem(mistake),
            "correct it; `slumberd check` lists every mistake",
        )
        for mistake in mistakes
    ]


def _problem(mistake: Mistake) -> str:
    return str(mistake).removeprefix(mistake.file).lstrip(":")


def _print_kinds(*, json: bool) -> None:
    if json:
        kinds = KINDS.items()
        print_json(
            [{"id": id, "severity": severity, "well": well} for id, (severity, well) in kinds]
        )
    else:
        print_table(("id", "severity", "well when"), ((id, *kind) for id, kind in KINDS.items()))


def _report_document(report: DoctorReport) -> dict[str, object]:
    return {
        "ok": not report.findings,
        "findings": [finding.document() for finding in report.findings],
        "unfinished": list(report.unfinished),
    }


def _print_report(report: DoctorReport) -> None:
    new = [finding for finding in report.findings if is_new(finding)]
    for finding in new:
        print(f"{finding.severity:8} {finding.id}  {cell(finding.subject)}")
        print(f"         {cell(finding.problem)}")
        print(f"         remedy: {cell(finding.remedy)}")
    for check in report.unfinished:
        say(f"not finished in time: {cell(check)}; `slumberd doctor --deep` finishes it")
    count = len(report.findings)
    above = f", {number(count - len(new))} of them above" if len(new) < count else ""
    print(plural(count, "finding") + above if count else "nothing found")


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Print only urgent problems; exit with 1 if any.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show whether the daemon runs, how much the databases hold, and what is pending.

    For each rule, the command shows how many versions of episodes are pending, and the timestamp of
    the oldest; the last firing, with how many facts it added, replaced and deleted; from how many
    of the episodes that it read last it learned something; and the next instant. Of more than 30
    rules, it shows those with a batch that awaits approval, with episodes in quarantine, or with
    most pending versions.

    Of a database with several shards, the command prints a row of counts for each shard. To see
    all of one shard, write `slumberd --shard N status`.

    With --check, for monitoring, the command prints a line for each problem that a person must act
    on, and nothing when there is none. Problems are: the daemon does not run or does not answer;
    mistakes in the configuration or the rules; rules that need a reload; a database that is missing
    or damaged; a disk that is nearly full; rules that are late, that await approval, that have
    episodes in quarantine, or whose episodes wait for a language model for more than an hour. It
    works without a daemon.
    """
    if check:
        _check(config, state_dir, json=json)
        return
    settings = settings_of(config, state_dir)
    loaded = rules_of(settings)
    if len(shards_of(settings)) > 1:
        from slumberd.cli.shard_table import print_shards

        print_shards(settings, loaded, json=json)
        return
    daemon, silent = ask_daemon(settings)
    if silent:
        raise StoreError(silent[0].problem)
    if settings.host_store is not None:
        _show_host_stores(settings, daemon, loaded, json=json)
        return
    paused = paused_rules_of(settings).read()
    report = read_status(settings, loaded, SystemClock().now(), paused)
    stale = daemon is not None and daemon["rules_hash"] != loaded.content_hash
    if json:
        print_json(_status_document(settings, daemon, report) | {"reload_needed": stale})
        return
    _print_status(settings, daemon, report, paused)
    if stale:
        source = "are published" if settings.are_rules_published else "the files hold"
        print(f"\nthe daemon uses other rules than {source}; `slumberd reload` loads them")


def _show_host_stores(
    settings: Settings, daemon: dict[str, Any] | None, loaded: RuleSet, *, json: bool
) -> None:
    """Show the daemon, and its record beside a host's own stores."""
    from slumberd.daemon.host_store import read_rules

    records = read_rules(settings)
    stale = daemon is not None and daemon["rules_hash"] != loaded.content_hash
    if json:
        rules = [one._asdict() | {"at": timestamp(one.at)} for one in records]
        own = {"host_store": settings.host_store, "rules": rules, "reload_needed": stale}
        print_json(_daemon_document(settings, daemon) | own)
        return
    print(f"daemon     {_describe_daemon(daemon) if daemon else 'does not run'}")
    print(f"state      {cell(str(settings.state_dir))}")
    print(f"stores     the host's own: {settings.host_store}")
    for failure in daemon["failing"] if daemon else ():
        print(f"failing    {_describe_failure(failure)}")
    print()
    empty = "no rule has fired yet" if loaded.rules else no_rules(settings)
    print_table(HOST_COLUMNS, records, empty=empty)
    if stale:
        print("\nthe daemon uses other rules than the files hold; `slumberd reload` loads them")


def _check(config: Path | None, state_dir: Path | None, *, json: bool) -> None:
    found = _urgent(config, state_dir)
    if json:
        print_json({"ok": not found, "findings": [finding.document() for finding in found]})
    else:
        for finding in filter(is_new, found):
            problem = f"{finding.id}: {cell(finding.subject)}: {cell(finding.problem)}"
            print(f"{problem}; {cell(finding.remedy)}")
    if found:
        raise typer.Exit(PROBLEMS)


def _urgent(config: Path | None, state_dir: Path | None) -> list[Finding]:
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        return mistake_findings(error.mistakes)
    context, findings = build_context(settings, config, seconds=0)
    silent = any(finding.id == "daemon.silent" for finding in findings)
    found = find_urgent(context)
    # A daemon that does not answer is not down: one finding is enough.
    return [
        *findings,
        *(finding for finding in found if not (silent and finding.id == "daemon.down")),
    ]


def _status_document(
    settings: Settings, daemon: dict[str, Any] | None, report: StatusReport
) -> dict[str, Any]:
    spending = read_spending(settings, SystemClock().now())
    return {
        **_daemon_document(settings, daemon),
        "episodes": report.episodes,
        "facts": report.facts,
        "ledger_rows": report.ledger_rows,
        "databases": [
            {"path": printable(where), "bytes": sizes.content, "log_bytes": sizes.log}
            for where, sizes in _file_sizes(settings)
        ],
        "database": _database_document(database_status_of(settings)),
        "disk_free_bytes": _free_bytes(settings),
        "provenance": _provenance_lag(settings, report),
        "language_model": spending.document() if spending else None,
        "future": _future_document(report),
        "search": read_languages(settings) | _index_document(settings, daemon),
        "rules": [state.document() for state in report.rules],
        **({"pending_erasures": pending} if (pending := _pending_erasures(report)) else {}),
    }


def _daemon_document(settings: Settings, daemon: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "running": daemon is not None,
        "pid": daemon["pid"] if daemon else None,
        "uptime_seconds": daemon["uptime_seconds"] if daemon else None,
        "generation": daemon["generation"] if daemon else None,
        "rules_hash": daemon["rules_hash"] if daemon else None,
        "failing": daemon["failing"] if daemon else [],
        "state_dir": printable(str(settings.state_dir)),
    }


def _pending_erasures(report: StatusReport) -> dict[str, list[str]]:
    """Return by store the erasures that may have left bytes in it."""
    found: dict[str, list[str]] = {}
    for one in report.seen.rewrites if report.seen else ():
        found.setdefault(one.store, []).append(firing_id_of(FORGET, one.row))
    return found


def _future_document(report: StatusReport) -> dict[str, Any] | None:
    """Return how many episodes of the future wait until when; None when none does."""
    instants = [
        at for found in (report.seen.future.values() if report.seen else ()) for at in found
    ]
    if not instants:
        return None
    first, last = instant(min(instants)), instant(max(instants))
    return {"waiting": len(instants), "first": timestamp(first), "last": timestamp(last)}


def _provenance_lag(settings: Settings, report: StatusReport) -> dict[str, Any] | None:
    """Return how far the provenance sink is behind; None without a sink."""
    sink = settings.provenance.sink
    if sink is None:
        return None
    published = report.seen.sinks.get(sink) if report.seen else None
    lag = published.lag if published else Lag(report.ledger_rows, None)
    return {
        "sink": sink,
        "rows": lag.rows,
        "seconds": lag.seconds(SystemClock().now()),
        "refused": published.refused if published else 0,
    }


def _file_sizes(settings: Settings) -> list[tuple[str, StoreSizes]]:
    """Return where each file of a store is, and how many bytes it takes."""
    stores = inspections_of(settings)
    return [(store.where, store.sizes()) for store in stores if store.on_disk and store.exists()]


def _free_bytes(settings: Settings) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(settings.state_dir).free
    return None


def _print_waiting(report: StatusReport) -> None:
    """Print the episodes that wait for their instant, and the erasures that have left bytes."""
    if future := _future_document(report):
        first, last = _time(future["first"]), _time(future["last"])
        until = first if first == last else f"{first} to {last}"
        print(f"future     {plural(future['waiting'], 'episode')} in quarantine until {until}")
    for store, erasures in _pending_erasures(report).items():
        print(f"erasures   {store} may still have bytes of what {', '.join(erasures)} erased")


def _print_status(
    settings: Settings, daemon: dict[str, Any] | None, report: StatusReport, paused: Collection[str]
) -> None:
    free = _free_bytes(settings)
    space = f", {megabytes(free)} free" if free is not None else ""
    print(f"daemon     {_describe_daemon(daemon) if daemon else 'does not run'}")
    print(f"state      {cell(str(settings.state_dir))}{space}")
    database = database_status_of(settings)
    if database is not None and is_new(database.where):
        _print_database(database)
    for where, sizes in _file_sizes(settings):
        size, log = megabytes(sizes.content), megabytes(sizes.log)
        print(f"  {cell(Path(where).name)}: {size}, write-ahead log {log}")
    print(f"episodes   {_number(report.episodes)}")
    print(f"facts      {_number(report.facts)}")
    print(f"ledger     {plural(report.ledger_rows, 'row')}")
    _print_waiting(report)
    if lag := _provenance_lag(settings, report):
        print(f"provenance {lag['sink']}: {_describe_lag(lag)}")
    if spending := read_spending(settings, SystemClock().now()):
        print(f"model      {_describe_spending(spending)}")
    indexes = _index_document(settings, daemon)
    print(f"search     {_describe_search(read_languages(settings), indexes)}")
    if paused:
        print(f"paused     {cell(', '.join(sorted(paused)))}")
    for failure in daemon["failing"] if daemon else ():
        print(f"failing    {_describe_failure(failure)}")
    print()
    _print_rules(report.rules, empty=no_rules(settings))


def _index_document(settings: Settings, daemon: dict[str, Any] | None) -> dict[str, Any]:
    """Return how much memory the indexes of the daemon take, and may take."""
    indexes = daemon["search_indexes"] if daemon else None
    taken = indexes["bytes"] if indexes else None
    return {"index_bytes": taken, "max_index_bytes": settings.search.max_index_bytes}


def _describe_search(search: dict[str, Any], indexes: dict[str, Any]) -> str:
    """Return the language of a search in words, what it recognises, and what its indexes take."""
    taken, most = indexes["index_bytes"], megabytes(indexes["max_index_bytes"])
    sizes = "" if taken is None else f"; indexes {megabytes(taken)} of {most}"
    saved = search["saved_bytes"]
    sizes += f"; saved indexes {megabytes(saved)} of {most}" if saved else ""
    if search["language"] is None:
        return f"without a language{sizes}"
    counts = ", ".join(f"{name} {count}" for name, count in search["recognised"].items())
    recognised = f"; newest episodes: {counts}" if counts else ""
    return f"language {search['language']}{recognised}{sizes}"


def _print_database(status: DatabaseStatus) -> None:
    """Print who holds the shards of a database, the daemons that use it, and what waits."""
    size = megabytes(status.bytes)
    print(f"database   {cell(status.where)}: PostgreSQL {cell(status.server)}, {size}")
    for shard in status.shards:
        print(f"  shard {shard.shard}: {cell(_describe_holder(shard))}")
    for host in status.hosts:
        print(f"  {cell(_describe_host(host))}")
    if status.unnumbered:
        oldest = f"the oldest for {status.unnumbered_seconds:.0f} s"
        print(f"  {plural(status.unnumbered, 'version')} without a number, {oldest}")
    if status.requests:
        print(f"  {plural(status.requests, 'request')} without an answer")


def _describe_holder(shard: ShardHolder) -> str:
    if shard.holder is None:
        return f"held by nobody, since {shard.free_seconds:.0f} s"
    return f"held by {shard.holder}, for {shard.held_seconds:.0f} s unless it renews its lease"


def _describe_host(host: HostStatus) -> str:
    version = f" (version {host.rules_version})" if host.rules_version else ""
    rules = f"rules {host.rules_hash}{version}, " if host.rules_hash else ""
    offset = f"clock {host.clock_offset_seconds:+.3f} s"
    seen = f"seen {host.seen_seconds:.0f} s ago"
    return f"{host.name}: {host.role}, slumberd {host.version}, {rules}{offset}, {seen}"


def _database_document(status: DatabaseStatus | None) -> dict[str, Any] | None:
    if status is None:
        return None
    return {
        "where": printable(status.where),
        "server": printable(status.server),
        "bytes": status.bytes,
        "shards": [shard._asdict() for shard in status.shards],
        "hosts": [host._asdict() for host in status.hosts],
        "unnumbered": status.unnumbered,
        "unnumbered_seconds": status.unnumbered_seconds,
        "requests": status.requests,
    }


def _describe_lag(lag: dict[str, Any]) -> str:
    behind = (
        f"{plural(lag['rows'], 'row')} behind, since {lag['seconds']:.0f} s"
        if lag["rows"]
        else "all rows published"
    )
    refused = f", {number(lag['refused'])} refused" if lag["refused"] else ""
    return f"{behind}{refused}"


def _describe_spending(spending: Spending) -> str:
    usage, budget = spending.usage, spending.budget
    parts = [_of_limit(usage.calls, budget.calls, "calls")]
    parts.append(_of_limit(spending.tokens, budget.tokens, "tokens"))
    if usage.cost_micros or budget.cost is not None:
        limit = "" if budget.cost is None else f" of {budget.cost:g}"
        parts.append(f"cost {spending.cost:.2f}{limit}")
    spent = "; the budget is spent" if spending.exceeded else ""
    return f"{', '.join(parts)} today (UTC){spent}"


def _of_limit(count: int, limit: int | None, what: str) -> str:
    return f"{number(count)}{'' if limit is None else f' of {number(limit)}'} {what}"


def _print_rules(states: Sequence[RuleState], *, empty: str) -> None:
    """Print the rules; of more than fit on a screen, the most urgent ones."""
    first = sorted(states, key=_urgency)[:SHOWN]
    rows = (_rule_row(state) for state in states if state in first)
    print_table(STATUS_COLUMNS, rows, empty=empty)
    if len(states) > SHOWN:
        print(f"and {plural(len(states) - SHOWN, 'more rule')}; `slumberd rules` shows all")


def _urgency(state: RuleState) -> tuple[bool, bool, int]:
    status = state.status
    return not status.held_firing_id, not status.quarantined, -(status.pending or 0)


def _describe_daemon(daemon: dict[str, Any]) -> str:
    since = SystemClock().now() - timedelta(seconds=daemon["uptime_seconds"])
    process = f"pid {daemon['pid']}, since {cell(since)}"
    return f"runs ({process}), rules of generation {daemon['generation']}"


def _describe_failure(failure: dict[str, Any]) -> str:
    count = failure["failures"]
    times = f"{number(count)} times in a row" if count > 1 else "once"
    return f"rule {failure['rule_id']}, {times} since {_time(failure['since'])}: {failure['error']}"


def _rule_row(state: RuleState) -> tuple[object, ...]:
    status, cadence = state.status, state.cadence if state.rule.enabled else "disabled"
    return (
        state.rule.id, cadence, _number(status.pending), _time(state.oldest), state.fired_at,
        _changes_of(state.outcome), _share_of(state.readings), status.next_at,
        _number(status.quarantined or None), status.held_firing_id or None,
    )  # fmt: skip


def _number(count: int | None) -> str:
    return cell(None) if count is None else number(count)


def _time(timestamp: str | None) -> str:
    """Return a timestamp as tables show instants; without an offset, as it is written."""
    try:
        at = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return cell(timestamp)
    return cell(at) if at.tzinfo else cell(timestamp)


def _share_of(readings: Readings | None) -> str | None:
    """Return from how many of the episodes that a rule read last it learned something."""
    return None if readings is None else f"{number(readings.learned)} of {number(readings.read)}"


def _changes_of(counts: Counts | None) -> str | None:
    """Return how many facts a firing added, replaced and deleted."""
    if counts is None:
        return None
    added = number(counts.added + counts.restored)
    return f"+{added} ~{number(counts.updated)} -{number(counts.deleted)}"
