"""End a command that keeps temporary files so that none is left, whoever ends it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def tidily_ending() -> Iterator[None]:
    """Let SIGTERM end the block as SIGINT does: by an exception, so that what is open is closed.

    Inside of a running event loop, whose own way with SIGINT it takes.
    """
    before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
