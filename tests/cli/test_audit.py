"""`slumberd audit`: verify against a log and with a key, replay, and export."""

from __future__ import annotations

import gzip
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation, umask
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

PORTO = triple("e1", "alice", "lives_in", "Porto", timestamp=at(0))
TEA = triple("e2", "alice", "likes", "tea", timestamp=at(1))
BRAGA = triple("e3", "alice", "lives_in", "Braga", timestamp=at(60))


def fire_twice(directory: Path) -> Installation:
    """Return a site whose log has one checkpoint after each of two firings."""
    site = Installation(directory)
    for episode in (PORTO, BRAGA):
        site.put(TEA, episode)
        assert site.call("fire", "profile").returncode == 0
    return site


@pytest.fixture(scope="module")
def fired_site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site that has fired twice; tests only read it."""
    return fire_twice(tmp_path_factory.mktemp("fired"))


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return fire_twice(tmp_path)


def log_of(site: Installation) -> Path:
    return site.state / "slumberd.log"


def checkpoints_of(site: Installation) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log_of(site).read_bytes().splitlines()]
    return [line for line in lines if line["event"] == "ledger.checkpoint"]


def change(site: Installation, *statements: str) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.slow
def test_each_command_that_writes_ends_with_a_checkpoint(fired_site: Installation) -> None:
    (verified,) = fired_site.lines("audit", "verify")

    rows = [checkpoint["rows"] for checkpoint in checkpoints_of(fired_site)]
    assert rows == sorted(rows)
    assert len(rows) == 2
    assert checkpoints_of(fired_site)[-1]["head"] == verified["head"]


@pytest.mark.slow
def test_daemon_writes_a_checkpoint_when_it_starts_and_when_it_stops(site: Installation) -> None:
    before = checkpoints_of(site)
    with site.daemon() as process:
        started = checkpoints_of(site)
        site.put(triple("e4", "alice", "likes", "cake", timestamp=at(90)))
        wait_until(lambda: len(site.lines("facts", "--object", "cake")) == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0

    (verified,) = site.lines("audit", "verify")
    assert len(started) == len(before) + 1
    assert checkpoints_of(site)[-1]["rows"] == verified["rows"]
    assert checkpoints_of(site)[-1]["head"] == verified["head"]


@pytest.mark.parametrize("packed", [False, True])
def test_verify_against_the_log_says_how_many_checkpoints_agree(
    fired_site: Installation, tmp_path: Path, packed: bool
) -> None:
    log = tmp_path / "a.log"
    text = b"garbage\n" + log_of(fired_site).read_bytes()
    log.write_bytes(gzip.compress(text) if packed else text)

    done = fired_site.look("audit", "verify", "--against", str(log))

    assert done.returncode == 0
    assert done.stdout.endswith(", 2 checkpoints agree\n")
    (verified,) = fired_site.lines("audit", "verify", "--against", str(log))
    assert (verified["ok"], verified["checkpoints"]) == (True, 2)


@pytest.mark.slow
def test_verify_against_standard_input(fired_site: Installation) -> None:
    log = log_of(fired_site).read_bytes()

    done = fired_site.run("audit", "verify", "--against", "-", stdin=log)

    assert "2 checkpoints agree" in done.stdout


@pytest.mark.slow
def test_verify_against_the_log_finds_an_older_copy(site: Installation, tmp_path: Path) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as facts:
        facts.execute("VACUUM INTO ?", (str(tmp_path / "old.db"),))
    site.put(triple("e4", "alice", "likes", "cake", timestamp=at(90)))
    site.call("fire", "profile")
    last = checkpoints_of(site)[-1]
    for file in site.state.glob("facts.db*"):
        file.unlink()
    (tmp_path / "old.db").rename(site.state / "facts.db")

    alone = site.look("audit", "verify")
    against = site.look("audit", "verify", "--against", str(log_of(site)))

    assert alone.returncode == 0
    assert against.returncode == 1
    assert against.stdout == (
        f"broken at row {checkpoints_of(site)[1]['rows']}: the ledger ends here, the log of"
        f" {last['ts']} saw row {last['rows']}\n"
    )


@pytest.mark.slow
def test_verify_against_the_log_of_another_ledger_names_the_row(
    fired_site: Installation, tmp_path: Path
) -> None:
    other = fire_twice(tmp_path)
    first = checkpoints_of(other)[0]

    (verified,) = [
        json.loads(
            fired_site.look("audit", "verify", "--json", "--against", str(log_of(other))).stdout
        )
    ]

    assert not verified["ok"]
    assert verified["broken"] == {
        "seq": first["rows"],
        "problem": f"the log of {first['ts']} has another head",
    }


@pytest.mark.parametrize(
    ("content", "code", "problem"),
    [
        pytest.param(b"", 65, "holds no checkpoint of the ledger", id="empty"),
        pytest.param(b'{"event":"daemon.ready"}\n', 65, "holds no checkpoint", id="none"),
        pytest.param(gzip.compress(b"x" * 9000)[:-9], 65, "ends early, or is damaged", id="cut"),
        pytest.param(None, 66, "does not exist", id="missing"),
    ],
)
def test_verify_refuses_a_log_without_checkpoints(
    fired_site: Installation, tmp_path: Path, content: bytes | None, code: int, problem: str
) -> None:
    log = tmp_path / "no log of ours"
    if content is not None:
        log.write_bytes(content)

    done = fired_site.look("audit", "verify", "--against", str(log))

    assert done.returncode == code
    assert problem in done.stderr
    assert done.stdout == ""


@pytest.fixture
def keyed(tmp_path: Path) -> Installation:
    """Return a site whose ledger has a key, in ``ledger.key`` beside the configuration."""
    site = Installation(tmp_path)
    key = tmp_path / "ledger.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    with site.config.open("a") as config:
        config.write(f"facts: {{key_file: {key}}}\n")
    site.put(PORTO)
    assert site.call("fire", "profile").returncode == 0
    return site


@pytest.mark.slow
def test_keyed_ledger_verifies_and_accepts_new_rows_with_its_key(keyed: Installation) -> None:
    keyed.put(BRAGA)

    assert keyed.run("fire", "profile").returncode == 0
    assert keyed.look("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [["audit", "verify"], ["fire", "profile"], ["run"]])
def test_command_with_another_key_exits_with_78_and_writes_nothing(
    keyed: Installation, command: list[str]
) -> None:
    keyed.put(BRAGA)
    rows = len(keyed.lines("audit", "ls"))
    keyed.config.with_name("ledger.key").write_bytes(bytes(32))

    done = keyed.run(*command)

    assert done.returncode == 78
    assert "facts.db': the ledger was begun with another key" in done.stderr
    assert len(keyed.lines("audit", "ls")) == rows


@pytest.mark.slow
def test_keyed_ledger_without_its_key_exits_with_78(keyed: Installation) -> None:
    text = keyed.config.read_text().splitlines(keepends=True)
    keyed.config.write_text("".join(line for line in text if "key_file" not in line))

    for command in (["audit", "verify"], ["fire", "profile"]):
        done = keyed.run(*command)

        assert done.returncode == 78
        assert "set facts.key_file to the file of its key" in done.stderr


@pytest.mark.slow
def test_key_that_others_can_read_exits_with_78_but_reading_needs_no_key(
    keyed: Installation,
) -> None:
    keyed.config.with_name("ledger.key").chmod(0o644)

    done = keyed.run("audit", "verify")

    assert done.returncode == 78
    assert "ledger.key: facts.key_file: is open to others" in done.stderr
    assert keyed.look("facts").returncode == keyed.look("audit", "ls").returncode == 0


@pytest.mark.slow
def test_key_file_from_the_service_manager_is_used(keyed: Installation, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    keyed.config.with_name("ledger.key").rename(given / "ledger.key")
    (given / "ledger.key").chmod(0o440)
    name = "ledger.key"

    done = keyed.run(
        "audit", "verify", SLUMBERD_FACTS__KEY_FILE=name, CREDENTIALS_DIRECTORY=str(given)
    )
    assert done.returncode == 0
    done = keyed.run("audit", "verify", SLUMBERD_FACTS__KEY_FILE=name)
    assert done.returncode == 78
    assert "$CREDENTIALS_DIRECTORY, which is not set" in done.stderr


def test_replay_makes_the_same_facts_in_a_new_file(
    fired_site: Installation, tmp_path: Path
) -> None:
    again = tmp_path / "again.db"

    done = fired_site.look("audit", "replay", str(again))

    assert done.returncode == 0
    (verified,) = fired_site.lines("audit", "verify")
    facts = fired_site.lines("facts")
    assert done.stdout == (
        f"replayed: {verified['rows']} rows of 3 firings, {len(facts)} facts\nnothing differs\n"
    )
    assert facts_of(again) == facts_of(fired_site.state / "facts.db")


def facts_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM facts ORDER BY fact_id").fetchall()


def test_replay_in_json_counts_firings_and_differences(
    fired_site: Installation, tmp_path: Path
) -> None:
    (replayed,) = fired_site.lines("audit", "replay", str(tmp_path / "again.db"))

    assert replayed["ok"]
    assert replayed["firings"] == 3
    assert (replayed["differing"], replayed["first"]) == (0, None)


@pytest.mark.slow
def test_replay_names_a_fact_that_differs_and_exits_with_1(
    site: Installation, tmp_path: Path
) -> None:
    change(
        site,
        "UPDATE facts SET confidence = 0.1 WHERE fact_id = 'e2'",
        "DELETE FROM slumberd_external_changes",
    )

    done = site.look("audit", "replay", str(tmp_path / "again.db"))

    assert done.returncode == 1
    assert done.stdout.endswith("1 difference, the first: fact 'e2' is not what the ledger says\n")


@pytest.mark.slow
def test_replay_of_a_broken_chain_creates_no_file(site: Installation, tmp_path: Path) -> None:
    change(site, "UPDATE slumberd_ledger SET version = 9 WHERE seq = 3")

    done = site.look("audit", "replay", str(tmp_path / "again.db"))

    assert done.returncode == 1
    assert "row 3: its chain hash does not follow" in done.stdout
    assert not (tmp_path / "again.db").exists()


def test_replay_onto_an_existing_file_exits_with_73(
    fired_site: Installation, tmp_path: Path
) -> None:
    (tmp_path / "again.db").touch()

    done = fired_site.look("audit", "replay", str(tmp_path / "again.db"))

    assert done.returncode == 73
    assert done.stderr.endswith("again.db' exists already: name a new file\n")


def test_replay_into_a_missing_directory_exits_with_74(
    fired_site: Installation, tmp_path: Path
) -> None:
    done = fired_site.look("audit", "replay", str(tmp_path / "none" / "again.db"))

    assert done.returncode == 74
    assert "No such file or directory" in done.stderr


@pytest.mark.parametrize("name", ["-", "ledger.jsonl", "ledger.jsonl.gz"])
def test_export_has_one_line_for_each_row(
    fired_site: Installation, tmp_path: Path, name: str
) -> None:
    file = name if name == "-" else str(tmp_path / name)

    done = fired_site.look("audit", "export", file)

    text = done.stdout.encode() if name == "-" else Path(file).read_bytes()
    lines = (gzip.decompress(text) if name.endswith(".gz") else text).splitlines()
    (verified,) = fired_site.lines("audit", "verify")
    assert done.returncode == 0
    assert [json.loads(line)["seq"] for line in lines] == [*range(1, verified["rows"] + 1)]
    assert json.loads(lines[-1])["chain"] == verified["head"]


def test_export_begins_with_the_number_of_facts_that_were_there_before(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.state.mkdir(exist_ok=True)
    change(
        site,
        "CREATE TABLE facts (fact_id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL,"
        " payload BLOB NOT NULL, lineage BLOB NOT NULL, confidence REAL NOT NULL,"
        " metadata BLOB NOT NULL, pinned_at TEXT NOT NULL)",
        "INSERT INTO facts VALUES ('a', 'alice', 'rag', '{}', '[]', 1, '{}', '2026-01-01')",
        "INSERT INTO facts VALUES ('b', 'alice', 'rag', '{}', '[]', 1, '{}', '2026-01-01')",
    )
    assert site.call("fire", "--all").returncode == 0

    first, *others = map(json.loads, site.look("audit", "export").stdout.splitlines())

    assert first["payload"]["adopted"] == 2
    assert [row["kind"] for row in others if row["firing"] == first["seq"]] == ["add", "add"]


@pytest.mark.slow
def test_export_with_after_begins_at_the_next_row(fired_site: Installation) -> None:
    done = fired_site.look("audit", "export", "--after", "4")

    assert json.loads(done.stdout.splitlines()[0])["seq"] == 5


def test_exported_file_replaces_an_older_file_and_only_its_group_can_read_it(
    fired_site: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("older\n")
    file.chmod(0o666)

    with umask(0o022):
        assert fired_site.look("audit", "export", str(file)).returncode == 0

    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.jsonl"]
    assert b"older" not in file.read_bytes()


@pytest.mark.slow
def test_failed_export_leaves_the_older_file(site: Installation, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("older\n")
    change(site, "ALTER TABLE slumberd_ledger RENAME TO gone")

    done = site.look("audit", "export", str(file))

    assert done.returncode == 74
    assert file.read_text() == "older\n"
    assert not list(tmp_path.glob(".ledger*"))


def test_compressed_exports_of_the_same_rows_are_equal(
    fired_site: Installation, tmp_path: Path
) -> None:
    for name in ("a.gz", "b.gz"):
        fired_site.look("audit", "export", str(tmp_path / name))

    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("command", [["replay", "x.db"], ["export"], ["verify"]])
def test_audit_of_an_empty_site_exits_with_66_and_creates_nothing(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = Installation(tmp_path)

    done = site.look("audit", *command)

    assert done.returncode == 66
    assert not (tmp_path / "x.db").exists()
    assert not site.state.exists()


def verifications_in(site: Installation) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log_of(site).read_bytes().splitlines()]
    return [line for line in lines if line["event"] in ("ledger.verified", "ledger.broken")]


@pytest.mark.slow
def test_verify_logs_its_result_only_with_the_option_log(site: Installation) -> None:
    assert site.call("audit", "verify").returncode == 0
    assert verifications_in(site) == []

    assert site.call("audit", "verify", "--log").returncode == 0

    [event] = verifications_in(site)
    assert event["event"] == "ledger.verified"
    assert event["head"] == checkpoints_of(site)[-1]["head"]


@pytest.mark.path
def test_verify_logs_that_a_ledger_is_broken(site: Installation) -> None:
    change(site, "UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")

    assert site.call("audit", "verify", "--log").returncode == 1

    [event] = verifications_in(site)
    assert (event["event"], event["level"], event["seq"]) == ("ledger.broken", "error", 2)


@pytest.mark.slow
def test_verify_of_the_chain_only_prints_that_nothing_else_was_verified(
    fired_site: Installation,
) -> None:
    (whole,) = fired_site.lines("audit", "verify")
    (chain,) = fired_site.lines("audit", "verify", "--chain-only")
    printed = fired_site.look("audit", "verify", "--chain-only").stdout

    assert (whole["chain_only"], chain["chain_only"]) == (False, True)
    assert chain == {**whole, "chain_only": True}
    assert printed == (
        f"chain verified, and nothing else: {whole['rows']} rows, head {whole['head']}\n"
    )


@pytest.mark.slow
def test_verify_of_the_chain_only_finds_a_missing_row(site: Installation) -> None:
    change(site, "DELETE FROM slumberd_ledger WHERE seq = 2")

    done = site.call("audit", "verify", "--chain-only")

    assert done.returncode == 1
    assert done.stdout == "broken at row 3: follows row 1: a row is missing or out of order\n"


@pytest.mark.slow
def test_verify_of_the_chain_only_refuses_the_option_log(site: Installation) -> None:
    done = site.call("audit", "verify", "--chain-only", "--log")

    assert done.returncode == 64
    assert "leave out --chain-only" in done.stderr
    assert verifications_in(site) == []
