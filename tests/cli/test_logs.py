"""`slumberd logs`: it prints any log, follows rotations, and escapes hostile content."""

from __future__ import annotations

import gzip
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.logs.lines import json_line, readable_line
from tests.support.builders import triple
from tests.support.cli_runner import called
from tests.support.daemons import Home
from tests.support.installation import Installation, environment
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\u202e\x9b"


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    site = Installation(tmp_path)
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("fire", "--all").returncode == 0
    return site


def line(**fields: Any) -> bytes:
    return json_line({"ts": "2026-01-01T00:00:00.000000Z", "level": "info", **fields})


def test_logs_prints_the_configured_file_as_readable_lines(site: Installation) -> None:
    shown = site.look("logs").stdout.splitlines()

    assert [text for text in shown if "delta.applied       add  e1  by profile@" in text]
    assert len(shown) == len((site.state / "slumberd.log").read_bytes().splitlines())


def test_logs_of_a_rule_prints_only_lines_about_the_rule(site: Installation) -> None:
    shown = site.look("logs", "--rule", "quiet").stdout.splitlines()
    none = site.look("logs", "--rule", "unknown")

    assert shown
    assert all("quiet" in text for text in shown)
    assert (none.stdout, none.returncode) == ("", 0)
    assert none.stderr == "slumberd: no line is about rule 'unknown'\n"


def at(second: int, level: str = "info", event: str = "rule.added", **fields: Any) -> bytes:
    """Return a line of a second of 1 January 2026."""
    ts = f"2026-01-01T00:00:{second:02}.500000Z"
    return json_line({"ts": ts, "level": level, "event": event, **fields})


SEVERAL = b"".join(
    [
        at(1, rule_id="r1"),
        at(2, "warning", "facts.retracted", rule_id="r1"),
        at(3, "warning", "facts.reduced"),
        at(4, "error", "daemon.failed"),
        at(5, event="delta.applied", rule_id="r2", user="ada"),
        at(6, event="delta.applied", rule_id="r2", user="bob"),
        b"Traceback\n",
    ]
)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ([], [1, 2, 3, 4, 5, 6]),
        (["--level", "warning"], [2, 3, 4]),
        (["--level", "error"], [4]),
        (["--level", "debug"], [1, 2, 3, 4, 5, 6]),
        (["--event", "facts.reduced"], [3]),
        (["--event", "facts.*"], [2, 3]),
        (["--event", "facts.reduced", "--event", "daemon.failed"], [3, 4]),
        (["--user", "ada"], [5]),
        (["--since", "2026-01-01T00:00:03Z"], [3, 4, 5, 6]),
        (["--until", "2026-01-01T00:00:03.5Z"], [1, 2]),
        (["--since", "2026-01-01T02:00:02+02:00", "--until", "2026-01-01T00:00:04Z"], [2, 3]),
        (["--since", "24h"], []),
        (["--rule", "r1", "--level", "warning"], [2]),
        (["--user", "ada", "--rule", "r1"], []),
    ],
)
def test_each_option_selects_lines_and_all_must_match(
    site: Installation, tmp_path: Path, options: list[str], seconds: list[int]
) -> None:
    file = tmp_path / "several"
    file.write_bytes(SEVERAL)

    done = site.look("logs", str(file), *options)

    shown = [text for text in done.stdout.splitlines() if text != "Traceback"]
    assert [int(text[17:19]) for text in shown] == seconds
    assert ("Traceback" in done.stdout) == (not options)
    assert ("left out: 1 lines that are not JSON" in done.stderr) == bool(options)
    assert ("no line matches" in done.stderr) == (not seconds)


def test_event_that_no_line_has_is_corrected(site: Installation) -> None:
    done = site.look("logs", "--event", "facts.retracted", "--event", "fact.reduced")

    assert "'fact.reduced' is no event; did you mean 'facts.reduced'?" in done.stderr


