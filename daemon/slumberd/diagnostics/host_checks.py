"""What slumberd stands on: who may touch its files, disk, clock, time zones, service manager."""

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

from slumberd.model.finding import Finding
from slumberd.scheduling import cron

T = TypeVar("T")

UNIT = "slumberd.service"
SYSTEM_STATE = Path("/var/lib/slumberd")
LOW_BYTES = 512 * 2**20
LOW_SHARE = 0.25
"""Less than this, or than this part of the databases, is too little room: a write-ahead log grows
to a part of what a long backfill writes."""

_CLOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the marks of the system are.

    Attributes:
        systemd: There while systemd is the service manager.
        synchronised: There once systemd-timesyncd has set the clock.
        units: Where units are, the first one counts.
        shipped: The unit of this version.
        clock_command: Tells whether the clock is synchronised, as ``yes`` or ``no``.
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


THIS_MACHINE = Machine()


def kept(directory: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Find what others could read or write, and what the daemon could not.

    Args:
        directory: Of the state; whoever owns it is whom the daemon runs as.
        files: That are kept there, those that are not there included.
    """
    home = directory.stat()
    yield from _open_to_others(directory, home, stat.S_IRWXO)
    for file in files:
        if file.exists():
            status = file.stat()
            yield from _open_to_others(file, status, stat.S_IRWXO)
            if not _may_write(home, status):
                problem = f"belongs to uid {status.st_uid}, and the directory to uid {home.st_uid}"
                remedy = f"run `chown --reference={directory} {file}` as root"
                yield Finding("file.owner", str(file), f"{problem}, who may not write it", remedy)


def check_file_modes(files: Iterable[Path]) -> Iterator[Finding]:
    """Find what everybody may write, of what slumberd goes by."""
    for file in files:
        if file.exists():
            yield from _open_to_others(file, file.stat(), stat.S_IWOTH)


def _open_to_others(path: Path, status: os.stat_result, bits: int) -> Iterator[Finding]:
    if status.st_mode & bits:
        sticky = f"mode {stat.S_IMODE(status.st_mode):o}"
        right = "write" if status.st_mode & stat.S_IWOTH else "read"
        problem = f"everybody may {right} it ({sticky})"
        remedy = f"run `chmod {'o-rwx' if bits == stat.S_IRWXO else 'o-w'} {path}`"
        yield Finding("file.open", str(path), problem, remedy)


def _may_write(owner: os.stat_result, status: os.stat_result) -> bool:
    if owner.st_uid in (0, status.st_uid):
        return True
    shared = owner.st_gid == status.st_gid and status.st_mode & stat.S_IWGRP
    return bool(shared or status.st_mode & stat.S_IWOTH)


def room(directory: Path, databases: int) -> Iterator[Finding]:
    """Find a disk that is nearly full.

    Args:
        directory: On it.
        databases: Bytes that the databases on it take.
    """
    free = shutil.disk_usage(directory).free
    needed = max(LOW_BYTES, int(databases * LOW_SHARE))
    if free < needed:
        problem = f"{megabytes(free)} are free; {megabytes(needed)} are wanted"
        yield Finding("disk.low", str(directory), problem, "make room, or move the state directory")


def textfile(file: Path, state: Path) -> Iterator[Finding]:
    """Find that figures for Prometheus have no place.

    Args:
        file: Where they are to go.
        state: The state directory; whoever owns it is whom the daemon runs as.
    """
    directory = file.parent
    if directory.is_dir() and _may_write(state.stat(), directory.stat()):
        return
    owner = state.stat()
    problem = "its directory is not there, or the daemon may not write in it"
    remedy = f"run `install -d -m 775 -g {owner.st_gid} {directory}` as root"
    drop_in = "under systemd the unit needs ReadWritePaths= for it, too"
    yield Finding("metrics.unwritable", str(file), problem, f"{remedy}; {drop_in}")


def megabytes(count: int) -> str:
    """Return bytes as people read them."""
    return f"{count / 1e6:,.0f} MB"


def clock(machine: Machine) -> Iterator[Finding]:
    """Find a clock that nobody sets; nothing where that cannot be told."""
    if machine.synchronised.exists() or _told_by(machine.clock_command) != "no":
        return
    problem = "is not synchronised; cron rules, and which of two episodes is newer, go by clocks"
    yield Finding("clock.unsynchronised", "clock", problem, "run `timedatectl set-ntp true`")


def _told_by(command: tuple[str, ...]) -> str:
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 # our own words
            [program, *command[1:]], capture_output=True, text=True, timeout=_CLOCK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def zones(names: Iterable[str]) -> Iterator[Finding]:
    """Find time zones that are named and not there."""
    for name in sorted({*names, "Europe/Berlin"}):
        try:
            cron.zone_of(name)
        except ValueError as error:
            remedy = "run `pip install tzdata` where slumberd is, or install the system's tzdata"
            yield Finding("timezone.missing", name, str(error), remedy)
            return


def unit(machine: Machine, state: Path) -> Iterator[Finding]:
    """Find a unit that is not installed, or of another version.

    Nothing without systemd, for a state directory that is not the unit's, or where this version
    carries no unit.
    """
    if not _is_service(machine, state) or not machine.shipped.exists():
        return
    there = _installed(machine)
    install = f"run `install -m 644 {machine.shipped} {machine.units[0]}/`"
    again = "`systemctl daemon-reload`"
    if there is None:
        yield Finding("unit.missing", UNIT, "is not installed", f"{install} and {again}")
    elif there.read_bytes() != machine.shipped.read_bytes():
        own = "keep changes of yours in a drop-in (`systemctl edit slumberd`)"
        problem = "is not the unit of this version"
        yield Finding("unit.changed", str(there), problem, f"{install} and {again}; {own}")


def _is_service(machine: Machine, state: Path) -> bool:
    return machine.systemd.exists() and state == SYSTEM_STATE


def _installed(machine: Machine) -> Path | None:
    return next((one / UNIT for one in machine.units if (one / UNIT).exists()), None)


def unit_user(machine: Machine, state: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Find what the user that the unit names may not read.

    Nothing without systemd or a unit, or for a state directory that is not the unit's.

    Args:
        machine: Where units are.
        state: The state directory.
        files: That the daemon reads, those that are not there included.
    """
    there = _installed(machine) if _is_service(machine, state) else None
    if there is None:
        return
    named = _named_by(there, machine)
    try:
        account = Account.named(named.get("User", "root"), named.get("Group", ""))
    except KeyError as error:
        remedy = f"run `systemd-sysusers {machine.shipped.with_suffix('.sysusers')}`"
        yield Finding("unit.user", str(there), f"there is no {error.args[0]}", remedy)
        return
    for file in files:
        if (barred := account.barred(file)) is not None:
            problem = f"user {account.name!r}, whom the unit runs as, may not read it"
            right = "rX" if barred == file else "x"
            remedy = f"run `chmod o+{right} {barred}`, or give it to a group of that user's"
            yield Finding("unit.user", str(file), problem, remedy)


def _named_by(there: Path, machine: Machine) -> dict[str, str]:
    """Return the settings of a unit and its drop-ins; the last one counts."""
    dropped = {
        file.name: file for one in reversed(machine.units) for file in (one / f"{UNIT}.d").glob("*")
    }
    files = [there, *(dropped[name] for name in sorted(dropped) if name.endswith(".conf"))]
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return {key.strip(): value.strip() for key, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a process runs as.

    Attributes:
        name: The user.
        uid: The user's number.
        groups: The numbers of the groups.
    """

    name: str
    uid: int
    groups: frozenset[int]

    @classmethod
    def named(cls, user: str, group: str) -> Account:
        """Look an account up.

        Args:
            user: A name or a number.
            group: That the process has instead of the user's own; nothing for that.

        Raises:
            KeyError: There is no such user, or group.
        """
        found = _known("user", user, pwd.getpwnam, pwd.getpwuid)
        gid = _known("group", group, grp.getgrnam, grp.getgrgid).gr_gid if group else found.pw_gid
        return cls(user, found.pw_uid, frozenset(os.getgrouplist(found.pw_name, gid)))

    def barred(self, path: Path) -> Path | None:
        """Return what keeps it from reading a path: a directory above, or the path; None if it may.

        Raises:
            OSError: It cannot be looked at.
        """
        place = path.absolute()
        for directory in reversed(place.parents):
            if not self._may(directory, os.X_OK):
                return directory
        if path.exists() and not self._may(place, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            return path
        return None

    def _may(self, path: Path, wanted: int) -> bool:
        status = path.stat()
        if self.uid == 0 or _has_access_list(path):
            return True
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        return (status.st_mode >> shift) & wanted == wanted


def _has_access_list(path: Path) -> bool:
    """Say whether a path has a list that says more than its mode does."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:  # its file system knows none
        return False


def _known(kind: str, said: str, by_name: Callable[[str], T], by_number: Callable[[int], T]) -> T:
    try:
        return by_number(int(said)) if said.isdecimal() else by_name(said)
    except KeyError:
        raise KeyError(f"{kind} {said!r}") from None
