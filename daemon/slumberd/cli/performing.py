"""Have something done: by the daemon when one runs, else in this process, under the same lock."""

from __future__ import annotations

import asyncio
from typing import Any

from slumberd.cli.configuration import logs
from slumberd.clock import SystemClock
from slumberd.control import Answer, ask
from slumberd.errors import NotRunningError
from slumberd.service import perform
from slumberd.settings import Settings


def performed(settings: Settings, operation: str, **request: Any) -> Answer:
    """Return the answer to a request, whoever does what it asks for."""
    try:
        return ask(settings.state_dir, operation, **request)
    except NotRunningError:
        clock = SystemClock()
        with logs(settings, clock) as log:
            return asyncio.run(perform(settings, operation, request, clock=clock, logs=log))
