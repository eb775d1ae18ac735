"""Open connections to a PostgreSQL database, and turn its errors into slumberd's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper

from slumberd.model.errors import (
    DatabaseUnreachableError,
    InputError,
    OldPrimaryError,
    PermissionDeniedError,
    PoolerError,
    RowRefusedError,
    SchemaError,
    SlumberdError,
    StoreBusyError,
    StoreError,
    UsageError,
    UserElsewhereError,
)
from slumberd.storage.postgres.arrays import register_arrays

SCHEMES = ("postgresql://", "postgres://")
"""How an address of a database begins."""


def parts_of(address: str) -> dict[str, str]:
    """Return the parameters of an address by the names of libpq.

    Raises:
        UsageError: It is malformed. The message does not repeat it: it may hold a password.
    """
    if not str(address).startswith(SCHEMES):  # a host may pass anything
        raise UsageError("the address of a database begins with 'postgresql://'")
    try:
        found = conninfo_to_dict(address)
    except psycopg.Error as error:
        raise UsageError("the address of the database is malformed") from error
    return {name: str(value) for name, value in found.items() if value is not None}


def where(address: str) -> str:
    """Return an address in words, with hosts, ports, database and service, without the rest."""
    parts = parts_of(address)
    if "service" in parts and "host" not in parts:
        return f"postgresql://?service={parts['service']}"
    hosts = [
        quote(host, safe="") if host.startswith("/") else host
        for host in parts.get("host", "").split(",")
    ]
    ports = parts["port"].split(",") if "port" in parts else [""]
    if len(ports) == 1:  # of every host
        ports *= len(hosts)
    places = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False)]
    return f"postgresql://{','.join(places)}/{parts.get('dbname', '')}"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements name the tables of one schema without a prefix.

    Attributes:
        schema: The schema; empty when each statement names its own.
    """

    schema = ""

    def use(self, schema: str) -> None:
        """Let the next statements name the tables of a schema; outside of any transaction.

        The server then plans each prepared statement anew.
        """
        if schema == self.schema:
            return
        self.execute(f"SET search_path = {_path_of(schema)}".encode())
        if not self.autocommit:
            self.commit()
        self.schema = schema


def _path_of(schema: str) -> str:
    """Return the search path: no table or function of a schema takes the place of the server's."""
    return f"pg_catalog,{schema}" if schema else "pg_catalog"


LOCK_SECONDS = 5.0
"""How long a statement waits for a lock."""

# Each promotion raises the timeline. A replica does not tell it, and takes no writes.
_FIND_SERVER = b"""
SELECT pg_backend_pid(),
  (SELECT system_identifier FROM pg_control_system()),
  CASE
    WHEN pg_is_in_recovery() THEN NULL
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int
  END
"""
_FIND_MARK = b"SELECT current_setting('slumberd.mark', true)"
_MARK_LOOKS = 5
"""How often two connections look for the marks of each other."""

_REFUSES_SETTINGS = "unsupported startup parameter"
"""What PgBouncer says of settings at the start of a connection."""

_session_pools: set[str] = set()
"""The addresses of the pools of this process that are known to keep sessions."""

_newest_timelines: dict[int, int] = {}
"""By the identifier of a cluster, the newest timeline that this process has seen."""

_timelines_lock = Lock()

_SETTINGS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "lock_timeout": f"{round(1000 * LOCK_SECONDS)}",
    # A plan that was made while a table was empty would read all of it for each value later.
    "plan_cache_mode": "force_custom_plan",
    # Statements are short, or stream their rows: compiling them and more processes only cost.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
_NETWORK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "slumberd",
}
"""What notices a server that is gone; seconds, and milliseconds for the last timeout."""

IDLE_SECONDS = 60
"""How long a transaction that writes may wait for this process; then the server ends it."""


