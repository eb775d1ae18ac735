"""Dry runs report how much they list and cut; `forget`, `drop` and `fire` name the remedy."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.commands.fire import print_firings
from tests.support.builders import at, triple
from tests.support.installation import Installation, environment
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

LIMITED = """\
rules:
  - id: profile
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    limits: {max_deletes: 1}
"""
MANY = 10_050


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def put_many(site: Installation, count: int) -> None:
    site.put(*(triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(count)))


def answer_of(site: Installation, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = site.call(*arguments, "--json")
    assert done.returncode == code, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_dry_run_in_json_reports_that_it_cut_the_deltas_and_their_total(
    site: Installation,
) -> None:
    put_many(site, MANY)

    (report,) = answer_of(site, "fire", "profile", "--dry-run")["reports"]

    assert (len(report["deltas"]), report["deltas_total"], report["deltas_cut"]) == (
        10_000, MANY, True,
    )  # fmt: skip


@pytest.mark.slow
def test_dry_run_lists_the_requested_number_of_deltas(site: Installation) -> None:
    put_many(site, 60)

    (cut,) = answer_of(site, "fire", "profile", "--dry-run", "--limit", "3")["reports"]
    (whole,) = answer_of(site, "fire", "profile", "--dry-run", "--limit", "60")["reports"]

    assert (len(cut["deltas"]), cut["deltas_total"], cut["deltas_cut"]) == (3, 60, True)
    assert (len(whole["deltas"]), whole["deltas_total"], whole["deltas_cut"]) == (60, 60, False)


@pytest.mark.slow
def test_dry_run_prints_how_many_deltas_there_are(site: Installation) -> None:
    put_many(site, 1_060)

    done = site.call("fire", "profile", "--dry-run")

    assert "50 of 1,060 deltas are listed; --limit 1060 lists all" in done.stdout


@pytest.mark.slow
def test_dry_runs_of_undo_and_backfill_count_and_cut_deltas_in_the_same_way(
    site: Installation,
) -> None:
    put_many(site, 60)
    assert site.call("fire", "profile").returncode == 0

    undone = answer_of(site, "undo", "profile@2", "--dry-run", "--limit", "7")
    printed = site.call("undo", "profile@2", "--dry-run").stdout
    site.rules.write_text(site.rules.read_text().replace("IS NOT NULL", "= 'nothing'"))
    (filled,) = answer_of(site, "backfill", "profile", "--dry-run", "--limit", "7")["reports"]

    for cut in (undone, filled):
        assert (len(cut["deltas"]), cut["deltas_total"], cut["deltas_cut"]) == (7, 60, True)
    assert "50 of 60 deltas are listed; --limit 60 lists all" in printed


def test_dry_run_prints_how_many_versions_it_did_not_read(
    site: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    put_many(site, 1)
    answer = answer_of(site, "fire", "profile", "--dry-run")
    answer["reports"][0]["unread"] = 1_002

    print_firings(answer, dry_run=True, json=False, nothing="")

    printed = capsys.readouterr().out
    assert "profile: 1,002 more versions of episodes not read, and not counted above\n" in printed


def test_dry_run_of_an_edit_says_that_nothing_was_written(site: Installation) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))
    pinned = ("--subject", "x", "--predicate", "is", "--object", "y", "--reason", "so")

    done = site.call("pin", "--user", "bob", "--agent", "a", *pinned, "--dry-run")

    assert done.stdout.endswith("\na dry run: 1 add\nnothing was written\n")
    assert site.call("facts", "--json").stdout == ""


def erase_on_terminal(
    site: Installation,
    react: Callable[[subprocess.Popen[bytes], int], None],
    *named: str,
) -> Any:
    """Run `forget` on a new terminal, answer its question, and return its exit code and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        site.command("forget", *(named or ("--user", "alice"))),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({}),
        start_new_session=True,
        # A shell starts what it runs in the background with SIGINT ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    assert process.stderr is not None
    asked = b"".join(iter(partial(process.stderr.read, 1), b"]"))
    assert asked.endswith(b"[y/N")
    react(process, ours)
    with process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(ours)
    return process.returncode, out.decode(), (asked + err if named else err).decode()


