"""The installed command, run in its own process on real files."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.cli.commands.facts import COLUMNS
from tests.support.builders import at, triple
from tests.support.installation import CONFIG, RULES, Installation, environment, jsonl
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture(scope="module")
def fired_site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site that has fired twice; tests only read it."""
    site = Installation(tmp_path_factory.mktemp("fired"))
    site.put(PORTO, TEA, ODD)
    site.call("fire", "profile")
    site.put(BRAGA)
    site.call("fire", "profile")
    return site


PORTO = triple("e1", "alice", "lives_in", "Porto", timestamp=at(0))
TEA = triple("e2", "alice", "likes", "tea", timestamp=at(1))
CAKE = triple("e3", "alice", "likes", "cake", timestamp=at(2))
BRAGA = triple("e4", "alice", "lives_in", "Braga", timestamp=at(60))
ODD = triple("e5", "alice", "owns", "a pan", timestamp=at(61), metadata={"intent": "remember"})


@pytest.mark.slow
def test_import_keeps_good_lines_and_lists_bad_ones(site: Installation) -> None:
    of_another_user = TEA.model_copy(update={"user": "mallory"})
    story = [
        jsonl(PORTO),
        b"{oops}\n",
        b"\n",
        jsonl(TEA),
        jsonl(of_another_user),
        b'{"id": "e9"}\n',
    ]

    done = site.run("import", "-", stdin=b"".join(story))

    assert done.returncode == 65
    assert done.stdout == "imported 2 (new 2, changed 0, unchanged 0), rejected 3\n"
    second, fifth, sixth = done.stderr.splitlines()
    assert second.startswith("slumberd: line 2: Invalid JSON")
    assert "episode 'e2' belongs to another scope" in fifth
    assert fifth.startswith("slumberd: line 5: ")
    assert sixth.startswith("slumberd: line 6: key 'content' is missing")
    assert [line["id"] for line in site.lines("recent", "alice")] == ["e2", "e1"]


@pytest.mark.slow
def test_import_in_json_lists_every_bad_line(site: Installation) -> None:
    done = site.run("import", "-", "--json", stdin=b"[]\n" * 1200 + jsonl(PORTO))

    document = json.loads(done.stdout)
    assert done.returncode == 65
    assert (document["new"], len(document["rejected"]), done.stderr) == (1, 1200, "")
    assert document["rejected"][0] == {"line": 1, "reason": "the line is not a JSON object"}


def test_second_import_changes_nothing_and_an_edit_changes_its_episode(
    site: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "story.jsonl.gz"
    file.write_bytes(gzip.compress(jsonl(PORTO, TEA)))
    site.call("import", str(file))
    file.write_bytes(gzip.compress(jsonl(PORTO, TEA.model_copy(update={"content": "Tea!"}))))

    done = site.call("import", str(file))

    assert done.returncode == 0
    assert done.stdout == "imported 2 (new 0, changed 1, unchanged 1), rejected 0\n"


@pytest.mark.slow
def test_output_of_recent_can_be_imported(site: Installation, tmp_path: Path) -> None:
    site.put(PORTO, ODD)
    printed = site.call("recent", "alice", "--json").stdout

    again = site.run("import", "-", stdin=printed.encode())

    assert again.stdout == "imported 2 (new 0, changed 0, unchanged 2), rejected 0\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["import", "none.jsonl"], id="import"),
        pytest.param(["recent", "alice"], id="recent"),
        pytest.param(["facts"], id="facts"),
        pytest.param(["facts", "--valid-at", "now"], id="facts as of"),
        pytest.param(["audit", "ls"], id="audit ls"),
        pytest.param(["audit", "verify"], id="audit verify"),
    ],
)
def test_missing_input_exits_with_66_and_a_remedy_and_creates_nothing(
    site: Installation, arguments: list[str]
) -> None:
    done = site.look(*arguments)

    assert done.returncode == 66
    assert "does not exist: " in done.stderr
    assert not site.state.exists()


def test_reading_an_empty_site_creates_nothing(site: Installation) -> None:
    rules, status = site.look("rules"), site.look("status")

    assert (rules.returncode, status.returncode) == (0, 0)
    assert "does not run" in status.stdout
    assert not site.state.exists()


