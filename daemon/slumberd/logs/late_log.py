"""Log lines of modules that commands import to read: structlog is imported with the first line."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class LateLogger:
    """A logger of structlog that takes no time until its first line."""

    def __getattr__(self, level: str) -> Any:  # noqa: ANN401 # the methods of structlog's loggers
        """Return the method that writes a line of a level."""
        return getattr(import_module("structlog").get_logger("slumberd"), level)


def is_log_configured() -> bool:
    """Return whether structlog knows where lines go; its default is standard output."""
    structlog = sys.modules.get("structlog")
    return structlog is not None and structlog.is_configured()
