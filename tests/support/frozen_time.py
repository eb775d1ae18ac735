"""Freeze Python's time."""

from __future__ import annotations

import datetime

import freezegun
from freezegun.api import _freeze_time

import slumberd

LAZY_PACKAGES = [
    *("agents", "anthropic", "fathom", "graphglot", "ladybug", "langchain_core", "langgraph"),
    *("langsmith", "mcp", "mcp_types", "numpy", "openai", "opentelemetry", "playwright"),
    *("schemathesis", "wordllama"),
]
"""Libraries of extras. Some import a module when a program reads its name."""


def freeze_time(instant: datetime.datetime, *, real_asyncio: bool = False) -> _freeze_time:
    """Return a block in which Python's time stands at an instant.

    freezegun reads every name of every module. Where this imports a module, the import may fail:
    pydantic builds no model while the time is frozen, and the time would then stay frozen. So the
    names of `slumberd` are read before, and those of libraries are not read.
    """
    for name in slumberd.__all__:
        getattr(slumberd, name)
    return freezegun.freeze_time(instant, real_asyncio=real_asyncio, ignore=LAZY_PACKAGES)
