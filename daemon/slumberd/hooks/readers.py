"""Choose the reader of a coding agent's transcripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slumberd.hooks.agents import CLAUDE_CODE, CODEX
from slumberd.hooks.claude_code import read_claude_code
from slumberd.hooks.codex import read_codex
from slumberd.hooks.transcripts import Line, read_record

_READERS: dict[str, Callable[[dict[str, Any], bytes, str], Line]] = {
    CLAUDE_CODE.name: read_claude_code,
    CODEX.name: read_codex,
}


def read_line(agent: str, line: bytes, session: str) -> Line:
    """Return what a line says.

    Args:
        agent: The name of the coding agent that wrote the transcript.
        line: One line of it.
        session: The conversation, unless the line names its own.

    Raises:
        ValueError: The line is no JSON object, or a field that it always has is missing.
    """
    return _READERS[agent](read_record(line), line, session)
