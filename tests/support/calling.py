"""Call commands in this process, which takes a tenth of the time of a new process."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import structlog

from slumberd.cli import call


def called(*arguments: str) -> CompletedProcess[str]:
    """Run a command to its end; none may ever show a traceback."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with logging_as_before(), redirect_stdout(out), redirect_stderr(err):
        code = call(arguments)
    told, wrong = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert "Traceback" not in wrong, wrong
    return CompletedProcess(arguments, code, told, wrong)


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Put back, at the end of the block, where logs went before it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()
