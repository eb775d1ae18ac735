"""A real PostgreSQL server for the tests, on a socket in a temporary directory.

The server is that of ``SLUMBERD_TEST_POSTGRES`` (an address that may create databases and roles),
else a new one from the programs on PATH or in Debian's directories. Each process of the tests has a
server of its own, and each test a database of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from slumberd.storage.postgres.installation import install
from tests.support.waiting import wait_until

ADDRESS_VARIABLE = "SLUMBERD_TEST_POSTGRES"
"""The variable with the address of a server to use."""

REQUIRED_VARIABLE = "SLUMBERD_REQUIRE_POSTGRES"
"""The variable that turns a missing server into a failure."""

MISSING = f"no PostgreSQL: apt install postgresql, or set {ADDRESS_VARIABLE}"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "max_connections": "400",
    "max_prepared_transactions": "2",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
    "max_wal_size": "128MB",
    "dynamic_shared_memory_type": "mmap",  # in the directory of the server, which goes with it
}
MEMORY = Path("/dev/shm")  # noqa: S108 # the server's own directory lies in it
"""A file system in memory."""

_ROOM_BYTES = 2 << 30
"""What the servers of all processes may need; the default of a container is less."""

_USER = "postgres"
_PASSWORD = "of-a-test"  # noqa: S105 # of logins that only the tests use
_NUMBERS_IN_A_PART = 32 * 4 * 8192  # pages of a file, states in a byte, bytes of a page
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@cache
def programs() -> Path | None:
    """Return the directory of the server's programs; None when it is not installed."""
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        candidates.append(Path(asked.stdout.strip()))
    for folder in candidates:
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return folder
    return None


def _version(programs: Path) -> float:
    number = programs.parent.name
    return float(number) if number.replace(".", "", 1).isdecimal() else 0.0


