"""The lists of erased scopes are compared with the ledger, and restored from it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slumberd.model.errors import ForgottenError
from slumberd.model.record import ErasedList, RecordedErasures, name_of
from slumberd.operations.caller import Caller
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
SAID = triple("e1", "ann", "drinks", "tea", user="ann", timestamp=at(1))


async def erase(home: OpenStores) -> None:
    await home.put(SAID, triple("b1", "bob", "drinks", "tea", user="bob"))
    await home.fire(rule("all"))
    operations = home.operations(rule("all"), clock=FakeClock(at(60)))
    await operations.erasures.forget(ForgetForm(user="ann"), Caller.of_user(1, 1))


@pytest.mark.integration
async def test_verify_finds_a_list_without_an_erased_scope_and_the_daemon_restores_it(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await erase(home)
        assert (await home.facts.verify(episodes=await home.memory.erased_scopes()))[2] is None
        empty_lists(home)

        broken = (await home.facts.verify())[2]
        assert broken is not None
        assert broken.problem == (
            "the list of erased scopes lacks 1 entry that the ledger names as erased"
        )

        await home.operations(rule("all"), clock=FakeClock(at(70))).erasures.share()

        assert (await home.facts.verify(episodes=await home.memory.erased_scopes()))[2] is None
        with pytest.raises(ForgottenError):
            await home.put(SAID)


def empty_lists(home: OpenStores) -> None:
    """Delete all rows of the lists, as another program does."""
    if isinstance(home.facts, SQLiteFactStore) and isinstance(home.memory, SQLiteMemoryStore):
        for path in (home.facts.path, home.memory.path):
            with closing(sqlite3.connect(path)) as file, file:
                file.execute("DELETE FROM slumberd_erased_scopes")
        return
    assert isinstance(home.facts, PostgresFactStore)
    with psycopg.connect(home.facts.engine.shard.address) as connection:
        connection.execute("DELETE FROM slumberd_0.slumberd_erased_scopes")


def recorded(**moments: int) -> RecordedErasures:
    by_digest = {name.encode(): moment for name, moment in moments.items()}
    return RecordedErasures(by_digest, dict.fromkeys(by_digest, name_of(KEY)))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        (ErasedList(KEY, {b"a": 5, b"b": 7, b"more": 1}), ""),
        (ErasedList(KEY, {b"a": 5}), "lacks 1 entry"),
        (ErasedList(KEY, {b"a": 5, b"b": 6}), "lacks 1 entry"),
        (ErasedList(None, {}), "lacks 2 entries"),
        (ErasedList(OTHER_KEY, {b"a": 5, b"b": 7}), "has another key"),
    ],
)
def test_a_list_agrees_when_it_has_every_scope_and_its_key(kept: ErasedList, fault: str) -> None:
    found = recorded(a=5, b=7).describe_fault(kept)

    assert bool(found) == bool(fault)
    assert fault in found


@pytest.mark.unit
def test_an_older_erasure_names_no_key() -> None:
    assert RecordedErasures({b"a": 5}).describe_fault(ErasedList(OTHER_KEY, {b"a": 5})) == ""


@pytest.mark.unit
def test_the_episodes_may_lack_a_scope_whose_erasure_is_unfinished() -> None:
    erasures = recorded(a=5, b=7)._replace(begun=frozenset({b"a"}))

    assert erasures.describe_fault(ErasedList(KEY, {b"b": 7}))
    assert not erasures.finished().describe_fault(ErasedList(KEY, {b"b": 7}))


Change = Callable[[sqlite3.Connection], object]

DELETED: Change = lambda file: file.execute("DELETE FROM slumberd_erased_scopes")  # noqa: E731
DROPPED: Change = lambda file: file.execute("DROP TABLE slumberd_erased_scopes")  # noqa: E731
EARLIER: Change = lambda file: file.execute(  # noqa: E731
    "UPDATE slumberd_erased_scopes SET moment = 1"
)
KEYLESS: Change = lambda file: file.execute("DELETE FROM slumberd_erasure_key")  # noqa: E731


@pytest.mark.acceptance
@pytest.mark.cases(4)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(DELETED, id="deleted"),
        pytest.param(DROPPED, id="dropped"),
        pytest.param(EARLIER, id="earlier"),
        pytest.param(KEYLESS, id="without key"),
    ],
)
@pytest.mark.parametrize(
    "names", [("facts.db", "memory.db"), ("facts.db",), ("memory.db",)], ids=", ".join
)
def test_verify_and_doctor_name_a_changed_list_which_the_daemon_restores(
    tmp_path: Path, names: tuple[str, ...], change: Change
) -> None:
    site = Installation(tmp_path)
    site.put(SAID, triple("b1", "bob", "drinks", "tea", user="bob"))
    assert site.call("fire", "profile").returncode == 0
    assert site.call("forget", "--user", "ann", "--yes").returncode == 0
    for name in names:
        with closing(sqlite3.connect(site.state / name)) as file, file:
            change(file)

    assert site.call("audit", "verify").returncode == 1
    assert {Path(one["subject"]).name for one in unlisted(site)} == {*names}

    with site.daemon():
        pass

    if change is KEYLESS and len(names) == 2:
        assert site.call("audit", "verify").returncode == 1
        return
    assert site.call("audit", "verify").returncode == 0
    assert unlisted(site) == []
    assert site.call("import", str(site.config.with_name("put.jsonl"))).returncode == 65
    lines = [json.loads(line) for line in (site.state / "slumberd.log").read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "erasure.list_restored"]
    assert {Path(line["path"]).name for line in logged} == {*names}
    assert {line["level"] for line in logged} == {"warning"}


def unlisted(site: Installation) -> list[dict[str, Any]]:
    done = site.call("doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    return [finding for finding in findings if finding["id"] == "erasure.unlisted"]
