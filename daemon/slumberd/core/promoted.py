"""Promotions: the rows of the ledger that made a fact stand, as a sink of provenance is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

import orjson

from slumberd.core.provenance import ProvenanceBundle, identifier_of

ORIGIN = "consolidation"
"""The origin of everything that comes out of a ledger."""


class Promotion(NamedTuple):
    """One row of the ledger of kind add or update.

    Attributes:
        seq: Its number.
        kind: What it did.
        firing_id: The firing that did it, which is unique within a store.
        rule_id: The firing's rule, or ``@hand`` and the like.
        at: The firing's instant.
        fact_id: The fact that stands since.
        user: Whose it is.
        agent: Whose it is.
        channel: Where it is.
        subject: As the fact has it; JSON where that is no text, empty where there is none.
        predicate: The same.
        object: Canonical JSON.
        confidence: 0 to 1.
        replaces: The ids of the facts that went.
    """

    seq: int
    kind: Literal["add", "update"]
    firing_id: str
    rule_id: str
    at: datetime
    fact_id: str
    user: str
    agent: str
    channel: str
    subject: str
    predicate: str
    object: str
    confidence: float
    replaces: tuple[str, ...]


class Page(NamedTuple):
    """A stretch of the ledger, read.

    Attributes:
        promotions: What made a fact stand in it, in order; what was erased is left out.
        upto: The number of its last row; that of the row before it when there was none.
    """

    promotions: Sequence[Promotion]
    upto: int


class Lag(NamedTuple):
    """How far a reader is behind its ledger.

    Attributes:
        rows: That it has not passed, of any kind.
        since: The instant of the first of them; None when there is none.
    """

    rows: int
    since: datetime | None

    def seconds(self, now: datetime) -> float:
        """Return how long ago that was; 0 without one, and when the clock was set back."""
        since = self.since
        return 0.0 if since is None else max(0.0, round((now - since).total_seconds(), 3))


def slots_of(told: Promotion, store: str) -> dict[str, object]:
    """Return what is asserted of a promotion.

    Args:
        told: The promotion.
        store: The name of its fact store: with ``seq`` it tells a repeat from what is new.
    """
    return {
        "store": store,
        "seq": told.seq,
        "kind": told.kind,
        "fact_id": told.fact_id,
        "user": told.user,
        "agent": told.agent,
        "channel": told.channel,
        "subject": told.subject,
        "predicate": told.predicate,
        "object": told.object,
        "replaces": list(told.replaces),
        "rule": told.rule_id,
        "firing": told.firing_id,
    }


SLOTS = (
    "store", "seq", "kind", "fact_id", "user", "agent", "channel", "subject", "predicate", "object",
    "replaces", "rule", "firing",
)  # fmt: skip
"""The names of `slots_of`; ``seq`` is an integer, the rest is text."""


def bundle_of(told: Promotion) -> ProvenanceBundle:
    """Return where a promotion comes from; whatever its rule is called, it passes all checks."""
    return {
        "origin": ORIGIN,
        "source": f"rule-{identifier_of(told.rule_id)}",
        "run_id": told.firing_id,
        "step": told.seq,
        "confidence": Decimal(str(told.confidence)),
        "timestamp": told.at,
    }


def text_of(value: object) -> str:
    """Return a part of a payload as text: JSON where it is none, nothing where it is missing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
