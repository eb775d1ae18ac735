"""`slumberd doctor` and `status --check` find each problem, and change nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slumberd.cli.asking import ask_daemon
from slumberd.cli.commands import status as commands_status
from slumberd.clock import SystemClock
from slumberd.daemon.control_socket import listen
from slumberd.daemon.rules import rules_of
from slumberd.model.health import KINDS, Finding
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.rules.settings import Settings, load_settings
from slumberd.rules.settings_schema import ServeSettings
from slumberd.storage.sqlite import session
from slumberd.tools.diagnostics.doctor import find_urgent, run_checks
from slumberd.tools.diagnostics.host_checks import (
    Account,
    Machine,
    can_write,
    check_clock,
    check_disk_space,
    check_http_address,
    check_time_zones,
    check_unit,
    check_unit_user,
)
from slumberd.tools.diagnostics.store_checks import DoctorContext
from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.installation import CONFIG, Installation

pytestmark = pytest.mark.integration

TEA = triple("e1", "ada", "likes", "tea", timestamp=at(1))
NOWHERE = Path("/nonexistent")
QUIET = Machine(NOWHERE, NOWHERE, (NOWHERE,), NOWHERE, ("no-such-command",), low_bytes=1)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Return an installation without problems: a rule has fired, and systemd is absent."""
    monkeypatch.setattr(commands_status, "THIS_MACHINE", QUIET)
    site = Installation(tmp_path)
    site.put(TEA)
    assert site.call("fire", "--all").returncode == 0
    return site


def run_json(site: Installation, *words: str) -> tuple[int, dict[str, Any]]:
    done = site.call(*words, "--json")
    return done.returncode, json.loads(done.stdout)


def find_ids(site: Installation, *words: str) -> set[str]:
    code, document = run_json(site, *(words or ("doctor",)))
    ids = {finding["id"] for finding in document["findings"]}
    assert (code, document["ok"]) == (bool(ids), not ids)
    assert all(finding["remedy"] and finding["problem"] for finding in document["findings"])
    return ids


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def stat_files(site: Installation) -> dict[str, tuple[int, ...]]:
    return {
        str(path): (status.st_size, status.st_mtime_ns, status.st_mode)
        for path in site.config.parent.rglob("*")
        for status in [path.stat()]
    }


@pytest.mark.slow
def test_doctor_finds_no_problem_in_a_sound_installation_and_leaves_no_trace(
    site: Installation,
) -> None:
    before = stat_files(site)

    assert find_ids(site) == set()

    assert stat_files(site) == before


def test_status_check_reports_that_no_daemon_runs_and_leaves_no_trace(site: Installation) -> None:
    before = stat_files(site)

    assert find_ids(site, "status", "--check") == {"daemon.down"}

    assert stat_files(site) == before


@pytest.mark.slow
def test_doctor_and_status_check_find_no_problem_of_a_running_daemon(site: Installation) -> None:
    with site.daemon():
        assert find_ids(site) == set()
        assert find_ids(site, "status", "--check") == set()


def test_doctor_prints_id_and_remedy_of_a_finding(site: Installation) -> None:
    site.state.chmod(0o777)

    shown = site.call("doctor").stdout

    assert "error    file.open" in shown
    assert f"remedy: run `chmod o-rwx {site.state}`" in shown
    assert shown.endswith("1 finding\n")


