"""A vocabulary may remove a pattern of the extractor ``conversation``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import slumberd.extraction.conversation as source
from slumberd.config.vocabulary_loader import vocabulary_of
from slumberd.config.yaml_reader import read_document
from slumberd.errors import ConfigurationError
from slumberd.extraction.conversation import Conversation, pattern_names
from slumberd.model.extraction import Turn

pytestmark = pytest.mark.unit


def found_in(text: str, folder: Path, words: str) -> list[tuple[str, object]]:
    """Return what each pattern finds in a text of the person."""
    file = folder / "words.yaml"
    file.write_text(words)
    extractor = Conversation(vocabulary_of(read_document(file)), {})
    turn = Turn("e1", "s", "user", text, 0, user="ada", is_person=True)
    [found] = extractor.extract([turn], [None])
    return [(one.by, one.object) for one in found]


def test_removed_pattern_states_nothing_and_others_state_the_same_predicate(
    tmp_path: Path,
) -> None:
    text = "I moved to Rome. I live in Paris."

    every = found_in(text, tmp_path, "remove: []")
    left = found_in(text, tmp_path, "remove: [conversation/moved]")

    assert every == [("conversation/moved", "Rome"), ("conversation/lives_in", "Paris")]
    assert left == [("conversation/lives_in", "Paris")]


def test_unknown_pattern_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'conversation/moved'"):
        found_in("", tmp_path, "remove: [conversation/mooved]")


def test_every_pattern_of_the_code_has_its_name_in_the_list() -> None:
    text = Path(source.__file__).read_text()
    literal = r'_(?:add|retract)\(\s*clause,\s*"(\w+)"|_add, clause, "(\w+)"|\{NAME\}/(\w+)"'

    named = {f"conversation/{''.join(groups)}" for groups in re.findall(literal, text)}

    assert len(named) > 8
    assert named <= pattern_names()
