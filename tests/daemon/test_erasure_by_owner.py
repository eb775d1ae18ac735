"""An erasure finds the owner of a row as a promotion does, even if its key and content differ."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.scope import Scope
from slumberd.operations.caller import Caller
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.rules.settings_schema import MemorySettings
from tests.support.builders import START, at, rule, triple
from tests.support.state_directory import StateDirectory, state_directory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ME = Caller.of_user(1, 1)
VICTIM, OTHER = Scope("victim", "s1", "rag"), Scope("other", "s1", "rag")


@asynccontextmanager
async def open_directory(folder: Path, mismatch: Any) -> AsyncIterator[StateDirectory]:
    memory = MemorySettings(scope_mismatch=mismatch)
    async with state_directory(folder, [rule("all")], memory=memory) as directory:
        await directory.stores.memory.bootstrap()
        yield directory


def write(
    folder: Path, id: str, key: object, owner: Scope | None, when: str = START.isoformat()
) -> None:
    """Write a row without slumberd, with one scope in its key and another in its content."""
    content: dict[str, Any] = {"content": f"text of {id}", "source_node": "chat"}
    content |= owner._asdict() if owner else {}
    metadata = {"subject": id, "predicate": "is", "object": "said"}
    row = (id, key, orjson.dumps(content), when, orjson.dumps(metadata))
    with closing(sqlite3.connect(folder / "memory.db")) as host, host:
        host.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)


def episodes(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "memory.db")) as memory:
        return [id for (id,) in memory.execute("SELECT id FROM episodes ORDER BY id")]


async def forget(directory: StateDirectory, user: str) -> dict[str, Any]:
    return await directory.operations.erasures.forget(ForgetForm(user=user), ME)


def write_all(folder: Path) -> None:
    write(folder, "mine", VICTIM.key, VICTIM)
    write(folder, "key of other", OTHER.key, VICTIM)
    write(folder, "key of victim", VICTIM.key, OTHER)
    write(folder, "no key", VICTIM.key.rstrip("/"), VICTIM)
    write(folder, "no key, other", OTHER.key.rstrip("/"), OTHER)
    write(folder, "theirs", OTHER.key, OTHER)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mismatch", "left"),
    [
        ("trust_episode", ["key of victim", "no key, other", "theirs"]),
        ("trust_scope", ["key of other", "no key, other", "theirs"]),
        ("quarantine", ["key of other", "no key, other", "theirs"]),
    ],
)
async def test_erasure_removes_the_episodes_whose_facts_belong_to_the_user(
    tmp_path: Path, mismatch: str, left: list[str]
) -> None:
    async with open_directory(tmp_path, mismatch) as directory:
        write_all(tmp_path)
        await directory.fire(rule("all"))
        promoted = {fact.id for fact in await directory.facts() if fact.user == "other"}

        certificate = await forget(directory, "victim")

        assert episodes(tmp_path) == left
        assert {fact.id for fact in await directory.facts()} == promoted
        assert certificate["rows"]["episodes"]["episodes"] == 6 - len(left)
        facts = directory.stores.facts
        assert (await facts.verify())[2] is None


@pytest.mark.slow
@pytest.mark.parametrize("mismatch", ["trust_episode", "trust_scope", "quarantine"])
async def test_certificate_counts_episodes_of_other_scopes_that_name_the_scope(
    tmp_path: Path, mismatch: str
) -> None:
    async with open_directory(tmp_path, mismatch) as directory:
        write_all(tmp_path)
        stranger = Scope("stranger", "s1", "rag")
        write(tmp_path, "of stranger", stranger.key, stranger)

        certificate = await forget(directory, "victim")

        named = [line for line in certificate["out_of_reach"] if "name this one" in line]
        assert [line[:2] for line in named] == ["1 "]
        assert "name this one" not in str((await forget(directory, "stranger"))["out_of_reach"])


@pytest.mark.slow
async def test_certificate_names_the_provenance_sink(tmp_path: Path) -> None:
    async with open_directory(tmp_path, "quarantine") as directory:
        write(tmp_path, "mine", VICTIM.key, VICTIM)

        certificate = await forget(directory, "victim")

        assert "provenance" in " ".join(certificate["out_of_reach"])


async def test_erasure_removes_quarantined_rows_whose_content_names_the_user(
    tmp_path: Path,
) -> None:
    async with open_directory(tmp_path, "quarantine") as directory:
        write(tmp_path, "unowned of victim", "nowhere", VICTIM)
        write(tmp_path, "unowned of other", "nowhere", OTHER)
        await directory.fire(rule("all"))

        await forget(directory, "victim")

        facts = directory.stores.facts
        assert [entry["episode_id"] for entry in await facts.reads.quarantine()] == [
            "unowned of other"
        ]
        assert (await facts.verify())[2] is None
    assert b"unowned of victim" not in (tmp_path / "facts.db").read_bytes()


@pytest.mark.parametrize("key", [b"\xff\xfe", 7, "", "/user//session/s1/agent/rag/"])
async def test_erasure_removes_rows_with_an_unreadable_key_whose_content_names_the_user(
    tmp_path: Path, key: object
) -> None:
    async with open_directory(tmp_path, "quarantine") as directory:
        write(tmp_path, "odd", key, VICTIM)
        write(tmp_path, "odder", key, None)

        await forget(directory, "victim")

        assert episodes(tmp_path) == ["odder"]


@pytest.mark.parametrize("content", [OTHER, None])
@pytest.mark.parametrize("fired", [False, True])
async def test_row_that_contradicts_its_scope_key_does_not_change_the_instant_of_an_erasure(
    tmp_path: Path, content: Scope | None, *, fired: bool
) -> None:
    async with open_directory(tmp_path, "quarantine") as directory:
        write(tmp_path, "mine", VICTIM.key, VICTIM)
        write(tmp_path, "hostile", VICTIM.key, content, "9999-12-31T23:59:59+00:00")
        if fired:
            await directory.fire(rule("all"))
        await forget(directory, "victim")

        later = triple("later", "victim", "is", "back", timestamp=at(99_999), user="victim")
        await directory.stores.memory.put(later, user="victim", session="s1", agent="rag")

    assert "later" in episodes(tmp_path)
