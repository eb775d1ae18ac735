"""Find the texts of one user and agent that are near to others, by what the notes keep of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from slumberd.consolidation.protocols import Owner, StageNotes
from slumberd.consolidation.stages.neighbours import Comparable, compared_texts, find_near
from slumberd.consolidation.stages.similar_texts import Embed
from slumberd.model.stages import ComparedText, Stage

MOST_COMPARED = 100
"""So many texts are compared with all texts of the notes; with more, a look at all is faster."""


class OwnerTexts:
    """The texts of an owner that the notes keep; each assertion is read once.

    Args:
        embed: Returns the vectors of texts, for a stage that compares them.
    """

    def __init__(
        self, notes: StageNotes, owner: Owner, stages: Sequence[Stage], embed: Embed
    ) -> None:
        self._notes = notes
        self._owner = owner
        self._stages = stages
        self._embed = embed
        self._kept: dict[int, Sequence[tuple[str, str, bytes]]] = {}
        self._compared: set[ComparedText] = set()

    @property
    def is_exceeded(self) -> bool:
        """Whether more texts were to be compared than is of use; some were not compared."""
        return len(self._compared) > MOST_COMPARED

    def near_to(self, entries: Sequence[Comparable]) -> set[str]:
        """Return the kept episodes that may be duplicates of some entries; equal texts need not be.

        Raises:
            ExtraMissingError: A stage needs an extra that is not installed.
        """
        found = compared_texts(entries, self._stages, self._embed)
        return self.near_to_kept(one for one in found if one is not None)

    def near_to_kept(self, texts: Iterable[ComparedText]) -> set[str]:
        """Return the same for what the notes keep of entries."""
        new = {*texts} - self._compared
        self._compared |= new
        if self.is_exceeded:
            return set()
        by_assertion: defaultdict[int, list[ComparedText]] = defaultdict(list)
        for one in new:
            by_assertion[one.assertion].append(one)
        return {
            eid
            for assertion, some in by_assertion.items()
            for eid in find_near(some, self._kept_with(assertion), self._stages)
        }

    def _kept_with(self, assertion: int) -> Sequence[tuple[str, str, bytes]]:
        if assertion not in self._kept:
            self._kept[assertion] = self._notes.texts(self._owner, assertion)
        return self._kept[assertion]
