"""Facts: what an agent knows of a user, and the pattern that finds them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Fact(BaseModel):
    """One thing that stands.

    Attributes:
        id: The id of the episode that promoted it; ``@{channel}/{episode id}`` outside the
            channel ``facts``.
        user: Whose it is.
        agent: Which agent learnt it.
        payload: Its body; ``subject``, ``predicate`` and ``object`` when it has them.
        lineage: Where it comes from; never empty in a store. Own entries first, one a rule,
            by rule id; then what it replaced, newest first.
        confidence: 0 to 1.
        pinned_at: The instant of the firing, or of the hand, that it stands by.
        metadata: Free form.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    lineage: list[dict[str, Any]]
    confidence: float
    pinned_at: datetime
    metadata: dict[str, Any] = Field(default_factory=dict)


class FactPattern(BaseModel):
    """What a fact must equal; a slot of None matches everything."""

    model_config = ConfigDict(frozen=True)

    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    user: str | None = None
    agent: str | None = None
