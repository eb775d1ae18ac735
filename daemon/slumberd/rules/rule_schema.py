"""The schema of rule files: their keys, types and bounds."""

from __future__ import annotations

import re
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

from slumberd.model.duration import Duration
from slumberd.model.errors import MemoryScopeError
from slumberd.model.predicates import ManyBut, Several
from slumberd.model.rule import (
    CADENCE_KEYS,
    EPISODES,
    INTERVALS,
    MAX_EVERY,
    NO_EPISODE,
    ConsolidationRule,
    Kind,
    OnMissed,
    cadence_of,
    count_in,
)
from slumberd.model.salience import TAU_SECONDS, USUAL_WEIGHTS, check_gate
from slumberd.model.scope import FACTS, check_part
from slumberd.model.stages import STAGE_CHANNELS
from slumberd.rules.stage_schema import StageForm, check_stages
from slumberd.rules.validation import Form, Name, TimeZone, format_value, tag


def _add_cadence_schema(schema: JsonDict) -> None:
    """Express the checks `_check_cadence` and `_refuse_null` of `CadenceForm` in JSON Schema."""
    properties: Any = schema["properties"]
    for key, value in properties.items():
        properties[key] = value["anyOf"][0]
    words = {"type": "string", "pattern": EPISODES}
    properties["every"] = {"anyOf": [properties["every"], words]}
    schema["oneOf"] = [
        {
            "required": ["every"],
            "properties": {"cron": False, "interval": False, "timezone": False},
        },
        {"required": ["cron"], "properties": {"every": False, "interval": False}},
        {
            "required": ["interval"],
            "properties": {"every": False, "cron": False, "timezone": False},
        },
    ]


class CadenceForm(Form):
    """When the rule fires: after a number of new episodes, or at instants of a cron expression.

    Attributes:
        every: The rule fires when this many new episode versions are pending, 1 to 1000000000. With
            1 it fires at once. ``100 episodes`` means 100.
        cron: The rule fires at the instants of this expression: five fields as in crontab(5), such
            as ``"30 3 * * 1-5"``, or a macro such as ``"@daily"``. Write it in quotes.
        interval: The rule fires again and again after this time, counted from midnight UTC:
            ``1m`` to ``30m``, ``1h`` to ``12h`` or ``1d``. It divides an hour or a day evenly.
        timezone: The IANA time zone of the cron expression, such as ``Europe/Berlin``. Default:
            ``timezone`` of the configuration.
    """

    model_config = ConfigDict(json_schema_extra=_add_cadence_schema)

    every: int | None = Field(default=None, ge=1, le=MAX_EVERY)
    cron: str | None = Field(default=None, pattern=r"\S")
    interval: str | None = Field(default=None, json_schema_extra={"enum": [*INTERVALS]})
    timezone: TimeZone | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_mapping(cls, value: object) -> object:
        if not isinstance(value, dict) and not _lacks_space(value):
            raise ValueError(
                f'{{every: 100}} or {{cron: "0 3 * * *"}} is needed, not {format_value(value)}'
            )
        return value

    @field_validator("every", "cron", "interval", "timezone", mode="before")
    @classmethod
    def _refuse_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("a value is needed here; without one, leave out the key")
        return value

    @field_validator("every", mode="before")
    @classmethod
    def _read_count(cls, value: object) -> object:
        count = count_in(value)
        if isinstance(count, str) and (found := re.fullmatch(r"([1-9][0-9]*) ?([A-Za-z]+)", count)):
            needed = f"a whole number of episodes is needed, not {format_value(count)}"
            raise ValueError(f"{needed}; {_remedy_for_count(found[1], found[2].lower())}")
        return count

    @model_validator(mode="after")
    def _check_cadence(self) -> Self:
        cadence_of(self.model_dump(exclude_unset=True))
        return self


def _remedy_for_count(number: str, unit: str) -> str:
    """Return what to write in place of a number with a unit."""
    counted = f"write {number}" if number == "1" else f"write {number}, or '{number} episodes'"
    if "episodes".startswith(unit):
        return counted
    if not re.fullmatch("s(ec(ond)?s?)?|m(in(ute)?s?)?|h(r|our)?s?|d(ay)?s?", unit):
        return f"{counted}, or an interval for a time, as {{interval: 1h}}"
    interval = number + unit[0]
    if interval in INTERVALS:
        return f"write {{interval: {interval}}} for a time"
    return f"an interval is one of {', '.join(INTERVALS)}; write other times as cron"