@pytest.mark.parametrize("command", ["run", "rules", "status", "facts", "fire"])
def test_mistake_in_the_configuration_exits_with_78_and_names_file_and_key(
    site: Installation, command: str
) -> None:
    site.config.write_text(CONFIG + "fact: {batch: 3}\ntimezone: Mars\n")
    arguments = [command, "--all"] if command == "fire" else [command]

    done = site.look(*arguments)

    assert done.returncode == 78
    lines = done.stderr.splitlines()
    first, second = [line for line in lines if not line.startswith("{")]
    assert first.startswith(f"slumberd: {site.config}:4:1: fact: unknown key 'fact'")
    assert second.startswith(f"slumberd: {site.config}:5:11: timezone: ")


def test_mistake_in_a_rule_exits_with_78_and_names_file_and_key(site: Installation) -> None:
    site.rules.write_text(RULES.replace("every: 1", "every: 0"))

    done = site.look("run")

    assert done.returncode == 78
    assert f"{site.rules}:5:" in done.stderr
    assert "rules[0].cadence" in done.stderr


def test_daemon_that_cannot_start_logs_every_mistake(site: Installation) -> None:
    site.rules.write_text(RULES.replace("every: 1", "every: 0"))

    done = site.look("run")

    [event] = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    logged = json.loads((site.state / "slumberd.log").read_text())
    for line in (event, logged):
        assert (line["event"], line["level"]) == ("daemon.failed", "error")
        assert line["error"] == "ConfigurationError"
        assert f"{site.rules}:5:" in line["message"]


@pytest.mark.parametrize("to_journal", [True, False], ids=["the journal", "a file"])
def test_failed_start_is_told_once_in_the_journal(site: Installation, *, to_journal: bool) -> None:
    site.rules.write_text(RULES.replace("every: 1", "every: 0"))
    file = site.state.parent / "stderr"
    with file.open("wb") as stream:
        status = os.fstat(stream.fileno())
        journal = f"{status.st_dev}:{status.st_ino}" if to_journal else ""
        done = subprocess.run(
            [sys.executable, "-m", "slumberd", "run", "--config", str(site.config)],
            stderr=stream,
            env=environment({"JOURNAL_STREAM": journal}),
        )

    told = [line for line in file.read_text().splitlines() if f"{site.rules}:5:" in line]
    assert done.returncode == 78
    assert len(told) == (1 if to_journal else 2)
    assert told[0].startswith('<3>{"ts"' if to_journal else '{"ts"')


def test_daemon_that_cannot_open_its_log_reports_that_on_standard_error(
    site: Installation,
) -> None:
    site.config.write_text(CONFIG.replace("slumberd.log", "none/slumberd.log"))

    done = site.look("run")

    [event] = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert done.returncode == 78
    assert event["event"] == "daemon.failed"
    assert "logging.file" in event["message"]


