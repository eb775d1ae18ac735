"""Choose the daemon of a configuration: of one shard, of several, or of a host's own stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from slumberd.clock import Clock
from slumberd.daemon.daemon import Daemon, Runnable
from slumberd.daemon.interfaces import Interface
from slumberd.daemon.reload import Load
from slumberd.daemon.stores import is_divided
from slumberd.daemon.systemd import Notifier
from slumberd.logs.output import DeltaLines
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings


class ReloadableDaemon(Runnable, Protocol):
    """A daemon that can read its configuration and rules again."""

    def reload(self) -> None:
        """Request a reload of configuration and rules; the log reports its result."""
        ...


def make_daemon(  # noqa: PLR0913 # one for each part that it joins
    settings: Settings,
    rules: RuleSet,
    load: Load,
    *,
    clock: Clock,
    logs: DeltaLines,
    notifier: Notifier,
    interfaces: Sequence[Interface] = (),
    waits: bool = True,
) -> ReloadableDaemon:
    """Return the daemon of a configuration, not yet running.

    Args:
        rules: The rules to fire.
        load: Reads configuration and rules again, for a reload.
        notifier: Reports to the service manager.
        interfaces: What serves beside the control socket, in the same event loop.
        waits: Whether to stand by while another daemon holds the state; else it is refused. A
            daemon of several shards always runs beside others.

    Raises:
        StoreError: The database cannot be used.
    """
    make: Callable[..., ReloadableDaemon] = partial(Daemon, waits=waits)
    if settings.host_store is not None:
        from slumberd.daemon.host_store import HostDaemon

        make = HostDaemon
    elif is_divided(settings):
        from slumberd.daemon.sharded_daemon import ShardedDaemon

        make = ShardedDaemon
    return make(
        settings,
        rules,
        load,
        clock=clock,
        logs=logs,
        notifier=notifier,
        interfaces=interfaces,
    )