def _lacks_space(value: object) -> bool:
    return isinstance(value, str) and value.startswith(tuple(f"{key}:" for key in CADENCE_KEYS))


def _check_channels(channels: list[str]) -> list[str]:
    if reserved := sorted(STAGE_CHANNELS.intersection(channels)):
        raise ValueError(f"channel {reserved[0]!r} is for stages; take another name")
    if repeated := [name for n, name in enumerate(channels) if name in channels[:n]]:
        raise ValueError(f"channel {repeated[0]!r} is given twice; leave one of them out")
    return channels


class LimitsForm(Form):
    """The deletion limits of the rule; they override ``limits`` of the configuration.

    Attributes:
        max_deletes: How many facts one command may delete without replacing them, 0 or more.
            Default: the limit of the configuration.
        max_delete_fraction: By which fraction of all facts one command may reduce them, 0 to
            1; added facts offset deleted ones. A reduction by 100 facts or fewer is always allowed.
            Default: the limit of the configuration.
    """

    max_deletes: int | None = Field(default=None, ge=0)
    max_delete_fraction: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class SimilarityForm(Form):
    """How new facts are linked with similar current facts; needs the extra ``vectors``.

    Facts of the same user, agent, channel and subject are compared. A new fact lists the ids of
    similar facts under ``possible_duplicate``. No fact is replaced or removed.

    Attributes:
        min: The lowest cosine similarity of two texts that are linked, 0 to 1. Default: 0.85.
    """

    min: float = Field(default=0.85, ge=0, le=1, allow_inf_nan=False)


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WeightsForm(Form):
    """The weights of the three parts of an episode's salience.

    Attributes:
        recency: The weight of the time since the episode was written or last read, 0 or more.
            Default: 1.
        relevance: The weight of the similarity to the text of ``about``, 0 or more; needs the extra
            ``vectors``. Default: 0.
        importance: The weight of the key ``importance`` (0 to 1) of the metadata, 0 or more.
            Default: 0.
    """

    recency: Weight = USUAL_WEIGHTS["recency"]
    relevance: Weight = USUAL_WEIGHTS["relevance"]
    importance: Weight = USUAL_WEIGHTS["importance"]


def _add_about_schema(schema: JsonDict) -> None:
    """Express the check of ``about`` in `check_gate` in JSON Schema."""
    weighs: JsonDict = {
        "required": ["relevance"],
        "properties": {"relevance": {"not": {"maximum": 0}}},
    }
    schema["if"] = {"required": ["weights"], "properties": {"weights": weighs}}
    schema["then"] = {"required": ["about"], "properties": {"about": {"pattern": r"\S"}}}
    schema["else"] = {"properties": {"about": {"not": {"pattern": r"\S"}}}}


class SalienceForm(Form):
    """The salience that an episode needs before the rule promotes it.

    Attributes:
        min: The lowest salience that passes, more than 0, at most 1. With the default weights a new
            episode has 0.019, and one that was read nine times and just now has 0.15; no episode
            reaches 0.198.
        tau: The time without a read after which recency has fallen to 1/e. Seconds, or a number
            with s, m, h or d; more than 0, at most 366 days. Default: ``24h``.
        weights: The weights of recency, relevance and importance.
        about: The text that relevance compares an episode with, such as ``what ada eats and
            drinks``. It is needed when the weight of relevance is above 0, and not allowed
            otherwise.
    """

    model_config = ConfigDict(json_schema_extra=_add_about_schema)

    min: float = Field(gt=0, le=1, allow_inf_nan=False)
    tau: Duration = TAU_SECONDS
    weights: WeightsForm = WeightsForm.model_construct()
    about: str = ""

    @model_validator(mode="after")
    def _check_gate(self) -> Self:
        check_gate(self.min, self.weights.model_dump(), self.about)
        return self


_CRON_KEYS = frozenset({"on_missed", "catchup_window"})


def _add_rule_schema(schema: JsonDict) -> None:
    """Express the check `_find_idle_rules` of `rule_loader` in JSON Schema."""
    marking: Any = {"contains": {"not": {"required": ["extract"]}}}
    schema["anyOf"] = [
        {"properties": {"then_emits": {"minItems": 1}}},
        {"properties": {"stages": marking}, "required": ["stages"]},
    ]


