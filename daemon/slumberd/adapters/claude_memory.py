"""Public names of `slumberd.integrations.claude_memory`."""

from slumberd.integrations.claude_memory import SlumberdMemoryTool

__all__ = ["SlumberdMemoryTool"]
