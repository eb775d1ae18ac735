"""No output, log or traceback shows the key of a ledger, or the key of the erased scopes."""

from __future__ import annotations

import base64
import os
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.cli import call
from slumberd.daemon import stores as store_choice
from slumberd.model.errors import ConfigurationError, Mistake
from tests.support.builders import at, triple
from tests.support.cli_runner import restored_logging
from tests.support.installation import Installation, environment
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

KEY = b"correct horse battery staple 42!"
OTHER = b"Tr0ub4dor&3 is what they all use"
SHORT = b"hunter2 swordfi"
FEW = 9
"""So many consecutive bytes of a secret count as a leak."""

COMMANDS = [
    ("fire", "--all"),
    ("audit", "verify", "--json"),
    ("audit", "export"),
    ("audit", "ls", "--json"),
    ("audit", "replay", "REPLAYED"),
    ("status", "--json"),
    ("doctor", "--json"),
    ("doctor", "--deep"),
    ("check",),
    ("check", "--against-data", "--json"),
    ("facts", "--json"),
    ("rules", "--json"),
    ("why", "e1", "--json"),
    ("undo", "profile@2", "--json"),
    ("pin", "--user", "u", "--agent", "a", "--subject", "s", "--predicate", "is", "--object", "x",
     "--reason", "because", "--json"),
    ("forget", "--user", "alice", "--yes", "--json"),
]  # fmt: skip


def leaks(secret: bytes, output: bytes) -> list[bytes]:
    """Return the encoded parts of a secret that an output contains."""
    parts = [secret[start : start + FEW] for start in range(0, len(secret) - FEW + 1, 3)]
    forms = [encode(part) for part in parts for encode in FORMS]
    return [form for form in forms if form in output]


FORMS: list[Callable[[bytes], bytes]] = [
    bytes,
    lambda part: part.hex().encode(),
    lambda part: part.hex().upper().encode(),
    lambda part: base64.b64encode(part).rstrip(b"="),
    lambda part: ", ".join(map(str, part)).encode(),
    lambda part: repr(part)[2:-1].encode(),
]


@pytest.fixture
def keyed(tmp_path: Path) -> Installation:
    """An installation whose ledger was created with the key."""
    site = Installation(tmp_path)
    key = tmp_path / "ledger.key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    with site.config.open("a") as config:
        config.write(f"facts: {{key_file: {key}}}\n")
    site.put(triple("e1", "s", "is", "here"))
    assert site.call("fire", "--all").returncode == 0
    site.put(triple("e2", "s", "is", "there", timestamp=at(1)))
    return site


def key_of(site: Installation) -> Path:
    return site.config.with_name("ledger.key")


def is_gone(site: Installation) -> None:
    key_of(site).unlink()


def is_a_pipe(site: Installation) -> None:
    key_of(site).unlink()
    os.mkfifo(key_of(site), 0o600)


def is_a_directory(site: Installation) -> None:
    key_of(site).unlink()
    key_of(site).mkdir()


def is_not_named(site: Installation) -> None:
    text = site.config.read_text().splitlines(keepends=True)
    site.config.write_text("".join(line for line in text if "key_file" not in line))


STATES: dict[str, Callable[[Installation], object]] = {
    "as it was": lambda site: None,
    "another": lambda site: key_of(site).write_bytes(OTHER),
    "short": lambda site: key_of(site).write_bytes(SHORT),
    "long": lambda site: key_of(site).write_bytes(KEY * 200),
    "open to others": lambda site: key_of(site).chmod(0o644),
    "gone": is_gone,
    "a pipe": is_a_pipe,
    "a directory": is_a_directory,
    "not named": is_not_named,
}


@pytest.fixture
def debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let failures show their tracebacks."""
    monkeypatch.setenv("SLUMBERD_DEBUG", "1")


def output_of(
    site: Installation,
    capfd: pytest.CaptureFixture[str],
    commands: Sequence[tuple[str, ...]] = COMMANDS,
) -> bytes:
    """Return the output and the log of commands."""
    capfd.readouterr()
    for words in commands:
        place = str(site.config.with_name("replayed.db"))
        with restored_logging():
            call([*(place if word == "REPLAYED" else word for word in words), "--config",
                  str(site.config)])  # fmt: skip
    output = "".join(capfd.readouterr()).encode()
    log = site.state / "slumberd.log"
    return output + (log.read_bytes() if log.exists() else b"")


@pytest.mark.cases(3)
@pytest.mark.slow
@pytest.mark.usefixtures("debugging")
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_no_command_shows_the_key_in_any_state_of_its_file(
    keyed: Installation, state: Callable[[Installation], object], capfd: pytest.CaptureFixture[str]
) -> None:
    state(keyed)

    output = output_of(keyed, capfd)

    assert b"e1" in output
    for secret in (KEY, OTHER, SHORT):
        assert not leaks(secret, output)


@pytest.mark.nightly
def test_no_command_shows_the_key_of_erased_scopes(
    keyed: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    keyed.put(triple("e7", "it", "is", "so", user="carol"))
    assert keyed.call("forget", "--user", "carol", "--yes").returncode == 0
    found = []
    for name in ("facts.db", "memory.db"):
        with closing(sqlite3.connect(keyed.state / name)) as connection:
            found += connection.execute("SELECT key FROM slumberd_erasure_key").fetchall()

    output = output_of(keyed, capfd)

    assert len(found) == 2
    assert not [leak for (secret,) in found for leak in leaks(secret, output)]


@pytest.mark.slow
@pytest.mark.usefixtures("debugging")
@pytest.mark.parametrize("form", FORMS, ids=["raw", "hex", "HEX", "base64", "list", "repr"])
def test_search_for_leaks_finds_a_key_in_an_error(
    keyed: Installation,
    form: Callable[[bytes], bytes],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tests above can fail: they find a key that an error shows."""

    def careless(file: Path, *, credentials: Path | None) -> bytes:
        problem = f"{form(file.read_bytes()).decode()} is no key"
        raise ConfigurationError([Mistake(str(file), 0, 0, "facts.key_file", problem)])

    monkeypatch.setattr(store_choice, "read_key", careless)

    assert leaks(KEY, output_of(keyed, capfd, [("audit", "verify")]))


@pytest.mark.slow
def test_daemon_shows_its_key_in_no_file_and_no_answer(keyed: Installation) -> None:
    with keyed.daemon() as process:
        own = Path("/proc", str(process.pid))
        output = (own / "cmdline").read_bytes() + (own / "environ").read_bytes()
        output += keyed.call("status", "--json").stdout.encode()
        output += keyed.call("fire", "--all", "--json").stdout.encode()
        output += (keyed.state / "slumberd.log").read_bytes()

    assert b"ledger.checkpoint" in output
    assert not leaks(KEY, output)


@pytest.mark.nightly
@pytest.mark.parametrize("state", ["another"])
def test_daemon_that_cannot_start_shows_no_key(keyed: Installation, state: str) -> None:
    STATES[state](keyed)

    done = subprocess.run(
        keyed.command("run"),
        capture_output=True,
        env=environment({"SLUMBERD_DEBUG": "1"}),
        timeout=PATIENCE_SECONDS,
    )

    assert done.returncode == 78
    assert b"Traceback" in done.stderr
    for secret in (KEY, OTHER, SHORT):
        assert not leaks(secret, done.stdout + done.stderr)
