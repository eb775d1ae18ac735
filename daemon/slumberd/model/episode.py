"""Episodes, as callers put them and as a firing reads them.

Also how their timestamps are read, which keys of their metadata are probably misspelled, which ids
their keys give them, and who spoke them. Every other module asks here who spoke.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from slumberd.model.errors import InstantRangeError
from slumberd.model.scope import escape

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Episode(BaseModel):
    """One experience of one agent.

    Attributes:
        id: Unique over all scopes of a memory store.
        content: What happened, in the host's words.
        timestamp: When it happened, by the caller's clock. ``memory.naive_timestamps`` decides
            how a store reads a timestamp without an offset; a store returns aware timestamps.
        source_node: The graph node that wrote it; it spoke unless the metadata say who did.
        agent: Part of the scope.
        user: Part of the scope.
        session: Part of the scope.
        metadata: Any JSON object; orjson also writes values such as dates. slumberd reads
            ``intent``, ``replaces``, ``subject``, ``predicate``, ``object``, ``confidence``,
            ``speaker``, ``role``, ``withdrawn``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    content: str
    timestamp: datetime
    source_node: str
    agent: str
    user: str
    session: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class SalienceShortfall(NamedTuple):
    """Why a salience gate holds an episode back.

    Attributes:
        score: The episode's salience, 0 to 1.
        least: The minimum of the rule.
        reads: How often the episode had been read.
    """

    score: float
    least: float
    reads: int = 0


def part_id_of(id: str, part: int) -> str:
    """Return the id of one of several claims of an episode; of its own claim the id itself."""
    return f"{id}#{part}" if part else id


def whole_of(id: str) -> str:
    """Return the part of an id before its last ``#`` and number; empty when it has none."""
    whole, mark, number = id.rpartition("#")
    is_number = number.isdecimal() and number.isascii() and number[0] != "0"
    return whole if mark and is_number else ""


def is_part_of(fact_id: str, whole: str) -> bool:
    """Return whether a fact id has the form of a part: the whole id, ``#`` and a number."""
    return bool(whole) and whole_of(fact_id) == whole


class EpisodeVersion(NamedTuple):
    """One version of one episode, as a firing read it from the log.

    Attributes:
        seq: Its number in the episode log; with the log's generation in the high bits.
        user: From the scope.
        session: From the scope.
        agent: From the scope.
        at: Its instant, microseconds since 1970 UTC; 0 when it cannot be read.
        content: The episode's text.
        source_node: The node that wrote it.
        metadata: Decoded; empty when it cannot be read.
        matched: Whether the rule's filter selects it.
        fault: Why it cannot be read, ``reason: detail``; empty when it can.
        contested: Whether its owner is unknown, so nothing under its id may be changed.
        gated: Why the rule's gate holds it back; None when it does not.
        reread: Whether the rule has passed this version, and a read logged it again.
        part: Which of the episode's ``triples`` the metadata is, from 1; 0 is all of it.
        unrecorded: Whether the answer of the rule's language model about it is not recorded yet.
    """

    seq: int
    id: str
    user: str
    session: str
    agent: str
    at: int
    content: str
    source_node: str
    metadata: dict[str, Any]
    matched: bool = True
    fault: str = ""
    contested: bool = False
    gated: SalienceShortfall | None = None
    reread: bool = False
    part: int = 0
    unrecorded: bool = False

    @property
    def claim_id(self) -> str:
        """The id of its claim; that of one of several claims ends with its number."""
        return part_id_of(self.id, self.part)

    @property
    def speaker(self) -> str | None:
        """Who spoke it; None when nobody is known to have spoken."""
        return speaker_of(self.source_node, self.metadata)

    @property
    def withdrawn(self) -> str:
        """Why its speaker took it back, in one word; empty when it was not taken back."""
        return withdrawn_of(self.metadata)


def withdrawn_of(metadata: Mapping[str, Any]) -> str:
    """Return why the speaker took an episode back, in one word; empty when it was not.

    Such an episode states nothing: no rule selects it, and search and context leave it out.
    """
    reason = metadata.get("withdrawn")
    return reason if isinstance(reason, str) else ""


