"""Choose the text of a fact that is compared with other facts, and the facts it is compared with.

A comparison only makes links, and never removes a fact. Word vectors cannot distinguish opposites:
"the shop is open" is as near to "the shop is closed" as to a restatement.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slumberd.consolidation.claim import Claim, Precedence, has_subject
from slumberd.model.fact_ids import canonical
from slumberd.model.scope import escape

TEXT_CHARACTERS = 4_000
"""At most this many characters from the start of a text are compared."""


class Statement(NamedTuple):
    """The part of a fact that is compared with other facts.

    Attributes:
        fact_id: The fact's id.
        key: Its key.
        precedence: Its precedence.
        payload: Its body.
    """

    fact_id: str
    key: str
    precedence: Precedence
    payload: dict[str, Any]

    @property
    def text(self) -> str:
        """The fact's content; without content its subject, predicate and object."""
        content = self.payload.get("content")
        if isinstance(content, str) and content and not content.isspace():
            return content[:TEXT_CHARACTERS]
        triple = (self.payload.get(part) for part in ("subject", "predicate", "object"))
        texts = (_as_text(value) for value in triple if value is not None)
        return " ".join(texts)[:TEXT_CHARACTERS]


def statement_of(claim: Claim) -> Statement:
    """Return the statement of a claim's fact."""
    return Statement(claim.fact_id, claim.key, claim.precedence, claim.payload)


def family_of(claim: Claim) -> str:
    """Return the prefix of the keys that a claim's fact is compared with.

    They belong to the same user, agent and channel, and to the same subject. Facts whose key has
    no subject and predicate are compared with each other.
    """
    if has_subject(claim):
        return f"{claim.owner}{escape(claim.payload['subject'])}/"
    return f"{claim.owner}//"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)
