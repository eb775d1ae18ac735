"""A command that is told to end closes what it has open."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from slumberd.cli.ending import tidily_ending


def test_sigterm_ends_what_runs_as_sigint_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    closed = []

    async def main() -> None:
        try:
            with tidily_ending():
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
        finally:
            closed.append("what was open")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())

    assert closed == ["what was open"]
    assert signal.getsignal(signal.SIGTERM) == before
