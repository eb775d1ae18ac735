"""Run commands on a terminal of a given width."""

from __future__ import annotations

import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from fcntl import ioctl
from functools import partial
from threading import Thread

from slumberd.cli import call
from tests.support.cli_runner import restored_logging

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


@contextmanager
def terminal(columns: int = 80) -> Iterator[Callable[[], bytes]]:
    """Let this process write to a terminal; yield a function that returns all that it wrote."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown: list[bytes] = []
    reading = Thread(target=lambda: shown.extend(iter(partial(_read, ours), b"")))
    reading.start()

    def output() -> bytes:
        reading.join()
        return b"".join(shown)

    try:
        with open(theirs, "w") as out, redirect_stdout(out), redirect_stderr(out):  # noqa: PTH123
            yield output
    finally:
        reading.join()
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def output_on_terminal(words: Sequence[str], columns: int = 80) -> bytes:
    """Return all that a command shows on a terminal, escape codes included."""
    with terminal(columns) as output, restored_logging():
        call(words)
    return output()


def lines_on_terminal(words: Sequence[str], columns: int = 80) -> list[str]:
    """Return the lines that a command shows on a terminal, without escape codes."""
    return _ESCAPES.sub(b"", output_on_terminal(words, columns)).decode().splitlines()
