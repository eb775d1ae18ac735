"""Compare the expected deltas and facts of a test with the actual ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from slumberd.model.scope import canonical

Part = Literal["deltas", "filtered", "facts"]
"""The parts of an expectation."""

Entry = Mapping[str, Any]
"""One delta, fact or episode as keys and values; a missing key means None."""

IDENTITY: Mapping[Part, tuple[str, ...]] = {
    "deltas": ("episode", "rule", "channel"),
    "filtered": ("episode",),
    "facts": ("id", "user", "agent", "channel"),
}
"""The keys that identify an entry: entries that differ in one of them are different entries."""

Content = Mapping[Part, tuple[Entry, ...]]
"""Entries by part; an expectation has only the parts that its author wrote."""


class Line(NamedTuple):
    """One line of a comparison.

    Attributes:
        expected: The expected entry; None when only an actual one exists.
        got: The actual entry; None when it is missing.
        differing: The keys of `expected` in which the two differ; empty when they match.
    """

    expected: Entry | None
    got: Entry | None
    differing: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the actual entry is the expected one."""
        return self.expected is not None and self.got is not None and not self.differing


def compare(part: Part, expected: Sequence[Entry], got: Sequence[Entry]) -> list[Line]:
    """Return the expected entries in order, each with its actual entry; then the unexpected ones.

    An actual entry matches when it agrees in every expected key. The result has the largest
    possible number of matches, in any order of the entries.
    """
    wanted, found = [*map(_canonical, expected)], [*map(_canonical, got)]
    pairs = _match_all(
        [[n for n, entry in enumerate(found) if _fits(want, entry)] for want in wanted]
    )
    pairs |= _match_likely(IDENTITY[part], wanted, found, pairs)
    lines = [
        Line(entry, got[pairs[n]], _differing_keys(wanted[n], found[pairs[n]]))
        if n in pairs
        else Line(entry, None)
        for n, entry in enumerate(expected)
    ]
    paired = set(pairs.values())
    return lines + [Line(None, entry) for n, entry in enumerate(got) if n not in paired]


_Canonical = dict[str, str]
_NOTHING = canonical(None)


def _canonical(entry: Entry) -> _Canonical:
    return {key: canonical(value) for key, value in entry.items()}


def _fits(want: _Canonical, entry: _Canonical) -> bool:
    return not _differing_keys(want, entry)


def _differing_keys(want: _Canonical, entry: _Canonical) -> tuple[str, ...]:
    return tuple(key for key, value in want.items() if entry.get(key, _NOTHING) != value)


def _match_all(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a maximum matching, given the entries that fit each expected entry.

    The first entry that fits is not enough: it may be the only one that fits another.
    """
    pairs: dict[int, int] = {}
    for start in range(len(fitting)):
        _match_one_more(start, fitting, pairs)
    return pairs


def _match_one_more(start: int, fitting: Sequence[Sequence[int]], pairs: dict[int, int]) -> None:
    """Match one more entry, and move existing matches if that is necessary."""
    holders = {found: want for want, found in pairs.items()}
    reached: dict[int, int] = {}
    queue = deque([start])
    while queue:
        want = queue.popleft()
        for found in fitting[want]:
            if found in reached:
                continue
            reached[found] = want
            if found not in holders:
                _move_matches(found, reached, pairs)
                return
            queue.append(holders[found])


def _move_matches(found: int, reached: Mapping[int, int], pairs: dict[int, int]) -> None:
    free: int | None = found
    while free is not None:
        want = reached[free]
        left, pairs[want] = pairs.get(want), free
        free = left


def _match_likely(
    identity: tuple[str, ...],
    wanted: Sequence[_Canonical],
    found: Sequence[_Canonical],
    pairs: Mapping[int, int],
) -> dict[int, int]:
    """Return the most likely actual entry for each expected entry without a match."""
    likely: dict[int, int] = {}
    left = [n for n in range(len(found)) if n not in pairs.values()]
    for n in (n for n in range(len(wanted)) if n not in pairs):
        similarity = {other: _similarity(identity, wanted[n], found[other]) for other in left}
        best = max(left, key=similarity.__getitem__, default=None)
        if best is not None and similarity[best]:
            likely[n] = best
            left.remove(best)
    return likely


def _similarity(identity: tuple[str, ...], want: _Canonical, entry: _Canonical) -> int:
    """Return in how many keys two entries agree; 0 when their identity differs."""
    differing = _differing_keys(want, entry)
    return 0 if any(key in identity for key in differing) else len(want) - len(differing)