def answer_no(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"n\n")


def answer_yes(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"yes\n")


def end_the_input(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"\x04")


def interrupt(process: subprocess.Popen[bytes], _: int) -> None:
    # Send the signal several times: Python handles one that arrives between the question and the
    # wait for the answer only after the answer.
    for _attempt in range(int(PATIENCE_SECONDS / 10)):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            return
    process.kill()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("react", "code"),
    [
        pytest.param(answer_no, 1, id="no"),
        pytest.param(end_the_input, 1, id="^D"),
        pytest.param(interrupt, 130, id="^C"),
    ],
)
def test_erasure_without_confirmation_prints_that_nothing_was_erased(
    site: Installation, react: Callable[[subprocess.Popen[bytes], int], None], code: int
) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))

    returncode, out, err = erase_on_terminal(site, react)

    assert (returncode, out) == (code, "")
    assert "slumberd: nothing was erased" in err.splitlines()
    assert "bug" not in err
    assert "Traceback" not in err
    assert site.lines("recent", "alice") != []


@pytest.mark.nightly
def test_confirmed_erasure_prints_a_certificate(site: Installation) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))

    returncode, out, _ = erase_on_terminal(site, answer_yes)

    assert returncode == 0
    assert json.loads(out)["rows"]["episodes"]["episodes"] == 1


@pytest.mark.slow
def test_erasure_of_a_fact_names_what_goes_before_it_asks(site: Installation) -> None:
    site.put(
        triple("e1", "alice", "lives_in", "Rome"),
        triple("e2", "alice", "lives_in", "Oslo", timestamp=at(1)),
        triple("e3", "alice", "lives_in", "Oslo", timestamp=at(2)),
    )
    assert site.call("fire", "--all").returncode == 0

    code, out, err = erase_on_terminal(site, answer_yes, "--fact", "e3")
    again = site.look("import", str(site.config.with_name("put.jsonl")))

    assert code == 0
    assert err.splitlines()[:3] == [
        "slumberd: 2 episodes will be erased: e2, e3",
        "slumberd: 1 current fact will go: e3 (alice lives_in Oslo)",
        "slumberd: 1 older fact will be current again: e1",
    ]
    assert "Erase fact e3, for good?" in err
    assert json.loads(out)["episodes"] == ["e2", "e3"]
    assert (again.returncode, again.stdout) == (
        0, "imported 1 (new 0, changed 0, unchanged 1), rejected 0, erased before 2\n",
    )  # fmt: skip
    assert site.call("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("named", ["--episode", "--fact"])
def test_erasure_of_an_unknown_id_exits_with_66(site: Installation, named: str) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))

    done = site.call("forget", named, "e9", "--yes")
    without = site.call("forget", "--yes")

    assert (done.returncode, done.stdout) == (66, "")
    assert f"nothing is stored of {named[2:]} 'e9'" in done.stderr
    assert without.returncode == 64


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_erasure_of_an_unknown_user_exits_with_66(site: Installation, option: str) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("fire", "--all").returncode == 0

    done = site.call("forget", "--user", "alicia", option)

    assert done.returncode == 66
    assert "nothing is stored of user 'alicia'" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_erasure_can_be_repeated(site: Installation) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("forget", "--user", "alice", "--yes").returncode == 0

    again = site.call("forget", "--user", "alice", "--yes")

    assert again.returncode == 0
    assert json.loads(again.stdout)["rows"]["episodes"]["episodes"] == 0


@pytest.mark.slow
def test_fact_that_another_program_wrote_is_erased_without_any_episode(site: Installation) -> None:
    pinned = ("--subject", "x", "--predicate", "is", "--object", "y", "--reason", "so")
    assert site.call("pin", "--user", "bob", "--agent", "a", *pinned).returncode == 0

    done = site.call("forget", "--user", "bob", "--yes")

    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"]["facts"]["facts"] == 1


