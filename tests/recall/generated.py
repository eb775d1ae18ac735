"""Generate texts whose words are as unevenly frequent as those of a language."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random

from slumberd.model.episode import Episode

SEED = 21

_VOCABULARY = 20_000
_EXPONENT = 1.05
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
_START = datetime(2025, 1, 1, tzinfo=UTC)
_TURN = timedelta(minutes=7)
_TURNS_OF_A_SESSION = 40
_FUNCTION_WORDS = (
    "the and to of a in i it is that you for was on with my we be have this not but they at are as "
    "so what me he she had about can just do from or by an if all were would your there been when "
    "how did has more out up them who her him their our will some which"
)
"""The most frequent words, as in English: an index may leave them out, as it does there."""

_SPEAKERS = ("Ann", "Ben")
_RARE = 4
_FREQUENT = 4


class Generator:
    """Draws words by Zipf's law; the same seed gives the same texts."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = Random(seed)
        known = _FUNCTION_WORDS.split()
        self._words = [*known, *map(_word, range(_VOCABULARY - len(known)))]
        weights = (1 / (rank + 1) ** _EXPONENT for rank in range(_VOCABULARY))
        self._sums = list(accumulate(weights))

    def episodes(self, user: str, count: int) -> Iterator[Episode]:
        """Yield episodes of one user: turns of two speakers, 40 in a session."""
        for number in range(count):
            yield Episode(
                id=f"{user}:{number}",
                content=" ".join(self._draw(self._random.randint(8, 40))),
                timestamp=_START + number * _TURN,
                source_node="turn",
                agent="assistant",
                user=user,
                session=f"session-{number // _TURNS_OF_A_SESSION}",
                metadata={"speaker": _SPEAKERS[number % len(_SPEAKERS)]},
            )

    def question(self, text: str) -> str:
        """Return a question of eight words: four of a text, and four frequent ones."""
        words = text.split()
        chosen = self._random.sample(words, min(_RARE, len(words)))
        return " ".join([*self._draw(_FREQUENT), *chosen])

    def _draw(self, count: int) -> list[str]:
        whole = self._sums[-1]
        return [
            self._words[bisect(self._sums, self._random.random() * whole)] for _ in range(count)
        ]


def _word(number: int) -> str:
    """Return a word of two or three syllables; no two numbers have the same one."""
    first, rest = number % len(_SYLLABLES), number // len(_SYLLABLES)
    second, third = rest % len(_SYLLABLES), rest // len(_SYLLABLES)
    parts = [first, second] + ([third] if third else [])
    return "".join(_SYLLABLES[part] for part in parts)
