"""The schema of test files: episodes, and the deltas and facts that a test expects of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from slumberd.consolidation.extraction.language_model import MAX_TEXT
from slumberd.model.episode import Episode
from slumberd.rules.validation import Form, Instant, Name
from slumberd.tools.rule_testing.comparison import Content, Entry, Part

Text = Annotated[str, Field(min_length=1)]
AnswerText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]

_METADATA_KEYS = ("intent", "subject", "predicate", "object", "confidence", "replaces", "triples")
"""Keys of the metadata that a test may write at the episode itself."""


class EpisodeForm(Form):
    """One episode of a test.

    Attributes:
        id: The id of the episode. The id of an episode of an earlier step makes it an edit.
        user: The user of the episode. Default: ``user``.
        session: The session of the episode. Default: ``session``.
        agent: The agent of the episode. Default: ``agent``.
        source_node: The node that wrote the episode. Default: ``test``.
        content: The text of the episode. Default: empty.
        timestamp: ISO 8601 with an offset, in quotes. Default: one minute after the latest episode
            so far, and 2026-01-01T00:00:00Z for the first; an edit keeps its timestamp.
        intent: ``add``, ``update``, ``delete`` or ``noop``; part of the metadata.
        subject: The subject of the triple; part of the metadata.
        predicate: The predicate of the triple; part of the metadata.
        object: The object of the triple, any value; part of the metadata.
        confidence: How sure the writer is, 0 to 1; part of the metadata.
        replaces: The id of an earlier episode, or a list of ids; part of the metadata.
        triples: A list of further triples, each with any of the keys above; part of the metadata.
        metadata: All other keys of the metadata.
    """

    id: Text
    user: Text = "user"
    session: Text = "session"
    agent: Text = "agent"
    source_node: str = "test"
    content: str = ""
    timestamp: Instant | None = None
    # Of any type, so that a test can show what goes into quarantine.
    intent: Any = None
    subject: Any = None
    predicate: Any = None
    object: Any = None
    confidence: Any = None
    replaces: Any = None
    triples: Any = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _refuse_repeated_keys(self) -> Self:
        if twice := [
            key for key in _METADATA_KEYS if key in self.metadata and key in self._given_keys
        ]:
            raise ValueError(f"key {twice[0]!r} is in 'metadata' too; leave one of them out")
        return self

    @property
    def _given_keys(self) -> set[str]:
        return self.model_fields_set

    def episode(self, at: datetime) -> Episode:
        """Return the episode that the form describes, with its timestamp."""
        beside = self.model_dump(include={*_METADATA_KEYS} & self._given_keys)
        scope = self.model_dump(include={"user", "session", "agent", "source_node", "content"})
        return Episode(id=self.id, timestamp=at, metadata=self.metadata | beside, **scope)


class _NamedForm(Form):
    """An entry of an expectation; only the keys that it sets are compared."""

    def entry(self) -> Entry:
        """Return the keys that are set, with lists of ids sorted."""
        named = self.model_dump(exclude_unset=True)
        return {k: sorted(v) if k in ("replaces", "episodes") else v for k, v in named.items()}


class DeltaForm(_NamedForm):
    """One delta that a step must make; only the keys that are given are compared.

    Attributes:
        episode: The id of the episode that the delta comes from.
        rule: The id of the rule that makes the delta.
        channel: The channel of the fact.
        kind: What the delta does; ``quarantined`` means that the episode could not be read.
        reason: The reason of a ``noop`` (``noop``, ``known``, ``stale``, ``retracted``,
            ``unresolved``, ``filtered``, ``unsaid``, ``in_triples``, ``nothing_said`` or
            ``below_salience``) or of a quarantine, such as ``intent_unknown``. null for other
            kinds.
        fact: The id of the fact that the delta changes.
        replaces: The ids of all facts that the delta removes or replaces, in any order.
    """

    episode: Text
    rule: Name | None = None
    channel: Name | None = None
    kind: Literal["add", "update", "delete", "noop", "quarantined"] | None = None
    reason: str | None = None
    fact: str | None = None
    replaces: list[str] = Field(default_factory=list)


class FactForm(_NamedForm):
    """One fact that must be current after a step; only the keys that are given are compared.

    Attributes:
        id: The id of the fact: in the channel ``facts`` the id of its episode, else
            ``@channel/id``.
        user: The user who owns the fact.
        agent: The agent that owns the fact.
        channel: The channel of the fact.
        subject: The subject of the triple.
        predicate: The predicate of the triple.
        object: The object of the triple, any value.
        confidence: The confidence of the fact, 0 to 1.
        content: The content of its episode.
        episodes: The ids of the episodes that the fact comes from, in any order.
    """

    id: str | None = None
    user: str | None = None
    agent: str | None = None
    channel: Name | None = None
    subject: Any = None
    predicate: Any = None
    object: Any = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    content: str | None = None
    episodes: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _refuse_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("no key is set; a fact needs at least one, such as 'id' or 'object'")
        return self


class ExpectForm(Form):
    """What a step must lead to; a key that is left out is not compared.

    Attributes:
        deltas: All deltas that the step makes, in any order.
        filtered: The ids of all episodes of the step that no rule selects and no delta mentions.
        facts: All facts that are current after the step, in any order.
    """

    deltas: list[DeltaForm] = Field(default_factory=list)
    filtered: list[str] = Field(default_factory=list)
    facts: list[FactForm] = Field(default_factory=list)

    def content(self) -> Content:
        """Return the parts that the test sets."""
        parts: dict[Part, tuple[Entry, ...]] = {
            "deltas": tuple(delta.entry() for delta in self.deltas),
            "filtered": tuple({"episode": id} for id in self.filtered),
            "facts": tuple(fact.entry() for fact in self.facts),
        }
        return {part: entries for part, entries in parts.items() if part in self.model_fields_set}


class AnswerForm(Form):
    """One triple that a language model finds in an episode. It counts as a real one would.

    Attributes:
        subject: The subject of the triple: a speaker, the user, the agent, or words of the text.
        predicate: The predicate of the triple.
        object: The object of the triple, copied from the text of the episode.
        quote: The part of the text that states the triple. null (default) means the object.
        intent: ``add`` (default), or ``delete`` for a triple that is no longer true.
        confidence: How sure the model is, 0 to 1. Default: 1.
    """

    subject: AnswerText
    predicate: str
    object: AnswerText
    quote: AnswerText | None = None
    intent: Literal["add", "delete"] = "add"
    confidence: float = Field(default=1.0, ge=0, le=1)

    def triple(self) -> dict[str, Any]:
        """Return the triple as a language model writes it about its only turn."""
        return {**self.model_dump(), "turn": "t1", "quote": self.quote or self.object}


Answers = dict[str, list[AnswerForm]]
"""What a language model answers, by the id of an episode."""


def answer_text(forms: list[AnswerForm]) -> str:
    """Return triples as the text of an answer about one turn."""
    return orjson.dumps({"triples": [form.triple() for form in forms]}).decode()


Episodes = Annotated[list[EpisodeForm], Field(min_length=1)]


class StepForm(Form):
    """One step: its episodes are put, every rule fires, and the result is compared.

    Attributes:
        episodes: The episodes, in the order in which they are put.
        expect: What the step must lead to. A step may omit it if a later step has it.
        at: When the rules fire: ISO 8601 with an offset, in quotes. Default: when they fired last,
            and 2026-01-01T00:00:00Z at first.
        answers: What a language model answers about episodes of this step or an earlier one: a
            list of triples, by the id of the episode. They hold until a later step states others.
    """

    episodes: Episodes
    expect: ExpectForm = ExpectForm()
    at: Instant | None = None
    answers: Answers = Field(default_factory=dict)


class CaseForm(Form):
    """One test: either `episodes` and `expect`, or `steps`.

    Attributes:
        name: What the test shows, unique in its file.
        rules: The ids of the rules that fire, enabled or not. Default: the enabled rules of the
            rule file with the same name, or of the directory if there is no such file.
        episodes: The episodes of a test with a single step, in the order in which they are put.
        expect: What the single step must lead to.
        at: When the rules fire in a test with a single step.
        answers: What a language model answers in a test with a single step: a list of triples, by
            the id of the episode. About an episode without an entry, it states nothing. No model is
            asked.
        steps: The steps of the test, one after the other on the same facts.
    """

    name: Text
    rules: Annotated[list[str], Field(min_length=1)] = Field(default_factory=list)
    episodes: Episodes = Field(default_factory=list)
    expect: ExpectForm = ExpectForm()
    at: Instant | None = None
    answers: Answers = Field(default_factory=dict)
    steps: Annotated[list[StepForm], Field(min_length=1)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if bool(self.steps) == bool(self.episodes):
            raise ValueError("exactly one of 'episodes' and 'steps' is needed")
        for key in ("expect", "at", "answers"):
            if self.steps and key in self.model_fields_set:
                raise ValueError(
                    f"{key!r} goes with 'episodes'; each entry of 'steps' has its own {key!r}"
                )
        if not any(step.expect.model_fields_set for step in self.script()):
            raise ValueError(
                "the test expects nothing; 'expect' needs 'deltas', 'filtered' or 'facts'"
            )
        return self

    def script(self) -> list[StepForm]:
        """Return the steps; the short form has exactly one."""
        return self.steps or [
            StepForm(episodes=self.episodes, expect=self.expect, at=self.at, answers=self.answers)
        ]


class CaseFile(Form):
    """A file of tests for rules of slumberd.

    Attributes:
        tests: The tests; each one runs on empty stores of its own.
    """

    tests: Annotated[list[CaseForm], Field(min_length=1)]
