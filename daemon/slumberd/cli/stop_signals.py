"""What commands do on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at the first SIGTERM or SIGINT; the next one ends the process."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        """Restore the default handlers, and request the stop."""
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)


@contextmanager
def clean_up_on_sigterm() -> Iterator[None]:
    """Cancel the task of the block on SIGTERM, so that its temporary files are removed.

    The handler of SIGINT does not serve: a shell ignores SIGINT for commands in the background.

    Raises:
        KeyboardInterrupt: SIGTERM came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signalled, previous = asyncio.Event(), signal.getsignal(signal.SIGTERM)

    def cancel() -> None:
        """Cancel the task of the block."""
        signalled.set()
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if signalled.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # this sets the system's default handler
        signal.signal(signal.SIGTERM, previous)
