"""Mark the calls whose reads may run on a replica of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_allowed: ContextVar[bool] = ContextVar("replica_reads", default=False)


@contextmanager
def allow_replica_reads() -> Iterator[None]:
    """Let the stores read from a replica in the block, where the configuration names one."""
    before = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(before)


def are_replica_reads_allowed() -> bool:
    """Return whether the caller's reads may run on a replica."""
    return _allowed.get()
