"""The forms of the operations on one user's memory, and the values that they return."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)

from slumberd.config.validation import Form
from slumberd.model.episode_keys import KEY_PREFIX
from slumberd.model.record import Kind as RowKind
from slumberd.operations.forms import OperatorForm, RequestForm
from slumberd.retrieval.hits import Hit, Kind
from slumberd.retrieval.searcher import KINDS, OfSuperseded

MOST = 1_000
"""The most items of one page."""

MOST_SKIPPED = 1_000_000
"""The most episodes that a page leaves out; the store reads them all the same."""

MOST_EPISODES = 10_000
"""The most episodes of one request."""

MOST_NAME = 1_000
"""The longest name: of a user, an agent, a session, an episode, a key."""

MOST_CHARACTERS = 100_000
"""The longest text of an episode that an interface takes, and the longest question."""


def _read_instant(value: object) -> object:
    """Return the instant that a text names; any other value as it is, for the model to refuse."""
    if not isinstance(value, str):
        return value
    try:
        at = datetime.fromisoformat(value)
        at.astimezone(UTC)  # a year before 1 or after 9999 has no instant
    except (ValueError, OverflowError):
        return value
    return at if at.tzinfo else value


def _list_of_kinds(value: object) -> object:
    """Return kinds as a list; a single one may stand without it."""
    return [_singular(one) for one in value] if isinstance(value, list) else [_singular(value)]


def _singular(value: object) -> object:
    """Return the kind that the command line calls by its plural; any other value as it is."""
    return value[:-1] if value in ("episodes", "facts") else value


def _refuse_prefix(id: str) -> str:
    if id.startswith(KEY_PREFIX):
        raise ValueError(
            f"it begins with {KEY_PREFIX!r}, as only ids made from a key do; give `key`"
        )
    return id


Limit = Annotated[int, Field(ge=1, le=MOST)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
NewId = Annotated[Name, AfterValidator(_refuse_prefix)]
"""An id that a caller chooses for an episode."""
LongText = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Instant = Annotated[AwareDatetime, BeforeValidator(_read_instant)]
"""ISO 8601 with an offset; JSON has no instants, so a strict check takes their text."""


class ScopedForm(RequestForm):
    """The fields of every request about one user's memory.

    Attributes:
        user: The user; by default the caller's own.
        agent: The agent; by default the caller's own, else all.
    """

    user: Name | None = None
    agent: Name | None = None


class ReadForm(ScopedForm):
    """The fields of every request that reads one user's memory.

    Attributes:
        all_agents: Whether the memories of all agents of the user are read; give no agent then.
    """

    all_agents: bool = False


class TripleForm(BaseModel):
    """One thing that an episode says.

    Attributes:
        subject: What it is about.
        predicate: What it says of it.
        object: The value; any JSON.
        confidence: 0 to 1.
        intent: ``add``; ``delete`` to retract; ``set`` to replace every older value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: Name
    predicate: Name
    object: JsonValue = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    intent: Literal["add", "update", "delete", "set"] | None = None


