"""The schemas of pattern files, of their tests, and of triples from a host's model."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from slumberd.consolidation.claim import MOST_TRIPLES
from slumberd.consolidation.extraction.normalisers import NormaliserName
from slumberd.consolidation.extraction.patterns import Negated, UnlessIn
from slumberd.consolidation.extraction.sentences import replace_surrogates
from slumberd.model.extraction import Intent
from slumberd.rules.validation import Form, Instant, Name, format_value

Text = Annotated[str, Field(min_length=1)]
Word = Annotated[str, Field(pattern=r"\S")]
_WORD_LIST = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _check_word_list(name: str) -> str:
    if not re.fullmatch(_WORD_LIST, name):
        raise ValueError(
            f"{format_value(name)} is not a valid name: use a letter, then letters, digits and '_'"
        )
    return name


WordListName = Annotated[
    str, AfterValidator(_check_word_list), Field(json_schema_extra={"pattern": _WORD_LIST})
]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


_TEXT_SCHEMA = {"type": "string", "minLength": 1}


def _texts_schema(least: int) -> WithJsonSchema:
    several = {"type": "array", "items": _TEXT_SCHEMA, "minItems": least}
    return WithJsonSchema({"anyOf": [_TEXT_SCHEMA, several]})


Texts = Annotated[list[Text], BeforeValidator(_listed), _texts_schema(0)]
"""A text, or a list of texts."""

SomeTexts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_listed), _texts_schema(1)]
"""A text, or a list of at least one."""

_MAX_EXACT_INTEGER = 2**53
"""Up to this integer every reader of JSON reads the same number."""


def _check_scalar(value: object) -> object:
    match value:
        case str() if value and replace_surrogates(value) == value:
            return value
        case int() if abs(value) <= _MAX_EXACT_INTEGER:  # a bool, too
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            raise ValueError(f"text, a number, true or false is needed, not {format_value(value)}")


Scalar = Annotated[
    Any,
    AfterValidator(_check_scalar),
    Field(json_schema_extra={"type": ["string", "number", "boolean"], "minLength": 1}),
]


_SCALAR_SCHEMA = WithJsonSchema({"type": ["string", "number", "boolean"], "minLength": 1})
_UNLESS_IN_SCHEMA = WithJsonSchema({"enum": ["clause", "sentence"], "type": "string"})
Predicates = Annotated[list[Text], Field(json_schema_extra={"uniqueItems": True})]
Opposites = Annotated[list[Text], Field(min_length=2, max_length=2)]
"""Two predicates."""


def refuse_null(value: object) -> object:
    """Return a value.

    Raises:
        ValueError: It is null.
    """
    if value is None:
        raise ValueError("a value is needed here; without one, leave out the key")
    return value


def _check_object(triple: SaysForm | TripleForm, intent: Intent) -> None:
    if triple.object_words is not None and (triple.object is not None or intent != "delete"):
        raise ValueError("'object_words' goes with 'intent: delete', and without 'object'")
    if triple.object is None and intent != "delete":
        raise ValueError("the triple has no object; only 'intent: delete' goes without one")


_ONE_OF_BOTH: JsonDict = {"not": {"required": ["object", "object_words"]}}
_WITH_OBJECT: JsonDict = {"required": ["object"], "properties": {"object_words": False}}
_IF_DELETE: JsonDict = {"required": ["intent"], "properties": {"intent": {"const": "delete"}}}


class SaysForm(Form):
    """The triple that a pattern states. ``{name}`` stands for the text of a named group.

    Attributes:
        subject: The subject. ``{speaker}`` is who speaks, ``{other}`` who spoke before. A group
            with ``I`` or ``my`` becomes the speaker, one with ``you`` the other speaker.
        predicate: The predicate.
        object: The object: text with names of groups, a number, true or false. A name alone keeps
            the number that a normaliser makes of the group. A group of ``list`` gives a triple for
            each entry. Without ``object``, ``intent: delete`` takes all objects back.
        object_words: With ``intent: delete``, in place of ``object``: the objects that hold all
            these words are taken back. Words such as ``the`` and ``of`` do not count.
    """

    subject: Text
    predicate: Text
    object: Annotated[Scalar | None, _SCALAR_SCHEMA] = None
    object_words: Annotated[Text | None, WithJsonSchema(_TEXT_SCHEMA)] = None

    _no_null = field_validator("object", "object_words", mode="before")(refuse_null)


class PatternForm(Form):
    """One pattern: what a sentence must contain, and the triple that it then states.

    Attributes:
        id: 1 to 64 of a-z, 0-9, '.', '_', ':' and '-'; unique in the file. Triples name it.
        when: An expression in RE2's syntax, or a list of them. One that matches anywhere in a
            sentence is enough. ``(?P<name>...)`` is a named group, ``{list}`` one of the words of a
            list under ``words``. Case has no effect.
        says: The triple that the sentence then states.
        when_previous: An expression that must match in the previous turn of another speaker too.
            Its named groups count. Default: any turn, or none.
        unless: An expression, or a list of them. A sentence in which one matches states nothing.
        unless_in: Where ``unless`` is looked for: in the ``sentence``, or in the ``clause`` of the
            match. Default: as the file says.
        file_unless: Whether ``unless`` of the file guards this pattern too. Default: true.
        intent: ``add`` (default) states the triple, ``delete`` takes it back.
        negated: What a match under ``not``, ``no``, ``never`` or ``without`` in the same clause
            means. ``veto`` (default): nothing. ``allow``: the same. ``delete``: it takes the triple
            back.
        confidence: How sure a triple of this pattern is, 0 to 1. Default: 1.
        normalise: The normalisers of a group, by its name: ``case``, ``whitespace``, ``number``,
            ``date`` and ``list``, one after the other. ``list`` divides "tea, milk and eggs".
        keep_unknown: The groups whose text stays when it is no number or date. Without this key
            such a match states nothing.
        description: The purpose of the pattern, in words. It has no effect.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": _IF_DELETE,
            "then": {"properties": {"says": _ONE_OF_BOTH}},
            "else": {"properties": {"says": _WITH_OBJECT}},
        }
    )

    id: Name
    when: SomeTexts
    says: SaysForm
    when_previous: Annotated[Text | None, WithJsonSchema(_TEXT_SCHEMA)] = None
    unless: Texts = Field(default_factory=list)
    unless_in: Annotated[UnlessIn | None, _UNLESS_IN_SCHEMA] = None
    file_unless: bool = True
    intent: Intent = "add"
    negated: Negated = "veto"
    confidence: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    normalise: dict[Text, list[NormaliserName]] = Field(default_factory=dict)
    keep_unknown: list[Text] = Field(default_factory=list)
    description: str = ""

    _no_null = field_validator("when_previous", "unless_in", mode="before")(refuse_null)

    @model_validator(mode="after")
    def _check_intent(self) -> Self:
        if self.negated == "delete" and self.intent == "delete":
            raise ValueError("'negated: delete' goes with 'intent: add'; choose veto or allow")
        _check_object(self.says, self.intent)
        return self


