"""Commands that read a database with several shards read each shard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shards import shard_of
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.acceptance

SHARDS = 3
USERS = [f"user{number}" for number in range(9)]
AGENT = "rag"


AGENTS = [f"agent{number}" for number in range(6)]
"""The agents of one more user, whose facts lie in several shards."""


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


def lines_of(home: Home, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.call(*words, "--json").stdout.splitlines()]


@pytest.fixture(scope="module")
def home(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A database in which each user has one fact."""
    with postgres.database(shards=SHARDS) as name:
        address = postgres.address_of(name)
        home = Home(tmp_path_factory.mktemp("home"), {"store": address})
        home.rule("all", cadence={"every": 1})

        async def put() -> None:
            async with PostgresMemoryStore(address) as memory:
                await memory.put_many(episodes())

        asyncio.run(put())
        home.call("fire", "--all")
        yield home


def of_shard(shard: int) -> list[str]:
    return [user for user in USERS if shard_of(user, AGENT, SHARDS) == shard]


def test_users_of_the_test_lie_in_every_shard() -> None:
    assert all(of_shard(shard) for shard in range(SHARDS))


def test_agents_of_the_test_lie_in_several_shards() -> None:
    assert len({shard_of("alice", agent, SHARDS) for agent in AGENTS}) > 1


ORDERS = [(), ("--descending",), ("--order", "said_at"), ("--order", "said_at", "--descending")]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(order) or "default")
def test_facts_are_those_of_files_in_the_same_order(
    home: Home, files: Home, order: Sequence[str]
) -> None:
    found = lines_of(home, "facts", *order)

    assert len(found) == len(USERS) + len(AGENTS)
    assert [fact["id"] for fact in found] == [
        fact["id"] for fact in lines_of(files, "facts", *order)
    ]


def test_pages_of_facts_hold_each_fact_once(home: Home, files: Home) -> None:
    found: list[str] = []
    after: list[str] = []
    while True:
        page = home.call("facts", "--json", "--limit", "4", *after)
        found += [json.loads(line)["id"] for line in page.stdout.splitlines()]
        if not page.stderr:
            break
        after = ["--after", json.loads(page.stderr)["after"]]

    assert found == [fact["id"] for fact in lines_of(files, "facts")]


def test_facts_are_one_table(home: Home, files: Home) -> None:
    printed = home.call("facts").stdout

    assert "==" not in printed
    assert [line.split()[0] for line in printed.splitlines()] == [
        line.split()[0] for line in files.call("facts").stdout.splitlines()
    ]


@pytest.mark.parametrize("limit", ["3", "20"])
def test_recent_episodes_are_those_of_files(home: Home, files: Home, limit: str) -> None:
    found = lines_of(home, "recent", "alice", "--limit", limit)

    assert found == lines_of(files, "recent", "alice", "--limit", limit)
    assert len(found) == min(int(limit), len(AGENTS))


def test_hits_are_those_of_files(home: Home, files: Home) -> None:
    words = ("search", "Who drinks cocoa?", "--user", "alice", "--limit", "20")

    found = lines_of(home, *words)

    assert [hit["score"] for hit in found] == sorted((h["score"] for h in found), reverse=True)
    assert {hit["id"] for hit in found} == {hit["id"] for hit in lines_of(files, *words)}


def test_hits_are_at_most_as_many_as_the_limit(home: Home) -> None:
    words = ("search", "Who drinks cocoa?", "--user", "alice", "--limit", "2")

    assert len(lines_of(home, *words)) == 2


def test_context_holds_the_items_of_files(home: Home, files: Home) -> None:
    words = ("context", "alice", "Who drinks cocoa?")

    (found,), (expected,) = lines_of(home, *words), lines_of(files, *words)

    assert found.keys() == expected.keys()
    assert {item["id"] for item in found["items"]} == {item["id"] for item in expected["items"]}


def test_nothing_found_names_users_of_all_shards(home: Home) -> None:
    ended = home.call("facts", "--user", "nobody")

    assert all(user in ended.stderr for user in USERS[:3])


@pytest.mark.path
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("status",), id="status"),
        pytest.param(("doctor",), id="doctor"),
        pytest.param(("report",), id="report"),
        pytest.param(("audit", "verify"), id="verify"),
    ],
)
def test_document_of_several_shards_is_one_document(home: Home, words: Sequence[str]) -> None:
    ended = home.call(*words, "--json", check=False)

    (document,) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [part["shard"] for part in document["shards"]] == [*range(SHARDS)]


def test_chosen_shard_prints_the_document_of_a_store(home: Home) -> None:
    (document,) = lines_of(home, "--shard", "1", "report")

    assert "shard" not in document
    assert "since" in document


@pytest.mark.nightly
def test_outcome_of_an_episode_is_found_in_its_shard(home: Home) -> None:
    for user in USERS:
        printed = home.call("why-not", f"{user}-1").stdout
        assert printed.count("== shard") == 1
        assert f"== shard {shard_of(user, AGENT, SHARDS)} ==" in printed


@pytest.mark.nightly
def test_doctor_does_not_object_to_several_shards(home: Home) -> None:
    printed = home.call("doctor", check=False).stdout

    assert "database.shards" not in printed
    assert printed.count("== shard") == SHARDS


