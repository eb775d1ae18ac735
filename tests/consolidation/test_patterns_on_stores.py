"""What patterns find in a conversation becomes, replaces and retracts facts, on real stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.model.extraction import Extraction
from slumberd.model.fact import FactPattern
from slumberd.model.predicates import ManyBut
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.pattern_loader import extraction_of
from slumberd.rules.yaml_reader import read_document
from tests.support.builders import START, at, episode, rule
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

PATTERNS = r"""
unless: ['\bmaybe\b']
unless_in: clause
single_valued: [lives_in, works_at]
opposites: [[likes, dislikes]]
patterns:
  - id: home
    when: '\bI live in (?P<city>\w+)'
    says: {subject: '{speaker}', predicate: lives_in, object: '{city}'}
  - id: work
    when: '\bI work at (?P<firm>\w+)'
    says: {subject: '{speaker}', predicate: works_at, object: '{firm}'}
  - id: fired
    when: '\bI got fired\b'
    intent: delete
    says: {subject: '{speaker}', predicate: works_at}
  - id: likes
    when: '\bI love (?P<what>.+?)(?:[.;!?]|,? but\b|$)'
    says: {subject: '{speaker}', predicate: likes, object: '{what}'}
    normalise: {what: [list]}
  - id: dislikes
    when: '\bI hate (?P<what>\w+)'
    says: {subject: '{speaker}', predicate: dislikes, object: '{what}'}
  - id: plans
    when: '\bI plan (?P<what>[\w ]+)'
    says: {subject: '{speaker}', predicate: plans, object: '{what}'}
  - id: cancelled
    when: '\b(?P<what>[\w ]+) got cancelled\b'
    intent: delete
    says: {subject: '{speaker}', predicate: plans, object_words: '{what}'}
"""


@pytest.fixture
def chat(tmp_path: Path) -> ConsolidationRule:
    file = tmp_path / "chat.yaml"
    file.write_text(PATTERNS)
    return rule("chat", extract=extraction_of(read_document(file)))


def said(number: int, content: str) -> Episode:
    return episode(f"e{number}", source_node="ada", content=content, timestamp=at(number))


async def _facts(home: OpenStores) -> dict[str, list[Any]]:
    """Return the objects of each predicate."""
    found: dict[str, list[Any]] = {}
    for fact in await home.facts.query(FactPattern()):
        if "predicate" in fact.payload:
            found.setdefault(fact.payload["predicate"], []).append(fact.payload["object"])
    return {predicate: sorted(objects) for predicate, objects in found.items()}


@pytest.mark.parametrize(
    ("sentences", "facts"),
    [
        pytest.param(["I live in Kraków."], {"lives_in": ["Kraków"]}, id="accent"),
        pytest.param(["I live in Krako\u0301w."], {"lives_in": ["Krako\u0301w"]}, id="mark"),
        pytest.param(["I live in Москва."], {"lives_in": ["Москва"]}, id="Cyrillic"),
        pytest.param(
            ["I live in Kraków.", "I live in Łódź."], {"lives_in": ["Łódź"]}, id="one home"
        ),
        pytest.param(
            ["I love żurek, pierogi and tea.", "I love milk."],
            {"likes": ["milk", "pierogi", "tea", "żurek"]},
            id="list",
        ),
        pytest.param(
            ["I love tea and milk.", "I hate milk."],
            {"likes": ["tea"], "dislikes": ["milk"]},
            id="opposites",
        ),
        pytest.param(
            ["I work at Acme. I live in Oslo.", "I got fired."],
            {"lives_in": ["Oslo"]},
            id="whole key",
        ),
        pytest.param(
            ["I plan a trip to Tokyo in May.", "I plan a party.", "The Tokyo trip got cancelled."],
            {"plans": ["a party"]},
            id="words",
        ),
        pytest.param(
            ["I love tea, but maybe I hate milk."], {"likes": ["tea"]}, id="guard of a clause"
        ),
        pytest.param(["I got fired. The trip got cancelled."], {}, id="nothing to retract"),
    ],
)
async def test_conversation_leaves_these_facts(
    provider: Provider,
    chat: ConsolidationRule,
    tmp_path: Path,
    sentences: list[str],
    facts: dict[str, list[str]],
) -> None:
    assert isinstance(chat.extract, Extraction)
    several = {"facts": ManyBut(chat.extract.single_valued)}
    async with open_stores(provider) as home:
        await home.facts.ledger.set_channels(several, at=START)
        await home.put(*(said(*one) for one in enumerate(sentences)))

        await home.fire(chat)

        assert await _facts(home) == facts
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_retraction_of_a_pattern_names_it_in_the_ledger(
    provider: Provider, chat: ConsolidationRule
) -> None:
    async with open_stores(provider) as home:
        await home.put(said(0, "I work at Acme."), said(1, "Well. I got fired."))

        await home.fire(chat)

        [explained] = [row for row in home.log.lines if row.kind == "delete"]
        assert (explained.fact_id, explained.replaces) == ("e1#1", ("e0#1",))
