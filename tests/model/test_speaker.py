"""One function says who spoke, as the law does, and it knows every interface and format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.extraction.turns import name_of_speaker, previous_turns
from slumberd.interchange.formats import FORMATS
from slumberd.model.episode import INTERFACES, speaker_of
from slumberd.model.extraction import Turn, turn_of
from tests.support import speakers
from tests.support.builders import version

pytestmark = pytest.mark.unit


@given(
    source_node=st.sampled_from([*speakers.NO_SPEAKERS, *speakers.BLANKS]) | speakers.NAMES,
    metadata=speakers.METADATA,
)
def test_speaker_is_that_of_the_law(source_node: str, metadata: dict[str, Any]) -> None:
    spoken = version(source_node=source_node, metadata=metadata)

    turn = turn_of(spoken)

    assert speaker_of(source_node, metadata) == speakers.speaker(source_node, metadata)
    assert spoken.speaker == speakers.speaker(source_node, metadata)
    assert turn.speaker == (speakers.speaker(source_node, metadata) or "")
    assert turn.is_person == speakers.is_person(source_node, metadata)


@pytest.mark.parametrize("name", sorted({*FORMATS, "remember"}))
def test_interface_or_format_speaks_nothing(name: str) -> None:
    assert name in INTERFACES
    assert speaker_of(name, {}) is None
    assert speaker_of(name, {"role": "user"}) == "user"


@given(
    source_node=st.sampled_from([*speakers.NO_SPEAKERS, *speakers.BLANKS]) | speakers.NAMES,
    metadata=speakers.METADATA,
)
def test_only_the_person_gets_the_name_of_the_user(
    source_node: str, metadata: dict[str, Any]
) -> None:
    turn = turn_of(version(source_node=source_node, metadata=metadata, user="ada"))

    name = name_of_speaker(turn, {})

    own = speakers.speaker(source_node, metadata) or ""
    assert name == ("ada" if speakers.is_person(source_node, metadata) else own)


@pytest.mark.parametrize(
    ("speaker", "name"),
    [
        pytest.param("user", "Ada L.", id="the person"),
        pytest.param("guest", "Ada L.", id="another person"),
        pytest.param("", "Ada L.", id="nobody known"),
        pytest.param("assistant", "assistant", id="an assistant"),
        pytest.param("Assistant", "Assistant", id="an assistant in other letters"),
        pytest.param("tool", "tool", id="a tool"),
        pytest.param("desk", "desk", id="the agent"),
    ],
)
def test_name_of_an_interface_goes_on_to_name_its_speakers_but_no_program(
    speaker: str, name: str
) -> None:
    turn = Turn("e1", "s1", speaker, "", 0, "ada", "desk", speaker == "user", "remember")

    assert name_of_speaker(turn, {"remember": "Ada L."}) == name
    assert name_of_speaker(turn._replace(source_node="chat"), {"remember": "Ada L."}) != "Ada L."


def test_entry_of_a_speaker_comes_before_that_of_an_interface() -> None:
    turn = Turn("e1", "s1", "guest", "", 0, "ada", "desk", source_node="remember")

    assert name_of_speaker(turn, {"remember": "{user}", "guest": "{agent}"}) == "desk"


def test_turn_before_is_of_another_known_speaker() -> None:
    said = ["user", "", "assistant", "", "user"]
    turns = [Turn(f"e{n}", "s1", speaker, "", n) for n, speaker in enumerate(said)]

    before = previous_turns(turns)

    assert [turn and turn.id for turn in before] == [None, None, "e0", None, "e2"]
