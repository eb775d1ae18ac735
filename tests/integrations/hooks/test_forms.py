"""The forms in which coding agents write who said what, also those that slumberd does not know."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slumberd.integrations.hooks.putting import read_line
from slumberd.integrations.hooks.transcripts import TranscriptLine
from tests.support.transcripts import CLAUDE_CODE, CODEX, claude_line, codex_line, line_of

pytestmark = pytest.mark.unit


def claude(content: Any, **fields: Any) -> TranscriptLine:
    return read_line(CLAUDE_CODE, claude_line("user", content, **fields), "s")


def typed(text: str) -> TranscriptLine:
    return read_line(CODEX, codex_line("event_msg", {"type": "user_message", "message": text}), "s")


def item(kind: str, **fields: Any) -> TranscriptLine:
    payload = {"type": "item_completed", "item": {"type": kind, **fields}}
    return read_line(CODEX, codex_line("event_msg", payload), "s")


def text_in(line: TranscriptLine) -> str | None:
    return line.turn.text if line.turn else None


@pytest.mark.parametrize(
    ("content", "said", "unknown"),
    [
        pytest.param("<note>I live in Rome.</note>", None, ("envelope note",), id="whole text"),
        pytest.param(
            '<channel source="x">\nI live in Rome.\n</channel>', None, ("envelope channel",),
            id="whole text with attributes",
        ),
        pytest.param(
            [{"type": "text", "text": "<part>I live in Rome.</part>"},
             {"type": "text", "text": "Make it blue."}],
            "Make it blue.", ("envelope part",), id="whole block",
        ),
        pytest.param(
            "Translate it.\n\n<editor-view>I live in Rome.</editor-view>\n", "Translate it.",
            ("envelope editor-view",), id="at the end",
        ),
        pytest.param(
            "<a-b>x</a-b>\n<c_d>y</c_d>\nGo on.", "Go on.", ("envelope a-b", "envelope c_d"),
            id="several",
        ),
        pytest.param(
            "Look: <ide_selection>I live in Rome.</ide_selection> and mend it.",
            "Look:  and mend it.", (), id="a known one inside",
        ),
        pytest.param(
            "<slumberd-memory>I live in Rome.</slumberd-memory>Mend it.", "Mend it.", (),
            id="what was recalled",
        ),
        pytest.param(
            "<ide_selection>a </ide_selection>\nI live in Rome.\n</ide_selection>Mend it.",
            "Mend it.", (), id="the end of its tag inside",
        ),
        pytest.param(
            "<a-b>x <a-b>y</a-b> I live in Rome.</a-b>Mend it.", "Mend it.", ("envelope a-b",),
            id="its tag inside",
        ),
        pytest.param(
            "<ide_selection>x <ide_selection> y</ide_selection>Mend it.", "Mend it.", (),
            id="the beginning of its tag inside",
        ),
        pytest.param(
            "<ide_selection>x</ide_selection>Mend it.<ide_selection>y</ide_selection>", "Mend it.",
            (), id="two of one name",
        ),
        pytest.param(
            "Look at this:\n<selected-text>\nI live in Rome.\n</selected-text>\nTranslate it.",
            "Look at this:\n\nTranslate it.", ("envelope selected-text",), id="on own lines",
        ),
        pytest.param(
            "<selection>\nI live in Rome.\n</selection>\nTranslate it.", "Translate it.",
            ("envelope selection",), id="one word, on own lines at the beginning",
        ),
        pytest.param(
            "Translate it.\n<selection>\nI live in Rome.\n</selection>", "Translate it.",
            ("envelope selection",), id="one word, on own lines at the end",
        ),
        pytest.param("Do:\n<p>\nx\n</p>\nNow", "Do:\n<p>\nx\n</p>\nNow", (), id="one word inside"),
        pytest.param("See <my-part>this</my-part>", "See <my-part>this</my-part>", (), id="a word"),
        pytest.param("a < b and c > d", "a < b and c > d", (), id="no tag"),
        pytest.param("<task-notification>x</task-notification>", None, (), id="known"),
    ],
)  # fmt: skip
def test_inserted_blocks_are_left_out_and_unknown_ones_counted(
    content: Any, said: str | None, unknown: tuple[str, ...]
) -> None:
    line = claude(content)

    assert (text_in(line), line.unknown) == (said, unknown)


@pytest.mark.parametrize(
    ("fields", "is_said", "unknown"),
    [
        ({"origin": {"kind": "human"}}, True, ()),
        ({"origin": {"kind": "task-notification"}}, False, ()),
        ({"origin": {"kind": "weather"}}, False, ("origin weather",)),
        ({"turnOrigin": "task_notification"}, False, ()),
        ({"turnOrigin": "human"}, True, ()),
        ({"promptSource": "typed"}, True, ()),
        ({"promptSource": "queued"}, True, ()),
        ({"promptSource": "system"}, False, ()),
        ({"promptSource": "weather"}, False, ("promptSource weather",)),
        ({"origin": {"kind": "human"}, "promptSource": "system"}, True, ()),
        ({"isVisibleInTranscriptOnly": True}, False, ()),
        ({"sourceToolUseID": "t1"}, False, ()),
        ({"isSynthetic": True}, False, ()),
        ({"origin": "task-notification"}, False, ()),
        ({"origin": {"type": "weather"}}, False, ("origin weather",)),
        ({"origin": {"source": "weather"}}, False, ("origin of an unknown form",)),
        ({"promptSource": ["typed"]}, False, ("promptSource of an unknown form",)),
        ({"origin": None, "promptSource": ""}, True, ()),
    ],
    ids=str,
)
def test_line_states_who_wrote_it(
    fields: dict[str, Any], is_said: bool, unknown: tuple[str, ...]
) -> None:
    line = claude("I live in Rome.", **fields)

    assert (line.turn is not None, line.unknown) == (is_said, unknown)


def test_person_who_is_stated_may_write_markup() -> None:
    text = "<instructions>Answer in French.</instructions>"

    assert text_in(claude(text, origin={"kind": "human"})) == text
    assert text_in(claude(text)) is None
    inside = "Mend:\n<my-part>\nx\n</my-part>\nNow."
    assert text_in(claude(inside, origin={"kind": "human"})) == inside


def test_refusal_of_a_tool_is_a_turn_of_the_person() -> None:
    text = "It was refused. To tell you why, the user said:\nUse SQLite."
    result = {"type": "tool_result", "is_error": True, "tool_use_id": "t", "content": text}

    assert text_in(claude([result], toolDenialKind="user-rejected")) == "Use SQLite."
    assert claude([result]).turn is None
    assert claude([result], toolDenialKind="permission-rule").turn is None


def test_text_beside_the_output_of_a_tool_is_no_word_of_the_person() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}

    assert claude([result, {"type": "text", "text": "I live in Rome."}]).turn is None


@pytest.mark.parametrize(
    ("attachment", "said"),
    [
        pytest.param({"prompt": "Use SQLite.", "commandMode": "prompt"}, "Use SQLite.", id="text"),
        pytest.param({"prompt": [{"type": "text", "text": "Use SQLite."}, {"type": "image"}]},
                     "Use SQLite.", id="blocks"),
        pytest.param({"prompt": "x", "origin": {"kind": "human"}}, "x", id="a person"),
        pytest.param({"prompt": "x", "origin": {"kind": "task-notification"}}, None, id="program"),
        pytest.param({"prompt": "x", "commandMode": "task-notification"}, None, id="notification"),
        pytest.param({"prompt": "<peer-message>x</peer-message>"}, None, id="envelope"),
        pytest.param({"type": "new_file", "prompt": "x"}, None, id="another attachment"),
    ],
)  # fmt: skip
def test_what_is_typed_while_the_agent_works_is_a_turn(
    attachment: dict[str, Any], said: str | None
) -> None:
    record = {"type": "attachment", "uuid": "a1", "timestamp": "2026-03-01T09:00:00Z",
              "attachment": {"type": "queued_command", **attachment}}  # fmt: skip
    line = read_line(CLAUDE_CODE, line_of(record), "s")

    assert text_in(line) == said
    assert line.turn is None or line.turn.speaker == "user"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"operation": "remove", "reason": "absorbed_mid_turn"}, "Use SQLite."),
        ({"operation": "remove"}, "Use SQLite."),
        ({"operation": "remove", "reason": "cancelled"}, None),
        ({"operation": "enqueue"}, None),
        ({"operation": "popAll"}, None),
    ],
    ids=str,
)
def test_prompt_that_the_agent_took_from_its_queue_is_a_turn(
    fields: dict[str, Any], said: str | None
) -> None:
    record = {"type": "queue-operation", "content": "Use SQLite.", **fields}

    assert text_in(read_line(CLAUDE_CODE, line_of(record), "s")) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(item("UserMessage", content=[{"type": "text", "text": "Hi"}]), "Hi", id="new"),
        pytest.param(
            item("UserMessage", content=[{"type": "image"}, {"type": "text", "text": "Hi"}]), "Hi",
            id="with a picture",
        ),
        pytest.param(item("AgentMessage", content=[{"type": "Text", "text": "Hi"}]), "Hi",
                     id="of the agent"),
        pytest.param(item("userMessage", content=[{"type": "input_text", "text": "Hi"}]), "Hi",
                     id="another spelling"),
        pytest.param(item("agent_message", text="Hi"), "Hi", id="text without blocks"),
        pytest.param(item("Reasoning", summary_text=["x"]), None, id="thinking"),
        pytest.param(typed("# Context from my IDE setup:\n\n## Active selection:\nI live in Rome."
                           "\n\n## My request for Codex:\nTranslate it."), "Translate it.",
                     id="editor"),
        pytest.param(typed("# Context from my IDE setup:\n## My request for Codex:\nI live in Rome."
                           "\n## My request:\nTranslate it.\n"), "Translate it.",
                     id="editor with a selected heading"),
        pytest.param(typed("# Context from my IDE setup:\nI live in Rome."), None,
                     id="editor without a request"),
        pytest.param(typed("# A heading\nof mine"), "# A heading\nof mine", id="own heading"),
        pytest.param(typed("<environment_context>x</environment_context>"), None, id="context"),
    ],
)  # fmt: skip
def test_forms_of_codex(line: TranscriptLine, said: str | None) -> None:
    assert text_in(line) == said
    assert line.unknown == ()


@pytest.mark.parametrize(
    ("agent", "line", "unknown"),
    [
        (CLAUDE_CODE, line_of({"type": "weather"}), "weather"),
        (CLAUDE_CODE, line_of({"uuid": "x"}), "no type"),
        (CLAUDE_CODE, claude_line("user", [{"type": "voice", "words": "x"}]), "user voice"),
        (CLAUDE_CODE, claude_line("user", {"type": "text"}), "user dict"),
        (CODEX, codex_line("weather", {}), "weather"),
        (CODEX, codex_line("event_msg", {"type": "weather"}), "event_msg weather"),
        (CODEX, codex_line("response_item", {"type": "weather"}), "response_item weather"),
        (CODEX, codex_line("event_msg", {"type": "item_completed", "item": {"type": "UserSpeech"}}),
         "item_completed UserSpeech"),
        (CODEX, codex_line("event_msg", {"type": "user_message", "message": "x", "kind": "odd"}),
         "user_message odd"),
        (CODEX, codex_line("event_msg", {"type": "item_completed",
                                         "item": {"type": "UserMessage", "words": "x"}}),
         "UserMessage without content"),
        (CODEX, line_of({"type": "user_turn", "text": "x"}), "user_turn"),
        (CODEX, codex_line("event_msg", {"type": "thread_rolled_back", "turns": 1}),
         "thread_rolled_back without num_turns"),
        (CODEX, codex_line("event_msg", {"type": "thread_rolled_back", "num_turns": "1"}),
         "thread_rolled_back without num_turns"),
        (CODEX, codex_line("event_msg", {"type": "item_completed", "item": {
            "type": "UserMessage", "content": [{"type": "text", "words": "x"}]}}),
         "UserMessage text without text"),
        (CODEX, codex_line("event_msg", {"type": "item_completed", "item": {
            "type": "UserMessage", "content": [{"type": "speech", "text": "x"}]}}),
         "UserMessage speech"),
        (CODEX, codex_line("event_msg", {"type": "item_completed", "item": {
            "type": "UserMessage", "content": ["x"]}}), "UserMessage no block"),
        (CODEX, codex_line("response_item", {"type": "message", "role": "assistant",
                                             "content": [{"type": "speech", "text": "x"}]}),
         "assistant speech"),
        (CODEX, codex_line("response_item", {"type": "message", "role": "human", "content": []}),
         "message of the role human"),
        (CLAUDE_CODE, line_of({"type": "queue-operation", "operation": "take", "content": "x"}),
         "queue-operation take"),
        (CLAUDE_CODE, line_of({"type": "queue-operation", "operation": ["take"]}),
         "queue-operation ['take']"),
        (CLAUDE_CODE, line_of({"type": "queue-operation", "operation": "remove", "reason": "x"}),
         "queue-operation remove x"),
        (CLAUDE_CODE, line_of({"type": "attachment", "attachment": {
            "type": "queued_command", "commandMode": "x", "prompt": "x"}}), "commandMode x"),
    ],
    ids=str,
)  # fmt: skip
def test_unknown_kind_of_line_is_named(agent: str, line: bytes, unknown: str) -> None:
    found = read_line(agent, line, "s")

    assert (found.unknown, found.turn) == ((unknown,), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<system-reminder>" * 30_000, id="unclosed marks"),
        pytest.param("<a-b>" * 100_000, id="unclosed blocks"),
        pytest.param("".join(f"<a{n}-b>" for n in range(25_000)), id="unclosed names"),
        pytest.param("<a-b></a-b>" * 30_000, id="blocks"),
        pytest.param("<" * 500_000, id="signs"),
        pytest.param("<a " * 150_000, id="unclosed tags"),
        pytest.param(" " * 500_000, id="space"),
        pytest.param("# \n" + "## My request:\n" * 30_000, id="headings"),
    ],
)
@pytest.mark.parametrize("speaker", ["user", "assistant"])
def test_reading_takes_no_longer_for_hostile_texts(speaker: str, text: str) -> None:
    line = claude_line(speaker, [{"type": "text", "text": text}])
    begin = time.process_time()

    read_line(CLAUDE_CODE, line, "s")

    assert time.process_time() - begin < 5
