"""The forms of a rule file: what a person may write in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from slumberd.config.validation import Form, Name, TimeZone, shown, tag
from slumberd.errors import MemoryScopeError
from slumberd.model.cadence import EPISODES, MOST_EVERY, Duration, cadence_of, count_in
from slumberd.model.rule import FACTS, NO_EPISODE, ConsolidationRule, Kind, OnMissed
from slumberd.model.salience import TAU_SECONDS, USUAL_WEIGHTS, check_gate
from slumberd.model.scope import checked


def _one_cadence(schema: JsonDict) -> None:
    """Say in a schema what `CadenceForm._is_one_cadence` and `_is_something` say in Python."""
    properties: Any = schema["properties"]
    for key, value in properties.items():
        properties[key] = value["anyOf"][0]
    words = {"type": "string", "pattern": EPISODES}
    properties["every"] = {"anyOf": [properties["every"], words]}
    schema["oneOf"] = [
        {"required": ["every"], "properties": {"cron": False, "timezone": False}},
        {"required": ["cron"], "properties": {"every": False}},
    ]


class CadenceForm(Form):
    """When the rule fires: after so many new episodes, or at instants of a clock.

    Attributes:
        every: When so many new versions of episodes wait; 1 is at once. ``100 episodes`` is 100.
        cron: Five fields as in crontab(5), ``"30 3 * * 1-5"``, or a macro, ``"@daily"``; in quotes.
        timezone: An IANA name, as ``Europe/Berlin``, that the cron expression is read in; the
            configuration's when it is left out.
    """

    model_config = ConfigDict(json_schema_extra=_one_cadence)

    every: int | None = Field(default=None, ge=1, le=MOST_EVERY)
    cron: str | None = Field(default=None, pattern=r"\S")
    timezone: TimeZone | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_written_so(cls, value: object) -> object:
        if not isinstance(value, dict) and not _lacks_a_space(value):
            raise ValueError(
                f'{{every: 100}} or {{cron: "0 3 * * *"}} is needed, not {shown(value)}'
            )
        return value

    @field_validator("every", "cron", "timezone", mode="before")
    @classmethod
    def _is_something(cls, value: object) -> object:
        if value is None:
            raise ValueError("a value is needed here; without one, leave out the key")
        return value

    @field_validator("every", mode="before")
    @classmethod
    def _counts_episodes(cls, value: object) -> object:
        return count_in(value)

    @model_validator(mode="after")
    def _is_one_cadence(self) -> Self:
        cadence_of(self.model_dump(exclude_unset=True))
        return self


def _lacks_a_space(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("every:", "cron:"))


def _without_repeats(channels: list[str]) -> list[str]:
    if repeated := [name for n, name in enumerate(channels) if name in channels[:n]]:
        raise ValueError(f"channel {repeated[0]!r} is given twice; once is enough")
    return channels


class LimitsForm(Form):
    """What one batch of the rule may take out before it is held, instead of the general limits.

    Attributes:
        max_deletes: Facts that go without another in their place.
        max_delete_fraction: By this part of all facts, 0 to 1, there may be fewer; what comes
            counts against what goes. Looked at above 100 facts.
    """

    max_deletes: int | None = Field(default=None, ge=0)
    max_delete_fraction: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class SimilarityForm(Form):
    """Link new facts of the rule with near current facts; needs the extra ``vectors``.

    Facts of the same user, agent, channel and subject are compared. A new fact lists the ids of
    near facts under ``possible_duplicate``. No fact is replaced or removed.

    Attributes:
        min: Two texts are near from this cosine on, 0 to 1.
    """

    min: float = Field(default=0.85, ge=0, le=1, allow_inf_nan=False)


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WeightsForm(Form):
    """What an episode's worth is made of; each weight is 0 or more.

    Attributes:
        recency: How long ago it was said or last read.
        relevance: How near it is to the text of ``about``; needs the extra ``vectors``.
        importance: ``importance`` of its metadata, 0 to 1.
    """

    recency: Weight = USUAL_WEIGHTS["recency"]
    relevance: Weight = USUAL_WEIGHTS["relevance"]
    importance: Weight = USUAL_WEIGHTS["importance"]


def _about_what(schema: JsonDict) -> None:
    """Say in a schema what `check_gate` says in Python of ``about``."""
    weighs: JsonDict = {
        "required": ["relevance"],
        "properties": {"relevance": {"not": {"maximum": 0}}},
    }
    schema["if"] = {"required": ["weights"], "properties": {"weights": weighs}}
    schema["then"] = {"required": ["about"], "properties": {"about": {"pattern": r"\S"}}}
    schema["else"] = {"properties": {"about": {"not": {"pattern": r"\S"}}}}


class SalienceForm(Form):
    """What an episode must be worth before the rule takes it in.

    Attributes:
        min: The least salience that passes. 0.019 is that of an episode just said, 0.15 of one
            that was read nine times and just now; no episode reaches 0.198 with these weights.
        tau: After so long without being read recency is worth 1/e, as ``24h``.
        weights: Of recency, relevance and importance.
        about: A text that relevance is measured against, as ``what ada eats and drinks``.
    """

    model_config = ConfigDict(json_schema_extra=_about_what)

    min: float = Field(gt=0, le=1, allow_inf_nan=False)
    tau: Duration = TAU_SECONDS
    weights: WeightsForm = WeightsForm()
    about: str = ""

    @model_validator(mode="after")
    def _can_be_passed(self) -> Self:
        check_gate(self.min, self.weights.model_dump(), self.about)
        return self


_OF_CRON = frozenset({"on_missed", "catchup_window"})


class RuleForm(Form):
    """One rule: which episodes become facts, where, and how often.

    Attributes:
        id: 1 to 64 of a-z, 0-9, '.', '_', ':' and '-'; unique over all files. Every fact names it.
        cadence: When it fires: ``{every: 100}`` or ``{cron: "0 3 * * *"}``.
        when_filter: Which episodes: a SQL condition on the columns id scope_key user session agent
            content source_node timestamp metadata intent subject predicate object confidence;
            ``""`` takes all.
        then_emits: The channels that the facts go to; in ``facts`` a fact has its episode's id.
        enabled: Whether the daemon fires it.
        start: ``beginning`` reads the episodes that were there before the rule; ``now`` does not.
        limits: What one batch may take out before it is held, instead of the general limits.
        on_missed: Of cron instants that passed while no daemon ran: ``run_once`` fires once for all
            of them, ``skip`` leaves their episodes to the next instant.
        catchup_window: How long ago the newest of them may be to fire for it, as ``24h``.
        timeout: How long a firing may take, as ``10m``; then it is stopped, its batch
            is taken back, and it counts as failed.
        similarity: Links its new facts with near current facts, as ``{min: 0.85}``. Off by default.
        salience: What an episode must be worth before the rule takes it in; what falls short is
            looked at again when somebody reads it.
        kind: ``episodes``, or ``graph`` for a rule that promotes a graph's triples.
        description: What the rule is for, in words; nothing depends on it.
    """

    id: Name
    cadence: CadenceForm
    when_filter: str
    then_emits: Annotated[
        list[Name],
        Field(min_length=1, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_without_repeats),
    ]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: LimitsForm = LimitsForm()
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    similarity: SimilarityForm | None = None
    salience: SalienceForm | None = None
    kind: Annotated[Kind, Field(json_schema_extra={"enum": ["episodes"]})] = "episodes"
    description: str = ""

    @model_validator(mode="after")
    def _misses_instants(self) -> Self:
        if self.cadence.cron is None and (given := self.model_fields_set & _OF_CRON):
            raise ValueError(f"{min(given)!r} goes with 'cron'; episodes are never missed")
        return self

    def rule(self) -> ConsolidationRule:
        """Return the rule that is meant."""
        return ConsolidationRule.model_validate(self.model_dump(exclude_unset=True))


def _one_channel(channels: list[str]) -> list[str]:
    if len(channels) != 1:
        raise ValueError(f"exactly one channel is needed, not {len(channels)}")
    return channels


def _something(text: str) -> str:
    try:
        return checked(text, axis="it", scope=(), operation="promote")
    except MemoryScopeError as error:
        raise ValueError(error.violation) from None


_SCOPE_PART = r"^[^\u0000-\u001f\u007f-\u009f]+$"


Part = Annotated[str, AfterValidator(_something), Field(json_schema_extra={"pattern": _SCOPE_PART})]


_BY_CLOCK: JsonDict = {"oneOf": [{"required": ["cron"], "properties": {"every": False}}]}
"""Says in a schema what `GraphRuleForm._fires_by_clock` says in Python."""


class GraphRuleForm(Form):
    """One rule that promotes what a graph says: which triples become facts, whose, and how often.

    Attributes:
        id: 1 to 64 of a-z, 0-9, '.', '_', ':' and '-'; unique over all files. Every fact names it.
        kind: ``graph``.
        cadence: When it fires: ``{cron: "0 3 * * *"}``; new episodes are nothing to it.
        filter_cypher: Which triples: portable Cypher that returns subject, predicate and object,
            and may return confidence and triple_id.
        user: Whose the facts are.
        agent: Which agent's they are.
        then_emits: The one channel that they go to.
        enabled: Whether the daemon fires it.
        on_missed: Of cron instants that passed while no daemon ran: ``run_once`` fires once for all
            of them, ``skip`` waits for the next instant.
        catchup_window: How long ago the newest of them may be to fire for it, as ``24h``.
        timeout: How long a firing may take, as ``10m``; then it is stopped, nothing is promoted,
            and it counts as failed.
        description: What the rule is for, in words; nothing depends on it.
    """

    id: Name
    kind: Literal["graph"]
    cadence: Annotated[CadenceForm, Field(json_schema_extra=_BY_CLOCK)]
    filter_cypher: str = Field(min_length=1)
    user: Part
    agent: Part
    then_emits: Annotated[
        list[Name],
        Field(default_factory=lambda: [FACTS], json_schema_extra={"minItems": 1, "maxItems": 1}),
        AfterValidator(_one_channel),
    ]
    enabled: bool = True
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    description: str = ""

    @field_validator("cadence")
    @classmethod
    def _fires_by_clock(cls, cadence: CadenceForm) -> CadenceForm:
        if cadence.cron is None:
            raise ValueError(
                "a graph's rule fires by the clock, for it reads no episodes: write"
                ' {cron: "0 3 * * *"}'
            )
        return cadence

    def rule(self) -> ConsolidationRule:
        """Return the rule that is meant."""
        told = self.model_dump(exclude_unset=True)
        named = {"when_filter": NO_EPISODE, "then_emits": [FACTS]}
        return ConsolidationRule.model_validate(named | told)


def _kind_of(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return tag("graph" if kind == "graph" else "episodes")


AnyRuleForm = Annotated[
    Annotated[RuleForm, Tag(tag("episodes"))] | Annotated[GraphRuleForm, Tag(tag("graph"))],
    Discriminator(_kind_of),
]
"""A rule of either kind; one that does not say its kind is of episodes."""


class ChannelForm(Form):
    """What is so of one channel, whatever rule writes to it.

    Attributes:
        multi_valued: The predicates that may hold several objects at once; several files add up.
    """

    multi_valued: Annotated[
        list[Annotated[str, Field(min_length=1)]], Field(json_schema_extra={"uniqueItems": True})
    ]


class RuleFile(Form):
    """A file of consolidation rules for slumberd.

    Attributes:
        rules: The rules; ``[]`` for none.
        channels: What is so of channels, by their names.
    """

    rules: list[AnyRuleForm]
    channels: dict[Name, ChannelForm] = Field(default_factory=dict)