def test_doctor_list_prints_every_kind_of_finding() -> None:
    shown = called("doctor", "--list").stdout

    assert all(f"\n{id} " in shown for id in KINDS)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BREAKS = [
    pytest.param(lambda s: s.state.chmod(0o755), "file.open", id="state for all"),
    pytest.param(lambda s: (s.state / "facts.db").chmod(0o664), "file.open", id="store for all"),
    pytest.param(lambda s: s.rules.chmod(0o646), "file.open", id="rules for all"),
    pytest.param(lambda s: s.config.write_text("x: ["), "config.invalid", id="configuration"),
    pytest.param(lambda s: s.rules.write_text("rules: 1"), "config.invalid", id="rules"),
    pytest.param(
        lambda s: s.rules.with_name("a.yaml~").touch(), "rules.ignored", id="ignored file"
    ),
    pytest.param(lambda s: (s.state / "facts.db").unlink(), "state.missing", id="no facts"),
    pytest.param(lambda s: damage(s.state / "memory.db"), "store.damaged", id="damage"),
    pytest.param(
        lambda s: (s.state / "facts.db").write_text("hello " * 99), "store.unreadable", id="text"
    ),
    pytest.param(lambda s: replace_by_pipe(s.state / "memory.db"), "store.unreadable", id="pipe"),
    pytest.param(
        lambda s: (s.state / "paused.json").write_text("no json"),
        "state.unreadable",
        id="paused rules",
    ),
    pytest.param(
        lambda s: (s.state / "stages.db").write_text("hello " * 99),
        "stage_notes.damaged",
        id="stages",
    ),
    pytest.param(
        lambda s: sql(s.state / "memory.db", "PRAGMA journal_mode = DELETE"),
        "store.journal",
        id="journal",
    ),
    pytest.param(
        lambda s: sql(s.state / "memory.db", "DROP TRIGGER slumberd_episode_inserted"),
        "store.triggers",
        id="triggers on episodes",
    ),
    pytest.param(
        lambda s: sql(s.state / "facts.db", "DROP TRIGGER slumberd_facts_deleted"),
        "store.triggers",
        id="triggers on facts",
    ),
    pytest.param(
        lambda s: sql(s.state / "facts.db", "UPDATE slumberd_numbers SET value = 0"),
        "log.unwritten",
        id="log lines",
    ),
    pytest.param(
        lambda s: sql(s.state / "facts.db", "UPDATE slumberd_firings SET at = at + 3600000000"),
        "clock.behind",
        id="future",
    ),
    pytest.param(
        lambda s: sql(s.state / "facts.db", "UPDATE slumberd_watermark SET served = served + 4e8"),
        "clock.ahead",
        id="wrong clock",
    ),
    pytest.param(
        lambda s: sql(s.state / "facts.db", "UPDATE slumberd_watermark SET served = 0"),
        "rule.late",
        id="late cron",
    ),
    pytest.param(
        lambda s: s.put(triple("e2", "ada", "likes", "rum")), "rule.late", id="full every"
    ),
]


@pytest.mark.parametrize(("broken", "id"), BREAKS)
def test_doctor_finds_a_problem_and_changes_nothing(
    site: Installation, broken: Any, id: str
) -> None:
    broken(site)
    before = stat_files(site)

    assert id in find_ids(site)

    assert stat_files(site) == before


@pytest.mark.parametrize(
    ("broken", "id"),
    [
        case
        for case in BREAKS
        if case.values[1] in ("config.invalid", "rule.late", "state.unreadable")
    ],
)
def test_status_check_finds_an_urgent_problem(site: Installation, broken: Any, id: str) -> None:
    broken(site)

    assert id in find_ids(site, "status", "--check")


