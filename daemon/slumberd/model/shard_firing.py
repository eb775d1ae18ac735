"""Name a firing of a database with several shards: ``3~a@17`` is the firing ``a@17`` of shard 3."""

from __future__ import annotations

MARK = "~"
"""Between the shard and the firing: no id of a rule holds it, and shells and URLs take it as it is.

A rule id may hold a colon.
"""

_MOST_DIGITS = 5


def firing_of_shard(shard: int, firing_id: str) -> str:
    """Return the id of a firing in its shard as the id in the whole database."""
    return f"{shard}{MARK}{firing_id}"


def split_firing(text: str) -> tuple[int | None, str]:
    """Return the shard that an id of a firing names, and the id in that shard.

    The shard is None when the text names none.
    """
    shard, mark, firing_id = text.partition(MARK)
    is_number = shard.isascii() and shard.isdigit() and len(shard) <= _MOST_DIGITS
    return (int(shard), firing_id) if mark and is_number else (None, text)