def server_user() -> dict[str, Any]:
    """Return as whom the server runs: it refuses root."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam(_USER if _USER in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def open_directory(*, on_disk: bool = False) -> Path:
    """Return a directory for temporary files that the server's user can enter.

    In memory, a new database takes 16 ms of processor time; on a disk it took 70 to 250 ms.

    Args:
        on_disk: Whether it must lie on a disk, as that of a bench must.
    """
    if not on_disk and _has_room(MEMORY):
        return MEMORY
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 # see above
        folder = Path(base).resolve()
        if all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents)):
            return folder
    raise AssertionError("no directory for temporary files can be entered by other users")


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free >= _ROOM_BYTES


def _in_order(block: str) -> str:
    """Sort the rows of a table in a dump; leave any other block as it is."""
    if not block.lstrip("\n").startswith("INSERT INTO "):
        return block
    return "\n".join(sorted(block.splitlines()))


class PostgresServer:
    """One server, and the databases of tests in it.

    Args:
        address: The address of a database of it, with the right to create databases and roles.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._numbers = itertools.count(1)
        self._templates: dict[int, str] = {}
        self._prefix = f"slumberd_test_{os.getpid()}"
        self._kept: psycopg.Connection[Any] | None = None

    def address_of(self, database: str, *, login: str | None = None) -> str:
        """Return the address of a database, for one of the logins of `login`."""
        parts = urlsplit(self.address)
        netloc = parts.netloc
        if login is not None:
            netloc = f"{login}:{_PASSWORD}@{netloc.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}"))

    def run(self, *statements: str, database: str | None = None) -> None:
        """Run statements as the superuser, each in a transaction of its own."""
        if database is None:
            for statement in statements:
                self._superuser().execute(statement.encode())
            return
        with psycopg.connect(self.address_of(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _superuser(self) -> psycopg.Connection[Any]:
        """Return a connection that stays: to open one takes half as long as a new database."""
        if self._kept is None or self._kept.closed:
            self._kept = psycopg.connect(self.address, autocommit=True)
        return self._kept

    def close(self) -> None:
        """Close the connection that stays."""
        if self._kept is not None:
            self._kept.close()

    def rows(self, statement: str, database: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, read as the superuser."""
        with psycopg.connect(self.address_of(database)) as connection:
            return connection.execute(statement.encode()).fetchall()

    def dump(self, database: str) -> str:
        """Return schemas and rows of slumberd in a database, as statements in a fixed order."""
        folder = programs()
        assert folder is not None
        words = ["--schema=slumberd*", "--inserts", "--dbname", self.address_of(database)]
        done = subprocess.run(
            [str(folder / "pg_dump"), *words], capture_output=True, text=True, check=True
        )
        # Newer programs write commands of their shell, and settings that older servers lack.
        strange = ("\\", "SET transaction_timeout")
        lines = (line for line in done.stdout.splitlines() if not line.startswith(strange))
        # Rows lie where a table has room, so their order tells when the server's vacuum ran.
        blocks = "\n".join(lines).split("\n\n")
        return "\n\n".join(map(_in_order, blocks))

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """Yield the name of a new database without any schema; it ends with the block."""
        name = f"{self._prefix}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def database(self, *, shards: int = 1) -> Iterator[str]:
        """Yield the name of a new database with slumberd's schema; it ends with the block."""
        if shards not in self._templates:
            template = f"{self._prefix}_template_{shards}"
            self.run(
                f"CREATE DATABASE {template} ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0"
            )
            install(self.address_of(template), shards=shards)
            self._templates[shards] = template
        name = f"{self._prefix}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {self._templates[shards]}")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def copy_of(self, database: str) -> Iterator[str]:
        """Yield the name of a copy of a database that nobody uses; it ends with the block."""
        name = f"{self._prefix}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {database}")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def login(self, name: str, *roles: str) -> None:
        """Create a login that is a member of roles, where it is missing."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            # Another process of the tests may create it at the same time.
            with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{_PASSWORD}'".encode())
            for role in roles:
                connection.execute(f"GRANT {role} TO {name}".encode())
            # Who is no superuser may then end the connections of the login.
            connection.execute(f"GRANT {name} TO CURRENT_USER".encode())

    def drop_templates(self) -> None:
        """Drop the databases that new ones were copied from."""
        for template in self._templates.values():
            self.run(f"DROP DATABASE {template} WITH (FORCE)")
        self._templates.clear()
        self.close()

    def end_connections(self, database: str) -> None:
        """End every other connection to a database, as a network that breaks does."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{database}' AND pid != pg_backend_pid()"
        )


