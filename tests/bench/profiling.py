"""Where the time of a consolidation goes, by thread and function: ``--profile``.

The profiler looks at every thread a thousand times a second. A thread that waits for work does not
count. A thread that waits for the interpreter counts in its function, and so does a thread that
waits for SQLite.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.bench.databases import Workshop

SHOWN = 40
"""Functions that are listed."""

_INTERVAL_SECONDS = 0.001
_IDLE = frozenset({"_connection_worker_thread", "_worker", "get", "select", "wait"})
"""Functions in which a thread waits for work."""

Place = tuple[str, str]
"""A file, and a function in it."""


@dataclass(slots=True)
class Samples:
    """The samples of all threads.

    Attributes:
        looks: How often all threads were looked at.
        own: By thread and place, how often it was at work there.
        within: By place, how often some thread was at work there or in what it calls.
    """

    looks: int = 0
    own: Counter[tuple[str, Place]] = field(default_factory=Counter)
    within: Counter[Place] = field(default_factory=Counter)

    def take(self) -> None:
        """Look at every thread but this one."""
        self.looks += 1
        frames = sys._current_frames()
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if thread is not threading.current_thread() and frame is not None:
                self._count(thread.name, list(_places(frame)))

    def _count(self, thread: str, places: list[Place]) -> None:
        if places[0][1].rpartition(".")[2] in _IDLE:
            return
        self.own[thread, places[0]] += 1
        self.within.update(set(places))

    def lines(self) -> Iterator[str]:
        """Yield a table for people: shares of the wall time, the largest first."""
        yield f"{'own':>6} {'within':>6}  thread, and where it was at work"
        for (thread, place), count in self.own.most_common(SHOWN):
            shares = f"{count / self.looks:6.1%} {self.within[place] / self.looks:6.1%}"
            yield f"{shares}  {thread:12} {place[0]} {place[1]}"


def _places(frame: FrameType | None) -> Iterator[Place]:
    while frame is not None:
        yield Path(frame.f_code.co_filename).name, frame.f_code.co_qualname
        frame = frame.f_back


@contextmanager
def sampled() -> Iterator[Samples]:
    """Look at what all threads do during the block."""
    samples, over = Samples(), threading.Event()

    def look() -> None:
        while not over.wait(_INTERVAL_SECONDS):
            samples.take()

    sampler = threading.Thread(target=look, name="sampler", daemon=True)
    sampler.start()
    try:
        yield samples
    finally:
        over.set()
        sampler.join()


def profile(shop: Workshop) -> None:
    """Fire on what is pending, in this process, and print where the time was spent."""
    home = shop.home(shop.pending(shop.middle))
    with sampled() as samples:
        home.call("fire", "all")
    print(*samples.lines(), sep="\n")
