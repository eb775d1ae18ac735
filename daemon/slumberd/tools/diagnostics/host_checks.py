"""Check the host: file permissions, disk, clock, time zones and the systemd unit."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slumberd.model.health import Finding
from slumberd.rules.settings_schema import ServeSettings, listens_everywhere
from slumberd.workers.scheduling import cron

T = TypeVar("T")

UNIT = "slumberd.service"
SYSTEM_STATE = Path("/var/lib/slumberd")
SMALL_BYTES = 64 * 2**20
"""Free space that is enough for small databases, whose files a firing can double."""

LOW_SHARE = 0.25
"""The fraction of the databases' size that must be free, if that is more than `Machine.low_bytes`.

A long backfill makes the write-ahead log grow to a fraction of what it writes."""

_CLOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The files and commands that describe the host, and the sizes that are too small or large.

    Attributes:
        systemd: A directory that exists while systemd is the service manager.
        synchronised: A file that exists once systemd-timesyncd has set the clock.
        units: The directories of units; the first one has priority.
        shipped: The unit file of this version.
        clock_command: Prints ``yes`` or ``no``: whether the clock is synchronised.
        low_bytes: A disk with less free space is nearly full.
        large_log_bytes: A larger write-ahead log is a problem.
    """

    systemd: Path = Path("/run/systemd/system")
    synchronised: Path = Path("/run/systemd/timesync/synchronized")
    units: tuple[Path, ...] = (
        Path("/etc/systemd/system"),
        Path("/usr/local/lib/systemd/system"),
        Path("/usr/lib/systemd/system"),
        Path("/lib/systemd/system"),
    )
    shipped: Path = Path(sysconfig.get_path("data"), "share/slumberd/systemd", UNIT)
    clock_command: tuple[str, ...] = (
        "timedatectl",
        "show",
        "--property=NTPSynchronized",
        "--value",
    )
    low_bytes: int = 512 * 2**20
    large_log_bytes: int = 512 * 2**20


THIS_MACHINE = Machine()


def check_http_address(serve: ServeSettings) -> Iterator[Finding]:
    """Find an HTTP interface that listens on all networks, where tokens can be read."""
    if serve.enabled and serve.address is not None and listens_everywhere(serve.address):
        problem = "HTTP without TLS listens on all networks of the host"
        remedy = "listen on 127.0.0.1, behind a proxy with TLS"
        yield Finding("serve.exposed", serve.address, problem, remedy)


