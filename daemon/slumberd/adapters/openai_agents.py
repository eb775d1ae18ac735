"""Public names of `slumberd.integrations.openai_agents`."""

from slumberd.integrations.openai_agents import SlumberdSession

__all__ = ["SlumberdSession"]