@pytest.mark.parametrize("scope", ["full", "hashed", "none"])
def test_lines_of_a_user_are_found_in_the_form_of_the_log(tmp_path: Path, scope: str) -> None:
    site = Installation(tmp_path)
    text = site.config.read_text()
    assert "logging: {" in text
    site.config.write_text(text.replace("logging: {", f"logging: {{scope: {scope}, "))
    site.put(
        triple("e1", "alice", "likes", "tea", user="alice"),
        triple("e2", "bob", "likes", "tea", user="bob"),
    )
    assert site.call("fire", "--all").returncode == 0

    done = site.look("logs", "--user", "alice")

    shown = done.stdout.splitlines()
    found = [" e1 " in text for text in shown]
    assert found == ([] if scope == "none" else [True] * len(shown))
    assert len(shown) == (0 if scope == "none" else 1)
    assert ("the log names no users" in done.stderr) == (scope == "none")
    assert (b'"alice"' in (site.state / "slumberd.log").read_bytes()) == (scope == "full")


@pytest.mark.parametrize("broken", ["facts.db", "configuration"])
def test_user_is_sought_by_name_when_the_key_of_the_hashes_cannot_be_read(
    tmp_path: Path, broken: str
) -> None:
    site = Installation(tmp_path)
    hashed = site.config.read_text().replace("logging: {", "logging: {scope: hashed, ")
    site.config.write_text(hashed if broken == "facts.db" else "nonsense: 1\n")
    site.state.mkdir(exist_ok=True)
    (site.state / "facts.db").write_text("no database")
    file = tmp_path / "several"
    file.write_bytes(SEVERAL)

    done = site.look("logs", str(file), "--user", "ada")

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "only lines that name the user as given are found" in done.stderr


def test_journal_is_asked_for_the_time(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journalctl = tmp_path / "bin" / "journalctl"
    journalctl.parent.mkdir()
    line = json.dumps({"ts": "2026-01-01T00:00:01Z", "level": "info", "event": "asked", "words": 0})
    journalctl.write_text(f'#!/bin/sh\necho \'{line}\' | sed "s/0}}/\\"$*\\"}}/"\n')
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{journalctl.parent}:{os.environ['PATH']}")
    site.config.write_text("nonsense: 1\n")

    done = site.look("logs", "--since", "2026-01-01T00:00:00Z", "--until", "2026-01-01T00:01:00Z")
    early = site.look("logs", "--since", "0001-01-01")  # journalctl takes no time before 1970

    assert "--since=@1767225600 --until=@1767225660" in done.stdout
    assert "--since=@0" in early.stdout


@pytest.mark.slow
def test_logs_read_gzip_and_standard_input(site: Installation, tmp_path: Path) -> None:
    content = (site.state / "slumberd.log").read_bytes()
    (tmp_path / "old.gz").write_bytes(gzip.compress(content))
    expected = site.look("logs").stdout

    assert called("logs", str(tmp_path / "old.gz")).stdout == expected
    assert site.run("logs", "-", stdin=content).stdout == expected
    assert site.run("logs", "-f", "-", stdin=content).stdout == expected


def test_logs_prints_lines_that_are_not_json_and_counts_them_with_the_option_rule(
    site: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "mixed"
    file.write_bytes(b"Traceback (most recent call last):\n" + line(event="a", rule_id="r1"))

    everything = site.look("logs", str(file))
    of_a_rule = site.look("logs", str(file), "--rule", "r1")

    assert everything.stdout.startswith("Traceback (most recent call last):\n")
    assert len(of_a_rule.stdout.splitlines()) == 1
    assert "left out: 1 lines that are not JSON" in of_a_rule.stderr


def test_missing_log_exits_with_66(site: Installation, tmp_path: Path) -> None:
    for words in (["logs"], ["logs", "-f"]):
        done = site.look(*words, str(tmp_path / "none"))
        assert done.returncode == 66
        assert "name a" in done.stderr


def test_logs_reads_the_journal_when_the_configuration_has_mistakes(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journalctl = tmp_path / "bin" / "journalctl"
    journalctl.parent.mkdir()
    journalctl.write_text('#!/bin/sh\necho "$*"\nexit ${CODE:-0}\n')
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{journalctl.parent}:{os.environ['PATH']}")
    site.config.write_text("nonsense: 1\n")

    shown = site.look("logs", "-f")
    monkeypatch.setenv("CODE", "1")
    failed = site.look("logs")

    assert shown.stdout.startswith("--unit=slumberd --unit=slumberd-verify --output=cat")
    assert "--follow" in shown.stdout
    assert "the configuration has mistakes" in shown.stderr
    assert failed.returncode == 74
    assert "journalctl ended with 1" in failed.stderr


EVENTS = st.sampled_from(["delta.applied", "firing.completed", "daemon.ready", HOSTILE])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["kind", "fact_id", "source_episode_ids", "replaces", "reason", "firing_id", "channels",
     "seconds", "exception", "truncated", "rule_id", HOSTILE]
)  # fmt: skip


@pytest.mark.nightly
@given(
    st.dictionaries(KEYS, VALUES),
    EVENTS,
    st.text() | st.just(HOSTILE),
    st.text() | st.just(HOSTILE),
)
def test_readable_line_contains_no_control_characters(
    fields: dict[str, Any], event: str, ts: str, level: str
) -> None:
    whole = json.dumps({"ts": ts, "level": level, "event": event, **fields}).encode()

    for text in (whole, whole[:-1], HOSTILE.encode(), b"\xff" + whole):
        shown = readable_line(text, colors=False).decode()
        assert shown.endswith("\n")
        assert all(char.isprintable() for char in shown.replace("\n", ""))


class Follower:
    """A command that follows a log, and what it prints."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._lines.put(text.decode())

    def check_events(self, *expected: str) -> None:
        """Check that the next lines are about these events, in this order."""
        for event in expected:
            assert f" {event} " in self._lines.get(timeout=PATIENCE_SECONDS)


@contextmanager
def follow(site: Installation, *words: str) -> Iterator[Follower]:
    command = site.command("logs", "--follow", *words)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env=environment({}),
        # The launcher of the tests may ignore SIGTERM.
        preexec_fn=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL),
    ) as process:
        try:
            yield Follower(process)
        finally:
            process.terminate()  # coverage has written its data then, unlike after a kill


def append(path: Path, *events: str) -> None:
    with path.open("ab") as file:
        file.writelines(line(event=event, at_="") for event in events)


@pytest.mark.slow
def test_follow_continues_after_the_file_is_renamed_replaced_or_truncated(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    log = tmp_path / "followed"
    append(log, *(f"before.{number}" for number in range(30)))
    with follow(site, str(log)) as follower:
        follower.check_events(*(f"before.{number}" for number in range(20, 30)))
        append(log, "one")
        follower.check_events("one")

        log.rename(tmp_path / "followed.1")
        append(tmp_path / "followed.1", "late")  # the writer has not noticed
        follower.check_events("late")
        log.touch()  # as logrotate's `create`
        append(tmp_path / "followed.1", "later")
        follower.check_events("later")
        append(log, "two")
        follower.check_events("two")
        append(tmp_path / "followed.1", "last")
        follower.check_events("last")

        fresh = tmp_path / "fresh"
        append(fresh, "three")
        fresh.replace(log)
        follower.check_events("three")
        with log.open("r+b") as file:
            file.truncate()
        log.write_bytes(b"")
        append(log, "x")
        follower.check_events("x")


@pytest.mark.nightly
def test_follow_shows_the_events_of_a_rule_across_a_rotation(tmp_path: Path) -> None:
    home = Home(tmp_path, {"logging": {"format": "json", "file": "slumberd.log"}})
    home.rule("good", cadence={"every": 1})
    site = Installation.__new__(Installation)
    site.config, site.state = home.config, home.state
    site.put(triple("e1", "alice", "likes", "tea"))
    assert home.call("fire", "good").returncode == 0

    with follow(site, "--rule", "good") as follower:
        follower.check_events("delta.applied", "firing.completed", "firing.finished")
        (home.state / "slumberd.log").rename(home.state / "slumberd.log.1")
        site.put(triple("e2", "alice", "owns", "tea"))
        assert home.call("fire", "good").returncode == 0
        follower.check_events("delta.applied", "firing.completed", "firing.finished")
