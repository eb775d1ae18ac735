"""What an extractor reads and returns: turns of a conversation, and triples found in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from slumberd.model.episode import EpisodeVersion

MAX_EXTRACTED = 50
"""An extractor returns at most this many triples of one turn."""

Intent = Literal["add", "delete"]
"""Whether a turn states a triple or takes it back."""


class Turn(NamedTuple):
    """What one speaker said at one time.

    Attributes:
        id: The id of the episode.
        session: The session of the episode.
        speaker: The name of the speaker, as the episode's ``source_node``.
        content: The text.
        at: Microseconds since 1970, UTC.
        user: The user of the episode.
        agent: The agent of the episode.
    """

    id: str
    session: str
    speaker: str
    content: str
    at: int
    user: str = ""
    agent: str = ""


def turn_of(version: EpisodeVersion) -> Turn:
    """Return what an extractor reads of a version of an episode."""
    return Turn(
        version.id, version.session, version.source_node, version.content, version.at,
        version.user, version.agent,
    )  # fmt: skip


class Extracted(NamedTuple):
    """One triple that a turn states or takes back.

    Attributes:
        subject: What the triple is about.
        predicate: The property or relation.
        object: The value, any JSON.
        intent: ``add`` or ``delete``.
        span: Where the text stands in the turn's content: start and end, in characters.
        by: The id of the pattern that found it, or ``heuristic``. When a function of a rule leaves
            it empty, it becomes the name of the function.
        confidence: 0 to 1.
    """

    subject: str
    predicate: str
    object: Any
    intent: Intent
    span: tuple[int, int]
    by: str = ""
    confidence: float = 1.0


class Failed(NamedTuple):
    """What an extractor returns for a turn that it cannot read.

    Attributes:
        reason: Why, for a person.
    """

    reason: str


class Extractor(Protocol):
    """Finds triples in turns.

    The triples of a turn depend only on the turn and on its entry in `before`. So the result is the
    same for every division of the turns into calls.
    """

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> Sequence[Sequence[Extracted] | Failed]:
        """Return the triples of each turn, in the order of `turns`. No text raises.

        For a turn that the extractor cannot read, return why. It has no effect on other turns.

        The triples of one turn are in the order of its text. No triple of a turn occurs twice with
        the same intent. After `MAX_EXTRACTED` triples the rest of the turn is left out.

        Args:
            turns: The turns, in any order.
            before: For each turn the last earlier turn of another speaker in the same session, as
                `previous_turns` finds it; None when there is none.

        Raises:
            ValueError: The two sequences differ in length.
        """
        ...


@dataclass(frozen=True, slots=True)
class Extraction:
    """How a rule finds triples in the text of episodes that state none themselves.

    Attributes:
        name: The method, as rule files name it: ``patterns``, ``heuristic``, or a function such as
            ``python:package.module:function``.
        digest: Changes with everything that the triples depend on, besides the text.
        extractor: Finds the triples.
        reads_previous: Whether the extractor needs the turns before.
    """

    name: str
    digest: str
    extractor: Extractor = field(compare=False, repr=False)
    reads_previous: bool = False
