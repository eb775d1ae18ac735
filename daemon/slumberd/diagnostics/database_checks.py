"""Check a PostgreSQL database, and the daemons that use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slumberd.config.settings import Settings
from slumberd.errors import StoreError
from slumberd.model.health import Finding
from slumberd.model.store_status import DatabaseStatus, HostStatus
from slumberd.service.composition import require_postgres

LEASES = 3
"""So many times the lease a shard may be free before a check reports it."""

OLDEST_SECONDS = 600.0
"""How old the oldest transaction of the server may be."""

CLOCK_SECONDS = 1.0
"""How far a host's clock may be from the database's."""

ALIVE_SECONDS = 60.0
"""A host that said nothing for so long does not count."""

MOST_UNNUMBERED = 50_000
"""So many versions of episodes may wait for their numbers."""

MOST_TRANSACTIONS = 1_500_000_000
"""So many transactions ago the oldest row may have been frozen; the server stops at 2.1 billion."""


def database_status_of(settings: Settings) -> DatabaseStatus | None:
    """Return the state of the database of a configuration; None when it names none.

    Raises:
        StoreError: The database cannot be read.
    """
    if settings.store is None:
        return None
    require_postgres()
    from slumberd.service import postgres_stores

    return postgres_stores.status_of(settings)


def check_database(settings: Settings) -> Iterator[Finding]:
    """Find problems of the database of a configuration, and of the daemons that use it."""
    try:
        status = database_status_of(settings)
    except StoreError:
        return  # the check of the stores reports that it cannot be read
    if status is not None:
        yield from _check_shards(status, settings.postgres.lease)
        yield from _check_hosts(status)
        yield from _check_server(status)


def _check_shards(status: DatabaseStatus, lease: float) -> Iterator[Finding]:
    for shard in status.shards:
        if shard.holder is None and shard.free_seconds > LEASES * lease:
            problem = f"no daemon has held shard {shard.shard} for {shard.free_seconds:.0f} s"
            remedy = "start a daemon on one of the hosts"
            yield Finding("database.unheld", status.where, problem, remedy)
    if status.unnumbered > MOST_UNNUMBERED:
        problem = f"more than {MOST_UNNUMBERED:,} versions of episodes wait for their numbers"
        remedy = "start a daemon; if one is active, its log says what it waits for"
        yield Finding("database.inbox", status.where, problem, remedy)


def _check_hosts(status: DatabaseStatus) -> Iterator[Finding]:
    alive = [host for host in status.hosts if host.seen_seconds < ALIVE_SECONDS]
    for host in alive:
        if abs(host.clock_offset_seconds) > CLOCK_SECONDS:
            problem = f"its clock is {host.clock_offset_seconds:+.1f} s from the database's"
            yield Finding("host.clock", host.name, problem, "synchronise the clocks of both")
    yield from _find_differing(alive, "version", "versions of slumberd", status.where)
    yield from _find_differing(alive, "rules_hash", "rules", status.where)


def _find_differing(
    hosts: Sequence[HostStatus], field: str, words: str, place: str
) -> Iterator[Finding]:
    by_host = {host.name: getattr(host, field) for host in hosts if getattr(host, field)}
    if len(set(by_host.values())) > 1:
        named = ", ".join(f"{name} has {value}" for name, value in sorted(by_host.items()))
        remedy = f"give every host the same {words}: after a takeover the standby uses its own"
        yield Finding("hosts.differ", place, f"hosts have different {words}: {named}", remedy)


def _check_server(status: DatabaseStatus) -> Iterator[Finding]:
    if status.oldest_transaction_seconds > OLDEST_SECONDS:
        minutes = status.oldest_transaction_seconds / 60
        problem = f"a transaction has been open for {minutes:.0f} minutes, and keeps old rows"
        remedy = "end it: `SELECT * FROM pg_stat_activity ORDER BY xact_start` shows it"
        yield Finding("database.old_transaction", status.where, problem, remedy)
    for table, (rows, dead) in status.dead_rows.items():
        problem = f"table {table} has {dead:,} old versions of rows beside {rows:,} rows"
        remedy = f"`VACUUM slumberd.{table}`; check that autovacuum runs"
        yield Finding("database.dead_rows", status.where, problem, remedy)
    if status.transaction_age > MOST_TRANSACTIONS:
        problem = f"its oldest rows are {status.transaction_age:,} transactions old"
        remedy = "`VACUUM (FREEZE)` each database of the server, before it stops"
        yield Finding("database.wraparound", status.where, problem, remedy)
    if not status.is_durable:
        problem = "a commit may be lost in a crash of the server"
        remedy = "set fsync and synchronous_commit to on"
        yield Finding("database.not_durable", status.where, problem, remedy)
    if status.is_replica:
        problem = "is a replica, which takes no writes"
        yield Finding("database.replica", status.where, problem, "name the primary in 'store'")
