"""Pause Python's search for cyclic garbage during long passes that make none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the collection in the whole process during the block.

    A pass that makes many objects would run it often, and each run looks at all of them. Of two
    blocks at the same time, the end of the first may end the pause of both.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
