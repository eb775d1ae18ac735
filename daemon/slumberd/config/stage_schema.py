"""The schema of the stages of a rule: their keys, types and bounds."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, field_validator, model_validator
from pydantic.config import JsonDict

from slumberd.config.validation import Form
from slumberd.model.cadence import Duration
from slumberd.model.stages import Fraction, Stage


def _add_extract_schema(schema: JsonDict) -> None:
    """Express the check `_check_patterns` of `ExtractForm` in JSON Schema."""
    schema["oneOf"] = [
        {
            "properties": {"with": {"const": "patterns"}, "speakers": False},
            "required": ["patterns"],
        },
        {"properties": {"with": {"const": "heuristic"}, "patterns": False}},
    ]


class ExtractForm(Form):
    """How the rule finds triples in the text of episodes that state none themselves.

    Attributes:
        with: ``patterns`` for the patterns of a file, which need the extra ``regex``;
            ``heuristic`` for plain English sentences such as ``Bob is a chef``.
        patterns: The pattern file. A relative path begins at the directory of the rule file.
        speakers: The names of speakers, by ``source_node``. ``{user}`` and ``{agent}`` mean the
            user and the agent of the episode. Only for ``heuristic``: a pattern file has its own.
    """

    model_config = ConfigDict(json_schema_extra=_add_extract_schema)

    method: Literal["patterns", "heuristic"] = Field(alias="with")
    patterns: str | None = Field(default=None, min_length=1)
    speakers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        if self.method == "patterns" and self.patterns is None:
            raise ValueError("'patterns' is needed: the path of the pattern file")
        if self.method == "heuristic" and self.patterns is not None:
            raise ValueError("'patterns' goes with {with: patterns}; leave one of them out")
        if self.method == "patterns" and self.speakers:
            raise ValueError("'speakers' goes with {with: heuristic}; the pattern file has its own")
        return self


class DedupForm(Form):
    """How the rule finds episodes that say the same as a kept episode of the same user and agent.

    Two episodes are never duplicates when they state different triples, or when their numbers or
    negations differ.

    Attributes:
        method: ``exact`` compares whole texts, without case and white space; ``jaccard`` (default)
            compares sets of words; ``fuzzy`` compares words and characters, and needs the extra
            ``fuzzy``; ``vectors`` compares what words mean, and needs the extra ``vectors``.
        similarity: The least similarity of duplicates, more than 0, at most 1; of vectors, the
            cosine. Default: 0.85.
        keep: Whether the ``newest`` (default) or the ``oldest`` of several episodes is kept.
    """

    method: Literal["exact", "jaccard", "fuzzy", "vectors"] = "jaccard"
    similarity: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    keep: Literal["newest", "oldest"] = "newest"


class DecayForm(Form):
    """Which episodes are archived because they are old, or count for less.

    Attributes:
        action: ``archive`` (default) marks old episodes as archived. ``reweight`` halves the weight
            of an episode with each half-life of its age, and hides it from nothing. The weight is a
            fact of the channel ``weights``.
        half_life: The age at which the recency of an episode has fallen from 1 to a half. Seconds,
            or a number with s, m, h or d; more than 0, at most 366 days. Default: ``24h``.
        threshold: The recency below which an episode is archived, 0 to 1. Default: 0.05, which an
            episode reaches after 4.3 half-lives. With ``reweight``, a weight at or below this falls
            no more; by default the last one is 0.03125.
        protect_importance: An episode whose key ``importance`` (0 to 1, default 0.5) of the
            metadata is at least this is never archived, and has no weight. Default: 0.8.
    """

    action: Literal["archive", "reweight"] = "archive"
    half_life: Duration = 86_400.0
    threshold: Fraction = 0.05
    protect_importance: Fraction = 0.8


class ImportanceForm(Form):
    """Which episodes are archived because they are unimportant.

    Attributes:
        below: An episode whose key ``importance`` (0 to 1, default 0.5) of the metadata is below
            this is archived. Default: 0.1.
    """

    below: Fraction = 0.1


class SummariseForm(Form):
    """Which episodes are summarised together, and how long a summary is.

    A summary consists of sentences of its episodes. The newest 20 episodes of a session are not
    summarised.

    Attributes:
        group_by: ``session``: only episodes of one session are summarised together.
        when_more_than: A session is summarised when it has more episodes than this, 1 or more.
            Default: 100.
        max_tokens: The most tokens of one summary, 1 or more; four characters count as one token.
            Default: 200.
    """

    group_by: Literal["session"] = "session"
    when_more_than: int = Field(default=100, ge=1)
    max_tokens: int = Field(default=200, ge=1)


def _add_stage_schema(schema: JsonDict) -> None:
    """Express the check `_check_single` of `StageForm` in JSON Schema."""
    properties: Any = schema["properties"]
    for name, value in properties.items():
        properties[name] = value["anyOf"][0]
    schema["oneOf"] = [{"required": [name]} for name in properties]


class StageForm(Form):
    """One stage of the rule: exactly one of these keys.

    ``extract`` prepares episodes before the rule promotes them. The other stages run afterwards, on
    all episodes that the rule selects. They mark episodes, and delete nothing.

    Attributes:
        extract: Finds triples in the text of episodes that state none themselves. It comes first.
        dedup: Marks the episodes that say the same as another one.
        decay: Marks old episodes as archived, or gives them a weight.
        importance: Marks unimportant episodes as archived.
        summarise: Summarises the older episodes of long sessions, and marks them.
    """

    model_config = ConfigDict(json_schema_extra=_add_stage_schema)

    extract: ExtractForm | None = None
    dedup: DedupForm | None = None
    decay: DecayForm | None = None
    importance: ImportanceForm | None = None
    summarise: SummariseForm | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("settings are needed here; write {} for the defaults")
        return value

    @model_validator(mode="after")
    def _check_single(self) -> Self:
        if len(self.model_fields_set) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"exactly one of these keys is needed: {names}")
        return self

    @property
    def name(self) -> str:
        """The name of the stage."""
        [name] = self.model_fields_set
        return name

    def stage(self) -> Stage:
        """Return the stage that the form describes; it must not be ``extract``."""
        settings = getattr(self, self.name).model_dump()
        return _STAGE.validate_python({"kind": self.name, **settings})


_STAGE: TypeAdapter[Stage] = TypeAdapter(Stage)


def check_stages(stages: list[StageForm]) -> list[StageForm]:
    """Return the stages of a rule.

    Raises:
        ValueError: A stage is given twice, or 'extract' is not the first.
    """
    names = [stage.name for stage in stages]
    if repeated := [name for n, name in enumerate(names) if name in names[:n]]:
        raise ValueError(f"stage {repeated[0]!r} is given twice; leave one of them out")
    if "extract" in names[1:]:
        raise ValueError("'extract' is the first stage: the others run after the promotion")
    return stages
