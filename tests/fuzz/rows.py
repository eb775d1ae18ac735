"""Fuzz the decoder of foreign rows: it returns an unchanged episode, or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from slumberd.consolidation.incoming import ClaimCandidate, Contested, Unreadable, evaluate
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import SlumberdError
from slumberd.model.scope import Scope, ScopeMismatch
from slumberd.storage.episodes.rows import (
    FAULTS,
    decode,
    encode,
    episode_of,
    same,
)
from slumberd.storage.sqlite.session import lenient_text
from tests.fuzz.targets import Finding
from tests.support.builders import rule, triple

MISMATCHES: tuple[ScopeMismatch, ...] = ("quarantine", "trust_scope", "trust_episode")
REASONS = frozenset({
    "", "confidence_malformed", "delete_of_nothing", "intent_unknown", "object_words_malformed",
    "replaces_malformed", *FAULTS,
})  # fmt: skip
RULE = rule("fuzz", then_emits=["facts", "notes"])
COLUMNS = ("id", "scope_key", "content", "timestamp", "metadata")

_TYPES: tuple[Callable[[bytes], object], ...] = (
    lenient_text, bytes, len, lambda value: len(value) / 2, lambda _: None,
)  # fmt: skip
_PARTS = b"\xfe"
"""What separates the columns of an input; no UTF-8 has it, and no column needs it."""


def row_of(given: bytes) -> tuple[object, ...]:
    """Return the row that an input spells: types first, a digit each, then the columns."""
    types, *parts = given.split(_PARTS)
    kinds = [*types[:5], *b"00000"][:5]
    values = [*parts[:5], *[b""] * 5][:5]
    return tuple(
        _TYPES[(kind - ord("0")) % len(_TYPES)](value)
        for kind, value in zip(kinds, values, strict=True)
    )


def spelled(types: bytes, *columns: bytes) -> bytes:
    """Return the input of a row."""
    return _PARTS.join([types, *columns])


class RowTarget:
    """Decodes rows, and evaluates them as a firing does."""

    def close(self) -> None:
        """Hold nothing."""

    def seeds(self) -> Iterator[bytes]:
        episode = triple(
            "e1", "alice", "likes", {"x": [1, 2.5, None]}, metadata={"confidence": 0.5}
        )
        good = encode(episode, Scope("alice", "s1", "rag"), operation="put")
        columns = [column if isinstance(column, bytes) else column.encode() for column in good]
        yield from (spelled(types, *columns) for types in (b"00101", b"00000"))
        for metadata in _METADATA:
            yield spelled(b"00101", *columns[:4], metadata)
        for timestamp in _TIMESTAMPS:
            yield spelled(b"00101", *columns[:3], timestamp, columns[4])
        for place in range(5):
            yield spelled(bytes(b"4"[0] if n == place else b"0"[0] for n in range(5)), *columns)

    def words(self) -> Iterator[str]:
        yield from (f'\\"{name}\\":' for name in ("intent", "replaces", "subject", "predicate"))
        yield from (f'\\"{name}\\":' for name in ("object", "confidence", "user", "content"))
        yield from ('\\"delete\\"', '\\"update\\"', '\\"noop\\"', "\\\\ud800", "\\\\u0000", "1e400")
        yield from ("18446744073709551616", "[[[[[[[[", "null", "NaN", "+14:00", "9999-12-31T")

    def run_once(self, given: bytes) -> None:
        row = row_of(given)
        for mismatch in MISMATCHES:
            self.check(row, mismatch)

    def check(self, row: tuple[object, ...], mismatch: ScopeMismatch) -> None:
        """Decode one row and check all promises.

        Raises:
            Finding: One is broken.
        """
        found = decode(7, row, mismatch=mismatch)
        reason = found.fault.partition(": ")[0]
        if reason not in REASONS:
            raise Finding(f"an unknown reason: {found.fault!r}")
        for channel in evaluate([found], RULE).values():
            for candidate in channel:
                match candidate:
                    case ClaimCandidate():
                        continue
                    case Unreadable() | Contested() if candidate.reason in REASONS - {""}:
                        continue
                raise Finding(f"neither a claim nor a known reason: {candidate}")
        if found.fault:
            self._check_harmless(found)
        else:
            self._check_kept(found, row)

    def _check_harmless(self, found: EpisodeVersion) -> None:
        if not found.matched or found.metadata or found.content:
            raise Finding(f"what cannot be read says something: {found}")
        found.id.encode()

    def _check_kept(self, found: EpisodeVersion, row: tuple[Any, ...]) -> None:
        """Check that an episode can be put again unchanged, and that Python reads the same."""
        episode = episode_of(found)
        try:
            again = encode(
                episode, Scope(episode.user, episode.session, episode.agent), operation="put"
            )
        except SlumberdError as error:
            raise Finding(f"it can be read, and not put: {error}") from error
        if decode(7, again, mismatch="quarantine") != found:
            raise Finding("it is another episode when it was put again")
        if not same(again, again):
            raise Finding("it is not the same as itself")
        # Python's own reader keeps whole numbers whole; keys twice it would not notice either.
        if _read_by_python(row[4]) != found.metadata:
            raise Finding("another reader reads other metadata")
        if microseconds(episode.timestamp) != found.at:
            raise Finding("its instant changed")
        orjson.dumps({"a": {"b": {"c": [found.metadata]}}})  # as deep as anything is wrapped


def _read_by_python(encoded: str | bytes) -> object:
    return json.loads(encoded, object_pairs_hook=_no_key_twice)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Finding("a key is given twice")
    return found


_METADATA = (
    b"{}", b"[]", b"null", b"", b'{"a":NaN}', b'{"a":1e400}', b'{"a":1,"a":2}', b'{"a" :1,"a":2}',
    b'{"a":18446744073709551616}', b'{"a":-9223372036854775809}', b'{"a":"\\ud800"}',
    b'{"o\\u0062ject":1}', b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", b'{"a":"\xff"}',
    b'{"intent":"delete"}', b'{"intent":"update","replaces":["e1","e1"]}', b'{"intent":5}',
    b'{"intent":"delete","replaces":{"a":1}}', b'{"confidence":1e-400,"subject":"\\u0000"}',
)  # fmt: skip
_TIMESTAMPS = (
    b"2026-01-01T12:00:00", b"2026-01-01 12:00:00.5Z", b"0001-01-01T00:00:00+23:59", b"soon",
    b"9999-12-31T23:59:59.999999-00:01", b"20260101T120000Z", b"2026-W01-1T00:00:00Z",
)  # fmt: skip