class OwnServer(PostgresServer):
    """A server that this process has started.

    Attributes:
        folder: Its directory, with the cluster and the socket.

    Args:
        folder: A directory that the server's user can enter, with a short path.
        settings: Settings of the server.
    """

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        port = f":{settings['port']}" if "port" in settings else ""
        super().__init__(f"postgresql://{_USER}@{quote(str(folder), safe='')}{port}/postgres")
        self.folder = folder
        self._settings = settings
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._within: list[str] = []
        self._as_user = server_user()
        found = programs()
        assert found is not None
        self._programs = found

    def create(self) -> None:
        """Create the cluster."""
        self._own_folder()
        command = [
            str(self._programs / "initdb"), "--pgdata", str(self._data), "--username", _USER,
            "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        ]  # fmt: skip
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self._as_user
        )

    def _own_folder(self) -> None:
        if self._as_user:
            os.chown(self.folder, self._as_user["user"], self._as_user["group"])

    def start(self) -> None:
        """Start the server, and return when it answers."""
        settings = {**self._settings, "unix_socket_directories": str(self.folder)}
        given = [f"--{name}={value}" for name, value in settings.items()]
        self._process = subprocess.Popen(
            [*self._within, str(self._programs / "postgres"), "-D", str(self._data), *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            preexec_fn=end_with_parent,
            **({} if self._within else self._as_user),
        )
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "postgres did not start"
        try:
            psycopg.connect(self.address).close()
        except psycopg.OperationalError:
            return False
        return True

    def restart_within(self, words: Sequence[str]) -> None:
        """Start the server again by a command that runs another one as root, in a namespace.

        Args:
            words: The words of that command.
        """
        self.stop()
        self._within = [*words]
        if self._as_user:
            user, group = self._as_user["user"], self._as_user["group"]
            self._within += ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        self.start()

    @contextmanager
    def replica(self) -> Iterator[OwnServer]:
        """Yield a replica of this server, which needs ``wal_level=replica``.

        The server keeps in a slot what the replica has not read yet.
        """
        with tempfile.TemporaryDirectory(prefix="pg", dir=open_directory()) as folder:
            copy = OwnServer(Path(folder), self._settings)
            copy._own_folder()
            slot = Path(folder).name.lower()
            command = [
                str(self._programs / "pg_basebackup"), "--host", str(self.folder), "--username",
                _USER, "--pgdata", str(copy._data), "--write-recovery-conf", "--checkpoint", "fast",
                "--create-slot", "--slot", slot,
            ]  # fmt: skip
            subprocess.run(command, check=True, cwd=folder, **self._as_user)
            copy.start()
            try:
                yield copy
            finally:
                copy.stop(at_once=True)

    def promote(self) -> None:
        """Make a replica the primary, and return when it takes writes."""
        self.run("SELECT pg_promote()")

    def kill(self) -> None:
        """Kill every process of the server at once, as the end of its machine does."""
        self.close()
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # so that it starts no further process
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._process = None

    def skip_transactions(self, number: int) -> None:
        """Go on with a later transaction, as if all numbers before it had been used."""
        self.stop()
        command = [str(self._programs / "pg_resetwal"), "-x", str(number), str(self._data)]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self._as_user
        )
        # The server expects the part of its commit log that has this number.
        part = self._data / "pg_xact" / f"{number // _NUMBERS_IN_A_PART:04X}"
        part.write_bytes(bytes(_NUMBERS_IN_A_PART // 4))
        if self._as_user:
            os.chown(part, self._as_user["user"], self._as_user["group"])
        self.start()

    @property
    def owner(self) -> tuple[int, int]:
        """The user and the group of the server's files."""
        found = self.folder.stat()
        return found.st_uid, found.st_gid

    @property
    def pid(self) -> int:
        """The process of the server."""
        assert self._process is not None
        return self._process.pid

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server.

        Args:
            at_once: Whether to stop it as a crash does; else connections end first.
        """
        self.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self._process.wait()
            self._process = None


def end_with_parent() -> None:
    # A test run that is killed must leave no server behind.
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)


def running_server(**settings: str) -> AbstractContextManager[OwnServer]:
    """Yield a new server of this process; it ends with the block.

    Args:
        settings: Settings beside `SETTINGS`.
    """
    return _running_server(open_directory(), settings)


def running_server_on_disk(**settings: str) -> AbstractContextManager[OwnServer]:
    """Yield a new server whose files lie on a disk; it ends with the block.

    Args:
        settings: Settings beside `SETTINGS`.
    """
    return _running_server(open_directory(on_disk=True), settings)


@contextmanager
def _running_server(parent: Path, settings: dict[str, str]) -> Iterator[OwnServer]:
    with tempfile.TemporaryDirectory(prefix="pg", dir=parent) as folder:
        server = OwnServer(Path(folder), SETTINGS | settings)
        server.create()
        try:
            server.start()
            yield server
        finally:
            server.stop(at_once=True)


def skip_without_server() -> None:
    """Skip the test, or fail it where a server is required."""
    if os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Provide a server for all tests of this process."""
    if address := os.environ.get(ADDRESS_VARIABLE):
        server = PostgresServer(address)
        yield server
        server.drop_templates()
        return
    if programs() is None:
        skip_without_server()
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_address(postgres: PostgresServer) -> Iterator[str]:
    """Provide the address of a new database with slumberd's schema."""
    with postgres.database() as name:
        yield postgres.address_of(name)


@pytest.fixture
def own_postgres() -> Iterator[OwnServer]:
    """Provide a server that the test may stop and start."""
    if programs() is None:
        skip_without_server()
    with running_server() as server:
        yield server
