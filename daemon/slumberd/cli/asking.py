"""Ask the running daemon, and report one that does not answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from slumberd.daemon.control_socket import ask
from slumberd.daemon.stores import refuse_host_store
from slumberd.model.errors import (
    DatabaseUnreachableError,
    ExtraMissingError,
    NotRunningError,
    SlumberdError,
)
from slumberd.model.health import Finding
from slumberd.rules.settings import Settings

if TYPE_CHECKING:
    from slumberd.operations.handlers import Answer

PATIENCE_SECONDS = 5.0
"""How long a command that only reads waits for the daemon to answer."""


HOST_OPERATIONS = frozenset({"status", "reload", "outdated"})
"""The operations that a daemon on a host's own stores answers."""


def ask_holder(settings: Settings, operation: str, request: dict[str, Any]) -> Answer:
    """Return the answer of the daemon that holds the stores of a configuration, on any host.

    Raises:
        UnsupportedByStoreError: They are a host's own, and the operation needs slumberd's.
        NotRunningError: No daemon holds them.
        ShardNotNamedError: The configuration names none of several shards.
        StoreError: The daemon ended before it answered.
    """
    if operation not in HOST_OPERATIONS:
        refuse_host_store(settings)
    if settings.store is None:
        return ask(settings.state_dir, operation, **request)
    from slumberd.daemon import postgres_stores

    return postgres_stores.ask(settings, operation, request)


def ask_daemon(
    settings: Settings, operation: str = "status", *, seconds: float = PATIENCE_SECONDS
) -> tuple[Any, list[Finding]]:
    """Return the daemon's answer, and findings about a daemon that does not answer.

    The answer is None when no daemon runs, or when it does not answer in time.

    Args:
        settings: The configuration of the daemon.
        seconds: How long the daemon may take to answer.
    """
    answers: list[dict[str, Any]] = []
    problems: list[str] = []

    def request() -> None:
        """Send the request; keep the answer or the problem."""
        try:
            answers.append(ask_holder(settings, operation, {}))
        except (NotRunningError, DatabaseUnreachableError, ExtraMissingError):
            # Whoever reads the database next reports it.
            problems.append("")
        except (SlumberdError, OSError, ValueError) as error:
            problems.append(str(error))

    # A daemon that hangs must not hang the command: the thread ends with the process.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(seconds)
    if answers:
        return answers[0], []
    problem = problems[0] if problems else f"does not answer within {seconds:g} s"
    remedy = "`systemctl restart slumberd`; the daemon's log says what it was doing"
    return None, [Finding("daemon.silent", "daemon", problem, remedy)] if problem else []
