"""A real Redis server on a socket in a temporary directory, without a network."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

PROGRAM = shutil.which("redis-server")
"""The server; None when it is not installed."""


@contextmanager
def running_redis(*options: str) -> Iterator[str]:
    """Yield the address of a new server; it ends with the block.

    Args:
        options: Further options of the command line.
    """
    assert PROGRAM is not None
    # Not in tmp_path: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="redis") as folder:
        socket = Path(folder, "socket")
        arguments = ["--port", "0", "--unixsocket", str(socket), "--dir", folder, "--save", ""]
        with subprocess.Popen(
            [PROGRAM, *arguments, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                wait_until(lambda: socket.exists() or server.poll() is not None)
                assert server.poll() is None, "redis-server did not start"
                yield f"unix://{socket}"
            finally:
                server.terminate()
