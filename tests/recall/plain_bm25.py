"""Rank episodes by plain BM25, as the baseline of every measurement.

It knows the content only: no stop words, no stems, no neighbours, no metadata. Each user has its
own statistics.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from slumberd.model.episode import Episode
from slumberd.search.context import EstimatedTokens
from tests.recall.engine import Ledger, Line, Named, Prompt
from tests.recall.figures import BASELINE

K1 = 1.2
B = 0.75

_CONTEXT = 10
"""So many texts make the context of the baseline."""

_TOKENS = EstimatedTokens()

_WORD = re.compile(r"\w+")


class UserIndex:
    """The words of one user's texts, in the order of their arrival."""

    def __init__(self) -> None:
        self.lengths: dict[str, int] = {}
        self._postings: dict[str, dict[str, int]] = defaultdict(dict)

    def put(self, id: str, text: str) -> None:
        """Add a text; the same id twice replaces the first text."""
        if id in self.lengths:
            self.drop(id)
        words = words_of(text)
        self.lengths[id] = len(words)
        for word, count in Counter(words).items():
            self._postings[word][id] = count

    def drop(self, id: str) -> None:
        """Remove a text, if it is here."""
        if self.lengths.pop(id, None) is not None:
            for places in self._postings.values():
                places.pop(id, None)

    def search(self, query: str, limit: int) -> list[str]:
        """Return the ids of the best texts, best first; equal scores keep the order of arrival."""
        if not self.lengths:
            return []
        scores: dict[str, float] = defaultdict(float)
        mean = sum(self.lengths.values()) / len(self.lengths)
        for word in dict.fromkeys(words_of(query)):
            places = self._postings.get(word, {})
            rarity = math.log(1 + (len(self.lengths) - len(places) + 0.5) / (len(places) + 0.5))
            for id, count in places.items():
                norm = K1 * (1 - B + B * self.lengths[id] / mean)
                scores[id] += rarity * count * (K1 + 1) / (count + norm)
        return sorted(scores, key=lambda id: -scores[id])[:limit]


class PlainBM25:
    """The baseline engine: one index a user."""

    name = BASELINE

    def __init__(self) -> None:
        self._users: dict[str, UserIndex] = defaultdict(UserIndex)
        self._names: dict[tuple[str, str], UserIndex] = defaultdict(UserIndex)
        self._texts: dict[str, str] = {}

    async def put(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            self._users[episode.user].put(episode.id, episode.content)
            self._texts[episode.id] = episode.content

    async def forget(self, user: str, session: str) -> None:
        """Keep everything: the baseline cannot erase."""

    async def search(self, user: str, query: str, limit: int) -> list[str]:
        return self._users[user].search(query, limit)

    async def declare(self, named: Sequence[Named]) -> None:
        for one in named:
            self._names[one.user, one.scope].put(one.id, " ".join(one.names))

    async def search_names(self, user: str, scope: str, query: str) -> list[str]:
        index = self._names[user, scope]
        return index.search(query, len(index.lengths))

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        """Return the plain top ten; the budget, in tokens, does not matter."""
        ids = self._users[user].search(question, _CONTEXT)
        return Prompt("\n".join(self._texts[id] for id in ids), ids)

    async def ranked(self, user: str, question: str, limit: int) -> list[Line]:
        found = self._users[user].search(question, limit)
        return [Line(id, _TOKENS.count_tokens(self._texts[id])) for id in found]

    async def ledger(self, user: str) -> Ledger | None:
        """Return nothing: the baseline has no ledger."""
        return None


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.lower())
