"""How an episode is written into a row of ``episodes``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import orjson

from slumberd.errors import InputError
from slumberd.model.episode import Episode
from slumberd.model.naive_timestamps import NaiveTimestamps, in_utc
from slumberd.model.scope import Scope, checked_scope
from slumberd.storage.sqlite.strict_json import MOST_DEPTH, too_deep, written

_PLAIN = frozenset({str, int, float, bool, type(None)})


class Row(NamedTuple):
    """One row of ``episodes``, as the table has it."""

    id: str
    scope_key: str
    content: bytes
    timestamp: str
    metadata: bytes


def encode(
    episode: Episode, scope: Scope, *, operation: str, naive: NaiveTimestamps = "local"
) -> Row:
    """Return an episode as a row; whatever reads the row gets an equal episode.

    Of metadata, orjson writes more than JSON has, such as a datetime or a UUID. Such a value comes
    back as the JSON that orjson writes, mostly a string.

    Args:
        episode: What to write.
        scope: Where it belongs.
        operation: For errors.
        naive: How a timestamp without an offset is read.

    Raises:
        InputError: A value of the episode is no JSON, or JSON cannot hold it, as NaN.
        MemoryScopeError: A part of the scope is malformed.
    """
    checked_scope(scope, operation=operation)
    _check_id(episode.id)
    return Row(
        episode.id,
        scope.key,
        _json(
            episode.id,
            "content",
            {
                "content": episode.content,
                "source_node": episode.source_node,
                "agent": scope.agent,
                "user": scope.user,
                "session": scope.session,
            },
        ),
        _utc_text(episode, naive),
        _json(episode.id, "metadata", episode.metadata),
    )


def _check_id(id: str) -> None:
    if not id:
        raise InputError("episode '': the id is empty")
    if "\0" in id or not _encodable(id):
        raise InputError(f"episode {id!r}: the id holds NUL or no valid Unicode")


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _utc_text(episode: Episode, naive: NaiveTimestamps) -> str:
    try:
        at = in_utc(episode.timestamp, naive)
    except ValueError as error:
        raise InputError(f"episode {episode.id!r}: the timestamp is out of range") from error
    if at is None:
        raise InputError(
            f"episode {episode.id!r}: the timestamp has no time zone; give it one, or set"
            " `memory.naive_timestamps` to local or utc"
        )
    return at.isoformat()


def _json(id: str, column: str, value: dict[str, Any]) -> bytes:
    try:
        encoded = written(value)
        if _plain(value):
            return encoded
        decoded = orjson.loads(encoded)
        if too_deep(decoded):
            raise InputError(f"episode {id!r}: {column} is nested deeper than {MOST_DEPTH} levels")
        if decoded == value:
            return encoded
    except TypeError as error:
        raise InputError(f"episode {id!r}: {column} is not JSON: {error}") from error
    for path, problem in _losses(value, column):
        raise InputError(f"episode {id!r}: {path} {problem}")
    return encoded


def _plain(value: dict[str, Any]) -> bool:
    """Say whether a value is of what always comes back equal; quick, and may be unsure."""
    if not _PLAIN.issuperset(map(type, value.values())):
        return False
    # all() takes three times as long, and this is done for each row.
    for item in value.values():  # noqa: SIM110
        if type(item) is float and not math.isfinite(item):
            return False
    return True


def _losses(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"is {value!r}, which JSON cannot hold"
    for step, part in _parts(value):
        yield from _losses(part, path + step)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the values within a value, each with its path from there."""
    match value:
        case dict():
            yield from ((f".{key}", item) for key, item in value.items())
        case list() | tuple():
            yield from ((f"[{place}]", item) for place, item in enumerate(value))
        case Enum():
            yield "", value.value
        case _ if is_dataclass(value):
            yield from ((f".{one.name}", getattr(value, one.name)) for one in fields(value))
        case _:
            return


def same(written: Row, stored: Row, naive: NaiveTimestamps = "local") -> bool:
    """Say whether a stored row of the same owner, whoever wrote it, says what we would write.

    Args:
        written: Our row.
        stored: What is there.
        naive: How a timestamp without an offset is read.
    """
    if written == stored:
        return True
    try:
        return _meaning(written, naive) == _meaning(stored, naive)
    except (ValueError, TypeError):
        return False


def _meaning(row: Row, naive: NaiveTimestamps) -> tuple[object, ...]:
    return (
        _canonical(row.content),
        in_utc(datetime.fromisoformat(row.timestamp), naive) or row.timestamp,
        _canonical(row.metadata),
    )


def _canonical(encoded: bytes) -> bytes:
    # Compared as text: in Python 1, 1.0 and True are equal, in metadata they are not.
    return orjson.dumps(orjson.loads(encoded), option=orjson.OPT_SORT_KEYS)
