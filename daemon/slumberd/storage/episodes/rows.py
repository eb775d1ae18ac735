"""Encode episodes into rows of ``episodes``, and decode rows of any program, with their faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from slumberd.model.construct import construct
from slumberd.model.episode import (
    EARLIEST,
    LATEST,
    Episode,
    EpisodeVersion,
    NaiveTimestamps,
    in_utc,
    instant,
    may_have_id,
    microseconds,
)
from slumberd.model.errors import InputError, MemoryScopeError
from slumberd.model.scope import (
    PLACEHOLDER_KEY,
    Scope,
    ScopeMismatch,
    is_key_of,
    scope_of,
    validate_scope,
)
from slumberd.storage.engine import Mangled
from slumberd.storage.strict_json import (
    MOST_DEPTH,
    lossy_values,
    read_object,
    too_deep,
    written,
)

_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


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
    """Return an episode as a row; a reader of the row gets an equal episode.

    In metadata, orjson also encodes types that JSON does not have, such as a datetime or a UUID.
    The reader gets such a value as a string, mostly.

    Args:
        operation: The operation that an error names.
        naive: The zone of a timestamp without an offset.

    Raises:
        InputError: A value of the episode has no JSON form, such as NaN.
        MemoryScopeError: A part of the scope is malformed.
    """
    validate_scope(scope, operation=operation)
    _check_id(episode.id)
    if not may_have_id(scope.user, scope.agent, episode.id):
        raise MemoryScopeError(
            scope, operation, f"the id {episode.id!r} is made from a key of another user or agent"
        )
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
    if "\0" in id or not _is_unicode(id):
        raise InputError(f"episode {id!r}: the id holds NUL or no valid Unicode")


def _is_unicode(text: str) -> bool:
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
        if _is_plain_json(value):
            return encoded
        decoded = orjson.loads(encoded)
        if too_deep(decoded):
            raise InputError(f"episode {id!r}: {column} is nested deeper than {MOST_DEPTH} levels")
        if decoded == value:
            return encoded
    except TypeError as error:
        raise InputError(f"episode {id!r}: {column} is not JSON: {error}") from error
    for path, problem in lossy_values(value, column):
        raise InputError(f"episode {id!r}: {path} {problem}")
    return encoded


def _is_plain_json(value: dict[str, Any]) -> bool:
    """Return whether all values keep their form in JSON; False may mean unknown."""
    if not _PLAIN_TYPES.issuperset(map(type, value.values())):
        return False
    # all() takes three times as long, and this runs for each row.
    for item in value.values():  # noqa: SIM110
        if type(item) is float and not math.isfinite(item):
            return False
    return True


def same(written: Row, stored: Row, naive: NaiveTimestamps = "local") -> bool:
    """Return whether a stored row of the same owner means the same as a new row.

    Args:
        written: The new row.
        stored: The stored row, of any program.
        naive: The zone of a timestamp without an offset.
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


CONTENT_UNREADABLE = "content_unreadable"
METADATA_UNREADABLE = "metadata_unreadable"
TIMESTAMP_UNREADABLE = "timestamp_unreadable"
TIMESTAMP_NAIVE = "timestamp_naive"
SCOPE_UNREADABLE = "scope_unreadable"
SCOPE_MISMATCH = "scope_mismatch"
ID_UNUSABLE = "id_unusable"
FILTER_FAILED = "filter_failed"
EXTRACTION_FAILED = "extraction_failed"

FAULTS = (
    CONTENT_UNREADABLE,
    METADATA_UNREADABLE,
    TIMESTAMP_UNREADABLE,
    TIMESTAMP_NAIVE,
    SCOPE_UNREADABLE,
    SCOPE_MISMATCH,
    ID_UNUSABLE,
    FILTER_FAILED,
    EXTRACTION_FAILED,
)
"""Every reason with which reading an episode begins `EpisodeVersion.fault`."""


_NOWHERE = Scope("", "", "")
_SLASHES = 7
"""Slashes of a scope key. A key with a slash within a part has more."""
_EXTENDED = frozenset({"--", "--T", "-- "})
"""The accepted separators of year, month, day and time in a timestamp."""


class _UnreadableError(Exception):
    """A row is unreadable; only used in this module."""

    def __init__(self, reason: str, detail: str) -> None:
        self.fault = f"{reason}: {detail}"
        self.contested = reason in (SCOPE_UNREADABLE, SCOPE_MISMATCH, ID_UNUSABLE)
        super().__init__(self.fault)


