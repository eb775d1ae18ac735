"""List the episodes that rules could not read, for operators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slumberd.errors import UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import MOST, Cursor, Limit, Name, OperatorForm, Result
from slumberd.operations.operation import Example, operation
from slumberd.operations.page_cursors import read_cursor, write_cursor
from slumberd.storage.facts.store import EngineFactStore


class QuarantinedForm(OperatorForm):
    """The request ``quarantined``: a page of the quarantine.

    Attributes:
        rule: Only entries of this rule.
        episodes: Only entries of these episodes. It needs `rule`.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    rule: Name | None = None
    episodes: Annotated[list[Name], Field(max_length=MOST)] | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class QuarantineEntry(Result):
    """An episode that a rule could not read.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        episode_id: The episode.
        reason: Why, in one word.
        detail: Why, for a person.
        seq: The row of the ledger that records it.
        user: Whose the episode is; empty when its scope cannot be read.
        agent: Who knows it; empty as `user`.
    """

    rule_id: str
    channel: str
    episode_id: str
    reason: str
    detail: str
    seq: int
    user: str
    agent: str


class QuarantinePage(Result):
    """A page of the quarantine.

    Attributes:
        entries: The entries, by rule, channel and episode.
        next: The cursor of the next page; None at the end.
        totals: How many episodes are in quarantine, by rule; of all rules.
    """

    entries: list[QuarantineEntry]
    next: str | None
    totals: dict[str, int]


class QuarantineReads:
    """Runs requests that read the quarantine.

    Args:
        facts: The facts.
    """

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"rule": "home", "limit": 10},
            {
                "entries": [
                    {
                        "rule_id": "home",
                        "channel": "facts",
                        "episode_id": "e7",
                        "reason": "intent_unknown",
                        "detail": "intent is 'shout'; write one of add, update, delete, noop",
                        "seq": 12,
                        "user": "ana",
                        "agent": "desk",
                    }
                ],
                "next": None,
                "totals": {"home": 1},
            },
        ),
    )
    async def quarantined(self, request: QuarantinedForm, _: Caller) -> QuarantinePage:
        """Return a page of the episodes that rules could not read, and why.

        Raises:
            UsageError: The request names episodes, but no rule.
        """
        if request.episodes is not None and request.rule is None:
            raise UsageError("quarantined: episodes: name a rule, too")
        after = None
        if request.cursor is not None:
            rule, channel, episode = read_cursor("quarantined", request.cursor, 3)
            after = rule, channel, episode
        reads = self._facts.reads
        entries = await reads.quarantine_page(
            request.rule, after=after, limit=request.limit, episodes=request.episodes
        )
        found = [QuarantineEntry(**entry) for entry in entries]
        return QuarantinePage(
            entries=found,
            next=cursor_after(found[-1]) if len(found) == request.limit else None,
            totals=await reads.count_quarantined(),
        )


def cursor_after(entry: QuarantineEntry) -> str:
    """Return the cursor of the page after an entry of the quarantine."""
    return write_cursor(entry.rule_id, entry.channel, entry.episode_id)