def put_unreadable(site: Installation, *ids: str) -> None:
    wish = {"intent": "wish"}
    site.put(*(triple(id, id, "likes", "rum", metadata=wish) for id in ids))
    assert site.call("fire", "profile").returncode == 0


def ids_in_quarantine(site: Installation) -> list[str]:
    return [entry["episode_id"] for entry in site.lines("quarantine", "ls")]


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["e1", "--all"], ["--rule", "profile"]], ids=" ".join)
def test_drop_requires_ids_or_all(site: Installation, words: list[str]) -> None:
    put_unreadable(site, "e1", "e2")

    done = site.call("quarantine", "drop", *words)

    assert done.returncode == 64
    assert "name the episodes to drop, or give --all" in done.stderr
    assert ids_in_quarantine(site) == ["e1", "e2"]


@pytest.mark.slow
def test_drop_of_an_id_that_is_not_in_quarantine_drops_nothing(site: Installation) -> None:
    put_unreadable(site, "e1", "e2")

    done = site.call("quarantine", "drop", "e1", "e9")

    assert done.returncode == 66
    assert "not in quarantine: 'e9'" in done.stderr
    assert ids_in_quarantine(site) == ["e1", "e2"]


@pytest.mark.slow
def test_drop_removes_the_named_episodes_or_all(site: Installation) -> None:
    put_unreadable(site, "e1", "e2", "e3")

    named = site.call("quarantine", "drop", "e1")
    left = ids_in_quarantine(site)
    others = site.call("quarantine", "drop", "--all", "--rule", "profile")

    assert (named.stdout, left) == ("1 entry dropped\n", ["e2", "e3"])
    assert (others.stdout, ids_in_quarantine(site)) == ("2 entries dropped\n", [])


@pytest.mark.slow
@pytest.mark.parametrize("option", [[], ["--dry-run"]], ids=["retry", "dry run"])
def test_retry_prints_the_episodes_that_are_still_unreadable(
    site: Installation, option: list[str]
) -> None:
    put_unreadable(site, "e1", "e2")

    printed = site.call("quarantine", "retry", "e2", *option).stdout
    answer = answer_of(site, "quarantine", "retry", *option)

    assert "1 episode is still in quarantine" in printed
    assert [line.split()[:3] for line in printed.splitlines() if line.startswith("e")] == [
        ["episode", "rule", "channel"],
        ["e2", "profile", "facts"],
    ]
    assert [entry["episode_id"] for entry in answer["still_quarantined"]] == ["e1", "e2"]
    assert answer["still_quarantined_total"] == 2


def hold_batch(site: Installation) -> Installation:
    """Make a batch that deletes two facts wait for approval."""
    site.rules.write_text(LIMITED)
    site.put(triple("e1", "a", "is", 1), triple("e2", "b", "is", 1))
    assert site.call("fire", "profile").returncode == 0
    gone = {"intent": "delete"}
    site.put(
        triple("e3", "a", "is", 1, timestamp=at(1), metadata=gone),
        triple("e4", "b", "is", 1, timestamp=at(1), metadata=gone),
    )
    return site


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_fire_of_a_batch_that_waits_for_approval_fails_and_names_the_remedies(
    site: Installation, options: list[str]
) -> None:
    hold_batch(site)

    first = site.call("fire", "profile", *options)
    again = site.call("fire", "profile", *options)

    assert (first.returncode, again.returncode) == (1, 1)
    for done in (first, again):
        message = done.stderr.splitlines()[-1]
        assert message.startswith("slumberd: batch profile@")
        assert "waits for approval" in message
        assert "`slumberd approve profile@" in message
        assert "`slumberd reject profile@" in message


@pytest.mark.slow
def test_fire_through_the_daemon_of_a_batch_that_waits_fails_too(site: Installation) -> None:
    hold_batch(site)
    with site.daemon():
        wait_until(lambda: any(rule["held_firing_id"] for rule in site.lines("status")[0]["rules"]))

        done = site.run("fire", "profile")

    assert done.returncode == 1
    assert "waits for approval" in done.stderr
