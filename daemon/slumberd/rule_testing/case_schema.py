"""The form of the tests of rules: episodes, and what an author may expect of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from slumberd.config.validation import Form, Name
from slumberd.model.episode import Episode
from slumberd.rule_testing.comparison import Content, Entry, Part

_LAST_YEAR = 9998


def instant_in(text: str) -> datetime:
    """Return the instant that a checked timestamp names, in UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or at.year > _LAST_YEAR:
        raise ValueError
    return at.astimezone(UTC)


def _checked_instant(text: str) -> str:
    try:
        instant_in(text)
    except (ValueError, OverflowError) as error:
        problem = "is no instant; write ISO 8601 with an offset, as '2026-01-01T12:00:00Z'"
        raise ValueError(f"{text!r} {problem}") from error
    return text


Text = Annotated[str, Field(min_length=1)]
Instant = Annotated[str, AfterValidator(_checked_instant)]

_LIFTED = ("intent", "subject", "predicate", "object", "confidence", "replaces")
"""Keys of an episode's metadata that a test writes beside it."""


class EpisodeForm(Form):
    """One episode, as a test has it.

    Attributes:
        id: Its id; that of an episode of an earlier step makes it an edit.
        user: Whose episode it is.
        session: In which session.
        agent: With which agent.
        source_node: The node that wrote it.
        content: What happened, in the host's words.
        timestamp: ISO 8601 with an offset, in quotes. Else a minute after the latest episode so
            far, the first at 2026-01-01T00:00:00Z; an edit has that of what it edits.
        intent: ``add``, ``update``, ``delete`` or ``noop``; part of the metadata.
        subject: Part of the metadata.
        predicate: Part of the metadata.
        object: Any value; part of the metadata.
        confidence: 0 to 1; part of the metadata.
        replaces: The id of an earlier episode, or a list; part of the metadata.
        metadata: Whatever else it has.
    """

    id: Text
    user: Text = "user"
    session: Text = "session"
    agent: Text = "agent"
    source_node: str = "test"
    content: str = ""
    timestamp: Instant | None = None
    # Of any type: that a rule sets aside what cannot be read can be tested too.
    intent: Any = None
    subject: Any = None
    predicate: Any = None
    object: Any = None
    confidence: Any = None
    replaces: Any = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_each_thing_once(self) -> Self:
        if twice := [key for key in _LIFTED if key in self.metadata and key in self._given]:
            raise ValueError(f"key {twice[0]!r} stands in 'metadata' too; once is enough")
        return self

    @property
    def _given(self) -> set[str]:
        return self.model_fields_set

    def episode(self, at: datetime) -> Episode:
        """Return the episode that is meant, as of an instant."""
        lifted = self.model_dump(include={*_LIFTED} & self._given)
        scope = self.model_dump(include={"user", "session", "agent", "source_node", "content"})
        return Episode(id=self.id, timestamp=at, metadata=self.metadata | lifted, **scope)


class _NamedForm(Form):
    """An entry of an expectation: only the keys that are given are compared."""

    def entry(self) -> Entry:
        """Return what is named; of a list of ids the order does not matter."""
        named = self.model_dump(exclude_unset=True)
        return {k: sorted(v) if k in ("replaces", "episodes") else v for k, v in named.items()}


class DeltaForm(_NamedForm):
    """One delta that a step is to make; only the keys that are given are compared.

    Attributes:
        episode: The id of the episode that it comes from.
        rule: The id of the rule.
        channel: The channel.
        kind: What it does; ``quarantined`` when the episode could not be read.
        reason: Of a ``noop``: ``noop``, ``known``, ``stale``, ``retracted``, ``unresolved``,
            ``filtered`` or ``below_salience``; of what was quarantined, as ``intent_unknown``. Else
            null.
        fact: The id of the fact that it speaks of.
        replaces: The ids of all the facts that went.
    """

    episode: Text
    rule: Name | None = None
    channel: Name | None = None
    kind: Literal["add", "update", "delete", "noop", "quarantined"] | None = None
    reason: str | None = None
    fact: str | None = None
    replaces: list[str] = Field(default_factory=list)


class FactForm(_NamedForm):
    """One fact that is to stand after a step; only the keys that are given are compared.

    Attributes:
        id: Its id, which is that of its episode; outside of the channel ``facts`` ``@channel/id``.
        user: Whose it is.
        agent: Which agent learnt it.
        channel: The channel.
        subject: Of the triple.
        predicate: Of the triple.
        object: Of the triple; any value.
        confidence: 0 to 1.
        content: The content of its episode.
        episodes: The ids of the episodes that it comes from.
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
    def _names_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing is named; a fact needs a key, as 'id' or 'object'")
        return self


class ExpectForm(Form):
    """What is to come of a step; a key that is left out is not looked at.

    Attributes:
        deltas: Every delta that the step makes, in any order.
        filtered: The ids of the step's episodes that no rule takes, and of which no delta speaks.
        facts: Every fact that stands after the step, in any order.
    """

    deltas: list[DeltaForm] = Field(default_factory=list)
    filtered: list[str] = Field(default_factory=list)
    facts: list[FactForm] = Field(default_factory=list)

    def content(self) -> Content:
        """Return what is expected, by part."""
        parts: dict[Part, tuple[Entry, ...]] = {
            "deltas": tuple(one.entry() for one in self.deltas),
            "filtered": tuple({"episode": id} for id in self.filtered),
            "facts": tuple(one.entry() for one in self.facts),
        }
        return {part: entries for part, entries in parts.items() if part in self.model_fields_set}


Episodes = Annotated[list[EpisodeForm], Field(min_length=1)]


class StepForm(Form):
    """Some episodes, put together; then every rule fires, and the expectation is looked at.

    Attributes:
        episodes: In order.
        expect: May be left out where a later step expects something.
    """

    episodes: Episodes
    expect: ExpectForm = ExpectForm()


class CaseForm(Form):
    """One test: either `episodes` and `expect`, or `steps`.

    Attributes:
        name: What it shows; no other test of the file has it.
        rules: The ids of the rules that it is about, enabled or not. Else the enabled ones of the
            rule file with the same name; where there is none, of the directory.
        episodes: Of a test with a single step, in order.
        expect: What is to come of them.
        steps: One after the other, on the same facts.
    """

    name: Text
    rules: Annotated[list[str], Field(min_length=1)] = Field(default_factory=list)
    episodes: Episodes = Field(default_factory=list)
    expect: ExpectForm = ExpectForm()
    steps: Annotated[list[StepForm], Field(min_length=1)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_one_form_and_expects_something(self) -> Self:
        if bool(self.steps) == bool(self.episodes):
            raise ValueError("exactly one of 'episodes' and 'steps' is needed")
        if self.steps and "expect" in self.model_fields_set:
            raise ValueError("'expect' goes with 'episodes'; of 'steps', each has its own")
        if not any(step.expect.model_fields_set for step in self.script()):
            raise ValueError("nothing is expected; 'expect' needs 'deltas', 'filtered' or 'facts'")
        return self

    def script(self) -> list[StepForm]:
        """Return the steps; of the short form, its only one."""
        return self.steps or [StepForm(episodes=self.episodes, expect=self.expect)]


class CaseFile(Form):
    """One file of tests.

    Attributes:
        tests: Each on stores of its own.
    """

    tests: Annotated[list[CaseForm], Field(min_length=1)]