def connect(
    address: str,
    schema: str = "",
    *,
    autocommit: bool = False,
    read_only: bool = False,
    keeps_plans: bool = False,
) -> Connection:
    """Open a connection.

    Args:
        address: The address of the database.
        schema: The schema whose tables statements name without a prefix; empty for none.
        autocommit: Whether each statement is a transaction of its own.
        read_only: Whether transactions only read, each of them one snapshot.
        keeps_plans: Whether the plan of a statement is kept, as for rows that are always few.

    Raises:
        DatabaseUnreachableError: The server does not answer, or refuses the login.
        OldPrimaryError: This process has seen a later primary, which took the place of this one.
        PoolerError: A connection pooler answers, which gives a session to other clients, too.
        UsageError: The address is malformed.
    """
    settings = {**_SETTINGS, "search_path": _path_of(schema)}
    if keeps_plans:
        settings["plan_cache_mode"] = "force_generic_plan"
    if not read_only:
        settings["idle_in_transaction_session_timeout"] = f"{1000 * IDLE_SECONDS}"
    with translate_errors(where(address)):
        connection = _log_in(address, settings)
        try:
            process, system, timeline = _find_server(connection)
            if timeline is not None:
                _check_timeline(address, system, timeline)
            # A pooler answers a login by itself, so it does not know the process of the server.
            # Settings do not show one: PgBouncer 1.20 keeps those that the server reports.
            if process != connection.info.backend_pid:
                # First the check: a session of other clients must not get these settings.
                _check_session(connection, address)
                _begin_session(connection, settings)
        except BaseException:
            connection.close()
            raise
    connection.schema = schema
    connection.autocommit = autocommit
    # Every integer has 8 bytes, so that a statement is prepared once.
    connection.adapters.register_dumper(int, Int8Dumper)
    register_arrays(connection)
    if read_only:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
    return connection


def _log_in(address: str, settings: Mapping[str, str]) -> Connection:
    """Return a connection with settings; without them if a pooler takes none at the start."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    try:
        return _open(address, options)
    except psycopg.OperationalError as error:
        if _REFUSES_SETTINGS not in str(error):
            raise
    return _open(address, "")


def _open(address: str, options: str) -> Connection:
    return Connection.connect(address, autocommit=True, options=options, **_NETWORK)


def _find_server(connection: Connection) -> tuple[int, int, int | None]:
    """Return the process, the cluster and the timeline of a server; None for that of a replica."""
    row = connection.execute(_FIND_SERVER).fetchone()
    if row is None:
        raise LookupError("the server has no process")
    process, system, timeline = row
    return process, system, timeline


def _check_timeline(address: str, system: int, timeline: int) -> None:
    """Note the timeline of a primary.

    Raises:
        OldPrimaryError: This process has seen a newer one of its cluster.
    """
    with _timelines_lock:
        newest = max(timeline, _newest_timelines.get(system, 0))
        _newest_timelines[system] = newest
    if newest > timeline:
        raise OldPrimaryError(where(address), timeline, newest)


def _begin_session(connection: Connection, settings: Mapping[str, str]) -> None:
    """Remove what an earlier client has left in a session of a pool, and set the settings."""
    connection.execute(b"DISCARD ALL")
    every = {**settings, "application_name": _NETWORK["application_name"]}
    changes = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in every.items())
    connection.execute(f"SELECT {changes}".encode())


def _check_session(connection: Connection, address: str) -> None:
    """Check once that a pool gives a session to one client at a time.

    Two clients look for the marks of each other. Without load, a pool of transactions gives the
    second client the session that the first one has used last; under load, it changes sessions.

    Raises:
        PoolerError: It gives sessions to others between two transactions.
    """
    if address in _session_pools:
        return
    mark = secrets.token_hex(8)
    connection.execute(f"SELECT set_config('slumberd.mark', '{mark}', false)".encode())
    with _open(address, "") as other:
        for _ in range(_MARK_LOOKS):
            found = [one.execute(_FIND_MARK).fetchone() for one in (other, connection)]
            if found[0] == (mark,) or found[1] != (mark,):
                raise PoolerError(where(address))
    _session_pools.add(address)


def end_transaction(connection: Connection) -> None:
    """Undo what is not committed; close a connection on which that fails.

    When a message could not be sent, the driver may take the connection for open, with a copy that
    never ends. Each later statement on it would fail.
    """
    if connection.closed:
        return
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Turn errors of the driver and of the server into slumberd's errors.

    Args:
        place: The database in words.
    """
    try:
        yield
    except psycopg.Error as error:
        raise error_of(error, place) from error
    except UnicodeEncodeError as error:  # half of a surrogate pair; no database can store it
        raise UsageError(f"{error.object!r} is no valid Unicode") from error


