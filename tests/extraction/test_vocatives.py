"""Words that may address somebody, or say who does something."""

from __future__ import annotations

import pytest

from slumberd.config.vocabulary_loader import shipped_vocabulary
from slumberd.extraction.conversation import Conversation
from slumberd.model.extraction import Turn

pytestmark = pytest.mark.unit


def homes_in(text: str) -> list[tuple[str, object]]:
    turn = Turn("e1", "s", "user", text, 0, user="ada", is_person=True)
    [found] = Conversation(shipped_vocabulary(), {}).extract([turn], [None])
    return [(one.subject, one.object) for one in found if one.predicate == "lives_in"]


@pytest.mark.parametrize("who", ["My friend", "My friends", "Dude", "Man", "Guys", "Everyone"])
def test_who_moves_is_the_subject_unless_a_comma_addresses_them(who: str) -> None:
    assert ("ada", "Rome") not in homes_in(f"{who} moved to Rome.")
    assert homes_in(f"{who}, I moved to Rome.") == [("ada", "Rome")]
