"""The stages of a rule that mark episodes, and the marks that they make.

A mark is a fact of the channel ``marks``. It says that an episode repeats another one, is archived,
or is part of a summary. A weight is a fact of the channel ``weights``. It says how much an old
episode counts. Neither deletes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from slumberd.model.duration import Duration

MARKS = "marks"
"""The channel of marks."""

WEIGHTS = "weights"
"""The channel of weights."""

MARK_IDS = (f"@{MARKS}/", f"@{WEIGHTS}/")
"""The prefixes of the fact ids of marks and weights, in order. Most searches leave them out."""

SUMMARIES = "summaries"
"""The channel of summaries."""

SUMMARISES = "summarises"
"""The key of a summary's payload that lists its episodes, oldest first."""

REWEIGHTED = "reweighted"
"""The predicate of a weight."""

STAGE_CHANNELS = frozenset({MARKS, SUMMARIES, WEIGHTS})
"""The channels that only stages write to."""

Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Stage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Dedup(_Stage):
    """Marks the episodes of a user and agent that say the same as a kept episode.

    Attributes:
        method: How texts are compared: by ``exact`` text, by their sets of words (``jaccard``),
            by their words and characters (``fuzzy``), or by the ``vectors`` of their words.
        similarity: The least similarity of duplicates, above 0, at most 1.
        keep: Whether the newest or the oldest of several is kept.
    """

    kind: Literal["dedup"] = "dedup"
    method: Literal["exact", "jaccard", "fuzzy", "vectors"] = "jaccard"
    similarity: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    keep: Literal["newest", "oldest"] = "newest"


class Decay(_Stage):
    """Archives the episodes that are old, or gives them a lower weight.

    Attributes:
        action: Whether old episodes are archived, or count for less and less.
        half_life: The age in seconds at which the recency of an episode is a half.
        threshold: The recency below which an episode is archived, 0 to 1; or from which on its
            weight falls no more.
        protect_importance: An episode of at least this importance is left alone, 0 to 1.
    """

    kind: Literal["decay"] = "decay"
    action: Literal["archive", "reweight"] = "archive"
    half_life: Duration = 86_400.0
    threshold: Fraction = 0.05
    protect_importance: Fraction = 0.8


class Importance(_Stage):
    """Archives the episodes that are unimportant.

    Attributes:
        below: The importance below which an episode is archived, 0 to 1.
    """

    kind: Literal["importance"] = "importance"
    below: Fraction = 0.1


class Summarise(_Stage):
    """Summarises the older episodes of long sessions.

    Attributes:
        group_by: What is summarised together: the episodes of a ``session``.
        when_more_than: A session of at most so many episodes is not summarised; 1 or more.
        max_tokens: At most so many tokens are in one summary; 1 or more.
    """

    kind: Literal["summarise"] = "summarise"
    group_by: Literal["session"] = "session"
    when_more_than: int = Field(default=100, ge=1)
    max_tokens: int = Field(default=200, ge=1)


Stage = Annotated[Dedup | Decay | Importance | Summarise, Field(discriminator="kind")]

MarkKind = Literal["duplicate_of", "archived", "summarised_into"]
"""What a mark says of its episode; the predicate of the fact."""


class Mark(NamedTuple):
    """What a stage says of one episode.

    Attributes:
        id: The episode.
        kind: What is said.
        object: The kept episode, the reason (``decayed`` or ``unimportant``), or the summary's id.
        digest: Of the episode's content when it was marked, and of the kept episode's content.
        confidence: Of duplicates, the similarity; else 1.
    """

    id: str
    kind: MarkKind
    object: str
    digest: str
    confidence: float = 1.0


class Weight(NamedTuple):
    """How much an episode counts, because it is old.

    Attributes:
        id: The episode.
        factor: A power of a half, above 0, below 1; its importance counts for this part.
        digest: Of the episode's content when it was weighted.
    """

    id: str
    factor: float
    digest: str


class KnownWeight(NamedTuple):
    """A weight that is in force.

    Attributes:
        own: Whether the rule made it that asks.
    """

    weight: Weight
    own: bool


class KnownMark(NamedTuple):
    """A mark that is in force.

    Attributes:
        own: Whether the rule made it that asks.
    """

    mark: Mark
    own: bool


class ComparedText(NamedTuple):
    """What is kept of a text that is compared with each text of its owner.

    Attributes:
        assertion: Texts with different numbers here are never duplicates.
        text: The text, where its characters are compared; else empty.
        vector: Its vector, two bytes a number, where vectors are compared; else empty.
    """

    assertion: int
    text: str = ""
    vector: bytes = b""


class StagedEntry(NamedTuple):
    """What is kept of an episode until a stage must look at it again.

    Attributes:
        id: The episode.
        due: The first instant at which time alone can change what the stages say of it, in
            microseconds since 1970 UTC; `ALWAYS_DUE` when the next firing must look at it; None
            when time changes nothing.
        kept: The episode that its mark names: that which it repeats, or that with the id of its
            summary. Empty when there is none.
        traces: Two episodes that may depend on each other have a number in common, unless they do
            because of their compared texts. With a mark, an episode only leads to what it names.
        archived_at: When this rule marked it as archived or as a duplicate, in microseconds since
            1970 UTC; None when it did not.
        compared: What is compared with all other texts; None when nothing is, as with a mark.
    """

    id: str
    due: int | None = None
    kept: str = ""
    traces: tuple[int, ...] = ()
    archived_at: int | None = None
    compared: ComparedText | None = None


ALWAYS_DUE = -(2**63)
"""In place of an instant: the next firing looks at the episode."""


class KnownMarks(NamedTuple):
    """The marks, summaries and weights in force of one user and agent, as one rule sees them.

    Attributes:
        marks: By episode.
        summaries: The rule's own summaries: the episodes of each, by its fact id.
        weights: By episode.
        anew: Whether the rule decides about its own marks again.
        unmarkable: The episodes whose mark a person has ended: no stage marks them again.
        unweightable: The episodes whose weight a person has ended.
        unsummarisable: The fact ids of the summaries that a person has ended.
        stages_entries: Whether the batch has a `StagedEntry` of each episode.
    """

    marks: Mapping[str, KnownMark] = {}
    summaries: Mapping[str, tuple[str, ...]] = {}
    weights: Mapping[str, KnownWeight] = {}
    anew: bool = False
    unmarkable: Collection[str] = ()
    unweightable: Collection[str] = ()
    unsummarisable: Collection[str] = ()
    stages_entries: bool = False