def decode(
    seq: int,
    row: Sequence[Any],
    *,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps = "local",
    matched: bool = True,
) -> EpisodeVersion:
    """Return a row as a version; an unreadable row is matched and has a fault.

    Args:
        seq: The number of its log row.
        row: The columns of `Row`; other programs may have written any types.
        mismatch: Which of scope key and content names the owner, when they differ.
        naive: The zone of a timestamp without an offset.
        matched: Whether the rule's filter selects a readable row.
    """
    id, written_key, content, timestamp, metadata = row
    # A key that is not UTF-8, shown as text, could equal the key of another user.
    key = None if type(written_key) is Mangled else written_key
    owner: tuple[str, str, str] = _NOWHERE
    try:
        document = _object(content, CONTENT_UNREADABLE)
        owner = _owner(key, document, mismatch)
        return EpisodeVersion(
            seq,
            _check_usable(id),
            *owner,
            _instant(timestamp, naive),
            _text(document, "content"),
            _text(document, "source_node"),
            _object(metadata, METADATA_UNREADABLE),
            matched,
        )
    except _UnreadableError as error:
        claimed = owner if any(owner) else _scope_in_key(key)
        return _faulty_version(seq, row, claimed, error, instant_or_zero(timestamp, naive))


def scope_in(row: Sequence[Any], *, mismatch: ScopeMismatch) -> tuple[Scope | None, Scope | None]:
    """Return the owner of a row, and the scope that its content names; None where unknown.

    The owner is the one that `decode` returns. If `decode` returns none, it is the scope that the
    content names.
    """
    version = decode(0, row, mismatch=mismatch)
    owner = Scope(version.user, version.session, version.agent)
    in_doubt = version.fault or mismatch == "trust_scope"
    named = _scope_in_content(row[2]) if in_doubt else owner
    return (owner if all(owner) else named), named


def _scope_in_content(content: object) -> Scope | None:
    try:
        document = _object(content, CONTENT_UNREADABLE)
    except _UnreadableError:
        return None
    parts = [part for axis in Scope._fields if type(part := document.get(axis)) is str]
    return Scope(*parts) if len(parts) == len(Scope._fields) else None


def _faulty_version(
    seq: int, row: Sequence[Any], owner: tuple[str, str, str], error: _UnreadableError, at: int
) -> EpisodeVersion:
    return EpisodeVersion(
        seq, shown(row[0]), *owner, at, "", "", {}, True, error.fault, error.contested
    )


def shown(id: object) -> str:
    """Return an id of any type as text to show; a usable id is unchanged."""
    if isinstance(id, bytes):
        id = id.decode(errors="backslashreplace")
    return id.replace("\0", "\\x00") if isinstance(id, str) else ""


def _check_usable(id: object) -> str:
    if type(id) is str and id and "\0" not in id:
        return id
    raise _UnreadableError(ID_UNUSABLE, f"the id is {_describe(id)}")


