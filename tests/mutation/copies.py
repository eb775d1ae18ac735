"""Copies of the source tree with an interpreter of their own, in which faults are planted."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOURCE = "daemon/slumberd"
"""The package whose faults the tests must find, below the root."""


def files_of(root: Path) -> list[str]:
    """Return the files of a checkout that Git tracks, or would track.

    Where there is no Git, these are all files without a dot in front.
    """
    if not (root / ".git").exists():
        found = (file.relative_to(root) for file in root.rglob("*") if file.is_file())
        return sorted(str(file) for file in found if not str(file).startswith("."))
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    names = sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})
    return [name for name in names if (root / name).is_file()]


def digest_of_source(root: Path) -> str:
    """Return a hash of the names and contents of all files of the package."""
    seen = hashlib.sha256()
    for name in files_of(root):
        if name.startswith(f"{SOURCE}/"):
            content = (root / name).read_bytes()
            seen.update(f"{name}\0{len(content)}\0".encode() + content)
    return seen.hexdigest()[:16]


class TreeCopy:
    """A copy of a checkout; its own Python imports the package from the copy."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.python = self.tree / ".venv" / "bin" / "python"
        self.temporary = folder / "tmp"
        self._planted = 0
        for name in files_of(root):
            place = self.tree / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, place, follow_symlinks=False)
        self._make_environment()

    def _make_environment(self) -> None:
        venv.create(self.tree / ".venv", symlinks=True)
        packages = sysconfig.get_path("purelib", vars={"base": str(self.tree / ".venv")})
        ours = [str(self.tree / "daemon")]  # before the daemon of the checkout
        more = [f"import site; site.addsitedir({path!r})" for path in _site_packages()]
        Path(packages, "copy.pth").write_text("\n".join([*ours, *more, ""]))
        script = self.python.with_name("slumberd")
        script.write_text(f"#!{self.python}\nfrom slumberd.cli import main\n\nmain()\n")
        script.chmod(0o755)

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Give a file another text while the block runs."""
        file = self.tree / path
        original, times = file.read_bytes(), file.stat()
        self._planted += 1
        try:
            file.write_text(text, encoding="utf-8")
            # Python compares seconds and sizes: no compiled module of another text may fit.
            later = times.st_mtime + 1_000 + self._planted
            os.utime(file, (later, later))
            yield
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start Python in the copy, in a session of its own."""
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)
        return subprocess.Popen(
            [self.python, *words],
            cwd=self.tree,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end_processes(self) -> None:
        """Kill the processes of this copy's Python that still run."""
        ours = os.fsencode(self.tree / ".venv" / "bin")
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (place / "cmdline").read_bytes().startswith(ours):
                    os.kill(int(place.name), signal.SIGKILL)


def _site_packages() -> list[str]:
    """Return the directories of installed packages of the Python that runs."""
    places = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    return [place for place in places if place in sys.path or Path(place).is_dir()]
