"""The forms of the reads for operators, and the values that they return."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from slumberd.operations.forms import MOST, Limit, Name, OperatorForm, Result

Cursor = Annotated[str, Field(max_length=10_000)]


class UsersForm(OperatorForm):
    """The request ``users``: a page of the users who have current facts.

    Attributes:
        prefix: Only users whose names begin with this text.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    prefix: Annotated[str, Field(max_length=100)] = ""
    limit: Limit = 100
    cursor: Cursor | None = None


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


class KnownUser(Result):
    """A user who has current facts.

    Attributes:
        user: The user.
        agents: The agents that know them, in order; at most the first 100.
        facts: How many facts there are, of all agents, without marks and weights.
    """

    user: str
    agents: list[str]
    facts: int


class UserPage(Result):
    """A page of users.

    Attributes:
        users: The users, by name.
        next: The cursor of the next page; None at the end.
    """

    users: list[KnownUser]
    next: str | None


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


class ShardCounts(Result):
    """What a shard holds, and what waits there.

    Attributes:
        shard: Its number.
        holder: The host and the process that hold it; None when nobody does.
        episodes: How many episodes it has.
        facts: How many facts are current.
        pending: How many versions of episodes wait for the rule that is furthest behind.
        oldest_pending: The timestamp of the first of them, as its host wrote it; None without one.
        fired_at: The instant of the last batch; None before the first one.
    """

    shard: int
    holder: str | None
    episodes: int
    facts: int
    pending: int
    oldest_pending: str | None
    fired_at: datetime | None


class ShardList(Result):
    """All shards.

    Attributes:
        shards: The shards, by number.
    """

    shards: list[ShardCounts]
