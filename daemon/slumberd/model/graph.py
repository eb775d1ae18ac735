"""Results of graph queries, and the triples in them, which become facts.

Rows are read strictly: an incomplete row is refused by its number and never becomes a fact.
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

from slumberd.model.errors import PromotionError
from slumberd.model.fact import Fact
from slumberd.model.scope import FACTS, fact_id_of
from slumberd.model.texts import is_storable


class NodeRef(BaseModel):
    """A node of a graph.

    Attributes:
        id: Unique within its graph.
        kind: Its label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    kind: str


class GraphPath(BaseModel):
    """A path through a graph.

    Attributes:
        nodes: Its nodes, in order.
        edges: The properties of the edges between them, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    nodes: list[NodeRef]
    edges: list[dict[str, Any]] = Field(default_factory=list)


class ResultSet(BaseModel):
    """The result of a query.

    Attributes:
        rows: One value for each column, by name; in the order of the query.
        columns: The names of the columns, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rows: list[dict[str, Any]] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)


PARTS = ("subject", "predicate", "object")
"""The columns that a query must return; ``confidence`` and ``triple_id`` are optional."""

MOST_ROWS = 100_000
"""The most rows of one promotion; they are in memory at once."""

LONGEST = 65_536
"""The most characters of one part."""

_ID_DIGITS = 32


class GraphTriple(NamedTuple):
    """The triple of one row.

    Attributes:
        id: The graph's own id of it, or subject, predicate and object joined.
        object: Its object, as text.
        confidence: 0 to 1.
    """

    id: str
    subject: str
    predicate: str
    object: str
    confidence: float


class Owner(NamedTuple):
    """The owner and the origin of the facts of a promotion.

    Attributes:
        user: The facts' user. It may be empty; then no query by user finds them.
        agent: The facts' agent. It may be empty.
        source: The kind of graph, as an identifier.
        channel: The facts' channel.
    """

    rule_id: str
    user: str
    agent: str
    source: str
    channel: str = FACTS


def triple_id(*parts: str) -> str:
    """Return an id for a triple without one of its graph; no two triples share an id."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)


def triples_in(rows: Sequence[Mapping[str, Any]], rule_id: str) -> list[GraphTriple]:
    """Read the triples of rows; equal triples count once.

    Args:
        rows: In any order.
        rule_id: The rule, for errors.

    Raises:
        PromotionError: There are more than `MOST_ROWS`, a row is incomplete, or two rows of one
            id differ.
    """
    if len(rows) > MOST_ROWS:
        problem = f"more than {MOST_ROWS:,} rows; narrow the query, or split the rule"
        raise PromotionError(rule_id, problem)
    found: dict[str, tuple[int, GraphTriple]] = {}
    for number, row in enumerate(rows, 1):
        triple = _read(row, _Place(rule_id, number))
        first, known = found.setdefault(triple.id, (number, triple))
        if known != triple:
            problem = f"has the id {triple.id!r} of row {first} and says something else"
            raise PromotionError(rule_id, problem, row=number)
    return [triple for _, triple in found.values()]


class _Place(NamedTuple):
    """The rule and the row that are being read, for errors."""

    rule_id: str
    row: int

    def refuse(self, problem: str) -> PromotionError:
        """Return the error that refuses the row."""
        return PromotionError(self.rule_id, problem, row=self.row)


def _read(row: Mapping[str, Any], place: _Place) -> GraphTriple:
    subject, predicate, what = (_part(row, name, place) for name in PARTS)
    confidence = _confidence(row.get("confidence"), place)
    given = row.get("triple_id")
    own = triple_id(subject, predicate, what) if given is None else _text(given, "triple_id", place)
    return GraphTriple(own, subject, predicate, what, confidence)


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


def _confidence(value: object, place: _Place) -> float:
    if value is None:
        return 1.0
    try:
        return confidence_in(value)
    except ValueError as error:
        raise place.refuse(f"'confidence' {error}") from None


def confidence_in(value: object) -> float:
    """Return a confidence that is given as a number, or as the text of a number.

    Raises:
        ValueError: It is not a number, or lies outside 0..1.
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


def fact_id_for(triple: GraphTriple, owner: Owner) -> str:
    """Return the id of a triple's fact; it is always the same for the same owner."""
    identity = orjson.dumps([owner.rule_id, owner.user, owner.agent, triple.id])
    digest = hashlib.sha256(identity).hexdigest()[:_ID_DIGITS]
    return fact_id_of(owner.channel, f"graph:{digest}")


def facts_of(triples: Iterable[GraphTriple], owner: Owner, at: datetime) -> list[Fact]:
    """Return the facts of triples, promoted at an instant."""
    return [_fact(triple, owner, at) for triple in triples]


def _fact(triple: GraphTriple, owner: Owner, at: datetime) -> Fact:
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
