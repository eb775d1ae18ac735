"""The real Stargraph in an environment of its own, built once, and a process that uses it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VERSION = "0.8.0"
PYTHON = "3.13"
PATIENCE_SECONDS = 600
HOST = Path(__file__).with_name("stargraph_host.py")


class NoStargraphError(Exception):
    """Stargraph does not run on this machine; says why."""


def interpreter() -> str:
    """Return a Python that Stargraph runs on.

    Raises:
        NoStargraphError: There is none.
    """
    home = Path.home()
    found = [shutil.which(f"python{PYTHON}"), *home.glob(f".pyenv/versions/{PYTHON}.*/bin/python")]
    found += [*home.glob(f".local/share/uv/python/cpython-{PYTHON}.*/bin/python{PYTHON}")]
    # A version manager's stand-in may be on PATH and yet not run, so each is asked.
    usable = [str(one) for one in found if one and _runs(str(one))]
    if not usable:
        raise NoStargraphError(f"no python{PYTHON} here")
    return usable[0]


def _runs(python: str) -> bool:
    asked = [python, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() == PYTHON


def environment() -> Path:
    """Return the Python of an environment with Stargraph.

    It is kept beside other temporary files, and built by whoever comes first.

    Raises:
        NoStargraphError: It cannot be installed.
    """
    python = interpreter()
    folder = Path(tempfile.gettempdir(), f"slumberd-tests-stargraph-{VERSION}-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            _build(python, folder)
    return folder / "venv" / "bin" / "python"


def _build(python: str, folder: Path) -> None:
    venv = folder / "venv"
    subprocess.run([python, "-m", "venv", "--clear", venv], check=True, timeout=PATIENCE_SECONDS)
    asked = [str(venv / "bin/python"), "-m", "pip", "install", "-q", f"stargraph=={VERSION}"]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NoStargraphError(f"it cannot be installed: {error}") from error
    if done.returncode:
        why = (done.stderr.splitlines() or ["?"])[-1]
        raise NoStargraphError(f"it cannot be installed: {why}")
    (folder / "built").touch()


class Stargraph:
    """A process of its own in which Stargraph works on a state directory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, state: Path, **arguments: Any) -> Any:
        """Return what a method of `Host` answers."""
        self.begin(what, state, **arguments)
        return self.answer()

    def begin(self, what: str, state: Path, **arguments: Any) -> None:
        """Ask for something; its answer is to be fetched."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([what, {"state": str(state), **arguments}]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout
        told = json.loads(self._process.stdout.readline())
        assert "error" not in told, told["error"]
        return told["answer"]


@contextmanager
def stargraph() -> Iterator[Stargraph]:
    """Run such a process for the block.

    Raises:
        NoStargraphError: Stargraph does not run here.
    """
    with subprocess.Popen(
        [environment(), "-P", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Stargraph(process)
        finally:
            process.kill()
