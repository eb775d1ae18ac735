"""Index the readable episodes of one scope."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress, islice
from sys import getsizeof
from threading import Lock
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.feed import NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.model.texts import without_recalled
from slumberd.search.columns import Parts, SavedParts, read_array, read_json
from slumberd.search.followed_scopes import RowIds
from slumberd.search.hits import Hit
from slumberd.search.kept_texts import BYTES_OF_NOTHING, SavableIndex
from slumberd.search.languages import words_of
from slumberd.search.saved_indexes import EPISODE_ROWS
from slumberd.search.scope_index import FoundText, IndexedTurn
from slumberd.search.terms import Analyser

_BYTES_OF_AN_EPISODE = 550
"""About the bytes of an episode, without its letters."""

_PLAIN = Analyser()

_EXTRAS = ("title", "caption", "image_caption", "description")
"""The keys of metadata whose texts are found, too."""

SHORT_WORDS = 40
"""The most words of a short episode."""

_SHORT_CHARACTERS = 1_000
"""No episode of so few words is longer, so the words of a longer one are not counted."""

_MOST_COMPARED = 50
"""So many rows of an index that was loaded are compared with the store."""

_FEW = 50
"""At most so many episodes are put into the order of time one by one; more are sorted."""


class KeptEpisode(NamedTuple):
    """What an index keeps of an episode.

    Attributes:
        at: Its instant, microseconds since 1970 UTC.
        extra: Other words about it, such as the caption of a picture.
    """

    id: str
    user: str
    session: str
    agent: str
    at: int
    content: str
    speaker: str | None
    extra: str

    @property
    def letters(self) -> int:
        """About the bytes of its text."""
        return getsizeof(self.content)

    def document(self) -> list[Any]:
        """Return what is saved of it beside its id and its user, as values of JSON."""
        return [*self[2:]]


class EpisodeIndex(SavableIndex[KeptEpisode]):
    """The readable episodes of one scope, with their index; those without any text are left out.

    Args:
        language: The language of the episodes; `languages.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.

    Attributes:
        latest_at: No episode is later than this instant, microseconds since 1970 UTC.
        newest_saved: The last rows of an index that was loaded, with the ids of their episodes.
    """

    def __init__(self, scope: ScopeFilter, *, language: str | None, vectors: bool) -> None:
        super().__init__(
            scope,
            language=language,
            vectors=vectors,
            read=lambda id, document: KeptEpisode(id, scope.user, *document),
            turn_of=turn_of,
            is_mixed=False,
        )
        self.latest_at = 0
        self.newest_saved: Mapping[int, str] = {}
        self._read_ages: Callable[[], list[tuple[int, str]]] = list
        self._read_rows: Callable[[], RowIds] = RowIds
        self._known_rows: RowIds | None = None
        self._reading_rows = Lock()
        self._short: dict[str, bool] = {}
        self._hidden: frozenset[str] = frozenset()

    @cached_property
    def _ages(self) -> list[tuple[int, str]]:
        """The instant and the id of each episode, in order."""
        return self._read_ages()

    @property
    def _rows(self) -> RowIds:
        # The thread that follows the store reads it, too: both must get the same object.
        with self._reading_rows:
            if self._known_rows is None:
                self._known_rows = self._read_rows()
            return self._known_rows

    @property
    def size_bytes(self) -> int:
        """About how much memory the episodes and the index take."""
        of_index = self.index.size_bytes
        # Texts of words take up to half of what their index takes, which is counted there.
        more = max(0, self.kept.letters - of_index // 2)
        return BYTES_OF_NOTHING + of_index + more + _BYTES_OF_AN_EPISODE * len(self.kept)

    def rows(self) -> list[int]:
        """Return the rows of the episodes."""
        return [*self._rows]

    def rows_among(self, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that an episode is in."""
        return self._rows.among(rows)

    def _ids(self) -> list[str]:
        return [id for _, id in self._ages]

    def _own_parts(self, ids: Iterable[str]) -> SavedParts:
        ages, rows = [*self._ages], dict(self._rows.by_id())
        hidden = [self.latest_at, *self._hidden]
        return {
            "episode_ats": lambda: array("q", (at for at, _ in ages)),
            EPISODE_ROWS: lambda: array("q", map(rows.__getitem__, ids)),
            "hidden": lambda: orjson.dumps(hidden),
        }

    def _load_own(self, parts: Parts, ids: Sequence[str]) -> None:
        ats, rows = (read_array("q", parts[name]) for name in ("episode_ats", EPISODE_ROWS))
        self.latest_at, *hidden = read_json(parts["hidden"])
        self._hidden = frozenset(hidden)
        self._read_ages = lambda: [*zip(ats, ids, strict=True)]
        self._read_rows = lambda: RowIds(zip(rows, ids, strict=True))
        self._known_rows = None
        newest = {*sorted(rows)[-_MOST_COMPARED:]}  # the rows are almost in order
        found = compress(zip(rows, ids, strict=True), map(newest.__contains__, rows))
        self.newest_saved = dict(found)

    def has_all(self, rows: Mapping[int, str], versions: Iterable[NumberedVersion]) -> bool:
        """Return whether some rows have just the episodes that the index has.

        Args:
            rows: The id of the episode in each row.
            versions: What is readable in these rows.
        """
        found = {one.row: _kept(one.version) for one in versions}
        return found == {row: self.kept[id] for row, id in rows.items()}

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes."""
        rows, versions = {*rows}, [*versions]
        new = [one for one in versions if self.scope.holds(one.version) and _is_found(one.version)]
        if not new and self._rows.are_others(rows):
            return
        gone = self._rows.take(rows)
        for id in gone:
            self._remove_age(self.kept.pop(id))
        # In order: neighbours that come one after the other are put in half of the time.
        ids = dict.fromkeys(version.id for _, version in new)
        changed = ids.keys() | gone
        for id in changed:
            self._short.pop(id, None)
        for id in ids:
            if id in self.kept:
                self._remove_age(self.kept.pop(id))
        for row, version in new:
            self._rows.put(row, version.id)
            self.kept.put(_kept(version))
            self.latest_at = max(self.latest_at, version.at)
        self._add_ages([(self.kept[id].at, id) for id in ids])
        self.index.drop(gone)
        self._show(ids)
        self.unsaved += len(changed)
        self._is_gone |= len(changed) > len(ids)

    def _add_ages(self, ages: Sequence[tuple[int, str]]) -> None:
        if len(ages) > _FEW:
            self._ages[:] = sorted([*self._ages, *ages])
            return
        for age in ages:
            insort(self._ages, age)

    def _remove_age(self, episode: KeptEpisode) -> None:
        del self._ages[bisect_left(self._ages, (episode.at, episode.id))]

    @property
    def hidden(self) -> frozenset[str]:
        """The episodes that are hidden."""
        return self._hidden

    def hide(self, ids: frozenset[str]) -> None:
        """Search as if some episodes were not stored, and no others; ids may be unknown."""
        before, self._hidden = self._hidden, ids
        self.index.drop(ids - before)
        self.unsaved += len(ids ^ before)
        # In order: the last digits of a meaning depend on which text comes first.
        self._show(sorted(id for id in before - ids if id in self.kept))

    def _show(self, ids: Iterable[str]) -> None:
        shown = (id for id in ids if id not in self._hidden)
        self.index.put(turn_of(self.kept[id]) for id in shown)

    def find(
        self, query: str, *, limit: int, least: float = 0.0, aliases: Sequence[Sequence[str]] = ()
    ) -> list[Hit]:
        """Return the episodes that answer a question best, best first.

        Args:
            least: The least score.
            aliases: Groups of names that mean the same.
        """
        found = self.index.search(query, limit=limit, least=least, aliases=aliases)
        return [self.hit(match) for match in found]

    def hit(self, found: FoundText) -> Hit:
        """Return an episode as a search returns it."""
        version = self.kept[found.id]
        return Hit(
            id=version.id,
            kind="episode",
            score=found.score,
            lexical=found.lexical,
            vector=found.vector,
            text=version.content,
            at=instant(version.at),
            user=version.user,
            agent=version.agent,
            session=version.session,
            speaker=version.speaker or "",
        )

    def ids_after(self, at: int) -> frozenset[str]:
        """Return the episodes that are later than an instant, microseconds since 1970 UTC."""
        return frozenset(id for _, id in self._ages[bisect_left(self._ages, (at + 1, "")) :])

    def is_short(self, id: str) -> bool:
        """Return whether an episode has at most `SHORT_WORDS` words; each is counted once."""
        found = self._short.get(id)
        if found is None:
            found = self._short[id] = _has_few_words(self.kept[id].content)
        return found

    def newest(self, session: str | None, most: int) -> list[KeptEpisode]:
        """Return the newest episodes that are not hidden, newest first.

        Args:
            session: Only those of this session; None for all.
        """
        ordered = (self.kept[id] for _, id in reversed(self._ages))
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


def _kept(version: EpisodeVersion) -> KeptEpisode:
    """Return what is kept of an episode."""
    metadata = version.metadata
    extras = [metadata[key] for key in _EXTRAS if key in metadata]
    extra = " ".join(extra for extra in extras if isinstance(extra, str)) if extras else ""
    _, id, user, session, agent, at, content, *_ = version
    return KeptEpisode(id, user, session, agent, at, content, version.speaker, extra)


def turn_of(episode: KeptEpisode) -> IndexedTurn:
    """Return an episode as a text that can be found."""
    return IndexedTurn(
        episode.id,
        without_recalled(episode.content),
        episode.session,
        episode.at,
        episode.speaker or "",
        episode.extra,
    )
