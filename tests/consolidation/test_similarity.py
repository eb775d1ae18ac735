"""The text of a fact that is compared, and the facts that it is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.consolidation.claim import Claim, Precedence, claim_of
from slumberd.storage.ledger.similarity import TEXT_CHARACTERS, Statement, family_of, statement_of
from tests.support.builders import version

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"content": "ada likes tea", "subject": "ada"}, "ada likes tea"),
        ({"content": "", "subject": "ada", "predicate": "pays", "object": 10}, "ada pays 10"),
        ({"content": " \n", "subject": "ada"}, "ada"),
        ({"content": ["no text"], "object": ["10 EUR"]}, '["10 EUR"]'),
        ({}, ""),
        ({"content": "a" * TEXT_CHARACTERS + "b"}, "a" * TEXT_CHARACTERS),
    ],
    ids=["content", "triple", "blank content", "content of another type", "nothing", "long"],
)
def test_a_fact_is_compared_by_its_content_or_by_its_triple(
    payload: dict[str, Any], text: str
) -> None:
    assert Statement("e1", "key", Precedence(0, 0, "e1"), payload).text == text


def claim(channel: str = "facts", **overrides: Any) -> Claim:
    claim = claim_of(version("e1", **overrides), channel)
    assert isinstance(claim, Claim)
    return claim


def test_a_family_has_the_same_user_agent_channel_and_subject() -> None:
    known = {"subject": "ada/b", "predicate": "likes"}
    mine = family_of(claim(metadata=known))
    assert mine == family_of(claim(metadata=known | {"predicate": "drinks"}))
    assert statement_of(claim(metadata=known)).key.startswith(mine)
    others = {
        family_of(claim(metadata=known, user="bob")),
        family_of(claim(metadata=known, agent="other")),
        family_of(claim("notes", metadata=known)),
        family_of(claim(metadata={"subject": "ada", "predicate": "likes"})),
        family_of(claim(metadata={"subject": "ada/b"})),
    }
    assert len(others) == 5
    assert mine not in others
