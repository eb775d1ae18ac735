"""The operations on the daemon itself; the service implements them."""

from __future__ import annotations

from typing import Annotated, Protocol

from slumberd.errors import ConfigurationError, ReloadFailedError
from slumberd.operations import change_results, operator_forms
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import OperatorForm, RequestForm
from slumberd.operations.handlers import Answer
from slumberd.operations.operation import Example, operation


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
            },
        ),
    )
    async def status(
        self, request: OperatorForm, caller: Caller
    ) -> Annotated[Answer, change_results.DaemonStatus]:
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
    async def shards(
        self, request: RequestForm, caller: Caller
    ) -> Annotated[Answer, operator_forms.ShardList]:
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
    async def reload(
        self, request: OperatorForm, caller: Caller
    ) -> Annotated[Answer, change_results.Reloaded]:
        """Read the configuration and the rules again, or change nothing."""
        ...

    @operation(
        right=Right.OPERATE,
        read_only=True,
        errors=(ConfigurationError,),
        example=Example({}, {"reload": ["timezone"], "restart": []}),
    )
    async def outdated(
        self, request: OperatorForm, caller: Caller
    ) -> Annotated[Answer, change_results.Outdated]:
        """Return the keys of the configuration that changed since the daemon read it."""
        ...
