"""The daemon checks each request against a form before it changes anything."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.daemon.rules import PausedFile
from slumberd.model.errors import UsageError
from slumberd.model.fact import FactPattern
from slumberd.operations.caller import Caller
from slumberd.operations.edits import PinForm, assertion_of
from slumberd.operations.forms import choose_rules
from slumberd.operations.handlers import handlers_of
from slumberd.operations.pauses import Pausing
from slumberd.rules.rule_loader import RuleSet
from tests.support.builders import rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
PIN = {
    "user": "alice", "agent": "rag", "subject": "alice", "predicate": "likes", "object": "tea",
    "reason": "so",
}  # fmt: skip


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    async with open_stores(provider) as home:
        await home.put(triple("e1", "alice", "drinks", "tea"))
        yield home


@ON_FILES
@pytest.mark.parametrize(
    ("operation", "request_", "problem"),
    [
        ("fire", {"rules": [["all"]]}, r"fire: rules\[0\]: text is needed, not a list"),
        ("fire", {"rules": "all"}, r"rules: a list is needed, not 'all'; write \[all\]"),
        ("fire", {"rules": ["all"], "plan": "0123"}, "unknown key 'plan'"),
        ("backfill", {"rule": ["all"]}, "rule: text is needed, not a list"),
        ("backfill", {}, "key 'rule' is missing"),
        ("backfill", {"rule": "all", "between": ["x", "y"]}, r"between\[0\]: a whole number"),
        ("backfill", {"rule": "all", "between": [1]}, "between"),
        ("backfill", {"rule": "all", "between": [1, 2**80]}, r"between\[1\]: at most"),
        ("retry", {"episodes": "e1"}, "episodes: a list is needed"),
        ("drop", {"rules": "all"}, "rules: a list is needed"),
        ("drop", {"episodes": [1]}, r"episodes\[0\]: text is needed"),
        ("decide", {"firing": "all@1", "approve": "yes"}, "approve: true or false is needed"),
        ("undo", {"firing": 7}, "firing: text is needed"),
        ("undo", {"firing": "all@1", "channel": "work"}, "unknown key 'channel'"),
        ("undo", {}, "name exactly one of: a firing, a run, a rule"),
        ("undo", {"firing": "all@1", "run": "r"}, "name exactly one of: a firing, a run, a rule"),
        ("undo", {"rule": "all"}, "a rule is undone from an instant on"),
        ("undo", {"rule": "all", "since": -(2**62)}, "since: at least"),
        ("forget", {}, "name a user"),
        ("forget", {"user": None}, "name a user"),
        ("forget", {"user": 7}, "user: text is needed"),
        ("forget", {"user": "u", "agent": 7}, "agent: text is needed"),
        ("forget", {"user": "alice", "dryrun": True}, "unknown key 'dryrun'; did you mean"),
        ("forget", {"user": "alice", "dry_run": "true"}, "dry_run: true or false is needed"),
        ("undo", {"firing": "all@1", "reason": " \n"}, "reason: 1 to 1,000 characters are needed"),
        ("fire", {"reason": ""}, "fire: reason: 1 to 1,000 characters are needed"),
        ("fire", {"reason": "a\0b"}, "reason: it holds NUL or invalid Unicode"),
        ("retry", {"reason": "a\ud800"}, "reason: it holds NUL or invalid Unicode"),
        (
            "drop",
            {"all": True, "reason": "x" * 1_001},
            "reason: too long: 1,001 characters, at most 1,000",
        ),
        ("decide", {"firing": "all@1", "reason": 7}, "reason: text is needed, not 7"),
        ("backfill", {"rule": "all", "reason": ["x"]}, "reason: text is needed, not a list"),
        ("forget", {"user": "alice", "reason": " "}, "reason: 1 to 1,000 characters are needed"),
        ("pin", {**PIN, "confidence": "high"}, "confidence: a number is needed"),
        ("pin", {**PIN, "channel": "notes/x"}, "channel 'notes/x' is no name"),
        ("pin", {**PIN, "subject": None}, "subject: text is needed"),
        ("pin", {**PIN, "user": 5}, "user: text is needed"),
        ("pin", {**PIN, "predicate": "a\0b"}, "'predicate' holds a NUL"),
        ("pin", {**PIN, "confidence": True}, "confidence: a number is needed"),
        ("pin", {**PIN, "confidence": 7}, "confidence: at most 1"),
        ("pin", {**PIN, "confidence": -0.1}, "confidence: at least 0"),
        ("pin", {**PIN, "confidence": math.nan}, "confidence: "),
        ("pin", {**PIN, "id": ""}, "'id' must be a text that is not empty"),
        ("pin", {**PIN, "by": "uid 4243"}, "unknown key 'by'"),
        ("unpin", {"facts": "e1", "reason": "so"}, "facts: a list is needed"),
        ("unpin", {"facts": None, "reason": "so"}, "facts: a list is needed"),
        ("unpin", {"facts": [], "reason": "so"}, "facts: at least one entry"),
        ("unpin", {"facts": [""], "reason": "so"}, "'fact id' must be a text that is not empty"),
    ],
)
async def test_request_of_another_form_is_refused_and_changes_nothing(
    home: OpenStores, operation: str, request_: dict[str, Any], problem: str
) -> None:
    operations = home.operations(rule("all"), clock=FakeClock()).handlers

    with pytest.raises(UsageError, match=problem):
        await operations[operation](request_, ME)

    assert await home.facts.reads.records() == []
    assert len(await home.memory.recent("alice", limit=5)) == 1


async def test_refusal_lists_every_mistake_of_a_request(home: OpenStores) -> None:
    operations = home.operations(rule("all"), clock=FakeClock()).handlers

    with pytest.raises(UsageError) as refused:
        await operations["pin"]({**PIN, "user": 7, "agent": None, "id": []}, ME)

    assert str(refused.value).count("text is needed") == 3


async def test_pin_with_a_channel_creates_a_fact_in_it(home: OpenStores) -> None:
    operations = home.operations(rule("all"), clock=FakeClock()).handlers

    await operations["pin"]({**PIN, "channel": "notes", "id": "i"}, ME)

    assert [fact.id for fact in await home.facts.query(FactPattern())] == ["@notes/i"]


@pytest.mark.parametrize("rules", ["a", [["a"]], None])
async def test_pause_requires_a_list_of_rule_ids(tmp_path: Path, rules: object) -> None:
    pausing = Pausing(PausedFile(tmp_path), lambda: RuleSet((rule("a"),), {}, {}))

    with pytest.raises(UsageError, match="pause: rules"):
        await handlers_of(pausing)["pause"]({"rules": rules}, ME)


def test_fact_that_is_pinned_names_its_user_and_its_agent() -> None:
    pinned = assertion_of(PinForm.model_validate(PIN), {})

    texts = {name: PIN[name] for name in ("user", "agent", "subject", "predicate", "object")}
    assert pinned.payload == {"id": pinned.fact_id, **texts}


@pytest.mark.parametrize(
    ("known", "listed"), [(["b", "a"], "there are b, a"), ([], "there are none")]
)
def test_request_for_an_unknown_rule_lists_the_known_ones(known: list[str], listed: str) -> None:
    rules = RuleSet(tuple(map(rule, known)), {}, {})

    with pytest.raises(UsageError, match=f"no rule 'c'; {listed}"):
        choose_rules(rules, ["c"])
