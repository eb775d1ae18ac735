"""Commands on a database with several shards work on the shard of a user, or on the named one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.postgres_server import PostgresServer
from tests.support.shards import put_by_user, shard_of

pytestmark = pytest.mark.acceptance

SHARDS = 3
USERS = [f"user{number}" for number in range(9)]
AGENTS = [f"agent{number}" for number in range(6)]
"""The agents of one more user."""
EACH = [*range(SHARDS)]


def episodes() -> list[Episode]:
    of_users = [
        triple(f"{user}-1", user, "drinks", "tea", timestamp=at(number), user=user)
        for number, user in enumerate(USERS)
    ]
    of_agents = [
        triple(
            f"alice-{number}", f"alice{number}", "drinks", "cocoa", timestamp=at(100 + number),
            user="alice", agent=agent,
        )
        for number, agent in enumerate(AGENTS)
    ]  # fmt: skip
    return of_users + of_agents


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Files with the same episodes and rules."""
    home = Home(tmp_path_factory.mktemp("files"))
    home.rule("all", cadence={"every": 1})

    async def put() -> None:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            await memory.put_many(episodes())

    home.state.mkdir(parents=True, exist_ok=True)
    asyncio.run(put())
    home.call("fire", "--all")
    return home


@pytest.fixture(scope="module")
def home(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A database in which each user has facts."""
    with postgres.database(shards=SHARDS) as name:
        address = postgres.address_of(name)
        home = Home(tmp_path_factory.mktemp("home"), {"store": address})
        home.rule("all", cadence={"every": 1})
        asyncio.run(put_by_user(address, episodes()))
        home.call("--all-shards", "fire", "--all")
        yield home


def lines_of(home: Home, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.call(*words, "--json").stdout.splitlines()]


def users_of(shard: int) -> list[str]:
    return [user for user in USERS if shard_of(user, SHARDS) == shard]


def test_users_of_the_test_lie_in_every_shard() -> None:
    assert all(users_of(shard) for shard in EACH)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("facts", "--user", "alice"), id="facts"),
        pytest.param(("facts", "--user", "alice", "--order", "said_at"), id="facts in order"),
        pytest.param(("facts", "--user", "alice", "--agent", "agent2"), id="facts of an agent"),
        pytest.param(("recent", "alice", "--limit", "3"), id="recent"),
        pytest.param(("search", "Who drinks cocoa?", "--user", "alice"), id="search"),
        pytest.param(("context", "alice", "Who drinks cocoa?"), id="context"),
    ],
)
def test_command_about_a_user_answers_as_with_files(
    home: Home, files: Home, words: Sequence[str]
) -> None:
    found, expected = lines_of(home, *words), lines_of(files, *words)

    for line in (*found, *expected):
        for hidden in ("lineage", "pinned_at"):
            line.pop(hidden, None)
    assert found == expected != []


def test_several_users_of_one_shard_are_read_together(home: Home) -> None:
    first, second = users_of(2)[:2]

    found = lines_of(home, "facts", "--user", first, "--user", second)

    assert {fact["user"] for fact in found} == {first, second}


def test_users_of_several_shards_are_refused(home: Home) -> None:
    ended = home.call("facts", "--user", users_of(0)[0], "--user", users_of(1)[0], check=False)

    assert ended.returncode == 64
    assert "the users lie in several shards; name one user" in ended.stderr


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("facts",), id="facts"),
        pytest.param(("fire", "--all"), id="fire"),
        pytest.param(("report",), id="report"),
        pytest.param(("why", "alice-1"), id="why"),
        pytest.param(("audit", "verify"), id="audit verify"),
        pytest.param(("export",), id="export"),
        pytest.param(("doctor",), id="doctor"),
        pytest.param(("status", "--check"), id="status --check"),
    ],
)
def test_command_without_a_user_needs_a_shard(home: Home, words: Sequence[str]) -> None:
    ended = home.call(*words, check=False)

    assert ended.returncode == 64
    assert "has the shards 0, 1, 2: name one, as --shard 0" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("shard", EACH)
def test_option_chooses_one_shard(home: Home, shard: int) -> None:
    printed = home.call("--shard", str(shard), "facts").stdout

    assert "==" not in printed
    assert [user for user in USERS if user in printed] == users_of(shard)


def test_chosen_shard_prints_the_document_of_a_store(home: Home) -> None:
    (document,) = lines_of(home, "--shard", "1", "report")

    assert "shard" not in document
    assert "since" in document


def test_chosen_shard_of_another_user_is_refused(home: Home) -> None:
    user = users_of(0)[0]

    for words in (("facts", "--user", user), ("forget", "--user", user, "--yes")):
        ended = home.call("--shard", "1", *words, check=False)
        assert ended.returncode == 64
        assert f"user {user!r} lies in shard 0, and not in shard 1" in ended.stderr
    assert lines_of(home, "facts", "--user", user)


def test_all_shards_are_printed_one_after_the_other(home: Home) -> None:
    printed = home.call("--all-shards", "facts").stdout

    headings = [line for line in printed.splitlines() if line.startswith("==")]
    assert headings == [f"== shard {shard} ==" for shard in EACH]
    parts = printed.split("== shard")[1:]
    for shard, part in enumerate(parts):
        assert [user for user in USERS if user in part] == users_of(shard)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("status",), id="status"),
        pytest.param(("doctor",), id="doctor"),
        pytest.param(("report",), id="report"),
        pytest.param(("audit", "verify"), id="verify"),
        pytest.param(("next",), id="next"),
        pytest.param(("audit", "ls"), id="ls"),
        pytest.param(("rules",), id="rules"),
        pytest.param(("facts",), id="facts"),
    ],
)
def test_each_document_names_its_shard(home: Home, words: Sequence[str]) -> None:
    ended = home.call("--all-shards", *words, "--json", check=False)

    documents = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sorted({document["shard"] for document in documents}) == EACH


@pytest.mark.path
def test_quarantine_of_each_shard_is_listed(home: Home) -> None:
    ended = home.call("--all-shards", "quarantine", "ls")

    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        f"shard {shard}: nothing is in quarantine" for shard in EACH
    ]


@pytest.mark.path
def test_what_one_shard_has_is_no_error_of_the_others(home: Home) -> None:
    found = home.call("--all-shards", "why", "alice-1")
    absent = home.call("--all-shards", "why", "nothing", check=False)

    assert found.stdout.count("== shard") == 1
    assert absent.returncode == 66
    assert absent.stderr.count("slumberd: ") == 1


@pytest.mark.path
def test_what_is_true_of_the_whole_database_is_printed_once(home: Home) -> None:
    printed = home.call("--all-shards", "doctor", check=False).stdout

    assert printed.count("== shard") == SHARDS
    assert printed.count("database.not_durable") == 1  # as the server of the tests is
    assert "1 of them above" in printed


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("export",), id="export"),
        pytest.param(("audit", "export"), id="audit export"),
        pytest.param(("backup", "DIR"), id="backup"),
        pytest.param(("run",), id="run"),
    ],
)
def test_command_that_cannot_repeat_is_refused(home: Home, words: Sequence[str]) -> None:
    ended = home.call("--all-shards", *words, check=False)

    assert ended.returncode == 64
    assert "--all-shards does not repeat it" in ended.stderr


def test_user_and_all_shards_contradict_each_other(home: Home) -> None:
    for words in (("--all-shards", "facts", "--user", "alice"), ("--all-shards", "--shard", "1")):
        ended = home.call(*words, *(() if "facts" in words else ("facts",)), check=False)
        assert ended.returncode == 64


def test_status_counts_what_each_shard_has(home: Home) -> None:
    printed = home.call("status").stdout.splitlines()
    (document,) = lines_of(home, "status")

    assert [line.split()[0] for line in printed] == ["shard", *map(str, EACH)]
    for row in document["shards"]:
        own = len(users_of(row["shard"])) + len(AGENTS) * (
            shard_of("alice", SHARDS) == row["shard"]
        )
        assert (row["episodes"], row["facts"], row["pending"]) == (own, own, 0)
        assert row["holder"] is None
        assert row["fired_at"]


def test_state_of_one_shard_is_shown_as_of_one_store(home: Home) -> None:
    printed = home.call("--shard", "2", "status").stdout

    assert "PostgreSQL" in printed
    assert "== shard" not in printed


@pytest.mark.path
def test_export_of_a_user_has_the_lines_of_files(home: Home, files: Home) -> None:
    def exported(home: Home, *words: str) -> list[dict[str, Any]]:
        lines = home.call("export", "--user", "alice", *words).stdout.splitlines()
        return sorted(map(json.loads, lines), key=lambda line: str(line["id"]))

    assert exported(home) == exported(files) != []
    found, expected = exported(home, "--kind", "facts"), exported(files, "--kind", "facts")
    assert [fact["payload"] for fact in found] == [fact["payload"] for fact in expected]
    assert all(fact["promotions"][0]["firing"].startswith("all@") for fact in found)


@pytest.mark.path
def test_import_puts_each_user_into_the_own_shard(
    postgres: PostgresServer, files: Home, tmp_path: Path
) -> None:
    lines = files.call("export").stdout
    file = tmp_path / "episodes.jsonl"
    file.write_text(lines + '{"id": "broken", "content": "x", "user": "a\\u0007"}\n')
    with postgres.database(shards=SHARDS) as name:
        target = Home(tmp_path / "target", {"store": postgres.address_of(name)})
        ended = target.call("import", str(file), "--json", check=False)
        rows = {
            shard: target.call("--shard", str(shard), "export").stdout.splitlines()
            for shard in EACH
        }

    assert ended.returncode == 65
    assert json.loads(ended.stdout)["new"] == len(episodes())
    for shard, exported in rows.items():
        assert {shard_of(json.loads(line)["user"], SHARDS) for line in exported} == {shard}
    assert sorted(line for part in rows.values() for line in part) == sorted(lines.splitlines())


def test_nothing_found_names_users_of_the_shard(home: Home) -> None:
    ended = home.call("facts", "--user", "nobody")

    assert users_of(shard_of("nobody", SHARDS))[0] in ended.stderr


def test_kinds_of_findings_need_no_shard(home: Home) -> None:
    assert home.call("doctor", "--list").stdout


def test_rules_are_published_without_a_shard(home: Home) -> None:
    assert "==" not in home.call("rules", "published").stdout


def test_doctor_reports_mistakes_of_the_configuration(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text("nothing: 1\n")

    ended = home.call("doctor", check=False)

    assert ended.returncode == 1
    assert "config.invalid" in ended.stdout


def test_shard_that_is_not_there_is_refused(home: Home) -> None:
    ended = home.call("--shard", "3", "facts", check=False)

    assert ended.returncode == 64
    assert "has no shard 3; its shards are 0, 1, 2" in ended.stderr


@pytest.mark.parametrize("option", [("--shard", "0"), ("--all-shards",)])
def test_files_have_no_shards(tmp_path: Path, option: Sequence[str]) -> None:
    ended = Home(tmp_path).call(*option, "facts", check=False)

    assert ended.returncode == 64
    assert f"{option[0]} is for databases" in ended.stderr


@pytest.mark.path
@pytest.mark.parametrize("shard", EACH)
def test_rules_are_tried_on_the_episodes_of_one_shard(home: Home, shard: int) -> None:
    file = str(home.rules / "all.yaml")

    (document,) = lines_of(home, "--shard", str(shard), "check", "--against-data", file)

    of_agents = len(AGENTS) if shard_of("alice", SHARDS) == shard else 0
    assert document["data"][0]["episodes"] == len(users_of(shard)) + of_agents
