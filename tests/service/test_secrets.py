"""The key of a ledger, and the key of what was forgotten, are told to nobody, whatever fails."""

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
from slumberd.errors import ConfigurationError, Mistake
from slumberd.service import composition
from tests.support.builders import at, triple
from tests.support.calling import logging_as_before
from tests.support.installation import Installation, environment
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

KEY = b"correct horse battery staple 42!"
OTHER = b"Tr0ub4dor&3 is what they all use"
SHORT = b"hunter2 swordfi"
FEW = 9
"""So many bytes of a secret in a row are a part that tells it."""

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


def leaks(secret: bytes, told: bytes) -> list[bytes]:
    """Return the forms of a part of a secret that stand in what was told."""
    parts = [secret[start : start + FEW] for start in range(0, len(secret) - FEW + 1, 3)]
    forms = [form(part) for part in parts for form in FORMS]
    return [one for one in forms if one in told]


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
    """A site with a ledger that was begun with the key."""
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


def all_told(
    site: Installation,
    capfd: pytest.CaptureFixture[str],
    commands: Sequence[tuple[str, ...]] = COMMANDS,
) -> bytes:
    """Return all that commands tell, in their output and in logs."""
    capfd.readouterr()
    for words in commands:
        place = str(site.config.with_name("replayed.db"))
        with logging_as_before():
            call([*(place if word == "REPLAYED" else word for word in words), "--config",
                  str(site.config)])  # fmt: skip
    told = "".join(capfd.readouterr()).encode()
    log = site.state / "slumberd.log"
    return told + (log.read_bytes() if log.exists() else b"")


@pytest.mark.usefixtures("debugging")
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_no_command_tells_the_key_whatever_it_is_like(
    keyed: Installation, state: Callable[[Installation], object], capfd: pytest.CaptureFixture[str]
) -> None:
    state(keyed)

    told = all_told(keyed, capfd)

    assert b"e1" in told
    for secret in (KEY, OTHER, SHORT):
        assert not leaks(secret, told)


def test_no_command_tells_the_key_of_what_was_forgotten(
    keyed: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    keyed.put(triple("e7", "it", "is", "so", user="carol"))
    assert keyed.call("forget", "--user", "carol", "--yes").returncode == 0
    found = []
    for name in ("facts.db", "memory.db"):
        with closing(sqlite3.connect(keyed.state / name)) as connection:
            found += connection.execute("SELECT key FROM slumberd_erasure_key").fetchall()

    told = all_told(keyed, capfd)

    assert len(found) == 2
    assert not [leak for (secret,) in found for leak in leaks(secret, told)]


@pytest.mark.usefixtures("debugging")
@pytest.mark.parametrize("form", FORMS, ids=["raw", "hex", "HEX", "base64", "list", "repr"])
def test_a_key_that_an_error_tells_is_seen(
    keyed: Installation,
    form: Callable[[bytes], bytes],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of the tests above."""

    def careless(file: Path, *, credentials: Path | None) -> bytes:
        problem = f"{form(file.read_bytes()).decode()} is no key"
        raise ConfigurationError([Mistake(str(file), 0, 0, "facts.key_file", problem)])

    monkeypatch.setattr(composition, "read_key", careless)

    assert leaks(KEY, all_told(keyed, capfd, [("audit", "verify")]))


def test_a_daemon_shows_its_key_to_nobody(keyed: Installation) -> None:
    with keyed.daemon() as process:
        own = Path("/proc", str(process.pid))
        told = (own / "cmdline").read_bytes() + (own / "environ").read_bytes()
        told += keyed.call("status", "--json").stdout.encode()
        told += keyed.call("fire", "--all", "--json").stdout.encode()
        told += (keyed.state / "slumberd.log").read_bytes()

    assert b"ledger.checkpoint" in told
    assert not leaks(KEY, told)


@pytest.mark.parametrize("state", ["another"])
def test_a_daemon_that_cannot_start_tells_no_key(keyed: Installation, state: str) -> None:
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
