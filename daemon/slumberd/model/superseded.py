"""Claims of quoted episodes that are not current any more, and what took their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from slumberd.model.scope import canonical

SupersededKind = Literal["replaced", "retracted"]
"""Whether another value took the place of a claim, or none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A claim of an episode that is not current any more.

    Attributes:
        subject: What it is about; None when the claim has no subject.
        predicate: What it says of it; None when the claim has no predicate.
        object: The value that is not current.
        kind: Whether another value took its place.
        by: The value that is current in its place; None when it was retracted.
        at: When that was said, in UTC.
        fact_id: The fact that took its place, or the id under which the ledger has the retraction.
        text: The fact in words that took its place, or the claim in words that was retracted.
    """

    subject: Any
    predicate: Any
    object: Any
    kind: SupersededKind
    by: Any
    at: datetime
    fact_id: str
    text: str


class QuotedEpisode(NamedTuple):
    """An episode whose text an answer quotes.

    Attributes:
        id: The episode.
        user: Its user; another scope may have a fact of the same id.
        content: Its text. What an earlier text of the episode claimed does not count.
    """

    id: str
    user: str
    agent: str
    content: str


class SupersededClaims(NamedTuple):
    """What a quoted episode says about its claims.

    Attributes:
        superseded: Its claims that are not current any more.
        is_whole: Whether none of its claims is current.
    """

    superseded: Sequence[Superseded]
    is_whole: bool


SupersededByEpisode = Mapping[str, SupersededClaims]
"""By the id of an episode; an episode whose claims are all current is not in it."""


def words_of_payload(payload: Mapping[str, Any]) -> str:
    """Return a fact in words: its triple; the content of one without subject and predicate."""
    triple = [payload.get(name) for name in ("subject", "predicate", "object")]
    parts: Iterable[Any] = [payload.get("content")] if None in triple[:2] else triple
    return " ".join(_words(part) for part in parts if part is not None)


def _words(value: Any) -> str:  # noqa: ANN401 # any JSON
    text = value if isinstance(value, str) else canonical(value)
    return text.replace("_", " ")
