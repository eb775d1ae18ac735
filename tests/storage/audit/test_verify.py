"""Verify a ledger by pages of keys, or the chain only: what verify finds, and what it misses."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.record import Break, Checkpoint
from slumberd.storage.audit.table_check import KeyPages, MixedKeysError
from slumberd.storage.audit.verify import verify
from slumberd.storage.ledger.history import facts_at
from slumberd.storage.sqlite.connection import LOCKED, UNCHANGING, connect
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.example_ledgers import (
    ALL,
    NOTES,
    copied,
    fire,
    forge,
    rows_of,
    said,
)
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

DEPTH = 8


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twice") / "facts.db"
    asyncio.run(write_claims(path))
    return path


async def write_claims(path: Path) -> None:
    """Write a ledger of claims that two rules evaluated, some of them as edits."""
    tea, edited = (
        [said(f"e{n}", seq, subject=f"s{n % 3}", predicate="is", object=n) for n, seq in numbers]
        for numbers in (enumerate(range(1, 9)), ((n, 10 + n) for n in (2, 4)))
    )
    async with SQLiteFactStore(path, synchronous="normal") as store:
        await store.bootstrap()
        for fired in (ALL, NOTES):
            await fire(store, fired, tea)
        await fire(store, NOTES, edited)


@pytest.fixture
def rows(everything: Path) -> list[dict[str, Any]]:
    return rows_of(everything, "slumberd_ledger")


def chain_only(connection: sqlite3.Connection, *against: Checkpoint) -> Break | None:
    return verify(session_of(connection), DEPTH, against, chain_only=True)[2]


@pytest.mark.parametrize("page_rows", [1, 2, 7, 100, 2_000])
@pytest.mark.parametrize("story", ["everything", "much", "twice"])
def test_key_pages_of_any_size_have_the_same_current_facts(
    story: str, page_rows: int, request: pytest.FixtureRequest
) -> None:
    with copied(request.getfixturevalue(story)) as copy:
        paged = [fact for page in KeyPages(session_of(copy), DEPTH, page_rows) for fact in page]
        whole = facts_at(session_of(copy), user=None, depth=DEPTH)

    assert sorted(paged, key=lambda fact: fact.fact_id) == whole


def test_key_pages_can_be_read_again(everything: Path) -> None:
    with copied(everything) as copy:
        pages = KeyPages(session_of(copy), DEPTH)

        assert list(pages) == list(pages)


@pytest.mark.slow
@pytest.mark.parametrize("page_rows", [1, 2_000])
def test_verify_reads_facts_by_key_when_the_numbers_of_keys_are_mixed(
    much: Path, page_rows: int
) -> None:
    claims = [row for row in rows_of(much, "slumberd_ledger") if row["key_id"] and row["what"] == 1]
    again = next(row for row in reversed(claims) if row["key_id"] != row["seq"])
    two_keys_of_one_number = claims[-1]["seq"], claims[0]["key_id"]
    two_numbers_of_one_key = again["seq"], again["seq"]
    for seq, key_id in (two_keys_of_one_number, two_numbers_of_one_key):
        with copied(much) as copy:
            forge(copy, seq, None, key_id=key_id)

            with pytest.raises(MixedKeysError):
                list(KeyPages(session_of(copy), DEPTH, page_rows))
            assert verify(session_of(copy), DEPTH)[2] is None
            copy.execute("UPDATE facts SET confidence = 0.25")
            assert verify(session_of(copy), DEPTH)[2] is not None


def test_a_claim_without_the_number_of_its_key_is_found(
    everything: Path, rows: list[dict[str, Any]]
) -> None:
    claim = next(row for row in rows if row["what"] == 1)
    with copied(everything) as copy:
        forge(copy, claim["seq"], None, key_id=None)

        assert verify(session_of(copy), DEPTH)[2] == Break(claim["seq"], "is a claim without a key")


def test_the_first_of_many_differing_facts_is_named(everything: Path) -> None:
    with copied(everything) as copy:
        ids = [row[0] for row in copy.execute("SELECT fact_id FROM facts ORDER BY fact_id")]
        copy.execute("UPDATE facts SET metadata = '[]'")
        copy.execute("DELETE FROM slumberd_external_changes")

        assert verify(session_of(copy), DEPTH)[2] == Break(
            0, f"fact {ids[0]!r} is not what the ledger says"
        )


def test_the_chain_alone_counts_the_same_rows_and_comes_to_the_same_head(everything: Path) -> None:
    with copied(everything) as copy:
        assert verify(session_of(copy), DEPTH, chain_only=True) == verify(session_of(copy), DEPTH)


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", ["delta", "firing", "version", "what", "kind", "commitment", "chain"]
)
def test_the_chain_alone_finds_another_label_on_any_row(
    everything: Path, rows: list[dict[str, Any]], column: str
) -> None:
    for row in rows:
        with copied(everything) as copy:
            value = "zeroblob(32)" if column in ("commitment", "chain") else f"{column} + 1"
            copy.execute(f"UPDATE slumberd_ledger SET {column} = {value} WHERE seq = {row['seq']}")

            broken = chain_only(copy)

        assert broken == Break(row["seq"], "its chain hash does not follow from the row before")


def test_the_chain_alone_finds_a_number_out_of_range(everything: Path) -> None:
    with copied(everything) as copy:
        copy.execute("UPDATE slumberd_ledger SET what = 256 WHERE seq = 3")

        broken = chain_only(copy)

    assert broken is not None
    assert broken.seq == 3


def test_the_chain_alone_misses_a_row_that_was_removed(
    everything: Path, rows: list[dict[str, Any]]
) -> None:
    for row in rows[:-1]:
        with copied(everything) as copy:
            copy.execute(f"DELETE FROM slumberd_ledger WHERE seq = {row['seq']}")

            broken = chain_only(copy)

        problem = f"follows row {row['seq'] - 1}: a row is missing or out of order"
        assert broken == Break(row["seq"] + 1, problem)


def test_the_chain_alone_is_compared_with_checkpoints(
    everything: Path, rows: list[dict[str, Any]]
) -> None:
    last = rows[-1]
    with copied(everything) as copy:
        assert chain_only(copy, Checkpoint(last["seq"], last["chain"], "today")) is None
        other = chain_only(copy, Checkpoint(last["seq"], bytes(32), "today"))
        cut = chain_only(copy, Checkpoint(last["seq"] + 1, bytes(32), "today"))

    assert other == Break(last["seq"], "the log of today has another head")
    assert cut is not None
    assert cut.seq == last["seq"]


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("UPDATE slumberd_ledger SET payload = x'7b7d' WHERE seq = 2", id="content"),
        pytest.param("UPDATE slumberd_firings SET rule = 'x'", id="firing"),
        pytest.param("UPDATE facts SET confidence = 0.25", id="fact"),
    ],
)
def test_chain_alone_does_not_check(everything: Path, sql: str) -> None:
    with copied(everything) as copy:
        copy.execute(sql)

        assert verify(session_of(copy), DEPTH)[2] is not None
        assert chain_only(copy) is None


def verified(path: Path, how: str = UNCHANGING) -> Break | None:
    with closing(connect(path, Pragmas(), access="read", how=how)) as connection:
        return verify(session_of(connection), DEPTH)[2]


def write_changed(path: Path, folder: Path, sql: str) -> Path:
    """Return a copy of a database, changed by a statement."""
    copy = folder / "changed.db"
    with copied(path) as source, closing(sqlite3.connect(copy)) as target:
        source.execute(sql)
        source.execute("DELETE FROM slumberd_external_changes")
        source.backup(target)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        pytest.param("UPDATE facts SET confidence = 0.25", "is not what", id="all differ"),
        pytest.param("DELETE FROM facts", "is missing", id="all missing"),
        pytest.param(
            "UPDATE facts SET pinned_at = 'x' WHERE rowid = (SELECT min(rowid) FROM facts)",
            "is not what",
            id="the first",
        ),
        pytest.param(
            "UPDATE facts SET pinned_at = 'x' WHERE rowid = (SELECT max(rowid) FROM facts)",
            "is not what",
            id="the last",
        ),
        pytest.param(
            "INSERT INTO facts SELECT 'x', user, agent, payload, lineage, confidence, metadata,"
            " pinned_at FROM facts LIMIT 1",
            "is not what",
            id="one surplus",
        ),
    ],
)
def test_verify_finds_the_same_in_a_file_that_other_programs_may_write(
    much: Path, sql: str, problem: str, tmp_path: Path
) -> None:
    copy = write_changed(much, tmp_path, sql)

    broken = verified(copy)

    assert broken is not None
    assert problem in broken.problem
    assert broken == verified(copy, LOCKED)


def pairs_of_instants(path: Path) -> list[tuple[int | None, int | None]]:
    """Return pairs of instants (valid, believed), from before the first row to after the last."""
    instants = sorted(
        {row["at"] for row in rows_of(path, "slumberd_ledger") if row["at"] is not None}
    )
    recorded = sorted({row["at"] for row in rows_of(path, "slumberd_firings")})
    alone = [(at, None) for at in instants[:: max(1, len(instants) // 20)]]
    return [*alone, *((None, at) for at in recorded), (instants[len(instants) // 2], recorded[-1])]


@pytest.mark.slow
@pytest.mark.parametrize("story", ["everything", "much"])
def test_facts_of_a_user_at_an_instant_are_part_of_all_facts_at_it(
    story: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(story)
    with copied(path) as copy:
        for valid_at, believed_at in pairs_of_instants(path):
            at = {"valid_at": valid_at, "believed_at": believed_at}
            whole = facts_at(session_of(copy), user=None, depth=DEPTH, **at)
            owners = {fact.effective.claim.owner.split("/")[0] for fact in whole}
            parts = [
                fact
                for user in owners
                for fact in facts_at(session_of(copy), user=user, depth=DEPTH, **at)
            ]

            assert sorted(parts, key=lambda fact: fact.fact_id) == whole
