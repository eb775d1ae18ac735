"""Index the facts and the episodes of one scope."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from itertools import accumulate, compress, islice
from sys import getsizeof, intern
from threading import Lock
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import EpisodeVersion, are_near, comparable
from slumberd.model.fact import Fact, sortable_confidence, words_of_payload
from slumberd.model.feed import NumberedFact, NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARK_IDS, MARKS
from slumberd.model.texts import without_recalled
from slumberd.search.columns import Parts, SavedParts, read_array, read_json
from slumberd.search.followed_scopes import RowIds
from slumberd.search.hits import Trust
from slumberd.search.languages import is_stop_word, words_of
from slumberd.search.saved_indexes import EPISODE_ROWS, LEAST_TEXTS
from slumberd.search.scope_index import FoundText, IndexedTurn, ScopeIndex
from slumberd.search.terms import Analyser

ALIAS_PREDICATES = frozenset({"alias", "aliases", "also_known_as", "aka"})
"""A fact with one of these predicates says that its subject has another name."""

_LEAST_LETTERS = 6
"""A shorter word differs from too many others by one letter only."""

_LONGEST_STOP_WORD = 20
"""No longer name is a stop word."""

_PLAIN = Analyser()

_MANUAL = "@manual"

_MARK_IDS = f"@{MARKS}/"

_BYTES_OF_AN_EPISODE = 250
_BYTES_OF_NOTHING = 9_000
"""About the bytes of an index of either kind without texts."""

_BYTES_OF_A_FACT = 450
_BYTES_OF_A_MARK = 250
_BYTES_OF_A_NAME = 200
_BYTES_OF_A_WORD = 200
"""About the bytes of each, without its letters."""


class IndexedFact(NamedTuple):
    """What a search needs of a fact.

    Attributes:
        text: The fact in words.
        names: Its subject, and its object or objects, if they are texts.
        is_alias: Whether it says that its names mean the same.
        confidence: As the fact has it; other programs may have written something else.
        standing: The confidence as a number.
    """

    id: str
    text: str
    names: tuple[str, ...]
    is_alias: bool
    at: datetime
    user: str
    agent: str
    trust: Trust
    confidence: float
    standing: float
    sources: tuple[str, ...]


def indexed_fact(fact: Fact) -> IndexedFact:
    """Return what a search needs of a fact. Facts share the names that they have in common."""
    return IndexedFact(
        fact.id,
        words_of_fact(fact),
        tuple(map(intern, names_of_fact(fact))),
        fact.payload.get("predicate") in ALIAS_PREDICATES,
        fact.said_at,
        intern(fact.user),
        intern(fact.agent),
        trust_of_fact(fact),
        fact.confidence,
        sortable_confidence(fact),
        sources_of_fact(fact),
    )


class FactIndex:
    """The facts of a user, or of one agent of it, with their index, and the marks of episodes.

    Args:
        scope: The user and the agent.
        language: The language of the facts; `texts.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.

    Attributes:
        facts: The facts, by id.
    """

    def __init__(self, scope: ScopeFilter, *, language: str | None, vectors: bool) -> None:
        self.scope = scope
        self.index = ScopeIndex(language=language, vectors=vectors)
        self.facts: dict[str, IndexedFact] = {}
        self._names = Names()
        self._aliases: list[tuple[str, Sequence[str]]] = []
        """The id and the names of each fact that states aliases, in order."""
        self._marks: dict[str, str] = {}
        self._hidden: frozenset[str] | None = None
        self._letters = 0

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def size_bytes(self) -> int:
        """About how much memory the facts, the marks and the index take."""
        return (
            _BYTES_OF_NOTHING
            + self.index.size_bytes
            + self._names.size_bytes
            + _BYTES_OF_A_FACT * len(self.facts)
            + self._letters
            + _BYTES_OF_A_MARK * len(self._marks)
        )

    @property
    def hidden(self) -> frozenset[str]:
        """The episodes that a mark hides: duplicates, archived and summarised ones.

        The same object until a mark changes.
        """
        if self._hidden is None:
            self._hidden = frozenset(self._marks.values())
        return self._hidden

    @property
    def aliases(self) -> list[Sequence[str]]:
        """Groups of names that mean the same, by the facts that say so, in the order of ids."""
        return [names for _, names in self._aliases]

    def rows(self) -> list[str]:
        """Return the ids of the facts and the marks."""
        return [*self.facts, *self._marks]

    def rows_among(self, rows: Iterable[str]) -> list[str]:
        """Return those of some ids that a fact or a mark has."""
        return [row for row in rows if row in self.facts or row in self._marks]

    def replace(self, rows: Iterable[str], versions: Iterable[NumberedFact]) -> None:
        """Read facts again: those with some ids go, and those that there are now come."""
        before: dict[str, IndexedFact] = {}
        for id in rows:
            if id in self.facts:
                before[id] = self._remove(id)
            elif self._marks.pop(id, None) is not None:
                self._hidden = None
        now = [one.version for one in versions if self._is_of_scope(one.version)]
        new = [indexed_fact(fact) for fact in now if not fact.id.startswith(MARK_IDS)]
        for fact in new:
            self._add(fact)
        for mark in now:
            if mark.id.startswith(_MARK_IDS):
                self._marks[mark.id] = str(mark.payload.get("subject"))
                self._hidden = None
        self.index.drop([id for id in before if id not in self.facts])
        self.index.keep(self._names.stop_words)
        self.index.put(
            IndexedTurn(fact.id, fact.text)
            for fact in new
            if fact.id not in before or before[fact.id].text != fact.text
        )

    def _is_of_scope(self, fact: Fact) -> bool:
        return self.scope.holds_owner(fact.user, fact.agent)

    def _add(self, fact: IndexedFact) -> None:
        if fact.id in self.facts:
            self._remove(fact.id)
        self.facts[fact.id] = fact
        self._letters += _letters_of(fact)
        self._names.add(fact.names)
        if fact.is_alias:
            insort(self._aliases, (fact.id, fact.names))

    def _remove(self, id: str) -> IndexedFact:
        fact = self.facts.pop(id)
        self._letters -= _letters_of(fact)
        self._names.remove(fact.names)
        if fact.is_alias:
            del self._aliases[bisect_left(self._aliases, (fact.id, fact.names))]
        return fact

    def search(self, query: str, *, limit: int, least: float = 0.0) -> list[FoundText]:
        """Return the facts that answer a question best, best first.

        Args:
            query: The question. A name with one typing error counts as the name.
            least: The least score.
        """
        return self.index.search(
            query,
            limit=limit,
            least=least,
            aliases=self.aliases,
            also=self._names.misspelled_in(query),
        )

    def named_in(self, text: str, ids: Iterable[str]) -> list[str]:
        """Return those of some facts whose subject, object or alias a text names in full.

        Args:
            text: The text. A name with one typing error counts as the name.
            ids: The ids of the facts.
        """
        analyser = self.index.analyser
        terms = {*analyser.terms(" ".join([text, *self._names.misspelled_in(text)]))}
        same = {name: group for group in self.aliases for name in group}

        @cache
        def is_named(name: str) -> bool:
            words = analyser.terms(name)
            return bool(words) and terms.issuperset(words)

        return [
            id
            for id in ids
            if any(
                is_named(name) or any(map(is_named, same.get(name, ())))
                for name in self.facts[id].names
            )
        ]


def _letters_of(fact: IndexedFact) -> int:
    return len(fact.text) + sum(map(len, fact.sources)) + len(fact.id)


class Names:
    """The names of facts, and the words in them; each counts until the last fact with it goes.

    Attributes:
        stop_words: The names that are one stop word, such as Will and US, folded.
    """

    def __init__(self) -> None:
        self.stop_words: frozenset[str] = frozenset()
        self._names: Counter[str] = Counter()
        self._words: Counter[str] = Counter()
        self._stop_words: Counter[str] = Counter()
        self._long: dict[_Place, set[str]] = defaultdict(set)
        """The words that a typing error may change, each in two places."""

    @property
    def size_bytes(self) -> int:
        """About how much memory the names and the words take."""
        return _BYTES_OF_A_NAME * len(self._names) + _BYTES_OF_A_WORD * len(self._words)

    def add(self, names: Iterable[str]) -> None:
        """Count the names of a fact."""
        for name in names:
            self._names[name] += 1
            if self._names[name] == 1:
                self._add_words(name)

    def remove(self, names: Iterable[str]) -> None:
        """Count the names of a fact no more."""
        for name in names:
            if _count_less(self._names, name):
                self._remove_words(name)

    def _add_words(self, name: str) -> None:
        for word in {*_PLAIN.terms(name)}:
            self._words[word] += 1
            if len(word) >= _LEAST_LETTERS:
                for place in _places_of(word):
                    self._long[place].add(word)
        for word in _stop_words_in(name):
            self._stop_words[word] += 1
            self.stop_words |= {word}

    def _remove_words(self, name: str) -> None:
        for word in {*_PLAIN.terms(name)}:
            if _count_less(self._words, word) and len(word) >= _LEAST_LETTERS:
                for place in _places_of(word):
                    self._long[place].discard(word)
        for word in _stop_words_in(name):
            if _count_less(self._stop_words, word):
                self.stop_words -= {word}

    def misspelled_in(self, text: str) -> list[str]:
        """Return the words of names that a text has with one typing error."""
        found: set[str] = set()
        for word in {*_PLAIN.terms(text)} - self._words.keys():
            for place in _places_of(word, changes=(-1, 0, 1)):
                found.update(known for known in self._long.get(place, ()) if are_near(word, known))
        return sorted(found)


def _count_less(counts: Counter[str], key: str) -> bool:
    """Count one less; return whether none is left."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True


_Place = tuple[str, int, str, str]
"""The first letter of a word, its length, and its second letter or its last one."""


def _places_of(word: str, changes: Sequence[int] = (0,)) -> list[_Place]:
    """Return the places of a word, and of words with other lengths.

    One typing error changes the second letter or the last one, but never both.

    Args:
        changes: What is added to the length.
    """
    letters = comparable(word)
    return [
        place
        for by in changes
        for place in (
            (word[:1], len(letters) + by, letters[1:2], ""),
            (word[:1], len(letters) + by, "", letters[-1:]),
        )
    ]


def _stop_words_in(name: str) -> Sequence[str]:
    """Return the word of a name that is one stop word, folded."""
    words = words_of(name) if len(name) <= _LONGEST_STOP_WORD else ()
    return words if len(words) == 1 and is_stop_word(words[0]) else ()


def _names_in(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def names_of_fact(fact: Fact) -> list[str]:
    """Return the subject of a fact, and its object or objects, if they are texts."""
    payload = fact.payload
    return [*_names_in(payload.get("subject")), *_names_in(payload.get("object"))]


def words_of_fact(fact: Fact) -> str:
    """Return a fact in words: its triple; the content of one without subject and predicate."""
    return words_of_payload(fact.payload)


def trust_of_fact(fact: Fact) -> Trust:
    """Return who stands for a fact."""
    if any(entry.get("rule_id") == _MANUAL for entry in _own_entries(fact)):
        return "corrected"
    if not sources_of_fact(fact):
        return "declared"
    return "derived" if fact.extracted_by is None else "extracted"


def sources_of_fact(fact: Fact) -> tuple[str, ...]:
    """Return the ids of the episodes that a fact comes from, in the order of its lineage."""
    entries = _own_entries(fact)
    found = [id for entry in entries for id in entry.get("source_episode_ids") or ()]
    return tuple(dict.fromkeys(map(str, found)))


def _own_entries(fact: Fact) -> list[dict[str, Any]]:
    """Return the entries of a lineage without those of the facts that it replaced."""
    return [entry for entry in fact.lineage if "replaces" not in entry]


_EXTRAS = ("title", "caption", "image_caption", "description")
"""The keys of metadata whose texts are found, too."""

SHORT_WORDS = 40
"""The most words of a short episode."""

_SHORT_CHARACTERS = 1_000
"""No episode of so few words is longer, so the words of a longer one are not counted."""

_LEAST_CHANGES = 500
_CHANGED_SHARE = 20
"""An index is saved again after so many changes, and after this part of its texts."""

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


class KeptEpisodes:
    """The episodes of a scope, by id. Saved ones are read when they are asked for.

    Args:
        user: Whose they are.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._new: dict[str, KeptEpisode] = {}
        self._places: dict[str, int] = {}
        self._ends = array("Q")
        self._saved: bytes | bytearray | memoryview = b""
        self._bytes_of_new = 0

    @property
    def bytes_of_texts(self) -> int:
        """About how much memory the texts take."""
        return self._bytes_of_new + len(self._saved)

    def __len__(self) -> int:
        return len(self._new) + len(self._places)

    def __contains__(self, id: object) -> bool:
        return id in self._new or id in self._places

    def __getitem__(self, id: str) -> KeptEpisode:
        found = self._new.get(id)
        if found is not None:
            return found
        begin, end = self._bounds_of(self._places[id])
        session, agent, *others = read_json(memoryview(self._saved)[begin:end])
        return KeptEpisode(id, self._user, session, agent, *others)

    def _bounds_of(self, place: int) -> tuple[int, int]:
        return self._ends[place - 1] if place else 0, self._ends[place]

    def put(self, episode: KeptEpisode) -> None:
        """Add an episode, in place of the one with its id."""
        if episode.id in self._places:
            self.pop(episode.id)
        before = self._new.get(episode.id)
        if before is not None:
            self._bytes_of_new -= getsizeof(before.content)
        self._new[episode.id] = episode
        self._bytes_of_new += getsizeof(episode.content)

    def pop(self, id: str) -> KeptEpisode:
        """Remove an episode; no byte of it stays."""
        found = self[id]
        if self._new.pop(id, None) is not None:
            self._bytes_of_new -= getsizeof(found.content)
        else:
            begin, end = self._bounds_of(self._places.pop(id))
            if not isinstance(self._saved, bytearray):
                self._saved = bytearray(self._saved)
            self._saved[begin:end] = bytes(end - begin)
        return found

    def parts(self, ids: Iterable[str]) -> SavedParts:
        """Return what `load` needs of these episodes, which are all, in this order.

        Raises:
            TypeError: A text has half of a surrogate pair, which is not written.
        """
        found = [self._encoded(id) for id in ids]
        ends = array("Q", accumulate(map(len, found)))
        return {"episodes": b"".join(found), "episode_ends": ends}

    def _encoded(self, id: str) -> bytes | memoryview:
        episode = self._new.get(id)
        if episode is not None:
            return orjson.dumps([*episode[2:]])
        begin, end = self._bounds_of(self._places[id])
        return memoryview(self._saved)[begin:end]

    def load(self, parts: Parts, ids: Sequence[str]) -> None:
        """Take what was saved of some episodes, in this order."""
        self._places = {id: place for place, id in enumerate(ids)}
        self._ends = read_array("Q", parts["episode_ends"])
        self._saved = parts["episodes"]


class EpisodeIndex:
    """The readable episodes of one scope, with their index; those without any text are left out.

    Args:
        language: The language of the episodes; `texts.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.

    Attributes:
        versions: What is kept of each episode, by id.
        latest_at: No episode is later than this instant, microseconds since 1970 UTC.
        unsaved: How many changes of episodes are not saved.
        newest_saved: The last rows of an index that was loaded, with the ids of their episodes.
    """

    def __init__(self, scope: ScopeFilter, *, language: str | None, vectors: bool) -> None:
        self.scope = scope
        self.versions = KeptEpisodes(scope.user)
        self.index = ScopeIndex(
            language=language, vectors=vectors, source=lambda id: turn_of(self.versions[id])
        )
        self.latest_at = 0
        self.unsaved = 0
        self.newest_saved: Mapping[int, str] = {}
        self._is_saved = False
        self._has_gone = False
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

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def size_bytes(self) -> int:
        """About how much memory the episodes and the index take."""
        of_index = self.index.size_bytes
        # Texts of words take up to half of what their index takes, which is counted there.
        more = max(0, self.versions.bytes_of_texts - of_index // 2)
        return _BYTES_OF_NOTHING + of_index + more + _BYTES_OF_AN_EPISODE * len(self.versions)

    def rows(self) -> list[int]:
        """Return the rows of the episodes."""
        return [*self._rows]

    def rows_among(self, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that an episode is in."""
        return self._rows.among(rows)

    @property
    def has_gone(self) -> bool:
        """Whether the saved index has an episode that is gone."""
        return self._is_saved and self._has_gone

    @property
    def is_to_save(self) -> bool:
        """Whether so much is not saved that it is worth it, or a saved episode is gone."""
        if self.has_gone:
            return True
        return len(self) >= LEAST_TEXTS and self.unsaved >= max(
            _LEAST_CHANGES, len(self) // _CHANGED_SHARE
        )

    def note_saved(self) -> None:
        """Count changes from now on."""
        self.unsaved, self._is_saved, self._has_gone = 0, True, False

    def parts(self) -> SavedParts:
        """Return what `load` needs.

        Raises:
            TypeError: A text has half of a surrogate pair, which is not written.
        """
        ids = [id for _, id in self._ages]
        rows = self._rows.by_id()
        own: SavedParts = {
            "episode_ids": orjson.dumps(ids),
            "episode_ats": array("q", (at for at, _ in self._ages)),
            EPISODE_ROWS: array("q", (rows[id] for id in ids)),
            "hidden": orjson.dumps([self.latest_at, *sorted(self._hidden)]),
        }
        return own | self.versions.parts(ids) | self.index.parts()

    def load(self, parts: Parts) -> None:
        """Take what was saved of an index of the same scope, with the same language.

        Raises:
            LookupError: A part is missing.
            TypeError: A part is of another form.
            ValueError: A part is damaged.
        """
        ids: list[str] = read_json(parts["episode_ids"])
        ats, rows = (read_array("q", parts[name]) for name in ("episode_ats", EPISODE_ROWS))
        self.latest_at, *hidden = read_json(parts["hidden"])
        self._hidden = frozenset(hidden)
        self._read_ages = lambda: [*zip(ats, ids, strict=True)]
        self._read_rows = lambda: RowIds(zip(rows, ids, strict=True))
        self._known_rows = None
        newest = {*sorted(rows)[-_MOST_COMPARED:]}  # the rows are almost in order
        found = compress(zip(rows, ids, strict=True), map(newest.__contains__, rows))
        self.newest_saved = dict(found)
        self.versions.load(parts, ids)
        self.index.load(parts)
        self.note_saved()

    def has_all(self, rows: Mapping[int, str], versions: Iterable[NumberedVersion]) -> bool:
        """Return whether some rows have just the episodes that the index has.

        Args:
            rows: The id of the episode in each row.
            versions: What is readable in these rows.
        """
        found = {one.row: _kept(one.version) for one in versions}
        return found == {row: self.versions[id] for row, id in rows.items()}

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes."""
        rows, versions = {*rows}, [*versions]
        new = [one for one in versions if self.scope.holds(one.version) and _is_found(one.version)]
        if not new and self._rows.are_others(rows):
            return
        gone = self._rows.take(rows)
        for id in gone:
            self._remove_age(self.versions.pop(id))
        # In order: neighbours that come one after the other are put in half of the time.
        ids = dict.fromkeys(version.id for _, version in new)
        changed = ids.keys() | gone
        for id in changed:
            self._short.pop(id, None)
        for id in ids:
            if id in self.versions:
                self._remove_age(self.versions.pop(id))
        for row, version in new:
            self._rows.put(row, version.id)
            self.versions.put(_kept(version))
            self.latest_at = max(self.latest_at, version.at)
        self._add_ages([(self.versions[id].at, id) for id in ids])
        self.index.drop(gone)
        self._show(ids)
        self.unsaved += len(changed)
        self._has_gone |= len(changed) > len(ids)

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
        self._show(id for id in before - ids if id in self.versions)

    def _show(self, ids: Iterable[str]) -> None:
        shown = (id for id in ids if id not in self._hidden)
        self.index.put(turn_of(self.versions[id]) for id in shown)

    def ids_after(self, at: int) -> frozenset[str]:
        """Return the episodes that are later than an instant, microseconds since 1970 UTC."""
        return frozenset(id for _, id in self._ages[bisect_left(self._ages, (at + 1, "")) :])

    def is_short(self, id: str) -> bool:
        """Return whether an episode has at most `SHORT_WORDS` words; each is counted once."""
        found = self._short.get(id)
        if found is None:
            found = self._short[id] = _has_few_words(self.versions[id].content)
        return found

    def newest(self, session: str | None, most: int) -> list[KeptEpisode]:
        """Return the newest episodes that are not hidden, newest first.

        Args:
            session: Only those of this session; None for all.
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