class AliasesForm(Form):
    """Other names of subjects, predicates and objects. Case and surplus spaces have no effect.

    Attributes:
        subjects: The name to use for each other name of a subject.
        predicates: The name to use for each other name of a predicate.
        objects: The name to use for each other name of an object.
    """

    subjects: dict[Text, Text] = Field(default_factory=dict)
    predicates: dict[Text, Text] = Field(default_factory=dict)
    objects: dict[Text, Text] = Field(default_factory=dict)


class PatternFile(Form):
    """A file of patterns that find triples in the text of episodes.

    Attributes:
        patterns: The patterns; the order has no effect.
        words: Lists of words, by name; ``{name}`` in an expression is one of its words.
        aliases: Other names of subjects, predicates and objects.
        unless: An expression, or a list of them, that guards all patterns as their own ``unless``
            does.
        unless_in: Where ``unless`` is looked for: in the ``sentence`` (default), or in the
            ``clause`` of the match. ``;``, a dash, "but", "because" and "and I" end a clause.
        single_valued: The predicates that hold one object in channels with ``values: many``.
        multi_valued: The predicates that hold several objects at once in other channels.
        opposites: Pairs of predicates. A triple of one takes the same object of the other back.
        speakers: Other names of speakers, by the speaker of an episode. ``{user}`` and ``{agent}``
            mean the user and the agent of the episode. By default the person is ``{user}``, and
            everybody else has the own name.
    """

    patterns: Annotated[list[PatternForm], Field(min_length=1)]
    words: dict[WordListName, Annotated[list[Word], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    aliases: AliasesForm = AliasesForm.model_construct()
    unless: Texts = Field(default_factory=list)
    unless_in: UnlessIn = "sentence"
    single_valued: Predicates = Field(default_factory=list)
    multi_valued: Predicates = Field(default_factory=list)
    opposites: list[Opposites] = Field(default_factory=list)
    speakers: dict[Text, Text] = Field(default_factory=dict)


class TurnForm(Form):
    """One turn of a test.

    Attributes:
        speaker: Who speaks. The person, such as ``user``, has the name ``user`` in a test; the
            agent of a test is ``agent``.
        text: What the speaker says.
        at: ISO 8601 with an offset, in quotes. Default: one minute after the turn before, and
            2026-01-01T00:00:00Z for the first.
    """

    speaker: Text
    text: str
    at: Instant | None = None


class TripleForm(Form):
    """One triple that the turns of a test state.

    Attributes:
        subject: The subject.
        predicate: The predicate.
        object: The object: text, a number, true or false. A ``delete`` may have none.
        object_words: The words of the objects that a ``delete`` takes back, in any order.
        intent: ``add`` (default) or ``delete``.
    """

    model_config = ConfigDict(
        json_schema_extra={"if": _IF_DELETE, "then": _ONE_OF_BOTH, "else": _WITH_OBJECT}
    )

    subject: Text
    predicate: Text
    object: Annotated[Scalar | None, _SCALAR_SCHEMA] = None
    object_words: Annotated[
        list[Text] | None,
        Field(min_length=1),
        WithJsonSchema({"type": "array", "items": _TEXT_SCHEMA, "minItems": 1}),
    ] = None
    intent: Literal["add", "delete"] = "add"

    _no_null = field_validator("object", "object_words", mode="before")(refuse_null)

    @model_validator(mode="after")
    def _check_intent(self) -> Self:
        _check_object(self, self.intent)
        return self


class PatternTestForm(Form):
    """One test of patterns.

    Attributes:
        name: What the test shows; unique in the file.
        says: The turns of one conversation, in order.
        expect: All triples that the turns state together, in any order; ``[]`` means none.
    """

    name: Text
    says: Annotated[list[TurnForm], Field(min_length=1)]
    expect: list[TripleForm]


class PatternTestFile(Form):
    """A file of tests for the pattern file beside it.

    Attributes:
        tests: The tests; each one is a conversation of its own.
    """

    tests: Annotated[list[PatternTestForm], Field(min_length=1)]


class TripleAnswer(Form):
    """One triple that the text states.

    Attributes:
        subject: Who or what the triple is about, by the name that the prompt gives.
        predicate: What is said of the subject; one of the predicates of the prompt.
        object: The value, in words of the text.
        confidence: How sure the text is, 0 to 1.
    """

    subject: Text
    predicate: Text
    object: Text
    confidence: float = Field(ge=0, le=1)


class TriplesAnswer(Form):
    """The answer of a model: what goes into ``metadata.triples`` of an episode.

    Attributes:
        triples: Every triple that the text states; empty when it states none.
    """

    triples: Annotated[list[TripleAnswer], Field(max_length=MOST_TRIPLES)]
