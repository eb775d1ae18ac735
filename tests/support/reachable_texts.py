"""Find the texts that objects of this process keep in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

_SHARED = (type, ModuleType, FrameType, BuiltinFunctionType)
"""What leads to the whole interpreter, and so to the test itself."""


def reachable_texts(*roots: object, holding: str) -> list[str]:
    """Return where objects, and all that they refer to, hold a text: a path of types each.

    Args:
        roots: The objects.
        holding: The text, whole or as a part of a longer one.
    """
    encoded = holding.encode()
    seen = {id(root) for root in roots}
    waiting: list[tuple[object, str]] = [(root, type(root).__name__) for root in roots]
    found = []
    while waiting:
        value, path = waiting.pop()
        if _holds(value, holding, encoded):
            found.append(path)
        for part in _parts(value):
            if id(part) not in seen and not isinstance(part, _SHARED):
                seen.add(id(part))
                waiting.append((part, f"{path} > {type(part).__name__}"))
    return sorted(found)


def _holds(value: object, text: str, encoded: bytes) -> bool:
    if isinstance(value, str):
        return text in value
    return isinstance(value, bytes | bytearray) and encoded in value


def _parts(value: object) -> Iterable[Any]:
    if isinstance(value, str | bytes | bytearray | int | float):
        return ()
    if isinstance(value, FunctionType):  # its globals lead to the whole interpreter
        own: tuple[Any, ...] = (value.__closure__, value.__defaults__, value.__kwdefaults__)
        return own
    return gc.get_referents(value)
