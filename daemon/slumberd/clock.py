"""The one place that reads the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """The machine's clocks; implements ``ports.Clock``."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, to the microsecond."""
        # Not datetime.now(): under freezegun that is a subclass which orjson refuses.
        return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Return seconds that never step back; CLOCK_MONOTONIC, as systemd wants it."""
        return time.monotonic()
