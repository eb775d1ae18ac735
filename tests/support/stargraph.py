"""The real Stargraph in its own environment, which is built once, and a process that uses it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.support.interpreters import find_python
from tests.support.repository import ROOT

VERSION = "0.8.0"
PYTHON = "3.13"
PATIENCE_SECONDS = 600
HOST = Path(__file__).with_name("stargraph_host.py")
OURS = ROOT / "daemon"
MIXED = Path(__file__).with_name("stargraph_mixed.py")
NAMES = Path(__file__).with_name("stargraph_names.py")
SOURCE_VARIABLE = "STARGRAPH_SOURCE"
"""Names a checkout of Stargraph; without it, Stargraph's own tests are skipped."""
_TEST_TOOLS = (
    "pytest", "pytest-asyncio", "hypothesis", "sortedcontainers", "iniconfig", "apscheduler",
    "tzlocal", "tzdata", "cronsim", "redact-secret>=0.1.0b15", "snowballstemmer",
)  # fmt: skip
"""What the tests of Stargraph and our classes need in addition to Stargraph."""
_DATABASES = ("lancedb>=0.30.2,<0.40", "ladybug>=0.22,<0.23")
"""What Stargraph's vector store and graph store need; Ladybug stands in for RyuGraph."""


class NoStargraphError(Exception):
    """Stargraph does not run on this machine; says why."""


def interpreter() -> str:
    """Return a Python that Stargraph runs on.

    Raises:
        NoStargraphError: There is none.
    """
    python = find_python(PYTHON)
    if python is None:
        raise NoStargraphError(f"no python{PYTHON} here")
    return python


def environment() -> Path:
    """Return the Python of an environment with Stargraph.

    The environment is a directory of temporary files; the first test that needs it builds it.

    Raises:
        NoStargraphError: It cannot be installed.
    """
    python, folder = interpreter(), _folder()
    with _locked(folder):
        if not (folder / "built").exists():
            _build(python, folder)
    return folder / "venv" / "bin" / "python"


def test_environment() -> Path:
    """Return the Python of an environment with Stargraph, pytest, and what slumberd needs.

    Raises:
        NoStargraphError: It cannot be installed.
    """
    theirs, folder = environment(), _folder()
    venv = folder / "tests"
    with _locked(folder):
        built = folder / f"tests-built-{crc32(' '.join(_TEST_TOOLS + _DATABASES).encode()):08x}"
        if not built.exists():
            _make(interpreter(), venv)
            (site,) = theirs.parent.parent.glob("lib/python*/site-packages")
            (own,) = venv.glob("lib/python*/site-packages")
            (own / "stargraph.pth").write_text(f"{site}\n")
            _install(venv, "--no-deps", *_TEST_TOOLS)
            _install(venv, *_DATABASES)
            built.touch()
    return venv / "bin" / "python"


test_environment.__test__ = False  # type: ignore[attr-defined]  # it is not a test


def source() -> Path:
    """Return the checkout of Stargraph that the environment names; tests never fetch one.

    Raises:
        NoStargraphError: It names none.
    """
    given = os.environ.get(SOURCE_VARIABLE)
    if not given:
        raise NoStargraphError(f"{SOURCE_VARIABLE} names no checkout of v{VERSION}")
    return Path(given)


def run_their_tests(home: Path, files: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run test files of Stargraph with our classes, in a directory of this run.

    Raises:
        NoStargraphError: Stargraph, or its tests, cannot be had.
    """
    python, tests = test_environment(), source() / "tests"
    shutil.copytree(tests, home / "tests")
    plugins = home / "plugins"
    plugins.mkdir()
    shutil.copy(NAMES, plugins)
    (home / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "markers =\n    unit:\n    integration:\n    knowledge:\n    property:\n"
    )
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-p", NAMES.stem, "--junitxml=report.xml",
         *(f"tests/{file}" for file in files)],
        cwd=home, env=os.environ | {"PYTHONPATH": f"{OURS}{os.pathsep}{plugins}"},
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def run_mixed(home: Path) -> Any:
    """Return what `tests/support/stargraph_mixed.py` prints, in an environment with both.

    Raises:
        NoStargraphError: Stargraph does not run here.
    """
    done = subprocess.run(
        [test_environment(), "-P", MIXED, home],
        env=os.environ | {"PYTHONPATH": f"{OURS}{os.pathsep}{MIXED.parents[2]}"},
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _folder() -> Path:
    folder = Path(tempfile.gettempdir(), f"slumberd-tests-stargraph-{VERSION}-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(python: str, folder: Path) -> None:
    venv = folder / "venv"
    _make(python, venv)
    _install(venv, f"stargraph=={VERSION}")
    (folder / "built").touch()


def _make(python: str, venv: Path) -> None:
    subprocess.run([python, "-m", "venv", "--clear", venv], check=True, timeout=PATIENCE_SECONDS)


def _install(venv: Path, *what: str) -> None:
    command = [str(venv / "bin/python"), "-m", "pip", "install", "-q", *what]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NoStargraphError(f"it cannot be installed: {error}") from error
    if done.returncode:
        why = (done.stderr.splitlines() or ["?"])[-1]
        raise NoStargraphError(f"it cannot be installed: {why}")


class Stargraph:
    """A process of its own in which Stargraph works on a state directory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, state: Path, **arguments: Any) -> Any:
        """Call a method of `Host`; return its answer."""
        self.begin(what, state, **arguments)
        return self.answer()

    def begin(self, what: str, state: Path, **arguments: Any) -> None:
        """Send a request; `answer` returns its answer."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([what, {"state": str(state), **arguments}]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout
        response = json.loads(self._process.stdout.readline())
        assert "error" not in response, response["error"]
        return response["answer"]


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


@contextmanager
def stargraph_or_skip() -> Iterator[Stargraph]:
    """Run Stargraph as `stargraph` does; skip the test when Stargraph does not run here."""
    with ExitStack() as stack:
        try:
            process = stack.enter_context(stargraph())
        except NoStargraphError as error:
            pytest.skip(f"Stargraph itself is not tested: {error}")
        yield process
