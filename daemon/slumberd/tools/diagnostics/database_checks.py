"""Check a PostgreSQL database, and the daemons that use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slumberd.daemon.stores import FEW_DEAD_ROWS, MOST_XIDS, database_status_of
from slumberd.model.errors import (
    DatabaseUnreachableError,
    PermissionDeniedError,
    SchemaError,
    StoreError,
)
from slumberd.model.health import Finding
from slumberd.model.store_status import (
    DatabaseLogin,
    DatabaseStatus,
    HostStatus,
    OldestTransaction,
)
from slumberd.rules.settings import Settings


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """What is too much; a check reports what is above.

    Attributes:
        leases: For how many times the lease nobody may hold a shard.
        transaction_seconds: The age of the oldest transaction.
        xids: How many transactions may begin after one whose age is unknown.
        inbox_seconds: The age of the oldest version of an episode without a number.
        clock_seconds: How far a host's clock may be from the database's.
        alive_seconds: A host that said nothing for longer does not count.
        dead_rows: Old versions of rows of one table.
        frozen_xids: How many transactions ago the oldest database was frozen; the server stops at
            2.1 billion.
    """

    leases: float = 3.0
    transaction_seconds: float = 600.0
    xids: int = MOST_XIDS
    inbox_seconds: float = 60.0
    clock_seconds: float = 1.0
    alive_seconds: float = 60.0
    dead_rows: int = FEW_DEAD_ROWS
    frozen_xids: int = 1_500_000_000


LIMITS = DatabaseLimits()
"""The limits of every installation."""


def find_unusable(settings: Settings) -> Finding | None:
    """Return why a daemon cannot use the database of a configuration.

    The result is None when it can, and when the configuration names no database.
    """
    if settings.store is None:
        return None
    from slumberd.daemon import postgres_stores

    place = postgres_stores.place_of(settings)
    try:
        return _check_login(place, postgres_stores.login_of(settings))
    except DatabaseUnreachableError as error:
        remedy = "check that the server runs, and the address and the password of `store`"
        return Finding("database.unreachable", place, error.problem, remedy)
    except SchemaError as error:
        return Finding("database.schema", place, error.problem, error.remedy)
    except PermissionDeniedError:
        problem = "its login may not use the schema of slumberd"
        return Finding("database.rights", place, problem, "`GRANT slumberd_daemon` to it")
    except StoreError as error:
        problem = str(error).removeprefix(f"{place!r}: ")
        return Finding("database.unreachable", place, problem, "see the log of the server")


def _check_login(place: str, login: DatabaseLogin) -> Finding | None:
    if "consolidate" not in login.rights:
        allowed = " and ".join(login.rights) or "do nothing"
        problem = f"its login {login.role} may only {allowed}"
        remedy = f"`GRANT slumberd_daemon TO {login.role}`, or name another login in `store`"
        return Finding("database.rights", place, problem, remedy)
    return None


def check_database(settings: Settings, limits: DatabaseLimits = LIMITS) -> Iterator[Finding]:
    """Find problems of the database of a configuration, and of the daemons that use it.

    Raises:
        StoreError: The database cannot be read.
    """
    most_xids, few_dead_rows = limits.xids, limits.dead_rows
    status = database_status_of(settings, most_xids=most_xids, few_dead_rows=few_dead_rows)
    if status is not None:
        yield from check_status(status, settings.postgres.lease, limits)
    if status is not None and settings.postgres.read_address is not None:
        yield from _check_replica(settings)


def _check_replica(settings: Settings) -> Iterator[Finding]:
    from slumberd.daemon import postgres_stores

    place, problem = postgres_stores.find_problem_of_replica(settings)
    if problem:
        remedy = "reads run on the primary; name a replica of it in `postgres.read_address`"
        yield Finding("database.replica", place, problem, remedy)


def check_status(
    status: DatabaseStatus, lease: float, limits: DatabaseLimits = LIMITS
) -> Iterator[Finding]:
    """Find problems in the state of a database.

    Args:
        status: The state.
        lease: The lease of the shards, in seconds.
        limits: What is too much.
    """
    yield from _check_shards(status, lease, limits)
    yield from _check_hosts(status, limits)
    yield from _check_transactions(status, limits)
    yield from _check_server(status)


def _check_shards(
    status: DatabaseStatus, lease: float, limits: DatabaseLimits
) -> Iterator[Finding]:
    for shard in status.shards:
        if shard.holder is None and shard.free_seconds > limits.leases * lease:
            problem = f"no daemon has held shard {shard.shard} for {shard.free_seconds:.0f} s"
            remedy = "start a daemon on one of the hosts"
            yield Finding("database.unheld", status.where, problem, remedy)
    is_held = all(shard.holder for shard in status.shards)
    if is_held and status.unnumbered and status.unnumbered_seconds > limits.inbox_seconds:
        problem = (
            f"{status.unnumbered:,} versions of episodes wait for their numbers, the oldest for "
            f"{status.unnumbered_seconds:.0f} s"
        )
        remedy = "the log of the active daemon says what it waits for; else restart it"
        yield Finding("database.inbox", status.where, problem, remedy)


def _check_hosts(status: DatabaseStatus, limits: DatabaseLimits) -> Iterator[Finding]:
    alive = status.hosts_seen_within(limits.alive_seconds)
    for host in alive:
        if abs(host.clock_offset_seconds) > limits.clock_seconds:
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


def _check_transactions(status: DatabaseStatus, limits: DatabaseLimits) -> Iterator[Finding]:
    oldest = status.oldest_transaction
    if oldest is not None and _is_too_old(oldest, limits):
        since = f"for {oldest.xids:,} transactions"
        if oldest.seconds is not None:
            since = f"for {oldest.seconds / 60:.0f} minutes"
        problem = f"{oldest.name} has kept old versions of rows {since}"
        remedy = "end it; `pg_stat_activity` and `pg_prepared_xacts` show it"
        yield Finding("database.old_transaction", status.where, problem, remedy)
    for table, (rows, dead) in status.dead_rows.items():
        problem = f"table {table} has {dead:,} old versions of rows beside {rows:,} rows"
        remedy = f"`VACUUM {table}`; check that autovacuum runs"
        yield Finding("database.dead_rows", status.where, problem, remedy)
    if status.transaction_age > limits.frozen_xids:
        problem = f"the oldest rows of its server are {status.transaction_age:,} transactions old"
        remedy = "`VACUUM (FREEZE)` each database of the server, before it stops"
        yield Finding("database.wraparound", status.where, problem, remedy)


def _is_too_old(oldest: OldestTransaction, limits: DatabaseLimits) -> bool:
    if oldest.seconds is None:
        return oldest.xids > limits.xids
    return oldest.seconds > limits.transaction_seconds


def _check_server(status: DatabaseStatus) -> Iterator[Finding]:
    if not status.is_durable:
        problem = "a commit may be lost in a crash of the server"
        remedy = "set fsync and synchronous_commit to on"
        yield Finding("database.not_durable", status.where, problem, remedy)
    if status.is_read_only:
        problem = "takes no writes: it is a replica, or its default is read only"
        yield Finding("database.read_only", status.where, problem, "name the primary in `store`")
