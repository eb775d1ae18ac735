"""Answer whoever asks a host of a database with several shards, for each request's shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from slumberd.clock import Clock
from slumberd.daemon.composition import user_stores_of
from slumberd.daemon.control_socket import listen
from slumberd.daemon.interfaces import AllShards, Interface, Served, TracedCalls
from slumberd.daemon.postgres_stores import database_of
from slumberd.daemon.shard_counts import count_shards
from slumberd.daemon.shard_puts import ShardPutter
from slumberd.daemon.shard_requests import (
    SPARE_SECONDS,
    ShardRequests,
    ask_patiently,
    shard_handlers,
)
from slumberd.daemon.stores import settings_of_user, shards_of
from slumberd.file_modes import make_directory
from slumberd.model.health import DaemonHealth
from slumberd.operations.caller import Caller
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer, Dispatcher, handler_of, observe_calls
from slumberd.operations.registry import OPERATIONS
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.postgres.shard_map import shard_map_of


@asynccontextmanager
async def serve_interfaces(
    settings: Settings,
    interfaces: Sequence[Interface],
    commits: CommitSignal,
    clock: Clock,
    health: Callable[[], Awaitable[DaemonHealth]],
    rules: Callable[[], RuleSet],
) -> AsyncIterator[None]:
    """Serve the control socket and the interfaces while the block runs.

    Each request goes to the shard that it concerns, on whatever host that is.

    Args:
        interfaces: What serves beside the control socket.
        commits: Tells when something was committed.
        health: Returns the figures of the heartbeat as of now.
        rules: Returns the rules in force.
    """
    lease = settings.postgres.lease
    ask = partial(ask_patiently, patience_seconds=lease + SPARE_SECONDS)
    requests = ShardRequests(shard_map_of(database_of(settings)), lease_seconds=lease, ask=ask)

    async def answer_counts(_: RequestForm, __: Caller) -> Answer:
        return (await asyncio.to_thread(count_shards, settings, rules())).document()

    handlers = shard_handlers(requests)
    handlers["shards"] = handler_of(OPERATIONS["shards"], answer_counts)
    answers = observe_calls(handlers, TracedCalls())
    stores = user_stores_of(settings, clock)
    served = Served(
        Dispatcher(answers),
        settings,
        ShardPutter(stores),
        commits,
        clock,
        health,
        AllShards(lambda: shards_of(settings), lambda user: settings_of_user(settings, user).shard),
    )
    make_directory(settings.state_dir)  # for the control socket
    async with AsyncExitStack() as serving:
        serving.push_async_callback(stores.close)
        await serving.enter_async_context(
            listen(settings.state_dir, answers, runtime=settings.runtime_dir)
        )
        for interface in interfaces:
            await serving.enter_async_context(interface(served))
        yield
