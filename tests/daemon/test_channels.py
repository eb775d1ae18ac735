"""Channels share one fact store: ids and keys keep their facts apart; commands reach them all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.operations.caller import Caller
from slumberd.operations.edits import PinForm, UndoForm, UnpinForm
from slumberd.operations.firing import BackfillForm, FireForm
from slumberd.operations.quarantine import DropForm, QuarantineForm
from slumberd.operations.writes.erasures import ForgetForm
from tests.support.builders import rule, triple
from tests.support.installation import CONFIG, Installation
from tests.support.state_directory import state_directory

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
EVERYWHERE = rule("everywhere", then_emits=["facts", "work", "home"])
ABROAD = rule("abroad", then_emits=["notes", "work"], when_filter="predicate = 'likes'")
RULES = [EVERYWHERE, ABROAD]


def put(id: str, **overrides: Any) -> Episode:
    return triple(id, "alice", "likes", overrides.pop("what", id), **overrides)


async def test_firing_reports_and_logs_the_deltas_of_all_its_channels(tmp_path: Path) -> None:
    async with state_directory(tmp_path, RULES) as home:
        await home.stores.memory.put_many([put("e1")])

        answer = await home.operations.fire(FireForm(rules=["everywhere"]), ME)

        [report] = answer["reports"]
        assert {name: counts["added"] for name, counts in report["channels"].items()} == {
            "facts": 1, "home": 1, "work": 1,
        }  # fmt: skip
        logged = {line.fact_id for line in home.logs.deltas.lines if line.fact_id}
        assert logged == {"e1", "@work/e1", "@home/e1"}


async def test_rules_share_the_facts_of_a_channel_in_a_ledger_that_verifies(
    tmp_path: Path,
) -> None:
    async with state_directory(tmp_path, RULES) as home:
        await home.stores.memory.put_many([put("e1")])
        await home.fire(EVERYWHERE)
        await home.fire(ABROAD)

        assert await home.ids() == ["@home/e1", "@notes/e1", "@work/e1", "e1"]
        rows, _, broken = await home.stores.facts.verify()
        assert (rows > 0, broken) == (True, None)


async def test_undo_of_a_firing_changes_all_its_channels(tmp_path: Path) -> None:
    async with state_directory(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1")])
        answer = await home.operations.fire(FireForm(rules=["everywhere"]), ME)
        [firing_id] = answer["reports"][0]["firing_ids"]

        await home.operations.undo(UndoForm(firing=firing_id), ME)
        undone = await home.ids()
        await home.operations.backfill(BackfillForm(rule="everywhere"), ME)

        assert (undone, await home.ids()) == ([], ["@home/e1", "@work/e1", "e1"])


async def test_unpin_removes_facts_of_several_channels(tmp_path: Path) -> None:
    pin = PinForm(
        user="alice", agent="rag", subject="s", predicate="is", object=1, reason="so", id="p1",
        channel="work",
    )  # fmt: skip
    async with state_directory(tmp_path, RULES) as home:
        await home.stores.memory.put_many([put("e1")])
        await home.fire(EVERYWHERE)
        await home.operations.pin(pin, ME)
        assert "@work/p1" in await home.ids()

        await home.operations.unpin(UnpinForm(facts=["@work/p1", "e1"], reason="so"), ME)

        assert await home.ids() == ["@home/e1", "@work/e1"]


@pytest.mark.slow
async def test_forget_erases_from_every_channel(tmp_path: Path) -> None:
    async with state_directory(tmp_path, RULES) as home:
        canary = put("canary-1", user="canary-user", what="canary-what", content="canary-content")
        await home.stores.memory.put_many([canary, put("e1")])
        await home.operations.fire(FireForm(), ME)
        pinned = PinForm(
            user="canary-user", agent="rag", subject="canary-s", predicate="is", object=1,
            reason="so", channel="home",
        )  # fmt: skip
        await home.operations.pin(pinned, ME)

        certificate = await home.operations.erasures.forget(ForgetForm(user="canary-user"), ME)

        assert certificate["rows"]["facts"]["facts"] == 5
        assert certificate["head_after"] == (await home.stores.facts.ledger.head()).head.hex()
        assert await home.ids() == ["@home/e1", "@notes/e1", "@work/e1", "e1"]
        assert (await home.stores.facts.verify())[2] is None
    for path in tmp_path.iterdir():
        assert b"canary" not in path.read_bytes(), path.name


async def test_retry_and_drop_cover_the_quarantine_of_every_channel(tmp_path: Path) -> None:
    async with state_directory(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1", metadata={"intent": "shout"})])
        await home.operations.fire(FireForm(rules=["everywhere"]), ME)

        retried = await home.operations.retry(QuarantineForm(rules=["everywhere"]), ME)
        dropped = await home.operations.drop(DropForm(all=True), ME)

        [report] = retried["reports"]
        assert Counter(counts["read"] for counts in report["channels"].values()) == {1: 3}
        assert dropped == {"dropped": 3}


@pytest.mark.slow
def test_facts_command_shows_one_channel(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.rules.write_text(site.rules.read_text().replace("[facts]", "[facts, notes]"))
    site.put(put("e1"))
    assert site.call("fire", "profile").returncode == 0

    shown = {
        words: [fact["id"] for fact in site.lines("facts", *words)]
        for words in ((), ("--channel", "notes"), ("--channel", "facts"), ("--channel", "later"))
    }

    assert [*shown.values()] == [["@notes/e1", "e1"], ["@notes/e1"], ["e1"], []]


def test_configuration_with_a_database_for_a_channel_is_refused(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text(CONFIG + "facts: {channels: {notes: notes.db}}\n")

    checked = site.look("check")

    assert checked.returncode == 78
    assert "facts.channels: unknown key 'channels'" in checked.stdout


@pytest.mark.slow
def test_audit_accepts_no_channel(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(put("e1"))
    assert site.call("fire", "--all").returncode == 0

    refused = site.look("audit", "verify", "--channel", "facts")
    verified = json.loads(site.look("audit", "verify", "--json").stdout)

    assert refused.returncode == 64
    assert (verified["ok"], "store" in verified) == (True, False)
