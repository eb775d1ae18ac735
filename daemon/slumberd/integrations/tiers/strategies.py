"""Strategies that decide which entries of a memory are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from slumberd.clock import Clock, SystemClock
from slumberd.consolidation.stages.decay import find_decayed, find_unimportant, reweighted
from slumberd.consolidation.stages.duplicates import Method, find_duplicates, no_vectors
from slumberd.consolidation.stages.entries import Duplicate, Entry, check_fraction
from slumberd.integrations.tiers.entries import MemoryEntry, entry_for_stages
from slumberd.search.embeddings import WordEmbedder

_HOUR_SECONDS = 3_600.0

CLOCK = SystemClock()
"""The clock of the system."""

Parts = tuple[list[MemoryEntry], list[MemoryEntry]]
"""The entries that are kept, and the others; each in the order that was given."""


class AccessFrequencyStrategy:
    """Prunes unimportant entries.

    Args:
        importance_threshold: An entry of a lower importance is pruned, 0 to 1.

    Raises:
        ValueError: The threshold is out of bounds.
    """

    def __init__(self, importance_threshold: float = 0.1) -> None:
        check_fraction("importance_threshold", importance_threshold)
        self._threshold = importance_threshold

    def should_prune(self, entry: MemoryEntry) -> bool:
        """Return whether an entry is pruned."""
        return bool(self.filter([entry])[1])

    def filter(self, entries: Sequence[MemoryEntry]) -> Parts:
        """Return the kept and the pruned entries."""
        found = find_unimportant(_numbered(entries), self._threshold)
        return _divide(entries, {archive.id for archive in found})


class RecencyDecayStrategy:
    """Prunes old entries.

    Args:
        half_life_hours: The age at which the recency of an entry is a half; above 0.
        threshold: An entry of a lower recency is pruned, 0 to 1.
        protect_importance: An entry of at least this importance is kept, 0 to 1; None keeps none.
        clock: Is read once for each call.
    """

    def __init__(
        self,
        half_life_hours: float = 24.0,
        threshold: float = 0.05,
        *,
        protect_importance: float | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._half_life = half_life_hours * _HOUR_SECONDS
        self._threshold = threshold
        self._protected = protect_importance
        self._clock = clock
        self.filter([])  # refuses parameters that are out of bounds

    def should_prune(self, entry: MemoryEntry) -> bool:
        """Return whether an entry is pruned now."""
        return bool(self.filter([entry])[1])

    def filter(self, entries: Sequence[MemoryEntry]) -> Parts:
        """Return the entries that are kept now, and the pruned ones."""
        protected = self._protected
        numbered = _numbered(entries)
        if protected is None:
            numbered = [entry._replace(importance=0.0) for entry in numbered]
        found = find_decayed(
            numbered,
            self._clock.now(),
            half_life_seconds=self._half_life,
            threshold=self._threshold,
            protect_importance=1.0 if protected is None else protected,
        )
        return _divide(entries, {archive.id for archive in found})


@dataclass
class DuplicateGroup:
    """An entry that is kept, with the entries that say the same.

    Attributes:
        kept: The entry as it is stored.
        others: Its duplicates.
    """

    kept: MemoryEntry
    others: Sequence[MemoryEntry]

    @property
    def raised(self) -> MemoryEntry:
        """The kept entry with the highest importance of the group; the same one if it has it."""
        highest = max(entry.importance for entry in (self.kept, *self.others))
        same = highest == self.kept.importance
        return self.kept if same else replace(self.kept, importance=highest)


class DeduplicationStrategy:
    """Finds entries that say the same as an earlier entry of the list, of the same owner.

    Args:
        similarity_threshold: The least similarity of duplicates, above 0, at most 1.
        method: How texts are compared; see `find_duplicates`.
    """

    def __init__(self, similarity_threshold: float = 0.85, *, method: Method = "jaccard") -> None:
        self._similarity = similarity_threshold
        self._method = method
        self._embed = WordEmbedder().rows if method == "vectors" else no_vectors
        self._find([])  # refuses what is invalid

    def deduplicate(self, entries: Sequence[MemoryEntry]) -> Parts:
        """Return the entries that are kept, and their duplicates.

        The first of several entries is kept. It gets the highest importance of its duplicates.
        """
        places = self._places(entries)
        duplicates = {place for others in places.values() for place in others}
        kept = []
        for place, entry in enumerate(entries):
            if place not in duplicates:
                same = [entries[other] for other in places.get(place, ())]
                kept.append(DuplicateGroup(entry, same).raised)
        return kept, [entries[place] for place in sorted(duplicates)]

    def groups(self, entries: Sequence[MemoryEntry]) -> list[DuplicateGroup]:
        """Return each entry that has duplicates, with them."""
        return [
            DuplicateGroup(entries[kept], [entries[other] for other in others])
            for kept, others in self._places(entries).items()
        ]

    def _places(self, entries: Sequence[MemoryEntry]) -> dict[int, list[int]]:
        """Return the places of the duplicates of each entry, by its place."""
        found: dict[int, list[int]] = defaultdict(list)
        for owned in _by_owner(entries):
            for number, of, _ in self._find(owned):
                found[int(of)].append(int(number))
        return found

    def _find(self, entries: Iterable[Entry]) -> list[Duplicate]:
        return find_duplicates(
            entries,
            self._method,
            similarity=self._similarity,
            keep="oldest",
            embed=self._embed,
        )


class TimeDecayStrategy:
    """Lowers the importance of entries with their age.

    Args:
        half_life_hours: The age at which an importance is half; above 0.
        floor: No importance decays below this, 0 to 1.
        clock: Is read once for each call.
    """

    def __init__(
        self, half_life_hours: float = 168.0, floor: float = 0.01, *, clock: Clock = CLOCK
    ) -> None:
        self._half_life = half_life_hours * _HOUR_SECONDS
        self._floor = floor
        self._clock = clock
        self.apply([])  # refuses parameters that are out of bounds

    def apply(self, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
        """Return the entries with the importance that they have now, the most important first.

        The entries must have the importance that they were written with.
        """
        found = reweighted(
            _numbered(entries),
            self._clock.now(),
            half_life_seconds=self._half_life,
            floor=self._floor,
        )
        weights = {weight.id: weight.importance for weight in found}
        changed = [
            replace(entry, importance=weights.get(str(n), entry.importance))
            for n, entry in enumerate(entries)
        ]
        return sorted(changed, key=lambda entry: -entry.importance)


def _numbered(entries: Iterable[MemoryEntry]) -> list[Entry]:
    """Return entries for stages; their ids are their places in the list."""
    found = map(entry_for_stages, entries)
    return [entry._replace(id=str(number)) for number, entry in enumerate(found)]


def _by_owner(entries: Sequence[MemoryEntry]) -> Iterable[list[Entry]]:
    """Return the entries of each owner; each entry is dated by its place in the list."""
    owned: dict[str, list[Entry]] = defaultdict(list)
    for number, (entry, numbered) in enumerate(zip(entries, _numbered(entries), strict=True)):
        owned[entry.owner_id].append(numbered._replace(at=number))
    return owned.values()


def _divide(entries: Sequence[MemoryEntry], out: Container[str]) -> Parts:
    kept = [entry for number, entry in enumerate(entries) if str(number) not in out]
    return kept, [entry for number, entry in enumerate(entries) if str(number) in out]
