"""A command that gets SIGTERM closes what it has open."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from slumberd.cli.stop_signals import clean_up_on_sigterm
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit


@pytest.fixture(
    params=[
        pytest.param(signal.default_int_handler, id="in front"),
        pytest.param(signal.SIG_IGN, id="in the background"),
    ]
)
def _started(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set SIGINT as the shell does for a command that it starts."""
    before: Any = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_started")
def test_sigterm_ends_a_command_after_it_closes_its_resources() -> None:
    before = signal.getsignal(signal.SIGTERM)
    closed = []

    async def main() -> None:
        with clean_up_on_sigterm():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                closed.append("what was open")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())

    assert closed == ["what was open"]
    assert signal.getsignal(signal.SIGTERM) == before


async def test_cancellation_by_another_task_is_raised() -> None:
    async def main() -> None:
        with clean_up_on_sigterm():
            await asyncio.Event().wait()

    task = asyncio.ensure_future(main())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
