"""The schema of the stages of a rule, and the names of Python functions in it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from slumberd.model.duration import Duration
from slumberd.model.extraction import ModelSettings
from slumberd.model.stages import Fraction, Stage
from slumberd.rules.validation import FUNCTION, SHAPE, Form, format_value, tag


def is_function(name: str) -> bool:
    """Return whether a text is the name of a function."""
    return re.fullmatch(FUNCTION, name) is not None


Predicate = Annotated[str, Field(min_length=1, max_length=100)]


_OF_METHOD = {
    "patterns": frozenset({"patterns"}),
    "conversation": frozenset({"parser", "speakers", "vocabulary"}),
    "heuristic": frozenset({"speakers"}),
    "openai": frozenset(
        {
            "instructions",
            "may_retract",
            "min_length",
            "model",
            "parameters",
            "predicates",
            "speakers",
            "turns_per_call",
        }
    ),
}
"""The keys of each method of `ExtractForm`, besides ``with``."""

_NEEDED = {"patterns": ("patterns",), "conversation": (), "heuristic": (), "openai": ("model",)}
"""The keys that each method needs."""

MOST_EXTRACTIONS = 10
"""The most entries of a list of extractions."""

_RESERVED = frozenset({"messages", "model", "n", "response_format", "stream", "tools"})
"""The keys of a request that slumberd writes itself, or never writes."""


def _method_schema(*names: str) -> JsonDict:
    """Return a schema for some names of methods, and for the names of functions."""
    return {"anyOf": [{"enum": [*names]}, {"type": "string", "pattern": FUNCTION}]}


def _check_method(name: str, known: str, *names: str) -> str:
    if name not in names and not is_function(name):
        raise ValueError(f"{known} or '{SHAPE}' is needed, not {format_value(name)}")
    return name


def _check_extractor(name: str) -> str:
    return _check_method(name, ", ".join(map(repr, _OF_METHOD)), *_OF_METHOD)


def _check_summariser(name: str) -> str:
    return _check_method(name, "'builtin', 'openai'", "builtin", "openai")


def _check_parameters(value: dict[str, Any]) -> dict[str, Any]:
    if reserved := sorted(_RESERVED & value.keys()):
        raise ValueError(f"{reserved[0]!r} is not a parameter: slumberd writes it itself")
    return value


Parameters = Annotated[dict[str, Any], AfterValidator(_check_parameters)]

_USUAL = {"temperature": 0, "max_tokens": 2000}
"""The parameters of a request, unless the rule gives others."""


def _add_extract_schema(schema: JsonDict) -> None:
    """Express the check `_check_keys` of `ExtractForm` in JSON Schema."""
    every = sorted(frozenset().union(*_OF_METHOD.values()))
    forms: list[Any] = [
        {
            "properties": {
                "with": {"const": method},
                **{key: False for key in every if key not in keys},
            },
            "required": [*_NEEDED[method]],
        }
        for method, keys in _OF_METHOD.items()
    ]
    of_function: dict[str, Any] = {"with": {"pattern": FUNCTION}, **dict.fromkeys(every, False)}
    schema["oneOf"] = [*forms, {"properties": of_function}]


class ExtractForm(Form):
    """How the rule finds triples in the text of episodes that state none themselves.

    Attributes:
        with: ``patterns`` for the patterns of a file, which need the extra ``regex``;
            ``conversation`` for what people say of themselves in plain English, such as ``I moved
            to Oslo``; ``heuristic`` is its old name, until the next release; ``openai`` for a
            language model, which needs the extra ``llm`` and ``language_model`` in the
            configuration; ``python:package.module:function`` for a Python function of yours.
        patterns: The pattern file. A relative path begins at the directory of the rule file. Only
            for ``patterns``.
        speakers: Other names of speakers, by the speaker. ``{user}`` and ``{agent}`` mean the user
            and the agent of the episode. By default the person is ``{user}``, and everybody else
            has the own name. Only for ``conversation`` and ``openai``: a pattern file has its own,
            and a function sees the speakers as they are.
        vocabulary: A file with further words, predicates and aliases; a relative path begins at the
            directory of the rule file. Only for ``conversation``.
        parser: Whether a parser reads the sentences, too. It finds a few more facts, takes some
            100 MB of memory, and needs the extra ``english``. Only for ``conversation``.
        model: The name of the language model, as its server knows it.
        predicates: The predicates of the triples, 1 to 200. A triple with another one is dropped.
            ``favourite_*`` names all that begin so. In a list of extractions they may be left out:
            then they are those that the entries before have.
        instructions: More sentences for the prompt, for example what the predicates mean.
        may_retract: Whether the language model may also delete facts. Default: false.
        min_length: A text of fewer characters is not sent, and states nothing. Default: 3.
        turns_per_call: How many texts of one session one request may hold, 1 to 50. Default: 8.
        parameters: Further keys of each request. Default: ``{temperature: 0, max_tokens: 2000}``.
    """

    model_config = ConfigDict(json_schema_extra=_add_extract_schema, protected_namespaces=())

    method: Annotated[
        str,
        AfterValidator(_check_extractor),
        Field(json_schema_extra=_method_schema(*_OF_METHOD)),
    ] = Field(alias="with")
    patterns: str | None = Field(default=None, min_length=1)
    speakers: dict[str, str] = Field(default_factory=dict)
    vocabulary: str | None = Field(default=None, min_length=1)
    parser: bool = False
    model: str | None = Field(default=None, min_length=1)
    predicates: Annotated[list[Predicate], Field(min_length=1, max_length=200)] | None = None
    instructions: str = ""
    may_retract: bool = False
    min_length: int = Field(default=3, ge=0)
    turns_per_call: int = Field(default=8, ge=1, le=50)
    parameters: Parameters = Field(default=_USUAL)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        given = self.model_fields_set - {"method"}
        for key in _NEEDED.get(self.method, ()):
            if getattr(self, key) is None:
                raise ValueError(f"{key!r} is needed with {{with: {self.method}}}")
        if unfit := sorted(given - _OF_METHOD.get(self.method, frozenset())):
            methods = [name for name, keys in _OF_METHOD.items() if unfit[0] in keys]
            raise ValueError(f"{unfit[0]!r} goes with {{with: {' or '.join(methods)}}} only")
        return self

    def model_settings(self) -> ModelSettings:
        """Return what a language model is asked; `method` must be ``openai``."""
        return ModelSettings(
            model=self.model or "",
            predicates=tuple(dict.fromkeys(self.predicates or ())),
            instructions=self.instructions,
            speakers=self.speakers,
            may_retract=self.may_retract,
            min_length=self.min_length,
            turns_per_call=self.turns_per_call,
            parameters=self.parameters,
        )


def _check_alone(form: ExtractForm) -> ExtractForm:
    if form.method == "openai" and form.predicates is None:
        raise ValueError("'predicates' is needed with {with: openai}")
    return form


def _check_list(forms: list[ExtractForm]) -> list[ExtractForm]:
    if sum(form.method == "openai" for form in forms) > 1:
        raise ValueError("a list of extractions asks one language model at most")
    return forms


_ASKS_ALONE: JsonDict = {
    "if": {"properties": {"with": {"const": "openai"}}, "required": ["with"]},
    "then": {"required": ["predicates"]},
}
"""Expresses `_check_alone` in JSON Schema."""

LoneExtractForm = Annotated[
    ExtractForm, AfterValidator(_check_alone), Field(json_schema_extra={"allOf": [_ASKS_ALONE]})
]
ExtractForms = Annotated[
    list[ExtractForm],
    Field(min_length=1, max_length=MOST_EXTRACTIONS),
    AfterValidator(_check_list),
]


class SeveralExtractForm(Form):
    """Several extractions of a rule: exactly one of these keys.

    An episode is evaluated once every extraction that it needs has read it. When one of them
    cannot, the episode goes into quarantine, and no other triple of it counts until then.

    Attributes:
        first: Tried in this order: the first one that finds a triple in a text decides what the
            text says. A list without a key means the same.
        all: Each of them reads every text, and their triples are united.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["first"]}, {"required": ["all"]}]}
    )

    first: ExtractForms | None = None
    all: ExtractForms | None = None

    @model_validator(mode="after")
    def _check_single(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("exactly one of these keys is needed: first, all")
        return self


def _extract_kind(value: object) -> str:
    if isinstance(value, list):
        return tag("list")
    several = isinstance(value, SeveralExtractForm) or (
        isinstance(value, dict) and not value.keys().isdisjoint({"first", "all"})
    )
    return tag("several" if several else "one")


AnyExtractForm = Annotated[
    Annotated[LoneExtractForm, Tag(tag("one"))]
    | Annotated[ExtractForms, Tag(tag("list"))]
    | Annotated[SeveralExtractForm, Tag(tag("several"))],
    Discriminator(_extract_kind),
]
"""One extraction, a list of them, or a list with its key."""


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


_OF_SUMMARISER = ("instructions", "model", "parameters")
"""The keys of `SummariseForm` that describe what a language model is asked."""


def _add_summarise_schema(schema: JsonDict) -> None:
    """Express the check `_check_keys` of `SummariseForm` in JSON Schema."""
    by_model: Any = {"properties": {"with": {"const": "openai"}}, "required": ["with", "model"]}
    others: Any = {"with": {"not": {"const": "openai"}}, **dict.fromkeys(_OF_SUMMARISER, False)}
    schema["oneOf"] = [by_model, {"properties": others}]


class SummariseForm(Form):
    """Which episodes are summarised together, and how long a summary is.

    The newest 20 episodes of a session are not summarised.

    Attributes:
        with: ``builtin`` (default) takes sentences of the episodes;
            ``python:package.module:function`` is a Python function of yours; ``openai`` is a
            language model, which needs the extra ``llm`` and ``language_model`` in the
            configuration.
        group_by: ``session``: only episodes of one session are summarised together.
        when_more_than: A session is summarised when it has more episodes than this, 1 or more.
            Default: 100.
        max_tokens: The most tokens of one summary, 1 or more; four characters count as one token.
            Default: 200.
        model: The name of the language model. Only for ``openai``.
        instructions: More sentences for the prompt. Only for ``openai``.
        parameters: Further keys of each request. Only for ``openai``. Default: ``{temperature: 0,
            max_tokens: 2000}``.
    """

    model_config = ConfigDict(json_schema_extra=_add_summarise_schema, protected_namespaces=())

    method: Annotated[
        str,
        AfterValidator(_check_summariser),
        Field(json_schema_extra=_method_schema("builtin", "openai")),
    ] = Field(default="builtin", alias="with")
    group_by: Literal["session"] = "session"
    when_more_than: int = Field(default=100, ge=1)
    max_tokens: int = Field(default=200, ge=1)
    model: str | None = Field(default=None, min_length=1)
    instructions: str = ""
    parameters: Parameters = Field(default=_USUAL)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        given = sorted(self.model_fields_set.intersection(_OF_SUMMARISER))
        if self.method != "openai" and given:
            raise ValueError(f"{given[0]!r} goes with {{with: openai}} only")
        if self.method == "openai" and self.model is None:
            raise ValueError("'model' is needed with {with: openai}")
        return self


def _add_stage_schema(schema: JsonDict) -> None:
    """Express the check `_check_single` of `StageForm` in JSON Schema."""
    properties: Any = schema["properties"]
    for name, value in properties.items():
        form = value["anyOf"][0]
        properties[name] = {"anyOf": form["oneOf"]} if "oneOf" in form else form
    schema["oneOf"] = [{"required": [name]} for name in properties]


class StageForm(Form):
    """One stage of the rule: exactly one of these keys.

    ``extract`` prepares episodes before the rule promotes them. The other stages run afterwards, on
    all episodes that the rule selects. They mark episodes, and delete nothing.

    Attributes:
        extract: Finds triples in the text of episodes that state none themselves. It comes first.
            A list is tried in order, until one finds a triple; ``{all: [...]}`` unites them.
            Two enabled rules may extract into one channel only if their filters exclude each other,
            such as ``is_person`` and ``NOT is_person``.
        dedup: Marks the episodes that say the same as another one.
        decay: Marks old episodes as archived, or gives them a weight.
        importance: Marks unimportant episodes as archived.
        summarise: Summarises the older episodes of long sessions, and marks them.
    """

    model_config = ConfigDict(json_schema_extra=_add_stage_schema)

    extract: AnyExtractForm | None = None
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
    def extractions(self) -> list[ExtractForm]:
        """The extractions, in order; none of another stage."""
        match self.extract:
            case None:
                return []
            case ExtractForm():
                return [self.extract]
            case SeveralExtractForm():
                return self.extract.first or self.extract.all or []
            case _:
                return self.extract

    @property
    def unites(self) -> bool:
        """Whether the triples of all extractions count, not only those of the first."""
        return isinstance(self.extract, SeveralExtractForm) and self.extract.all is not None

    @property
    def name(self) -> str:
        """The name of the stage."""
        [name] = self.model_fields_set
        return name

    def stage(self) -> Stage:
        """Return the stage that the form describes; it must not be ``extract``."""
        settings = getattr(self, self.name).model_dump(
            exclude={"method", *_OF_SUMMARISER} if self.summarise else None
        )
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
