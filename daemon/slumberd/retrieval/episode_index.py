"""Index the episodes of one scope."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice

from slumberd.model.episode import EpisodeVersion
from slumberd.model.feed import NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.model.texts import without_recalled
from slumberd.retrieval.followed_scopes import RowIds
from slumberd.retrieval.scope_index import IndexedTurn, ScopeIndex
from slumberd.retrieval.terms import Analyser
from slumberd.retrieval.words import words_of

_EXTRAS = ("title", "caption", "image_caption", "description")
"""The keys of metadata whose texts are found, too."""

SHORT_WORDS = 40
"""The most words of a short episode."""

_SHORT_CHARACTERS = 1_000
"""No episode of so few words is longer, so the words of a longer one are not counted."""

_PLAIN = Analyser()

_FEW = 50
"""At most so many episodes are put into the order of time one by one; more are sorted."""


class EpisodeIndex:
    """The readable episodes of one scope, with their index; those without any text are left out.

    Args:
        scope: The scope.
        language: The language of the episodes; `languages.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.

    Attributes:
        latest_at: No episode is later than this instant, microseconds since 1970 UTC.
    """

    def __init__(self, scope: ScopeFilter, *, language: str | None, vectors: bool) -> None:
        self.scope = scope
        self.index = ScopeIndex(language=language, vectors=vectors)
        self.versions: dict[str, EpisodeVersion] = {}
        self.latest_at = 0
        self._ages: list[tuple[int, str]] = []
        """The instant and the id of each episode, in order."""
        self._short: dict[str, bool] = {}
        self._hidden: frozenset[str] = frozenset()
        self._rows = RowIds()

    @property
    def size_bytes(self) -> int:
        """About how much memory the episodes and the index take."""
        return self.index.size_bytes + 1_000 * len(self.versions)

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes."""
        gone = self._rows.take(rows)
        for id in gone:
            self._remove_age(self.versions.pop(id))
        new = [one for one in versions if self.scope.holds(one.version) and _is_found(one.version)]
        ids = {version.id for _, version in new}
        for id in ids.union(gone):
            self._short.pop(id, None)
        for id in ids & self.versions.keys():
            self._remove_age(self.versions[id])
        for row, version in new:
            self._rows.put(row, version.id)
            self.versions[version.id] = version
            self.latest_at = max(self.latest_at, version.at)
        self._add_ages([(self.versions[id].at, id) for id in ids])
        self.index.drop(gone)
        self._show(version for _, version in new)

    def _add_ages(self, ages: Sequence[tuple[int, str]]) -> None:
        if len(ages) > _FEW:
            self._ages = sorted([*self._ages, *ages])
            return
        for age in ages:
            insort(self._ages, age)

    def _remove_age(self, version: EpisodeVersion) -> None:
        del self._ages[bisect_left(self._ages, (version.at, version.id))]

    def hide(self, ids: frozenset[str]) -> None:
        """Search as if some episodes were not stored, and no others; ids may be unknown."""
        before, self._hidden = self._hidden, ids
        self.index.drop(ids - before)
        self._show(self.versions[id] for id in before - ids if id in self.versions)

    def _show(self, versions: Iterable[EpisodeVersion]) -> None:
        shown = (version for version in versions if version.id not in self._hidden)
        self.index.put(map(turn_of_version, shown))

    def ids_after(self, at: int) -> frozenset[str]:
        """Return the episodes that are later than an instant, microseconds since 1970 UTC."""
        return frozenset(id for id, version in self.versions.items() if version.at > at)

    def is_short(self, id: str) -> bool:
        """Return whether an episode has at most `SHORT_WORDS` words; each is counted once."""
        found = self._short.get(id)
        if found is None:
            found = self._short[id] = _has_few_words(self.versions[id].content)
        return found

    def newest(self, session: str | None, most: int) -> list[EpisodeVersion]:
        """Return the newest episodes that are not hidden, newest first.

        Args:
            session: Only those of this session; None for all.
            most: At most this many.
        """
        ordered = (self.versions[id] for _, id in reversed(self._ages))
        found = (
            one for one in ordered if session in (None, one.session) and one.id not in self._hidden
        )
        return [*islice(found, most)]


def _has_few_words(text: str) -> bool:
    if len(text) > _SHORT_CHARACTERS:
        return False
    words = words_of(text) if text.isascii() else _PLAIN.terms(text)
    return len(words) <= SHORT_WORDS


def _is_found(version: EpisodeVersion) -> bool:
    """Return whether an episode has a text, and its speaker did not take it back.

    Its neighbours would bring an episode without a text into answers.
    """
    has_text = bool(version.content.strip()) or any(key in version.metadata for key in _EXTRAS)
    return has_text and not version.withdrawn


def turn_of_version(version: EpisodeVersion) -> IndexedTurn:
    """Return an episode as a text that can be found."""
    metadata = version.metadata
    extras = [metadata[key] for key in _EXTRAS if key in metadata]
    return IndexedTurn(
        version.id,
        without_recalled(version.content),
        version.session,
        version.at,
        version.speaker or "",
        " ".join(extra for extra in extras if isinstance(extra, str)) if extras else "",
    )