class RuleForm(Form):
    """One rule: which episodes become facts, in which channels, and when.

    Attributes:
        id: 1 to 64 of a-z, 0-9, '.', '_', ':' and '-'; unique over all files. Every fact names it.
        cadence: When the rule fires: ``{every: 100}``, ``{cron: "0 3 * * *"}`` or
            ``{interval: 1h}``.
        when_filter: The episodes that the rule selects: a SQL condition on the columns id scope_key
            user session agent content source_node speaker is_person timestamp metadata intent
            subject predicate object confidence. ``""`` selects all episodes.
        then_emits: The channels that receive the facts. In ``facts`` a fact has the id of its
            episode; in another channel its id is ``@channel/id``. ``[]`` is for a rule whose
            stages only mark episodes.
        enabled: Whether the daemon fires the rule. Default: true.
        start: ``beginning`` (default) evaluates the episodes that existed before the rule too;
            ``now`` evaluates only later ones.
        limits: The deletion limits of the rule; they override ``limits`` of the configuration.
        on_missed: What the daemon does about cron instants that passed while it did not run.
            ``run_once`` (default) fires once for all of them; ``skip`` leaves their episodes to the
            next instant.
        catchup_window: How long ago the newest missed cron instant may be for ``run_once`` to fire.
            Seconds, or a number with s, m, h or d; more than 0, at most 366 days. Default: ``24h``.
        timeout: How long a firing may take. After that time it fails, and its batch is rolled back.
            Seconds, or a number with s, m, h or d; more than 0, at most 366 days. Default: no
            timeout.
        similarity: Links new facts with similar current facts, for example ``{min: 0.85}``.
            Default: off.
        salience: The salience that an episode needs before the rule promotes it. The rule evaluates
            an episode below it again when the episode is read. Default: every episode passes.
        stages: What the rule does with episodes before and after it promotes them; at most one
            stage of each kind, in the order in which they run. Default: nothing.
        kind: ``episodes`` (default), or ``graph`` for a rule that promotes the triples of a graph.
        description: The purpose of the rule, in words. It has no effect.
    """

    model_config = ConfigDict(json_schema_extra=_add_rule_schema)

    id: Name
    cadence: CadenceForm
    when_filter: str
    then_emits: Annotated[
        list[Name],
        Field(json_schema_extra={"uniqueItems": True}),
        AfterValidator(_check_channels),
    ]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: LimitsForm = LimitsForm.model_construct()
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    similarity: SimilarityForm | None = None
    salience: SalienceForm | None = None
    stages: Annotated[
        list[StageForm],
        Field(default_factory=list, max_length=len(StageForm.model_fields)),
        AfterValidator(check_stages),
    ]
    kind: Annotated[Kind, Field(json_schema_extra={"enum": ["episodes"]})] = "episodes"
    description: str = ""

    @model_validator(mode="after")
    def _check_cron_keys(self) -> Self:
        if self.cadence.every is not None and (given := self.model_fields_set & _CRON_KEYS):
            raise ValueError(
                f"{min(given)!r} goes with 'cron' or 'interval'; episodes are never missed"
            )
        return self

    def rule(self) -> ConsolidationRule:
        """Return the rule that the form describes."""
        described = self.model_dump(exclude_unset=True, exclude={"stages"})
        marking = [form.stage() for form in self.stages if form.extract is None]
        return ConsolidationRule.model_validate(described | {"stages": marking})


def _check_single_channel(channels: list[str]) -> list[str]:
    if len(channels) != 1:
        raise ValueError(f"exactly one channel is needed, not {len(channels)}")
    return channels


def _check_scope_part(text: str) -> str:
    try:
        return check_part(text, axis="it", scope=(), operation="promote")
    except MemoryScopeError as error:
        raise ValueError(error.violation) from None


_SCOPE_PART = r"^[^\u0000-\u001f\u007f-\u009f]+$"


Part = Annotated[
    str, AfterValidator(_check_scope_part), Field(json_schema_extra={"pattern": _SCOPE_PART})
]


_CRON_ONLY: JsonDict = {
    "oneOf": [
        {"required": ["cron"], "properties": {"every": False, "interval": False}},
        {
            "required": ["interval"],
            "properties": {"every": False, "cron": False, "timezone": False},
        },
    ]
}
"""Expresses the check `GraphRuleForm._require_cron` in JSON Schema."""


