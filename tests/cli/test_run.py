"""Commands heed signals, however their launcher had set them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.setup import clean_up_on_sigterm
from tests.support.installation import Installation, environment
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.unit

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def shut_out_signals() -> None:
    """Ignore and block signals, as a careless launcher does before it starts a program."""
    for number in HEEDED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)


@pytest.mark.slow
@pytest.mark.integration
def test_daemon_heeds_signals_that_its_launcher_shut_out(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    command, env = site.command("run"), environment({})

    with subprocess.Popen(command, env=env, preexec_fn=shut_out_signals) as daemon:
        try:
            wait_until(lambda: site.lines("status")[0]["running"])
            daemon.send_signal(signal.SIGHUP)
            wait_until(lambda: "config.reloaded" in (site.state / "slumberd.log").read_text())
            daemon.send_signal(signal.SIGINT)
            daemon.wait(PATIENCE_SECONDS)
        finally:
            daemon.kill()

    assert daemon.returncode == 0


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
