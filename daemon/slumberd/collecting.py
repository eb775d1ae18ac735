"""Keep the collector of garbage away from a backlog."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage within the block; what nothing refers to is freed at once, as ever.

    A batch makes 100,000 objects that live until its end, in no cycles, and the collector would
    walk all of them again and again, holding the interpreter.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
