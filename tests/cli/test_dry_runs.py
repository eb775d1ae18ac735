"""Dry runs say how much they list and leave out; erasing, dropping and firing say what to do."""

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
from tests.support.installation import Installation, environment, wait_until

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


def answered(site: Installation, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = site.call(*arguments, "--json")
    assert done.returncode == code, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_dry_run_of_many_deltas_says_that_its_json_is_cut_and_how_many_there_are(
    site: Installation,
) -> None:
    put_many(site, MANY)

    (report,) = answered(site, "fire", "profile", "--dry-run")["reports"]

    assert (len(report["deltas"]), report["deltas_total"], report["deltas_cut"]) == (
        10_000, MANY, True,
    )  # fmt: skip


def test_dry_run_lists_as_many_deltas_as_it_is_asked_for(site: Installation) -> None:
    put_many(site, 60)

    (cut,) = answered(site, "fire", "profile", "--dry-run", "--limit", "3")["reports"]
    (whole,) = answered(site, "fire", "profile", "--dry-run", "--limit", "60")["reports"]

    assert (len(cut["deltas"]), cut["deltas_total"], cut["deltas_cut"]) == (3, 60, True)
    assert (len(whole["deltas"]), whole["deltas_total"], whole["deltas_cut"]) == (60, 60, False)


def test_dry_run_prints_how_many_deltas_there_are(site: Installation) -> None:
    put_many(site, 1_060)

    done = site.call("fire", "profile", "--dry-run")

    assert "50 of 1,060 deltas are listed; --limit 1060 lists all" in done.stdout


def test_dry_run_of_an_undo_and_a_backfill_count_and_cut_alike(site: Installation) -> None:
    put_many(site, 60)
    assert site.call("fire", "profile").returncode == 0

    undone = answered(site, "undo", "profile@2", "--dry-run", "--limit", "7")
    printed = site.call("undo", "profile@2", "--dry-run").stdout
    site.rules.write_text(site.rules.read_text().replace("IS NOT NULL", "= 'nothing'"))
    (filled,) = answered(site, "backfill", "profile", "--dry-run", "--limit", "7")["reports"]

    for cut in (undone, filled):
        assert (len(cut["deltas"]), cut["deltas_total"], cut["deltas_cut"]) == (7, 60, True)
    assert "50 of 60 deltas are listed; --limit 60 lists all" in printed


def test_dry_run_prints_how_many_versions_it_did_not_read(
    site: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    put_many(site, 1)
    answer = answered(site, "fire", "profile", "--dry-run")
    answer["reports"][0]["unread"] = 1_002

    print_firings(answer, dry_run=True, json=False, nothing="")

    printed = capsys.readouterr().out
    assert "profile: 1,002 more versions of episodes not read, and not counted above\n" in printed


def asked_on_a_terminal(
    site: Installation, react: Callable[[subprocess.Popen[bytes], int], None]
) -> Any:
    """Run `forget` on a terminal of its own, react to its question, and return how it ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        site.command("forget", "--user", "alice"),
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
    assert b"".join(iter(partial(process.stderr.read, 1), b"]")).endswith(b"[y/N")
    react(process, ours)
    with process:
        out, err = process.communicate(timeout=60)
    os.close(ours)
    return process.returncode, out.decode(), err.decode()


def answer_no(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"n\n")


def answer_yes(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"yes\n")


def end_the_input(_: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"\x04")


def interrupt(process: subprocess.Popen[bytes], _: int) -> None:
    # Again and again, as a person does: Python sees a signal that arrives between the question and
    # the wait for the answer only after the answer.
    for _attempt in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            return
    process.kill()


@pytest.mark.parametrize(
    ("react", "code"),
    [
        pytest.param(answer_no, 1, id="no"),
        pytest.param(end_the_input, 1, id="^D"),
        pytest.param(interrupt, 130, id="^C"),
    ],
)
def test_person_who_does_not_confirm_an_erasure_reads_that_nothing_was_erased(
    site: Installation, react: Callable[[subprocess.Popen[bytes], int], None], code: int
) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))

    returncode, out, err = asked_on_a_terminal(site, react)

    assert (returncode, out) == (code, "")
    assert "slumberd: nothing was erased" in err.splitlines()
    assert "bug" not in err
    assert "Traceback" not in err
    assert site.lines("recent", "alice") != []


def test_person_who_confirms_an_erasure_gets_a_certificate(site: Installation) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))

    returncode, out, _ = asked_on_a_terminal(site, answer_yes)

    assert returncode == 0
    assert json.loads(out)["rows"]["memory.db"]["episodes"] == 1


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_erasure_of_a_user_of_whom_nothing_is_kept_ends_with_66(
    site: Installation, option: str
) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("fire", "--all").returncode == 0

    done = site.call("forget", "--user", "alicia", option)

    assert done.returncode == 66
    assert "nothing is stored of user 'alicia'" in done.stderr
    assert done.stdout == ""


def test_erasure_that_may_have_been_cut_short_can_be_repeated(site: Installation) -> None:
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("forget", "--user", "alice", "--yes").returncode == 0

    again = site.call("forget", "--user", "alice", "--yes")

    assert again.returncode == 0
    assert json.loads(again.stdout)["rows"]["memory.db"]["episodes"] == 0


def test_fact_that_another_program_wrote_is_erased_without_any_episode(site: Installation) -> None:
    pinned = ("--subject", "x", "--predicate", "is", "--object", "y", "--reason", "so")
    assert site.call("pin", "--user", "bob", "--agent", "a", *pinned).returncode == 0

    done = site.call("forget", "--user", "bob", "--yes")

    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"]["facts.db"]["facts"] == 1


def put_unreadable(site: Installation, *ids: str) -> None:
    wish = {"intent": "wish"}
    site.put(*(triple(id, id, "likes", "rum", metadata=wish) for id in ids))
    assert site.call("fire", "profile").returncode == 0


def quarantined(site: Installation) -> list[str]:
    return [entry["episode_id"] for entry in site.lines("quarantine", "ls")]


@pytest.mark.parametrize("words", [[], ["e1", "--all"], ["--rule", "profile"]], ids=" ".join)
def test_drop_wants_ids_or_all(site: Installation, words: list[str]) -> None:
    put_unreadable(site, "e1", "e2")

    done = site.call("quarantine", "drop", *words)

    assert done.returncode == 64
    assert "name the episodes to drop, or give --all" in done.stderr
    assert quarantined(site) == ["e1", "e2"]


def test_drop_of_an_id_that_is_not_in_quarantine_drops_nothing(site: Installation) -> None:
    put_unreadable(site, "e1", "e2")

    done = site.call("quarantine", "drop", "e1", "e9")

    assert done.returncode == 66
    assert "not in quarantine: 'e9'" in done.stderr
    assert quarantined(site) == ["e1", "e2"]


def test_drop_takes_what_it_names_or_all(site: Installation) -> None:
    put_unreadable(site, "e1", "e2", "e3")

    named = site.call("quarantine", "drop", "e1")
    left = quarantined(site)
    others = site.call("quarantine", "drop", "--all", "--rule", "profile")

    assert (named.stdout, left) == ("1 entry dropped\n", ["e2", "e3"])
    assert (others.stdout, quarantined(site)) == ("2 entries dropped\n", [])


@pytest.mark.parametrize("option", [[], ["--dry-run"]], ids=["retry", "dry run"])
def test_retry_says_what_is_still_unreadable(site: Installation, option: list[str]) -> None:
    put_unreadable(site, "e1", "e2")

    printed = site.call("quarantine", "retry", "e2", *option).stdout
    answer = answered(site, "quarantine", "retry", *option)

    assert "1 episode is still in quarantine" in printed
    assert [line.split()[:3] for line in printed.splitlines() if line.startswith("e")] == [
        ["episode", "rule", "channel"],
        ["e2", "profile", "facts"],
    ]
    assert [entry["episode_id"] for entry in answer["still_quarantined"]] == ["e1", "e2"]
    assert answer["still_quarantined_total"] == 2


def held_site(site: Installation) -> Installation:
    """Let a batch that takes out two facts wait for approval."""
    site.rules.write_text(LIMITED)
    site.put(triple("e1", "a", "is", 1), triple("e2", "b", "is", 1))
    assert site.call("fire", "profile").returncode == 0
    gone = {"intent": "delete"}
    site.put(
        triple("e3", "a", "is", 1, timestamp=at(1), metadata=gone),
        triple("e4", "b", "is", 1, timestamp=at(1), metadata=gone),
    )
    return site


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_fire_of_a_batch_that_waits_for_approval_fails_and_says_what_to_do(
    site: Installation, options: list[str]
) -> None:
    held_site(site)

    first = site.call("fire", "profile", *options)
    again = site.call("fire", "profile", *options)

    assert (first.returncode, again.returncode) == (1, 1)
    for done in (first, again):
        message = done.stderr.splitlines()[-1]
        assert message.startswith("slumberd: batch profile@")
        assert "waits for approval" in message
        assert "`slumberd approve profile@" in message
        assert "`slumberd reject profile@" in message


def test_fire_through_the_daemon_of_a_batch_that_waits_fails_too(site: Installation) -> None:
    held_site(site)
    with site.daemon():
        wait_until(lambda: any(rule["held_firing_id"] for rule in site.lines("status")[0]["rules"]))

        done = site.run("fire", "profile")

    assert done.returncode == 1
    assert "waits for approval" in done.stderr
