"""Values that slumberd never writes are found in its tables, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.storage.audit.damaged_values import DamagedValue, find_damaged_values
from slumberd.storage.engine import Session
from tests.support.builders import at, rule
from tests.support.example_ledgers import copied, write_ledger_of_every_kind
from tests.support.open_stores import open_stores, stream
from tests.support.providers import Provider
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration


async def test_a_store_that_slumberd_wrote_has_no_damaged_value(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*stream(4))
        await home.fire(rule("all"))
        await home.facts.unpin("e1")

    assert await provider.fact_engine().read(lambda session: [*find_damaged_values(session)]) == []


async def test_a_served_instant_that_no_clock_shows_is_found(provider: Provider) -> None:
    def damage(session: Session) -> None:
        session.do("ledger.set_served", {"rule": "all", "served": 2**63 - 1})

    async with open_stores(provider) as home:
        await home.put(*stream(1))
        await home.fire(rule("all"))
        await home.facts.watermarks.serve("all", at(1))
        await provider.fact_engine().write(damage)

    (found,) = await provider.fact_engine().read(lambda session: [*find_damaged_values(session)])
    assert found == DamagedValue("watermark", "all", "served", 2**63 - 1)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ("UPDATE slumberd_firings SET counts = x'37' WHERE n = 1", "counts"),
        ("UPDATE slumberd_firings SET counts = x'7b' WHERE n = 1", "counts"),
        ("UPDATE slumberd_channels SET multi_valued = '{\"facts\": 7}'", "multi_valued"),
        ("UPDATE slumberd_ledger SET payload = x'6e756c6c' WHERE seq = 3", "payload"),
        ("UPDATE slumberd_quarantine SET owner = 'x'", "owner"),
        ("UPDATE slumberd_ledger SET kind = -1 WHERE seq = 3", "kind"),
    ],
)
async def test_a_value_of_another_form_is_found(tmp_path: Path, change: str, column: str) -> None:
    path = tmp_path / "facts.db"
    await write_ledger_of_every_kind(path)
    with copied(path) as copy:
        assert [*find_damaged_values(session_of(copy))] == []
        copy.execute("PRAGMA ignore_check_constraints = ON")
        copy.execute(change.replace("'{", "CAST('{").replace("}'", "}' AS BLOB)"))

        found = [*find_damaged_values(session_of(copy))]

    assert {one.column for one in found} == {column}
    assert column in found[0].words()
