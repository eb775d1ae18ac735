"""Look up what facts say, for lists that have only their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slumberd.console.visit import Visit
from slumberd.errors import SlumberdError

MOST = 50
"""A page shows the facts of so many rows in words, and the facts of further rows by their ids."""

_MOST_REPLACED = 3

Row = Mapping[str, Any]


async def add_words(visit: Visit, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return changes of facts, with what the facts say now.

    A row gets ``says``: what the fact says; ``text``: the episode of a fact that is not current;
    and ``before``: what the replaced facts say, by id. What is not stored is None, or is
    not in ``before``.

    Args:
        visit: The visit of the person, who reads only what its rights allow.
        rows: Changes, as dry runs and firings list them.
    """
    words = _Words(visit)
    first = [await _worded(words, row) for row in rows[:MOST]]
    return first + [{**row, **_NOTHING} for row in rows[MOST:]]


_NOTHING: Mapping[str, Any] = {"says": None, "text": None, "before": {}}


async def _worded(words: _Words, row: Row) -> dict[str, Any]:
    user = row.get("user")
    if not user:
        return {**row, **_NOTHING}
    says = await words.of_fact(user, row["fact_id"]) if row["fact_id"] else None
    named = row["replaces"][:_MOST_REPLACED]
    found = {fact_id: await words.of_fact(user, fact_id) for fact_id in named}
    text = None
    if says is None and row["kind"] in ("add", "update"):
        text = await words.of_episode(user, _episodes_of(row)[:1])
    before = {fact_id: payload for fact_id, payload in found.items() if payload is not None}
    return {**row, "says": says, "text": text, "before": before}


def _episodes_of(row: Row) -> Sequence[str]:
    """Return the episodes of a change, which dry runs and rows of the ledger name differently."""
    found: Sequence[str] = row["episode_ids"] if "episode_ids" in row else row["source_episode_ids"]
    return found


class _Words:
    """Reads each fact and each episode once.

    Args:
        visit: The visit of the person.
    """

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._facts: dict[tuple[str, str], Any] = {}
        self._episodes: dict[tuple[str, str], str | None] = {}

    async def of_fact(self, user: str, fact_id: str) -> Any | None:  # noqa: ANN401 # any JSON
        """Return what a current fact says; None for another."""
        key = (user, fact_id)
        if key not in self._facts:
            found = await self._first("facts", user, fact_id)
            self._facts[key] = None if found is None else found["payload"]
        return self._facts[key]

    async def of_episode(self, user: str, ids: Sequence[str]) -> str | None:
        """Return the text of an episode that is stored; None for another."""
        if not ids:
            return None
        key = (user, ids[0])
        if key not in self._episodes:
            found = await self._first("episodes", user, ids[0])
            self._episodes[key] = None if found is None else found["content"]
        return self._episodes[key]

    async def _first(self, operation: str, user: str, id: str) -> Mapping[str, Any] | None:
        """Return the only item of a list; None without one, or when it may not be read."""
        try:
            found = await self._visit.ask(operation, user=user, id=id, limit=1)
        except SlumberdError:  # an id that no form takes, such as one that is too long
            return None
        listed: list[Mapping[str, Any]] = found[operation]
        return listed[0] if listed else None
