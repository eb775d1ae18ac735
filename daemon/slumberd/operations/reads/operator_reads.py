"""Run the operations that list the users and the quarantine, for operators."""

from __future__ import annotations

from slumberd.errors import UsageError
from slumberd.operations import operator_forms as forms
from slumberd.operations.caller import Caller, Right
from slumberd.operations.operation import Example, operation
from slumberd.operations.page_cursors import read_cursor, write_cursor
from slumberd.storage.facts.store import EngineFactStore


class OperatorReads:
    """Runs requests that read about every user.

    Args:
        facts: The facts.
    """

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"prefix": "a", "limit": 10},
            {"users": [{"user": "ana", "agents": ["desk"], "facts": 1}], "next": None},
        ),
    )
    async def users(self, request: forms.UsersForm, _: Caller) -> forms.UserPage:
        """Return a page of the users who have current facts, by name."""
        after = None
        if request.cursor is not None:
            (after,) = read_cursor("users", request.cursor, 1)
        found = await self._facts.reads.users(request.prefix, after=after, limit=request.limit)
        full = len(found) == request.limit
        return forms.UserPage(
            users=[forms.KnownUser(**user._asdict()) for user in found],
            next=write_cursor(found[-1].user) if full else None,
        )

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
    async def quarantined(self, request: forms.QuarantinedForm, _: Caller) -> forms.QuarantinePage:
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
        found = [forms.QuarantineEntry(**entry) for entry in entries]
        return forms.QuarantinePage(
            entries=found,
            next=cursor_after(found[-1]) if len(found) == request.limit else None,
            totals=await reads.count_quarantined(),
        )


def cursor_after(entry: forms.QuarantineEntry) -> str:
    """Return the cursor of the page after an entry of the quarantine."""
    return write_cursor(entry.rule_id, entry.channel, entry.episode_id)
