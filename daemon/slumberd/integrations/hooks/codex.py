"""Read lines of the rollouts of Codex, in the forms before and after version 0.145."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slumberd.integrations.hooks.transcripts import (
    AGENT,
    PERSON,
    Thread,
    TranscriptLine,
    TranscriptTurn,
    instant_of,
    key_of_line,
    text_of,
    turn_of,
    words_of_person,
)

_NOTES = frozenset({"compacted", "inter_agent_communication", "turn_context", "world_state"})
_RESPONSES = frozenset({
    "additional_tools", "agent_message", "compaction", "compaction_summary", "context_compaction",
    "custom_tool_call", "custom_tool_call_output", "function_call", "function_call_output",
    "ghost_snapshot", "image_generation_call", "local_shell_call", "message", "reasoning",
    "tool_search_call", "tool_search_output", "web_search_call",
})  # fmt: skip
_BOUNDARIES = frozenset({
    "task_complete", "task_started", "turn_aborted", "turn_complete", "turn_completed",
    "turn_started",
})  # fmt: skip
_EVENTS = _BOUNDARIES | frozenset({
    "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "background_event",
    "collab_agent_interaction_end", "collab_agent_spawn_end", "collab_close_end",
    "collab_resume_end", "collab_waiting_end", "context_compacted", "dynamic_tool_call_request",
    "dynamic_tool_call_response", "entered_review_mode", "error", "exec_command_end",
    "exited_review_mode", "guardian_assessment", "image_generation_end", "injected_message",
    "item_completed", "item_started", "mcp_tool_call_end", "patch_apply_end", "stream_error",
    "sub_agent_activity", "thread_goal_updated", "thread_name_updated", "thread_rolled_back",
    "thread_settings_applied", "token_count", "undo_completed", "user_message",
    "view_image_tool_call", "warning", "web_search_end",
})  # fmt: skip
_ITEMS = frozenset({
    "AgentMessage", "CollabAgentToolCall", "CommandExecution", "ContextCompaction",
    "DynamicToolCall", "Extension", "FileChange", "HookPrompt", "ImageGeneration", "ImageView",
    "McpToolCall", "Plan", "Reasoning", "Sleep", "SubAgentActivity", "UserMessage", "WebSearch",
})  # fmt: skip
"""The kinds of lines that slumberd knows, by the line's ``type``."""

_SPEAKERS = {"UserMessage": PERSON, "AgentMessage": AGENT}
_ROLES = frozenset({AGENT, "developer", "system", "tool", PERSON})
_BLOCKS = frozenset({
    "audio", "encrypted_content", "image", "inputaudio", "inputimage", "inputtext", "localimage",
    "mention", "outputtext", "refusal", "skill", "text",
})  # fmt: skip
"""The types of the blocks of a message, without their capitals and lines."""

_PERSONS = frozenset({"cli", "exec", PERSON, "vscode"})
_AGENTS = frozenset({"guardian_review", "memory_consolidation", "subagent"})
"""Who may have begun a thread, by its ``thread_source``; a version of Codex may add others."""

_MILLISECONDS_OF_ID = 12
"""So many hexadecimal digits of a UUID of version 7 are the milliseconds since 1970."""


def read_codex(record: dict[str, Any], line: bytes, session: str) -> TranscriptLine:
    """Return what a line of Codex says.

    Raises:
        ValueError: A field that this kind of line always has is missing.
    """
    payload, kind = record.get("payload"), text_of(record.get("type"))
    found = TranscriptLine(at=instant_of(record.get("timestamp")))
    if not isinstance(payload, dict):
        return found._replace(unknown=(kind or "no type",))
    match kind:
        case "session_meta":
            return _read_head(payload, found)
        case "response_item":
            return _read_response(payload, line, session, found)
        case "event_msg":
            return _read_event(payload, line, session, found)
        case _:
            return found if kind in _NOTES else found._replace(unknown=(kind or "no type",))


def _read_head(payload: Mapping[str, Any], found: TranscriptLine) -> TranscriptLine:
    source, asked_by = payload.get("source"), payload.get("thread_source")
    by_agent = isinstance(source, dict) and any(key in source for key in ("subagent", "internal"))
    is_known = by_agent or asked_by in (None, *_PERSONS, *_AGENTS)
    thread = Thread(
        id=text_of(payload.get("id")),
        # Since 0.145, a fork may name what it continues in place of a copy.
        is_copy=bool(payload.get("forked_from_id")) and not payload.get("history_base"),
        original=text_of(payload.get("forked_from_id")),
        is_of_person=not by_agent and asked_by in (None, *_PERSONS),
        at=instant_of(payload.get("timestamp")) or found.at,
        unknown="" if is_known else f"thread_source {text_of(asked_by) or 'of an unknown form'}",
    )
    return found._replace(thread=thread, version=text_of(payload.get("cli_version")))


def _read_response(
    payload: Mapping[str, Any], line: bytes, session: str, found: TranscriptLine
) -> TranscriptLine:
    kind = text_of(payload.get("type"))
    if kind not in _RESPONSES:
        return found._replace(unknown=(f"response_item {kind}",))
    # The model also gets messages of the user that nobody typed; an event has the typed one.
    if kind != "message":
        return found
    role, content = text_of(payload.get("role")), payload.get("content")
    if role not in _ROLES:
        return found._replace(unknown=(f"message of the role {role}",))
    if role != AGENT:
        return found
    text = "\n\n".join(filter(None, _texts_of(content, "output_text")))
    return _with_turn(found, AGENT, text, line, session, _unknown_in(content, AGENT))