class EpisodeForm(Form):
    """One new episode.

    Attributes:
        text: What happened.
        triples: What it says, as triples.
        when: When it was said; by default now. An instant that is still to come is refused.
        key: A name of the caller's own for the episode, of this user and agent alone. The same
            key, text, metadata and session again change nothing; other content is a new version.
        id: The id of the episode, which no other user may have; prefer ``key``. The same id and
            text again change nothing. By default a new one.
        session: The conversation; by default ``default``.
        speaker: Who said it; by default whom ``metadata`` name, else ``user``, by MCP ``agent``.
        metadata: Any other keys.
    """

    text: LongText
    triples: Annotated[list[TripleForm], Field(max_length=MOST, default_factory=list)]
    when: Instant | None = None
    key: Name | None = None
    id: NewId | None = None
    session: Name | None = None
    speaker: Name | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class TurnForm(BaseModel):
    """A turn of a transcript.

    Attributes:
        id: The id of its episode.
        text: What was said.
        session: The conversation.
        speaker: Who said it.
        when: When it was said; None when the transcript does not say.
        is_copy: Whether another transcript has the turn, too; then a stored one stays as it is.
        withdrawn: Whether its speaker took it back, or said it again after that; by default a
            stored turn stays as it is in this.
        forgotten: Whether the person asked to forget it; then a stored turn loses its text for
            ever, and one that is not stored is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Name
    text: LongText
    session: Name
    speaker: Name
    when: Instant | None = None
    is_copy: bool = False
    withdrawn: bool | None = None
    forgotten: bool = False


Count = Annotated[int, Field(ge=0, le=2**62)]


class TranscriptForm(ScopedForm):
    """The request ``transcript``: how a hook read a transcript, and one turn of it.

    Attributes:
        session: The conversation.
        coding_agent: The coding agent that wrote the transcript.
        agent_version: The agent's version; empty when the transcript does not say.
        transcript: The path of the transcript.
        lines: How many lines were read.
        person: How many turns of a person were found.
        assistant: How many turns of the agent were found.
        unknown: How many lines hold what the hook does not know, by its kind.
        turn: The turn that is put; None for none.
    """

    session: Name
    coding_agent: Name
    transcript: Annotated[str, Field(max_length=10_000)]
    agent_version: Annotated[str, Field(max_length=100)] = ""
    lines: Count = 0
    person: Count = 0
    assistant: Count = 0
    unknown: Annotated[dict[str, Count], Field(max_length=100, default_factory=dict)]
    turn: TurnForm | None = None


class RememberForm(EpisodeForm, ScopedForm):
    """The request ``remember``: an episode.

    Attributes:
        idempotency_key: As ``key``, but other content is refused.
        seconds: How long the answer may wait for what becomes of the episode, 0 to 60. It never
            waits for a rule that is not due, and needs the right to read.
    """

    idempotency_key: Name | None = None
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class PutManyForm(ScopedForm):
    """The request ``put_many``: new episodes of one user and agent, all or none.

    Attributes:
        session: The conversation of the episodes that name none; by default ``default``.
        episodes: The episodes, at most 10,000.
    """

    session: Name | None = None
    episodes: Annotated[list[EpisodeForm], Field(max_length=MOST_EPISODES)]


class RecallForm(ReadForm):
    """The request ``recall``: a question.

    Attributes:
        query: The question, in any words.
        kinds: What is searched; by default both.
        session: Only episodes of this session, and no facts.
        as_of: Only episodes up to this instant, and what was true then; by default now.
        limit: At most this many.
        min_score: The least score, 0 to 1.
    """

    query: LongText
    kinds: Annotated[
        list[Kind],
        BeforeValidator(_list_of_kinds),
        Field(min_length=1, default_factory=lambda: [*KINDS]),
    ]
    session: Name | None = None
    as_of: Instant | None = None
    limit: Limit = 10
    min_score: Annotated[float, Field(ge=0, le=1)] = 0.0


class ContextForm(ReadForm):
    """The request ``context``: a question, and a budget in tokens.

    Attributes:
        question: The question that is to be answered.
        budget: At most this many tokens.
        session: The conversation whose latest turns are taken; by default those of all.
        as_of: Only what was known at this instant; by default now.
        superseded: ``mark`` says at an episode what took the place of its claims; ``omit`` also
            leaves out an episode none of whose claims is current.
    """

    question: LongText
    budget: Annotated[int, Field(ge=0, le=1_000_000)] = 4_096
    session: Name | None = None
    as_of: Instant | None = None
    superseded: OfSuperseded = "mark"


class EpisodesForm(ReadForm):
    """The request ``episodes``: the latest ones.

    Attributes:
        id: Only this episode.
        session: Only episodes of this session.
        limit: At most this many.
        skip: So many of the latest ones are left out.
    """

    id: Name | None = None
    session: Name | None = None
    limit: Limit = 20
    skip: Annotated[int, Field(ge=0, le=MOST_SKIPPED)] = 0


class FactsForm(ReadForm):
    """The request ``facts``: a page of the facts that match.

    Attributes:
        id: Only this fact.
        subject: Only with this subject.
        subject_prefix: Only with a subject that begins with this text.
        predicate: Only with this predicate.
        valid_at: What was true at this instant; by default now.
        believed_at: What was known at this instant; by default now.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    id: Name | None = None
    subject: Name | None = None
    subject_prefix: Name | None = None
    predicate: Name | None = None
    valid_at: Instant | None = None
    believed_at: Instant | None = None
    limit: Limit = 100
    cursor: Annotated[str, Field(max_length=10_000)] | None = None


class CorrectForm(ScopedForm):
    """The request ``correct``: a fact, by its id or by subject and predicate.

    It has either ``object``, the right value, or ``retract``. By subject and predicate it concerns
    every value: the right one replaces them all.

    Attributes:
        fact: The id of a fact.
        subject: What it is about, when no id is given.
        predicate: What it says of it, when no id is given.
        object: The right value; any JSON.
        retract: Whether the fact is wrong, and there is no right value.
        reason: Why; the ledger keeps it.
        if_version: The version of the fact that the author of the correction saw.
        dry_run: Whether nothing is written.
    """

    fact: Name | None = None
    subject: Name | None = None
    predicate: Name | None = None
    object: JsonValue = None
    retract: bool = False
    reason: Name
    if_version: Name | None = None
    dry_run: bool = False


