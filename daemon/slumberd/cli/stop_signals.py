"""What commands do on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
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
        call_on_signal(number, on_signal)


def call_on_signal(number: int, callback: Callable[[], object]) -> None:
    """Let the event loop call a function on a signal.

    The program that started this process may have ignored the signal, or blocked it.
    """
    asyncio.get_running_loop().add_signal_handler(number, callback)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))


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

    call_on_signal(signal.SIGTERM, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if signalled.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # this sets the system's default handler
        signal.signal(signal.SIGTERM, previous)
