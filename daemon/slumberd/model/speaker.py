"""Say who spoke an episode. Every other module asks here."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, TypeGuard

INTERFACES = frozenset({
    "claude-folder", "codex-folder", "contract", "episodes", "graphiti", "langgraph",
    "mcp-memory", "mem0", "otlp", "remember", "slumberd.tiers",
})  # fmt: skip
"""What slumberd writes, or a user may write, as the ``source_node`` of an interface or a format.

Such a name says how an episode came here. It names nobody who spoke.
"""

PROGRAM_ROLES = frozenset({
    "agent", "ai", "assistant", "bot", "developer", "function", "model", "system", "tool",
})  # fmt: skip
"""The speakers that are programs, in the protocols of language models and in slumberd."""

PERSON = frozenset({"user", "human"})
"""The speakers whose words are those of the user, unless ``memory.person`` names others."""

_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that show nothing."""

_SEEN = frozenset("LNPS")
"""The categories of Unicode whose characters are seen: letters, numbers, punctuation, symbols."""


def speaker_of(source_node: object, metadata: Mapping[str, Any]) -> str | None:
    """Return who spoke an episode; None when nobody is known to have spoken.

    The speaker is the first of ``metadata.speaker``, ``metadata.role`` and ``source_node`` that is
    a text with a visible character. A ``source_node`` of `INTERFACES` is no speaker.

    Args:
        source_node: Of the episode.
        metadata: Of the episode.
    """
    for name in (metadata.get("speaker"), metadata.get("role")):
        if is_visible(name):
            return name
    return source_node if is_visible(source_node) and source_node not in INTERFACES else None


def is_visible(name: object) -> TypeGuard[str]:
    """Return whether a value is a text with a visible character."""
    return isinstance(name, str) and any(map(_is_seen, name))


def _is_seen(character: str) -> bool:
    return unicodedata.category(character)[0] in _SEEN and character not in _BLANK
