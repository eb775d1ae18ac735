"""A replay builds the same facts from the ledger alone; its file can replace the original."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from slumberd.model.errors import OutputExistsError, StoppedError
from slumberd.model.record import Break
from slumberd.storage.audit.results import Replay
from slumberd.storage.ledger.rows import EVENTS, GENESIS, KINDS, chain_of, commitment_of, fixed_part
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.replay import rebuild
from tests.support.example_ledgers import (
    ALL,
    copied,
    fire,
    forge,
    rows_of,
    said,
    write_large_ledger,
    write_ledger_of_every_kind,
)

pytestmark = pytest.mark.integration

KEY = bytes(range(32))
FACTS = "facts"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "facts.db"
    asyncio.run(write_ledger_of_every_kind(path))
    return path


async def replay(live: Path, path: Path, *, key: bytes | None = None) -> Replay:
    async with SQLiteFactStore(live, key=key) as store:
        return await store.replay(path)


def changed(live: Path, path: Path, *changes: str, forge_from: int = 0, **columns: object) -> Path:
    """Return a changed copy with recomputed hashes, so that its chain verifies."""
    with copied(live) as copy:
        for change in changes:
            copy.execute(change)
        if forge_from:
            forge(copy, forge_from, None, **columns)
        copy.execute("VACUUM INTO ?", (str(path),))
    return path


async def test_a_replay_of_everything_makes_the_same_facts(live: Path, tmp_path: Path) -> None:
    replayed = await replay(live, tmp_path / "again.db")

    rows = rows_of(live, "slumberd_ledger")
    firings = rows_of(live, "slumberd_firings")
    facts = rows_of(live, FACTS)
    assert replayed == Replay(len(rows), len(firings), len(facts), 0, 0, 0, None)
    assert rows_of(tmp_path / "again.db", FACTS) == facts


def tables_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        return [name for (name,) in found]


async def test_every_table_of_a_replay_is_equal(live: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.db"

    await replay(live, again)

    # The retractions of a key may be stored in several forms with one meaning.
    names = set(tables_of(live)) - {"slumberd_keys"}
    assert {name: rows_of(again, name) for name in names} == {
        name: rows_of(live, name) for name in names
    }
    assert len(rows_of(again, "slumberd_keys")) == len(rows_of(live, "slumberd_keys"))


async def test_the_new_file_can_replace_the_original(live: Path, tmp_path: Path) -> None:
    ours = changed(live, tmp_path / "ours.db")
    await replay(ours, tmp_path / "again.db")
    news = [said("e20", 20, subject="alice", predicate="lives_in", object="Lagos")]
    records = []
    for path in (ours, tmp_path / "again.db"):
        async with SQLiteFactStore(path, synchronous="normal") as store:
            await store.bootstrap()
            records.append((await fire(store, ALL, news)).records)
            assert (await store.verify())[2] is None

    assert records[0] == records[1]


async def test_a_keyed_ledger_is_replayed_with_its_key(tmp_path: Path) -> None:
    await write_ledger_of_every_kind(tmp_path / "facts.db", KEY)

    replayed = await replay(tmp_path / "facts.db", tmp_path / "again.db", key=KEY)

    assert replayed.differing == 0
    async with SQLiteFactStore(tmp_path / "again.db", key=KEY) as store:
        assert (await store.verify())[2] is None


async def test_an_existing_file_is_not_overwritten(live: Path, tmp_path: Path) -> None:
    (tmp_path / "again.db").write_text("mine")

    with pytest.raises(OutputExistsError, match="exists already"):
        await replay(live, tmp_path / "again.db")

    assert (tmp_path / "again.db").read_text() == "mine"


async def test_a_broken_chain_is_not_replayed_and_leaves_no_file(
    live: Path, tmp_path: Path
) -> None:
    broken = "UPDATE slumberd_ledger SET version = 99 WHERE seq = 5"
    path = changed(live, tmp_path / "broken.db", broken)

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.broken
    assert replayed.first is not None
    assert replayed.first.seq == 5
    assert {file.name for file in tmp_path.iterdir()} <= {
        "broken.db", "broken.db-wal", "broken.db-shm",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE facts SET confidence = 0.25 WHERE fact_id = 'p1'",
        "UPDATE facts SET payload = CAST(payload AS TEXT) WHERE fact_id = 'p1'",
        "DELETE FROM facts WHERE fact_id = 'p1'",
        "INSERT INTO facts SELECT 'p2', user, agent, payload, lineage, confidence, metadata,"
        " pinned_at FROM facts WHERE fact_id = 'p1'",
    ],
)
async def test_a_differing_fact_is_named(live: Path, tmp_path: Path, change: str) -> None:
    path = changed(live, tmp_path / "changed.db", change, "DELETE FROM slumberd_external_changes")

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.differing == 1
    assert replayed.first is not None
    assert replayed.first.problem in (
        "fact 'p1' is not what the ledger says", "fact 'p2' is not what the ledger says",
    )  # fmt: skip
    assert rows_of(tmp_path / "again.db", FACTS) == rows_of(live, FACTS)


async def test_a_lost_fact_is_counted_beside_a_surplus_one(live: Path, tmp_path: Path) -> None:
    path = changed(
        live,
        tmp_path / "changed.db",
        "INSERT INTO facts SELECT 'zz', user, agent, payload, lineage, confidence, metadata,"
        " pinned_at FROM facts WHERE fact_id = 'p1'",
        "DELETE FROM facts WHERE fact_id = 'p1'",
        "DELETE FROM slumberd_external_changes",
    )

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.differing == 2
    assert replayed.first == Break(0, "fact 'p1' is not what the ledger says")


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", ["user", "agent", "payload", "lineage", "metadata", "pinned_at", "confidence"]
)
async def test_any_differing_column_of_a_fact_is_found(
    live: Path, tmp_path: Path, column: str
) -> None:
    other = f"UPDATE facts SET {column} = '0.125' WHERE fact_id = 'p1'"
    path = changed(live, tmp_path / "changed.db", other, "DELETE FROM slumberd_external_changes")

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.first == Break(0, "fact 'p1' is not what the ledger says")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM slumberd_keys WHERE winner_fact = 'e11'",
        "INSERT INTO slumberd_keys SELECT key || 'x', slot, key_id, winner_at, winner_rank,"
        " winner_id, winner_part, winner_fact, winner_object, retractions, replaced"
        " FROM slumberd_keys WHERE winner_fact = 'e11'",
    ],
    ids=["missing", "too many"],
)
async def test_differing_keys_are_found(live: Path, tmp_path: Path, change: str) -> None:
    path = changed(live, tmp_path / "changed.db", change)

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.first is not None
    assert "the key of row" in replayed.first.problem


async def test_a_new_file_has_every_index_and_trigger(live: Path, tmp_path: Path) -> None:
    await replay(live, tmp_path / "again.db")

    assert schema_of(tmp_path / "again.db") == schema_of(live)


def schema_of(path: Path) -> list[tuple[str, str, str]]:
    query = (
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') ORDER BY 2"
    )
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


async def test_a_differing_key_is_named(live: Path, tmp_path: Path) -> None:
    change = "UPDATE slumberd_keys SET winner_at = winner_at + 1 WHERE winner_fact = 'e11'"
    path = changed(live, tmp_path / "changed.db", change)

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.differing > 0
    assert replayed.first is not None
    assert "the key of row" in replayed.first.problem


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("kind", KINDS.index("noop"), id="kind"),
        pytest.param("what", EVENTS.index("restored"), id="what"),
        pytest.param("replaces", '["e3"]', id="replaces"),
        pytest.param("replaces", None, id="replaces nothing"),
        pytest.param("reason", "stale", id="reason"),
        pytest.param("delta", 1, id="first"),
        pytest.param("key_id", 4, id="key"),
    ],
)
async def test_a_delta_that_the_precedence_rule_does_not_make_is_named_at_its_row(
    live: Path, tmp_path: Path, column: str, value: object
) -> None:
    row = next(r for r in rows_of(live, "slumberd_ledger") if r["replaces"] == '["e1"]')
    path = changed(live, tmp_path / "forged.db", forge_from=row["seq"], **{column: value})

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.first is not None
    assert replayed.first.seq == row["seq"]
    assert "comes out as" in replayed.first.problem


async def test_the_first_difference_names_the_recorded_and_the_recomputed_delta(
    live: Path, tmp_path: Path
) -> None:
    path = changed(
        live, tmp_path / "forged.db", forge_from=3, kind=KINDS.index("add"), replaces=None
    )

    replayed = await replay(path, tmp_path / "again.db")

    assert replayed.first == Break(
        3, "recorded as add 'e2', comes out as update 'e2' replacing [\"e1\"]"
    )


@pytest.mark.nightly
async def test_a_large_ledger_is_replayed_byte_by_byte(tmp_path: Path) -> None:
    live, again = tmp_path / "facts.db", tmp_path / "again.db"
    await write_large_ledger(live, 20_000)

    replayed = await replay(live, again)

    assert replayed.differing == 0
    assert rows_of(again, FACTS) == rows_of(live, FACTS)


@pytest.mark.parametrize("after", [0, 17, 10_000])
async def test_an_export_has_every_column_of_every_row(live: Path, after: int) -> None:
    async with SQLiteFactStore(live) as store:
        last, lines = await store.reads.export(after=after, limit=1_000)

    rows = [row for row in rows_of(live, "slumberd_ledger") if row["seq"] > after]
    assert last == max([after, *(row["seq"] for row in rows)])
    assert [as_row(orjson.loads(line)) for line in lines] == rows


def as_row(document: dict[str, object]) -> dict[str, object]:
    """Return the ledger row of an exported line."""
    unhex: Callable[[object], bytes | None] = lambda text: text and bytes.fromhex(str(text))  # type: ignore[assignment,return-value] # noqa: E731
    return {
        "seq": document["seq"],
        "delta": document["delta"],
        "firing": document["firing"],
        "what": EVENTS.index(str(document["what"])),
        "kind": [*KINDS].index(document["kind"]),  # type: ignore[arg-type] # it is one of them
        "reason": document["reason"],
        "version": document["version"],
        "key_id": document["key_id"],
        "at": document["at"],
        "fact_id": document["fact_id"],
        "replaces": document["replaces"] and orjson.dumps(document["replaces"]).decode(),
        "salt": unhex(document["salt"]),
        "payload": document["payload"] and orjson.dumps(document["payload"]),
        "commitment": unhex(document["commitment"]),
        "chain": unhex(document["chain"]),
    }


async def test_the_chain_can_be_computed_again_from_an_export_alone(live: Path) -> None:
    async with SQLiteFactStore(live) as store:
        _, lines = await store.reads.export(after=0, limit=1_000)
        head = await store.ledger.head()

    previous = GENESIS
    for line in lines:
        row = as_row(orjson.loads(line))
        previous = next_hash(previous, row)

    assert previous == head.head


def next_hash(previous: bytes, row: dict[str, object]) -> bytes:
    erasable = [row[name] for name in ("key_id", "at", "fact_id", "replaces", "payload")]
    content = [value.encode() if isinstance(value, str) else value for value in erasable]
    commitment = commitment_of(row["salt"], *content)  # type: ignore[arg-type] # as in the table
    numbers = [row[name] for name in ("seq", "delta", "firing", "version", "what", "kind")]
    fixed = fixed_part(*numbers)  # type: ignore[arg-type] # as in the table
    return chain_of(None, previous, commitment, fixed, str(row["reason"]).encode())


async def test_an_export_names_the_firing_of_each_row(live: Path) -> None:
    async with SQLiteFactStore(live) as store:
        _, [line] = await store.reads.export(after=1, limit=1)

    document = orjson.loads(line)
    assert {name: document[name] for name in ("firing_id", "rule_id", "trigger", "fired_at")} == {
        "firing_id": "all@1",
        "rule_id": "all",
        "trigger": "every",
        "fired_at": "2026-01-01T12:01:40.000000Z",
    }
    assert document["rule_hash"] == ALL.content_hash


async def test_erased_columns_are_null_in_an_export(live: Path, tmp_path: Path) -> None:
    erase = (
        "UPDATE slumberd_ledger SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL,"
        " salt = NULL, payload = NULL WHERE seq = 2"
    )
    path = changed(live, tmp_path / "erased.db", erase)
    async with SQLiteFactStore(path) as store:
        _, [line] = await store.reads.export(after=1, limit=1)

    document = orjson.loads(line)

    assert {name for name, value in document.items() if value is None} == {
        "key_id", "at", "fact_id", "replaces", "salt", "payload",
    }  # fmt: skip


async def test_a_payload_of_invalid_json_is_exported_in_hexadecimal(
    live: Path, tmp_path: Path
) -> None:
    path = changed(
        live, tmp_path / "bad.db", "UPDATE slumberd_ledger SET payload = x'7b' WHERE seq = 2"
    )
    async with SQLiteFactStore(path) as store:
        _, [line] = await store.reads.export(after=1, limit=1)

    assert orjson.loads(line)["payload"] == {"broken": "7b"}


def test_a_cancelled_replay_leaves_no_file(much: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.db"

    with pytest.raises(StoppedError):
        rebuild(much, path, 8, None, cancelled=lambda: True)

    assert [*tmp_path.iterdir()] == []
