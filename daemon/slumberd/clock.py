"""Read the time, and wait for events and commits. No other module reads the time."""

from __future__ import annotations

import asyncio
import ctypes
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """The clocks of the machine; implements `Clock`."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, to the microsecond."""
        # Not datetime.now(): under freezegun that is a subclass which orjson refuses.
        return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Return seconds that never step back; CLOCK_MONOTONIC, as systemd wants it."""
        return time.monotonic()


class _KernelTime(ctypes.Structure):
    """``struct timex`` of Linux, as far as it is read; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("most_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("fraction", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    )


_UNSYNCHRONISED = 0x40
"""The bit ``STA_UNSYNC`` of the status."""


def synchronised_time() -> datetime | None:
    """Return what the kernel's clock says; None unless the kernel reports it as synchronised."""
    found = _KernelTime()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found))
    if state < 0 or found.status & _UNSYNCHRONISED:
        return None
    return _EPOCH + timedelta(seconds=found.seconds)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most `seconds`; return whether it is set."""
    # Not wait_for(), which creates a task each time in Python 3.11: idle daemons call this often.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, a plain ``datetime``."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step back."""
        ...


class CommitSignal:
    """Wakes all waiting tasks at once, each time that something was committed."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """What the next commit sets. Take it before you read, so that no commit is missed."""
        return self._next

    def announce(self) -> None:
        """Wake all tasks that wait."""
        self._next.set()
        self._next = asyncio.Event()
