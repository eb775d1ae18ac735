"""A ledger keeps the number of its law: rows are resolved under the law in force at the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.precedence import (
    FIRST_LAW,
    LAWS,
)
from slumberd.model.errors import SchemaError
from slumberd.model.fact import FactPattern
from tests.support.builders import START, at, triple
from tests.support.laws import NEXT, lowest_law
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration


@pytest.fixture
def lowest_stays(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Add a law by which the lower of two ids of one instant stays."""
    monkeypatch.setitem(LAWS, NEXT, lowest_law())
    return monkeypatch


async def fill(stores: OpenStores) -> None:
    """Promote facts, of which the law of `lowest_stays` makes others."""
    await stores.put(
        triple("e1", "ann", "prefers", "tea", timestamp=at(2)),
        triple("e2", "ann", "prefers", "coffee", timestamp=at(2)),
        triple("e3", "ann", "lives_in", "Rome", timestamp=at(3)),
        triple("e4", "bob", "prefers", "gin", timestamp=at(5)),
        triple("e5", "bob", "prefers", "rum", timestamp=at(5)),
    )
    await stores.fire()


async def check_proofs(stores: OpenStores, folder: Path) -> None:
    """Verify the ledger, and replay it into a new file."""
    _, _, broken = await stores.facts.verify()
    assert broken is None
    replay = await stores.facts.replay(folder / "replayed.db")
    assert (replay.differing, replay.unclear, replay.first) == (0, 0, None)


async def test_new_law_resolves_the_changed_keys_in_one_recorded_firing(
    provider: Provider, tmp_path: Path, lowest_stays: pytest.MonkeyPatch
) -> None:
    with lowest_stays.context() as before:
        before.delitem(LAWS, NEXT)
        async with open_stores(provider) as stores:
            await fill(stores)
            assert await stores.objects() == {"e2": "coffee", "e3": "Rome", "e5": "rum"}
    async with open_stores(provider) as stores:
        await check_proofs(stores, tmp_path)
        Path(tmp_path, "replayed.db").unlink()

        outcome = await stores.facts.ledger.adopt_law(at=at(200))

        assert outcome is not None
        assert outcome.firing_id.startswith("@law@")
        deltas = sorted((record.kind, record.fact_id) for record in outcome.records[1:])
        assert deltas == [("add", "e1"), ("add", "e4"), ("delete", "e2"), ("delete", "e5")]
        assert await stores.objects() == {"e1": "tea", "e3": "Rome", "e4": "gin"}
        assert await stores.facts.ledger.adopt_law(at=at(201)) is None
        await check_proofs(stores, tmp_path)


async def test_rows_after_a_new_law_are_resolved_under_it(
    provider: Provider, tmp_path: Path, lowest_stays: pytest.MonkeyPatch
) -> None:
    with lowest_stays.context() as before:
        before.delitem(LAWS, NEXT)
        async with open_stores(provider) as stores:
            await fill(stores)
    async with open_stores(provider) as stores:
        await stores.put(triple("e6", "ann", "lives_in", "Oslo", timestamp=at(6)))
        await stores.fire()
        assert (await stores.objects())["e6"] == "Oslo"  # still under the former law

        await stores.facts.ledger.adopt_law(at=at(200))
        await stores.put(
            triple("e7", "ann", "lives_in", "Bern", timestamp=at(7)),
            triple("e8", "ann", "lives_in", "Wien", timestamp=at(7)),
        )
        await stores.fire()

        facts = {"e1": "tea", "e4": "gin", "e7": "Bern"}
        assert await stores.objects() == facts
        await check_proofs(stores, tmp_path)
        earlier = await stores.facts.query(FactPattern(), believed_at=at(150))
        assert {fact.id for fact in earlier} == {"e2", "e5", "e6"}
        now = await stores.facts.query(FactPattern(), valid_at=at(99))
        assert {fact.id for fact in now} == set(facts)


async def test_new_ledger_begins_with_the_newest_law(
    provider: Provider, tmp_path: Path, lowest_stays: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as stores:
        assert await stores.facts.ledger.adopt_law(at=START) is None
        await fill(stores)

        assert await stores.objects() == {"e1": "tea", "e3": "Rome", "e4": "gin"}
        assert await stores.facts.ledger.adopt_law(at=at(200)) is None
        await check_proofs(stores, tmp_path)


async def test_undo_and_edit_count_under_the_law_in_force(
    provider: Provider, tmp_path: Path, lowest_stays: pytest.MonkeyPatch
) -> None:
    with lowest_stays.context() as before:
        before.delitem(LAWS, NEXT)
        async with open_stores(provider) as stores:
            await fill(stores)
    async with open_stores(provider) as stores:
        await stores.facts.ledger.adopt_law(at=at(200))
        await stores.put(triple("e1", "ann", "drinks", "tea", timestamp=at(1)))

        report = await stores.fire()
        assert (await stores.objects())["e2"] == "coffee"
        await stores.facts.ledger.undo(report.firing_ids[0], at=at(300), by="test", dry_run=False)

        assert await stores.objects() == {"e1": "tea", "e3": "Rome", "e4": "gin"}
        await check_proofs(stores, tmp_path)


async def test_ledger_under_an_unknown_law_is_refused(
    provider: Provider, lowest_stays: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as stores:
        await fill(stores)
    lowest_stays.delitem(LAWS, NEXT)

    async with open_stores(provider) as stores:
        await stores.put(triple("e9", "ann", "prefers", "wine", timestamp=at(9)))
        with pytest.raises(SchemaError, match=rf"under a newer law \({NEXT}, ours is {NEXT - 1}\)"):
            await stores.fire()
        with pytest.raises(SchemaError, match="under a newer law"):
            await stores.facts.verify()
        assert set(await stores.objects()) == {"e1", "e3", "e4"}


def test_first_law_is_that_of_slumberd_0_2_0() -> None:
    assert FIRST_LAW == min(LAWS) == 1
