"""A test machine: a real systemd in its own namespaces, controlled from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.catalogue_check import problems_of_lines
from tests.support.waiting import PATIENCE_SECONDS, wait_until

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1]
CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
TOOLS = (
    "journalctl", "nsenter", "runuser", "systemctl", "systemd-sysusers", "systemd-tmpfiles",
    "unshare",
)  # fmt: skip
PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"

TARGET = "[Unit]\nDescription={name} of the box\nDefaultDependencies=no\n"
LOG = "/var/log/slumberd.log"
DROP_IN = f"""\
[Service]
# As shipped, a restart takes five seconds and the watchdog waits for two minutes.
RestartSec=100ms
WatchdogSec=5
StandardError=append:{LOG}
"""
TO_JOURNAL = "/etc/systemd/system/slumberd.service.d/zz-journal.conf"
PEOPLE = """\
u agent - "an agent" /tmp /bin/sh
m agent slumberd
u stranger - "no agent" /tmp /bin/sh
"""
"""Users of the box, for systemd-sysusers."""

JOURNAL = ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket")
SYSTEM_UNITS = Path("/lib/systemd/system")
PACKAGES = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
"""The directories of installed packages; an environment may extend another one."""

PLACES = [f"/opt/slumberd/packages-{number}" for number in range(len(PACKAGES))]
COMMAND = f"""\
#!/bin/sh
export PYTHONHOME=/opt/python LD_LIBRARY_PATH=/opt/python/lib
export PYTHONPATH=/opt/slumberd/source:{":".join(PLACES)}
exec /opt/python/bin/python{sys.version_info[0]}.{sys.version_info[1]} -m slumberd "$@"
"""


def installation_commands() -> str:
    """Return the commands of the installation page that follow pip."""
    section = (SHIPPED / "docs/how-to/install.md").read_text()
    block = re.search(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1].partition("\n")[2]


def missing_requirement() -> str | None:
    """Return what this machine lacks to boot a box; None when it has everything."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [name for name in JOURNAL if not (SYSTEM_UNITS / name).exists()]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"systemd or its tools are not here: {', '.join(missing) or 'systemd'}"
    if _cgroups() is None:
        return "there is no cgroup2 hierarchy that may be written to"
    words = [shutil.which("unshare") or "unshare", "--mount", "--pid", "--fork", "true"]
    probe = subprocess.run(words, capture_output=True)
    return None if probe.returncode == 0 else f"no namespaces: {probe.stderr.decode().strip()}"


@pytest.fixture(scope="session")
def bootable() -> None:
    """Skip a test on a machine that cannot boot a box."""
    if lacks := missing_requirement():
        pytest.skip(f"NO systemd was booted: {lacks}")


def _cgroups() -> Path | None:
    found = (
        cgroup
        for cgroup in CGROUPS
        if (cgroup / "cgroup.procs").exists() and os.access(cgroup, os.W_OK)
    )
    return next(found, None)


class Box:
    """A booted machine with slumberd in /opt, as pip installs it, and without configuration."""

    def __init__(self, folder: Path) -> None:
        cgroups = _cgroups()
        assert cgroups is not None
        self._cgroup = cgroups / f"slumberd-{os.getpid()}-{folder.name}"
        self._folder = folder
        self._opt = folder / "slumberd"

    def __enter__(self) -> Self:
        """Boot the machine."""
        self._write()
        mounts = [
            f"{sys.base_prefix}:/opt/python",
            f"{self._opt}:/opt/slumberd",
            f"{SHIPPED / 'daemon'}:/opt/slumberd/source",
            *(f"{path}:{place}" for path, place in zip(PACKAGES, PLACES, strict=True)),
        ]
        words = [HERE / "box.sh", self._cgroup, self._folder / "units", *mounts]
        with (self._folder / "box.log").open("wb") as log:
            self._process = subprocess.Popen([*map(str, words)], stderr=log)
        try:
            wait_until(self._has_booted)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the machine; the kernel ends its processes and removes its layer."""
        log = self.run(f"cat {LOG} || true").stdout
        self._end()
        wrong = problems_of_lines(log.encode().splitlines())
        assert not wrong, wrong[:3]

    def _end(self) -> None:
        self._process.send_signal(signal.SIGKILL)  # unshare --kill-child kills systemd, too
        self._process.wait(timeout=PATIENCE_SECONDS)
        if self._cgroup.exists():
            wait_until(self._is_empty)
            for directory in [*sorted(self._cgroup.rglob("*/"), reverse=True), self._cgroup]:
                directory.rmdir()

    def _is_empty(self) -> bool:
        return "populated 0" in (self._cgroup / "cgroup.events").read_text()

    def _write(self) -> None:
        units = self._folder / "units"
        (units / "slumberd.service.d").mkdir(parents=True)
        (units / "slumberd.service.d" / "box.conf").write_text(DROP_IN)
        for name in ("multi-user", "sysinit", "basic", "shutdown"):
            (units / f"{name}.target").write_text(TARGET.format(name=name))
        for name in JOURNAL:
            shutil.copy(SYSTEM_UNITS / name, units / name)
        for name in ("bin", "source", *(Path(place).name for place in PLACES)):
            (self._opt / name).mkdir(parents=True)
        (self._opt / "bin" / "slumberd").write_text(COMMAND)
        (self._opt / "bin" / "slumberd").chmod(0o755)
        for name in ("config", "rules", "systemd"):
            shutil.copytree(SHIPPED / name, self._opt / "share" / "slumberd" / name)

    def _has_booted(self) -> bool:
        assert self._process.poll() is None, (self._folder / "box.log").read_text()
        return (
            bool(self._first())
            and self.run("systemctl is-active multi-user.target").returncode == 0
        )

    def _first(self) -> str:
        """Return the process id of the first process of the box, as seen from outside."""
        pid = self._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    def run(self, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a shell script inside, as root."""
        enter = ["nsenter", "-t", self._first(), "-m", "-p", "-C", "-i", "-u", "--"]
        return subprocess.run(
            [*enter, "/bin/sh", "-ec", script],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
        )

    def do(self, script: str, stdin: str = "") -> str:
        """Run a script that must not fail; return its output."""
        done = self.run(script, stdin)
        assert done.returncode == 0, (script, done.stdout, done.stderr, self.log())
        return done.stdout.strip()

    def log(self) -> str:
        """Return the end of the daemon's log."""
        return self.run(f"tail -n 20 {LOG}").stdout

    def log_to_journal(self) -> None:
        """Let the service log to the journal from its next start on, as shipped."""
        self.do(f"printf '[Service]\\nStandardError=journal\\n' > {TO_JOURNAL}")
        self.do("systemctl daemon-reload")

    def journal(self, *words: str) -> list[dict[str, Any]]:
        """Return the events of slumberd that `journalctl` finds."""
        lines = self.do(f"journalctl --sync; journalctl -o cat --no-pager {' '.join(words)}")
        return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]

    def show(self, name: str) -> str:
        """Return a property of the service."""
        return self.do(f"systemctl show --value --property {name} slumberd")
