"""Check the health of a component within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slumberd.clock import Clock
from slumberd.tiers.entries import HealthCheckResult, HealthStatus

Probe = Callable[[], Awaitable[Mapping[str, Any]]]
"""Uses a component, and returns details of it."""


async def check_health(
    component: str, probe: Probe, timeout_seconds: float, clock: Clock
) -> HealthCheckResult:
    """Return whether a probe succeeds in time; it is degraded when it fails or is late."""
    began = clock.monotonic()
    details, error = None, None
    try:
        async with asyncio.timeout(timeout_seconds):
            details = await probe()
    except TimeoutError:
        error = f"no answer within {timeout_seconds:g} s"
    except Exception as failure:  # noqa: BLE001 # whatever a component raises is its state
        error = f"{type(failure).__name__}: {failure}"
    return HealthCheckResult(
        component,
        HealthStatus.HEALTHY if error is None else HealthStatus.DEGRADED,
        message=error,
        error=error,
        duration_ms=1_000 * (clock.monotonic() - began),
        details=details,
        checked_at=clock.now(),
    )
