"""Apply the section ``capture`` of the configuration to what becomes an episode.

Also find the words by which a person asks not to remember what was said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from slumberd.model.capture.secrets import mask_json
from slumberd.model.episode import PERSON, Episode, speaker_of
from slumberd.model.errors import SecretRefusedError

Request = Literal["this", "that"]
"""What is to be forgotten: this turn, or also the turn before."""

FORGET_THIS = ("don't remember this", "do not remember this")
FORGET_THAT = (
    "forget that",
    "forget what I just said",
    "forget what I said",
    "don't remember that",
    "do not remember that",
)

_BEFORE = 60
_CURLY = "\u2019"
_WORD = re.compile(r"[\w']+|[^\w\s']|\n")

_NO_REQUEST = frozenset({
    "always", "cannot", "did", "do", "easily", "he", "i", "it", "may", "might", "must", "never",
    "not", "often", "people", "she", "should", "sometimes", "they", "tend", "to", "users",
    "usually", "we", "who", "will", "would",
})  # fmt: skip
"""After these words, the words to forget report or deny something, and ask for nothing."""

_ENDINGS = ("n't", "dont", "didnt", "wont", "cant", "'d", "'ll", "'ve")
_ASKING = frozenset({"can", "could", "sure", "will", "would"})


class ForgetWords:
    """The words by which a person asks to forget a turn.

    Args:
        this: The words for the turn in which they stand.
        that: The words for that turn and the one before it.
    """

    def __init__(
        self, this: Sequence[str] = FORGET_THIS, that: Sequence[str] = FORGET_THAT
    ) -> None:
        self._this, self._that = _pattern(this), _pattern(that)

    def request_in(self, text: str) -> Request | None:
        """Return what a person asks to forget by a text; None when they ask for nothing."""
        if _asks(self._that, text):
            return "that"
        return "this" if _asks(self._this, text) else None


def _pattern(phrases: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern for phrases, whatever their case, spaces and apostrophes."""
    if not phrases:
        return None
    each = (
        r"\s{1,5}".join(
            re.escape(word).replace("'", f"['{_CURLY}]?")
            for word in phrase.replace(_CURLY, "'").split()
        )
        for phrase in phrases
    )
    return re.compile(rf"(?<!\w)(?:{'|'.join(each)})(?!\w)", re.IGNORECASE)


def _asks(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is not None and any(
        _is_request(text[max(0, match.start() - _BEFORE) : match.start()])
        for match in pattern.finditer(text)
    )


def _is_request(before: str) -> bool:
    """Return whether the words after a text ask for something, by the last words of the text."""
    words = ["", "", *_WORD.findall(before.lower().replace(_CURLY, "'"))]
    second, last = str(words[-2]), str(words[-1])
    if last == "you":
        return second in _ASKING
    if last == "to":
        return second == "you"
    return last not in _NO_REQUEST and not last.endswith(_ENDINGS)


SecretMode = Literal["mask", "keep", "refuse"]
"""What becomes of secrets: they are masked, or kept, or what holds them is refused."""


class SecretFilter:
    """Masks, keeps or refuses the secrets of values, and counts those that it masked.

    Args:
        mode: What becomes of secrets.
    """

    def __init__(self, mode: SecretMode) -> None:
        self._mode = mode
        self.kinds: Counter[str] = Counter()

    def __call__(self, value: Any) -> Any:  # noqa: ANN401 # any JSON
        """Return a value of JSON with the secrets of all its texts masked.

        Raises:
            SecretRefusedError: It holds secrets, and they are refused.
        """
        if self._mode == "keep":
            return value
        masked = mask_json(value)
        if masked.kinds and self._mode == "refuse":
            raise SecretRefusedError(masked.kinds)
        self.kinds.update(masked.kinds)
        return masked.value

    def episode(self, episode: Episode) -> Episode:
        """Return an episode with the secrets of its text and its metadata masked.

        Raises:
            SecretRefusedError: It holds secrets, and they are refused.
        """
        content, metadata = self([episode.content, episode.metadata])
        if (content, metadata) == (episode.content, episode.metadata):
            return episode
        return episode.model_copy(update={"content": content, "metadata": metadata})


def describe_kinds(kinds: Mapping[str, int]) -> str:
    """Return how many secrets of each kind there are, for people."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


class Captured(NamedTuple):
    """What may be stored of a new episode.

    Attributes:
        episode: The episode, without its secrets if they are masked.
        masked: How many secrets of each kind were masked.
        forget: What the person asks to forget by it; None for nothing.
    """

    episode: Episode
    masked: Counter[str]
    forget: Request | None


class Capture:
    """What the configuration says of new episodes.

    Args:
        secrets: What becomes of secrets.
        words: The words by which a person asks to forget a turn.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self,
        secrets: SecretMode = "mask",
        words: ForgetWords | None = None,
        person: Collection[str] = PERSON,
    ) -> None:
        self._secrets: SecretMode = secrets
        self._words = words or ForgetWords()
        self._person = frozenset(person)

    def secret_filter(self) -> SecretFilter:
        """Return a filter that has counted nothing yet."""
        return SecretFilter(self._secrets)

    def capture(self, episode: Episode) -> Captured:
        """Return what may be stored of a new episode.

        Raises:
            SecretRefusedError: It holds secrets, and they are refused.
        """
        secrets = self.secret_filter()
        found = secrets.episode(episode)
        return Captured(found, secrets.kinds, self.request_in(found))

    def request_in(self, episode: Episode) -> Request | None:
        """Return what a person asks to forget by an episode; None for all that others say."""
        if speaker_of(episode.source_node, episode.metadata) not in self._person:
            return None
        return self._words.request_in(episode.content)

    def without_forgotten(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Return episodes, in the order of a conversation, without the turns to be forgotten.

        With a turn that asks for it go the answers to it, and what it names of the turns before.
        """
        kept: list[Episode] = []
        turn: list[Episode] = []
        asked: Request | None = None
        for episode in episodes:
            if speaker_of(episode.source_node, episode.metadata) in self._person:
                kept += turn
                turn, asked = [], self.request_in(episode)
                if asked == "that":
                    kept = _without_last_turn(kept, self._person)
            if asked is None:
                turn.append(episode)
        return kept + turn


def _without_last_turn(episodes: list[Episode], person: Collection[str]) -> list[Episode]:
    for number in reversed(range(len(episodes))):
        if speaker_of(episodes[number].source_node, episodes[number].metadata) in person:
            return episodes[:number]
    return []
