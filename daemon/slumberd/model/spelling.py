"""Find keys of metadata that are probably misspelled: slumberd does not read such a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from slumberd.model.episode import EpisodeVersion

READ_KEYS = frozenset({
    "intent", "replaces", "subject", "predicate", "object", "confidence", "importance",
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
        for key, meant in misspelled_keys(version.metadata):
            before = found.get(key)
            episodes = before.episodes + 1 if before else 1
            first = before.episode_id if before else version.id
            found[key] = Misspelling(key, meant, first, episodes)
    return [*found.values()]


def misspelled_keys(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key that is probably a misspelling, with the key that is probably meant.

    A key is one when it differs from a key that slumberd reads by case, by one letter or by two
    letters that are swapped, and the metadata lacks that key.
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


def are_near(one: str, other: str) -> bool:
    """Return whether two words differ by case, surrounding signs, or one typing error only."""
    return _is_one_slip(one.strip(_AROUND).casefold(), other.strip(_AROUND).casefold())


def _is_one_slip(one: str, other: str) -> bool:
    """Return whether two words are equal, or differ by one typing error."""
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    same = min(len(one), len(other)) if same is None else same
    left, right = one[same:], other[same:]
    swapped = left[1::-1] == right[:2] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped
