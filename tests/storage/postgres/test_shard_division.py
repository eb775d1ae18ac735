"""Each row of a state directory goes to the shard of its user and agent, or to every shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from slumberd.model.scope import Scope
from slumberd.storage.ledger.rows import EVENTS
from slumberd.storage.postgres.copies.shard_division import ShardDivision
from slumberd.storage.postgres.shards import shard_of
from slumberd.storage.sqlite.file_rows import TABLES

SHARDS = 3
OWNERS = ("ann", "bob", "cid", "dan")
OWN = {user: shard_of(user, "rag", SHARDS) for user in OWNERS}
EVERY = [*range(SHARDS)]
BY_NAME = {table.name: table for table in TABLES}
SALT = b"s" * 16


def scope_key(user: str) -> str:
    return Scope(user, "s1", "rag").key


def key_of(user: str) -> str:
    return f"{user}/rag/facts/x/likes"


def ledger_row(seq: int, event: str = "claim", **given: Any) -> tuple[Any, ...]:
    """Return a row of the ledger in the order of its columns, with a commitment and a chain."""
    row = {
        "seq": seq, "first": seq, "firing": 1, "event": EVENTS.index(event), "kind": 1,
        "reason": "", "version": 0, "key_id": None, "at": None, "fact_id": None, "replaces": None,
        "salt": SALT, "payload": None, "commitment": b"c" * 32, "chain": b"h" * 32,
    }  # fmt: skip
    return (*{**row, **given}.values(),)


@pytest.fixture
def division() -> ShardDivision:
    """Provide a division that knows a key and an episode of each owner, by the owner's place."""
    keys = [(key_of(user), "", number) for number, user in enumerate(OWNERS, 1)]

    def find(ids: Sequence[str]) -> Mapping[str, int]:
        return {id: OWN[id] for id in ids if id in OWN}

    made = ShardDivision(SHARDS, keys, {7}, find, mismatch="quarantine", key=None)
    episodes = [episode(number, user) for number, user in enumerate(OWNERS, 1)]
    made.divide(BY_NAME["episodes"], episodes)
    return made


def episode(number: int, user: str) -> tuple[Any, ...]:
    content = {"content": "hi", "user": user, "session": "s1", "agent": "rag"}
    return number, f"e{number}", scope_key(user), orjson.dumps(content), "2026-03-01", b"{}"


def places(division: ShardDivision, table: str, *rows: Sequence[Any]) -> list[list[int]]:
    """Return the shards of each row."""
    given = [tuple(row) for row in rows]
    found = division.divide(BY_NAME[table], given)
    return [
        [shard for shard in EVERY if any(own[0] == row[0] for own in found.get(shard, ()))]
        for row in given
    ]


def test_owners_of_this_test_lie_in_every_shard() -> None:
    assert {*OWN.values()} == {*EVERY}


@pytest.mark.parametrize("number", range(1, len(OWNERS) + 1))
def test_row_with_an_owner_goes_to_its_shard(division: ShardDivision, number: int) -> None:
    user = OWNERS[number - 1]
    own = [[OWN[user]]]
    owner = f"{user}/rag/facts/"
    rows: dict[str, tuple[Any, ...]] = {
        "episode_log": (20, number, "e"),
        "episode_deletions": (20, number),
        "accesses": ("e", scope_key(user), 1, 2, 3),
        "extractions": ("k", user, "m"),
        "model_summaries": ("k", user, "m"),
        "model_requests": ("e", "r", scope_key(user), "k", "{}"),
        "facts": ("f", user, "rag", b"{}"),
        "keys": (key_of(user), "", number),
        "quarantine": ("all", "facts", "e", 1, owner, "", "", 9),
        "ledger": ledger_row(20, key_id=number, fact_id="f", payload=b'{"names":["e"]}'),
    }

    for table, row in rows.items():
        assert places(division, table, row) == own, table
    assert places(division, "claim_references", ("e", "f")) == own
    owned = orjson.dumps({"owner": owner})
    assert places(division, "ledger", ledger_row(21, "quarantine", payload=owned)) == own
    assert places(division, "ledger", ledger_row(22, "known", first=20)) == own


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("ledger", ledger_row(20, "firing", payload=b'{"owner":"ann/rag/facts/"}')),
        ("ledger", ledger_row(20, salt=None)),
        ("ledger", ledger_row(20, "undone", payload=b'{"undoes":1,"owner":""}')),
        ("firings", (20, "all")),
        ("watermark", ("all", 7, "e", 1)),
        ("successes", ("all", 1)),
        ("channels", (1, b"{}")),
        ("generations", (1, 1)),
        ("held_batches", ("all", 1, 7, "e", "", 0)),
        ("unfinished_erasures", ("s", b"[]", 1, "me")),
        ("numbers", ("logged", 3)),
        ("episode_log", (20, None, "e")),
        ("episode_log", (20, 99, "e")),
        ("episode_log", (7, 1, "e")),
        ("episode_deletions", (20, 99)),
    ],
)
def test_row_without_an_owner_goes_to_every_shard(
    division: ShardDivision, table: str, row: Sequence[Any]
) -> None:
    assert places(division, table, row) == [EVERY]


def test_erased_row_goes_to_every_shard_though_it_repeats_a_row_of_one(
    division: ShardDivision,
) -> None:
    places(division, "ledger", ledger_row(20, key_id=1))

    assert places(division, "ledger", ledger_row(21, "known", first=20, salt=None)) == [EVERY]


def test_answer_about_an_episode_that_is_gone_goes_nowhere(division: ShardDivision) -> None:
    assert places(division, "extractions", ("k", "gone", "m")) == [[]]


def test_usage_of_models_is_counted_once(division: ShardDivision) -> None:
    assert places(division, "model_usage", ("2026-03-01", 1, 2, 3, 4)) == [[0]]


@pytest.mark.parametrize(
    ("mismatch", "owner"), [("trust_episode", "bob"), ("trust_scope", "ann"), ("quarantine", "ann")]
)
def test_episode_goes_to_the_owner_that_rules_read(mismatch: Any, owner: str) -> None:
    division = ShardDivision(SHARDS, [], (), lambda _: {}, mismatch=mismatch, key=None)
    number, id, _, content, *rest = episode(1, "bob")

    row = (number, id, scope_key("ann"), content, *rest)
    assert places(division, "episodes", row) == [[OWN[owner]]]


def test_episode_without_a_readable_scope_has_the_shard_of_nobody() -> None:
    division = ShardDivision(SHARDS, [], (), lambda _: {}, mismatch="quarantine", key=None)
    nobody = [[shard_of("", "", SHARDS)]]

    assert places(division, "episodes", (1, "e1", "junk", b"junk", "", b"")) == nobody
    assert places(division, "accesses", ("e1", "junk", 1, 2, 3)) == nobody
    assert places(division, "quarantine", ("all", "facts", "e1", 1, "//facts/")) == nobody
