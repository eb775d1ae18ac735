"""Read and write JSON that every reader understands in the same way."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import orjson

MOST_DEPTH = 100
"""Levels of lists and objects. Stored rows nest them a few levels deeper."""

MOST_REQUEST_BYTES = 4 * 2**20
"""The largest request of every interface; for HTTP, `serve.max_body_bytes` may say another one."""

_FLAT = frozenset({str, int, float, bool, type(None)})
_EXACT = _FLAT - {float}
_NAMES = frozenset({
    "content", "source_node", "user", "session", "agent",
    "intent", "replaces", "subject", "predicate", "object", "confidence",
})  # fmt: skip
_LEAST, _MOST = -(2**63), 2**64 - 1
_LEAST_ROUNDED = 2.0**63
_KEY = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\s*:)?')
_SPACE_AFTER_A_KEY = re.compile(rb'"\s+:')


def read_object(encoded: object) -> dict[str, Any]:
    """Return the JSON object of a column.

    Filters read the same text with SQLite, which takes the first of two equal keys and finds no key
    that is written with escapes. A filter must see the same values as the rule that promotes them.

    Raises:
        ValueError: The column has no JSON object, or the object is nested too deep, has a number
            that would be rounded, or has a key that SQLite reads differently.
    """
    if not isinstance(encoded, (bytes, str)):  # faster than a union type
        problem = f"JSON text is needed, not a value of type {type(encoded).__name__}"
        raise ValueError(problem)  # noqa: TRY004 # as for any other column that cannot be read
    value = orjson.loads(encoded)
    if type(value) is not dict:
        raise ValueError(f"a JSON object is needed, not {_kind(value)}")
    text = encoded.encode() if isinstance(encoded, str) else encoded
    # The fast path: most rows are plain, and every row is read here.
    if not (_EXACT.issuperset(map(type, value.values())) and text.count(b":") == len(value)):
        _check_keys(value, text)
    if b"\\" in text and b"\\u" in text:
        _check_spelling(text)
    return value


def _check_keys(value: dict[str, Any], text: bytes) -> None:
    keys = _count_keys(value, text)
    if not _has_each_key_once(text, keys):
        json.loads(text, object_pairs_hook=_object_without_duplicates)


def written(value: object) -> bytes:
    """Return a value as JSON, in no more memory than it needs.

    The bytes that orjson 3.13 returns keep the 4 KiB of their buffer. To allocate and free so much
    for each of many small values takes five times as long as the encoding.
    """
    return b"".join((orjson.dumps(value), b""))


def too_deep(value: dict[str, Any] | list[Any]) -> bool:
    """Return whether a value is nested deeper than a store accepts."""
    try:
        _Survey().enter(value, 1)
    except ValueError:
        return True
    return False


def lossy_values(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each number that JSON cannot hold, and what is wrong with it."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"is {value!r}, which JSON cannot hold"
    for step, part in _parts(value):
        yield from lossy_values(part, path + step)


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
            yield from ((f".{field.name}", getattr(value, field.name)) for field in fields(value))
        case _:
            return


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a scalar")


def _count_keys(value: dict[str, Any], text: bytes) -> int:
    """Count the keys of an object and of all objects in it.

    Raises:
        ValueError: It is nested too deep, or a whole number in it would be rounded.
    """
    types = set(map(type, value.values()))
    if types <= _FLAT and not (float in types and _may_be_rounded(value)):
        return len(value)
    survey = _Survey()
    survey.enter(value, 1)
    if survey.rounded:
        json.loads(text, parse_int=_check_integer)
    return survey.keys


def _may_be_rounded(flat: dict[str, Any]) -> bool:
    # any() takes three times as long, and this runs for each row.
    for item in flat.values():  # noqa: SIM110
        if type(item) is float and abs(item) >= _LEAST_ROUNDED:
            return True
    return False


def _check_integer(digits: str) -> None:
    if not _LEAST <= int(digits) <= _MOST:
        raise ValueError("a whole number needs more than 64 bits; write it as a string")


class _Survey:
    """Counts the keys of an object and of all objects in it, and finds large numbers."""

    def __init__(self) -> None:
        self.keys = 0
        self.rounded = False

    def enter(self, value: dict[str, Any] | list[Any] | tuple[Any, ...], depth: int) -> None:
        """Survey a value and all values in it."""
        if depth > MOST_DEPTH:
            raise ValueError(f"nested deeper than {MOST_DEPTH} levels")
        self.keys += len(value) if isinstance(value, dict) else 0
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) in _EXACT:
                continue
            if isinstance(item, float):
                self.rounded = self.rounded or abs(item) >= _LEAST_ROUNDED
            elif isinstance(item, dict | list | tuple):
                self.enter(item, depth + 1)


def _has_each_key_once(text: bytes, keys: int) -> bool:
    """Return whether a text has so many keys and no key twice; False may mean unknown."""
    if text.count(b":") == keys:
        return True
    # A text value has a colon. Each colon after a quote must then be a key's.
    return text.count(b'":') == keys and _SPACE_AFTER_A_KEY.search(text) is None


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key[:40]!r} is given twice")
        found[key] = value
    return found


def _check_spelling(text: bytes) -> None:
    for match in _KEY.finditer(text):
        if match[2] and b"\\u" in match[1]:
            key = orjson.loads(b'"%b"' % match[1])
            if key in _NAMES:
                raise ValueError(f"key {key!r} is written with escapes")
