"""Show the values of facts: look them up for lists of ids, write them as text, and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.model.errors import SlumberdError
from slumberd.web.console.visit import Visit

MOST = 50
"""A page shows the facts of so many rows in words, and the facts of further rows by their ids."""

_MOST_REPLACED = 3

Row = Mapping[str, Any]


async def add_words(visit: Visit, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return changes of facts, with what the facts say now.

    A row gets ``says``: what the fact says; ``text``: the episode of a fact that is not current;
    ``before``: what the replaced facts say, by id; and ``known``: the facts that have a page. What
    is not stored is None, or is not in ``before``.

    Args:
        visit: The visit of the person, who reads only what its rights allow.
        rows: Changes, as dry runs and firings list them.
    """
    words = _Words(visit)
    first = [await _worded(words, row) for row in rows[:MOST]]
    return first + [_without_words(row) for row in rows[MOST:]]


def _without_words(row: Row) -> dict[str, Any]:
    return {**row, "says": None, "text": None, "before": {}, "known": _known_to_the_ledger(row)}


async def _worded(words: _Words, row: Row) -> dict[str, Any]:
    user = row.get("user")
    if not user:
        return _without_words(row)
    scope = _Scope(user, row.get("agent") or None)
    says = await words.of_fact(scope, row["fact_id"]) if row["fact_id"] else None
    named = row["replaces"][:_MOST_REPLACED]
    found = {fact_id: await words.of_fact(scope, fact_id) for fact_id in named}
    text = None
    if says is None and row["kind"] in ("add", "update"):
        text = await words.of_episode(scope, _episodes_of(row)[:1])
    before = {fact_id: payload for fact_id, payload in found.items() if payload is not None}
    current = {*before} if says is None else {*before, row["fact_id"]}
    known = current | _known_to_the_ledger(row)
    return {**row, "says": says, "text": text, "before": before, "known": known}


def _known_to_the_ledger(row: Row) -> set[str]:
    """Return the facts of a row of the ledger; a dry run may name facts that never come to be.

    A row that removes a fact, or that could not be read, has an id of its own, which is no fact.
    """
    if "episode_ids" not in row:
        return set()
    own = {row["fact_id"]} if row["kind"] in ("add", "update") else set()
    return {*row["replaces"], *own}


def _episodes_of(row: Row) -> Sequence[str]:
    """Return the episodes of a change, which dry runs and rows of the ledger name differently."""
    found: Sequence[str] = row["episode_ids"] if "episode_ids" in row else row["source_episode_ids"]
    return found


class _Scope(NamedTuple):
    """Whose facts and episodes are read: with an agent, only one shard of a database is asked."""

    user: str
    agent: str | None


class _Words:
    """Reads each fact and each episode once.

    Args:
        visit: The visit of the person.
    """

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._facts: dict[tuple[_Scope, str], Any] = {}
        self._episodes: dict[tuple[_Scope, str], str | None] = {}

    async def of_fact(self, scope: _Scope, fact_id: str) -> Any | None:  # noqa: ANN401 # any JSON
        """Return what a current fact says; None for another."""
        key = (scope, fact_id)
        if key not in self._facts:
            found = await self._first("facts", scope, fact_id)
            self._facts[key] = None if found is None else found["payload"]
        return self._facts[key]

    async def of_episode(self, scope: _Scope, ids: Sequence[str]) -> str | None:
        """Return the text of an episode that is stored; None for another."""
        if not ids:
            return None
        key = (scope, ids[0])
        if key not in self._episodes:
            found = await self._first("episodes", scope, ids[0])
            self._episodes[key] = None if found is None else found["content"]
        return self._episodes[key]

    async def _first(self, operation: str, scope: _Scope, id: str) -> Mapping[str, Any] | None:
        """Return the only item of a list; None without one, or when it may not be read."""
        try:
            found = await self._visit.ask(operation, **scope._asdict(), id=id, limit=1)
        except SlumberdError:  # an id that no form takes, such as one that is too long
            return None
        listed: list[Mapping[str, Any]] = found[operation]
        return listed[0] if listed else None


def show_value(payload: Mapping[str, Any]) -> str:
    """Return what a fact says of its subject: its object, or its content without one."""
    value = payload.get("object", payload.get("content", ""))
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def write_value(value: object) -> str:
    """Return the text that `read_value` reads as this value."""
    if isinstance(value, str) and value.isprintable() and read_value(value) == value:
        return value
    return orjson.dumps(value, default=str).decode()


def read_value(text: str) -> Any:  # noqa: ANN401 # any JSON
    """Return the value that a person wrote: JSON, or the text itself when it is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