def test_check_prints_every_mistake_of_every_file_on_standard_output(
    site: Installation, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("rules:\n  - id: BIG\n    when_filter: 'x ='\n")
    site.rules.write_text(RULES.replace("= 'never'", "= (SELECT 1)").replace("0 3 *", "99 3 *"))

    done = site.look("check", str(site.rules.parent), str(other))

    assert (done.returncode, done.stderr) == (78, "")
    places = [line.split(": ")[:2] for line in done.stdout.splitlines()]
    assert {path for _, path in places} >= {"rules[1].when_filter", "rules[1].cadence.cron"}
    assert {place.split(":")[0] for place, _ in places} == {str(site.rules), str(other)}


@pytest.mark.slow
def test_check_prints_the_number_and_the_names_of_valid_rules(site: Installation) -> None:
    done = site.look("check")

    assert done.returncode == 0
    assert done.stdout == "valid: 2 rules in 1 file: profile, quiet\n"
    assert site.lines("check") == [
        {"ok": True, "mistakes": [], "warnings": [], "rules": ["profile", "quiet"]}
    ]


def test_check_in_json_reports_a_file_whose_name_is_not_unicode(site: Installation) -> None:
    odd = os.fsencode(site.rules.parent) + b"/caf\xe9.yaml"
    Path(os.fsdecode(odd)).write_text("rules: [{id: x}]")

    done = site.look("check", "--json")

    assert done.returncode == 78
    assert {mistake["file"][-11:] for mistake in json.loads(done.stdout)["mistakes"]} == {
        r"\udce9.yaml"
    }


def test_check_in_json_prints_file_line_column_path_and_problem(site: Installation) -> None:
    site.config.write_text(CONFIG + "fact: 1\n")

    done = site.look("check", "--json")

    (mistake,) = json.loads(done.stdout)["mistakes"]
    assert done.returncode == 78
    assert mistake["file"] == str(site.config)
    assert (mistake["line"], mistake["column"], mistake["path"]) == (4, 1, "fact")


@pytest.mark.slow
def test_fire_without_a_daemon_consolidates_and_counts_the_episodes_it_read(
    site: Installation,
) -> None:
    site.put(PORTO, TEA, CAKE, BRAGA, ODD)

    done = site.call("fire", "--all", "--json")

    profile, quiet = json.loads(done.stdout)["reports"]
    assert profile["channels"]["facts"] == {
        "read": 5, "filtered": 0, "added": 3, "updated": 1, "deleted": 0, "noop": 0,
        "quarantined": 1, "restored": 0,
    }  # fmt: skip
    assert quiet["channels"]["notes"]["filtered"] == 5
    assert [fact["id"] for fact in site.lines("facts")] == ["e2", "e3", "e4"]
    logged = [json.loads(line) for line in (site.state / "slumberd.log").read_text().splitlines()]
    assert [line["event"] for line in logged].count("delta.applied") == 5


def test_fire_of_an_unknown_rule_is_refused(site: Installation) -> None:
    done = site.call("fire", "profil")

    assert done.returncode == 64
    assert done.stderr == "slumberd: no rule 'profil'; there are profile, quiet\n"


def test_fire_prints_that_nothing_was_pending(site: Installation) -> None:
    done = site.call("fire", "--all")

    assert done.returncode == 0
    assert done.stdout.endswith("nothing was pending\n")


def test_dry_run_prints_deltas_and_writes_nothing(site: Installation) -> None:
    site.put(PORTO, TEA)

    done = site.call("fire", "profile", "--dry-run")

    assert done.returncode == 0
    assert "a dry run: nothing was written" in done.stdout
    assert site.look("facts").returncode == 66  # there are none yet
    assert site.lines("rules")[0]["pending"] == 2


@pytest.mark.slow
def test_facts_in_json_are_printed_line_by_line_with_keys_in_order(
    fired_site: Installation,
) -> None:
    done = fired_site.look("facts", "--user", "alice", "--object", "tea", "--json")

    (line,) = done.stdout.splitlines()
    keys = "id user agent payload lineage confidence said_at pinned_at metadata"
    assert " ".join(json.loads(line)) == keys
    assert json.loads(line)["payload"]["object"] == "tea"
    assert json.loads(line)["said_at"] == json.loads(line)["payload"]["timestamp"].replace(
        "+00:00", ".000000Z"
    )


@pytest.mark.slow
def test_facts_are_printed_as_a_table(fired_site: Installation) -> None:
    heading, row = fired_site.look("facts", "--predicate", "lives_in").stdout.splitlines()

    assert tuple(re.split(" {2,}", heading)) == COLUMNS
    assert re.split(" {2,}", row) == [
        "e4", "alice", "rag", "alice", "lives_in", "Braga", "1", "2026-01-01 12:01:00Z",
    ]  # fmt: skip


@pytest.mark.slow
def test_facts_shows_the_state_valid_at_and_believed_at_an_instant(
    fired_site: Installation,
) -> None:
    firings = fired_site.lines("audit", "ls", "--kind", "firing", "--rule", "profile")
    first, second = (firing["at"] for firing in firings)

    def homes(*options: str) -> list[str]:
        found = fired_site.lines("facts", "--predicate", "lives_in", *options)
        return [fact["payload"]["object"] for fact in found]

    assert homes() == ["Braga"]
    assert homes("--valid-at", at(30).isoformat()) == ["Porto"]
    assert homes("--valid-at", "2025-12-31") == []
    assert homes("--valid-at", "now") == ["Braga"]
    assert homes("--believed-at", first) == ["Porto"]
    assert homes("--believed-at", second) == ["Braga"]
    assert homes("--valid-at", at(60).isoformat(), "--believed-at", first) == ["Porto"]


@pytest.mark.slow
def test_audit_lists_the_requested_rows(fired_site: Installation) -> None:
    rows = fired_site.lines("audit", "ls")

    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert fired_site.lines("audit", "ls", "--limit", "1") == rows[-1:]
    assert fired_site.lines("audit", "ls", "--after", "1", "--limit", "2") == rows[1:3]
    assert fired_site.lines("audit", "ls", "--rule", "quiet") == []
    (bad,) = fired_site.lines("audit", "ls", "--kind", "quarantine")
    assert (bad["source_episode_ids"], bad["reason"]) == (["e5"], "intent_unknown")
    (moved,) = fired_site.lines("audit", "ls", "--fact", "e4")
    assert (moved["kind"], moved["replaces"]) == ("update", ["e1"])


def test_recent_episodes_and_ledger_rows_are_printed_as_tables(fired_site: Installation) -> None:
    heading, newest, *_ = fired_site.look("recent", "alice").stdout.splitlines()
    *_, last = fired_site.look("audit", "ls").stdout.splitlines()

    assert heading.split() == ["id", "at", "session", "agent", "content"]
    assert newest.startswith("e5  2026-01-01 12:01:01Z  s1       rag    content of e5")
    assert "update" in last
    assert last.split()[-3:-1] == ["e4", "e1"]


@pytest.mark.slow
def test_audit_verify_prints_rows_and_head(fired_site: Installation) -> None:
    (verified,) = fired_site.lines("audit", "verify")

    rows = fired_site.lines("audit", "ls")
    assert (verified["ok"], verified["rows"], verified["broken"]) == (True, len(rows), None)
    expected = f"verified: {len(rows)} rows, head {verified['head']}\n"
    assert fired_site.look("audit", "verify").stdout == expected


@pytest.mark.slow
def test_rules_and_status_show_how_far_each_rule_has_read(fired_site: Installation) -> None:
    profile, quiet = fired_site.lines("rules")
    (status,) = fired_site.lines("status")

    assert (profile["watermark"], profile["pending"], profile["quarantined"]) == (4, 0, 1)
    assert (quiet["watermark"], quiet["pending"], quiet["fired_at"]) == (None, 4, None)
    assert profile["last_success"] == profile["fired_at"]
    assert quiet["last_success"] is None
    assert status["rules"] == [profile, quiet]
    assert status["failing"] == []
    assert (status["running"], status["episodes"], status["facts"]) == (False, 4, 2)
    assert "cron 0 3 * * *" in fired_site.look("rules").stdout
    assert "every 1" in fired_site.look("status").stdout


@pytest.mark.slow
def test_audit_verify_names_the_changed_row(site: Installation) -> None:
    site.put(PORTO, TEA)
    site.call("fire", "profile")
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        (seq,) = connection.execute(
            "SELECT seq FROM slumberd_ledger WHERE fact_id = 'e2'"
        ).fetchone()
        connection.execute(
            "UPDATE slumberd_ledger SET payload = CAST(replace(payload, 'tea', 'rum') AS BLOB)"
            " WHERE seq = ?",
            (seq,),
        )

    done = site.call("audit", "verify")

    assert done.returncode == 1
    assert done.stdout.startswith(f"broken at row {seq}: ")


@pytest.mark.slow
def test_audit_verify_finds_an_edited_fact(site: Installation) -> None:
    site.put(PORTO)
    site.call("fire", "profile")
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute("UPDATE facts SET confidence = 0.1")
        connection.execute("DELETE FROM slumberd_external_changes")  # to hide it

    done = site.look("audit", "verify", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout)["broken"]["problem"].startswith("fact 'e1' is not what")


def test_reading_a_database_of_another_program_does_not_change_it(site: Installation) -> None:
    site.state.mkdir()
    with closing(sqlite3.connect(site.state / "memory.db")) as connection, connection:
        connection.execute("CREATE TABLE episodes (id TEXT PRIMARY KEY)")
    before = (site.state / "memory.db").read_bytes()

    recent, status = site.look("recent", "alice"), site.look("status")

    assert (recent.returncode, status.returncode) == (74, 0)
    assert "has no episode log yet" in recent.stderr
    assert (site.state / "memory.db").read_bytes() == before


def test_facts_reports_a_file_that_is_not_a_database(site: Installation) -> None:
    site.state.mkdir()
    (site.state / "facts.db").write_bytes(b"no database at all " * 99)

    done = site.look("facts")

    assert done.returncode == 74
    assert "is no SQLite database" in done.stderr


@pytest.mark.slow
def test_daemon_fires_imported_episodes_answers_commands_and_stops_on_sigterm(
    site: Installation,
) -> None:
    with site.daemon() as daemon:
        site.put(PORTO, BRAGA)
        wait_until(lambda: "Braga" in site.look("facts").stdout)
        (status,) = site.lines("status")
        second = site.run("run")
        fired = site.run("fire", "quiet")
        unknown = site.run("fire", "loud")
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(PATIENCE_SECONDS)
        assert daemon.stderr is not None
        err = daemon.stderr.read()

    assert (status["pid"], status["episodes"], status["facts"]) == (daemon.pid, 2, 1)
    assert second.returncode == 75
    assert f"in use by another slumberd (pid {daemon.pid})" in second.stderr
    assert fired.returncode == 0
    assert unknown.returncode == 64
    assert (daemon.returncode, err) == (0, b"")
    assert not (site.state / "slumberd.pid").exists()
    log = (site.state / "slumberd.log").read_text()
    assert '"event":"daemon.ready"' in log
    assert '"event":"daemon.stopped"' in log


@pytest.mark.slow
def test_daemon_notifies_the_service_manager_that_it_is_ready(
    site: Installation, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_SECONDS)
        env = environment({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        with subprocess.Popen(site.command("run"), env=env) as daemon:
            messages = [manager.recv(100), manager.recv(100)]
            daemon.send_signal(signal.SIGINT)
            daemon.wait(PATIENCE_SECONDS)

    assert messages == [b"STATUS=2 rules", b"READY=1"]
    assert daemon.returncode == 0


def test_check_lists_mistakes_of_the_configuration_and_of_the_rules(site: Installation) -> None:
    site.config.write_text(f"{CONFIG}stop_seconds: soon\n")
    site.rules.write_text(RULES.replace("cadence", "cadance"))

    done = site.look("check")

    assert done.returncode == 78
    lines = done.stdout.splitlines()
    assert [line.split(":")[0].split("/")[-1] for line in lines] == [
        "slumberd.yaml", "rules.yaml", "rules.yaml",
    ]  # fmt: skip


@pytest.mark.nightly
def test_options_are_accepted_before_the_command(site: Installation, tmp_path: Path) -> None:
    other = tmp_path / "other"
    command = [sys.executable, "-m", "slumberd", "-c", str(site.config), "--state-dir", str(other)]

    done = subprocess.run(
        [*command, "status", "--json"], capture_output=True, env=environment({}), check=True
    )

    assert json.loads(done.stdout)["state_dir"] == str(other)


@pytest.mark.slow
def test_unknown_slumberd_variable_is_a_mistake(site: Installation) -> None:
    done = site.run("status", SLUMBERD_STATEDIR="/s")

    assert done.returncode == 78
    assert "SLUMBERD_STATEDIR: unknown variable" in done.stderr


@pytest.mark.nightly
def test_closed_output_pipe_ends_a_command_without_a_message(site: Installation) -> None:
    site.put(*(triple(f"e{n}", f"s{n}", "is", "x" * 999, timestamp=at(n)) for n in range(200)))
    command = site.command("recent", "alice", "--limit", "200", "--json")

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment({})
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()

    assert (process.returncode, err) == (141, b"")


@pytest.mark.nightly
def test_output_to_a_full_disk_exits_with_74(site: Installation) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            site.command("status"), stdout=full, stderr=subprocess.PIPE, env=environment({})
        )

    assert done.returncode == 74
    assert done.stderr == b"slumberd: No space left on device\n"


@pytest.mark.slow
def test_demo_ends_with_the_expected_facts(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    command = [sys.executable, "-m", "slumberd"]
    env = environment({})

    done = subprocess.run(
        [*command, "demo", "--keep", str(place)], capture_output=True, text=True, env=env
    )

    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(place / "facts.db")) as connection:
        rows = connection.execute("SELECT fact_id, payload FROM facts").fetchall()
    assert {id: json.loads(payload)["object"] for id, payload in rows} == {
        "m02": "window", "m06": "vegetarian", "m07": "mushroom risotto", "m10": "Braga",
        "m11": "Bergen", "j01": "nuts", "j02": "shellfish", "j04": "sourdough", "j09": "aisle",
        "j11": "pescatarian", "j13": "Graz", "j14": "opera", "p01": "Pune", "p02": "midwife",
        "p05": "window", "p06": "vegan", "p07": "dal", "p08": "okra", "p11": "Hanoi",
        "p15": "bitter gourd", "o01#2": "sister", "o01#3": "nurse", "o03#1": "peanuts",
        "o04#1": "Mombasa", "o05#1": "penicillin",
    }  # fmt: skip
    assert "intent_unknown" in done.stdout
    assert "verified: " in done.stdout


@pytest.mark.nightly
def test_demo_does_not_write_into_an_existing_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    command = [sys.executable, "-m", "slumberd", "demo", "--keep", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, env=environment({}))

    assert done.returncode == 64
    assert "give --keep a new directory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
