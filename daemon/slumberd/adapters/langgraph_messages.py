"""Public names of `slumberd.integrations.langgraph_messages`."""

from slumberd.integrations.langgraph_messages import SlumberdMessages

__all__ = ["SlumberdMessages"]
