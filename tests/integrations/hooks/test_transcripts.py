"""Which lines of a transcript are turns, and what of a turn is put."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.hooks.putting import read_line
from slumberd.integrations.hooks.transcripts import MOST_CHARACTERS, TranscriptTurn, episodes_of
from slumberd.model.texts import BEGIN, END
from slumberd.operations import forms
from slumberd.operations.new_episodes import RememberForm
from tests.support.transcripts import (
    CLAUDE_CODE,
    CODEX,
    SESSION,
    claude_line,
    codex_line,
    codex_message,
    line_of,
    noise,
    said,
)

pytestmark = pytest.mark.unit

BOTH = pytest.mark.parametrize("agent", [CLAUDE_CODE, CODEX])


def turn_of(agent: str, line: bytes) -> TranscriptTurn | None:
    return read_line(agent, line, "hook-session").turn


def texts_of(agent: str, lines: bytes) -> list[str]:
    turns = [turn_of(agent, line) for line in lines.splitlines(keepends=True)]
    return [turn.text for turn in turns if turn is not None]


@BOTH
@pytest.mark.parametrize("speaker", ["user", "assistant"])
def test_what_was_said_is_one_turn(agent: str, speaker: str) -> None:
    lines = said(agent, speaker, "Deploy on Fridays.", 7).splitlines(keepends=True)

    [turn] = [turn for line in lines if (turn := turn_of(agent, line)) is not None]

    session = SESSION if agent == CLAUDE_CODE else "hook-session"
    assert turn[1:] == (
        session, speaker, "Deploy on Fridays.", "2026-03-01T09:00:07.123000+00:00",
    )  # fmt: skip


@BOTH
def test_tools_thinking_and_bookkeeping_are_no_turns(agent: str) -> None:
    assert texts_of(agent, noise(agent, 3)) == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(claude_line("user", "x", isMeta=True), id="inserted by the agent"),
        pytest.param(claude_line("user", "x", isSidechain=True), id="of a subagent"),
        pytest.param(claude_line("user", "x", isCompactSummary=True), id="summary"),
        pytest.param(claude_line("assistant", "x", isApiErrorMessage=True), id="error"),
        pytest.param(claude_line("user", "<command-name>/clear</command-name>"), id="command"),
        pytest.param(
            claude_line("user", "<local-command-stdout>a</local-command-stdout>"), id="out"
        ),
        pytest.param(claude_line("user", "[Request interrupted by user]"), id="interruption"),
        pytest.param(claude_line("user", "<system-reminder>do</system-reminder>"), id="reminder"),
        pytest.param(claude_line("user", " \n"), id="blank"),
        pytest.param(claude_line("user", [{"type": "image"}, 7, {}]), id="no text"),
        pytest.param(claude_line("user", {"type": "text"}), id="no list"),
        pytest.param(line_of({"type": "summary", "summary": "x"}), id="title"),
    ],
)
def test_line_of_claude_code_that_nobody_said_is_no_turn(line: bytes) -> None:
    assert turn_of(CLAUDE_CODE, line) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(codex_message("developer", "x"), id="context of a hook"),
        pytest.param(codex_message("user", "# AGENTS.md instructions"), id="instructions"),
        pytest.param(
            codex_line("event_msg", {"type": "agent_message", "message": "x"}), id="mirror"
        ),
        pytest.param(codex_line("event_msg", {"type": "token_count"}), id="usage"),
        pytest.param(codex_line("session_meta", {"id": "s", "cwd": "/"}), id="header"),
        pytest.param(codex_line("compacted", {"message": "x"}), id="compaction"),
        pytest.param(line_of({"type": "response_item", "payload": None}), id="no payload"),
    ],
)
def test_line_of_codex_that_nobody_said_is_no_turn(line: bytes) -> None:
    assert turn_of(CODEX, line) is None


@BOTH
@pytest.mark.parametrize(
    ("text", "put"),
    [
        pytest.param(f"before {BEGIN}\nfact{END} after", "before   after", id="block"),
        pytest.param(f"before {BEGIN} no end", "before", id="block without an end"),
        pytest.param(f"{BEGIN}a{END}{BEGIN}b{END}", None, id="nothing else"),
        pytest.param(f"x{END}", f"x{END}", id="end alone"),
    ],
)
def test_recalled_text_is_not_put_again(agent: str, text: str, put: str | None) -> None:
    assert texts_of(agent, said(agent, "user", text, 1)) == ([] if put is None else [put])


@BOTH
def test_text_that_no_episode_can_hold_is_mended(agent: str) -> None:
    line = said(agent, "assistant", "a\0b", 1).replace(b"b", b"\\ud800")

    assert texts_of(agent, line) == ["a\N{REPLACEMENT CHARACTER}?"]


@BOTH
@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"type": ' + b"9" * 5_000 + b"}"],
    ids=["empty", "half", "list", "number", "bytes", "deep", "long number"],
)
def test_line_that_is_no_record_is_an_error(agent: str, line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # of several parsers
        turn_of(agent, line)


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        pytest.param(CLAUDE_CODE, claude_line("user", "x", uuid=None), id="no uuid"),
        pytest.param(CLAUDE_CODE, claude_line("user", "x", message="x"), id="no message"),
        pytest.param(CODEX, codex_line("event_msg", {"type": "user_message"}), id="no text"),
    ],
)
def test_turn_without_what_turns_have_is_an_error(agent: str, line: bytes) -> None:
    with pytest.raises(ValueError, match="it"):
        turn_of(agent, line)


@pytest.mark.parametrize(
    "timestamp", [None, 7, "yesterday", "2026-13-01T00:00:00Z", "2026-03-01T09:00:00"]
)
def test_turn_without_a_valid_instant_has_none(timestamp: Any) -> None:
    turn = turn_of(CLAUDE_CODE, claude_line("user", "x", timestamp=timestamp))

    assert turn is not None
    assert turn.when is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "text", "content", "role", "message", "payload", "uuid"])
        | st.text(max_size=5),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
kinds = st.sampled_from(["user", "assistant", "event_msg", "response_item", "other"])


@pytest.mark.slow
@BOTH
@given(kind=kinds, record=st.dictionaries(
    st.sampled_from(["uuid", "message", "payload", "timestamp", "sessionId", "isMeta"]),
    json_values,
))  # fmt: skip
def test_any_record_is_a_turn_or_none_or_a_value_error(
    agent: str, kind: str, record: dict[str, Any]
) -> None:
    try:
        turn = turn_of(agent, line_of({"type": kind, **record}))
    except ValueError:
        return

    assert turn is None or (turn.text.strip() and "\0" not in turn.text)


def test_long_turn_becomes_several_episodes_with_ids_of_their_own() -> None:
    text = "".join(chr(97 + number % 26) for number in range(2 * MOST_CHARACTERS + 5))

    requests = [*episodes_of(TranscriptTurn("k", "s", "user", text, None), "ada", "desk")]

    assert "".join(request["text"] for request in requests) == text
    assert [request["id"].partition(".")[2] for request in requests] == ["", "2", "3"]
    assert MOST_CHARACTERS == forms.MOST_CHARACTERS
    for request in requests:
        RememberForm.model_validate(request, strict=True)


@pytest.mark.parametrize("place", [0, 1, 2, 3], ids=["key", "session", "user", "agent"])
def test_another_turn_session_user_or_agent_gives_another_id(place: int) -> None:
    def id_of(key: str, session: str, user: str, agent: str) -> str:
        [request] = episodes_of(TranscriptTurn(key, session, "user", "x", None), user, agent)
        return str(request["id"])

    names = ["k", "s", "u", "a"]
    others = [*names]
    others[place] = "other"

    assert id_of(*names) == id_of(*names) != id_of(*others)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("<task-note>\nI live in Rome.\n</task-note>", None, id="whole"),
        pytest.param(
            '<teammate-message id="r" color="blue">\nI live in Rome.\n</teammate-message>',
            None,
            id="whole, with attributes",
        ),
        pytest.param(
            "<ide_part>I live in Rome.</ide_part>\nTranslate it.",
            "Translate it.",
            id="at the beginning",
        ),
        pytest.param("<a-b>x</a-b>\n<c_d>y</c_d> Go on.", "Go on.", id="two at the beginning"),
        pytest.param(
            [
                {"type": "text", "text": "<ide_opened_file>a file</ide_opened_file>"},
                {"type": "text", "text": "Make it blue."},
                {"type": "text", "text": "<ide_selection>red</ide_selection>"},
            ],
            "Make it blue.",
            id="blocks of their own",
        ),
        pytest.param("Mend <my-part>this</my-part>.", "Mend <my-part>this</my-part>.", id="inside"),
        pytest.param("<b>Bold</b> is wrong.", "<b>Bold</b> is wrong.", id="a tag of one word"),
        pytest.param("<my-part> is wrong.", "<my-part> is wrong.", id="a tag without an end"),
    ],
)
def test_inserted_text_is_no_word_of_the_person(content: Any, said: str | None) -> None:
    turn = turn_of(CLAUDE_CODE, claude_line("user", content))

    assert (turn and turn.text) == said


@pytest.mark.parametrize(
    ("origin", "is_said"),
    [
        pytest.param({"kind": "task-notification"}, False, id="a program"),
        pytest.param({"kind": "human"}, True, id="a person"),
        pytest.param({}, True, id="no kind"),
        pytest.param(None, True, id="none"),
    ],
)
def test_line_of_another_origin_is_no_word_of_the_person(origin: Any, is_said: bool) -> None:
    turn = turn_of(CLAUDE_CODE, claude_line("user", "I live in Rome.", origin=origin))

    assert (turn is not None) == is_said