def _read_event(
    payload: Mapping[str, Any], line: bytes, session: str, found: TranscriptLine
) -> TranscriptLine:
    kind = text_of(payload.get("type"))
    match kind:
        case "user_message":
            return _read_typed(payload, line, session, found)
        case "item_completed":
            return _read_item(payload, line, session, found)
        case "thread_rolled_back":
            turns = payload.get("num_turns")
            if isinstance(turns, int):
                return found._replace(rolled_back=turns)
            return found._replace(unknown=("thread_rolled_back without num_turns",))
        case _ if kind in _BOUNDARIES:
            return found._replace(is_boundary=True, began=_beginning_of(payload))
        case _:
            return found if kind in _EVENTS else found._replace(unknown=(f"event_msg {kind}",))


def _read_typed(
    payload: Mapping[str, Any], line: bytes, session: str, found: TranscriptLine
) -> TranscriptLine:
    """Return what a person typed, in the form of versions before 0.145."""
    text, kind = payload.get("message"), payload.get("kind")
    if not isinstance(text, str):
        raise ValueError("its message is no text")  # noqa: TRY004 # a malformed file
    if kind not in (None, "plain"):
        is_known = kind in ("environment_context", "user_instructions")
        return found if is_known else found._replace(unknown=(f"user_message {kind}",))
    return _with_turn(found, PERSON, text, line, session)


def _read_item(
    payload: Mapping[str, Any], line: bytes, session: str, found: TranscriptLine
) -> TranscriptLine:
    """Return what was said, in the form of versions since 0.145."""
    item = payload.get("item")
    given = text_of(item.get("type")) if isinstance(item, dict) else ""
    # Interfaces of Codex write the same kinds as userMessage, or as user_message.
    kind = "".join(part[:1].upper() + part[1:] for part in given.split("_"))
    if kind not in _ITEMS or not isinstance(item, dict):
        return found._replace(unknown=(f"item_completed {given}",))
    speaker = _SPEAKERS.get(kind)
    if speaker is None:
        return found
    content = item.get("content", item.get("text"))
    joint = "" if speaker == PERSON else "\n\n"
    text = content if isinstance(content, str) else joint.join(_texts_of(content, "text"))
    if not isinstance(content, str | list):
        return found._replace(unknown=(f"{given} without content",))
    unknown = _unknown_in(content, given)
    said = _with_turn(found, speaker, text, line, session, unknown)
    # The same is also in a line of the older form, in some versions; that line's id stays valid.
    return said._replace(is_spare=True, began=_beginning_of(payload))


def _with_turn(  # the parts of a line
    found: TranscriptLine,
    speaker: str,
    text: str,
    line: bytes,
    session: str,
    unknown: tuple[str, ...] = (),
) -> TranscriptLine:
    is_wordless = speaker == PERSON and not text.strip()
    if speaker == PERSON:
        text, names = words_of_person(text, is_stated=False)
        unknown = (*unknown, *(f"envelope {name}" for name in names))
    # Only some versions of Codex give a line an id.
    turn = turn_of(TranscriptTurn(key_of_line(line), session, speaker, text, found.at))
    is_typed = speaker == PERSON and turn is not None
    return found._replace(turn=turn, is_typed=is_typed, is_wordless=is_wordless, unknown=unknown)


def _texts_of(content: object, kind: str) -> list[str]:
    """Return the texts of the blocks of a kind: Codex writes ``text``, ``Text``, ``input_text``."""
    blocks = content if isinstance(content, list) else []
    found = [block for block in blocks if isinstance(block, dict)]
    right = [block for block in found if text_of(block.get("type")).lower().endswith(kind)]
    return [text for block in right if isinstance(text := block.get("text"), str)]


def _unknown_in(content: object, place: str) -> tuple[str, ...]:
    """Return the kinds of blocks of a message that the reader does not know."""
    if isinstance(content, str):
        return ()
    kinds = [*map(_unknown_kind, content)] if isinstance(content, list) else ["content"]
    return tuple(f"{place} {kind}" for kind in dict.fromkeys(kinds) if kind)


def _unknown_kind(block: object) -> str:
    """Return the kind of a block that the reader does not know; empty when it knows it."""
    if not isinstance(block, dict):
        return "no block"
    kind = text_of(block.get("type"))
    plain = kind.replace("_", "").lower()
    if plain not in _BLOCKS:
        return kind or "no type"
    is_empty = plain.endswith("text") and not isinstance(block.get("text"), str)
    return f"{kind} without text" if is_empty else ""


def _beginning_of(payload: Mapping[str, Any]) -> float | None:
    """Return when the agent's turn of an event began, in seconds; None when nothing says it."""
    started = payload.get("started_at")
    if isinstance(started, int | float):
        return float(started)
    name = text_of(payload.get("turn_id")).replace("-", "")
    is_timed = len(name) == 32 and name[_MILLISECONDS_OF_ID] == "7"  # a UUID
    try:
        return int(name[:_MILLISECONDS_OF_ID], 16) / 1_000 if is_timed else None
    except ValueError:
        return None
