"""A change of a text."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """What stands from ``start`` up to ``end``, in characters, becomes ``text``."""

    start: int
    end: int
    text: str
    kind: str
