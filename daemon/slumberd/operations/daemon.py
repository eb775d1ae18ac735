"""The operations on the daemon itself; the service implements them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Protocol

from slumberd.model.errors import ConfigurationError, ReloadFailedError
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import OperatorForm, RequestForm, Result
from slumberd.operations.handlers import Answer, Example, operation


class FailingRule(Result):
    """A rule whose last firings failed.

    Attributes:
        rule_id: The rule.
        since: When the first of them failed.
        failures: How many failed in a row.
        error: The last error.
        degraded: Whether the rule counts as failing for good.
    """

    rule_id: str
    since: str
    failures: int
    error: str
    degraded: bool


class ModelState(Result):
    """What the language model cost today, and whether it answers.

    Attributes:
        day: The day, UTC.
        calls: The requests, failed ones included.
        tokens: The tokens of requests and answers.
        cost: The cost, in the currency of the configured prices.
        budget: What calls, tokens and cost may be in a day; None means no limit.
        problem: Why the last attempt failed; empty when it did not.
    """

    day: str
    calls: int
    tokens: int
    cost: float
    budget: dict[str, float | None]
    problem: str


class IndexMemory(Result):
    """The memory of the indexes of searches, episodes and facts together.

    Attributes:
        bytes: About how much they take.
        max_bytes: About how much they may take.
    """

    bytes: int
    max_bytes: int


class DaemonStatus(Result):
    """How the daemon is.

    Attributes:
        pid: Its process.
        uptime_seconds: Since when it runs.
        generation: How often it loaded rules.
        rules_hash: The hash of the rules in force.
        failing: The rules that fail now.
        language_model: The state of the language model; None when none is configured.
        search_indexes: The memory of the indexes of searches; None without stores of its own.
    """

    pid: int
    uptime_seconds: float
    generation: int
    rules_hash: str
    failing: list[FailingRule]
    language_model: ModelState | None
    search_indexes: IndexMemory | None


class Reloaded(Result):
    """What a reload changed.

    Attributes:
        generation: How often the daemon loaded rules.
        rules_hash: The hash of the rules in force.
        rules: How many rules there are.
        added: The rules that are new.
        removed: The rules that are gone.
        changed: The rules that changed.
        restart_needed: The changed keys of the configuration that only a restart applies.
        facts_appear: How many facts a change under ``channels`` makes current.
        facts_go: How many facts are not current any more after that change.
        held_firing_id: The id by which that change awaits approval.
        rejected_firing_id: The id by which a person rejected that change. It is in force when both
            ids are null.
    """

    generation: int
    rules_hash: str
    rules: int
    added: list[str]
    removed: list[str]
    changed: list[str]
    restart_needed: list[str]
    facts_appear: int = 0
    facts_go: int = 0
    held_firing_id: str | None = None
    rejected_firing_id: str | None = None


class Outdated(Result):
    """The keys of the configuration that changed since the daemon read it.

    Attributes:
        reload: Those that a reload applies.
        restart: Those that only a restart applies.
    """

    reload: list[str]
    restart: list[str]


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


class DaemonOperations(Protocol):
    """Answers requests about the daemon itself."""

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {},
            {
                "pid": 4321,
                "uptime_seconds": 86.4,
                "generation": 1,
                "rules_hash": values.HASH,
                "failing": [],
                "language_model": None,
                "search_indexes": {"bytes": 18_000_000, "max_bytes": 268_435_456},
            },
        ),
    )
    async def status(
        self, request: OperatorForm, caller: Caller
    ) -> Annotated[Answer, DaemonStatus]:
        """Return how long the daemon runs, with which rules, and which of them fail."""
        ...

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {},
            {
                "shards": [
                    {
                        "shard": 0,
                        "holder": "host-1/4321/5f3a9c",
                        "episodes": 1200,
                        "facts": 310,
                        "pending": 4,
                        "oldest_pending": "2026-03-01T12:00:00+00:00",
                        "fired_at": "2026-03-01T11:55:00Z",
                    }
                ]
            },
        ),
    )
    async def shards(self, request: RequestForm, caller: Caller) -> Annotated[Answer, ShardList]:
        """Count what each shard of a database holds, and what waits there."""
        ...

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(ReloadFailedError,),
        example=Example(
            {},
            {
                "generation": 2,
                "rules_hash": values.HASH,
                "rules": 1,
                "added": [],
                "removed": [],
                "changed": ["home"],
                "restart_needed": [],
                "facts_appear": 2,
                "facts_go": 0,
                "held_firing_id": None,
                "rejected_firing_id": None,
            },
        ),
    )
    async def reload(self, request: OperatorForm, caller: Caller) -> Annotated[Answer, Reloaded]:
        """Read the configuration and the rules again, or change nothing."""
        ...

    @operation(
        right=Right.OPERATE,
        read_only=True,
        errors=(ConfigurationError,),
        example=Example({}, {"reload": ["timezone"], "restart": []}),
    )
    async def outdated(self, request: OperatorForm, caller: Caller) -> Annotated[Answer, Outdated]:
        """Return the keys of the configuration that changed since the daemon read it."""
        ...