def _describe(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case Mangled():
            return "no valid UTF-8"
        case "":
            return "empty"
        case str():
            return "a text that holds NUL"
        case _:
            return f"of type {type(value).__name__}"


def _object(encoded: object, reason: str) -> dict[str, Any]:
    if type(encoded) is Mangled:
        raise _UnreadableError(reason, "it is no valid UTF-8")
    try:
        return read_object(encoded)
    except ValueError as error:
        raise _UnreadableError(reason, str(error)) from error


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if type(value) is str:
        return value
    raise _UnreadableError(CONTENT_UNREADABLE, f"{name} is no string")


def _instant(text: object, naive: NaiveTimestamps) -> int:
    at = _parse(text)
    if at.tzinfo is None:
        at = _in_utc(at, naive)
    instant_at = microseconds(at)
    if EARLIEST <= instant_at <= LATEST:
        return instant_at
    raise _UnreadableError(TIMESTAMP_UNREADABLE, f"{text!r} lies outside the years 1 to 9999 UTC")


def _parse(text: object) -> datetime:
    # Only the extended calendar form: `recent` relies on its text order, to within a day.
    if type(text) is not str or text[4:11:3] not in _EXTENDED:
        raise _UnreadableError(TIMESTAMP_UNREADABLE, f"{str(text)[:40]!r} is not ISO 8601")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise _UnreadableError(TIMESTAMP_UNREADABLE, f"{text[:40]!r} is not ISO 8601") from error


def _in_utc(at: datetime, naive: NaiveTimestamps) -> datetime:
    try:
        found = in_utc(at, naive)
    except ValueError as error:
        raise _UnreadableError(TIMESTAMP_UNREADABLE, f"{at.isoformat()!r} {error}") from error
    if found is None:
        problem = f"{at.isoformat()!r} has no offset; see `memory.naive_timestamps`"
        raise _UnreadableError(TIMESTAMP_NAIVE, problem)
    return found


def instant_or_zero(text: object, naive: NaiveTimestamps = "local") -> int:
    """Return the instant of a timestamp column, microseconds; 0 when it is unreadable."""
    try:
        return _instant(text, naive)
    except _UnreadableError:
        return 0


def instant_or_none(text: object, naive: NaiveTimestamps) -> datetime | None:
    """Return the instant of a timestamp column, in UTC; None when it is unreadable."""
    try:
        return instant(_instant(text, naive))
    except _UnreadableError:
        return None


def _owner(key: object, document: dict[str, Any], mismatch: ScopeMismatch) -> tuple[str, str, str]:
    user, session, agent = document.get("user"), document.get("session"), document.get("agent")
    if not (type(user) is str and type(session) is str and type(agent) is str):
        return _owner_in_doubt(key, None, mismatch)
    if _is_plain(key, user, session, agent):
        return user, session, agent
    return _owner_in_doubt(key, Scope(user, session, agent), mismatch)


def _is_plain(key: object, user: str, session: str, agent: str) -> bool:
    """Return whether a key is a scope's own and needs no escapes; False may mean unknown."""
    return (
        key == f"/user/{user}/session/{session}/agent/{agent}/"
        and key.isprintable()
        and key.count("/") == _SLASHES
        and "//" not in key
        and "%" not in key
    )


@lru_cache(maxsize=4_096)
def _owner_in_doubt(key: object, named: Scope | None, mismatch: ScopeMismatch) -> Scope:
    if mismatch == "trust_episode" or key == PLACEHOLDER_KEY:
        return _check_scope(named)
    if named is not None and is_key_of(key, named):
        return _check_scope(named)
    claimed = _check_scope(scope_of(key) if isinstance(key, str) else None)
    if claimed == named or mismatch == "trust_scope":
        return claimed
    raise _UnreadableError(SCOPE_MISMATCH, f"content names another {_difference(claimed, named)}")


def _difference(claimed: Scope, named: Scope | None) -> str:
    if named is None:
        return "owner, or none"
    axes = zip(Scope._fields, claimed, named, strict=True)
    return ", ".join(axis for axis, ours, theirs in axes if ours != theirs)


def _check_scope(scope: Scope | None) -> Scope:
    if scope is None:
        raise _UnreadableError(
            SCOPE_UNREADABLE, "neither scope key nor content names user, session and agent"
        )
    try:
        return validate_scope(scope, operation="read")
    except MemoryScopeError as error:
        raise _UnreadableError(SCOPE_UNREADABLE, error.violation) from error


def _scope_in_key(key: object) -> Scope:
    if key == PLACEHOLDER_KEY or not isinstance(key, str):
        return _NOWHERE
    return scope_of(key) or _NOWHERE


def owner_of(key: object, content: object, mismatch: ScopeMismatch) -> Scope | None:
    """Return the owner of a row by its scope key and its content; None when unknown."""
    try:
        return Scope(*_owner(key, _object(content, CONTENT_UNREADABLE), mismatch))
    except _UnreadableError:
        return None


def episode_of(version: EpisodeVersion, timestamp: str = "") -> Episode:
    """Return a readable version as an episode.

    Args:
        timestamp: The timestamp of its row, if known.
    """
    # Parsing a UTC timestamp takes a fifth of the time of computing it from microseconds.
    in_utc = timestamp.endswith("+00:00")
    return construct(
        Episode,
        {
            "id": version.id,
            "content": version.content,
            "timestamp": datetime.fromisoformat(timestamp) if in_utc else instant(version.at),
            "source_node": version.source_node,
            "agent": version.agent,
            "user": version.user,
            "session": version.session,
            "metadata": version.metadata,
        },
    )
