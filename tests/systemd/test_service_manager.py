"""The shipped unit under a real systemd, set up by the recipe of the installation page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import triple
from tests.support.installation import jsonl
from tests.support.patience import wait_until
from tests.systemd.box import SHIPPED, Box, why_not

LACKS = why_not()
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.skipif(LACKS is not None, reason=f"NO systemd was booted: {LACKS}"),
]

RULES = "/etc/slumberd/rules.d"
PROFILE = '{rules: [{id: everything, cadence: {every: 1}, when_filter: "", then_emits: [facts]}]}'
TO_JOURNAL = "/etc/systemd/system/slumberd.service.d/zz-journal.conf"
TAMPER = """\
import sqlite3
connection = sqlite3.connect("/var/lib/slumberd/facts.db", isolation_level=None)
connection.execute("UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")
"""
PEOPLE = """\
u agent - "an agent" /tmp /bin/sh
m agent slumberd
u stranger - "no agent" /tmp /bin/sh
"""


def recipe() -> str:
    """Return the recipe of the installation page from where pip is done."""
    section = (SHIPPED / "docs/how-to/install.md").read_text()
    block = re.search(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1].partition("\n")[2]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with Box(tmp_path_factory.mktemp("box")) as box:
        box.do("systemctl start systemd-journald")
        box.do(recipe())
        box.do("systemd-sysusers -", PEOPLE)
        box.do(f"rm {RULES}/*; cat > {RULES}/rules.yaml", PROFILE)
        box.do("systemctl stop slumberd; cp -a /etc/slumberd /etc/as-it-was")
        yield box


@pytest.fixture
def box(machine: Box) -> Iterator[Box]:
    """Return the machine with the daemon just started, on no episodes."""
    yield started(machine)
    machine.do("systemctl stop slumberd")


def started(box: Box) -> Box:
    box.do("rm -rf /etc/slumberd /var/lib/slumberd/*; cp -a /etc/as-it-was /etc/slumberd")
    box.do("systemctl reset-failed; systemctl start slumberd")
    return box


def put(box: Box, *numbers: int, who: str = "agent") -> int:
    """Put episodes as some user; return the exit code."""
    episodes = [triple(f"e{number}", "alice", f"likes_{number}", "tea") for number in numbers]
    return box.run(f"runuser -u {who} -- slumberd import -", jsonl(*episodes).decode()).returncode


def facts(box: Box) -> set[str]:
    lines = box.do("runuser -u agent -- slumberd facts --json").splitlines()
    return {json.loads(line)["id"] for line in lines}


@pytest.mark.parametrize("umask", ["022", "077"])
def test_an_agent_that_puts_before_the_first_start_does_not_keep_the_daemon_from_it(
    box: Box, umask: str
) -> None:
    box.do("systemctl stop slumberd; rm -f /var/lib/slumberd/*")
    file = "/opt/first.jsonl"
    box.do(f"cat > {file}; chmod 644 {file}", jsonl(triple("e1", "a", "likes", "tea")).decode())
    box.do(f"umask {umask}; runuser -u agent -- slumberd import {file}")
    assert box.do("stat -c %U:%G:%a /var/lib/slumberd/memory.db") == "agent:slumberd:660"

    box.do("systemctl start slumberd")

    wait_until(lambda: facts(box) == {"e1"})
    assert put(box, 2) == 0
    wait_until(lambda: facts(box) == {"e1", "e2"})


def restarts(box: Box) -> int:
    return int(box.show("NRestarts"))


def test_it_is_active_when_it_is_ready_and_says_what_it_goes_by(box: Box) -> None:
    assert box.show("ActiveState") == "active"
    assert box.show("StatusText") == "1 rule"
    assert '"daemon.ready"' in box.log()
    assert box.do("stat -c %U:%G:%a /var/lib/slumberd") == "slumberd:slumberd:2770"
    assert box.do("stat -c %U:%G:%a /run/slumberd/control.sock") == "slumberd:slumberd:660"


def test_an_agent_of_the_group_puts_what_becomes_a_fact_and_a_stranger_does_not(box: Box) -> None:
    assert put(box, 1) == 0
    assert put(box, 2, who="stranger") == 77

    wait_until(lambda: facts(box) == {"e1"})
    assert "everything" in box.do("runuser -u agent -- slumberd fire --all")
    assert box.run("runuser -u stranger -- slumberd fire --all").returncode == 77


def test_a_good_reload_takes_the_rules_that_there_are(box: Box) -> None:
    box.do(f"cat > {RULES}/more.yaml", PROFILE.replace("everything", "more"))

    box.do("systemctl reload slumberd")

    assert box.show("StatusText") == "2 rules"


def test_a_bad_reload_fails_and_leaves_the_rules_that_there_were(box: Box) -> None:
    box.do(f"cat > {RULES}/more.yaml", PROFILE.replace("when_filter", "when_flter"))

    done = box.run("systemctl reload slumberd")

    assert done.returncode == 1
    assert "status=1" in box.show("ExecReload")
    assert (box.show("ActiveState"), box.show("StatusText")) == ("active", "1 rule")
    assert put(box, 1) == 0
    wait_until(lambda: facts(box) == {"e1"})


def test_a_stop_is_clean_and_in_time(box: Box) -> None:
    put(box, 1)

    box.do("systemctl stop slumberd")

    assert box.show("Result") == "success"
    assert (box.show("ExecMainCode"), box.show("ExecMainStatus")) == ("1", "0")
    assert '"daemon.stopped"' in box.log()


def test_a_killed_daemon_is_started_again_and_nothing_is_lost(box: Box) -> None:
    before = restarts(box)
    assert put(box, 0, 1, 2) == 0

    box.do("systemctl kill --signal=KILL slumberd")

    wait_until(lambda: restarts(box) == before + 1 and box.show("ActiveState") == "active")
    put(box, 3)
    wait_until(lambda: facts(box) == {"e0", "e1", "e2", "e3"})


def test_a_daemon_that_stands_still_is_ended_by_the_watchdog_and_started_again(box: Box) -> None:
    before = restarts(box)
    assert put(box, 1) == 0

    box.do("systemctl kill --kill-whom=main --signal=STOP slumberd")

    wait_until(lambda: restarts(box) == before + 1 and box.show("ActiveState") == "active")
    wait_until(lambda: facts(box) == {"e1"})


def test_a_daemon_that_rests_is_left_alone_by_the_watchdog(box: Box) -> None:
    since = float(box.show("ExecMainStartTimestampMonotonic"))

    wait_until(lambda: float(box.do("cut -d' ' -f1 /proc/uptime")) * 1e6 > since + 7e6)

    assert float(box.show("ExecMainStartTimestampMonotonic")) == since


def test_a_broken_configuration_ends_it_for_good_with_78(box: Box) -> None:
    box.do("echo 'state_dri: x' >> /etc/slumberd/slumberd.yaml")

    done = box.run("systemctl restart slumberd")

    assert done.returncode == 1
    assert box.show("ExecMainStatus") == "78"
    assert (box.show("ActiveState"), box.show("SubState")) == ("failed", "failed")


def journal(box: Box, *words: str) -> list[dict[str, Any]]:
    """Return the events that the journal has, as `journalctl` finds them."""
    lines = box.do(f"journalctl --sync; journalctl -o cat --no-pager {' '.join(words)}")
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def test_a_start_that_fails_on_configuration_is_found_among_the_errors_of_the_journal(
    box: Box,
) -> None:
    box.do(f"printf '[Service]\\nStandardError=journal\\n' > {TO_JOURNAL}")
    box.do("systemctl daemon-reload; systemctl stop slumberd")
    box.do("echo 'state_dri: x' >> /etc/slumberd/slumberd.yaml")

    done = box.run("systemctl start slumberd")

    box.do(f"rm {TO_JOURNAL}; systemctl daemon-reload")
    assert (done.returncode, box.show("ExecMainStatus")) == (1, "78")
    [event] = journal(box, "-u slumberd -p err")
    assert (event["event"], event["error"]) == ("daemon.failed", "ConfigurationError")
    assert "state_dri" in event["message"]


def test_the_timers_service_tells_the_journal_of_a_ledger_that_was_changed(box: Box) -> None:
    box.do("cp /opt/slumberd/share/slumberd/config/monitoring/systemd/* /etc/systemd/system/")
    box.do("systemctl daemon-reload")
    put(box, 1)
    wait_until(lambda: facts(box) == {"e1"})
    box.do("systemctl start slumberd-verify.service")
    before = journal(box, "-u slumberd-verify")

    box.do("python3 -", TAMPER)
    done = box.run("systemctl start slumberd-verify.service")

    assert [event["event"] for event in before] == ["ledger.verified"]
    assert done.returncode == 1
    [broken] = journal(box, "-u slumberd-verify -p err")
    assert broken["event"] == "ledger.broken"
    assert broken["seq"] == 2
    shown = box.do("slumberd logs").splitlines()
    assert [line for line in shown if re.search(r"Z error {3}ledger\.broken .* seq=2 ", line)]
    assert "ledger.broken" not in box.do("slumberd logs --rule everything")


def test_a_backup_of_the_running_service_is_restored_with_its_owners(box: Box) -> None:
    put(box, 1)
    wait_until(lambda: facts(box) == {"e1"})
    box.do("slumberd backup /root/backup")
    put(box, 2)
    wait_until(lambda: facts(box) == {"e1", "e2"})
    refused = box.run("slumberd restore /root/backup").returncode
    box.do("systemctl stop slumberd; slumberd restore /root/backup; systemctl start slumberd")

    owners = box.do("cd /var/lib/slumberd; stat -c %U:%G:%a memory.db facts.db").split()
    assert refused == 75
    assert owners == ["slumberd:slumberd:660"] * 2
    assert facts(box) == {"e1"}
    assert put(box, 3) == 0
    wait_until(lambda: facts(box) == {"e1", "e3"})


def found(box: Box) -> set[tuple[str, str]]:
    """Return id and subject of what `slumberd doctor` finds."""
    findings = json.loads(box.run("slumberd doctor --json").stdout)["findings"]
    return {(finding["id"], finding["subject"]) for finding in findings}


def test_doctor_finds_what_the_daemon_has_not_taken_and_may_not_read(box: Box) -> None:
    well = found(box)
    box.do("sed -i 's/^stop_seconds: .*/stop_seconds: 7/' /etc/slumberd/slumberd.yaml")
    changed = found(box)
    box.do(f"chmod 600 {RULES}/rules.yaml")

    assert not [id for id, _ in well if id.startswith(("config.", "rules.", "unit.user"))]
    assert changed - well == {("config.stale", "/etc/slumberd/slumberd.yaml")}
    assert ("unit.user", f"{RULES}/rules.yaml") in found(box)


def test_the_box_leaves_nothing_behind(tmp_path: Path) -> None:
    with Box(tmp_path) as box:
        box.do("touch /etc/made-in-the-box")
        cgroup = box._cgroup

    assert not cgroup.exists()
    assert not Path("/etc/made-in-the-box").exists()
