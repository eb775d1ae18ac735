"""A vocabulary may remove a pattern of the extractor ``conversation``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import slumberd.consolidation.extraction
from slumberd.consolidation.extraction.conversation import (
    IN_CODE,
    ConversationExtractor,
    pattern_names,
)
from slumberd.model.errors import ConfigurationError
from slumberd.model.extraction import Turn
from slumberd.rules.vocabulary_loader import vocabulary_of
from slumberd.rules.yaml_reader import read_document

pytestmark = pytest.mark.unit


def found_in(text: str, folder: Path, words: str) -> list[tuple[str, object]]:
    """Return what each pattern finds in a text of the person."""
    file = folder / "words.yaml"
    file.write_text(words)
    extractor = ConversationExtractor(vocabulary_of(read_document(file)), {})
    turn = Turn("e1", "s", "user", text, 0, user="ada", is_person=True)
    [found] = extractor.extract([turn], [None])
    return [(one.by, one.object) for one in found]


def test_removed_pattern_states_nothing_and_others_state_the_same_predicate(
    tmp_path: Path,
) -> None:
    text = "I moved to Rome. I live in Paris."

    every = found_in(text, tmp_path, "remove: []")
    without_first = found_in(text, tmp_path, "remove: [conversation/moved]")
    without_last = found_in(text, tmp_path, "remove: [conversation/lives_in]")

    assert every == without_first == [("conversation/lives_in", "Paris")]
    assert without_last == [("conversation/moved", "Rome")]


def test_unknown_pattern_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'conversation/moved'"):
        found_in("", tmp_path, "remove: [conversation/mooved]")


def test_every_pattern_of_the_code_has_its_name_in_the_list() -> None:
    sources = Path(slumberd.consolidation.extraction.__file__).parent.glob("*.py")
    literal = (
        r'add,? ?\(?\s*clause,\s*"(\w+)"|(?:retract|end_pet)\(\s*clause,\s*"(\w+)"|\{NAME\}/(\w+)"'
    )

    found = [match for file in sources for match in re.findall(literal, file.read_text())]

    assert {"".join(groups) for groups in found} == {*IN_CODE}
    assert {f"conversation/{id}" for id in IN_CODE} < pattern_names()