CARRY_OVER = (
    "`slumberd upgrade --to DIR` carries its facts, manual edits and erased scopes over into new "
    "files, and leaves this one as it is"
)
OTHER_VERSIONS = [
    pytest.param(
        "facts.db",
        "UPDATE slumberd_schema SET version = 1",
        "was written by slumberd 0.1.0 (ledger 1, ours is 3)",
        CARRY_OVER,
        id="facts of 0.1.0",
    ),
    pytest.param(
        "memory.db",
        "CREATE TABLE slumberd_forgotten (digest BLOB, moment INTEGER)",
        "keeps the erased scopes of slumberd 0.1.0",
        CARRY_OVER,
        id="erased scopes of 0.1.0",
    ),
    pytest.param(
        "facts.db",
        "UPDATE slumberd_schema SET version = 99",
        "was written by a newer slumberd (ledger 99, ours is 3)",
        "use that slumberd, or a newer one",
        id="facts of a newer version",
    ),
    pytest.param(
        "memory.db",
        "UPDATE slumberd_schema SET version = 99",
        "was written by a newer slumberd (episodes 99, ours is 3)",
        "use that slumberd, or a newer one",
        id="episodes of a newer version",
    ),
    pytest.param(
        "facts.db",
        "DROP INDEX slumberd_ledger_erased",
        "does not have the tables of schema 3 (ledger): it lacks the index "
        "'slumberd_ledger_erased'",
        "a build between 0.1.0 and 0.2.0 wrote it, or another program changed it: restore a "
        "backup, or move it away, and slumberd promotes its facts again from the episodes",
        id="facts of other tables",
    ),
]


@pytest.mark.parametrize(("file", "statement", "problem", "remedy"), OTHER_VERSIONS)
def test_doctor_says_what_to_do_with_a_file_of_another_version(
    site: Installation, file: str, statement: str, problem: str, remedy: str
) -> None:
    sql(site.state / file, statement)

    _, document = run_json(site, "doctor")

    (finding,) = document["findings"]
    assert (finding["id"], finding["problem"]) == ("store.unreadable", problem)
    assert finding["remedy"] == remedy


@pytest.mark.slow
def test_doctor_finds_episodes_that_no_rule_could_read(site: Installation) -> None:
    odd = triple("e2", "ada", "likes", "x", metadata={"intent": "shout", "predicate": "likes"})
    site.put(odd, triple("e3", "ada", "likes", "gin"))
    other = "UPDATE episodes SET scope_key = replace(scope_key, 'user/', 'user/x') WHERE id = 'e3'"
    sql(site.state / "memory.db", other)
    site.call("fire", "--all")

    assert find_ids(site) == {"episodes.quarantined", "episodes.mismatched"}


@pytest.mark.slow
def test_doctor_lists_a_retraction_that_covers_nothing(site: Installation) -> None:
    early = {"intent": "delete", "replaces": "e1", "predicate": "likes"}
    metadata = {"intent": "delete", "replaces": "e9", "predicate": "likes"}
    site.put(triple("e0", "ada", "likes", "x", timestamp=at(0), metadata=early))
    site.put(triple("e8", "ada", "likes", "x", timestamp=at(8), metadata=metadata))
    site.call("fire", "--all")
    site.put(triple("e9", "ada", "likes", "rum", timestamp=at(7)))
    site.call("fire", "--all")

    _, document = run_json(site, "doctor")

    (finding,) = document["findings"]
    assert finding["id"] == "claims.unreached"
    assert finding["problem"] == "1 retraction covers nothing: e0"


def declare(site: Installation, predicate: str) -> None:
    """Write a declared fact about Ada and coffee, as another program would."""
    payload = json.dumps({"subject": "ada", "predicate": predicate, "object": "coffee"})
    sql(
        site.state / "facts.db",
        f"INSERT INTO facts VALUES ('theirs', '{TEA.user}', '{TEA.agent}', '{payload}',"
        """ '[{"by": "them"}]', 1.0, '{}', '2026-01-01T00:00:00+00:00')""",
    )


@pytest.mark.slow
def test_doctor_lists_a_declared_fact_that_disagrees_with_a_promoted_one(
    site: Installation,
) -> None:
    declare(site, "drinks")
    site.put(triple("e2", "ada", "drinks", "tea", timestamp=at(2)))
    site.call("fire", "--all")

    _, document = run_json(site, "doctor")

    (finding,) = document["findings"]
    assert finding["id"] == "facts.disagree"
    assert "theirs (declared) and e2" in finding["problem"]


