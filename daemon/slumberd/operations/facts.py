"""Read facts, of one user or of all, and their history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from slumberd.consolidation.key_history import ValuePeriod
from slumberd.model.errors import MemoryScopeError, NoInputError, PatternError, UsageError
from slumberd.model.fact import Fact, FactPattern, Order
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix, require_texts
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller, Right
from slumberd.operations.example_values import AT, HASH
from slumberd.operations.forms import (
    Instant,
    Limit,
    Name,
    OperatorForm,
    ReadForm,
    Result,
    reading_scope,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.responses import as_json, fact_document
from slumberd.rules.validation import tag
from slumberd.storage.facts.store import EngineFactStore

_VERSION_CHARACTERS = 16


FACT: dict[str, Any] = {
    "id": "e1",
    "user": "ana",
    "agent": "desk",
    "payload": {"subject": "ana", "predicate": "lives_in", "object": "Lisbon"},
    "lineage": [{"kind": "episode", "rule_id": "home", "source_episode_ids": ["e1"]}],
    "confidence": 1.0,
    "said_at": AT,
    "pinned_at": AT,
    "metadata": {},
    "version": HASH,
}


PERIOD: dict[str, Any] = {
    "fact_id": "e1",
    "payload": FACT["payload"],
    "begins_at": AT,
    "ends_at": None,
}


class HistoryForm(ReadForm):
    """The request ``history``: the id of a fact, which need not be current.

    Attributes:
        id: The fact.
        limit: At most this many periods of each clock, the latest ones.
    """

    id: Name
    limit: Limit = 100


class Period(Result):
    """A period in which a fact was current.

    Attributes:
        fact_id: The fact.
        payload: ``subject``, ``predicate``, ``object``, and the other fields of the fact.
        begins_at: When it became current.
        ends_at: When it ceased to be current; None when it is current now.
    """

    fact_id: str
    payload: dict[str, Any]
    begins_at: datetime
    ends_at: datetime | None


class FactHistory(Result):
    """Which facts of the same subject and predicate were current, and when.

    Attributes:
        id: The fact.
        user: Whose it is.
        agent: Who knows it.
        payload: What the fact says, or said last.
        valid: What was true, as slumberd knows now; the earliest period first.
        believed: What was known, as the ledger recorded it; the earliest period first.
        cut: Whether there are earlier periods.
    """

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    valid: list[Period]
    believed: list[Period]
    cut: bool


_TEXT = tag("text")


def _tag_of(given: object) -> str | None:
    """Return which form of a slot some JSON is; None when it is none."""
    if isinstance(given, str):
        return _TEXT
    return tag(*given) if isinstance(given, dict) and len(given) == 1 else None


def _one_form(names: str) -> Discriminator:
    needed = f"a text is needed, or one key: {names}"
    return Discriminator(_tag_of, custom_error_type="slot", custom_error_message=needed)


_Text = (
    Annotated[str, Tag(_TEXT)]
    | Annotated[Prefix, Tag(tag("prefix"))]
    | Annotated[Glob, Tag(tag("glob"))]
    | Annotated[Matches, Tag(tag("matches"))]
    | Annotated[OneOf, Tag(tag("one_of"))]
)
TextSlot = Annotated[_Text, _one_form("prefix, glob, matches or one_of")]
ObjectSlot = Annotated[
    _Text | Annotated[Equals, Tag(tag("equals"))],
    _one_form("prefix, glob, matches, one_of or equals"),
]


class Conditions(BaseModel):
    """What slots of a fact must match: a text, or a form of `slumberd.model.pattern`.

    Attributes:
        subject: What it is about.
        predicate: What it says of it.
        object: The value; ``equals`` and ``one_of`` take any JSON there.
        user: Whose it is; only of an operator who names no user.
        agent: Who knows it.
        id: Its id.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    subject: TextSlot | None = None
    predicate: TextSlot | None = None
    object: ObjectSlot | None = None
    user: TextSlot | None = None
    agent: TextSlot | None = None
    id: TextSlot | None = None

    _are_texts = field_validator("subject", "predicate", "user", "agent", "id")(require_texts)


