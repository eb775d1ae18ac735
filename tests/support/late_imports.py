"""Import a library when a test uses it, so that the collection of tests does not wait for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module, and imports it when a test reads one of its names.

    Type checkers see the import: it stands under ``if TYPE_CHECKING``, and this under ``else``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks each name of a module for such attributes
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
