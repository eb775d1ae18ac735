"""Public names of `slumberd.integrations.langgraph`."""

from slumberd.integrations.langgraph import SlumberdStore

__all__ = ["SlumberdStore"]
