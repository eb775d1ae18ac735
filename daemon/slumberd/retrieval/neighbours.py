"""Know which text comes before and after each text of a conversation."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict

NONE = -1
"""In place of a number: there is no such neighbour."""


class Neighbours:
    """The order of numbered texts within their sessions: by instant, then by id.

    Attributes:
        previous: By the number of a text, the number of the text before it, or `NONE`.
        next: By the number of a text, the number of the text after it, or `NONE`.
    """

    def __init__(self) -> None:
        self.previous = array("i")
        self.next = array("i")
        self._sessions: dict[str, list[tuple[int, str, int]]] = defaultdict(list)

    def append(self, number: int, session: str, at: int, id: str) -> None:
        """Add a text. Its number must be the next one.

        Args:
            number: The number.
            session: The session; a text of the empty session has no neighbours.
            at: The instant.
            id: The id, which decides between equal instants.
        """
        self.previous.append(NONE)
        self.next.append(NONE)
        if not session:
            return
        entries, entry = self._sessions[session], (at, id, number)
        place = len(entries)
        if entries and entry < entries[-1]:
            place = bisect_left(entries, entry)
        entries.insert(place, entry)
        before = entries[place - 1][2] if place else NONE
        after = entries[place + 1][2] if place + 1 < len(entries) else NONE
        self._link(before, number)
        self._link(number, after)

    def remove(self, number: int, session: str, at: int, id: str) -> None:
        """Remove a text, as it was added."""
        if not session:
            return
        entries = self._sessions[session]
        del entries[bisect_left(entries, (at, id, number))]
        if not entries:
            del self._sessions[session]
        self._link(self.previous[number], self.next[number])
        self.previous[number] = self.next[number] = NONE

    def _link(self, before: int, after: int) -> None:
        if before != NONE:
            self.next[before] = after
        if after != NONE:
            self.previous[after] = before
