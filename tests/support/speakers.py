"""Who spoke, as the law says it. Shares no code with slumberd."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import strategies as st

NO_SPEAKERS = (
    "remember", "mem0", "graphiti", "langgraph", "mcp-memory", "claude-folder", "codex-folder",
    "contract", "slumberd.tiers", "episodes", "otlp",
)  # fmt: skip
FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Characters that Unicode counts among letters and signs, and that show nothing."""

BLANKS = ("", " ", "\n\t", "\u200b\ufeff", "\u00a0\u2003", "\u0000", "\u202e", "\u3164", "\u0301")
NAMES = st.sampled_from(
    ["user", "human", "assistant", "agent", "ann", "{user}", "user\u0000", "User", "\u200buser"]
)
VALUES = (
    st.sampled_from([*NO_SPEAKERS, *BLANKS])
    | NAMES
    | st.sampled_from([None, 7, True, ["user"], {"name": "user"}])
)
METADATA = st.fixed_dictionaries({}, optional={"speaker": VALUES, "role": VALUES})


def shows(name: object) -> bool:
    """Return whether a value is a text with a visible character."""
    return isinstance(name, str) and any(
        character.isprintable()
        and not character.isspace()
        and not unicodedata.category(character).startswith("M")
        and character not in FILLERS
        for character in name
    )


def speaker(source_node: str, metadata: Mapping[str, Any]) -> str | None:
    """Return who spoke an episode."""
    if shows(metadata.get("speaker")):
        return str(metadata["speaker"])
    if shows(metadata.get("role")):
        return str(metadata["role"])
    if source_node in NO_SPEAKERS or not shows(source_node):
        return None
    return source_node


def is_person(
    source_node: str, metadata: Mapping[str, Any], person: Collection[str] = ("user", "human")
) -> bool:
    """Return whether the person spoke an episode."""
    return speaker(source_node, metadata) in person
