"""Sets of rules that were published in a database, for all hosts that use it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple


class PublishedRules(NamedTuple):
    """A version of the rules.

    Attributes:
        version: Its number, from 1; the highest one is in force.
        content_hash: The hash of the rules, as their publisher computed it.
        published_at: When it was published, by the clock of the database.
        by: Who published it.
        reason: Why; empty when nobody said.
        texts: The text of each file, by its name within a directory of rules.
    """

    version: int
    content_hash: str
    published_at: datetime
    by: str
    reason: str
    texts: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, without the texts."""
        return {
            "version": self.version,
            "rules_hash": self.content_hash,
            "published_at": self.published_at.isoformat(),
            "by": self.by,
            "reason": self.reason or None,
            "files": sorted(self.texts),
        }


class RulesToPublish(NamedTuple):
    """Rules without mistakes, which somebody wants to publish.

    Attributes:
        content_hash: The hash of the rules.
        texts: The text of each file, by its name within their directory.
        by: Who publishes them.
        reason: Why; empty without a reason.
    """

    content_hash: str
    texts: Mapping[str, str]
    by: str
    reason: str = ""