class FactsForm(ReadForm, OperatorForm):
    """The request ``facts``: a page of the facts that match.

    Attributes:
        id: Only this fact.
        subject: Only with this subject.
        subject_prefix: Only with a subject that begins with this text.
        predicate: Only with this predicate.
        where: Only where slots match a prefix, a glob, a regular expression or one of several
            values; the query of an address cannot say this.
        channel: Only of this channel; by default of all but ``marks`` and ``weights``.
        extracted_by: Only what this pattern or function found in a text.
        min_confidence: Only with at least this confidence, 0 to 1.
        max_confidence: Only with at most this confidence.
        said_since: Only said at this instant or later.
        said_until: Only said before this instant.
        valid_at: What was true at this instant; by default now.
        believed_at: What was known at this instant; by default now.
        order: What the facts are sorted by, then by id.
        descending: Whether the order is reversed.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    id: Name | None = None
    subject: Name | None = None
    subject_prefix: Name | None = None
    predicate: Name | None = None
    where: Conditions | None = None
    channel: Name | None = None
    extracted_by: Name | None = None
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    max_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    said_since: Instant | None = None
    said_until: Instant | None = None
    valid_at: Instant | None = None
    believed_at: Instant | None = None
    order: Order = "id"
    descending: bool = False
    limit: Limit = 100
    cursor: Annotated[str, Field(max_length=10_000)] | None = None

    def pattern(self, scope: ScopeFilter | None) -> FactPattern:
        """Return the pattern of the facts within a scope; None for all users.

        Raises:
            UsageError: The request says twice what a slot must match.
        """
        if self.subject is not None and self.subject_prefix is not None:
            raise UsageError("facts: give a subject or a prefix of subjects; not both")
        prefix = self.subject_prefix
        slots: dict[str, Any] = {
            "user": None if scope is None else scope.user,
            "agent": None if scope is None else scope.agent,
            "id": self.id,
            "subject": self.subject if prefix is None else Prefix(prefix),
            "predicate": self.predicate,
        }
        for slot, form in self.where or ():
            if form is not None and slots.get(slot) is not None:
                raise UsageError(f"facts: where: {slot}: the request says it already")
            slots[slot] = slots.get(slot) if form is None else form
        return FactPattern(
            **slots,
            channel=self.channel,
            extracted_by=self.extracted_by,
            min_confidence=self.min_confidence,
            max_confidence=self.max_confidence,
            said_since=self.said_since,
            said_until=self.said_until,
            order=self.order,
            descending=self.descending,
            limit=self.limit,
            after=self.cursor,
        )


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


class FoundFacts(NamedTuple):
    """Facts that match a pattern; interfaces get them as a `FactPage`.

    Attributes:
        facts: The facts, in the order of the pattern.
    """

    facts: list[Fact]
    pattern: FactPattern

    def cursor_after(self, fact: Fact) -> str | None:
        """Return the cursor of the page that begins after a fact."""
        return self.pattern.following(fact).after

    def document(self) -> Answer:
        """Return the JSON form."""
        full = len(self.facts) == self.pattern.limit
        following = self.cursor_after(self.facts[-1]) if full else None
        return FactPage(facts=[*map(_known, self.facts)], next=following).document()


class FactReads:
    """Runs requests that read facts."""

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, PatternError),
        example=Example({"predicate": "lives_in", "limit": 10}, {"facts": [FACT], "next": None}),
    )
    async def facts(self, request: FactsForm, caller: Caller) -> Annotated[FoundFacts, FactPage]:
        """Return a page of current facts, by id.

        An operator who names no user gets those of all users.

        Raises:
            PatternError: The cursor, a glob or a regular expression is invalid.
            UsageError: The request says twice what a slot must match.
        """
        pattern = request.pattern(reading_scope(request, caller))
        found = await self._facts.query(
            pattern, valid_at=request.valid_at, believed_at=request.believed_at
        )
        return FoundFacts(found, pattern)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1"},
            {
                "id": "e1",
                "user": "ana",
                "agent": "desk",
                "payload": FACT["payload"],
                "valid": [PERIOD],
                "believed": [PERIOD],
                "cut": False,
            },
        ),
    )
    async def history(self, request: HistoryForm, caller: Caller) -> FactHistory:
        """Return which facts of the same subject and predicate were current, and when.

        Raises:
            NoInputError: The scope has never had such a fact.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._facts.history(request.id, scope, most=request.limit)
        return FactHistory(
            id=request.id,
            user=found.user,
            agent=found.agent,
            payload={**found.payload},
            valid=_periods(found.valid),
            believed=_periods(found.believed),
            cut=found.cut,
        )


def version_of(fact: Fact) -> str:
    """Return a text that changes whenever a fact changes."""
    document = orjson.dumps(as_json(fact_document(fact)), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(document).hexdigest()[:_VERSION_CHARACTERS]


def _known(fact: Fact) -> KnownFact:
    return KnownFact(**fact_document(fact), version=version_of(fact))


def _periods(periods: Iterable[ValuePeriod]) -> list[Period]:
    return [
        Period(
            fact_id=period.fact_id,
            payload={**period.payload},
            begins_at=period.begins_at,
            ends_at=period.ends_at,
        )
        for period in periods
    ]