_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
_GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
_NO_SCHEMA = (errors.InvalidSchemaName, errors.UndefinedTable, errors.UndefinedFunction)
_REFUSED = (errors.IntegrityError, errors.ProgramLimitExceeded)
_REFUSED_BY_PUT = ("SL002", "SL003")
"""What the function ``put`` raises for an id that is too long, and for a malformed scope key."""

_ELSEWHERE = "SL004"
"""What the functions of a shard raise for a user whom another shard has; the text is the user."""

_DENIED = (
    errors.InsufficientPrivilege,
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
    errors.ReadOnlySqlTransaction,
)


def error_of(error: psycopg.Error, place: str) -> SlumberdError:
    """Return slumberd's error for an error of the driver or of the server."""
    text = _text_of(error)
    if error.sqlstate in _REFUSED_BY_PUT:
        return InputError(f"{place!r}: {text}")
    if error.sqlstate == _ELSEWHERE:
        return UserElsewhereError(error.diag.message_primary or "", place)
    for kinds, make in _ERRORS:
        if isinstance(error, kinds):
            return make(place, text)
    if is_lost(error):
        return DatabaseUnreachableError(place, text)
    return StoreError(f"{place!r}: {text}")


def _busy(place: str, _: str) -> SlumberdError:
    return StoreBusyError(place, LOCK_SECONDS)


def _conflicting(place: str, _: str) -> SlumberdError:
    return StoreBusyError(place, None)


def _cancelled(place: str, text: str) -> SlumberdError:
    # What slumberd cancels itself is a `StoppedError`, which its callers do not report.
    return StoreError(f"{place!r}: the server cancelled a statement ({text}); nothing was written")


def _denied(place: str, text: str) -> SlumberdError:
    return PermissionDeniedError(place, f"use ({text})")


def _without_schema(place: str, text: str) -> SlumberdError:
    remedy = "`slumberd postgres init` creates it, `slumberd postgres upgrade` upgrades it"
    return SchemaError(place, f"has not the schema of this slumberd: {text}", remedy)


def _refused(place: str, text: str) -> SlumberdError:
    return RowRefusedError(f"{place!r}: {text}")


def _full(place: str, _: str) -> SlumberdError:
    return StoreError(f"{place!r}: the disk of the server is full; nothing was written")


def _unfit(place: str, text: str) -> SlumberdError:
    return InputError(f"{place!r} cannot store a value: {text}")


_ERRORS: tuple[tuple[Any, Callable[[str, str], SlumberdError]], ...] = (
    (errors.LockNotAvailable, _busy),
    (_CONFLICTS, _conflicting),
    (errors.QueryCanceled, _cancelled),
    (_DENIED, _denied),
    (_NO_SCHEMA, _without_schema),
    (_REFUSED, _refused),
    (errors.DiskFull, _full),
    (psycopg.DataError, _unfit),
)
"""Kinds of errors, and what makes slumberd's from the database in words and the message."""


def is_lost(error: psycopg.Error) -> bool:
    """Return whether an error means that the connection is gone."""
    return isinstance(error, _GONE) or (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and error.sqlstate is None
    )


def _text_of(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
