"""Rows that no erasure blanked are found for ever; no later erasure covers them."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.record import Checkpoint
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.storage.engine import Session
from slumberd.storage.ledger.erasure import read_erased_rows
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at, rule, triple
from tests.support.example_ledgers import ALL, fire, said
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

ME = Caller.of_user(1, 1)


async def write_story(home: OpenStores) -> None:
    """Ann says two things, and each of two others one."""
    await home.put(
        triple("e1", "ann", "drinks", "tea", user="ann", timestamp=at(1)),
        triple("e2", "ann", "drinks", "coffee", user="ann", timestamp=at(2)),
        triple("z1", "zed", "is", "here", user="zed", timestamp=at(3)),
        triple("y1", "yan", "is", "here", user="yan", timestamp=at(4)),
    )
    await home.fire(rule("all"))


async def forget(home: OpenStores, user: str) -> dict[str, Any]:
    operations = home.operations(rule("all"), clock=FakeClock(at(60)))
    return await operations.erasures.forget(ForgetForm(user=user), ME)


async def take_out(provider: Provider, *fact_ids: str, user: str = "ann") -> list[int]:
    """Blank the rows of facts, and delete the facts and their keys, as a forger would."""

    def work(session: Session) -> list[int]:
        found = session.rows("erasure.rows_of_facts", {"ids": [*fact_ids]})
        rows = [seq for seq, *_ in found]
        key = {"low": f"{user}/", "high": f"{user}0"}
        keys = [name for _, name in session.rows("erasure.numbers_of_keys", key)]
        session.do("erasure.erase_rows", {"rows": rows})
        session.do("erasure.drop_references", {"ids": [*fact_ids]})
        session.do("erasure.drop_keys", {"keys": keys})
        with session.own_writes(rows=1):
            session.do("facts.drop_facts", {"ids": [*fact_ids]})
        return rows

    return sorted(await provider.fact_engine().write(work))


async def foreign_rows(provider: Provider) -> list[int]:
    return [*(await provider.fact_engine().read(read_erased_rows)).foreign]


@pytest.mark.parametrize("taken", [("e1", "e2"), ("e2",)], ids=["whole key", "newest value"])
async def test_a_later_erasure_does_not_cover_a_row_that_another_program_blanked(
    provider: Provider, taken: tuple[str, ...]
) -> None:
    async with open_stores(provider) as home:
        await write_story(home)
        forged = await take_out(provider, *taken)

        first = await forget(home, "zed")
        second = await forget(home, "yan")

        assert first["foreign_blank"] == second["foreign_blank"] == forged
        assert first["foreign_blank_total"] == len(forged)
        assert await foreign_rows(provider) == forged
        broken = (await home.facts.verify())[2]
        assert broken is not None
        assert broken.seq == forged[0]
        assert "erasure.foreign_blank" in broken.problem
        assert set(await home.objects()) <= {"e1"}


async def test_a_retraction_that_another_program_blanked_is_found(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await write_story(home)
        await home.facts.unpin("z1")

        def work(session: Session) -> list[int]:
            rows = session.rows("ledger.claims_with_references")
            (referrer,) = [fact_id for fact_id, _ in rows]
            found = session.rows("erasure.rows_of_facts", {"ids": [referrer]})
            numbers = [seq for seq, *_ in found]
            session.do("erasure.erase_rows", {"rows": numbers})
            session.do("erasure.drop_references", {"ids": [referrer]})
            return numbers

        forged = await provider.fact_engine().write(work)

        await forget(home, "ann")

        broken = (await home.facts.verify())[2]
        assert broken is not None
        assert broken.seq == forged[0]
        assert "erasure.foreign_blank" in broken.problem


async def test_erasures_without_a_forgery_verify(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await write_story(home)
        first = await forget(home, "zed")
        await home.put(triple("z2", "zed", "is", "back", user="zed", timestamp=at(70)))
        await home.fire(rule("all"))
        second = await forget(home, "zed")

        assert first["foreign_blank"] == second["foreign_blank"] == []
        assert (await home.facts.verify())[2] is None


async def test_an_erasure_leaves_rows_of_another_user_whose_key_was_renamed(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await write_story(home)

        def rename(session: Session) -> None:
            states = session.rows("ledger.states_of_keys", {"keys": ["ann/rag/facts/ann/drinks"]})
            assert states
            renamed = [("zed/rag/facts/ann/drinks", *row[1:]) for row in states]
            session.insert("ledger.put_state", renamed)

        await provider.fact_engine().write(rename)
        certificate = await forget(home, "zed")

        assert certificate["foreign_blank"] == []
        assert await home.objects() == {"e2": "coffee", "y1": "here"}


@ON_FILES
async def test_an_erasure_does_not_name_a_row_whose_content_was_changed(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await write_story(home)
        with closing(sqlite3.connect(tmp_path / "facts.db")) as other, other:
            (seq, payload) = other.execute(
                "SELECT seq, payload FROM slumberd_ledger WHERE fact_id = 'e2'"
            ).fetchone()
            document = orjson.loads(payload)
            document["payload"]["user"] = "zed"
            forged = orjson.dumps(document)
            other.execute("UPDATE slumberd_ledger SET payload = ? WHERE seq = ?", [forged, seq])
            other.execute("UPDATE slumberd_keys SET key = replace(key, 'ann/', 'zed/')")

        certificate = await forget(home, "zed")

        assert certificate["foreign_blank"] == [seq]
        broken = (await home.facts.verify())[2]
        assert broken is not None
        assert broken.seq == seq


LEDGERS = Path(__file__).parent / "ledgers"
KEYS = pytest.mark.parametrize(
    ("name", "key"), [("plain", None), ("keyed", bytes(range(32)))], ids=["plain", "keyed"]
)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "facts.db"
    path.write_bytes(gzip.decompress((LEDGERS / f"cumulative_erasures_{name}.db.gz").read_bytes()))
    return path


async def erase(store: SQLiteFactStore, user: str) -> Any:
    scope = ScopeFilter(user, None, None)
    return await store.erasures.forget(scope, moment=10**16, at=at(4000), by="", dry_run=False)


@KEYS
async def test_a_ledger_whose_erasures_are_cumulative_goes_on_verifying(
    tmp_path: Path, name: str, key: bytes | None
) -> None:
    async with SQLiteFactStore(unpacked(name, tmp_path), key=key, clock=FakeClock()) as store:
        assert (await store.verify())[2] is None
        erasures = []
        for user in ("bob", "cat"):
            await fire(store, ALL, [said(f"x{user}", 40, subject=user, predicate="is", object=1)])
            erasures.append(await erase(store, user))
            assert (await store.verify())[2] is None
        head = await store.ledger.head()
        checkpoint = Checkpoint(head.rows, head.head, "today")
        await erase(store, "alice")

        assert (await store.verify([checkpoint]))[2] is None
        assert [erasure.foreign_rows for erasure in erasures] == [0, 0]


@KEYS
@pytest.mark.parametrize("erased_first", [True, False])
async def test_a_row_blanked_beside_cumulative_erasures_is_found_for_ever(
    tmp_path: Path, name: str, key: bytes | None, *, erased_first: bool
) -> None:
    path = unpacked(name, tmp_path)
    async with SQLiteFactStore(path, key=key, clock=FakeClock()) as store:
        if erased_first:
            await erase(store, "bob")

        def blank(session: Session) -> None:
            session.do("erasure.erase_rows", {"rows": [3]})

        await store.transactions.write(blank)
        erasure = await erase(store, "cat")
        broken = (await store.verify())[2]

        assert erasure.foreign_rows == 1
        assert broken is not None
        assert broken.seq == 3 or not erased_first
        assert "eras" in broken.problem
