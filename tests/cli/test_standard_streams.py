"""A standard stream that is full or closed changes no exit code but the one of lost output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

SLUMBERD = ROOT / "daemon/slumberd"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site with two facts; tests only read it."""
    site = Installation(tmp_path_factory.mktemp("site"))
    site.put(*(triple(f"e{n}", "alice", "likes", f"tea {n}", timestamp=at(n)) for n in range(2)))
    site.call("fire", "profile")
    return site


def run(
    site: Installation, words: str, streams: str, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell without the variables that change how Python buffers."""
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", *site.command(*words.split())]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=stderr, env=plain(site), text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def plain(site: Installation) -> dict[str, str]:
    """Return an environment as ``env -i`` makes it, with a home directory and a path."""
    return {"HOME": str(site.state.parent), "PATH": os.environ["PATH"]}


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        pytest.param("facts", ">/dev/full 2>/dev/full", 74, id="both full"),
        pytest.param("factz", "2>/dev/full", 64, id="usage error"),
        pytest.param("facts --limit none", "2>&-", 64, id="usage error, closed"),
        pytest.param("facts", ">&-", 0, id="closed output"),
        pytest.param("facts --limit 1", "<&- >&- 2>&-", 0, id="all closed"),
        pytest.param("recent nobody", "2>/dev/full", 0, id="empty result"),
        pytest.param("forget --user alice", "<&- 2>/dev/full", 64, id="question"),
        pytest.param("", "2>/dev/full", 64, id="help"),
    ],
)
def test_command_whose_streams_fail_ends_with_its_own_code(
    site: Installation, words: str, streams: str, code: int
) -> None:
    done = run(site, words, streams)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-"])
def test_answer_is_printed_without_the_message_that_nobody_can_take(
    site: Installation, streams: str
) -> None:
    done = run(site, "facts --limit 1 --json", streams)

    assert done.returncode == 0
    assert re.fullmatch(r'\{"id":"e0",.*\}\n', done.stdout)


@pytest.mark.nightly
def test_answer_that_cannot_be_written_is_an_error(site: Installation) -> None:
    done = run(site, "facts --limit 1", ">/dev/full")

    last = "slumberd: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (74, last)


@pytest.mark.slow
def test_reader_that_closed_the_messages_changes_nothing(site: Installation) -> None:
    reader, written = os.pipe()
    os.close(reader)

    done = run(site, "factz", "", stderr=written)

    os.close(written)
    assert (done.returncode, done.stdout) == (64, "")


@pytest.mark.nightly
def test_daemon_that_cannot_start_ends_with_its_own_code(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text("oops: 1\n")

    done = run(site, "run", "2>/dev/full")

    assert (done.returncode, done.stdout) == (78, "")


@pytest.mark.slow
def test_daemon_serves_although_nobody_can_take_its_log(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    command = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *site.command("run")]

    with subprocess.Popen(command, env=plain(site)) as process:
        wait_until(lambda: site.lines("status")[0]["running"])
        process.send_signal(signal.SIGTERM)

    assert process.returncode == 0


def test_one_function_writes_the_messages_of_commands() -> None:
    """A message that cannot be written would else end its command with 74 or 120."""
    files = [*(SLUMBERD / "cli").rglob("*.py")]
    lines = [f"{file.name}: {line.strip()}" for file in files
             for line in file.read_text().splitlines() if "file=sys.stderr" in line]  # fmt: skip

    assert sorted(lines) == [
        # Without a question, nobody can answer.
        'confirmation.py: print(question, end="", file=sys.stderr, flush=True)',
        "exit_codes.py: print(text, end=end, file=sys.stderr)",
    ]