class ExplainForm(ReadForm):
    """The request ``explain``: the id of a fact or of an episode.

    Attributes:
        id: The fact or the episode.
        kind: What it is: most facts have the id of their episode. By default a fact that is
            current, else an episode; ``fact`` also explains a fact that is not current any more.
    """

    id: Name
    kind: Annotated[Kind | None, BeforeValidator(_singular)] = None


class OutcomeForm(ReadForm):
    """The request ``outcome``: the id of an episode, and how long to wait for it, in seconds."""

    id: Name
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class ChangesForm(ScopedForm, OperatorForm):
    """The request ``changes``: rows of the ledger, oldest first.

    Attributes:
        after: Only rows after this number.
        kinds: Only rows of these kinds; None for all.
        limit: At most this many rows are looked at.
        seconds: How long to wait for a row, when there is none.
    """

    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    kinds: list[RowKind] | None = None
    limit: Limit = 100
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class HeldForm(OperatorForm):
    """The request ``held``: the batches that await approval."""


class Result(BaseModel):
    """The base of what operations return: frozen, with the JSON form as `model_dump` gives it."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.model_dump(mode="json")


Became = Literal[
    "learned",
    "retracted",
    "replaced",
    "known",
    "no_effect",
    "quarantined",
    "held",
    "unanswered",
    "due",
    "waiting",
    "paused",
    "said_nothing",
    "speaker_unknown",
    "other_speaker",
    "filtered",
    "below_salience",
    "withdrawn",
    "undone",
    "erased",
    "disabled",
    "skipped",
]
"""What became of an episode, in one word. Of several words, the one that comes first here counts:
what was learned first, then what may still come, then why nothing was learned."""

NO_RULE = "not read: no rule reads episodes"
"""The sentence without any rule."""


class FactOfEpisode(Result):
    """What an episode says in one fact.

    Attributes:
        id: The fact.
        subject: What it is about; None for a fact of text alone.
        predicate: What it says of it.
        object: The value; any JSON.
        became: What became of it: ``learned``, ``retracted``, ``replaced`` or ``known``.
        current: Whether it is current.
    """

    id: str
    subject: JsonValue = None
    predicate: JsonValue = None
    object: JsonValue = None
    became: Became
    current: bool


class ResultOfRule(Result):
    """What became of an episode under one rule, in one channel of facts.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        became: What became of it, in one word, such as ``learned`` or ``said_nothing``.
        sentence: The same in a sentence.
        facts: What it says, fact by fact.
    """

    rule_id: str
    channel: str
    became: Became
    sentence: str
    facts: list[FactOfEpisode]


class Remembered(Result):
    """An episode that was put.

    Attributes:
        id: The episode.
        state: Whether it is new, a new version, or was there already; ``left_out`` when nothing is
            stored, because the person asks not to remember it; ``erased`` when nothing is stored,
            because it was erased by its id before.
        masked: How many secrets of each kind were masked in it; absent when there was none.
        forget: What the person asks to forget: this turn, or ``that``, the turn before too; absent
            for nothing.
        became: What became of it, in one word, as `Outcome.became`; absent when nothing is known.
        sentence: The same in a sentence.
        results: By rule and channel, as `Outcome.results`; absent unless the request waits.
    """

    id: str
    state: Literal["new", "changed", "unchanged", "erased", "left_out"]
    masked: dict[str, int] = {}
    forget: Literal["this", "that"] | None = None
    became: Became | None = None
    sentence: str = ""
    results: list[ResultOfRule] = []

    def document(self) -> dict[str, Any]:
        """Return the JSON form; what has nothing to say is left out."""
        stated = self.model_dump(mode="json", exclude_defaults=True)
        results = {"results": [one.document() for one in self.results]} if self.results else {}
        return {**stated, **results}


class TranscriptRead(Result):
    """How a turn of a transcript was put.

    Attributes:
        id: Its episode; None without a turn.
        state: As `Remembered.state`; None without a turn.
        masked: As `Remembered.masked`.
        forget: As `Remembered.forget`.
        became: As `Remembered.became`.
        sentence: As `Remembered.sentence`.
    """

    id: str | None = None
    state: Literal["new", "changed", "unchanged", "erased", "left_out"] | None = None
    masked: dict[str, int] = {}
    forget: Literal["this", "that"] | None = None
    became: Became | None = None
    sentence: str = ""

    def document(self) -> dict[str, Any]:
        """Return the JSON form; masks and requests that are not there are left out."""
        stated = self.model_dump(mode="json", exclude_defaults=True)
        return {"id": self.id, "state": self.state, **stated}


class RememberedList(Result):
    """The episodes that were put, in the order of the request."""

    episodes: list[Remembered]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, each episode as `Remembered` has it."""
        return {"episodes": [one.document() for one in self.episodes]}


