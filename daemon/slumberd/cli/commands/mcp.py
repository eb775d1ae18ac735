"""`slumberd mcp`: serve one user's memory on standard input and output, for an agent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Annotated

import typer

from slumberd.cli.asking import ask_holder
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, StateDir
from slumberd.cli.setup import (
    SIGNALS,
    daemon_logs,
    interfaces_of,
    load_settings_and_rules,
    standard_error_logs,
)
from slumberd.client.transports import DatabaseTransport, SocketTransport
from slumberd.clock import SystemClock
from slumberd.daemon.composition import tune_interpreter
from slumberd.daemon.daemon import first_store_error
from slumberd.daemon.reload import Load
from slumberd.daemon.startup import make_daemon
from slumberd.daemon.systemd import Notifier
from slumberd.model.errors import ExtraMissingError, NotRunningError
from slumberd.model.scope import ScopeFilter


def mcp(
    user: Annotated[str, typer.Option(metavar="U", help="Whose memory it is.")],
    agent: Annotated[
        str, typer.Option(metavar="A", help="Which agent remembers and recalls.")
    ] = "default",
    session: Annotated[
        str | None,
        typer.Option(metavar="S", help="The conversation that new episodes belong to."),
    ] = None,
    all_agents: Annotated[
        bool,
        typer.Option("--all-agents", help="Let reads see what all agents of the user know."),
    ] = False,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Offer the administrative tools, too; they reach all users."),
    ] = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Serve the Model Context Protocol on standard input and output.

    An agent's host starts this command and gives its agent seven tools: remember, put_many, recall,
    context, correct, forget and explain. They reach the memory of one user and one agent only.

    The command uses the running daemon. Without one, it runs as the daemon until standard input
    ends: it fires the rules, too. Log lines go to standard error or to the log file.
    """
    server = _load_server()
    ScopeFilter.of(user, session, agent)
    connect = partial(
        server.Connection,
        user=user,
        agent=agent,
        session=session,
        all_agents=all_agents,
        admin=admin,
    )
    settings = settings_of(config, state_dir, user=user)
    with _end_at_once_on_signals():
        try:
            ask_holder(settings, "next", {})
        except NotRunningError:
            _run_daemon(server, connect, partial(load_settings_and_rules, config, state_dir))
            return
        with standard_error_logs(SystemClock()):
            transport = (
                SocketTransport(settings.state_dir)
                if settings.store is None
                else DatabaseTransport(
                    settings.store,
                    settings.postgres.shard,
                    lease_seconds=settings.postgres.lease,
                )
            )
            asyncio.run(server.serve_stdio(connect(call=transport.call)))


@contextmanager
def _end_at_once_on_signals() -> Iterator[None]:
    """Let a signal end the process at once while the block runs; an abrupt end loses nothing.

    No signal wakes the thread that waits for standard input.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _load_server() -> ModuleType:
    """Return the module that serves standard input and output.

    Raises:
        ExtraMissingError: The extra ``serve`` is not installed.
    """
    try:
        from slumberd.web.mcp import stdio
    except ImportError as error:
        raise ExtraMissingError("serve", "the Model Context Protocol cannot be served") from error
    return stdio


def _run_daemon(server: ModuleType, connect: partial[object], load: Load) -> None:
    """Run as the daemon until standard input ends."""
    clock = SystemClock()
    settings, rules = load()

    async def serve() -> None:
        stop = asyncio.Event()
        interface = server.stdio_interface(lambda call: connect(call=call), stop)
        daemon = make_daemon(
            settings,
            rules,
            load,
            clock=clock,
            logs=logs.lines,
            notifier=Notifier(None),
            interfaces=[*interfaces_of(settings), interface],
            waits=False,
        )
        await daemon.run(stop)

    tune_interpreter()
    with daemon_logs(settings, clock) as logs:
        try:
            asyncio.run(serve())
        except ExceptionGroup as errors:
            raise first_store_error(errors) from errors
