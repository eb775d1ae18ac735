"""What the indexes of facts and of episodes share: their texts by id, and what is saved of them."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

import orjson

from slumberd.model.scope import ScopeFilter
from slumberd.search.columns import Parts, SavedParts, read_array, read_json
from slumberd.search.followed_scopes import Followed
from slumberd.search.saved_indexes import LEAST_TEXTS
from slumberd.search.scope_index import IndexedTurn, ScopeIndex

BYTES_OF_NOTHING = 9_000
"""About the bytes of an index of either kind without texts."""

_LEAST_CHANGES = 500
_CHANGED_SHARE = 20
"""An index is saved again after so many changes, and after this part of its texts."""


class KeptText(Protocol):
    """What an index keeps of a fact or of an episode."""

    @property
    def id(self) -> str:
        """Unique in the index."""
        ...

    @property
    def letters(self) -> int:
        """About the bytes of its texts."""
        ...

    def document(self) -> list[Any]:
        """Return what is saved of it beside its id, as values of JSON.

        Raises:
            TypeError: It has a value that JSON has not.
        """
        ...


K = TypeVar("K", bound=KeptText)


class KeptTexts(Mapping[str, K]):
    """What is kept of the texts of a scope, by id. Saved ones are read when they are asked for.

    Args:
        read: Returns the text with an id from its document.
    """

    def __init__(self, read: Callable[[str, list[Any]], K]) -> None:
        self._read = read
        self._new: dict[str, K] = {}
        self._places: dict[str, int] = {}
        self._ends = array("Q")
        self._saved: bytearray | memoryview = memoryview(b"")
        self._letters = 0

    @property
    def letters(self) -> int:
        """About the bytes of the texts."""
        return self._letters + len(self._saved)

    def __len__(self) -> int:
        return len(self._new) + len(self._places)

    def __contains__(self, id: object) -> bool:
        return id in self._new or id in self._places

    def __iter__(self) -> Iterator[str]:
        yield from self._new
        yield from self._places

    def __getitem__(self, id: str) -> K:
        found = self._new.get(id)
        if found is not None:
            return found
        begin, end = self._bounds_of(self._places[id])
        return self._read(id, read_json(memoryview(self._saved)[begin:end]))

    def _bounds_of(self, place: int) -> tuple[int, int]:
        return self._ends[place - 1] if place else 0, self._ends[place]

    def put(self, text: K) -> None:
        """Add a text, in place of the one with its id."""
        if text.id in self:
            self.pop(text.id)
        self._new[text.id] = text
        self._letters += text.letters

    def pop(self, id: str) -> K:
        """Remove a text; no byte of it stays."""
        found = self[id]
        if self._new.pop(id, None) is not None:
            self._letters -= found.letters
        else:
            begin, end = self._bounds_of(self._places.pop(id))
            if not isinstance(self._saved, bytearray):
                self._saved = bytearray(self._saved)
            self._saved[begin:end] = bytes(end - begin)
        return found

    def part(self, ids: Sequence[str]) -> Callable[[], bytes]:
        """Return what makes the part that `load` needs. Later changes do not change it.

        Args:
            ids: The ids of all texts, in the order in which they are saved.
        """
        new, places, ends = dict(self._new), dict(self._places), self._ends
        is_changed = isinstance(self._saved, bytearray)
        saved = memoryview(bytes(self._saved) if is_changed else self._saved)

        def encoded(id: str) -> bytes | memoryview:
            text = new.get(id)
            if text is not None:
                return orjson.dumps(text.document())
            place = places[id]
            return saved[ends[place - 1] if place else 0 : ends[place]]

        def encode() -> bytes:
            found = [encoded(id) for id in ids]
            return b"".join([array("Q", accumulate(map(len, found))), *found])

        return encode

    def load(self, part: memoryview, ids: Sequence[str]) -> None:
        """Take the texts that were saved, in the order of their ids."""
        self._places = {id: place for place, id in enumerate(ids)}
        begin = self._ends.itemsize * len(ids)
        self._ends = read_array("Q", part[:begin])
        self._saved = part[begin:]


class SavableIndex(Followed, Generic[K]):
    """The texts of one kind in one scope, with their index. It can be saved and loaded.

    Args:
        language: The language of the texts; `languages.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.
        read: Returns what is kept of the text with an id from its document.
        turn_of: Returns a text as one that can be found.
        is_mixed: Whether one text has words of several languages.

    Attributes:
        kept: What is kept of each text, by id.
        unsaved: How many changes of texts are not saved.
    """

    def __init__(
        self,
        scope: ScopeFilter,
        *,
        language: str | None,
        vectors: bool,
        read: Callable[[str, list[Any]], K],
        turn_of: Callable[[K], IndexedTurn],
        is_mixed: bool,
    ) -> None:
        self.scope = scope
        self.kept = KeptTexts(read)
        self.index = ScopeIndex(
            language=language,
            vectors=vectors,
            source=lambda id: turn_of(self.kept[id]),
            is_mixed=is_mixed,
        )
        self.unsaved = 0
        self._is_saved = False
        self._is_gone = False

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def has_gone(self) -> bool:
        """Whether the saved index has a text that must not stay in a file."""
        return self._is_saved and self._is_gone

    @property
    def is_to_save(self) -> bool:
        """Whether so much is not saved that it is worth it, or a saved text must go."""
        if self.has_gone:
            return True
        return len(self) >= LEAST_TEXTS and self.unsaved >= max(
            _LEAST_CHANGES, len(self) // _CHANGED_SHARE
        )

    def note_saved(self) -> None:
        """Count changes from now on."""
        self.unsaved, self._is_saved, self._is_gone = 0, True, False

    def parts(self) -> SavedParts:
        """Return what `load` needs. Later changes of the index do not change it."""
        ids = self._ids()
        own: SavedParts = {"ids": lambda: orjson.dumps(ids), "texts": self.kept.part(ids)}
        return own | self._own_parts(ids) | self.index.parts()

    def load(self, parts: Parts) -> None:
        """Take what was saved of an index of the same scope, with the same language.

        Raises:
            LookupError: A part is missing.
            TypeError: A part is of another form.
            ValueError: A part is damaged.
        """
        ids: list[str] = read_json(parts["ids"])
        self.kept.load(parts["texts"], ids)
        self._load_own(parts, ids)
        self.index.load(parts)
        self.note_saved()

    @abstractmethod
    def _ids(self) -> list[str]:
        """Return the ids of all texts, in the order in which they are saved."""

    @abstractmethod
    def _own_parts(self, ids: Iterable[str]) -> SavedParts:
        """Return the parts beside the texts and their index."""

    @abstractmethod
    def _load_own(self, parts: Parts, ids: Sequence[str]) -> None:
        """Take these parts."""
