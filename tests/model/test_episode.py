"""Ids of keys never collide, speakers are known alike everywhere, and misspelled keys are named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.turns import name_of_speaker, previous_turns
from slumberd.integrations.interchange.formats import FORMATS
from slumberd.model.episode import (
    EARLIEST,
    INTERFACES,
    LATEST,
    READ_KEYS,
    Misspelling,
    id_of_key,
    instant,
    instant_text,
    may_have_id,
    misspelled_keys,
    misspellings_in,
    speaker_of,
)
from slumberd.model.errors import InstantRangeError
from slumberd.model.extraction import Turn, turn_of
from tests.support import speakers
from tests.support.builders import version

pytestmark = pytest.mark.unit

PART = st.text(st.sampled_from("ab/%25F:\0 é"), min_size=1, max_size=6)
NAME = st.tuples(PART, PART, PART)


@given(
    st.integers(EARLIEST, LATEST) | st.integers(-(10**10), 10**10).map(lambda n: n // 7 * 500_000)
)
@example(EARLIEST)
@example(LATEST)
def test_text_of_an_instant_is_that_of_its_datetime(at: int) -> None:
    assert instant_text(at) == instant(at).isoformat()


@pytest.mark.parametrize("at", [EARLIEST - 1, LATEST + 1])
def test_instant_outside_of_the_calendar_has_no_text(at: int) -> None:
    with pytest.raises(InstantRangeError):
        instant_text(at)


def test_id_of_plain_parts_is_easy_to_read() -> None:
    assert id_of_key("ana", "desk", "turn 1") == "key:ana/desk/turn 1"


@given(NAME, NAME)
def test_ids_are_equal_when_user_agent_and_key_are(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (id_of_key(*one) == id_of_key(*other)) is (one == other)


@given(NAME, PART, PART)
def test_only_the_owner_of_a_key_may_have_its_id(
    name: tuple[str, str, str], user: str, agent: str
) -> None:
    id = id_of_key(*name)

    assert may_have_id(user, agent, id) is ((user, agent) == name[:2])
    assert may_have_id(user, agent, "e1")


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


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        pytest.param("Subject", "subject", id="a capital"),
        pytest.param("PREDICATE", "predicate", id="capitals"),
        pytest.param("predicat", "predicate", id="a letter is missing at the end"),
        pytest.param("redicate", "predicate", id="a letter is missing at the beginning"),
        pytest.param("objects", "object", id="a letter too many"),
        pytest.param("confidance", "confidence", id="another letter"),
        pytest.param("inetnt", "intent", id="two letters are swapped"),
        pytest.param("repalces", "replaces", id="two letters in the middle are swapped"),
        pytest.param(" subject", "subject", id="a space"),
        pytest.param("object:", "object", id="a colon"),
    ],
)
def test_key_with_a_typing_error_is_reported_with_the_intended_key(key: str, meant: str) -> None:
    assert list(misspelled_keys({key: "x"})) == [(key, meant)]


@pytest.mark.parametrize(
    "key",
    [
        *sorted(READ_KEYS), "topic", "content", "project", "subject_id", "objective", "reject",
        "confident", "", "x", "s" * 10_000, "subject" * 10,
    ],
)  # fmt: skip
def test_a_key_of_the_host_is_not_reported(key: str) -> None:
    assert list(misspelled_keys({key: "x"})) == []


def test_key_is_not_reported_beside_the_key_that_it_resembles() -> None:
    assert list(misspelled_keys({"object": "tea", "objects": ["tea", "milk"]})) == []


def test_misspelled_key_of_a_triple_is_found_once_for_each_episode() -> None:
    triples = [{"subjet": "ada"}, {"subjet": "bob"}, 7]
    versions = [version(id, metadata={"triples": triples}) for id in ("e1", "e2")]

    found = misspellings_in(versions)

    assert found == [Misspelling("subjet", "subject", "e1", 2)]
