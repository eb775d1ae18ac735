"""Find predicates whose objects keep replacing each other: they probably hold several at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slumberd.model.scope import unescape
from slumberd.model.stages import STAGE_CHANNELS

MANY_OBJECTS = 3
"""Objects keep replacing each other in a key that had this many different objects."""

_PARTS = 5
"""Of a key: user, agent, channel, subject and predicate."""


class MultiValuedHint(NamedTuple):
    """A single-valued predicate whose objects keep replacing each other.

    Attributes:
        channel: The channel.
        predicate: The predicate.
        keys: How many keys the predicate has.
        replaced: How many of the keys had `MANY_OBJECTS` different objects or more.
        most: How many different objects one key had at most.
    """

    channel: str
    predicate: str
    keys: int
    replaced: int
    most: int


def find_multi_valued_hints(counts: Iterable[tuple[str, int]]) -> list[MultiValuedHint]:
    """Return the predicates whose objects keep replacing each other in at least half of their keys.

    What stages say of episodes gives no hint: an episode has one mark and one weight at a time.

    Args:
        counts: The keys of single-valued predicates, each with its number of different objects.
    """
    found: dict[tuple[str, str], MultiValuedHint] = {}
    for key, objects in counts:
        parts = key.split("/")
        if len(parts) != _PARTS or not parts[3]:
            continue
        channel, predicate = unescape(parts[2]), unescape(parts[4])
        if channel in STAGE_CHANNELS:
            continue
        before = found.get((channel, predicate), MultiValuedHint(channel, predicate, 0, 0, 0))
        found[channel, predicate] = before._replace(
            keys=before.keys + 1,
            replaced=before.replaced + (objects >= MANY_OBJECTS),
            most=max(before.most, objects),
        )
    return [hint for _, hint in sorted(found.items()) if hint.replaced * 2 >= hint.keys]