@pytest.mark.slow
def test_doctor_lists_no_declared_fact_of_a_predicate_with_several_values(
    site: Installation,
) -> None:
    declare(site, "likes")
    site.put(triple("e2", "ada", "likes", "water", timestamp=at(2)))
    site.call("fire", "--all")

    assert find_ids(site) == set()


@pytest.mark.slow
def test_doctor_finds_a_batch_that_awaits_approval(site: Installation) -> None:
    site.config.write_text(site.config.read_text() + "limits: {max_deletes: 0}\n")
    gone = {"intent": "delete", "replaces": "e1", "predicate": "likes"}
    site.put(triple("e2", "ada", "likes", "tea", timestamp=at(2), metadata=gone))
    site.call("fire", "--all")

    assert find_ids(site) == {"rule.held"}
    assert find_ids(site, "status", "--check") == {"rule.held", "daemon.down"}


def test_doctor_reports_a_missing_state_directory(tmp_path: Path) -> None:
    site = Installation(tmp_path)

    assert "state.missing" in find_ids(site)
    assert not site.state.exists()


@pytest.mark.slow
def test_status_shows_what_is_pending_the_last_firing_and_the_next_instant(
    site: Installation,
) -> None:
    site.put(triple("e2", "ada", "likes", "rum", timestamp=at(2)))
    before = stat_files(site)

    (status,) = site.lines("status")
    shown = site.look("status").stdout

    profile, quiet = status["rules"]
    assert (profile["pending"], profile["oldest_pending"]) == (1, at(2).isoformat())
    assert (profile["last_outcome"]["added"], profile["next_at"]) == (1, None)
    assert quiet["next_at"].endswith("T03:00:00.000000Z")
    assert "+1 ~0 -0" in shown
    assert f"{at(2):%Y-%m-%d %H:%M:%S}" in shown
    assert [database["path"] for database in status["databases"]] == [
        str(site.state / "memory.db"), str(site.state / "facts.db"),
    ]  # fmt: skip
    assert status["disk_free_bytes"] > 0
    assert stat_files(site) == before


def test_status_of_many_rules_shows_only_those_that_need_attention(site: Installation) -> None:
    many = "".join(
        f"  - {{id: r{number:02}, cadence: {{every: 9}}, when_filter: '', then_emits: [facts]}}\n"
        for number in range(40)
    )
    site.rules.write_text(site.rules.read_text() + many)

    shown = site.look("status").stdout

    rows = [line for line in shown.splitlines() if line.startswith("r") and "every 9" in line]
    assert len(rows) == 30
    assert "and 12 more rules; `slumberd rules` shows all" in shown


@contextmanager
def silent_daemon(directory: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listening:
        # The path of a socket may have 107 bytes; this path is short in every directory.
        folder = os.open(directory, os.O_PATH)
        listening.bind(f"/proc/self/fd/{folder}/control.sock")
        os.close(folder)
        listening.listen()
        yield


def test_status_does_not_wait_for_a_daemon_that_does_not_answer(site: Installation) -> None:
    with silent_daemon(site.state):
        settings = Settings(state_dir=site.state, rules_dir=site.state)
        daemon, (finding,) = ask_daemon(settings, seconds=0.05)

    assert daemon is None
    assert (finding.id, finding.problem) == ("daemon.silent", "does not answer within 0.05 s")


def test_doctor_finds_rules_that_the_daemon_does_not_use_yet(site: Installation) -> None:
    settings = load_settings(site.config, overrides={}, environ={})
    daemon = {"rules_hash": "another", "uptime_seconds": 1.0}
    context = DoctorContext(
        settings, rules_of(settings), site.config, daemon, SystemClock().now(), QUIET
    )

    assert [finding.id for finding in find_urgent(context)] == ["rules.stale"]


def test_doctor_finds_configuration_that_the_daemon_does_not_use_yet(site: Installation) -> None:
    settings = load_settings(site.config, overrides={}, environ={})
    rules, now = rules_of(settings), SystemClock().now()
    daemon = {"rules_hash": rules.content_hash, "uptime_seconds": 1.0}
    outdated = {"reload": ["timezone"], "restart": ["facts.batch", "stop_seconds"]}
    context = DoctorContext(settings, rules, site.config, daemon, now, QUIET, outdated=outdated)

    findings = run_checks(context).findings
    stale = [finding for finding in findings if finding.id == "config.stale"]

    assert [(finding.problem, finding.remedy) for finding in stale] == [
        ("the daemon uses another value of timezone than the file", "`slumberd reload`"),
        (
            "the daemon uses another value of facts.batch, stop_seconds than the file",
            "`systemctl restart slumberd`",
        ),
    ]
    assert find_urgent(context) == []


@pytest.mark.slow
async def test_doctor_asks_the_daemon_which_configuration_is_outdated(site: Installation) -> None:
    async def outdated(_: dict[str, Any], __: Caller) -> Answer:
        return {"reload": [], "restart": ["facts.batch"]}

    async def status(_: dict[str, Any], __: Caller) -> Answer:
        return {"rules_hash": rules_of(settings).content_hash, "uptime_seconds": 1.0}

    settings = load_settings(site.config, overrides={}, environ={})
    async with listen(site.state, {"status": status, "outdated": outdated}):
        assert await asyncio.to_thread(find_ids, site) == {"config.stale"}
    async with listen(site.state, {"status": status}):  # a daemon of an older version
        assert await asyncio.to_thread(find_ids, site) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "problem"),
    [
        pytest.param(1, "1 version is pending; the rule fires every 1", id="one"),
        pytest.param(4, "4 versions are pending; the rule fires every 1", id="some"),
        pytest.param(12, "10 or more versions are pending; the rule fires every 1", id="many"),
    ],
)
def test_doctor_counts_what_is_pending_for_a_late_rule(
    site: Installation, count: int, problem: str
) -> None:
    site.put(*(triple(f"p{n}", "ada", "likes", n) for n in range(count)))

    _, document = run_json(site, "doctor")

    (finding,) = document["findings"]
    assert finding["problem"].startswith(f"{problem}; it fired last at ")


@pytest.mark.slow
def test_doctor_gives_a_running_daemon_time_for_due_rules(site: Installation) -> None:
    site.put(triple("e2", "ada", "likes", "rum"))
    settings = load_settings(site.config, overrides={}, environ={})
    rules, now = rules_of(settings), SystemClock().now()
    daemon = {"rules_hash": rules.content_hash, "uptime_seconds": 9e9}

    def late_rules(minutes: int) -> list[str]:
        when = now + timedelta(minutes=minutes)
        context = DoctorContext(settings, rules, None, daemon, when, QUIET)
        findings = run_checks(context).findings
        return [finding.subject for finding in findings if finding.id == "rule.late"]

    assert late_rules(5) == []
    # Shortly before 03:00 UTC the other rule, which is due at that hour, would be late, too.
    assert "rule profile" in late_rules(15)


def ids_of(findings: Iterable[Finding]) -> list[str]:
    return [finding.id for finding in findings]


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("0.0.0.0:8750", ["serve.exposed"]),
        ("[::]:8750", ["serve.exposed"]),
        ("127.0.0.1:8750", []),
        ("localhost:8750", []),
        (None, []),
    ],
)
def test_doctor_finds_http_on_all_networks(address: str | None, found: list[str]) -> None:
    assert ids_of(check_http_address(ServeSettings(enabled=True, address=address))) == found
    assert ids_of(check_http_address(ServeSettings(address=address))) == []


