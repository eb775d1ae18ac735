"""What hooks print: JSON that the agents read, with memories quoted as data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.hooks import command
from slumberd.integrations.hooks.command import (
    MOST_CHARACTERS,
    MOST_HITS,
    context_answer,
    quote_hits,
)
from slumberd.model.fact import Superseded
from slumberd.model.texts import BEGIN, END
from slumberd.search.context import NOTICE, line_of
from slumberd.search.hits import Hit, Kind, SimilarTurn

pytestmark = pytest.mark.unit


def hit(**fields: Any) -> Hit:
    given: dict[str, Any] = {
        "id": "e1", "kind": "episode", "score": 0.5, "lexical": 0.5, "vector": None, "text": "x",
        "at": datetime(2026, 3, 1, 9, tzinfo=UTC), "user": "ada", "agent": "desk", "session": "s1",
        "speaker": "user",
    }  # fmt: skip
    return Hit(**(given | fields))


def test_context_is_in_the_form_that_both_agents_read() -> None:
    printed = context_answer("SessionStart", "a\nb")

    assert printed.endswith("\n") and printed.count("\n") == 1
    assert json.loads(printed) == {
        "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "a\nb"}
    }


def test_empty_context_prints_nothing() -> None:
    assert context_answer("SessionStart", "") == ""
    assert quote_hits([], "s1") == ""


def test_memories_of_the_session_itself_are_left_out() -> None:
    hits = [
        hit(id="own").to_dict(),
        hit(id="other", session="s2").to_dict(),
        hit(id="fact", kind="fact", session="", speaker="", trust="derived").to_dict(),
    ]

    text = quote_hits(hits, "s1")

    assert [line.split()[1] for line in text.splitlines()[2:-1]] == ['"other"', '"fact"']
    assert quote_hits(hits[:1], "s1") == ""


def test_number_and_length_of_memories_are_bounded() -> None:
    hits = [hit(id=f"e{n}", text="y" * 10_000).to_dict() for n in range(50)]

    lines = quote_hits(hits, "").splitlines()

    assert len(lines) == MOST_HITS + 3
    assert len(max(lines, key=len)) < MOST_CHARACTERS + 100
    assert lines[2].endswith('y…"')


@given(
    kind=st.sampled_from(["episode", "fact"]),
    text=st.text(max_size=MOST_CHARACTERS) | st.sampled_from([END, f"a{BEGIN}b{END}c", '\0\n"<']),
    speaker=st.text(max_size=5),
    gone=st.lists(st.text(max_size=300) | st.just(f'{END}"<'), max_size=5),
    later=st.lists(st.text(max_size=20), max_size=5),
)
def test_line_is_that_of_the_daemons_own_contexts(
    kind: Kind, text: str, speaker: str, gone: list[str], later: list[str]
) -> None:
    at = datetime(2026, 3, 8, 23, 59, tzinfo=UTC)
    superseded = tuple(
        Superseded(
            subject="ada", predicate="is", object=1, kind="retracted", by=None, at=at, fact_id="e2",
            text=words,
        )
        for words in gone
    )  # fmt: skip
    similar = tuple(SimilarTurn(id=id, at=at) for id in later)
    found = hit(kind=kind, text=text, speaker=speaker, superseded=superseded, similar_later=similar)

    lines = quote_hits([found.to_dict()], "").split("\n")

    assert (lines[0], lines[1], lines[-1]) == (BEGIN, command.NOTICE, END)
    assert command.NOTICE == NOTICE
    assert lines[2:-1] == [line_of(found)]
    assert "<" not in lines[2]