class GraphRuleForm(Form):
    """One rule that promotes triples of a graph: which triples become facts, for whom, and when.

    Attributes:
        id: 1 to 64 of a-z, 0-9, '.', '_', ':' and '-'; unique over all files. Every fact names it.
        kind: ``graph``.
        cadence: When the rule fires: a cron expression such as ``{cron: "0 3 * * *"}``. New
            episodes do not make it due.
        filter_cypher: The triples that the rule promotes: portable Cypher that returns subject,
            predicate and object, and may return confidence and triple_id.
        user: The user who owns the facts.
        agent: The agent that owns the facts.
        then_emits: The one channel that receives the facts. Default: ``[facts]``.
        enabled: Whether the daemon fires the rule. Default: true.
        on_missed: What the daemon does about cron instants that passed while it did not run.
            ``run_once`` (default) fires once for all of them; ``skip`` waits for the next instant.
        catchup_window: How long ago the newest missed cron instant may be for ``run_once`` to fire.
            Seconds, or a number with s, m, h or d; more than 0, at most 366 days. Default: ``24h``.
        timeout: How long a firing may take. After that time it fails, and promotes nothing.
            Seconds, or a number with s, m, h or d; more than 0, at most 366 days. Default: no
            timeout.
        description: The purpose of the rule, in words. It has no effect.
    """

    id: Name
    kind: Literal["graph"]
    cadence: Annotated[CadenceForm, Field(json_schema_extra=_CRON_ONLY)]
    filter_cypher: str = Field(min_length=1)
    user: Part
    agent: Part
    then_emits: Annotated[
        list[Name],
        Field(default_factory=lambda: [FACTS], json_schema_extra={"minItems": 1, "maxItems": 1}),
        AfterValidator(_check_single_channel),
    ]
    enabled: bool = True
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    description: str = ""

    @field_validator("cadence")
    @classmethod
    def _require_cron(cls, cadence: CadenceForm) -> CadenceForm:
        if cadence.every is not None:
            raise ValueError(
                "a rule of kind 'graph' reads no episodes, so it needs a cron cadence: write"
                ' {cron: "0 3 * * *"}'
            )
        return cadence

    def rule(self) -> ConsolidationRule:
        """Return the rule that the form describes."""
        defaults = {"when_filter": NO_EPISODE, "then_emits": [FACTS]}
        return ConsolidationRule.model_validate(defaults | self.model_dump(exclude_unset=True))


def _kind_of(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return tag("graph" if kind == "graph" else "episodes")


AnyRuleForm = Annotated[
    Annotated[RuleForm, Tag(tag("episodes"))] | Annotated[GraphRuleForm, Tag(tag("graph"))],
    Discriminator(_kind_of),
]
"""A rule of either kind; a rule without ``kind`` is one of episodes."""


Predicates = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(json_schema_extra={"uniqueItems": True})
]


class ChannelForm(Form):
    """The settings of one channel; they apply to all rules that write to it.

    Give `multi_valued`, or `values: many` with `single_valued`; all rule files give a channel in
    the same way. The lists of all files are combined, with those of what the rules of the channel
    extract. An entry such as ``favourite_*`` names all predicates that begin so.

    Attributes:
        multi_valued: The predicates that may hold several objects at once; all others hold one.
        values: ``many``: all predicates may hold several objects at once, but those of
            `single_valued`.
        single_valued: The predicates that hold one object, so that a newer one replaces it; goes
            with ``values: many``.
    """

    multi_valued: Predicates | None = None
    values: Literal["many"] | None = None
    single_valued: Predicates | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.multi_valued is None and self.values is None:
            raise ValueError("give multi_valued, or values: many with single_valued")
        return self

    @property
    def several(self) -> Several:
        """The predicates that hold several objects at once; all rule files agree on one form."""
        if self.values is not None:
            return ManyBut(frozenset(self.single_valued or ()))
        return frozenset(self.multi_valued or ())


class RuleFile(Form):
    """A file of consolidation rules for slumberd.

    Attributes:
        rules: The rules of the file; ``[]`` means none.
        channels: The settings of channels, by channel name.
    """

    rules: list[AnyRuleForm]
    channels: dict[Name, ChannelForm] = Field(default_factory=dict)
