"""Answer whoever asks a host of a database with several shards, for all shards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.file_modes import make_directory
from slumberd.model.health import DaemonHealth
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.handlers import Dispatcher
from slumberd.operations.observed_calls import observe_calls
from slumberd.service.composition import memory_of
from slumberd.service.control_socket import listen
from slumberd.service.interfaces import Interface, Served
from slumberd.service.postgres_stores import database_of
from slumberd.service.shards.puts import ShardPutter
from slumberd.service.shards.requests import ask_patiently, shard_handlers
from slumberd.service.traced_calls import TracedCalls
from slumberd.storage.postgres.installation import count_shards

SPARE_SECONDS = 2.0
"""How long a host may take to claim a shard whose lease has ended."""


@asynccontextmanager
async def serve_interfaces(
    settings: Settings,
    interfaces: Sequence[Interface],
    commits: CommitSignal,
    clock: Clock,
    health: Callable[[], Awaitable[DaemonHealth]],
) -> AsyncIterator[None]:
    """Serve the control socket and the interfaces while the block runs.

    Each request goes to the shards that it concerns, on whatever host they are.

    Args:
        settings: The configuration.
        interfaces: What serves beside the control socket.
        commits: Tells when something was committed.
        clock: The time.
        health: Returns the figures of the heartbeat as of now.
    """
    address = database_of(settings)
    patience = settings.postgres.lease + SPARE_SECONDS
    ask = partial(ask_patiently, address, patience_seconds=patience)
    answers = observe_calls(shard_handlers(address, ask=ask), TracedCalls())
    putter = ShardPutter(
        count_shards(address), lambda shard: memory_of(settings.of_shard(shard), clock)
    )
    served = Served(Dispatcher(answers), settings, putter, commits, clock, health)
    make_directory(settings.state_dir)  # for the control socket
    async with AsyncExitStack() as serving:
        serving.push_async_callback(putter.close)
        await serving.enter_async_context(
            listen(settings.state_dir, answers, runtime=settings.runtime_dir)
        )
        for interface in interfaces:
            await serving.enter_async_context(interface(served))
        yield