def check_state_files(directory: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Find state files that others can access, or that the daemon cannot write.

    Args:
        directory: The state directory; the daemon runs as its owner.
        files: The files of the state; missing ones are skipped.
    """
    home = directory.stat()
    yield from _find_open_mode(directory, home, stat.S_IRWXO)
    for file in files:
        if file.exists():
            status = file.stat()
            yield from _find_open_mode(file, status, stat.S_IRWXO)
            if not can_write(home, status):
                problem = f"belongs to uid {status.st_uid}, and the directory to uid {home.st_uid}"
                remedy = f"run `chown --reference={directory} {file}` as root"
                yield Finding("file.owner", str(file), f"{problem}, who cannot write it", remedy)


def check_file_modes(files: Iterable[Path]) -> Iterator[Finding]:
    """Find configuration and rule files that everybody can write."""
    for file in files:
        if file.exists():
            yield from _find_open_mode(file, file.stat(), stat.S_IWOTH)


def _find_open_mode(path: Path, status: os.stat_result, bits: int) -> Iterator[Finding]:
    if status.st_mode & bits:
        mode = f"mode {stat.S_IMODE(status.st_mode):o}"
        right = "write" if status.st_mode & stat.S_IWOTH else "read"
        problem = f"everybody can {right} it ({mode})"
        remedy = f"run `chmod {'o-rwx' if bits == stat.S_IRWXO else 'o-w'} {path}`"
        yield Finding("file.open", str(path), problem, remedy)


def can_write(owner: os.stat_result, status: os.stat_result) -> bool:
    """Return whether the owner of the state directory can write a file, by its owner and mode."""
    if owner.st_uid in (0, status.st_uid):
        return True
    shared = owner.st_gid == status.st_gid and status.st_mode & stat.S_IWGRP
    return bool(shared or status.st_mode & stat.S_IWOTH)


def check_disk_space(directory: Path, databases: int, machine: Machine) -> Iterator[Finding]:
    """Find a disk that is nearly full.

    Args:
        directory: The state directory.
        databases: The size of its databases, in bytes.
    """
    free = shutil.disk_usage(directory).free
    least = min(machine.low_bytes, max(SMALL_BYTES, 4 * databases))
    needed = max(least, int(databases * LOW_SHARE))
    if free < needed:
        problem = f"{megabytes(free)} are free; slumberd needs {megabytes(needed)}"
        yield Finding("disk.low", str(directory), problem, "make room, or move the state directory")


def check_textfile(file: Path, state: Path) -> Iterator[Finding]:
    """Find that the daemon cannot write the file of metrics for Prometheus.

    Args:
        file: The file of metrics.
        state: The state directory; the daemon runs as its owner.
    """
    directory = file.parent
    if directory.is_dir() and can_write(state.stat(), directory.stat()):
        return
    owner = state.stat()
    problem = "its directory does not exist, or the daemon cannot write in it"
    remedy = f"run `install -d -m 775 -g {owner.st_gid} {directory}` as root"
    drop_in = "under systemd the unit needs ReadWritePaths= for it, too"
    yield Finding("metrics.unwritable", str(file), problem, f"{remedy}; {drop_in}")


def megabytes(count: int) -> str:
    """Format a number of bytes in MB."""
    return f"{count / 1e6:,.0f} MB"


def check_clock(machine: Machine) -> Iterator[Finding]:
    """Find a clock that is not synchronised; nothing if the host does not say."""
    if machine.synchronised.exists() or _run(machine.clock_command) != "no":
        return
    problem = "is not synchronised; cron rules and the order of episodes depend on clocks"
    yield Finding("clock.unsynchronised", "clock", problem, "run `timedatectl set-ntp true`")


def _run(command: tuple[str, ...]) -> str:
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 # a constant command
            [program, *command[1:]], capture_output=True, text=True, timeout=_CLOCK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def check_time_zones(names: Iterable[str]) -> Iterator[Finding]:
    """Find a configured time zone that the host does not know."""
    for name in sorted({*names, "Europe/Berlin"}):
        try:
            cron.zone_of(name)
        except ValueError as error:
            remedy = "run `pip install tzdata` beside slumberd, or install the system's tzdata"
            yield Finding("timezone.missing", name, str(error), remedy)
            return


def check_unit(machine: Machine, state: Path) -> Iterator[Finding]:
    """Find a unit that is not installed, or of another version.

    Finds nothing without systemd, for another state directory than the unit's, or if this version
    has no unit file.
    """
    if not _is_service(machine, state) or not machine.shipped.exists():
        return
    installed = _installed_unit(machine)
    install = f"run `install -m 644 {machine.shipped} {machine.units[0]}/`"
    again = "`systemctl daemon-reload`"
    if installed is None:
        yield Finding("unit.missing", UNIT, "is not installed", f"{install} and {again}")
    elif installed.read_bytes() != machine.shipped.read_bytes():
        own = "keep changes of yours in a drop-in (`systemctl edit slumberd`)"
        problem = "is not the unit of this version"
        yield Finding("unit.changed", str(installed), problem, f"{install} and {again}; {own}")


def _is_service(machine: Machine, state: Path) -> bool:
    return machine.systemd.exists() and state == SYSTEM_STATE


def _installed_unit(machine: Machine) -> Path | None:
    return next((unit for home in machine.units if (unit := home / UNIT).exists()), None)


def check_unit_user(machine: Machine, state: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Find files that the user of the unit cannot read.

    Finds nothing without systemd or a unit, or for another state directory than the unit's.

    Args:
        state: The state directory.
        files: The files that the daemon reads; some may be missing.
    """
    installed = unit_of(machine, state)
    if installed is None:
        return
    try:
        account = _account_in(installed, machine)
    except KeyError as error:
        remedy = f"run `systemd-sysusers {machine.shipped.with_suffix('.sysusers')}`"
        yield Finding("unit.user", str(installed), f"there is no {error.args[0]}", remedy)
        return
    for file in files:
        if (blocked := account.find_blocked_path(file)) is not None:
            problem = f"user {account.name!r}, whom the unit runs as, cannot read it"
            right = "rX" if blocked == file else "x"
            remedy = f"run `chmod o+{right} {blocked}`, or give it to a group of that user"
            yield Finding("unit.user", str(file), problem, remedy)


def unit_account(machine: Machine, state: Path) -> Account | None:
    """Return the user of the installed unit; None without a unit of this state directory.

    Raises:
        KeyError: There is no such user, or group.
    """
    installed = unit_of(machine, state)
    return None if installed is None else _account_in(installed, machine)


def credentials_of_unit(machine: Machine, state: Path) -> frozenset[str]:
    """Return the names of the files that the installed unit gets in $CREDENTIALS_DIRECTORY."""
    installed = unit_of(machine, state)
    if installed is None:
        return frozenset()
    keys = ("LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted")
    given = [value for key, value in _unit_lines(installed, machine) if key in keys]
    return frozenset(value.partition(":")[0] for value in given)


def unit_of(machine: Machine, state: Path) -> Path | None:
    """Return the installed unit of a state directory; None without systemd, or without a unit."""
    return _installed_unit(machine) if _is_service(machine, state) else None


def _account_in(installed: Path, machine: Machine) -> Account:
    named = dict(_unit_lines(installed, machine))
    return Account.named(named.get("User", "root"), named.get("Group", ""))


def _unit_lines(installed: Path, machine: Machine) -> list[tuple[str, str]]:
    """Return the settings of a unit and its drop-ins, in order; the last value of a key wins."""
    drop_ins = {
        file.name: file
        for home in reversed(machine.units)
        for file in (home / f"{UNIT}.d").glob("*.conf")
    }
    files = [installed, *(drop_ins[name] for name in sorted(drop_ins))]
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return [(key.strip(), value.strip()) for key, _, value in pairs]


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the host, with groups.

    Attributes:
        name: The name of the user.
        uid: The number of the user.
        groups: The numbers of all groups of the user.
    """

    name: str
    uid: int
    groups: frozenset[int]

    @classmethod
    def named(cls, user: str, group: str) -> Account:
        """Look up an account.

        Args:
            user: A name or a number.
            group: The primary group, a name or a number; empty for the user's own.

        Raises:
            KeyError: There is no such user, or group.
        """
        found = _look_up("user", user, pwd.getpwnam, pwd.getpwuid)
        gid = _look_up("group", group, grp.getgrnam, grp.getgrgid).gr_gid if group else found.pw_gid
        return cls(user, found.pw_uid, frozenset(os.getgrouplist(found.pw_name, gid)))

    @classmethod
    def numbered(cls, uid: int, gid: int) -> Account:
        """Return the account with a number, which may have no name.

        Args:
            gid: A group of the account.
        """
        groups = {gid}
        if uid == os.geteuid():
            groups.update((os.getegid(), *os.getgroups()))
        try:
            found = pwd.getpwuid(uid)
        except KeyError:
            return cls(str(uid), uid, frozenset(groups))
        groups.update(os.getgrouplist(found.pw_name, found.pw_gid))
        return cls(found.pw_name, uid, frozenset(groups))

    def can_write(self, path: Path) -> bool:
        """Return whether the account can write a file, or make files in a directory.

        An answer that this process cannot find out is True.
        """
        wanted = os.W_OK | os.X_OK if path.is_dir() else os.W_OK
        try:
            above = all(self._can_access(parent, os.X_OK) for parent in path.absolute().parents)
            return above and self._can_access(path, wanted)
        except OSError:
            return True

    def find_blocked_path(self, path: Path) -> Path | None:
        """Return the path that the account cannot access: `path` or a directory above it.

        None means that the account can read `path`.

        Raises:
            OSError: The mode of a path cannot be read.
        """
        place = path.absolute()
        for directory in reversed(place.parents):
            if not self._can_access(directory, os.X_OK):
                return directory
        if path.exists() and not self._can_access(
            place, os.R_OK | (os.X_OK if path.is_dir() else 0)
        ):
            return path
        return None

    def _can_access(self, path: Path, wanted: int) -> bool:
        status = path.stat()
        if self.uid == 0 or _has_access_list(path):
            return True
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        return (status.st_mode >> shift) & wanted == wanted


def _has_access_list(path: Path) -> bool:
    """Return whether a path has an access control list, which extends its mode."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:  # its file system has no such lists
        return False


def _look_up(kind: str, name: str, by_name: Callable[[str], T], by_number: Callable[[int], T]) -> T:
    try:
        return by_number(int(name)) if name.isdecimal() else by_name(name)
    except KeyError:
        raise KeyError(f"{kind} {name!r}") from None
