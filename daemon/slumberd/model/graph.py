"""What a graph answers: rows, and references to the nodes and paths in them.

Triples: what the rows of a graph say, read strictly, and the facts that they become.

A row that is not whole is refused by its number: a fact of nothing, or of a confidence that
nobody gave, would be worse than none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from slumberd.errors import PromotionError
from slumberd.model.fact import Fact
from slumberd.model.fact_ids import fact_id_of
from slumberd.model.rule import FACTS


class NodeRef(BaseModel):
    """A node of a graph.

    Attributes:
        id: Unique within its graph.
        kind: Its label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: str


class GraphPath(BaseModel):
    """A way through a graph.

    Attributes:
        nodes: In order.
        edges: Those between them, in order; each with what its graph tells of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: list[NodeRef]
    edges: list[dict[str, Any]] = Field(default_factory=list)


class ResultSet(BaseModel):
    """What a query found.

    Attributes:
        rows: One value for each column, by name; in the order of the query.
        columns: Their names, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: list[dict[str, Any]] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)


PARTS = ("subject", "predicate", "object")
"""The columns that a query must return; ``confidence`` and ``triple_id`` it may."""

MOST_ROWS = 100_000
"""Rows that one promotion takes at most; they are in memory at once."""

LONGEST = 65_536
"""Characters of one part at most."""

_ID_DIGITS = 32


class Triple(NamedTuple):
    """What one row says.

    Attributes:
        id: The graph's own name for it, or subject, predicate and object joined.
        subject: Of whom or what.
        predicate: What is said.
        object: As text.
        confidence: 0 to 1.
    """

    id: str
    subject: str
    predicate: str
    object: str
    confidence: float


class Owner(NamedTuple):
    """Whose the facts of a promotion are, and where they come from.

    Attributes:
        rule_id: The rule.
        user: May be empty; then no query by user finds them.
        agent: May be empty.
        source: The kind of graph, as an identifier.
        channel: Where the facts go.
    """

    rule_id: str
    user: str
    agent: str
    source: str
    channel: str = FACTS


def triple_id(*parts: str) -> str:
    """Return the id of a triple that its graph gives none; no two triples share one."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)


def triples_in(rows: Sequence[Mapping[str, Any]], rule_id: str) -> list[Triple]:
    """Read rows; those that say the very same are one.

    Args:
        rows: In any order.
        rule_id: The rule, for errors.

    Raises:
        PromotionError: There are more than `MOST_ROWS`, a row is not whole, or two rows of one id
            say different things.
    """
    if len(rows) > MOST_ROWS:
        problem = f"more than {MOST_ROWS:,} rows; narrow the query, or split the rule"
        raise PromotionError(rule_id, problem)
    found: dict[str, tuple[int, Triple]] = {}
    for number, row in enumerate(rows, 1):
        triple = _read(row, _Place(rule_id, number))
        first, known = found.setdefault(triple.id, (number, triple))
        if known != triple:
            problem = f"has the id {triple.id!r} of row {first} and says something else"
            raise PromotionError(rule_id, problem, row=number)
    return [triple for _, triple in found.values()]


class _Place(NamedTuple):
    """The row that is read."""

    rule_id: str
    row: int

    def refuse(self, problem: str) -> PromotionError:
        return PromotionError(self.rule_id, problem, row=self.row)


def _read(row: Mapping[str, Any], place: _Place) -> Triple:
    subject, predicate, what = (_part(row, name, place) for name in PARTS)
    confidence = _confidence(row.get("confidence"), place)
    given = row.get("triple_id")
    own = triple_id(subject, predicate, what) if given is None else _text(given, "triple_id", place)
    return Triple(own, subject, predicate, what, confidence)


def _part(row: Mapping[str, Any], name: str, place: _Place) -> str:
    if name not in row:
        known = ", ".join(map(str, row)) or "none"
        problem = f"has no column {name!r}, only {known}; return something AS {name}"
        raise place.refuse(problem)
    if row[name] is None:
        problem = f"{name!r} is null; leave such rows out with WHERE ... IS NOT NULL"
        raise place.refuse(problem)
    return _text(row[name], name, place)


def _text(value: object, name: str, place: _Place) -> str:
    match value:
        case str():
            text = value
        case bool() | int() | Decimal() | date() | datetime() | UUID():
            text = str(value)
        case float() if math.isfinite(value):
            text = str(value)
        case _:
            kind = type(value).__name__
            problem = f"{name!r} is a {kind}, not a plain value; return a property of it"
            raise place.refuse(problem)
    if not text.strip() or len(text) > LONGEST:
        problem = "is empty" if not text.strip() else f"is longer than {LONGEST:,} characters"
        raise place.refuse(f"{name!r} {problem}")
    if not is_storable(text):
        raise place.refuse(f"{name!r} holds NUL or no valid Unicode")
    return text


def is_storable(text: str) -> bool:
    """Say whether a text can be kept as it is: it holds no NUL and no half of a character."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def _confidence(value: object, place: _Place) -> float:
    if value is None:
        return 1.0
    try:
        return confidence_in(value)
    except ValueError as error:
        raise place.refuse(f"'confidence' {error}") from None


def confidence_in(value: object) -> float:
    """Return a confidence that is given as a number, or as the text of one.

    Raises:
        ValueError: It is something else, or lies outside 0..1; the message says which.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError(f"is a {type(value).__name__}, not a number in 0..1")  # noqa: TRY004 # and so is a wrong number
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"is {value!r}, not a number in 0..1") from None
    if not number.is_finite() or not 0 <= number <= 1:
        raise ValueError(f"is {value!r}, outside of 0..1")
    return float(number)


def fact_id_for(triple: Triple, owner: Owner) -> str:
    """Return the id of the fact that a triple becomes: ever the same for the same owner."""
    told = orjson.dumps([owner.rule_id, owner.user, owner.agent, triple.id])
    digest = hashlib.sha256(told).hexdigest()[:_ID_DIGITS]
    return fact_id_of(owner.channel, f"graph:{digest}")


def facts_of(triples: Iterable[Triple], owner: Owner, at: datetime) -> list[Fact]:
    """Return the facts that triples become, promoted at an instant."""
    return [_fact(triple, owner, at) for triple in triples]


def _fact(triple: Triple, owner: Owner, at: datetime) -> Fact:
    entry = {
        "triple_id": triple.id,
        "rule_id": owner.rule_id,
        "agent_id": owner.agent,
        "promotion_ts": at.isoformat(),
    }
    payload = {
        "subject": triple.subject,
        "predicate": triple.predicate,
        "object": triple.object,
        "source": owner.source,
    }
    return Fact(
        id=fact_id_for(triple, owner),
        user=owner.user,
        agent=owner.agent,
        payload=payload,
        lineage=[entry],
        confidence=triple.confidence,
        pinned_at=at,
    )
