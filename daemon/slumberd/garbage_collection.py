"""Pause Python's search for cyclic garbage in long passes, and free large values in portions."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

PORTION = 500
"""Elements of a list that are freed at once."""


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
