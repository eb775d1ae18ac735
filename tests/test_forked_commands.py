"""A forked command does what a started one does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slumberd.consolidation.extraction.statements_in_english import clause_expressions, expressions
from slumberd.rules.vocabulary_loader import shipped_vocabulary
from slumberd.web.http.openapi import openapi_json
from tests.support.builders import triple
from tests.support.daemons import Home
from tests.support.forked_commands import (
    FORKS,
    run_command,
    start_by_forks,
    words_of_program,
)
from tests.support.installation import jsonl
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAM = [sys.executable, "-m", "slumberd"]


@pytest.fixture(params=[True, False], ids=["forked", "started"])
def by_forks(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Let the test start its commands in one of both ways."""
    chosen: bool = request.param
    start_by_forks(by_forks=chosen)
    yield chosen
    start_by_forks(by_forks=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.rule("all", cadence={"every": 1})
    return home


def is_fork_of_the_server(pid: int) -> bool:
    return "forkserver" in Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.usefixtures("by_forks")
def test_command_has_its_input_its_variables_and_its_output(home: Home) -> None:
    environment = {**os.environ, "SLUMBERD_CONFIG": str(home.config)}
    stdin = jsonl(triple("e1", "ada", "likes", "tea"))

    done = run_command([*PROGRAM, "import", "-"], environment, stdin)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("imported 1 (new 1")


@pytest.mark.usefixtures("by_forks")
def test_command_has_its_exit_code_and_its_error() -> None:
    done = run_command([*PROGRAM, "sleep"], os.environ)

    assert done.returncode == 64
    assert "No such command 'sleep'" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_daemon_gets_its_signals(
    home: Home, by_forks: bool, number: signal.Signals, code: int
) -> None:
    with home.started() as daemon:
        is_fork = is_fork_of_the_server(daemon.process.pid)
        assert daemon.process.poll() is None
        daemon.process.send_signal(number)
        ended = daemon.process.wait(PATIENCE_SECONDS)

    assert (is_fork, ended) == (by_forks, code)


@pytest.mark.usefixtures("by_forks")
@pytest.mark.parametrize(("umask", "mode"), [(0o007, 0o660), (0o077, 0o600)], ids=oct)
def test_files_have_the_umask_and_the_directory_of_the_test(
    home: Home, monkeypatch: pytest.MonkeyPatch, umask: int, mode: int
) -> None:
    command = [*PROGRAM, "import", "-", "--config", home.config.name]
    stdin = jsonl(triple("e1", "ada", "likes", "tea"))
    monkeypatch.chdir(home.folder)
    before = os.umask(umask)
    try:
        done = run_command(command, os.environ, stdin)
    finally:
        os.umask(before)

    assert done.returncode == 0, done.stderr
    assert (home.state / "memory.db").stat().st_mode & 0o777 == mode


@pytest.mark.usefixtures("by_forks")
def test_shell_runs_the_program_and_gets_its_exit_code(home: Home) -> None:
    slumberd = shlex.join(words_of_program())
    script = f"{slumberd} version | grep -c slumberd\n{slumberd} sleep 2>/dev/null"

    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("1\n", 64)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("by_forks")
def test_signal_ends_the_daemon_of_a_shell(home: Home, number: signal.Signals) -> None:
    command = [*words_of_program(), *home.words(["run"])]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b'"daemon.ready"' in line:
                break
        process.send_signal(number)
        process.stderr.read()  # until the daemon has closed it, too

    assert process.returncode == (0 if number == signal.SIGTERM else -number)
    wait_until(lambda: home.call("status", "--json").stdout.find('"running":false') > 0)


def end_by_what_is_built() -> None:
    """End this process with 0 if it has built what daemons and commands build."""
    built = [openapi_json, shipped_vocabulary, expressions, clause_expressions]
    is_built = all(each.cache_info().currsize for each in built)
    sys.exit(0 if is_built and "slumberd.web.mcp.server" in sys.modules else 1)


def test_fork_has_imported_and_built_what_a_start_needs() -> None:
    process = FORKS.Process(target=end_by_what_is_built)

    process.start()
    process.join(PATIENCE_SECONDS)

    assert process.exitcode == 0


def test_fork_has_imported_what_runs_a_command() -> None:
    code = "import sys; sys.exit('tests.support.forked_commands' not in sys.modules)"
    process = FORKS.Process(target=exec, args=(code,))

    process.start()
    process.join(PATIENCE_SECONDS)

    assert process.exitcode == 0
