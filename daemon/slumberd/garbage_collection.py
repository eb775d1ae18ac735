"""Pause Python's search for cyclic garbage in long passes, and free large values in portions."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

PORTION = 500
"""Elements of a list that are freed at once."""


_LOCK = RLock()
_pauses = 0
_was_enabled = False
"""Whether the collection was enabled when the first of the present pauses began."""


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the collection in the whole process during the block.

    A pass that makes many objects would run it often, and each run looks at all of them. Of two
    blocks at the same time, the end of the first may end the pause of both.
    """
    begin_pause()
    try:
        yield
    finally:
        end_pause()


def begin_pause() -> None:
    """Disable the collection until `end_pause` is called."""
    global _pauses, _was_enabled  # the collection is the process's, too
    with _LOCK:  # else a pause may end in another thread between the look and the change
        if not _pauses:
            _was_enabled = gc.isenabled()
        _pauses += 1
        gc.disable()


def end_pause() -> None:
    """End a pause: enable the collection, if it was enabled before the pauses."""
    global _pauses
    with _LOCK:
        _pauses -= 1
        if _was_enabled:
            gc.enable()


def free_in_portions(*containers: Sequence[Any] | Mapping[Any, Any]) -> None:
    """Empty the lists and dictionaries that nobody needs any more; leave other containers.

    Python frees a container with its elements in one piece, and no other thread works meanwhile:
    for a batch of 8,000 candidates that takes 10 milliseconds. Between two portions it can.
    """
    for container in containers:
        if isinstance(container, list):
            while container:
                del container[-PORTION:]
        elif isinstance(container, dict):
            while container:
                container.popitem()