def test_doctor_finds_a_clock_that_is_not_synchronised(tmp_path: Path) -> None:
    mark = tmp_path / "synchronized"
    unsynchronised = Machine(synchronised=mark, clock_command=("echo", "no"))

    assert ids_of(check_clock(unsynchronised)) == ["clock.unsynchronised"]
    assert ids_of(check_clock(Machine(synchronised=mark, clock_command=("echo", "yes")))) == []
    assert ids_of(check_clock(QUIET)) == []
    mark.touch()
    assert ids_of(check_clock(unsynchronised)) == []


def test_doctor_compares_the_unit_with_the_shipped_one(tmp_path: Path) -> None:
    shipped, units, state = tmp_path / "shipped", tmp_path / "units", Path("/var/lib/slumberd")
    shipped.write_text("new")
    units.mkdir()
    machine = Machine(systemd=tmp_path, units=(units,), shipped=shipped)

    assert ids_of(check_unit(machine, state)) == ["unit.missing"]
    (units / "slumberd.service").write_text("old")
    assert ids_of(check_unit(machine, state)) == ["unit.changed"]
    (units / "slumberd.service").write_text("new")
    assert ids_of(check_unit(machine, state)) == []
    assert ids_of(check_unit(machine, tmp_path)) == []


@pytest.mark.path
def test_doctor_finds_an_unwritable_textfile(site: Installation) -> None:
    places = ["slumberd.prom", str(site.state.parent / "none" / "slumberd.prom")]
    subjects = []
    for place in places:
        site.config.write_text(f"{CONFIG}metrics: {{textfile: {place}}}\n")
        findings = json.loads(site.look("doctor", "--json").stdout)["findings"]
        unwritable = [each for each in findings if each["id"] == "metrics.unwritable"]
        subjects.append([finding["subject"] for finding in unwritable])

    assert subjects == [[], [places[1]]]