class Hits(Result):
    """The answer to a question, best first."""

    hits: list[Hit]


class ContextText(Result):
    """What an agent takes with it.

    Attributes:
        text: The items, quoted one a line; empty when nothing fits.
        items: The same: the facts, best first, then the episodes, oldest first.
        tokens: How many tokens the text has.
        budget: How many it might have.
    """

    text: str
    items: list[Hit]
    tokens: int
    budget: int


class KnownFact(Result):
    """A current fact.

    Attributes:
        id: Its id.
        user: Whose it is.
        agent: Who knows it.
        payload: ``subject``, ``predicate``, ``object``, and what else the fact holds.
        lineage: Where it comes from.
        confidence: 0 to 1.
        said_at: When it was said.
        pinned_at: When it was promoted.
        metadata: Free form.
        version: Changes whenever the fact changes.
    """

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    lineage: list[dict[str, Any]]
    confidence: float
    said_at: datetime
    pinned_at: datetime
    metadata: dict[str, Any]
    version: str


class FactPage(Result):
    """A page of facts.

    Attributes:
        facts: The facts.
        next: The cursor of the next page; None at the end.
    """

    facts: list[KnownFact]
    next: str | None


class KnownEpisode(Result):
    """A stored episode.

    Attributes:
        source_node: The node, or the interface, that wrote it.
        speaker: Who spoke; None when nobody is known to have spoken.
    """

    id: str
    content: str
    timestamp: datetime
    source_node: str
    speaker: str | None = None
    user: str
    agent: str
    session: str
    metadata: dict[str, Any]


class EpisodeList(Result):
    """The latest episodes, newest first."""

    episodes: list[KnownEpisode]


class Correction(Result):
    """What a correction changed.

    Attributes:
        fact_ids: The facts that are asserted or retracted.
        firing_id: The firing that the ledger records, which `slumberd undo` takes back; None when
            nothing changed, or for a dry run.
        counts: How many deltas of each kind.
    """

    fact_ids: list[str]
    firing_id: str | None
    counts: dict[str, int]


class Erasure(Result):
    """A plan to erase, or the certificate of an erasure.

    Attributes:
        done: Whether the scope is erased.
        plan: The hash of what is erased.
        certificate: What is erased, and what is out of reach.
    """

    done: bool
    plan: str
    certificate: dict[str, Any]


class RuleOutcome(Result):
    """What became of an episode under one rule, in one channel.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        outcome: Such as ``add``, ``pending``, ``filtered`` or ``quarantined``.
        reason: Why.
        fact_id: The fact that it may have made.
        current: Whether that fact is current.
        would_change: What would change the outcome.
    """

    rule_id: str
    channel: str
    outcome: str
    reason: str
    fact_id: str
    current: bool
    would_change: str


class Outcome(Result):
    """What became of an episode.

    Attributes:
        id: The episode.
        settled: Whether every enabled rule has evaluated its newest version.
        rules: By rule, channel and fact.
        became: What became of it, in one word: the one of `results` that says most; ``skipped``
            when no rule reads episodes.
        sentence: The same in a sentence.
        results: By rule and channel.
    """

    id: str
    settled: bool
    rules: list[RuleOutcome]
    became: Became = "skipped"
    sentence: str = NO_RULE
    results: list[ResultOfRule] = []


class Explained(Result):
    """Why a fact is current, or what became of an episode.

    Attributes:
        id: The fact or the episode.
        kind: What it is.
        explanation: As `slumberd why --json` and `slumberd why-not --json` print it.
    """

    id: str
    kind: Kind
    explanation: dict[str, Any]


class Change(Result):
    """One row of the ledger.

    Attributes:
        seq: Its number.
        at: When.
        kind: What it did, or ``firing``.
        firing_id: The firing.
        rule_id: The rule.
        fact_id: The fact; empty for a firing.
        replaces: The facts that it removed.
        episode_ids: The episodes that it comes from.
        reason: Why it changed nothing, if so.
        confidence: 0 to 1.
        user: Whose it is; empty when it is not known any more.
        agent: Who knows it; empty as `user`.
    """

    seq: int
    at: datetime
    kind: str
    firing_id: str
    rule_id: str
    fact_id: str
    replaces: list[str]
    episode_ids: list[str]
    reason: str
    confidence: float
    user: str
    agent: str


class ChangePage(Result):
    """Rows of the ledger.

    Attributes:
        changes: The rows, oldest first.
        last: The number to go on after.
        more: Whether there are more rows after it now.
    """

    changes: list[Change]
    last: int
    more: bool


class Held(Result):
    """A batch that awaits approval."""

    firing_id: str
    rule_id: str
    problem: str
    approved: bool


class HeldList(Result):
    """The batches that await approval."""

    held: list[Held]
