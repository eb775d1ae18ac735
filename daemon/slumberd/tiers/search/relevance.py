"""How relevant entries are to the text of a query. The only home of text search in this package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slumberd.model.episode import microseconds
from slumberd.retrieval.scope_index import WHOLE, IndexedTurn, ScopeIndex
from slumberd.tiers.entries import MemoryEntry


class EntryIndex:
    """Knows how relevant some entries are to a text; an entry is known by any name.

    Args:
        language: The language of the texts, one of `slumberd.retrieval.terms.LANGUAGES`; None
            stems no word.

    Raises:
        UsageError: The language is unknown.
    """

    def __init__(self, language: str | None = None) -> None:
        self._index = ScopeIndex(language=language)

    def put(self, named: Iterable[tuple[str, MemoryEntry]]) -> None:
        """Add entries by name; an entry replaces the one of its name."""
        self._index.put(
            IndexedTurn(name, entry.content, entry.session_id, microseconds(entry.timestamp))
            for name, entry in named
        )

    def drop(self, names: Iterable[str]) -> None:
        """Remove entries; unknown names are ignored."""
        self._index.drop(names)

    def relevances(self, text: str) -> dict[str, float]:
        """Return the relevance of each entry that has any, 0 to 1, by name.

        A short entry that has each word of the text once is fully relevant.
        """
        found = self._index.search(text, limit=len(self._index))
        return {match.id: min(1.0, match.score / WHOLE) for match in found}


def relevances_of(entries: Sequence[MemoryEntry], text: str) -> list[float]:
    """Return the relevance of each entry to a text, 0 to 1; without a text it is 1 for each."""
    if not text.strip():
        return [1.0] * len(entries)
    index = EntryIndex()
    index.put((str(number), entry) for number, entry in enumerate(entries))
    found = index.relevances(text)
    return [found.get(str(number), 0.0) for number in range(len(entries))]
