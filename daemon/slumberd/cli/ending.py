"""End a command that keeps temporary files so that none is left, whoever ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def tidily_ending() -> Iterator[None]:
    """Let SIGTERM end the task that runs the block as SIGINT does: what is open is closed first.

    SIGINT's own handler is not borrowed: a shell ignores SIGINT for what it runs in the background.

    Raises:
        KeyboardInterrupt: SIGTERM came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told, before = asyncio.Event(), signal.getsignal(signal.SIGTERM)

    def end() -> None:
        told.set()
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if told.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # leaves it to the system, whoever had it before
        signal.signal(signal.SIGTERM, before)