@pytest.mark.nightly
def test_what_is_true_of_the_whole_database_is_printed_once(home: Home) -> None:
    status, doctor = (home.call(word, check=False).stdout for word in ("status", "doctor"))

    assert status.count("PostgreSQL") == 1
    assert doctor.count("database.not_durable") == 1  # as the server of the tests is
    assert "1 of them above" in doctor


def test_kinds_of_findings_are_listed_once(home: Home) -> None:
    assert "==" not in home.call("doctor", "--list").stdout


def test_doctor_reports_mistakes_of_the_configuration(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text("nothing: 1\n")

    ended = home.call("doctor", check=False)

    assert ended.returncode == 1
    assert "config.invalid" in ended.stdout


@pytest.mark.parametrize("shard", range(SHARDS))
def test_option_chooses_one_shard(home: Home, shard: int) -> None:
    printed = home.call("--shard", str(shard), "facts").stdout

    assert "==" not in printed
    assert [user for user in USERS if user in printed] == of_shard(shard)


@pytest.mark.path
def test_user_and_agent_are_read_from_their_shard_only(home: Home) -> None:
    printed = home.call("facts", "--user", USERS[0], "--agent", AGENT).stdout

    assert "==" not in printed
    assert USERS[0] in printed


def test_user_of_one_shard_is_no_error_of_the_others(home: Home) -> None:
    assert "tea" in home.call("why", f"{USERS[0]}-1").stdout
    assert "drinks" in home.call("facts", "--user", USERS[0]).stdout


def test_unknown_fact_is_an_error_of_all_shards(home: Home) -> None:
    ended = home.call("why", "nothing", check=False)

    assert ended.returncode == 66
    assert ended.stderr.count("slumberd: ") == 1


def test_ledger_of_each_shard_is_verified(home: Home) -> None:
    printed = home.call("audit", "verify").stdout

    assert printed.count("verified: ") == SHARDS


@pytest.mark.path
def test_state_of_each_shard_is_shown(home: Home) -> None:
    assert home.call("status").stdout.count("== shard") == SHARDS


@pytest.mark.path
def test_quarantine_of_each_shard_is_listed(home: Home) -> None:
    ended = home.call("quarantine", "ls")

    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        f"shard {shard}: nothing is in quarantine" for shard in range(SHARDS)
    ]


def test_rules_are_published_without_a_heading(home: Home) -> None:
    assert "==" not in home.call("rules", "published").stdout


def test_export_has_the_lines_of_all_shards(home: Home, files: Home) -> None:
    def exported(home: Home, *words: str) -> list[dict[str, Any]]:
        lines = home.call("export", *words).stdout.splitlines()
        return sorted(map(json.loads, lines), key=lambda line: str(line["id"]))

    assert exported(home) == exported(files)
    found, expected = exported(home, "--kind", "facts"), exported(files, "--kind", "facts")
    assert [fact["payload"] for fact in found] == [fact["payload"] for fact in expected]
    for fact in found:
        (promotion,) = fact["promotions"]
        shard = shard_of(fact["user"], fact["agent"], SHARDS)
        assert promotion["firing"].startswith(f"{shard}~all@")


@pytest.mark.path
def test_export_of_a_shard_has_its_lines_only(home: Home) -> None:
    exported = home.call("--shard", "1", "export", "--kind", "facts").stdout

    assert [user for user in USERS if f'"{user}"' in exported] == of_shard(1)
    assert "~" not in exported


@pytest.mark.path
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("audit", "replay", "FILE"), id="replay"),
        pytest.param(("audit", "export"), id="audit export"),
    ],
)
def test_command_that_cannot_merge_needs_a_shard(
    home: Home, words: Sequence[str], tmp_path: Path
) -> None:
    words = [str(tmp_path / "new.db") if word == "FILE" else word for word in words]

    ended = home.call(*words, check=False)

    assert ended.returncode == 64
    assert "name one by --shard" in ended.stderr
    assert ended.stdout == ""
    assert home.call("--shard", "0", *words).stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("next",), id="next"),
        pytest.param(("diff", "RULES"), id="diff"),
        pytest.param(("audit", "ls"), id="ls"),
        pytest.param(("rules",), id="rules"),
    ],
)
def test_lines_of_several_shards_name_their_shard(home: Home, words: Sequence[str]) -> None:
    lines = lines_of(home, *(str(home.rules) if word == "RULES" else word for word in words))

    assert {line["shard"] for line in lines} == {*range(SHARDS)}


def test_shard_that_is_not_there_is_refused(home: Home) -> None:
    ended = home.call("--shard", "3", "facts", check=False)

    assert ended.returncode == 64
    assert "the shards 0 to 2" in ended.stderr


def test_files_have_no_shards(tmp_path: Path) -> None:
    ended = Home(tmp_path).call("--shard", "0", "facts", check=False)

    assert ended.returncode == 64
    assert "--shard is for databases" in ended.stderr


@pytest.mark.path
@pytest.mark.parametrize("shard", range(SHARDS))
def test_rules_are_tried_on_the_episodes_of_one_shard(home: Home, shard: int) -> None:
    file = str(home.rules / "all.yaml")

    (document,) = lines_of(home, "--shard", str(shard), "check", "--against-data", file)

    of_agents = [agent for agent in AGENTS if shard_of("alice", agent, SHARDS) == shard]
    assert document["data"][0]["episodes"] == len(of_shard(shard)) + len(of_agents)
