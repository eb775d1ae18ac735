"""Hold what the author of a rule expects against what came about; only what is named counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from slumberd.model.fact_ids import canonical

Part = Literal["deltas", "filtered", "facts"]
"""What an expectation can speak of."""

Entry = Mapping[str, Any]
"""One delta, fact or episode by the names of its parts; what it has not is None, or left out."""

IDENTITY: Mapping[Part, tuple[str, ...]] = {
    "deltas": ("episode", "rule", "channel"),
    "filtered": ("episode",),
    "facts": ("id", "user", "agent", "channel"),
}
"""The keys that say which one is meant: two that disagree in them are two, not one that differs."""

Content = Mapping[Part, tuple[Entry, ...]]
"""Entries by part; of an expectation only the parts that it speaks of."""


class Line(NamedTuple):
    """One line of a comparison.

    Attributes:
        expected: What the author wrote; None when nothing of the kind is expected.
        got: What came about; None when nothing did.
        differing: The keys of `expected` in which the two differ; none when both are one.
    """

    expected: Entry | None
    got: Entry | None
    differing: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether what was expected came about."""
        return self.expected is not None and self.got is not None and not self.differing


def compare(part: Part, expected: Sequence[Entry], got: Sequence[Entry]) -> list[Line]:
    """Return what was expected, in order, each with what it came to; then what nobody expected.

    As many as can be are matched, whatever the order of either; an entry matches when it agrees
    in every key that is expected.
    """
    wanted, found = [*map(_canonical, expected)], [*map(_canonical, got)]
    pairs = _matching([[n for n, one in enumerate(found) if _fits(want, one)] for want in wanted])
    pairs |= _likely(IDENTITY[part], wanted, found, pairs)
    lines = [
        Line(entry, got[pairs[n]], _differing(wanted[n], found[pairs[n]]))
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


def _fits(want: _Canonical, one: _Canonical) -> bool:
    return not _differing(want, one)


def _differing(want: _Canonical, one: _Canonical) -> tuple[str, ...]:
    return tuple(key for key, value in want.items() if one.get(key, _NOTHING) != value)


def _matching(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a matching of as many as can be, given what fits each.

    Taking the first that fits would not do: it may be the only one that fits another.
    """
    pairs: dict[int, int] = {}
    for start in range(len(fitting)):
        _match_one_more(start, fitting, pairs)
    return pairs


def _match_one_more(start: int, fitting: Sequence[Sequence[int]], pairs: dict[int, int]) -> None:
    """Match one more, let those that are matched move on where they must."""
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
                _move_on(found, reached, pairs)
                return
            queue.append(holders[found])


def _move_on(found: int, reached: Mapping[int, int], pairs: dict[int, int]) -> None:
    free: int | None = found
    while free is not None:
        want = reached[free]
        left, pairs[want] = pairs.get(want), free
        free = left


def _likely(
    identity: tuple[str, ...],
    wanted: Sequence[_Canonical],
    found: Sequence[_Canonical],
    pairs: Mapping[int, int],
) -> dict[int, int]:
    """Return, for what is left, what the author most likely meant by it."""
    likely: dict[int, int] = {}
    left = [n for n in range(len(found)) if n not in pairs.values()]
    for n in (n for n in range(len(wanted)) if n not in pairs):
        near = {one: _nearness(identity, wanted[n], found[one]) for one in left}
        best = max(left, key=near.__getitem__, default=None)
        if best is not None and near[best]:
            likely[n] = best
            left.remove(best)
    return likely


def _nearness(identity: tuple[str, ...], want: _Canonical, one: _Canonical) -> int:
    """Return in how many keys two agree; 0 when they are two for certain."""
    differing = _differing(want, one)
    return 0 if any(key in identity for key in differing) else len(want) - len(differing)