@contextmanager
def public_file(name: str) -> Iterator[Path]:
    """Yield a file in a directory that every user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, name)
        file.touch(0o644)
        yield file


STRANGER = Account("stranger", 54_321, frozenset({54_321}))


def test_user_with_permission_can_read() -> None:
    with public_file("rules.yaml") as file:
        assert STRANGER.find_blocked_path(file) is None
        file.chmod(0)
        assert Account("root", 0, frozenset()).find_blocked_path(file) is None


@pytest.mark.parametrize(
    ("mode", "account", "blocked"),
    [
        pytest.param(0o640, STRANGER, True, id="a file closed to others"),
        pytest.param(
            0o640,
            replace(STRANGER, groups=frozenset({os.getgid()})),
            False,
            id="a file of its group",
        ),
        pytest.param(
            0o604,
            replace(STRANGER, groups=frozenset({os.getgid()})),
            True,
            id="a file closed to its group",
        ),
        pytest.param(0o400, replace(STRANGER, uid=os.getuid() or 1), False, id="a file of its own"),
        pytest.param(
            0o044, replace(STRANGER, uid=os.getuid() or 1), True, id="not readable for its owner"
        ),
    ],
)
def test_user_reads_as_owner_as_group_or_as_other(
    mode: int, account: Account, *, blocked: bool
) -> None:
    with public_file("rules.yaml") as file:
        os.chown(file, account.uid if os.getuid() == 0 and account.uid == 1 else -1, -1)
        file.chmod(mode)

        assert account.find_blocked_path(file) == (file if blocked else None)


def test_user_cannot_read_below_a_closed_directory() -> None:
    with public_file("rules.yaml") as file:
        file.parent.chmod(0o700)

        assert STRANGER.find_blocked_path(file) == file.parent


def test_doctor_finds_a_unit_user_that_cannot_read_rules(tmp_path: Path) -> None:
    units, state = tmp_path / "units", Path("/var/lib/slumberd")
    (units / "slumberd.service.d").mkdir(parents=True)
    (units / "slumberd.service").write_bytes(b"[Service]\n#\xff\nUser=no-such-user\n#User=root\n")
    machine = Machine(systemd=tmp_path, units=(units,))
    with public_file("rules.yaml") as file:
        missing = list(check_unit_user(machine, state, [file]))
        (units / "slumberd.service.d" / "own.conf").write_text("[Service]\nUser=nobody\n")
        well = list(check_unit_user(machine, state, [file]))
        file.chmod(0o600)
        (finding,) = check_unit_user(machine, state, [file])

        assert (missing[0].id, missing[0].problem) == (
            "unit.user",
            "there is no user 'no-such-user'",
        )
        assert well == []
        assert finding.problem == "user 'nobody', whom the unit runs as, cannot read it"
        assert finding.remedy.startswith(f"run `chmod o+rX {file}`")
        assert list(check_unit_user(machine, tmp_path, [file])) == [], (
            "the unit does not use this directory"
        )


@pytest.mark.parametrize(
    ("free", "databases", "ids"),
    [
        pytest.param(64 * 2**20, 0, [], id="64 MiB"),
        pytest.param(64 * 2**20 - 1, 0, ["disk.low"], id="less than 64 MiB"),
        pytest.param(4 * 10**8, 10**8, [], id="four times small databases"),
        pytest.param(4 * 10**8 - 1, 10**8, ["disk.low"], id="less than four times"),
        pytest.param(512 * 2**20, 10**9, [], id="512 MiB"),
        pytest.param(512 * 2**20 - 1, 10**9, ["disk.low"], id="less than 512 MiB"),
        pytest.param(10**9, 4 * 10**9, [], id="a quarter of the databases"),
        pytest.param(10**9 - 1, 4 * 10**9, ["disk.low"], id="less than a quarter"),
    ],
)
def test_free_space_that_is_needed_grows_with_the_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, databases: int, ids: list[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    assert ids_of(check_disk_space(tmp_path, databases, Machine())) == ids


def test_doctor_checks_disk_space_and_time_zones(tmp_path: Path) -> None:
    assert ids_of(check_disk_space(tmp_path, 10**18, QUIET)) == ["disk.low"]
    assert ids_of(check_time_zones(["Mars/Olympus"])) == ["timezone.missing"]
    assert ids_of(check_time_zones(["Asia/Tokyo"])) == []


@pytest.mark.slow
def test_doctor_finds_engine_rules_that_others_can_write(site: Installation) -> None:
    site.config.write_text(f"{CONFIG}provenance: {{sink: file, pack: pack}}\n")
    rules = site.state / "pack" / "rules" / "one.yaml"
    rules.parent.mkdir(parents=True)
    rules.write_text("")
    for path in (rules, rules.parent, rules.parent.parent):
        path.chmod(0o750)
    assert find_ids(site) == set()

    rules.chmod(0o666)

    assert find_ids(site) == {"file.open"}


@pytest.mark.slow
def test_doctor_finds_a_sink_file_that_others_can_read(site: Installation) -> None:
    site.config.write_text(f"{CONFIG}provenance: {{sink: file}}\n")
    published = site.state / "provenance.jsonl"
    published.write_text("")
    published.chmod(0o640)
    assert find_ids(site) == set()

    published.chmod(0o644)

    assert find_ids(site) == {"file.open"}


def context_of(site: Installation, machine: Machine = QUIET, **limits: Any) -> DoctorContext:
    """Return what the checks examine when no daemon runs."""
    settings = load_settings(site.config, overrides={}, environ={})
    return DoctorContext(
        settings, rules_of(settings), site.config, None, SystemClock().now(), machine, **limits
    )


def test_checks_without_enough_time_are_named(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_STEPS_PER_CHECK", 1)

    report = run_checks(context_of(site, seconds=1e-9))

    facts, memory = (repr(str(site.state / name)) for name in ("facts.db", "memory.db"))
    assert [*report.unfinished] == [
        f"quick_check of {memory}",
        f"timestamps in {memory}",
        f"quick_check of {facts}",
        f"values in {facts}",
        f"retractions without effect in {facts}",
        f"facts that disagree in {facts}",
    ]


@pytest.mark.slow
def test_long_write_ahead_log_is_a_finding_from_its_limit_on(site: Installation) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM facts").fetchone()
        site.put(TEA)
        assert site.call("fire", "--all").returncode == 0
        log = site.state / "facts.db-wal"
        size = log.stat().st_size

        found = [
            [one.subject for one in run_checks(context_of(site, machine)).findings]
            for machine in (
                replace(QUIET, large_log_bytes=size - 1),
                replace(QUIET, large_log_bytes=size),
            )
        ]

    assert size > 0
    assert found == [[str(log)], []]


def test_database_that_slumberd_has_not_created_is_a_finding(site: Installation) -> None:
    facts = site.state / "facts.db"
    facts.unlink()
    sql(facts, "PRAGMA journal_mode = WAL", "CREATE TABLE other (x)")
    facts.chmod(0o640)

    (found,) = [one for one in run_checks(context_of(site)).findings if "ledger" in one.problem]

    assert (found.id, found.subject) == ("store.unreadable", str(facts))
    assert found.problem == "has no ledger: slumberd has not created it"


def status_of(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 0, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("uid", "mode", "file_uid", "file_gid", "writes"),
    [
        pytest.param(0, 0o400, 7, 7, True, id="root"),
        pytest.param(5, 0o400, 5, 7, True, id="its owner"),
        pytest.param(5, 0o660, 7, 6, True, id="its group may write"),
        pytest.param(5, 0o640, 7, 6, False, id="its group may not write"),
        pytest.param(5, 0o660, 7, 7, False, id="another group may write"),
        pytest.param(5, 0o602, 7, 7, True, id="everybody may write"),
    ],
)
def test_daemon_can_write_what_owner_group_and_mode_permit(
    uid: int, mode: int, file_uid: int, file_gid: int, *, writes: bool
) -> None:
    assert can_write(status_of(0o750, uid, 6), status_of(mode, file_uid, file_gid)) is writes


FOR_THE_PERSON = """\
rules:
  - id: home
    cadence: {every: 1}
    when_filter: "IS_PERSON AND content LIKE '%live%'"
    then_emits: [facts]
  - id: resting
    enabled: false
    cadence: {every: 1}
    when_filter: "is_person"
    then_emits: [facts]
"""


def test_doctor_reports_a_rule_for_the_person_while_nobody_is_the_person(
    site: Installation,
) -> None:
    site.rules.write_text(FOR_THE_PERSON)
    site.put(TEA.model_copy(update={"id": "e2", "source_node": "mem0"}))

    code, document = run_json(site, "doctor")

    [found] = [one for one in document["findings"] if one["id"] == "rule.no_person"]
    assert code == 1
    assert found["subject"] == "rule home"
    assert "no recent speaker is the person: speakers are 'chat'" in found["problem"]
    assert "`memory.person`" in found["remedy"]
    assert "rule.no_person" not in find_ids(site, "status", "--check")


@pytest.mark.parametrize(
    "setting", [pytest.param("[chat]", id="a node"), pytest.param("[a, chat]", id="two nodes")]
)
def test_doctor_knows_the_nodes_that_are_the_person(site: Installation, setting: str) -> None:
    site.rules.write_text(FOR_THE_PERSON)
    site.config.write_text(f"{CONFIG}memory: {{person: {setting}}}\n")

    assert "rule.no_person" not in find_ids(site)


def test_doctor_reports_that_no_speaker_is_known(site: Installation) -> None:
    site.rules.write_text(FOR_THE_PERSON)
    site.put(TEA.model_copy(update={"source_node": "remember"}))

    _, document = run_json(site, "doctor")

    [found] = [one for one in document["findings"] if one["id"] == "rule.no_person"]
    assert found["problem"].endswith("no speaker is known")
    assert found["remedy"] == "put the words of the person with `speaker` `user` in the metadata"