def microseconds(at: datetime) -> int:
    """Return an aware instant as microseconds since 1970 UTC."""
    return (at - _EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """Return microseconds since 1970 UTC as an aware UTC instant.

    Raises:
        InstantRangeError: It is before the year 1, or after the year 9999.
    """
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError as error:
        raise InstantRangeError(at) from error


_HOUR = 3_600_000_000


def instant_text(at: int) -> str:
    """Return microseconds since 1970 UTC as ``instant(at).isoformat()``, in a third of the time.

    Raises:
        InstantRangeError: It is before the year 1, or after the year 9999.
    """
    hour, rest = divmod(at, _HOUR)
    second, microsecond = divmod(rest, 1_000_000)
    minute, second = divmod(second, 60)
    fraction = f".{microsecond:06}" if microsecond else ""
    return f"{_hour_text(hour)}:{minute:02}:{second:02}{fraction}+00:00"


@lru_cache(maxsize=4_096)
def _hour_text(hour: int) -> str:
    return instant(hour * _HOUR).isoformat(timespec="hours").removesuffix("+00:00")


EARLIEST = microseconds(datetime.min.replace(tzinfo=UTC))
LATEST = microseconds(datetime.max.replace(tzinfo=UTC))
"""The first and the last instant that exist, of the years 1 and 9999."""


FUTURE_TOLERANCE_SECONDS = 300.0
"""An instant that lies further ahead of the clock is still to come, or of a wrong clock."""


def latest_at(now: datetime, tolerance_seconds: float) -> int:
    """Return the last instant that is not still to come, in microseconds since 1970 UTC."""
    return min(LATEST, microseconds(now) + _ahead(tolerance_seconds))


def due_at(at: int, tolerance_seconds: float) -> int:
    """Return the first instant now for which another one is not still to come, microseconds."""
    return at - _ahead(tolerance_seconds)


def _ahead(tolerance_seconds: float) -> int:
    return int(min(tolerance_seconds * 1e6, LATEST))


NaiveTimestamps = Literal["local", "utc", "refuse"]
"""How a timestamp without an offset is read: in the local zone, as Python does; in UTC; not at all.

The local zone is that of the reading process. When a change of the clock repeats a time, the first
of both counts, unless the ``fold`` of the datetime is 1. A skipped time is read with the offset
from before the change.
"""


def in_utc(at: datetime, naive: NaiveTimestamps) -> datetime | None:
    """Return a datetime in UTC; None when it has no offset and `naive` is ``refuse``.

    Raises:
        ValueError: It lies outside of the years 1 to 9999 UTC.
    """
    if at.tzinfo is None and naive == "refuse":
        return None
    try:
        return _local_in_utc(at) if naive == "local" and at.tzinfo is None else _in_utc(at)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError("lies outside of the years 1 to 9999 UTC") from error


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _local_in_utc(at: datetime) -> datetime:
    # By the timestamp, because astimezone shifts a time that the clock skips. In whole seconds,
    # because a float cannot hold the microseconds of a late year.
    seconds = int(at.replace(microsecond=0).timestamp())
    return _EPOCH + timedelta(seconds=seconds, microseconds=at.microsecond)


def with_offset(text: str, naive: NaiveTimestamps) -> str:
    """Return a timestamp's text in UTC when it has no offset; any other text as it is."""
    try:
        at = datetime.fromisoformat(text)
        found = None if at.tzinfo else in_utc(at, naive)
    except ValueError:
        return text
    return found.isoformat() if found else text


READ_KEYS = frozenset({
    "intent", "replaces", "subject", "predicate", "object", "object_words", "confidence",
    "importance", "triples",
})  # fmt: skip
"""The keys of metadata that slumberd reads; all others are the host's own."""

_AROUND = " _-.:,"
_LONGEST = 32
"""A longer key cannot be a misspelling."""


class Misspelling(NamedTuple):
    """A key of metadata that is probably misspelled.

    Attributes:
        key: As the episodes have it.
        meant: The key that is probably meant.
        episode_id: The first of the episodes.
        episodes: How many episodes have the key.
    """

    key: str
    meant: str
    episode_id: str
    episodes: int = 1


def misspellings_in(versions: Iterable[EpisodeVersion]) -> list[Misspelling]:
    """Return the misspelled keys of some versions, each key once, in the order of the versions."""
    found: dict[str, Misspelling] = {}
    for version in versions:
        for key, meant in _misspelled_in(version).items():
            before = found.get(key)
            episodes = before.episodes + 1 if before else 1
            first = before.episode_id if before else version.id
            found[key] = Misspelling(key, meant, first, episodes)
    return [*found.values()]


def _misspelled_in(version: EpisodeVersion) -> dict[str, str]:
    """Return the misspelled keys of a version's metadata, and of its triples."""
    found = dict(misspelled_keys(version.metadata))
    triples = version.metadata.get("triples")
    for triple in triples if isinstance(triples, list) else ():
        if isinstance(triple, dict):
            found |= misspelled_keys(triple)
    return found


def misspelled_keys(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key that is probably a misspelling, with the key that is probably meant.

    A misspelling differs from a key that slumberd reads by case, by one letter, or by two letters
    that are swapped, and the metadata lacks that key.
    """
    if READ_KEYS.issuperset(metadata):  # the usual case; this runs for every row
        return
    for key in metadata:
        meant = _meant_by(key)
        if meant and meant not in metadata:
            yield key, meant


@lru_cache(maxsize=4_096)
def _meant_by(key: str) -> str:
    """Return the key that is probably meant; empty for a key that is right or the host's own."""
    if key in READ_KEYS or len(key) > _LONGEST:
        return ""
    return next((known for known in sorted(READ_KEYS) if are_near(key, known)), "")


def are_near(word: str, other: str) -> bool:
    """Return whether two words differ by case, surrounding signs, or one typing error only."""
    return _differ_by_one_typing_error(comparable(word), comparable(other))


def comparable(word: str) -> str:
    """Return a word without case and surrounding signs."""
    return word.strip(_AROUND).casefold()


def _differ_by_one_typing_error(word: str, other: str) -> bool:
    """Return whether two words are equal, or differ by one typing error only."""
    same = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    same = min(len(word), len(other)) if same is None else same
    left, right = word[same:], other[same:]
    swapped = left[1::-1] == right[:2] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped


KEY_PREFIX = "key:"
"""How an id begins that is made from a key."""


def id_of_key(user: str, agent: str, key: str) -> str:
    """Return the id of a key; other users and agents get other ids."""
    return f"{_prefix(user, agent)}{escape(key)}"


def may_have_id(user: str, agent: str, id: str) -> bool:
    """Return whether an episode of a user and an agent may have an id."""
    return not id.startswith(KEY_PREFIX) or id.startswith(_prefix(user, agent))


def _prefix(user: str, agent: str) -> str:
    return f"{KEY_PREFIX}{escape(user)}/{escape(agent)}/"


INTERFACES = frozenset({
    "claude-folder", "codex-folder", "contract", "episodes", "graphiti", "langgraph",
    "mcp-memory", "mem0", "otlp", "remember", "slumberd.tiers",
})  # fmt: skip
"""What slumberd writes, or a user may write, as the ``source_node`` of an interface or a format.

Such a name says how an episode came here. It names nobody who spoke.
"""

PROGRAM_ROLES = frozenset({
    "agent", "ai", "assistant", "bot", "developer", "function", "model", "system", "tool",
})  # fmt: skip
"""The speakers that are programs, in the protocols of language models and in slumberd."""

PERSON = frozenset({"user", "human"})
"""The speakers whose words are those of the user, unless ``memory.person`` names others."""

_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that show nothing."""

_SEEN = frozenset("LNPS")
"""The categories of Unicode whose characters are seen: letters, numbers, punctuation, symbols."""


def speaker_of(source_node: object, metadata: Mapping[str, Any]) -> str | None:
    """Return who spoke an episode; None when nobody is known to have spoken.

    The speaker is the first of ``metadata.speaker``, ``metadata.role`` and ``source_node`` that is
    a text with a visible character. A ``source_node`` of `INTERFACES` is no speaker.

    Args:
        source_node: Of the episode.
        metadata: Of the episode.
    """
    for name in (metadata.get("speaker"), metadata.get("role")):
        if is_visible(name):
            return name
    return source_node if is_visible(source_node) and source_node not in INTERFACES else None


def is_visible(name: object) -> TypeGuard[str]:
    """Return whether a value is a text with a visible character."""
    return isinstance(name, str) and any(map(_is_seen, name))


def _is_seen(character: str) -> bool:
    return unicodedata.category(character)[0] in _SEEN and character not in _BLANK
