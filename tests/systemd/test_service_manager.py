"""The shipped unit under a real systemd, installed by the commands of the installation page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders import triple
from tests.support.installation import jsonl
from tests.support.waiting import wait_until
from tests.systemd.box import PEOPLE, TO_JOURNAL, Box, installation_commands
from tests.systemd.box import bootable as bootable

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.usefixtures("bootable"),
]

RULES = "/etc/slumberd/rules.d"
PROFILE = '{rules: [{id: everything, cadence: {every: 1}, when_filter: "", then_emits: [facts]}]}'
TAMPER = """\
import sqlite3
connection = sqlite3.connect("/var/lib/slumberd/facts.db", isolation_level=None)
connection.execute("UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with Box(tmp_path_factory.mktemp("box")) as box:
        box.do("systemctl start systemd-journald")
        box.do(installation_commands())
        box.do("systemd-sysusers -", PEOPLE)
        box.do(f"rm -r {RULES}/*; cat > {RULES}/rules.yaml", PROFILE)
        box.do("systemctl stop slumberd; cp -a /etc/slumberd /etc/original")
        yield box


@pytest.fixture
def box(machine: Box) -> Iterator[Box]:
    """Return the machine with a daemon that was just started, without episodes."""
    yield restart_empty(machine)
    machine.do("systemctl stop slumberd")


def restart_empty(box: Box) -> Box:
    box.do("rm -rf /etc/slumberd /var/lib/slumberd/*; cp -a /etc/original /etc/slumberd")
    box.do("systemctl reset-failed; systemctl start slumberd")
    return box


def put(box: Box, *numbers: int, who: str = "agent") -> int:
    """Put episodes as the user `who`; return the exit code."""
    episodes = [triple(f"e{number}", "alice", f"likes_{number}", "tea") for number in numbers]
    return box.run(f"runuser -u {who} -- slumberd import -", jsonl(*episodes).decode()).returncode


def facts(box: Box) -> set[str]:
    lines = box.do("runuser -u agent -- slumberd facts --json").splitlines()
    return {json.loads(line)["id"] for line in lines}


@pytest.mark.nightly
@pytest.mark.parametrize("umask", ["022", "077"])
def test_daemon_starts_after_an_agent_created_the_database(box: Box, umask: str) -> None:
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


def test_ready_service_is_active_and_shows_its_number_of_rules(box: Box) -> None:
    assert box.show("ActiveState") == "active"
    assert box.show("StatusText") == "1 rule"
    assert '"daemon.ready"' in box.log()
    assert box.do("stat -c %U:%G:%a /var/lib/slumberd") == "slumberd:slumberd:2770"
    assert box.do("stat -c %U:%G:%a /run/slumberd/control.sock") == "slumberd:slumberd:660"


def test_only_a_member_of_the_group_can_put_and_fire(box: Box) -> None:
    assert put(box, 1) == 0
    assert put(box, 2, who="stranger") == 77

    wait_until(lambda: facts(box) == {"e1"})
    assert "everything" in box.do("runuser -u agent -- slumberd fire --all")
    assert box.run("runuser -u stranger -- slumberd fire --all").returncode == 77


@pytest.mark.nightly
def test_reload_applies_the_new_rules(box: Box) -> None:
    box.do(f"cat > {RULES}/more.yaml", PROFILE.replace("everything", "more"))

    box.do("systemctl reload slumberd")

    assert box.show("StatusText") == "2 rules"


@pytest.mark.nightly
def test_reload_with_mistakes_fails_and_keeps_the_old_rules(box: Box) -> None:
    box.do(f"cat > {RULES}/more.yaml", PROFILE.replace("when_filter", "when_flter"))

    done = box.run("systemctl reload slumberd")

    assert done.returncode == 1
    assert "status=1" in box.show("ExecReload")
    assert (box.show("ActiveState"), box.show("StatusText")) == ("active", "1 rule")
    assert put(box, 1) == 0
    wait_until(lambda: facts(box) == {"e1"})


def test_stop_is_clean_and_in_time(box: Box) -> None:
    put(box, 1)

    box.do("systemctl stop slumberd")

    assert box.show("Result") == "success"
    assert (box.show("ExecMainCode"), box.show("ExecMainStatus")) == ("1", "0")
    assert '"daemon.stopped"' in box.log()


def test_killed_daemon_is_restarted_and_loses_nothing(box: Box) -> None:
    before = restarts(box)
    assert put(box, 0, 1, 2) == 0

    box.do("systemctl kill --signal=KILL slumberd")

    wait_until(lambda: restarts(box) == before + 1 and box.show("ActiveState") == "active")
    put(box, 3)
    wait_until(lambda: facts(box) == {"e0", "e1", "e2", "e3"})


@pytest.mark.nightly
def test_watchdog_restarts_a_stopped_daemon(box: Box) -> None:
    before = restarts(box)
    assert put(box, 1) == 0

    box.do("systemctl kill --kill-whom=main --signal=STOP slumberd")

    wait_until(lambda: restarts(box) == before + 1 and box.show("ActiveState") == "active")
    wait_until(lambda: facts(box) == {"e1"})


def test_watchdog_does_not_restart_an_idle_daemon(box: Box) -> None:
    since = float(box.show("ExecMainStartTimestampMonotonic"))

    wait_until(lambda: float(box.do("cut -d' ' -f1 /proc/uptime")) * 1e6 > since + 7e6)

    assert float(box.show("ExecMainStartTimestampMonotonic")) == since


def test_broken_configuration_ends_the_service_with_78_and_no_restart(box: Box) -> None:
    box.do("echo 'state_dri: x' >> /etc/slumberd/slumberd.yaml")

    done = box.run("systemctl restart slumberd")

    assert done.returncode == 1
    assert box.show("ExecMainStatus") == "78"
    assert (box.show("ActiveState"), box.show("SubState")) == ("failed", "failed")


def test_journal_has_an_error_event_when_the_configuration_is_invalid(
    box: Box,
) -> None:
    box.log_to_journal()
    box.do("systemctl stop slumberd")
    box.do("echo 'state_dri: x' >> /etc/slumberd/slumberd.yaml")

    done = box.run("systemctl start slumberd")

    box.do(f"rm {TO_JOURNAL}; systemctl daemon-reload")
    assert (done.returncode, box.show("ExecMainStatus")) == (1, "78")
    [event] = box.journal("-u slumberd -p err")
    assert (event["event"], event["error"]) == ("daemon.failed", "ConfigurationError")
    assert "state_dri" in event["message"]


def test_journal_selects_the_lines_of_the_daemon_by_their_fields(box: Box) -> None:
    box.log_to_journal()
    box.do("systemctl restart slumberd")

    assert put(box, 1) == 0
    wait_until(lambda: facts(box) == {"e1"})
    unit = "-u slumberd --boot"
    by_rule = box.journal(f"{unit} RULE_ID=everything")
    by_event = box.journal(f"{unit} EVENT=delta.applied FACT_ID=e1 USER=alice")
    ready = box.journal(f"{unit} -p info -t slumberd EVENT=daemon.ready")
    shown = box.do("slumberd logs --event delta.applied --user alice --since 1h")
    box.do(f"rm {TO_JOURNAL}; systemctl daemon-reload")

    assert {"delta.applied", "firing.completed"} <= {line["event"] for line in by_rule}
    assert {line["rule_id"] for line in by_rule} == {"everything"}
    assert by_event
    assert {line["fact_id"] for line in by_event} == {"e1"}
    assert ready
    assert " e1 " in shown
    assert box.journal(f"{unit} RULE_ID=unknown") == []


@pytest.mark.nightly
def test_verify_service_logs_a_changed_ledger_to_the_journal(box: Box) -> None:
    box.do("cp /opt/slumberd/share/slumberd/config/monitoring/systemd/* /etc/systemd/system/")
    box.do("systemctl daemon-reload")
    put(box, 1)
    wait_until(lambda: facts(box) == {"e1"})
    box.do("systemctl start slumberd-verify.service")
    before = box.journal("-u slumberd-verify")

    box.do("python3 -", TAMPER)
    done = box.run("systemctl start slumberd-verify.service")

    assert [event["event"] for event in before] == ["ledger.verified"]
    assert done.returncode == 1
    [broken] = box.journal("-u slumberd-verify -p err")
    assert broken["event"] == "ledger.broken"
    assert broken["seq"] == 2
    shown = box.do("slumberd logs").splitlines()
    assert [line for line in shown if re.search(r"Z error {3}ledger\.broken .* seq=2 ", line)]
    assert "ledger.broken" not in box.do("slumberd logs --rule everything")


def test_restore_of_a_backup_keeps_the_owners_of_files(box: Box) -> None:
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


def findings_of(box: Box) -> set[tuple[str, str]]:
    """Return the id and subject of each finding of `slumberd doctor`."""
    findings = json.loads(box.run("slumberd doctor --json").stdout)["findings"]
    return {(finding["id"], finding["subject"]) for finding in findings}


def test_doctor_finds_stale_settings_and_unreadable_rules(box: Box) -> None:
    before = findings_of(box)
    box.do("sed -i 's/^stop_seconds: .*/stop_seconds: 7/' /etc/slumberd/slumberd.yaml")
    changed = findings_of(box)
    box.do(f"chmod 600 {RULES}/rules.yaml")

    assert not [id for id, _ in before if id.startswith(("config.", "rules.", "unit.user"))]
    assert changed - before == {("config.stale", "/etc/slumberd/slumberd.yaml")}
    assert ("unit.user", f"{RULES}/rules.yaml") in findings_of(box)


def test_box_leaves_no_files_behind(tmp_path: Path) -> None:
    with Box(tmp_path) as box:
        box.do("touch /etc/created-in-the-box")
        cgroup = box._cgroup

    assert not cgroup.exists()
    assert not Path("/etc/created-in-the-box").exists()
